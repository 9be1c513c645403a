//! The conformance suite on the adversary disk: every ordering, every capability, with and without latency,
//! in virtual time.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::rc::Rc;

use weir_runtime::{Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, Capabilities, Discard, Expectations, Ordering, Report, Rule, Storage,
    conformance,
};

fn check(seed: u64, capabilities: Capabilities, latency_ns_max: u64) -> Report {
    let runtime = Runtime::simulated(Simulation { seed, explore: true, cores: None });
    let handle = runtime.handle();
    let make = async || {
        let options = AdversaryOptions { capabilities, latency_ns_max, ..AdversaryOptions::default() };
        AdversaryDisk::new(&handle, options) as Rc<dyn Storage>
    };
    let report = runtime.block_on(conformance(&handle, Expectations::default(), make)).unwrap();
    report.unwrap_or_else(|failure| panic!("seed {seed}, {capabilities:?}: {failure}"))
}

fn able(ordering: Ordering, discard: Discard, all: bool) -> Capabilities {
    Capabilities {
        ordering,
        discard,
        ordered_service: all,
        ordered_flush: all,
        fua: all,
        preflush: all,
        reliable: all,
        durable_tickets: all,
        share: all,
        packed: all,
        ..Capabilities::legacy(32, 256, 512)
    }
}

#[test]
fn every_ordering_with_and_without_everything_else() {
    let mut seed = 0;
    for ordering in [Ordering::Legacy, Ordering::Barrier, Ordering::Prefix] {
        for discard in [Discard::Unsupported, Discard::ReadsZero, Discard::Undefined] {
            for latency_ns_max in [0, 100_000] {
                seed += 1;
                check(seed, able(ordering, discard, false), latency_ns_max);
                let report = check(seed, able(ordering, discard, true), latency_ns_max);
                assert_eq!(report.passed.contains(&Rule::Barrier), ordering != Ordering::Legacy);
                assert!(report.passed.contains(&Rule::Packed), "{report}");
            }
        }
    }
}

#[test]
fn queues_and_transfers_of_every_size() {
    for (queue_depth, max_transfer_blocks) in [(1, 4), (2, 16), (256, 1024)] {
        let full = able(Ordering::Barrier, Discard::ReadsZero, true);
        check(7, Capabilities { queue_depth, max_transfer_blocks, ..full }, 10_000);
    }
}
