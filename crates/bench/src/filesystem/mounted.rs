//! A filesystem on a volume, made for a turn.

use weir_format::FileType;
use weir_runtime::{Handle, Random};
use weir_stack::{Disk, Stack};
use weir_storage::{BLOCK_BYTES, flush};
use weir_vfs::{Filesystem, InodeNumber, NewNode, Promise};
use weir_volume::Stats;

use crate::content::Pages;
use crate::error::BenchError;
use crate::filesystem::kind::FsKind;
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
    filesystem: Filesystem,
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
        let stack = make(handle, disk, plan, mode.kind).await?;
        let filesystem = mode.kind.mount(handle, stack.storage(), false).await?;
        MountedFile::create(handle, stack, filesystem).await
    }

    /// An empty file in a filesystem that is mounted on a volume.
    pub(crate) async fn create(
        handle: &Handle,
        stack: Stack,
        filesystem: Filesystem,
    ) -> Result<MountedFile, BenchError> {
        let root = filesystem.root();
        let inode = filesystem.create(root, NAME, &NewNode::new(FileType::Regular, 0o644)).await?;
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

    /// Writes, with the mode's call after every so many writes, until `goal` is reached; then makes all of it durable, if
    /// the calls did not. All of that is timed.
    pub(crate) async fn run(
        &self,
        (mode, writes_per_call): (FsMode, u64),
        writes: &mut Writes,
        pages: &mut Pages,
        goal: &Goal,
    ) -> Result<Measured, BenchError> {
        let mut meter = Meter::start(&self.handle);
        let mut done = 0;
        let is_update = mode.write == FsWrite::Update;
        if is_update && !self.filesystem.has_atomic_writes() {
            self.filesystem.set_atomic(self.inode, true).await?;
        }
        while !meter.reached(goal) {
            if is_update && done % writes_per_call == 0 {
                self.filesystem.begin_update(self.inode).await?;
            }
            let stamp = writes.take();
            let offset = stamp.block * BLOCK;
            if offset == 0 && mode.write == FsWrite::Append && done > 0 {
                // The span is used up: the file begins anew.
                self.filesystem.truncate(self.inode, 0).await?;
            }
            self.filesystem.write(self.inode, offset, pages.page(stamp)).await?;
            done += 1;
            if done % writes_per_call == 0 {
                if is_update {
                    self.filesystem.end_updates(&[self.inode]).await?;
                }
                self.filesystem.synchronise(self.inode, mode.call).await?;
            }
            meter.lap();
            if done % WRITES_PER_TURN == 0 {
                self.handle.yield_now().await;
            }
        }
        if is_update && done % writes_per_call != 0 {
            self.filesystem.end_updates(&[self.inode]).await?;
        }
        if mode.promise() == Promise::Ordered {
            self.filesystem.fsync(self.inode).await?;
            if !mode.kind.flushes() {
                flush(&*self.stack.storage()).await?;
            }
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
pub(crate) async fn make(
    handle: &Handle,
    disk: Disk,
    plan: &FsPlan,
    kind: FsKind,
) -> Result<Stack, BenchError> {
    let stack = Stack::make_volume(handle, disk, &plan.volume()).await?;
    // A new volume reads as zeros.
    kind.make(handle, &*stack.storage()).await?;
    Ok(stack)
}

/// Opens the volume on `disk` anew, checks the filesystem on it, mounts it, and reads the file back. Returns how many blocks
/// were read.
pub(crate) async fn verify(
    handle: &Handle,
    disk: Disk,
    (plan, kind): (&FsPlan, FsKind),
    (ledger, pages): (&Ledger, &Pages),
    coverage: Coverage,
    random: &mut Random,
) -> Result<u64, BenchError> {
    let stack = Stack::open(handle, disk, plan.volume_options()).await?;
    kind.require_clean(stack.storage()).await?;
    let filesystem = kind.mount(handle, stack.storage(), true).await?;
    let inode = filesystem.lookup(filesystem.root(), NAME).await?;
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
            let measured =
                mounted.run((mode, 1), &mut start.clone(), &mut pages, &Goal::writes(WRITES)).await?;
            assert_eq!(measured.writes, WRITES);
            mounted.close().await?;
            let stack = Stack::open(&handle, disk.clone(), plan.volume_options()).await?;
            damage(&*stack.storage()).await?;
            stack.close().await?;
            drop(stack);
            let mut ledger = Ledger::new(plan.span_blocks());
            ledger.enter(start.clone(), noted);
            let mut random = handle.random("verify");
            verify(&handle, disk, (&plan, mode.kind), (&ledger, &pages), Coverage::All, &mut random).await
        };
        runtime.block_on(work).unwrap()
    }

    const fn fbarrier(kind: FsKind) -> FsMode {
        FsMode { kind, write: FsWrite::Append, call: SyncCall::Fbarrier }
    }

    const KINDS: [FsKind; 2] = [FsKind::BARRIER_FS, FsKind::F2FS];

    #[test]
    fn every_call_leaves_the_last_file_whole() {
        // The file began anew once.
        let left = WRITES - FsPlan::tiny().span_blocks();
        let engines = [Engine::DUAL, Engine::JBD2, Engine::FlushAhead];
        let journals = engines.into_iter().flat_map(|engine| [(engine, false), (engine, true)]);
        let kinds = journals.map(|(engine, coalition)| FsKind::BarrierFs { engine, coalition });
        let logs = [false, true].map(|nobarrier| FsKind::F2fs { nobarrier });
        for kind in kinds.chain(logs) {
            for call in SyncCall::ALL {
                let mode = FsMode { kind, write: FsWrite::Append, call };
                assert_eq!(play(mode, WRITES, async |_| Ok(())).unwrap(), left, "{mode:?}");
            }
        }
    }

    #[test]
    fn updates_leave_the_last_file_whole() {
        for kind in KINDS {
            let mode = FsMode { kind, write: FsWrite::Update, call: SyncCall::Fsync };
            let left = play(mode, WRITES, async |_| Ok(())).unwrap();
            assert_eq!(left, FsPlan::tiny().span_blocks(), "{mode:?}");
        }
    }

    #[test]
    fn what_is_not_what_was_written_is_noticed() {
        for kind in KINDS {
            let found = play(fbarrier(kind), WRITES - 1, async |_| Ok(()));
            assert!(matches!(found, Err(BenchError::Content { .. })), "{kind:?}: {found:?}");
        }
    }

    #[test]
    fn damage_is_noticed() {
        // Block 1 of ext4 holds the descriptors of the groups; F2FS has two copies of the first block of the segment table.
        for (kind, blocks) in KINDS.into_iter().zip([&[1][..], &[1536, 2048]]) {
            let found = play(fbarrier(kind), WRITES, async |storage| {
                for &block in blocks {
                    write(storage, Part::bytes(Lba(block), &[0x55; BLOCK_BYTES])).await?;
                }
                Ok(())
            });
            assert!(matches!(found, Err(BenchError::Damaged { .. })), "{kind:?}: {found:?}");
        }
    }
}
