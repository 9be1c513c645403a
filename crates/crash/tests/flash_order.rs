//! Equation 1 on emulated flash: the order recorder is green for every mechanism, red without one and for
//! firmware that ignores barriers; and the volume alone makes a legacy device keep order.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use crate::drive;
use std::rc::Rc;

use weir_block::{BlockLayer, BlockOptions, Class, Request};
use weir_flash::{FlashDevice, FlashMutant, FlashOptions, Mechanism, OrderedService};
use weir_runtime::{Handle, Runtime, Simulation};
use weir_storage::{
    BLOCK_BYTES, Command, Epoch, Expectations, Lba, Order, Part, Recorder, Rules, Storage, StreamId, Tag,
    Violation, Write, conformance, submit_when_free,
};
use weir_volume::{Format, Volume, VolumeOptions};

const WRITES: u64 = 6000;

const BARRIER_MECHANISMS: [Mechanism; 5] = [
    Mechanism::PowerLossProtection,
    Mechanism::InOrderWriteback,
    Mechanism::TransactionalWriteback,
    Mechanism::InOrderRecovery,
    Mechanism::OrderPreservingRecovery,
];

/// Writes of all classes on few blocks and many, through the block layer.
async fn writes(handle: &Handle, storage: Rc<dyn Storage>, recorder: &Rc<Recorder>) {
    let options = BlockOptions::default();
    let layer =
        BlockLayer::recorded(handle, Rc::clone(&storage), options, Some(Rc::clone(recorder))).unwrap();
    let mut random = handle.random("writes");
    for number in 0..WRITES {
        let span = if random.below(4) == 0 { 16 } else { storage.blocks() };
        let page = vec![number as u8; BLOCK_BYTES];
        let parts = [Part::bytes(Lba(random.below(span)), &page)];
        let class = [Class::Barrier, Class::Ordered, Class::Orderless][random.below(3) as usize];
        drop(layer.submit(&Request::new(StreamId(0), class, &parts)).await.unwrap());
        if random.below(500) == 0 {
            layer.flush().unwrap().transferred().await.unwrap();
        }
    }
    layer.when_space(BlockLayer::flush).await.unwrap().transferred().await.unwrap();
}

fn order_of(
    mechanism: Mechanism,
    service: OrderedService,
    mutant: Option<FlashMutant>,
) -> Result<u64, Violation> {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let recorder = Recorder::new();
    let mut profile = drive::profile(mechanism);
    profile.host.ordered_service = service;
    let options = FlashOptions {
        recorder: Some(Rc::clone(&recorder)),
        rules: Rules::but(mutant),
        ..FlashOptions::default()
    };
    let device: Rc<dyn Storage> = FlashDevice::new(&handle, &profile, options);
    runtime.block_on(writes(&handle, device, &recorder)).unwrap();
    recorder.check().map(|counts| counts.persisted)
}

#[test]
fn every_mechanism_keeps_equation_1() {
    for mechanism in BARRIER_MECHANISMS {
        for service in [OrderedService::None, OrderedService::Serial, OrderedService::Pipelined] {
            let persisted = order_of(mechanism, service, None);
            assert!(persisted.is_ok_and(|persisted| persisted > WRITES / 2), "{persisted:?} {mechanism:?}");
        }
    }
}

#[test]
fn firmware_that_ignores_barriers_breaks_equation_1() {
    let broken = |mechanism, mutant| order_of(mechanism, OrderedService::Pipelined, Some(mutant)).is_err();
    assert!(broken(Mechanism::InOrderWriteback, FlashMutant::BarrierIgnored));
    assert!(broken(Mechanism::InOrderWriteback, FlashMutant::EpochsMixed));
    assert!(broken(Mechanism::InOrderRecovery, FlashMutant::CoalescesAcrossEpochs));
    assert!(broken(Mechanism::InOrderRecovery, FlashMutant::PriorityIgnored));
}

/// The negative control: Wait-on-Transfer keeps the order of transfer on a legacy device, and nothing keeps that
/// of persistence.
#[test]
fn a_legacy_device_breaks_equation_1_behind_the_cache() {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let recorder = Recorder::new();
    let options = FlashOptions { recorder: Some(Rc::clone(&recorder)), ..FlashOptions::default() };
    let device = FlashDevice::new(&handle, &drive::profile(Mechanism::None), options);
    let run = async {
        let page = [1; BLOCK_BYTES];
        for number in 0..2000 {
            let order = Order::Epoch(StreamId(0), Epoch(number));
            let tags = [Tag { request: recorder.next_request(), order }];
            recorder.issued(tags[0]);
            let parts = [Part::bytes(Lba(number * 7 % 4096), &page)];
            let write = Write { tags: &tags, ..Write::new(&parts) };
            let ticket = submit_when_free(&*device, Command::Write(write)).await.unwrap();
            recorder.dispatched(&tags);
            ticket.transferred().await.unwrap();
        }
    };
    runtime.block_on(run).unwrap();
    let layer = match recorder.check() {
        Err(Violation::Overtaken { layer, .. }) => layer.equation(),
        other => panic!("{other:?}"),
    };
    assert_eq!(layer, "X = P");
}

#[test]
fn a_volume_on_a_legacy_device_conforms_and_keeps_order() {
    let format = Format { logical_blocks: 1024, segment_blocks: 128, overwrite: false, slots: 0 };
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let volume = async |recorder: Option<Rc<Recorder>>| {
        let profile = drive::profile(Mechanism::None);
        let device: Rc<dyn Storage> = FlashDevice::new(&handle, &profile, FlashOptions::default());
        Volume::create(&handle, &*device, format).await.unwrap();
        let volume = Volume::open(&handle, device, VolumeOptions::default()).await.unwrap();
        if let Some(recorder) = recorder {
            volume.set_recorder(recorder);
        }
        Rc::new(volume) as Rc<dyn Storage>
    };
    let make = async || volume(None).await;
    runtime.block_on(conformance(&handle, Expectations::default(), make)).unwrap().unwrap();
    let recorder = Recorder::prefix();
    runtime
        .block_on(async {
            let volume = volume(Some(Rc::clone(&recorder))).await;
            writes(&handle, volume, &recorder).await;
        })
        .unwrap();
    assert!(recorder.check().unwrap().persisted > WRITES / 2);
}
