//! The benchmark itself, at the smallest sizes: that it works and adds up, not how fast it is.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use weir_bench::{
    BenchError, BenchOptions, Distribution, Emulated, Mode, Plan, RATIOS, Report, bench, cleaning, recovery,
};
use weir_flash::{Mechanism, Profile};

use crate::support::{directory, directory_in_memory, options, runtime};

fn names(report: &Report) -> Vec<String> {
    report.summary.modes.iter().map(|mode| mode.name.clone()).collect()
}

#[test]
fn every_mode_writes_its_share_and_is_read_back() {
    let directory = directory();
    let runtime = runtime();
    let plan = Plan { turn_seconds_max: None, quota_bytes: 1 << 20, ..Plan::tiny() };
    let mut steps = Vec::new();
    let mut progress = |progress: weir_bench::Progress| steps.push((progress.done, progress.total));
    let options = options(directory.path());
    let handle = runtime.handle();
    let work = bench(&handle, plan.clone(), &options, &mut progress);
    let report = runtime.block_on(work).unwrap().unwrap();

    let all_but_own_barrier = Mode::ALL.into_iter().filter(|mode| *mode != Mode::OwnBarrier);
    assert_eq!(names(&report), all_but_own_barrier.map(Mode::name).collect::<Vec<_>>());
    for mode in &report.summary.modes {
        assert!(mode.quota_reached, "{}: {} writes", mode.name, mode.writes);
        assert_eq!((mode.model_iops, mode.is_held_up()), (None, false), "a disk has no model");
        assert!(mode.iops > 0.0 && mode.cpu_us_per_op > 0.0 && mode.queue_depth_mean > 0.0, "{mode:?}");
        let latency = mode.latency_us;
        assert!(latency.p50 > 0.0 && latency.p50 <= latency.p99 && latency.p99 <= latency.p999, "{mode:?}");
        assert!(latency.p999 <= latency.p9999, "{mode:?}");
    }
    let mode = |name: &str| report.summary.modes.iter().find(|mode| mode.name == name).unwrap();
    for name in ["host_fdatasync", "host_append_fsync", "host_rwf_dsync", "weir_xnf"] {
        assert!(mode(name).flushes >= mode(name).writes, "{name} flushes for each write");
    }
    assert_eq!(mode("host_buffered_final_fsync").flushes, 2, "one a round");
    assert_eq!(mode("raw_random_depth_8").write_amplification, Some(1.0));
    for name in ["weir_b", "weir_p", "weir_b_steady_80"] {
        assert!(mode(name).write_amplification > Some(1.0), "{name}: headers at least");
    }
    for ratio in RATIOS.iter().filter(|ratio| ratio.name != "own_barrier_vs_raw_random") {
        assert!(report.summary.ratios[ratio.name] > 0.0, "{}", ratio.name);
    }
    assert!(report.summary.loss_window.bytes_max > 0 && report.summary.loss_window.ms_max > 0.0);
    assert!(
        report.summary.checked_blocks >= 1024 * report.summary.modes.len() as u64,
        "{}",
        report.summary.checked_blocks
    );
    assert!(steps.is_sorted() && steps.iter().all(|(done, total)| done <= total), "{steps:?}");
    assert_eq!(steps.last().map(|(done, total)| total - done), Some(0));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "files were left behind");
}

