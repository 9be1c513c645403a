//! What cleaning costs F2FS on a volume: by copies, and by the share command, as in figure 3 of the SHARE paper.
//!
//! A file fills half of the filesystem. Pages in its first part are overwritten at random, with an `fsync` after every so
//! many: first until all free segments come from cleaning, then for the time that counts. Both cleaners get the same writes.

use serde::Serialize;
use weir_lfs::{Cleaner, CleanerCounts, F2fs, F2fsOptions};
use weir_runtime::{Handle, Random};
use weir_storage::BLOCK_BYTES;
use weir_vfs::SyncCall;

use crate::chooser::Distribution;
use crate::content::Pages;
use crate::error::BenchError;
use crate::filesystem::{FsKind, FsMode, FsPlan, FsWrite, MountedFile, make, verify};
use crate::ledger::{Coverage, Ledger};
use crate::machine::{Load, Machine, Usage};
use crate::measure::Goal;
use crate::plan::BenchOptions;
use crate::rounds::{Progress, Rounds};
use crate::scratch::ScratchDirectory;
use crate::statistics::Spread;
use crate::summary::Setting;
use crate::target::{BenchTarget, TargetBase, check_room};
use crate::volume_writer::Work;
use crate::writes::{Span, Writes};

/// What both cleaners cost.
#[derive(Clone, Debug, Serialize)]
pub struct CleanersReport {
    /// What was run, and where.
    #[serde(flatten)]
    pub setting: Setting<FsPlan>,
    /// One for each interval between two calls of `fsync`.
    pub cases: Vec<CleanersCase>,
    /// Blocks read back and found right; wrong ones end the benchmark.
    pub checked_blocks: u64,
}

/// Both cleaners at one interval.
#[derive(Clone, Debug, Serialize)]
pub struct CleanersCase {
    /// Writes from one `fsync` to the next.
    pub fsync_every: u64,
    /// By copies.
    pub copy: CleanerReport,
    /// By the share command.
    pub share: CleanerReport,
    /// Writes a second of shares over those of copies, round by round.
    pub share_over_copy: Spread,
}

/// One cleaner at one interval.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CleanerReport {
    /// Writes a second, with their calls.
    pub writes_per_second: Spread,
    /// Pages that were moved for each write.
    pub moved_pages_per_write: f64,
    /// Nodes, likewise.
    pub moved_nodes_per_write: f64,
    /// Blocks to the disk for each write: of the filesystem, and of the volume below it.
    pub write_amplification: f64,
}

/// Writes from one `fsync` to the next, as in the paper.
const INTERVALS: [u64; 5] = [8, 16, 32, 64, 128];
/// In percent of the filesystem: the part of the file that is overwritten, what is overwritten before, and what is timed.
const OVERWRITTEN_PERCENT: u64 = 40;
const AGED_PERCENT: u64 = 80;
const TIMED_PERCENT: u64 = 30;
/// File data in memory, in thousandths of the filesystem: the paper's 8 GB beside 232 GiB.
const CACHE_PERMILLE: u64 = 34;

/// A cleaner at an interval.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Way {
    cleaner: Cleaner,
    fsync_every: u64,
}

impl Way {
    fn title(self) -> String {
        format!("{}, fsync after {} writes", self.cleaner.name(), self.fsync_every)
    }
}

/// What a way did in one round.
struct CleanersTurn {
    way: Way,
    writes: f64,
    writes_per_second: f64,
    moved: CleanerCounts,
    disk_blocks: u64,
    checked_blocks: u64,
}

