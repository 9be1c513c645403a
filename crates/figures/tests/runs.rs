//! What a run is: a function of its seed, and true to the way it writes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use crate::drive::drive;
use weir_figures::{BlockWrites, FigureError, Host, Outcome, RandomWrites, Run, Size};
use weir_flash::{Mechanism, OrderedService};

const WAYS: [BlockWrites; 7] = [
    BlockWrites::XnF,
    BlockWrites::X,
    BlockWrites::B,
    BlockWrites::P,
    BlockWrites::BarrierCommand,
    BlockWrites::BarrierBurst,
    BlockWrites::BarrierWaiting,
];

fn run(way: BlockWrites) -> Run {
    Run {
        device: drive(Mechanism::InOrderRecovery),
        host: Host::builtin("pc").unwrap(),
        experiment: Arc::new(way),
        erased: false,
        span: 8192,
        writes: if way == BlockWrites::XnF { 200 } else { 4000 },
        warm_up_max: 10_000,
        sample_ns: 1000,
        asks_kernel: false,
    }
}

fn outcome(way: BlockWrites) -> Outcome {
    run(way).outcome(1).unwrap()
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    for way in WAYS {
        assert_eq!(run(way).outcome(1).unwrap(), run(way).outcome(1).unwrap(), "{way:?}");
        assert_ne!(
            run(way).outcome(1).unwrap().trace_hash,
            run(way).outcome(2).unwrap().trace_hash,
            "{way:?}"
        );
    }
}

#[test]
fn a_writer_that_waits_never_has_two_commands_in_the_queue() {
    for way in [BlockWrites::XnF, BlockWrites::X, BlockWrites::BarrierWaiting] {
        let seen = outcome(way);
        assert_eq!(seen.depth.max, 1, "{way:?}");
        assert!(
            seen.value("depth-mean") < 1.0 && seen.depth.samples.iter().all(|depth| *depth <= 1),
            "{way:?}"
        );
    }
}

#[test]
fn a_writer_that_does_not_wait_fills_the_queue() {
    for way in [BlockWrites::B, BlockWrites::P] {
        let seen = outcome(way);
        assert_eq!(seen.depth.max, 32, "{way:?}");
        assert!(seen.value("depth-mean") > 30.0, "{way:?}: {}", seen.value("depth-mean"));
        assert!((seen.drift - 1.0).abs() < 0.05, "{way:?}: {}", seen.drift);
    }
}

#[test]
fn waiting_costs_what_the_papers_say_it_costs() {
    let [xnf, x, b, p] = [BlockWrites::XnF, BlockWrites::X, BlockWrites::B, BlockWrites::P]
        .map(|way| outcome(way).value("iops"));
    assert!(xnf < 0.05 * p && xnf < x && x < 0.5 * p && b > 0.9 * p, "{xnf} {x} {b} {p}");
}

#[test]
fn a_writer_that_waits_is_switched_back_in_for_each_answer() {
    let [xnf, x, b] =
        [BlockWrites::XnF, BlockWrites::X, BlockWrites::B].map(|way| outcome(way).value("switches"));
    assert!((xnf - 2.0).abs() < 0.05 && (x - 1.0).abs() < 0.05 && b < 0.1, "{xnf} {x} {b}");
}

#[test]
fn delays_of_wait_on_dispatch_are_the_hosts_alone() {
    let host = Host::builtin("pc").unwrap();
    let calls = host.write_us.value + host.sync_us.value + host.dispatch_us.value;
    let delay = |seen: &Outcome| ["delay-p50", "delay-p99"].map(|name| seen.value(name));
    let [wod, wot] = [BlockWrites::BarrierBurst, BlockWrites::X].map(|way| delay(&outcome(way)));
    assert!(wod.iter().all(|delay| (delay - calls).abs() < 1e-3), "{wod:?}");
    assert!(wot[0] > calls + host.completion_us.value + host.context_switch_us.value, "{wot:?}");
}

#[test]
fn a_barrier_as_a_command_costs_more_than_as_a_flag() {
    assert!(outcome(BlockWrites::BarrierCommand).value("iops") < 0.8 * outcome(BlockWrites::B).value("iops"));
}

#[test]
fn every_mechanism_keeps_order() {
    for mechanism in Mechanism::ALL.into_iter().filter(|mechanism| *mechanism != Mechanism::None) {
        for service in [OrderedService::None, OrderedService::Serial, OrderedService::Pipelined] {
            let mut run = Run { device: drive(mechanism), ..run(BlockWrites::B) };
            run.device.host.ordered_service = service;
            run.outcome(1).unwrap();
        }
    }
}

/// Negative control: a device without barriers is refused, so no run can pass for an ordered one on it.
#[test]
fn a_device_without_barriers_has_no_barrier_writes() {
    let refused = Run { device: drive(Mechanism::None), ..run(BlockWrites::B) }.outcome(1);
    assert!(matches!(refused, Err(FigureError::Block { .. })), "{refused:?}");
}

/// Random writes in all of the drive's area but a quarter, so that it cleans.
fn random(mechanism: Mechanism, size: Size, flush_every: u64) -> Outcome {
    let experiment = Arc::new(RandomWrites { footprint_mib: 48, size, flush_every });
    let run = Run {
        device: drive(mechanism),
        experiment,
        writes: 16_384,
        warm_up_max: 32_768,
        ..run(BlockWrites::P)
    };
    let seen = run.outcome(1).unwrap();
    assert_eq!(seen, run.outcome(1).unwrap(), "{}", run.title());
    assert_ne!(seen.trace_hash, run.outcome(2).unwrap().trace_hash, "{}", run.title());
    seen
}

#[test]
fn random_writes_are_counted_in_the_window_alone() {
    let mut increments = 0.0;
    for (size, requests) in [(Size::Large, 64), (Size::Small, 4096)] {
        let seen = random(Mechanism::OrderPreservingRecovery, size, 16);
        assert_eq!((seen.value("iops") * seen.value("seconds")).round() as u64, requests, "{size:?}");
        assert_eq!(seen.value("total-flushes") as u64, requests / 16, "{size:?}");
        // What was transferred in the window, but for the commands on their way at both of its ends.
        assert!((seen.value("total-written") - 16_384.0).abs() <= 32.0 * 64.0, "{size:?}: {seen:?}");
        assert!(
            seen.value("total-moved-pages") > 0.0 && seen.value("total-checkpoint-pages") > 0.0,
            "{size:?}: {:?}",
            seen
        );
        increments += seen.value("total-increment-pages");
    }
    assert!(increments > 0.0);
}

#[test]
fn only_a_drive_that_keeps_order_flushes_by_itself_and_holds_blocks_back() {
    let [ordered, ordinary] = [Mechanism::OrderPreservingRecovery, Mechanism::None]
        .map(|mechanism| random(mechanism, Size::Hybrid, 1024));
    assert!(ordered.value("total-internal-flushes") > 0.0 && ordered.value("held-back") > 0.0, "{ordered:?}");
    // The drive's cache is half full before it is written back.
    let caused = ordered.value("total-internally-flushed-pages");
    assert!(caused > 0.0 && caused < ordered.value("total-data-pages"), "{ordered:?}");
    let none = (ordinary.value("total-internal-flushes"), ordinary.value("total-internally-flushed-pages"));
    assert_eq!((none, ordinary.value("held-back")), ((0.0, 0.0), 0.0));
}

#[test]
fn a_writer_that_flushes_often_writes_little() {
    let iops = |every| random(Mechanism::None, Size::Small, every).value("iops");
    assert!(iops(1) < 0.5 * iops(16) && iops(16) < iops(256));
}
