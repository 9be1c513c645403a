//! The benchmark of filesystems, at the smallest sizes: that it works and adds up, not how fast it is.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use weir_bench::{
    BenchError, BenchOptions, FS_RATIOS, FileReport, FsPlan, Mode, Promise, RATES, filesystems,
};

use crate::support::{directory, options, runtime};

fn run(plan: FsPlan, options: &BenchOptions) -> Result<(FileReport, Vec<(u64, u64)>), BenchError> {
    let runtime = runtime();
    let handle = runtime.handle();
    let mut steps = Vec::new();
    let mut progress = |progress: weir_bench::Progress| steps.push((progress.done, progress.total));
    let report = runtime.block_on(filesystems(&handle, plan, options, &mut progress)).unwrap()?;
    Ok((report, steps))
}

#[test]
fn every_mode_is_measured_checked_and_read_back() {
    let directory = directory();
    let (report, steps) = run(FsPlan::tiny(), &options(directory.path())).unwrap();
    let names: Vec<String> = report.summary.modes.iter().map(|mode| mode.mode.name.clone()).collect();
    assert_eq!(names, Mode::FILESYSTEMS.map(Mode::name));
    for mode in &report.summary.modes {
        let (promise, window, mode) = (mode.promise, mode.loss_window, &mode.mode);
        assert!(mode.iops > 0.0 && mode.cpu_us_per_op > 0.0, "{mode:?}");
        // What flushes nothing only orders.
        let orders = mode.name.ends_with("barrier") || mode.name.contains("nobarrier");
        assert_eq!(promise == Some(Promise::Ordered), orders, "{mode:?}");
        assert_eq!(window.is_some(), promise == Some(Promise::Ordered), "{mode:?}");
        if promise == Some(Promise::Durable) {
            assert!(mode.flushes >= mode.writes, "{} flushes for each write", mode.name);
        }
        if mode.name.contains("append") && !mode.name.contains("host") {
            assert!(
                mode.write_amplification > Some(2.0),
                "{}: the journal or a node, and headers",
                mode.name
            );
        }
    }
    for (name, _) in RATES {
        assert!(report.rates[name] > 0.0, "{name}");
    }
    for ratio in FS_RATIOS {
        assert!(report.summary.ratios[ratio.name] > 0.0, "{}", ratio.name);
    }
    assert!(report.summary.ratios["fsync_vs_host"] > 0.0 && report.summary.loss_window.bytes_max > 0);
    assert!(
        report.summary.checked_blocks > 2 * report.summary.modes.len() as u64,
        "{}",
        report.summary.checked_blocks
    );
    assert!(steps.is_sorted() && steps.last().is_some_and(|(done, total)| done == total), "{steps:?}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "files were left behind");
}

#[test]
fn a_full_filesystem_is_noticed_before_anything_is_written() {
    let directory = directory();
    let plan = FsPlan { volume_bytes: 1 << 60, ..FsPlan::tiny() };
    let found = run(plan, &options(directory.path()));
    assert!(matches!(found, Err(BenchError::NoRoom { .. })), "{found:?}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn the_user_may_change_span_and_rounds() {
    let asked = BenchOptions { span_bytes: Some(32 << 20), rounds: Some(3), ..options(Path::new(".")) };
    let plan = FsPlan::full().with(&asked).unwrap();
    assert_eq!((plan.span_bytes, plan.rounds), (32 << 20, 3));
    let small = BenchOptions { span_bytes: Some(1 << 20), ..asked };
    assert!(matches!(FsPlan::full().with(&small), Err(BenchError::Size { min_mib: 16, .. })));
}