#[test]
fn cleaning_costs_more_on_a_fuller_volume() {
    let directory = directory_in_memory();
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
    for case in &report.cases {
        // The longest wait is that for a cleaned segment; reads go on beside it.
        assert!(0.0 < case.stall_p99_us && case.stall_p99_us < case.stall_max_us, "{case:?}");
        assert!(0.0 < case.read_p99_us, "{case:?}");
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
    let mut progress = |progress: weir_bench::Progress| stages.push(progress.stage);
    let handle = runtime.handle();
    let work = bench(&handle, plan, &smallest, &mut progress);
    let report = runtime.block_on(work).unwrap().unwrap();
    assert_eq!(report.summary.modes.len(), Mode::ALL.len() - 1, "a file has no barrier of its own");
    stages.dedup();
    assert_eq!(stages, ["preparing", "round 1 of 1", "done"]);
}

/// Measures an emulated device, with one round of the smallest sizes.
fn on_device(profile: Profile, backing: Option<&Path>) -> Result<Report, BenchError> {
    let runtime = runtime();
    let device = Some(Emulated { profile, backing: backing.map(Path::to_owned) });
    let options =
        BenchOptions { device, rounds: Some(1), span_bytes: Some(8 << 20), ..options(Path::new("nowhere")) };
    let plan = Plan::tiny().with(&options).unwrap();
    let handle = runtime.handle();
    let mut steps = Vec::new();
    let mut progress = |step: weir_bench::Progress| steps.push((step.done, step.total));
    let work = bench(&handle, plan, &options, &mut progress);
    let report = runtime.block_on(work).unwrap();
    assert!(report.is_err() || steps.last().is_some_and(|(done, total)| done == total), "{steps:?}");
    report
}

fn device(name: &str) -> Profile {
    Profile::load(name).unwrap().0
}

#[test]
fn an_emulated_device_is_measured_like_a_disk() {
    let report = on_device(device("ufs20"), None).unwrap();
    let all_but_the_host = Mode::ALL.into_iter().filter(|mode| !matches!(mode, Mode::Host(_)));
    assert_eq!(names(&report), all_but_the_host.map(Mode::name).collect::<Vec<_>>());
    assert!(report.setting.disk.is_none());
    let said = report.device.as_ref().unwrap();
    assert_eq!((said.name.as_str(), said.mechanism), ("ufs20", "in-order-recovery"));
    for ratio in RATIOS.iter().filter(|ratio| !ratio.name.contains("host")) {
        assert!(report.summary.ratios[ratio.name] > 0.0, "{}", ratio.name);
    }
    let mode = |name: &str| report.summary.modes.iter().find(|mode| mode.name == name).unwrap();
    // The profile's controller takes so long for each command: nothing is faster, however busy this machine is.
    let most = 1e9 / device("ufs20").host.command_ns as f64;
    for name in ["raw_random_depth_32", "own_barrier"] {
        assert!(mode(name).iops < most, "{name}: {}", mode(name).iops);
    }
    // Its model takes exactly that long, whatever this machine does meanwhile.
    for mode in &report.summary.modes {
        assert!(mode.model_iops.is_some_and(|model| model > 0.0), "{mode:?}");
    }
    let model = mode("raw_random_depth_32").model_iops.unwrap();
    assert!(model > 0.9 * most && model <= most, "{model}");
    // It takes commands from a program that waits one by one, and from one that does not as they come.
    assert!(mode("raw_random_depth_1").queue_depth_mean <= 1.0);
    assert!(mode("own_barrier").queue_depth_mean > 4.0, "{}", mode("own_barrier").queue_depth_mean);
    assert_eq!(mode("own_barrier").flushes, 1, "none but the last");
    assert_eq!(report.summary.checked_blocks, 1024 * report.summary.modes.len() as u64);
}

#[test]
fn a_legacy_device_has_no_barrier_of_its_own() {
    let report = on_device(device("ufs20").with_mechanism(Mechanism::None), None).unwrap();
    assert!(!names(&report).contains(&"own_barrier".to_owned()));
    assert!(!report.summary.ratios.contains_key("own_barrier_vs_raw_random"));
    assert!(report.summary.ratios["cost_of_order"] > 0.0, "the volume needs none");
}

#[test]
fn a_device_in_files_leaves_nothing_behind() {
    let directory = directory();
    let report = on_device(device("sata-ssd"), Some(directory.path())).unwrap();
    assert_eq!(report.device.unwrap().backing.as_deref(), Some(directory.path()));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    let missing = on_device(device("ufs20"), Some(Path::new("nowhere")));
    assert!(matches!(missing, Err(BenchError::File { .. })), "{missing:?}");
}

#[test]
fn a_device_that_is_too_small_is_noticed() {
    let found = on_device(device("ufs20").with_capacity(4096), None);
    assert!(matches!(found, Err(BenchError::Capacity { device_mib: 16, needed_mib: 34 })), "{found:?}");
}
