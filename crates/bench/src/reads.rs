//! Reads in virtual time: of an emulated device itself, of a volume on it, and of a file of BarrierFS on either.
//! Each ground has a device of its own and the same reads, so that the ratio to the device is what the layers cost.
//! All that is read is checked.

use std::cell::RefCell;

use futures_util::future::try_join_all;
use serde::Serialize;
use weir_ext4::{Mkfs, ROOT_INODE};
use weir_flash::{FlashDevice, FlashOptions, Profile};
use weir_format::FileType;
use weir_fs::{BarrierFs, MountOptions};
use weir_runtime::{Handle, Runtime, Simulation};
use weir_stack::{Disk, Stack, VolumeSpec};
use weir_storage::{BLOCK_BYTES, Extent, Lba, Part, flush, read, write};
use weir_vfs::{InodeNumber, NewNode};
use weir_volume::{Format, VolumeOptions};

use crate::chooser::Distribution;
use crate::content::Pages;
use crate::error::BenchError;
use crate::ledger::Ledger;
use crate::writes::{Span, Writes};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Blocks of one sequential read: 256 KiB.
const SEQUENTIAL_BLOCKS: u32 = 64;
/// Blocks of a volume's segment: 512 KiB, which every profile takes in one command.
const SEGMENT_BLOCKS: u32 = 128;
/// The file's name.
const NAME: &[u8] = b"read";

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadsOptions {
    /// Blocks of the span, 1,024 at least; rounded down to whole sequential reads.
    pub span_blocks: u64,
    /// Random reads in flight.
    pub depth: u32,
    /// Determines everything.
    pub seed: u64,
}

impl Default for ReadsOptions {
    fn default() -> ReadsOptions {
        ReadsOptions { span_blocks: 1 << 14, depth: 32, seed: 1 }
    }
}

/// What is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadGround {
    /// The emulated device itself.
    Device,
    /// A file of BarrierFS on the device.
    FileOnDevice,
    /// A volume on the device.
    Volume,
    /// A file of BarrierFS on a volume on the device.
    FileOnVolume,
}

impl ReadGround {
    /// All of them; the device comes first.
    pub const ALL: [ReadGround; 4] =
        [ReadGround::Device, ReadGround::FileOnDevice, ReadGround::Volume, ReadGround::FileOnVolume];

    /// What it is, for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ReadGround::Device => "the device",
            ReadGround::FileOnDevice => "BarrierFS on it",
            ReadGround::Volume => "a volume on it",
            ReadGround::FileOnVolume => "BarrierFS on a volume",
        }
    }

    fn has_volume(self) -> bool {
        matches!(self, ReadGround::Volume | ReadGround::FileOnVolume)
    }

    fn has_file(self) -> bool {
        matches!(self, ReadGround::FileOnDevice | ReadGround::FileOnVolume)
    }
}

/// What reads of one ground reached, in the device's own time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ReadRates {
    /// What was read from.
    pub ground: ReadGround,
    /// Reads of 4 KiB a second: every block of the span once, in random order, `depth` of them in flight.
    pub random_iops: f64,
    /// The same, as a share of the device's.
    pub random_ratio: f64,
    /// MiB a second in reads of 256 KiB, one after the other, of what was written so.
    pub sequential_mib: f64,
    /// The same, as a share of the device's.
    pub sequential_ratio: f64,
    /// The same of what was written over at random, as many blocks as the span has.
    pub overwritten_mib: f64,
    /// The same, as a share of the device's.
    pub overwritten_ratio: f64,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReadsReport {
    /// The device's profile.
    pub device: String,
    /// Blocks of the span.
    pub span_blocks: u64,
    /// Random reads in flight.
    pub depth: u32,
    /// The rates of each ground; the device comes first.
    pub rates: Vec<ReadRates>,
    /// Stands for everything that happened.
    pub trace_hash: String,
}

