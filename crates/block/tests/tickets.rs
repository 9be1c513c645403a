//! What a ticket of the layer tells, for requests that went straight through and for those that were queued.

use std::rc::Rc;

use weir_block::{BlockLayer, BlockOptions, Class, Dispatch, Refused, Request};
use weir_runtime::{Handle, Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Discard, Extent, Feature, Lba, Ordering,
    Part, Priority, Rejected, SharePair, StorageError, StreamId, Ticket, Write, WriteFlags,
};

const STREAM: StreamId = StreamId(0);

/// A disk of depth 1, so that the second request of two has to queue.
fn narrow(handle: &Handle, durable_tickets: bool) -> (Rc<AdversaryDisk>, Rc<BlockLayer>) {
    let capabilities = Capabilities {
        ordering: Ordering::Barrier,
        ordered_service: true,
        durable_tickets,
        discard: Discard::ReadsZero,
        share: true,
        packed: true,
        ..Capabilities::legacy(1, 16, 4096)
    };
    let options =
        AdversaryOptions { blocks: 16, capabilities, latency_ns_max: 500, ..AdversaryOptions::default() };
    let disk = AdversaryDisk::new(handle, options);
    let layer = BlockLayer::new(handle, Rc::clone(&disk) as _, BlockOptions::default());
    (disk, layer.expect("a barrier device"))
}

fn run(durable_tickets: bool, script: impl AsyncFnOnce(Rc<AdversaryDisk>, Rc<BlockLayer>)) {
    let runtime = Runtime::simulated(Simulation::default());
    let (disk, layer) = narrow(&runtime.handle(), durable_tickets);
    runtime.block_on(script(disk, layer)).expect("no stall");
}

/// Two barrier writes: the first goes straight through, the second is queued.
fn two(layer: &BlockLayer) -> [Ticket; 2] {
    let pages = [[1; BLOCK_BYTES], [2; BLOCK_BYTES]];
    let tickets = [0, 1].map(|i| {
        let parts = [Part::bytes(Lba(i as u64), &pages[i])];
        layer.try_submit(&Request::barrier(STREAM, &parts)).expect("room")
    });
    assert_eq!((layer.stats().direct, layer.stats().queued), (1, 1));
    tickets
}

#[test]
fn both_phases_reach_the_caller() {
    run(true, async |_, layer| {
        let tickets = two(&layer);
        for ticket in &tickets {
            assert_eq!(ticket.transferred().await, Ok(()));
        }
        layer.flush().expect("room").transferred().await.expect("a flush");
        for ticket in &tickets {
            assert_eq!(ticket.durable().await, Ok(()));
        }
    });
}

/// Requests that wait, one of them joined to another, and the barrier with whichever leaves last.
#[test]
fn both_phases_reach_the_callers_of_merged_requests() {
    run(true, async |disk, layer| {
        let page = [3; BLOCK_BYTES];
        let write = |block, barrier| {
            let parts = [Part::bytes(Lba(block), &page)];
            let ordered = Request::new(STREAM, Class::Ordered, &parts);
            let request = if barrier { Request::barrier(STREAM, &parts) } else { ordered };
            layer.try_submit(&request).expect("room")
        };
        let tickets = [write(0, false), write(4, false), write(5, false), write(9, true), write(6, true)];
        assert!(layer.stats().merged > 0);
        for ticket in &tickets {
            assert_eq!(ticket.transferred().await, Ok(()));
        }
        layer.flush().expect("room").transferred().await.expect("a flush");
        for (ticket, block) in tickets.iter().zip([0, 4, 5, 9, 6]) {
            assert_eq!(ticket.durable().await, Ok(()));
            assert_eq!(disk.image().read(Lba(block)), page);
        }
    });
}

#[test]
fn durability_that_the_device_does_not_tell_is_unknown() {
    run(false, async |_, layer| {
        for ticket in two(&layer) {
            assert_eq!(ticket.transferred().await, Ok(()));
            assert_eq!(ticket.durable().await, Err(StorageError::DurabilityUnknown));
        }
    });
}

#[test]
fn queued_reads_bring_their_data() {
    run(false, async |_, layer| {
        two(&layer);
        for (block, byte) in [(1, 2), (0, 1), (2, 0)] {
            let ticket = layer.read(Extent::new(Lba(block), 1)).expect("room");
            assert_eq!(ticket.transferred().await, Ok(()));
            let data = ticket.take_data().expect("data");
            assert!(data.iter().all(|found| *found == byte), "block {block}");
        }
    });
}

#[test]
fn a_discard_keeps_its_place_among_overlaps() {
    run(false, async |_, layer| {
        two(&layer);
        layer.discard(STREAM, &[Extent::new(Lba(0), 2)]).expect("room");
        let page = [3; BLOCK_BYTES];
        layer.try_submit(&Request::ordered(STREAM, &[Part::bytes(Lba(1), &page)])).expect("room");
        for (block, byte) in [(0, 0), (1, 3)] {
            let ticket = layer.read(Extent::new(Lba(block), 1)).expect("room");
            assert_eq!(ticket.transferred().await, Ok(()));
            assert_eq!(ticket.take_data().expect("data")[0], byte, "block {block}");
        }
    });
}

