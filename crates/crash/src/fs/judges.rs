//! Four judges of a filesystem that a power cut may have damaged. Each gets the same image and recovers it by itself, and
//! says whether it is *clean*, *fixed* or *failed*:
//!
//! | judge | clean | fixed | failed |
//! |---|---|---|---|
//! | our model | a mount of ours shows what may be there | | it does not, or there is no mount |
//! | our check | it finds nothing | it finds something, and mends nothing itself | the image is no filesystem |
//! | e2fsck | it mends nothing but orphans and totals | it mends more, and is content then | it is not |
//! | the kernel | its mount shows what may be there, and leaves it clean | e2fsck has to mend what it leaves | its mount does not, or there is none |
//!
//! All together, it is what the worst of them says.

use std::rc::Rc;

use serde::Serialize;
use weir_ext4::check;
use weir_fs::{BarrierFs, MountOptions};
use weir_runtime::Handle;
use weir_storage::{AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Image, Lba};

use super::ground::{BLOCKS, Bytes, new_image};
use super::outside;
use super::visible::Visible;
use super::workload::Found;
use crate::bound::in_new_runtime;

use crate::named::named;

named! {
    /// In what condition a filesystem is, the best first.
    #[derive(PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "lowercase")]
    Condition {
        /// As it should be.
        Clean = "clean",
        /// Whole again after a repair.
        Fixed = "fixed",
        /// Beyond repair, or not what was promised.
        Failed = "failed",
    }
}

/// What each judge says of one image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// Our model, of what a mount of ours shows.
    pub model: Condition,
    /// Our check of the format.
    pub check: Condition,
    /// e2fsck; none where it was not asked.
    pub e2fsck: Option<Condition>,
    /// The kernel's ext4; none where it was not asked.
    pub kernel: Option<Condition>,
    /// A test as CrashMonkey makes it: e2fsck, and then a check of what it left; none where there was no such test.
    pub tested: Option<Condition>,
}

impl Judgement {
    /// What they say together: the worst.
    #[must_use]
    pub fn all(&self) -> Condition {
        let outside = self.e2fsck.into_iter().chain(self.kernel);
        outside.fold(self.model.max(self.check), Condition::max)
    }
}

/// The judges that are asked: our model and our check always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judges {
    e2fsck: bool,
    kernel: bool,
}

impl Judges {
    /// Our model and our check.
    pub const OURS: Judges = Judges { e2fsck: false, kernel: false };

    /// All that this machine has: e2fsck where it is installed, and the kernel where it mounts a whole image for us, as it
    /// does for root.
    ///
    /// # Errors
    /// What keeps us from trying: no room for an image, say.
    pub fn here() -> Result<Judges, String> {
        let mut image = vec![0; BLOCKS as usize * BLOCK_BYTES];
        for (block, bytes) in new_image(true)? {
            let from = block as usize * BLOCK_BYTES;
            image[from..from + BLOCK_BYTES].copy_from_slice(&bytes);
        }
        let others = Judges::without_kernel();
        let mounts = || outside::kernel_mounts(&image).map_err(|error| error.to_string());
        Ok(Judges { kernel: others.e2fsck && mounts()?, ..others })
    }

    /// All that this machine has but the kernel.
    #[must_use]
    pub fn without_kernel() -> Judges {
        Judges { e2fsck: outside::is_there(), kernel: false }
    }

    /// Whether e2fsck is asked.
    #[must_use]
    pub fn has_e2fsck(&self) -> bool {
        self.e2fsck
    }

    /// Whether the kernel is asked.
    #[must_use]
    pub fn has_kernel(&self) -> bool {
        self.kernel
    }

    /// What each says of an image, of which nothing was recovered. `is_allowed` is the model.
    ///
    /// # Errors
    /// What kept a judge from judging, which says nothing about the image.
    pub fn judge(&self, image: &[u8], is_allowed: &dyn Fn(&Found) -> bool) -> Result<Judgement, String> {
        let e2fsck = self.e2fsck.then(|| outside::by_e2fsck(image)).transpose();
        let e2fsck = e2fsck.map_err(|complaint| complaint.to_string())?;
        self.judge_beside(image, is_allowed, e2fsck)
    }

    /// The same, and the verdict of a test as CrashMonkey makes it: e2fsck mends the image, and `check` has to be content with
    /// what is there then. Where e2fsck is not installed, our check and our recovery stand in its place.
    ///
    /// # Errors
    /// As [`judge`](Self::judge).
    pub fn test(
        &self,
        image: &[u8],
        is_allowed: &dyn Fn(&Found) -> bool,
        check: &dyn Fn(&Found) -> bool,
    ) -> Result<Judgement, String> {
        let by_others = self.e2fsck.then(|| outside::tested(image, check)).transpose();
        let (e2fsck, tested) = by_others.map_err(|complaint| complaint.to_string())?.unzip();
        let judgement = self.judge_beside(image, is_allowed, e2fsck)?;
        let tested = tested.unwrap_or_else(|| judgement.check.max(by_model(image, check)));
        Ok(Judgement { tested: Some(tested), ..judgement })
    }

    fn judge_beside(
        &self,
        image: &[u8],
        is_allowed: &dyn Fn(&Found) -> bool,
        e2fsck: Option<Condition>,
    ) -> Result<Judgement, String> {
        let kernel = self.kernel.then(|| outside::by_kernel(image, is_allowed)).transpose();
        let kernel = kernel.map_err(|complaint| complaint.to_string())?;
        let (model, check) = (by_model(image, is_allowed), by_check(image)?);
        Ok(Judgement { model, check, e2fsck, kernel, tested: None })
    }
}

/// What a mount of ours shows.
fn by_model(image: &[u8], is_allowed: &dyn Fn(&Found) -> bool) -> Condition {
    let found = in_new_runtime(0, async |handle| {
        let disk = disk_of(handle, image);
        let fs = BarrierFs::mount(handle, disk, MountOptions::default()).await;
        let fs = fs.map_err(|error| error.to_string())?;
        let visible = Visible::read(&fs).await.map_err(|error| error.to_string())?;
        Ok::<_, String>(Found(Rc::new(visible)))
    });
    match found {
        Ok(found) if is_allowed(&found) => Condition::Clean,
        _ => Condition::Failed,
    }
}

fn disk_of(handle: &Handle, image: &[u8]) -> Rc<AdversaryDisk> {
    let blocks = (image.len() / BLOCK_BYTES) as u64;
    let options = AdversaryOptions { blocks, ..AdversaryOptions::default() };
    let mut left = Image::zeroed(blocks, options.capabilities.tear_unit_bytes);
    for (number, block) in (0..).zip(image.chunks_exact(BLOCK_BYTES)) {
        if block.iter().any(|byte| *byte != 0) {
            left.write(Lba(number), block);
        }
    }
    AdversaryDisk::from_image(handle, options, &left)
}

/// What our check says, which follows the log by itself.
fn by_check(image: &[u8]) -> Result<Condition, String> {
    in_new_runtime(0, async |_| {
        Ok::<_, String>(match check::check(&Bytes(image.to_vec())).await {
            Ok(report) if report.is_clean() => Condition::Clean,
            Ok(_) => Condition::Fixed,
            Err(_) => Condition::Failed,
        })
    })
}
