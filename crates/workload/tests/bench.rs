//! The benchmark itself, at the smallest sizes: that it works and adds up, not how fast it is.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use weir_runtime::{Runtime, Wall};
use weir_workload::{BenchError, BenchOptions, Distribution, Mode, Plan, RATIOS, bench, cleaning, recovery};

fn options(directory: &Path) -> BenchOptions {
    BenchOptions { directory: directory.to_owned(), span_bytes: None, rounds: None, seed: 3, keep: false }
}

fn runtime() -> Runtime {
    Runtime::wall(Wall { seed: 3, ..Wall::default() }).unwrap()
}

/// The build's own directory: on a real disk, where /tmp often is not.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn every_mode_writes_its_share_and_is_read_back() {
    let directory = directory();
    let runtime = runtime();
    let plan = Plan { turn_seconds_max: None, quota_bytes: 1 << 20, ..Plan::tiny() };
    let mut steps = Vec::new();
    let mut progress = |progress: weir_workload::Progress| steps.push((progress.done, progress.total));
    let options = options(directory.path());
    let handle = runtime.handle();
    let work = bench(&handle, plan.clone(), &options, &mut progress);
    let report = runtime.block_on(work).unwrap().unwrap();

    assert_eq!(report.modes.len(), Mode::ALL.len());
    for mode in &report.modes {
        assert!(mode.quota_reached, "{}: {} writes", mode.name, mode.writes);
        assert!(mode.iops > 0.0 && mode.cpu_us_per_op > 0.0 && mode.queue_depth_mean > 0.0, "{mode:?}");
        let latency = mode.latency_us;
        assert!(latency.p50 > 0.0 && latency.p50 <= latency.p99 && latency.p99 <= latency.p999, "{mode:?}");
        assert!(latency.p999 <= latency.p9999, "{mode:?}");
    }
    let mode = |name: &str| report.modes.iter().find(|mode| mode.name == name).unwrap();
    for name in ["host_fdatasync", "host_append_fsync", "host_rwf_dsync", "weir_xnf"] {
        assert!(mode(name).flushes >= mode(name).writes, "{name} flushes for each write");
    }
    assert_eq!(mode("host_buffered_final_fsync").flushes, 2, "one a round");
    assert_eq!(mode("raw_random_depth_8").write_amplification, Some(1.0));
    for name in ["weir_b", "weir_p", "weir_b_steady_80"] {
        assert!(mode(name).write_amplification > Some(1.0), "{name}: headers at least");
    }
    for ratio in RATIOS {
        assert!(report.ratios[ratio.name] > 0.0, "{}", ratio.name);
    }
    assert!(report.loss_window.bytes_max > 0 && report.loss_window.ms_max > 0.0);
    assert!(report.checked_blocks >= 1024 * Mode::ALL.len() as u64, "{}", report.checked_blocks);
    assert!(steps.is_sorted() && steps.iter().all(|(done, total)| done <= total), "{steps:?}");
    assert_eq!(steps.last().map(|(done, total)| total - done), Some(0));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "files were left behind");
}

#[test]
fn cleaning_costs_more_on_a_fuller_volume() {
    let directory = directory();
    let runtime = runtime();
    let plan = Plan::tiny();
    let report = runtime
        .block_on(cleaning(&runtime.handle(), &plan, &options(directory.path()), &mut |_| {}))
        .unwrap()
        .unwrap();
    let amplification = |distribution, percent| {
        let mut cases = report.cases.iter().filter(|case| case.policy == "greedy");
        let case =
            cases.find(|case| case.distribution == distribution && case.utilisation_percent == percent);
        case.unwrap().write_amplification
    };
    for distribution in [Distribution::Uniform, Distribution::Zipf] {
        let [half, most, nearly_all] = [50, 80, 90].map(|percent| amplification(distribution, percent));
        assert!(1.0 < half && half < most && most < nearly_all, "{half} {most} {nearly_all}");
    }
}

#[test]
fn recovery_finds_every_record() {
    let directory = directory();
    let runtime = runtime();
    let plan = Plan::tiny();
    let report = runtime
        .block_on(recovery(&runtime.handle(), &plan, &options(directory.path()), &mut |_| {}))
        .unwrap()
        .unwrap();
    assert_eq!(report.recovery_ms.len(), 2);
    assert!(report.records >= plan.span_blocks(), "{}", report.records);
    assert!(report.read_bytes >= plan.span_bytes, "{}", report.read_bytes);
    assert_eq!(report.checked_blocks, 2 * plan.span_blocks());
}

#[test]
fn a_full_filesystem_is_noticed_before_anything_is_written() {
    let directory = directory();
    let runtime = runtime();
    let plan = Plan { fresh_bytes: 1 << 60, ..Plan::tiny() };
    let found =
        runtime.block_on(bench(&runtime.handle(), plan, &options(directory.path()), &mut |_| {})).unwrap();
    assert!(matches!(found, Err(BenchError::NoRoom { .. })), "{found:?}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn the_smallest_span_works() {
    let directory = directory();
    let runtime = runtime();
    let smallest = BenchOptions { span_bytes: Some(8 << 20), rounds: Some(1), ..options(directory.path()) };
    let plan = Plan::tiny().with(&smallest).unwrap();
    assert_eq!(plan.span_bytes, 8 << 20);
    let below = BenchOptions { span_bytes: Some(7 << 20), ..smallest.clone() };
    assert!(matches!(Plan::tiny().with(&below), Err(BenchError::Size { min_mib: 8, .. })));
    let mut stages = Vec::new();
    let mut progress = |progress: weir_workload::Progress| stages.push(progress.stage);
    let handle = runtime.handle();
    let work = bench(&handle, plan, &smallest, &mut progress);
    let report = runtime.block_on(work).unwrap().unwrap();
    assert_eq!(report.modes.len(), Mode::ALL.len());
    stages.dedup();
    assert_eq!(stages, ["preparing", "round 1 of 1", "done"]);
}
