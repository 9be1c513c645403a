//! The filesystem that runs begin with: small, with few free segments, and with a file that takes most of the room and has
//! holes all over, so that cleaning moves pages of it. The file is never changed, and whatever moves its pages keeps them.

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use weir_f2fs::Mkfs;
use weir_format::FileType;
use weir_lfs::{F2fs, F2fsOptions};
use weir_runtime::Random;
use weir_storage::{AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Storage};
use weir_vfs::{Fallocate, FilesystemCalls, FsError, NewNode};

use crate::bound::in_new_runtime;
use crate::content::mix;
use crate::fs::ground::{Blocks, written_blocks};
use crate::fs::visible::BALLAST;

/// Blocks of the filesystem.
pub(crate) const BLOCKS: u64 = 16_384;
/// Pages of the ballast for each hundred that are free at first, and how many of a hundred of these stay.
const FILLED_PERCENT: u64 = 96;
const KEPT_PERCENT: u64 = 55;
/// Of so many pages of the ballast, one holds something else than zeros, which take no memory here.
const PAGES_PER_STAMP: u64 = 4;
/// Pages that are written at once behind the holes, until the cleaner works.
const STEP: u64 = 32;
/// Pages of the ballast that are looked at in each state.
const LOOKS: u64 = 12;

/// See the head of this file.
pub struct Aged {
    /// The blocks of the image, those of zeros left out.
    pub(super) blocks: Blocks,
    /// Pages of the ballast.
    pages: u64,
    /// Steps of pages behind its holes.
    steps: u64,
}

/// What a page of the ballast holds.
fn content_of(page: u64) -> Vec<u8> {
    let stamp = if is_kept(page) && page.is_multiple_of(PAGES_PER_STAMP) { mix(page, 1) | 1 } else { 0 };
    stamp.to_le_bytes().repeat(BLOCK_BYTES / 8)
}

/// Whether a page of the ballast is no hole.
fn is_kept(page: u64) -> bool {
    mix(page, 2) % 100 < KEPT_PERCENT
}

impl Aged {
    /// Makes it: the first one shows how much has to be written until the cleaner works, the second is just before that.
    pub(super) fn new() -> Result<Aged, String> {
        let cleaned = Aged::with(u64::MAX)?;
        Aged::with(cleaned.steps.saturating_sub(1))
    }

    /// A filesystem behind the holes of which so many steps of pages are written, or fewer if the cleaner works before.
    fn with(steps: u64) -> Result<Aged, String> {
        in_new_runtime(0, async |handle| {
            let options = AdversaryOptions { blocks: BLOCKS, ..AdversaryOptions::default() };
            let disk = AdversaryDisk::new(handle, options);
            let failed = |error: FsError| format!("making a filesystem: {error}");
            let mkfs = Mkfs { zeroed: true, ..Mkfs::new(BLOCKS, [7; 16], 1, 1_700_000_000) };
            F2fs::make(&*disk, &mkfs).await.map_err(failed)?;
            let device = Rc::clone(&disk) as Rc<dyn Storage>;
            // In the background nothing is cleaned.
            let options =
                F2fsOptions { checkpoint_interval: Duration::from_secs(1 << 30), ..F2fsOptions::default() };
            let fs = F2fs::mount(handle, device, options).await.map_err(failed)?;
            let (steps, pages) = age(&fs, steps).await.map_err(failed)?;
            fs.unmount().await.map_err(failed)?;
            let blocks = written_blocks(&*disk).await?;
            Ok(Aged { blocks, pages, steps })
        })
    }

    /// Whether some pages of the ballast are as they were.
    pub(super) async fn look(&self, fs: &dyn FilesystemCalls, random: &mut Random) -> Result<(), String> {
        let failed = |error: FsError| format!("reading the ballast: {error}");
        let ballast = fs.lookup(fs.root(), BALLAST).await.map_err(failed)?;
        let mut bytes = vec![0; BLOCK_BYTES];
        for _ in 0..LOOKS {
            let page = random.below(self.pages);
            fs.read(ballast, page * BLOCK_BYTES as u64, &mut bytes).await.map_err(failed)?;
            if bytes != content_of(page) {
                return Err(format!(
                    "page {page} of the ballast is not what was written; it begins with {:x?}",
                    &bytes[..8]
                ));
            }
        }
        Ok(())
    }
}

/// Fills a new filesystem, makes holes, and writes on in steps: how many, and the pages of the file.
async fn age(fs: &F2fs, most: u64) -> Result<(u64, u64), FsError> {
    let ballast = fs.create(fs.root(), BALLAST, &NewNode::new(FileType::Regular, 0o400)).await?;
    let block = BLOCK_BYTES as u64;
    let write = async |pages: Range<u64>| {
        for page in pages {
            fs.write(ballast, page * block, &content_of(page)).await?;
        }
        fs.sync().await
    };
    let mut pages = fs.statfs().await.available_blocks * FILLED_PERCENT / 100;
    write(0..pages).await?;
    for page in (0..pages).filter(|page| !is_kept(*page)) {
        fs.fallocate(ballast, Fallocate::PunchHole, page * block, block).await?;
    }
    fs.sync().await?;
    let cleaned = || fs.statistics().cleaned.segments;
    let (mut steps, before) = (0, cleaned());
    while steps < most && cleaned() == before {
        write(pages..pages + STEP).await?;
        pages += STEP;
        steps += 1;
    }
    Ok((steps, pages))
}
