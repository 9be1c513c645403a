//! What a benchmark found: the figures of each mode, the ratios that matter, and what each of them means.

use std::collections::BTreeMap;

use serde::Serialize;
use weir_volume::LossWindowSeen;

use crate::bench::Turn;
use crate::caller::WeirCalls;
use crate::emulated::DeviceReport;
use crate::host::HostCalls;
use crate::machine::Machine;
use crate::mode::Mode;
use crate::plan::Plan;
use crate::scratch::ScratchDirectory;
use crate::statistics::Spread;

/// The result of a benchmark; serialised, it is the document that scripts read.
///
/// Every figure is the median over rounds, and every ratio the median of the ratios of the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of the program.
    pub version: &'static str,
    /// The seed of the workload.
    pub seed: u64,
    /// Sizes and times.
    pub plan: Plan,
    /// The machine, and whether it was busy.
    pub machine: Machine,
    /// Where the files were; null for an emulated device.
    pub disk: Option<ScratchDirectory>,
    /// The emulated device; null for a disk.
    pub device: Option<DeviceReport>,
    /// The ratios by name.
    pub ratios: BTreeMap<&'static str, f64>,
    /// The largest loss window seen in any of Weir's turns.
    pub loss_window: LossWindowReport,
    /// The modes, in the order of a round.
    pub modes: Vec<ModeReport>,
    /// Medians, smallest and largest values.
    pub spread: SpreadReport,
    /// Blocks read back and found right, over all modes; wrong ones end the benchmark.
    pub checked_blocks: u64,
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

/// What a ratio depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// Weir alone: both sides go through it.
    Weir,
    /// This disk, this filesystem, this machine.
    ThisDisk,
}

/// A ratio of two modes, and what it means.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    /// The name that scripts rely on.
    pub name: &'static str,
    /// What it is called.
    pub title: &'static str,
    /// What it means, in plain words.
    pub meaning: &'static str,
    /// What it depends on.
    pub about: About,
    pub(crate) over: Mode,
    pub(crate) under: Mode,
    pub(crate) of: Quantity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    Writes,
    Bytes,
}

const B: Mode = Mode::Fresh(WeirCalls::B);
const HOST: Mode = Mode::Host(HostCalls::Fdatasync);
const RAW: Mode = Mode::RawRandom(32);

/// All ratios, in the order in which they are told.
pub const RATIOS: [Ratio; 7] = [
    Ratio {
        name: "cost_of_order",
        title: "Weir: barrier each / orderless",
        meaning: "a barrier after every write, over no order at all, both through Weir; 1.00: a barrier costs nothing",
        about: About::Weir,
        over: B,
        under: Mode::Fresh(WeirCalls::P),
        of: Quantity::Writes,
    },
    Ratio {
        name: "ordered_vs_raw_random",
        title: "Weir B / raw disk, depth 32",
        meaning: "ordered writes through Weir, batched into a log, over the raw disk's orderless random writes at depth 32; fresh volume",
        about: About::ThisDisk,
        over: B,
        under: RAW,
        of: Quantity::Writes,
    },
    Ratio {
        name: "steady_state_vs_raw_random",
        title: "Weir B, steady / raw disk, depth 32",
        meaning: "the same on a volume that is 80 % full and long in use: cleaning is paid for",
        about: About::ThisDisk,
        over: Mode::Steady,
        under: RAW,
        of: Quantity::Writes,
    },
    Ratio {
        name: "ordered_bandwidth_share",
        title: "Weir B / raw sequential, in bytes",
        meaning: "bytes a second of ordered writes through Weir, over raw sequential 256 KiB writes",
        about: About::ThisDisk,
        over: B,
        under: Mode::RawSequential,
        of: Quantity::Bytes,
    },
    Ratio {
        name: "own_barrier_vs_raw_random",
        title: "own barrier / raw disk, depth 32",
        meaning: "a barrier after every write, kept by the disk itself, over its orderless random writes at depth 32; without Weir's volume",
        about: About::ThisDisk,
        over: Mode::OwnBarrier,
        under: RAW,
        of: Quantity::Writes,
    },
    Ratio {
        name: "flushed_vs_host_fdatasync",
        title: "Weir XnF / host pwrite + fdatasync",
        meaning: "Weir with a flush after every write, over the host's pwrite + fdatasync: both durable at once",
        about: About::ThisDisk,
        over: Mode::Fresh(WeirCalls::Xnf),
        under: HOST,
        of: Quantity::Writes,
    },
    Ratio {
        name: "ordered_vs_host_fdatasync",
        title: "Weir B / host pwrite + fdatasync",
        meaning: "ordered writes through Weir, over pwrite + fdatasync, which is how programs get order today; fdatasync also gives durability, Weir's barrier does not: see the loss window",
        about: About::ThisDisk,
        over: B,
        under: HOST,
        of: Quantity::Writes,
    },
];