#[test]
fn a_share_and_a_packed_write_keep_their_places_among_overlaps() {
    run(false, async |_, layer| {
        two(&layer);
        // Behind the write of block 0 and before that of block 1, which it reads, and one of block 8.
        let pairs = [SharePair { from: Extent::new(Lba(0), 2), to: Lba(8) }];
        layer.share(STREAM, &pairs).expect("room");
        let mut page = [3; BLOCK_BYTES];
        layer.try_submit(&Request::ordered(STREAM, &[Part::bytes(Lba(1), &page)])).expect("room");
        page.fill(4);
        let parts = [Part::bytes(Lba(9), &page)];
        let again = [5; BLOCK_BYTES];
        let parts_again = [Part::bytes(Lba(9), &again), Part::bytes(Lba(12), &page)];
        let packed = layer.packed(STREAM, &[Write::new(&parts), Write::new(&parts_again)]).expect("room");
        // What it has taken is as of then (S6).
        page.fill(6);
        assert_eq!(packed.transferred().await, Ok(()));
        for (block, byte) in [(0, 1), (1, 3), (8, 1), (9, 5), (12, 4)] {
            let ticket = layer.read(Extent::new(Lba(block), 1)).expect("room");
            assert_eq!(ticket.transferred().await, Ok(()));
            assert_eq!(ticket.take_data().expect("data")[0], byte, "block {block}");
        }
    });
}

#[test]
fn a_share_and_a_packed_write_are_refused_where_the_device_has_none() {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let disk = AdversaryDisk::new(&handle, AdversaryOptions { blocks: 16, ..AdversaryOptions::default() });
    let options = BlockOptions { dispatch: Dispatch::Legacy, ..BlockOptions::default() };
    let layer = BlockLayer::new(&handle, disk, options).expect("any device");
    let pairs = [SharePair { from: Extent::new(Lba(0), 1), to: Lba(1) }];
    let refused = |feature| Some(Refused::Rejected(Rejected::Unsupported(feature)));
    assert_eq!(layer.share(STREAM, &pairs).err(), refused(Feature::Share));
    assert_eq!(layer.packed(STREAM, &[]).err(), refused(Feature::Packed));
}

#[test]
fn a_packed_write_takes_no_flag_that_an_orderless_command_cannot_keep() {
    run(true, async |_, layer| {
        let page = [7; BLOCK_BYTES];
        let parts = [Part::bytes(Lba(3), &page)];
        let none = WriteFlags::default();
        for (flags, feature) in [
            (WriteFlags { barrier: true, ..none }, Feature::Barrier),
            (WriteFlags { preflush: true, ..none }, Feature::Preflush),
            // These it could keep, but this device cannot.
            (WriteFlags { fua: true, ..none }, Feature::Fua),
            (WriteFlags { reliable: true, ..none }, Feature::Reliable),
        ] {
            let refused = layer.packed(STREAM, &[Write { flags, ..Write::new(&parts) }]).err();
            assert_eq!(refused, Some(Refused::Rejected(Rejected::Unsupported(feature))));
        }
        let ordered = Write { priority: Priority::Ordered, ..Write::new(&parts) };
        let refused = layer.packed(STREAM, &[ordered]).err();
        assert_eq!(refused, Some(Refused::Rejected(Rejected::Unsupported(Feature::OrderedService))));
    });
}

/// The ticket of a packed write tells of all its writes: it is durable with its transfer if all of them are.
#[test]
fn a_packed_write_is_durable_at_once_if_all_of_it_is() {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let capabilities = Capabilities { fua: true, packed: true, ..Capabilities::legacy(1, 16, 4096) };
    let options = AdversaryOptions { blocks: 16, capabilities, ..AdversaryOptions::default() };
    let legacy = BlockOptions { dispatch: Dispatch::Legacy, ..BlockOptions::default() };
    let layer = BlockLayer::new(&handle, AdversaryDisk::new(&handle, options), legacy).expect("any device");
    let page = [7; BLOCK_BYTES];
    let (first, second) = ([Part::bytes(Lba(3), &page)], [Part::bytes(Lba(5), &page)]);
    let packed = async |all_fua: bool| {
        let flags = |fua| WriteFlags { fua, ..WriteFlags::default() };
        let writes = [
            Write { flags: flags(all_fua), ..Write::new(&first) },
            Write { flags: flags(true), ..Write::new(&second) },
        ];
        let ticket = layer.packed(STREAM, &writes).expect("room");
        (ticket.transferred().await, ticket.durable().await)
    };
    let seen = runtime.block_on(async { [packed(true).await, packed(false).await] }).expect("no stall");
    assert_eq!(seen, [(Ok(()), Ok(())), (Ok(()), Err(StorageError::DurabilityUnknown))]);
}

#[test]
fn nobody_waits_for_a_layer_or_a_device_that_is_gone() {
    run(false, async |_, layer| {
        let [_, queued] = two(&layer);
        drop(layer);
        assert_eq!(queued.transferred().await, Err(StorageError::Gone));
    });
    run(false, async |disk, layer| {
        let tickets = two(&layer);
        disk.cut_power();
        assert_eq!(tickets[0].transferred().await, Err(StorageError::Gone));
        assert_eq!(tickets[1].transferred().await, Err(StorageError::Aborted));
    });
}

/// Legacy dispatch on a device that can do better still keeps order by itself.
#[test]
fn legacy_dispatch_works_on_every_device() {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let (disk, _) = narrow(&handle, false);
    let options = BlockOptions { dispatch: Dispatch::Legacy, ..BlockOptions::default() };
    let layer = BlockLayer::new(&handle, disk, options).expect("any device");
    runtime
        .block_on(async {
            let page = [1; BLOCK_BYTES];
            for lba in 0..4 {
                layer.try_submit(&Request::barrier(STREAM, &[Part::bytes(Lba(lba), &page)])).expect("room");
            }
            layer.barrier(STREAM).expect("room").transferred().await.expect("a barrier");
            let stats = layer.stats();
            assert_eq!((stats.flushes, stats.barrier_writes, stats.bare_barriers), (5, 0, 0));
        })
        .expect("no stall");
}