/// Reads from each ground in turn.
///
/// # Errors
/// [`BenchError::Capacity`] for a device that is too small; [`BenchError::Content`] for a block that is not what was
/// written last; what the storages answered.
pub fn reads(profile: &Profile, options: &ReadsOptions) -> Result<ReadsReport, BenchError> {
    let step = u64::from(SEQUENTIAL_BLOCKS);
    let span = options.span_blocks.max(1024) / step * step;
    let needed = device_blocks(span);
    if profile.blocks < needed {
        let mib = |blocks: u64| (blocks * BLOCK) >> 20;
        return Err(BenchError::Capacity { device_mib: mib(profile.blocks), needed_mib: mib(needed) });
    }
    let profile = profile.with_capacity(needed);
    let mut rates: Vec<ReadRates> = Vec::new();
    let mut hash = 0_u64;
    for ground in ReadGround::ALL {
        let runtime = Runtime::simulated(Simulation { seed: options.seed, ..Simulation::default() });
        let handle = runtime.handle();
        let mut found =
            runtime.block_on(measure(&handle, &profile, ground, span, options.depth.max(1)))??;
        let device = *rates.first().unwrap_or(&found);
        found.random_ratio = found.random_iops / device.random_iops;
        found.sequential_ratio = found.sequential_mib / device.sequential_mib;
        found.overwritten_ratio = found.overwritten_mib / device.overwritten_mib;
        rates.push(found);
        hash = hash.rotate_left(1) ^ handle.trace_hash();
    }
    Ok(ReadsReport {
        device: profile.name.clone(),
        span_blocks: span,
        depth: options.depth,
        rates,
        trace_hash: format!("{hash:016x}"),
    })
}

/// Blocks of the device: room for the span, as much again for what superseded it, and for a filesystem's own.
fn device_blocks(span: u64) -> u64 {
    3 * span + (1 << 14)
}

/// Fills the span, reads it, writes it over at random, and reads it again, each time with nothing in memory.
async fn measure(
    handle: &Handle,
    profile: &Profile,
    ground: ReadGround,
    span: u64,
    depth: u32,
) -> Result<ReadRates, BenchError> {
    let device = Disk::Emulated(FlashDevice::new(handle, profile, FlashOptions::default()));
    let mut pages = Pages::new(&mut handle.random("pages"));
    let mut ledger = Ledger::new(span);
    let mut subject = Subject::make(handle, device, ground, span).await?;

    let fill = Writes::new(1, Span::pages(span), Distribution::Sequential, 0, 1, handle.random("fill"));
    subject.write(fill, &mut pages, &mut ledger).await?;
    subject.reopen(handle).await?;
    let random_iops = subject.random(handle, &pages, &ledger, depth).await?;
    subject.reopen(handle).await?;
    let sequential_mib = subject.sequential(handle, &pages, &ledger).await?;

    let over = Writes::new(2, Span::pages(span), Distribution::Uniform, 0, 1, handle.random("over"));
    subject.write(over, &mut pages, &mut ledger).await?;
    subject.reopen(handle).await?;
    let overwritten_mib = subject.sequential(handle, &pages, &ledger).await?;
    subject.close().await?;
    let (random_ratio, sequential_ratio, overwritten_ratio) = (1.0, 1.0, 1.0);
    Ok(ReadRates {
        ground,
        random_iops,
        random_ratio,
        sequential_mib,
        sequential_ratio,
        overwritten_mib,
        overwritten_ratio,
    })
}

/// What is written and read: a storage, or a file in a filesystem on it.
struct Subject {
    stack: Stack,
    file: Option<(BarrierFs, InodeNumber)>,
}

impl Subject {
    async fn make(
        handle: &Handle,
        device: Disk,
        ground: ReadGround,
        span: u64,
    ) -> Result<Subject, BenchError> {
        // The filesystem's own blocks, the most of them its journal.
        let blocks = span + span / 4 + (1 << 13);
        let format =
            Format { logical_blocks: blocks, segment_blocks: SEGMENT_BLOCKS, overwrite: true, slots: 0 };
        let volume = VolumeSpec { format, ..VolumeSpec::default() };
        let stack = match ground.has_volume() {
            true => Stack::make_volume(handle, device, &volume).await?,
            false => Stack::from(device),
        };
        let mut subject = Subject { stack, file: None };
        if ground.has_file() {
            let mkfs = Mkfs { zeroed: true, ..Mkfs::new(blocks, [7; 16], [8; 16], 0) };
            BarrierFs::make(&*subject.stack.storage(), &mkfs).await?;
            let filesystem = subject.mount(handle).await?;
            let inode = filesystem.create(ROOT_INODE, NAME, &NewNode::new(FileType::Regular, 0o644)).await?;
            subject.file = Some((filesystem, inode));
        }
        Ok(subject)
    }

