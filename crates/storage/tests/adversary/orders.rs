//! The order recorder over the adversary disk: Eq. 1 holds where barriers do, and only there.

use std::cell::Cell;
use std::rc::Rc;

use weir_runtime::{Handle, Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Command, Counts, Epoch, Layer, Lba, Order,
    Ordering, Part, Priority, Recorder, Storage, StorageMutant, StreamId, Tag, Ticket, Violation, Write,
    WriteFlags, flush, submit_when_free,
};

use super::campaign::{able, disk};

const EPOCHS: u64 = 30;

/// Writes epochs of three over 16 blocks, each closed by a barrier write, without waiting for anything.
async fn write_epochs(storage: Rc<AdversaryDisk>, recorder: Rc<Recorder>) -> Vec<Ticket> {
    let mut tickets = Vec::new();
    for i in 0..EPOCHS * 3 {
        let (epoch, barrier) = (i / 3, i % 3 == 2 && storage.capabilities().barriers());
        let tag = Tag { request: recorder.next_request(), order: Order::Epoch(StreamId(0), Epoch(epoch)) };
        recorder.issued(tag);
        let content = [i as u8 + 1; BLOCK_BYTES];
        let parts = [Part::bytes(Lba(i * 7 % 16), &content)];
        let ordered = barrier && storage.capabilities().ordered_service;
        let write = Write {
            flags: WriteFlags { barrier, ..WriteFlags::default() },
            priority: if ordered { Priority::Ordered } else { Priority::Simple },
            tags: &[tag],
            ..Write::new(&parts)
        };
        tickets.push(submit_when_free(&*storage, Command::Write(write)).await.unwrap());
        recorder.dispatched(&[tag]);
    }
    tickets
}

/// Runs the epochs on disks of several seeds; the first violation, or the counts of the last run.
fn record(
    capabilities: Capabilities,
    mutant: Option<StorageMutant>,
    new: fn() -> Rc<Recorder>,
) -> Result<Counts, Violation> {
    let mut counts = Counts::default();
    for seed in 0..20 {
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        let (disk, recorder) = (AdversaryDisk::new(&runtime.handle(), disk(capabilities, mutant)), new());
        disk.set_recorder(Rc::clone(&recorder));
        let work = async {
            for ticket in write_epochs(Rc::clone(&disk), Rc::clone(&recorder)).await {
                ticket.transferred().await.unwrap();
            }
            flush(&*disk).await.unwrap();
        };
        runtime.block_on(work).unwrap();
        counts = recorder.check()?;
    }
    Ok(counts)
}

fn broken(result: Result<Counts, Violation>) -> Option<Layer> {
    match result {
        Err(Violation::Overtaken { layer, .. }) => Some(layer),
        Err(other) => panic!("{other}"),
        Ok(_) => None,
    }
}

#[test]
fn a_barrier_disk_with_ordered_service_keeps_eq_1() {
    let counts = record(able(Ordering::Barrier), None, Recorder::new).unwrap();
    let all = EPOCHS * 3;
    assert_eq!(
        (counts.issued, counts.dispatched, counts.transferred, counts.persisted),
        (all, all, all, all)
    );
}

#[test]
fn eq_1_is_broken_without_what_it_rests_on() {
    let unordered = Capabilities { ordered_service: false, ..able(Ordering::Barrier) };
    assert_eq!(broken(record(unordered, None, Recorder::new)), Some(Layer::Transfer));
    let ignored = Some(StorageMutant::OrderedIgnored);
    assert_eq!(broken(record(able(Ordering::Barrier), ignored, Recorder::new)), Some(Layer::Transfer));
    let mixed = Some(StorageMutant::EpochsMixed);
    assert_eq!(broken(record(able(Ordering::Barrier), mixed, Recorder::new)), Some(Layer::Persist));
}

#[test]
fn a_prefix_disk_persists_in_order_of_receipt() {
    let unordered = Capabilities { ordered_service: false, ..able(Ordering::Prefix) };
    assert_eq!(record(unordered, None, Recorder::prefix).unwrap().persisted, EPOCHS * 3);
    assert!(record(unordered, Some(StorageMutant::PrefixHoles), Recorder::prefix).is_err());
    // A legacy disk is no prefix disk.
    let in_turn = Capabilities { queue_depth: 1, ..able(Ordering::Legacy) };
    assert!(record(in_turn, None, Recorder::prefix).is_err());
}

#[test]
fn tickets_become_durable_by_themselves_where_the_device_can_tell() {
    let capabilities = Capabilities { durable_tickets: true, ..able(Ordering::Barrier) };
    let runtime = Runtime::simulated(Simulation::default());
    let disk = AdversaryDisk::new(&runtime.handle(), disk(capabilities, None));
    let recorder = Recorder::new();
    let work = async {
        for ticket in write_epochs(Rc::clone(&disk), recorder).await {
            ticket.durable().await.unwrap();
        }
    };
    runtime.block_on(work).unwrap();
    assert_eq!(disk.crash_states().count(), 1);
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = |seed: u64| {
        let runtime = Runtime::simulated(Simulation { seed, explore: true, cores: None });
        let options = AdversaryOptions { latency_ns_max: 500, ..disk(able(Ordering::Barrier), None) };
        let disk = AdversaryDisk::new(&runtime.handle(), options);
        let events = Rc::new(Cell::new(0));
        let seen = Rc::clone(&events);
        disk.observe(Box::new(move |_| seen.set(seen.get() + 1)));
        let last = runtime.block_on(write_epochs(Rc::clone(&disk), Recorder::new())).unwrap();
        let handle: Handle = runtime.handle();
        let hashes: Vec<u64> = disk.crash_states().all().take(100).map(|image| image.hash()).collect();
        (last.len(), events.get(), handle.trace_hash(), disk.image().hash(), hashes)
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
