//! What all benchmarks tell: where and how they were run, the figures of each mode, the ratios, and how much the
//! rounds differ.

use std::collections::BTreeMap;

use serde::Serialize;
use weir_fs::Promise;
use weir_volume::LossWindowSeen;

use crate::machine::Machine;
use crate::mode::Mode;
use crate::ratio::Ratio;
use crate::scratch::ScratchDirectory;
use crate::statistics::Spread;
use crate::turn::Turn;

/// What was run, and where.
#[derive(Clone, Debug, Serialize)]
pub struct Setting<P> {
    /// Version of the program.
    pub version: &'static str,
    /// The seed of the workload.
    pub seed: u64,
    /// Sizes and times.
    pub plan: P,
    /// The machine, and whether it was busy. In the benchmark of mounts, while the host's modes had their turns: the
    /// servers are others, too.
    pub machine: Machine,
    /// Where the files were; null for an emulated device.
    pub disk: Option<ScratchDirectory>,
}

impl<P> Setting<P> {
    pub(crate) fn new(plan: P, seed: u64, machine: Machine, disk: Option<ScratchDirectory>) -> Setting<P> {
        Setting { version: env!("CARGO_PKG_VERSION"), seed, plan, machine, disk }
    }
}

/// What was found. Every figure is the median over rounds, and every ratio the median of the ratios of the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Summary<M> {
    /// The ratios by name.
    pub ratios: BTreeMap<&'static str, f64>,
    /// The largest loss window seen in any turn on a volume.
    pub loss_window: LossWindowReport,
    /// The modes, in the order of a round.
    pub modes: Vec<M>,
    /// Medians, smallest and largest values.
    pub spread: SpreadReport,
    /// Blocks read back and found right, over all modes; wrong ones end the benchmark.
    pub checked_blocks: u64,
}

impl<M> Summary<M> {
    /// The figures of `modes`, as far as they had turns; `report` is told a mode and its turns.
    pub(crate) fn new(
        modes: &[Mode],
        ratios: &[Ratio],
        turns: &[Turn],
        report: impl Fn(Mode, &[&Turn]) -> Option<M>,
    ) -> Summary<M> {
        let iops = modes.iter().filter_map(|&mode| Some((mode.name(), rate(mode, turns)?)));
        let spreads: BTreeMap<_, _> =
            ratios.iter().filter_map(|ratio| Some((ratio.name, ratio.spread(turns)?))).collect();
        Summary {
            ratios: medians(&spreads),
            loss_window: LossWindowReport::largest(turns),
            modes: modes
                .iter()
                .filter_map(|&mode| report(mode, &Turn::of(mode, turns).collect::<Vec<_>>()))
                .collect(),
            spread: SpreadReport { iops: iops.collect(), ratios: spreads },
            checked_blocks: turns.iter().map(|turn| turn.checked_blocks).sum(),
        }
    }
}

/// Writes a second of a mode.
pub(crate) fn rate(mode: Mode, turns: &[Turn]) -> Option<Spread> {
    Spread::of(Turn::of(mode, turns).map(Turn::iops))
}

/// Of ratios by name.
pub(crate) fn medians(spreads: &BTreeMap<&'static str, Spread>) -> BTreeMap<&'static str, f64> {
    spreads.iter().map(|(&name, spread)| (name, spread.median)).collect()
}

/// What may have been lost without a flush, at the worst moment.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct LossWindowReport {
    /// Age of the oldest write that was not durable, in milliseconds.
    pub ms_max: f64,
    /// Bytes written and not durable.
    pub bytes_max: u64,
}

/// The figures of one mode.
#[derive(Clone, Debug, Serialize)]
pub struct ModeReport {
    /// The mode's name.
    pub name: String,
    /// What it does, in a few words.
    pub title: String,
    /// Writes a second, the final flush included.
    pub iops: f64,
    /// The same by the model of an emulated device alone, in virtual time; null for a disk.
    pub model_iops: Option<f64>,
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// Time from a write's beginning to its answer, in microseconds; in modes that do not wait, until submitting
    /// it returned.
    pub latency_us: LatencyReport,
    /// Calls or commands that made data durable, in all rounds together.
    pub flushes: u64,
    /// Bytes to the disk per byte of the user, over the turns where they could be told; null if there were
    /// none. See `disk_bytes_counted` for what is counted.
    pub write_amplification: Option<f64>,
    /// What `write_amplification` counts as written to the disk.
    pub disk_bytes_counted: DiskBytes,
    /// Processor time of the whole process per write, in microseconds.
    pub cpu_us_per_op: f64,
    /// Writes in progress, averaged over time; in modes that do not wait: commands in flight at the disk, of
    /// which an emulated device's queue bounds the number.
    pub queue_depth_mean: f64,
    /// Writes in all rounds together.
    pub writes: u64,
    /// Whether all rounds together wrote the quota; only the short benchmark may stop before.
    pub quota_reached: bool,
}

