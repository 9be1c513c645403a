//! The conformance suite of storages, on every mechanism, on small devices and on the profiles.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use crate::small;
use std::rc::Rc;

use weir_flash::{FlashDevice, FlashOptions, Mechanism, OrderedService, Profile, SimpleService};
use weir_runtime::{Runtime, Simulation, Wall};
use weir_storage::{Expectations, Storage, conformance};

fn conforms(profile: &Profile) {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let make = async || FlashDevice::new(&handle, profile, FlashOptions::default()) as Rc<dyn Storage>;
    let report = runtime.block_on(conformance(&handle, Expectations::default(), make));
    assert!(matches!(report, Ok(Ok(_))), "{:?}: {report:?}", profile.barrier.mechanism);
}

#[test]
fn every_mechanism_conforms() {
    for mechanism in small::BARRIER_MECHANISMS.into_iter().chain([Mechanism::None]) {
        for ordered_service in [OrderedService::None, OrderedService::Serial, OrderedService::Pipelined] {
            for simple_service in [SimpleService::Fifo, SimpleService::Any] {
                let mut profile = small::profile(mechanism);
                profile.host.ordered_service = ordered_service;
                profile.host.simple_service = simple_service;
                // Small devices with order-preserving recovery have no room for packed writes of eight pages.
                let packed = mechanism != Mechanism::OrderPreservingRecovery;
                profile.host.packed_header_ns = packed.then_some(0);
                profile.host.reliable_extra_ns = Some(0);
                conforms(&profile);
                let mut paged = small::paged(mechanism);
                paged.host = profile.host;
                conforms(&paged);
            }
        }
    }
}

/// The same device in wall time: it answers when a real one would.
#[test]
fn a_device_conforms_in_wall_time() {
    let runtime = Runtime::wall(Wall::default()).unwrap();
    let handle = runtime.handle();
    let profile = small::profile(Mechanism::InOrderRecovery);
    let make = async || FlashDevice::new(&handle, &profile, FlashOptions::default()) as Rc<dyn Storage>;
    let report = runtime.block_on(conformance(&handle, Expectations::default(), make));
    assert!(matches!(report, Ok(Ok(_))), "{report:?}");
}