/// Measures both cleaners at all intervals.
///
/// # Errors
/// [`BenchError`]; the scratch file is gone in any case, unless it is to be kept.
pub async fn cleaners(
    handle: &Handle,
    plan: FsPlan,
    options: &BenchOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<CleanersReport, BenchError> {
    let of_interval = |fsync_every| Cleaner::ALL.map(|cleaner| Way { cleaner, fsync_every });
    let ways = INTERVALS.into_iter().flat_map(of_interval).collect();
    let mut rounds = Rounds::new(ways, Way::title, plan.rounds, plan.quick, 1, progress);
    rounds.steps.prepare("filling the volume's disk");
    let mut place = ScratchDirectory::look(&options.directory)?;
    check_room(&place, plan.volume_bytes)?;
    let base = TargetBase::Disk { place: place.clone(), keep: options.keep };
    let mut random = handle.random("cleaners");
    let pages = Pages::new(&mut random);
    let mut volume = BenchTarget::create(handle, &base, "cleaners", plan.volume_bytes)?;
    volume.fill(handle, &pages).await?;
    place.direct_io = volume.direct;
    let mut ground = Ground { handle: handle.clone(), plan, volume, pages, random, usage: Usage::default() };
    let mut turns = Vec::new();
    for due in &mut rounds {
        turns.push(ground.turn(due.way, due.coverage).await?);
    }
    rounds.steps.end();
    let setting = Setting::new(ground.plan, options.seed, Machine::seen(ground.usage), Some(place));
    let cases = INTERVALS.into_iter().filter_map(|fsync_every| CleanersCase::of(fsync_every, &turns));
    let checked_blocks = turns.iter().map(|turn| turn.checked_blocks).sum();
    Ok(CleanersReport { setting, cases: cases.collect(), checked_blocks })
}

/// Everything that the turns share.
struct Ground {
    handle: Handle,
    plan: FsPlan,
    volume: BenchTarget,
    pages: Pages,
    random: Random,
    usage: Usage,
}

impl Ground {
    async fn turn(&mut self, way: Way, coverage: Coverage) -> Result<CleanersTurn, BenchError> {
        let blocks = self.plan.filesystem_bytes / BLOCK_BYTES as u64;
        let stack = make(&self.handle, self.volume.disk(), &self.plan, FsKind::F2FS).await?;
        let cache_bytes = self.plan.filesystem_bytes * CACHE_PERMILLE / 1000;
        let options = F2fsOptions { cleaner: way.cleaner, cache_bytes, ..F2fsOptions::default() };
        let filesystem = F2fs::mount(&self.handle, stack.storage(), options).await?;
        let file = MountedFile::create(&self.handle, stack, filesystem.clone().into()).await?;

        let fill = self.writes(1, self.plan.span_blocks(), Distribution::Sequential);
        file.fill(fill.clone(), self.plan.span_blocks(), &mut self.pages).await?;
        let mode = FsMode { kind: FsKind::F2FS, write: FsWrite::Overwrite, call: SyncCall::Fsync };
        let start = self.writes(2, blocks * OVERWRITTEN_PERCENT / 100, Distribution::Uniform);
        let mut writes = start.clone();
        let mut run = async |percent: u64| {
            // Whole intervals, so that the last write has its call.
            let goal = Goal::writes((blocks * percent / 100).next_multiple_of(way.fsync_every));
            file.run((mode, way.fsync_every), &mut writes, &mut self.pages, &goal).await
        };
        run(AGED_PERCENT).await?;
        let (load, cleaned) = (Load::now(&self.handle), filesystem.statistics().cleaned);
        let before = file.volume_stats();
        let measured = run(TIMED_PERCENT).await?;
        let work = Work::between(&before, &file.volume_stats());
        let after = filesystem.statistics().cleaned;
        self.usage.add(load.until_now(&self.handle));
        drop(filesystem);
        file.close().await?;

        let mut ledger = Ledger::new(self.plan.span_blocks());
        ledger.enter(fill, self.plan.span_blocks());
        ledger.enter(start, writes.written().into());
        let (disk, on) = (self.volume.disk(), (&self.plan, FsKind::F2FS));
        let content = (&ledger, &self.pages);
        let checked_blocks = verify(&self.handle, disk, on, content, coverage, &mut self.random).await?;
        let moved = CleanerCounts {
            segments: after.segments - cleaned.segments,
            pages: after.pages - cleaned.pages,
            nodes: after.nodes - cleaned.nodes,
        };
        let writes = measured.writes as f64;
        let writes_per_second = writes / measured.elapsed.as_secs_f64().max(1e-9);
        let disk_blocks = work.disk_blocks;
        Ok(CleanersTurn { way, writes, writes_per_second, moved, disk_blocks, checked_blocks })
    }

    /// Writes of a run, the same in every turn.
    fn writes(&self, run: u32, blocks: u64, distribution: Distribution) -> Writes {
        Writes::new(run, Span::pages(blocks), distribution, 0, 1, self.handle.random("cleaners' writes"))
    }
}

impl CleanersCase {
    fn of(fsync_every: u64, turns: &[CleanersTurn]) -> Option<CleanersCase> {
        let rates = |cleaner| -> Vec<f64> {
            of_way(Way { cleaner, fsync_every }, turns).map(|turn| turn.writes_per_second).collect()
        };
        Some(CleanersCase {
            fsync_every,
            copy: CleanerReport::of(Way { cleaner: Cleaner::Copy, fsync_every }, turns)?,
            share: CleanerReport::of(Way { cleaner: Cleaner::Share, fsync_every }, turns)?,
            share_over_copy: Spread::of_ratios(&rates(Cleaner::Share), &rates(Cleaner::Copy))?,
        })
    }
}

impl CleanerReport {
    fn of(way: Way, turns: &[CleanersTurn]) -> Option<CleanerReport> {
        let writes: f64 = of_way(way, turns).map(|turn| turn.writes).sum();
        let per_write = |count: fn(&CleanersTurn) -> u64| {
            of_way(way, turns).map(|turn| count(turn) as f64).sum::<f64>() / writes.max(1.0)
        };
        Some(CleanerReport {
            writes_per_second: Spread::of(of_way(way, turns).map(|turn| turn.writes_per_second))?,
            moved_pages_per_write: per_write(|turn| turn.moved.pages),
            moved_nodes_per_write: per_write(|turn| turn.moved.nodes),
            write_amplification: per_write(|turn| turn.disk_blocks),
        })
    }
}

fn of_way(way: Way, turns: &[CleanersTurn]) -> impl Iterator<Item = &CleanersTurn> {
    turns.iter().filter(move |turn| turn.way == way)
}
