//! A filesystem on a volume, made for a turn.

use weir_ext4::{Mkfs, ROOT_INODE};
use weir_format::FileType;
use weir_fs::{BarrierFs, MountOptions, Promise};
use weir_runtime::{Handle, Random};
use weir_stack::{Disk, Stack};
use weir_storage::BLOCK_BYTES;
use weir_vfs::{InodeNumber, NewNode};
use weir_volume::Stats;

use crate::content::Pages;
use crate::error::BenchError;
use crate::filesystem::check::require_clean;
use crate::filesystem::mode::{FsMode, FsWrite};
use crate::filesystem::plan::FsPlan;
use crate::ledger::{Coverage, Ledger};
use crate::measure::{Goal, Measured, Meter};
use crate::writes::Writes;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The file's name.
pub(crate) const NAME: &[u8] = b"written";

/// Writes between two turns for the rest of the runtime, when nothing else makes the loop wait.
const WRITES_PER_TURN: u64 = 256;

/// A mounted filesystem with one file.
pub(crate) struct MountedFile {
    handle: Handle,
    stack: Stack,
    filesystem: BarrierFs,
    inode: InodeNumber,
}

impl MountedFile {
    /// Makes a volume on `disk`, a filesystem on the volume, and an empty file in it.
    pub(crate) async fn make(
        handle: &Handle,
        disk: Disk,
        plan: &FsPlan,
        mode: FsMode,
    ) -> Result<MountedFile, BenchError> {
        let stack = make(handle, disk, plan).await?;
        let (engine, coalition) = (Some(mode.engine), mode.coalition);
        let options = MountOptions { engine, coalition, ..MountOptions::default() };
        let filesystem = BarrierFs::mount(handle, stack.storage(), options).await?;
        let inode = filesystem.create(ROOT_INODE, NAME, &NewNode::new(FileType::Regular, 0o644)).await?;
        filesystem.sync().await?;
        Ok(MountedFile { handle: handle.clone(), stack, filesystem, inode })
    }

    /// What the volume under it has counted.
    pub(crate) fn volume_stats(&self) -> Stats {
        self.stack.volume_stats()
    }

    /// Writes `count` pages, and makes them durable.
    pub(crate) async fn fill(
        &self,
        mut writes: Writes,
        count: u64,
        pages: &mut Pages,
    ) -> Result<(), BenchError> {
        for _ in 0..count {
            let stamp = writes.take();
            self.filesystem.write(self.inode, stamp.block * BLOCK, pages.page(stamp)).await?;
        }
        Ok(self.filesystem.fsync(self.inode).await?)
    }

    /// Writes, with the mode's call after each write, until `goal` is reached; then makes all of it durable, if
    /// the calls did not. All of that is timed.
    pub(crate) async fn run(
        &self,
        mode: FsMode,
        writes: &mut Writes,
        pages: &mut Pages,
        goal: &Goal,
    ) -> Result<Measured, BenchError> {
        let mut meter = Meter::start(&self.handle);
        let mut done = 0;
        while !meter.reached(goal) {
            let stamp = writes.take();
            let offset = stamp.block * BLOCK;
            if offset == 0 && mode.write == FsWrite::Append && done > 0 {
                // The span is used up: the file begins anew.
                self.filesystem.truncate(self.inode, 0).await?;
            }
            self.filesystem.write(self.inode, offset, pages.page(stamp)).await?;
            self.filesystem.synchronise(self.inode, mode.call).await?;
            meter.lap();
            done += 1;
            if done % WRITES_PER_TURN == 0 {
                self.handle.yield_now().await;
            }
        }
        if mode.call.promise() == Promise::Ordered {
            self.filesystem.fsync(self.inode).await?;
        }
        Ok(meter.stop())
    }

    /// Unmounts the filesystem and closes the volume.
    pub(crate) async fn close(self) -> Result<(), BenchError> {
        self.filesystem.unmount().await?;
        Ok(self.stack.close().await?)
    }
}

/// Makes a volume on `disk`, and a filesystem on the volume.
pub(crate) async fn make(handle: &Handle, disk: Disk, plan: &FsPlan) -> Result<Stack, BenchError> {
    let volume = plan.volume();
    let stack = Stack::make_volume(handle, disk, &volume).await?;
    let created = u32::try_from(handle.wall_clock_millis() / 1000).unwrap_or(u32::MAX);
    // A new volume reads as zeros.
    let mkfs = Mkfs { zeroed: true, ..Mkfs::new(volume.format.logical_blocks, [7; 16], [8; 16], created) };
    BarrierFs::make(&*stack.storage(), &mkfs).await?;
    Ok(stack)
}

