//! Writes on a simulated device: small spans, devices without barriers, devices that are full.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::rc::Rc;

use weir_bench::{BenchError, SimulatedOptions, SimulatedReport, WeirCalls, simulate, trace};
use weir_flash::{Busy, Mechanism, Probe, Profile, Subject};
use weir_runtime::{Runtime, Wall};

fn device(mechanism: Mechanism) -> Profile {
    Profile::builtin("sata-ssd").unwrap().with_capacity(1 << 18).with_mechanism(mechanism)
}

fn run(profile: &Profile, options: &SimulatedOptions) -> Result<SimulatedReport, BenchError> {
    simulate(&Runtime::wall(Wall::default()).unwrap().handle(), profile, options)
}

fn small(options: SimulatedOptions) -> SimulatedOptions {
    SimulatedOptions { writes: 2000, ..options }
}

/// Writes in flight do not overlap: there are never more than the span has blocks.
#[test]
fn a_span_may_be_smaller_than_the_queue() {
    let options = small(SimulatedOptions { span_blocks: 3, ..SimulatedOptions::default() });
    assert_eq!(run(&device(Mechanism::InOrderRecovery), &options).unwrap().span_blocks, 3);
}

#[test]
fn a_legacy_device_takes_everything_but_barriers() {
    struct Nothing;
    impl Probe for Nothing {
        fn busy(&self, _: Busy, _: Subject, _: u64, _: u64) {}
        fn queue_depth(&self, _: u64, _: u32) {}
        fn cached(&self, _: u64, _: u64) {}
    }
    let legacy = device(Mechanism::None);
    assert!(run(&legacy, &small(SimulatedOptions::default())).unwrap().simulated_iops > 0.0);
    let barriers = small(SimulatedOptions { barriers: true, ..SimulatedOptions::default() });
    assert!(matches!(run(&legacy, &barriers), Err(BenchError::NoBarriers { .. })));
    for calls in [WeirCalls::Xnf, WeirCalls::X, WeirCalls::P] {
        trace(&legacy, calls, 50, 1, Rc::new(Nothing)).unwrap();
    }
    let refused = trace(&legacy, WeirCalls::B, 50, 1, Rc::new(Nothing));
    assert!(matches!(refused, Err(BenchError::NoBarriers { .. })));
}