/// Where the number of bytes written to the disk comes from. The two are not to be compared closely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskBytes {
    /// The mode's own commands to the disk: data, and for Weir headers, moved blocks and checkpoints; what
    /// the host's filesystem adds for its own metadata is not in it.
    OwnCommands,
    /// All that was written to the device meanwhile, the filesystem's journal and metadata included. Turns in
    /// which others used the machine are left out, as their writes cannot be told from the mode's. Data that
    /// still was in the page cache when it was overwritten was never written.
    WholeDevice,
}

impl DiskBytes {
    fn of(mode: Mode) -> DiskBytes {
        if matches!(mode, Mode::Host(_)) { DiskBytes::WholeDevice } else { DiskBytes::OwnCommands }
    }
}

/// Latency of a mode in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct LatencyReport {
    /// Mean.
    pub mean: f64,
    /// Half of the writes are faster.
    pub p50: f64,
    /// 99 % are.
    pub p99: f64,
    /// 99.9 % are.
    pub p999: f64,
    /// 99.99 % are.
    pub p9999: f64,
}

/// How much the rounds differ.
#[derive(Clone, Debug, Serialize)]
pub struct SpreadReport {
    /// Writes a second, by mode.
    pub iops: BTreeMap<String, Spread>,
    /// Ratios, by name.
    pub ratios: BTreeMap<&'static str, Spread>,
}

/// Below this share of the model's rate, this machine holds a mode up.
const HELD_UP_BELOW: f64 = 0.95;

impl ModeReport {
    /// Whether this machine held the mode up, and not the emulated device: its model alone is faster by more
    /// than 5 %. Whatever it waited for, the processor, its timers or other programs, it is not the device's.
    #[must_use]
    pub fn is_held_up(&self) -> bool {
        self.model_iops.is_some_and(|model| self.iops < HELD_UP_BELOW * model)
    }

    pub(crate) fn new(mode: Mode, quota_bytes: u64, turns: &[&Turn]) -> Option<ModeReport> {
        let median = |of: &dyn Fn(&Turn) -> f64| Some(Spread::of(turns.iter().map(|turn| of(turn)))?.median);
        let bytes: u64 = turns.iter().map(|turn| turn.bytes).sum();
        Some(ModeReport {
            name: mode.name(),
            title: mode.title(),
            iops: median(&Turn::iops)?,
            model_iops: None,
            bytes_per_second: median(&Turn::bytes_per_second)?,
            latency_us: LatencyReport {
                mean: median(&|turn| turn.measured.latency.mean() / 1e3)?,
                p50: median(&|turn| turn.latency_us(0.5))?,
                p99: median(&|turn| turn.latency_us(0.99))?,
                p999: median(&|turn| turn.latency_us(0.999))?,
                p9999: median(&|turn| turn.latency_us(0.9999))?,
            },
            flushes: turns.iter().map(|turn| turn.flushes).sum(),
            write_amplification: write_amplification(turns),
            disk_bytes_counted: DiskBytes::of(mode),
            cpu_us_per_op: median(&|turn| {
                turn.measured.cpu.as_secs_f64() * 1e6 / turn.measured.writes.max(1) as f64
            })?,
            queue_depth_mean: median(&|turn| {
                let calls = turn.measured.calls_depth;
                if mode.waits() { calls } else { turn.measured.disk_depth.unwrap_or(calls) }
            })?,
            writes: turns.iter().map(|turn| turn.measured.writes).sum(),
            quota_reached: bytes >= quota_bytes,
        })
    }
}

/// Bytes to the disk per byte of the user, over the turns whose bytes to the disk are known.
fn write_amplification(turns: &[&Turn]) -> Option<f64> {
    let known = turns.iter().filter_map(|turn| Some((turn.disk_bytes?, turn.bytes)));
    let (disk, user) = known.fold((0, 0), |(disk, user), turn| (disk + turn.0, user + turn.1));
    (user > 0).then(|| disk as f64 / user as f64)
}

impl LossWindowReport {
    /// The largest of some; none of none.
    pub(crate) fn of(windows: impl Iterator<Item = LossWindowSeen>) -> Option<LossWindowReport> {
        windows.fold(None, |largest: Option<LossWindowReport>, seen| {
            let largest = largest.unwrap_or_default();
            Some(LossWindowReport {
                ms_max: largest.ms_max.max(seen.time_max.as_secs_f64() * 1e3),
                bytes_max: largest.bytes_max.max(seen.bytes_max),
            })
        })
    }

    /// The largest of the turns of a mode, where its calls order only.
    pub(crate) fn of_ordered(mode: Mode, turns: &[&Turn]) -> Option<LossWindowReport> {
        let ordered = mode.promise() == Some(Promise::Ordered);
        ordered.then(|| LossWindowReport::largest(turns.iter().copied()))
    }

    pub(crate) fn largest<'a>(turns: impl IntoIterator<Item = &'a Turn>) -> LossWindowReport {
        LossWindowReport::of(turns.into_iter().filter_map(|turn| turn.loss_window)).unwrap_or_default()
    }
}