/// Opens the volume on `disk` anew, checks the filesystem on it, mounts it, and reads the file back. Returns how many blocks
/// were read.
pub(crate) async fn verify(
    handle: &Handle,
    disk: Disk,
    plan: &FsPlan,
    (ledger, pages): (&Ledger, &Pages),
    coverage: Coverage,
    random: &mut Random,
) -> Result<u64, BenchError> {
    let stack = Stack::open(handle, disk, plan.volume_options()).await?;
    require_clean(stack.storage()).await?;
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let filesystem = BarrierFs::mount(handle, stack.storage(), options).await?;
    let inode = filesystem.lookup(ROOT_INODE, NAME).await?;
    let blocks = (filesystem.attributes(inode).await?.size / BLOCK).min(ledger.blocks());
    let mut page = vec![0; BLOCK_BYTES];
    let mut check = async |block: u64| {
        let read = filesystem.read(inode, block * BLOCK, &mut page).await?;
        page[read..].fill(0);
        ledger.holds(block, &page, pages)
    };
    let checked = match coverage {
        Coverage::All => blocks,
        Coverage::Sample(count) => count.min(blocks),
    };
    for nth in 0..checked {
        check(if coverage == Coverage::All { nth } else { random.below(blocks) }).await?;
    }
    filesystem.unmount().await?;
    stack.close().await?;
    Ok(checked)
}

#[cfg(test)]
mod tests {
    use weir_fs::Engine;
    use weir_runtime::{Runtime, Simulation};
    use weir_storage::{AdversaryDisk, AdversaryOptions, Lba, Part, Storage, write};
    use weir_vfs::SyncCall;

    use super::*;
    use crate::chooser::Distribution;
    use crate::writes::Span;

    const WRITES: u64 = 5000;

    /// Writes through a filesystem in virtual time, unmounts it, lets `damage` damage it, and verifies it.
    fn play(
        mode: FsMode,
        noted: u64,
        damage: impl AsyncFnOnce(&dyn Storage) -> Result<(), BenchError>,
    ) -> Result<u64, BenchError> {
        let runtime = Runtime::simulated(Simulation::default());
        let handle = runtime.handle();
        let plan = FsPlan::tiny();
        let blocks = plan.volume_bytes / BLOCK;
        let options = AdversaryOptions { blocks, latency_ns_max: 50_000, ..AdversaryOptions::default() };
        let disk = Disk::Adversary(AdversaryDisk::new(&handle, options));
        let mut pages = Pages::new(&mut handle.random("pages"));
        let span = Span::pages(plan.span_blocks());
        let start = Writes::new(1, span, Distribution::Sequential, 0, 1, handle.random("writes"));
        let work = async {
            let mounted = MountedFile::make(&handle, disk.clone(), &plan, mode).await?;
            let measured = mounted.run(mode, &mut start.clone(), &mut pages, &Goal::writes(WRITES)).await?;
            assert_eq!(measured.writes, WRITES);
            mounted.close().await?;
            let stack = Stack::open(&handle, disk.clone(), plan.volume_options()).await?;
            damage(&*stack.storage()).await?;
            stack.close().await?;
            drop(stack);
            let mut ledger = Ledger::new(plan.span_blocks());
            ledger.enter(start.clone(), noted);
            let mut random = handle.random("verify");
            verify(&handle, disk, &plan, (&ledger, &pages), Coverage::All, &mut random).await
        };
        runtime.block_on(work).unwrap()
    }

    const FBARRIER: FsMode =
        FsMode { engine: Engine::DUAL, coalition: false, write: FsWrite::Append, call: SyncCall::Fbarrier };

    #[test]
    fn every_call_leaves_the_last_file_whole() {
        // The file began anew once.
        let left = WRITES - FsPlan::tiny().span_blocks();
        for call in SyncCall::ALL {
            for engine in [Engine::DUAL, Engine::JBD2, Engine::FlushAhead] {
                for coalition in [false, true] {
                    let mode = FsMode { engine, coalition, write: FsWrite::Append, call };
                    assert_eq!(play(mode, WRITES, async |_| Ok(())).unwrap(), left, "{mode:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_not_what_was_written_is_noticed() {
        let found = play(FBARRIER, WRITES - 1, async |_| Ok(()));
        assert!(matches!(found, Err(BenchError::Content { .. })), "{found:?}");
    }

    #[test]
    fn damage_is_noticed() {
        // Block 1 holds the descriptors of the groups.
        let found = play(FBARRIER, WRITES, async |storage| {
            Ok(write(storage, Part::bytes(Lba(1), &[0x55; BLOCK_BYTES])).await?)
        });
        assert!(matches!(found, Err(BenchError::Damaged { .. })), "{found:?}");
    }
}
