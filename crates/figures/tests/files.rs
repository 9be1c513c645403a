//! What a run through the filesystem is: a function of its seed, and true to the journal it runs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use crate::drive::drive;
use weir_figures::{Call, Calls, Change, FigureError, Host, On, Outcome, Run};
use weir_flash::Mechanism;

const ALL: [(On, Call); 5] = [
    (On::Ext4, Call::Fsync),
    (On::Ext4Unbarriered, Call::Fsync),
    (On::BarrierFs, Call::Fsync),
    (On::BarrierFs, Call::Fbarrier),
    (On::BarrierFsCopies, Call::Fbarrier),
];

fn run(on: On, change: Change, call: Call) -> Run {
    run_threads(on, change, call, 2)
}

fn run_threads(on: On, change: Change, call: Call, threads: u32) -> Run {
    Run {
        device: drive(Mechanism::InOrderRecovery),
        host: Host::builtin("pc").unwrap(),
        experiment: Arc::new(Calls { on, change, call, threads, cores: None, other: None, aged_percent: 0 }),
        erased: false,
        span: 1024,
        writes: 400,
        warm_up_max: 100,
        sample_ns: 10_000,
        asks_kernel: false,
    }
}

fn alone(on: On, change: Change, call: Call) -> Outcome {
    run_threads(on, change, call, 1).outcome(1).unwrap()
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    for (on, call) in ALL {
        for change in [Change::Append, Change::Overwrite, Change::Permissions] {
            let run = run(on, change, call);
            let seen = run.outcome(1).unwrap();
            assert_eq!(seen, run.outcome(1).unwrap(), "{}", run.title());
            if change == Change::Overwrite {
                // Nothing else is random.
                assert_ne!(seen.trace_hash, run.outcome(2).unwrap().trace_hash, "{}", run.title());
            }
            assert!(seen.value("iops") > 0.0 && seen.value("latency-p50") > 0.0, "{seen:?}");
        }
    }
}

#[test]
fn a_commit_with_barriers_is_one_wait_for_the_caller_and_without_two() {
    let switches = |on, call| alone(on, Change::Append, call).value("switches");
    // Now and then a call waits for a checkpoint, too: the journal is small.
    for on in [On::Ext4, On::Ext4Unbarriered] {
        let switches = switches(on, Call::Fsync);
        assert!((2.0..2.1).contains(&switches), "{on}: {switches}");
    }
    let barrier = switches(On::BarrierFs, Call::Fsync);
    assert!((1.0..1.1).contains(&barrier), "{barrier}");
    assert!(switches(On::BarrierFs, Call::Fbarrier) < 1.1);
}

/// Where all threads share a commit, no transaction changes a block that another holds. Many threads fall into two groups
/// that flush in turns. Their inodes share blocks, so the paper's list, which holds these until they are durable, brings the
/// groups together: one flush serves all.
#[test]
fn the_papers_list_brings_groups_of_threads_together() {
    let rate =
        |on, threads| run_threads(on, Change::Append, Call::Fsync, threads).outcome(1).unwrap().value("iops");
    for threads in [1, 2, 6] {
        // Six threads fill the small journal, and the calls make checkpoints at other times.
        let tolerance = if threads == 6 { 0.06 } else { 0.01 };
        let same = |one: f64, other: f64| (one / other - 1.0).abs() < tolerance;
        let [paper, early, copies] =
            [On::BarrierFs, On::BarrierFsUntilTransfer, On::BarrierFsCopies].map(|on| rate(on, threads));
        let gains = if threads == 6 { paper > 1.2 * early } else { same(paper, early) };
        assert!(gains && same(early, copies), "{threads} threads: {paper} {early} {copies}");
    }
}

/// The inode changes with the timer and not with every write (J6), so most calls find nothing to commit.
#[test]
fn an_ordering_call_that_finds_only_data_does_not_wait() {
    let seen = alone(On::BarrierFs, Change::Overwrite, Call::Fbarrier);
    assert!(seen.value("switches") < 0.1, "{seen:?}");
    assert_eq!(seen.depth.max, 32);
}

#[test]
fn barriers_save_the_waits_and_a_flush() {
    let latency = |on| alone(on, Change::Append, Call::Fsync).value("latency-mean");
    let (ext4, unbarriered, barrier) =
        (latency(On::Ext4), latency(On::Ext4Unbarriered), latency(On::BarrierFs));
    assert!(barrier < 0.7 * ext4 && unbarriered < 0.5 * barrier, "{ext4} {unbarriered} {barrier}");
}

#[test]
fn a_serial_commit_takes_what_its_parts_take_and_a_concurrent_one_less() {
    let commits = |on, call| {
        let seen = run(on, Change::Permissions, call).outcome(1).unwrap();
        ["commit-interval", "commit-dispatch", "commit-transfer", "commit-flush"].map(|name| seen.value(name))
    };
    let serial = commits(On::Ext4, Call::Fsync);
    let [interval, _, _, parts] = serial;
    assert!((interval / parts - 1.0).abs() < 0.1, "{serial:?}");
    let concurrent = commits(On::BarrierFs, Call::Fbarrier);
    let [concurrent_interval, dispatch, with_transfer, with_flush] = concurrent;
    assert!(concurrent_interval < with_transfer - dispatch, "{concurrent:?}");
    assert!(concurrent_interval < 0.1 * interval, "{concurrent:?} {serial:?}");
    assert_eq!(with_flush, with_transfer);
}

/// A host that does not use FUA flushes in its place.
#[test]
fn a_host_without_fua_flushes_twice() {
    let run = run(On::Ext4, Change::Append, Call::Fsync);
    let with = Run { host: Host { no_fua: None, ..run.host.clone() }, ..run.clone() };
    let (without, with) = (run.outcome(1).unwrap(), with.outcome(1).unwrap());
    assert!(without.value("latency-mean") > 1.2 * with.value("latency-mean"), "{without:?} {with:?}");
}

/// The device's order of receipt takes the place of a flush in each commit.
#[test]
fn a_prefix_device_saves_a_flush_and_every_one_where_order_will_do() {
    let device = drive(Mechanism::OrderPreservingRecovery);
    let latency = |on, call| {
        let run = run(on, Change::Append, call);
        Run { device: device.clone(), ..run }.outcome(1).unwrap().value("latency-mean")
    };
    let [ext4, prefix, fence] =
        [(On::Ext4, Call::Fsync), (On::Prefix, Call::Fsync), (On::Prefix, Call::Fbarrier)]
            .map(|(on, call)| latency(on, call));
    assert!(prefix < 0.7 * ext4 && fence < 0.5 * prefix, "{ext4} {prefix} {fence}");
}

/// Negative control: on a device without barriers there is no such run to be had.
#[test]
fn a_device_without_barriers_carries_no_such_journal() {
    let refused =
        Run { device: drive(Mechanism::None), ..run(On::BarrierFs, Change::Append, Call::Fsync) }.outcome(1);
    assert!(matches!(refused, Err(FigureError::Files { .. })), "{refused:?}");
}