impl Report {
    pub(crate) fn new(
        plan: Plan,
        seed: u64,
        ground: (Option<ScratchDirectory>, Option<DeviceReport>),
        machine: Machine,
        turns: &[Turn],
        model: &[Turn],
    ) -> Report {
        let (disk, device) = ground;
        let of = |mode: Mode| turns.iter().filter(move |turn| turn.mode == mode);
        let modes: Vec<ModeReport> = Mode::ALL
            .into_iter()
            .filter_map(|mode| {
                let model_iops = model.iter().find(|turn| turn.mode == mode).map(Turn::iops);
                let report = ModeReport::new(mode, plan.quota_bytes, &of(mode).collect::<Vec<_>>())?;
                Some(ModeReport { model_iops, ..report })
            })
            .collect();
        let iops = Mode::ALL
            .into_iter()
            .filter_map(|mode| Some((mode.name(), Spread::of(of(mode).map(Turn::iops))?)));
        let ratios: BTreeMap<&'static str, Spread> =
            RATIOS.iter().filter_map(|ratio| Some((ratio.name, ratio.spread(turns)?))).collect();
        Report {
            version: env!("CARGO_PKG_VERSION"),
            seed,
            plan,
            machine,
            disk,
            device,
            ratios: ratios.iter().map(|(&name, spread)| (name, spread.median)).collect(),
            loss_window: LossWindowReport::largest(turns),
            modes,
            spread: SpreadReport { iops: iops.collect(), ratios },
            checked_blocks: turns.iter().map(|turn| turn.checked_blocks).sum(),
        }
    }
}

impl Ratio {
    /// Both sides are measured in every round: pair them.
    pub(crate) fn spread(&self, turns: &[Turn]) -> Option<Spread> {
        let rates = |mode: Mode| -> Vec<f64> {
            let turns = turns.iter().filter(|turn| turn.mode == mode);
            turns
                .map(|turn| if self.of == Quantity::Bytes { turn.bytes_per_second() } else { turn.iops() })
                .collect()
        };
        Spread::of_ratios(&rates(self.over), &rates(self.under))
    }
}

impl Turn {
    fn seconds(&self) -> f64 {
        self.measured.elapsed.as_secs_f64().max(1e-9)
    }

    pub(crate) fn iops(&self) -> f64 {
        self.measured.writes as f64 / self.seconds()
    }

    fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds()
    }

    fn latency_us(&self, quantile: f64) -> f64 {
        self.measured.latency.value_at_quantile(quantile) as f64 / 1e3
    }
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

    pub(crate) fn largest<'a>(turns: impl IntoIterator<Item = &'a Turn>) -> LossWindowReport {
        LossWindowReport::of(turns.into_iter().filter_map(|turn| turn.loss_window)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use hdrhistogram::Histogram;

    use super::*;
    use crate::machine::Usage;
    use crate::measure::Measured;

    fn turn(mode: Mode, writes: u64, bytes_each: u64) -> Turn {
        let mut latency = Histogram::new_with_bounds(1, 60_000_000_000, 2).unwrap();
        latency.record_n(2000, writes).unwrap();
        let second = Duration::from_secs(1);
        let measured = Measured {
            writes,
            elapsed: second,
            latency,
            cpu: second / 2,
            disk_depth: None,
            calls_depth: 1.0,
        };
        let loss_window = Some(LossWindowSeen { time_max: Duration::from_micros(writes), bytes_max: writes });
        let bytes = writes * bytes_each;
        Turn {
            mode,
            measured,
            bytes,
            disk_bytes: Some(2 * bytes),
            flushes: 1,
            loss_window,
            checked_blocks: 3,
        }
    }

    fn report() -> Report {
        let turns: Vec<Turn> = [1, 3]
            .into_iter()
            .flat_map(|round| {
                [
                    turn(B, 1000 * round, 4096),
                    turn(Mode::Fresh(WeirCalls::P), 2000 * round, 4096),
                    turn(RAW, 100, 4096),
                    turn(Mode::RawSequential, 10 * round, 262_144),
                    turn(Mode::OwnBarrier, 90, 4096),
                    turn(HOST, 10, 4096),
                    turn(Mode::Fresh(WeirCalls::Xnf), 20, 4096),
                    turn(Mode::Steady, 500, 4096),
                ]
            })
            .collect();
        let place = ScratchDirectory::look(&PathBuf::from("/")).unwrap();
        Report::new(
            Plan::tiny(),
            7,
            (Some(place), None),
            Machine::seen(Usage::default()),
            &turns,
            &[turn(B, 2100, 4096), turn(RAW, 106, 4096)],
        )
    }

    #[test]
    fn ratios_are_what_their_names_say() {
        let report = report();
        let ratio = |name| report.ratios[name];
        assert_eq!(ratio("cost_of_order"), 0.5);
        assert_eq!(ratio("ordered_vs_raw_random"), 20.0);
        assert_eq!(ratio("ordered_vs_host_fdatasync"), 200.0);
        assert_eq!(ratio("flushed_vs_host_fdatasync"), 2.0);
        assert_eq!(ratio("steady_state_vs_raw_random"), 5.0);
        assert_eq!(ratio("own_barrier_vs_raw_random"), 0.9);
        assert_eq!(ratio("ordered_bandwidth_share"), 1000.0 * 4096.0 / (10.0 * 262_144.0));
        assert_eq!(
            report.spread.ratios["ordered_vs_raw_random"],
            Spread { median: 20.0, min: 10.0, max: 30.0 }
        );
    }

    #[test]
    fn a_mode_slower_than_its_model_is_held_up() {
        let held_up: Vec<_> = report().modes.into_iter().filter(ModeReport::is_held_up).collect();
        // B has 2000 of 2100, within 5 %; the raw disk 100 of 106; the others have no model.
        assert_eq!(held_up.iter().map(|mode| mode.name.as_str()).collect::<Vec<_>>(), [RAW.name()]);
    }

    #[test]
    fn turns_with_unknown_bytes_to_the_disk_do_not_count() {
        let known = turn(HOST, 10, 4096);
        let unknown = Turn { disk_bytes: None, ..turn(HOST, 1000, 4096) };
        assert_eq!(write_amplification(&[&known, &unknown]), Some(2.0));
        assert_eq!(write_amplification(&[&unknown]), None);
        let report = ModeReport::new(HOST, Plan::tiny().quota_bytes, &[&unknown]).unwrap();
        let document = serde_json::to_value(report).unwrap();
        assert!(document["write_amplification"].is_null());
        assert_eq!(document["disk_bytes_counted"], "whole_device");
    }

    #[test]
    fn figures_are_medians_and_the_loss_window_is_the_largest() {
        let report = report();
        let b = report.modes.iter().find(|mode| mode.name == "weir_b").unwrap();
        assert_eq!((b.iops, b.writes, b.flushes), (2000.0, 4000, 2));
        assert_eq!(b.write_amplification, Some(2.0));
        assert!((b.latency_us.p99 / 2.0 - 1.0).abs() < 0.01);
        assert_eq!((report.loss_window.ms_max, report.loss_window.bytes_max), (6.0, 6000));
        assert_eq!(report.checked_blocks, 48);
    }

    #[test]
    fn the_document_has_the_names_that_scripts_rely_on() {
        let document = serde_json::to_value(report()).unwrap();
        assert!(
            document["loss_window"]["ms_max"].is_number() && document["loss_window"]["bytes_max"].is_number()
        );
        for ratio in RATIOS {
            assert!(document["ratios"][ratio.name].is_number(), "{}", ratio.name);
        }
        let mode = &document["modes"][0];
        for key in ["iops", "flushes", "write_amplification", "cpu_us_per_op", "queue_depth_mean"] {
            assert!(mode[key].is_number(), "{key}");
        }
        for key in ["mean", "p50", "p99", "p999", "p9999"] {
            assert!(mode["latency_us"][key].is_number(), "{key}");
        }
        assert!(mode["name"].is_string());
        for key in ["machine", "disk", "spread"] {
            assert!(document[key].is_object(), "{key}");
        }
    }
}