    async fn mount(&self, handle: &Handle) -> Result<BarrierFs, BenchError> {
        Ok(BarrierFs::mount(handle, self.stack.storage(), MountOptions::default()).await?)
    }

    /// Makes everything durable, and leaves nothing of it in memory.
    async fn reopen(&mut self, handle: &Handle) -> Result<(), BenchError> {
        let inode = self.file.as_ref().map(|(_, inode)| *inode);
        self.close().await?;
        if self.stack.volume().is_some() {
            self.stack = Stack::open(handle, self.stack.disk().clone(), VolumeOptions::default()).await?;
        }
        if let Some(inode) = inode {
            self.file = Some((self.mount(handle).await?, inode));
        }
        Ok(())
    }

    async fn close(&mut self) -> Result<(), BenchError> {
        if let Some((filesystem, _)) = self.file.take() {
            filesystem.unmount().await?;
        }
        self.stack.close().await?;
        Ok(flush(&*self.stack.disk().storage()).await?)
    }

    /// Writes as many blocks as the span has.
    async fn write(
        &self,
        mut writes: Writes,
        pages: &mut Pages,
        ledger: &mut Ledger,
    ) -> Result<(), BenchError> {
        let count = ledger.blocks();
        ledger.enter(writes.clone(), count);
        let storage = self.stack.storage();
        for _ in 0..count {
            let stamp = writes.take();
            let page = pages.page(stamp);
            match &self.file {
                Some((filesystem, inode)) => {
                    filesystem.write(*inode, stamp.block * BLOCK, page).await?;
                }
                None => write(&*storage, Part::bytes(Lba(stamp.block), page)).await?,
            }
        }
        Ok(())
    }

    async fn read(&self, block: u64, blocks: u32, pages: &Pages, ledger: &Ledger) -> Result<(), BenchError> {
        let extent = Extent::new(Lba(block), blocks);
        let found = match &self.file {
            Some((filesystem, inode)) => {
                let mut bytes = vec![0; extent.bytes()];
                let read = filesystem.read(*inode, block * BLOCK, &mut bytes).await?;
                bytes.truncate(read);
                bytes
            }
            None => read(&*self.stack.storage(), extent).await?.to_vec(),
        };
        let mut found = found.chunks(BLOCK_BYTES);
        extent.iter().try_for_each(|lba| ledger.holds(lba.0, found.next().unwrap_or_default(), pages))
    }

    /// Reads every block once, in random order, so many at a time: reads a second.
    async fn random(
        &self,
        handle: &Handle,
        pages: &Pages,
        ledger: &Ledger,
        depth: u32,
    ) -> Result<f64, BenchError> {
        let mut random = handle.random("reads");
        let mut order: Vec<u64> = (0..ledger.blocks()).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, random.below(last as u64 + 1) as usize);
        }
        let order = RefCell::new(order);
        let began = handle.now();
        try_join_all((0..depth).map(async |_| {
            loop {
                let next = order.borrow_mut().pop();
                match next {
                    Some(block) => self.read(block, 1, pages, ledger).await?,
                    None => return Ok::<_, BenchError>(()),
                }
            }
        }))
        .await?;
        Ok(ledger.blocks() as f64 / handle.now().since(began).as_secs_f64())
    }

    /// Reads the span from one end to the other: MiB a second.
    async fn sequential(&self, handle: &Handle, pages: &Pages, ledger: &Ledger) -> Result<f64, BenchError> {
        let began = handle.now();
        for block in (0..ledger.blocks()).step_by(SEQUENTIAL_BLOCKS as usize) {
            self.read(block, SEQUENTIAL_BLOCKS, pages, ledger).await?;
        }
        let mib = (ledger.blocks() * BLOCK) as f64 / f64::from(1 << 20);
        Ok(mib / handle.now().since(began).as_secs_f64())
    }
}
