//! What the benchmark of a disk found.

use serde::Serialize;

use crate::caller::WeirCalls;
use crate::emulated::DeviceReport;
use crate::host::HostCalls;
use crate::mode::Mode;
use crate::plan::Plan;
use crate::ratio::{About, Quantity, Ratio};
use crate::summary::{ModeReport, Setting, Summary};
use crate::turn::Turn;

/// The result of a benchmark; serialised, it is the document that scripts read.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was run, and where.
    #[serde(flatten)]
    pub setting: Setting<Plan>,
    /// The emulated device; null for a disk.
    pub device: Option<DeviceReport>,
    /// What was found.
    #[serde(flatten)]
    pub summary: Summary<ModeReport>,
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
    /// `model` has a turn of each mode by the model of the device alone.
    pub(crate) fn new(
        setting: Setting<Plan>,
        device: Option<DeviceReport>,
        turns: &[Turn],
        model: &[Turn],
    ) -> Report {
        let quota_bytes = setting.plan.quota_bytes;
        let summary = Summary::new(&Mode::ALL, &RATIOS, turns, |mode, turns| {
            let model_iops = Turn::of(mode, model).next().map(Turn::iops);
            Some(ModeReport { model_iops, ..ModeReport::new(mode, quota_bytes, turns)? })
        });
        Report { setting, device, summary }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use hdrhistogram::Histogram;

    use weir_volume::LossWindowSeen;

    use super::*;
    use crate::machine::{Machine, Usage};
    use crate::measure::Measured;
    use crate::scratch::ScratchDirectory;
    use crate::statistics::Spread;

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
        let turn = Turn::new(mode, measured, bytes_each, 3);
        Turn { disk_bytes: Some(2 * turn.bytes), flushes: 1, loss_window, ..turn }
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
        let setting = Setting::new(Plan::tiny(), 7, Machine::seen(Usage::default()), Some(place));
        Report::new(setting, None, &turns, &[turn(B, 2100, 4096), turn(RAW, 106, 4096)])
    }

    #[test]
    fn ratios_are_what_their_names_say() {
        let report = report();
        let ratio = |name| report.summary.ratios[name];
        assert_eq!(ratio("cost_of_order"), 0.5);
        assert_eq!(ratio("ordered_vs_raw_random"), 20.0);
        assert_eq!(ratio("ordered_vs_host_fdatasync"), 200.0);
        assert_eq!(ratio("flushed_vs_host_fdatasync"), 2.0);
        assert_eq!(ratio("steady_state_vs_raw_random"), 5.0);
        assert_eq!(ratio("own_barrier_vs_raw_random"), 0.9);
        assert_eq!(ratio("ordered_bandwidth_share"), 1000.0 * 4096.0 / (10.0 * 262_144.0));
        assert_eq!(
            report.summary.spread.ratios["ordered_vs_raw_random"],
            Spread { median: 20.0, min: 10.0, max: 30.0 }
        );
    }

    #[test]
    fn a_mode_slower_than_its_model_is_held_up() {
        let held_up: Vec<_> = report().summary.modes.into_iter().filter(ModeReport::is_held_up).collect();
        // B has 2000 of 2100, within 5 %; the raw disk 100 of 106; the others have no model.
        assert_eq!(held_up.iter().map(|mode| mode.name.as_str()).collect::<Vec<_>>(), [RAW.name()]);
    }

    #[test]
    fn turns_with_unknown_bytes_to_the_disk_do_not_count() {
        let known = turn(HOST, 10, 4096);
        let unknown = Turn { disk_bytes: None, ..turn(HOST, 1000, 4096) };
        let report = |turns: &[&Turn]| ModeReport::new(HOST, Plan::tiny().quota_bytes, turns).unwrap();
        assert_eq!(report(&[&known, &unknown]).write_amplification, Some(2.0));
        let report = report(&[&unknown]);
        assert_eq!(report.write_amplification, None);
        let document = serde_json::to_value(report).unwrap();
        assert!(document["write_amplification"].is_null());
        assert_eq!(document["disk_bytes_counted"], "whole_device");
    }

    #[test]
    fn figures_are_medians_and_the_loss_window_is_the_largest() {
        let report = report();
        let b = report.summary.modes.iter().find(|mode| mode.name == "weir_b").unwrap();
        assert_eq!((b.iops, b.writes, b.flushes), (2000.0, 4000, 2));
        assert_eq!(b.write_amplification, Some(2.0));
        assert!((b.latency_us.p99 / 2.0 - 1.0).abs() < 0.01);
        assert_eq!((report.summary.loss_window.ms_max, report.summary.loss_window.bytes_max), (6.0, 6000));
        assert_eq!(report.summary.checked_blocks, 48);
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
