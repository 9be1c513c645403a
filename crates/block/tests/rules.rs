//! Rules E1 to E7, E9, S5 and S6, each on a device that follows a script, and each with the mutants that drop it.

use std::time::Duration;

use crate::scripted::{self, S0, S1, io_error, ordered_device, page, play, prove, same, unordered_device};
use futures_util::FutureExt;
use weir_block::{
    BlockError, BlockMutant, BlockOptions, Dispatch, Elevator, ElevatorKind, Entry, Refused, Request,
};
use weir_runtime::Instant;
use weir_storage::{Capabilities, CommandKind, Extent, Lba, Ordering, Rejected, RequestId, StorageError};

/// Lets requests leave in the order of a given list of first blocks.
struct Listed {
    list: Vec<u64>,
    queued: Vec<Entry>,
}

impl Listed {
    fn of(list: &[u64]) -> Option<Box<dyn Elevator>> {
        Some(Box::new(Listed { list: list.to_vec(), queued: Vec::new() }))
    }
}

impl Elevator for Listed {
    fn insert(&mut self, entry: Entry) {
        self.queued.push(entry);
        let place = |entry: &Entry| self.list.iter().position(|lba| *lba == entry.start.0);
        self.queued.sort_by_key(place);
    }

    fn pick(&mut self, _: Instant, ready: &dyn Fn(RequestId) -> bool) -> Option<RequestId> {
        self.queued.iter().map(|entry| entry.request).find(|request| ready(*request))
    }

    fn remove(&mut self, request: RequestId) {
        self.queued.retain(|entry| entry.request != request);
    }
}

/// No merging, so that neighbours stay apart.
fn apart(options: BlockOptions) -> BlockOptions {
    BlockOptions { merge: false, ..options }
}

/// The worked example of the FAST 2018 paper, section 3.4, figure 6. Block numbers are the papers' indices.
#[test]
fn the_papers_example() {
    let mutants = [BlockMutant::FlagStays, BlockMutant::EpochsMixed];
    prove(&mutants, |options| {
        let options = apart(options);
        play(ordered_device(), options, Listed::of(&[2, 3, 6, 4, 5, 1]), async |stage| {
            let (layer, device) = (&stage.layer, &stage.device);
            device.busy.set(true);
            let page = page(1);
            let part = |lba| scripted::at(lba, &page);
            for request in [
                Request::ordered(S0, &part(1)),
                Request::ordered(S0, &part(2)),
                Request::orderless(S0, &part(3)),
                Request::orderless(S0, &part(5)),
                Request::barrier(S0, &part(4)),
                Request::orderless(S0, &part(6)),
            ] {
                layer.try_submit(&request).expect("room");
            }
            device.free();
            stage.settle().await;
            // w6 waited in the staging queue and goes with the following epoch; w1 left last and carries the flag.
            same(device.order(), vec![2, 3, 4, 5, -1, 6])?;
            same(layer.stats().reassigned, 1)
        })
    });
}

/// E1: what is issued after a barrier leaves after the epoch, whatever the elevator prefers.
#[test]
fn e1_epochs_leave_in_order() {
    prove(&[BlockMutant::EpochsMixed], |options| {
        let options = BlockOptions { elevator: ElevatorKind::Deadline, ..apart(options) };
        play(ordered_device(), options, None, async |stage| {
            stage.device.busy.set(true);
            let page = page(1);
            for (lba, barrier) in [(9, false), (8, true), (5, false), (4, true), (2, false), (1, true)] {
                let part = scripted::at(lba, &page);
                let request = if barrier { Request::barrier(S0, &part) } else { Request::ordered(S0, &part) };
                stage.layer.try_submit(&request).expect("room");
            }
            stage.device.free();
            stage.settle().await;
            same(stage.device.order(), vec![8, -9, 4, -5, 1, -2])
        })
    });
}

/// E2: within an epoch the elevator decides.
#[test]
fn e2_the_elevator_orders_an_epoch() {
    prove(&[BlockMutant::ElevatorIgnored], |options| {
        let options = BlockOptions { elevator: ElevatorKind::Deadline, ..apart(options) };
        play(ordered_device(), options, None, async |stage| {
            stage.device.busy.set(true);
            let page = page(1);
            for lba in [7, 3, 9, 5] {
                stage.layer.try_submit(&Request::ordered(S0, &scripted::at(lba, &page))).expect("room");
            }
            stage.device.free();
            stage.settle().await;
            same(stage.device.order(), vec![3, 5, 7, 9])
        })
    });
}

/// E2: the fair elevator gives each stream its turn.
#[test]
fn e2_streams_take_turns() {
    let options = BlockOptions { elevator: ElevatorKind::Fair, ..apart(BlockOptions::default()) };
    let order = play(Capabilities { queue_depth: 1, ..ordered_device() }, options, None, async |stage| {
        stage.device.busy.set(true);
        let pages = vec![1; 64 * 4096];
        for lba in [0, 100, 200] {
            stage.layer.try_submit(&Request::orderless(S0, &scripted::at(lba, &pages))).expect("room");
        }
        stage.layer.try_submit(&Request::orderless(S1, &scripted::at(1000, &pages))).expect("room");
        stage.device.instant.set(true);
        stage.device.free();
        stage.settle().await;
        stage.device.order()
    });
    assert_eq!(order, vec![0, 1000, 100, 200]);
}

/// E2: an overdue request goes first.
#[test]
fn e2_overdue_requests_go_first() {
    let options = BlockOptions { elevator: ElevatorKind::Deadline, ..apart(BlockOptions::default()) };
    let order = play(ordered_device(), options, None, async |stage| {
        stage.device.busy.set(true);
        let page = page(1);
        stage.layer.try_submit(&Request::orderless(S0, &scripted::at(900, &page))).expect("room");
        stage.sleep_ms(6_000).await;
        stage.layer.try_submit(&Request::orderless(S0, &scripted::at(1, &page))).expect("room");
        stage.device.free();
        stage.settle().await;
        stage.device.order()
    });
    assert_eq!(order, vec![900, 1]);
}

/// E3: an orderless request waits for a closed queue, but not for ever.
#[test]
fn e3_orderless_waits_a_bounded_time() {
    prove(&[BlockMutant::OrderlessStarved], |options| {
        play(unordered_device(), options, None, async |stage| {
            let page = page(1);
            let part = |lba| scripted::at(lba, &page);
            // The barrier waits for the first write's transfer, which does not come; the queue stays closed.
            stage.layer.try_submit(&Request::ordered(S0, &part(10))).expect("room");
            stage.layer.try_submit(&Request::barrier(S0, &part(20))).expect("room");
            stage.layer.try_submit(&Request::orderless(S0, &part(30))).expect("room");
            stage.settle().await;
            same(stage.device.order(), vec![10])?;
            stage.sleep_ms(4).await;
            same(stage.device.order(), vec![10, 30])?;
            same(stage.device.seen()[1].at_ms, 3)
        })
    });
}

/// E3: reads and flushes pass a closed queue.
#[test]
fn e3_reads_and_flushes_are_never_held_back() {
    prove(&[BlockMutant::ReadHeldBack], |options| {
        play(unordered_device(), options, None, async |stage| {
            let page = page(1);
            let part = |lba| scripted::at(lba, &page);
            stage.layer.try_submit(&Request::ordered(S0, &part(10))).expect("room");
            stage.layer.try_submit(&Request::barrier(S0, &part(20))).expect("room");
            stage.layer.read(Extent::new(Lba(40), 1)).expect("room");
            stage.layer.flush().expect("room");
            stage.settle().await;
            let mut kinds = stage.device.kinds();
            kinds.sort();
            same(kinds, vec![CommandKind::Read, CommandKind::Write, CommandKind::Flush])
        })
    });
}

/// E4: a refused barrier is still the barrier, and the queue stays closed until it is accepted.
#[test]
fn e4_a_refusal_does_not_lose_the_flag() {
    prove(&[BlockMutant::EpochsMixed], |options| {
        play(ordered_device(), apart(options), None, async |stage| {
            let page = page(1);
            let part = |lba| scripted::at(lba, &page);
            stage.device.busy.set(true);
            stage.layer.try_submit(&Request::ordered(S0, &part(1))).expect("room");
            stage.layer.try_submit(&Request::barrier(S0, &part(2))).expect("room");
            stage.layer.try_submit(&Request::barrier(S0, &part(3))).expect("room");
            stage.device.refuse.set(Some((2, 1)));
            stage.device.free();
            stage.sleep_ms(10).await;
            same(stage.device.order(), vec![1, -2, -3])
        })
    });
}

/// E4: a request promoted while the barrier was refused makes another one the last.
#[test]
fn e4_the_flag_is_decided_at_each_attempt() {
    let order = play(ordered_device(), apart(BlockOptions::default()), Listed::of(&[2, 1]), async |stage| {
        let page = page(1);
        let part = |lba| scripted::at(lba, &page);
        stage.device.busy.set(true);
        stage.layer.try_submit(&Request::orderless(S0, &part(1))).expect("room");
        stage.layer.try_submit(&Request::barrier(S0, &part(2))).expect("room");
        stage.settle().await;
        stage.layer.promote(S0, &[Extent::new(Lba(1), 1)]);
        stage.device.free();
        stage.settle().await;
        stage.device.order()
    });
    assert_eq!(order, vec![2, -1]);
}

/// E4: a merged request is order-preserving if one part is, so the flag has somewhere to go.
#[test]
fn e4_merging_keeps_order() {
    prove(&[BlockMutant::MergeDropsOrder], |options| {
        play(ordered_device(), options, None, async |stage| {
            let page = page(1);
            let part = |lba| scripted::at(lba, &page);
            stage.device.busy.set(true);
            stage.layer.try_submit(&Request::orderless(S0, &part(10))).expect("room");
            stage.layer.try_submit(&Request::barrier(S0, &part(11))).expect("room");
            stage.layer.try_submit(&Request::ordered(S0, &part(20))).expect("room");
            stage.device.free();
            stage.settle().await;
            same(stage.device.order(), vec![-10, 20])?;
            same(stage.device.seen()[0].blocks, 2)
        })
    });
}

/// E4: requests of two streams stay apart, or one stream's failure and epochs would be the other's.
#[test]
fn e4_streams_never_merge() {
    prove(&[BlockMutant::MergeCrossesStreams], |options| {
        play(ordered_device(), options, None, async |stage| {
            let page = page(1);
            stage.device.busy.set(true);
            stage.layer.try_submit(&Request::ordered(S0, &scripted::at(10, &page))).expect("room");
            stage.layer.try_submit(&Request::ordered(S1, &scripted::at(11, &page))).expect("room");
            stage.device.free();
            stage.settle().await;
            same(stage.device.order(), vec![10, 11])
        })
    });
}

/// E4: a bare barrier is the barrier command if nothing order-preserving is queued, else the last one's flag.
#[test]
fn e4_bare_barriers() {
    play(ordered_device(), apart(BlockOptions::default()), None, async |stage| {
        let page = page(1);
        stage.layer.barrier(S0).expect("room");
        assert_eq!(stage.device.kinds(), vec![CommandKind::Barrier]);
        stage.device.busy.set(true);
        stage.layer.try_submit(&Request::ordered(S0, &scripted::at(1, &page))).expect("room");
        stage.layer.try_submit(&Request::ordered(S0, &scripted::at(2, &page))).expect("room");
        let barrier = stage.layer.barrier(S0).expect("room");
        let second = stage.layer.barrier(S0).expect("room");
        stage.device.free();
        stage.settle().await;
        assert_eq!(stage.device.order(), vec![1, -2]);
        assert_eq!(stage.device.kinds().last(), Some(&CommandKind::Barrier));
        assert_eq!((barrier.poll_transferred(), second.poll_transferred()), (None, None));
        stage.device.answer(2, Ok(()));
        stage.settle().await;
        assert_eq!((barrier.poll_transferred(), second.poll_transferred()), (Some(Ok(())), None));
        stage.device.answer_all();
        stage.settle().await;
        assert_eq!(second.poll_transferred(), Some(Ok(())));
    });
}

/// E4: a lone barrier needs no queue: it goes straight through with its own flag.
#[test]
fn e4_a_lone_barrier_goes_straight_through() {
    play(ordered_device(), BlockOptions::default(), None, async |stage| {
        stage.device.instant.set(true);
        let page = page(1);
        for lba in 1..100 {
            let ticket =
                stage.layer.try_submit(&Request::barrier(S0, &scripted::at(lba, &page))).expect("room");
            assert_eq!(ticket.poll_transferred(), Some(Ok(())));
        }
        assert_eq!(stage.device.order(), (1..100).map(|lba| -lba).collect::<Vec<i64>>());
        let stats = stage.layer.stats();
        assert_eq!((stats.direct, stats.queued, stats.reassigned), (99, 0, 0));
    });
}

/// E5: barriers follow each other without a transfer in between, with ordered priority.
#[test]
fn e5_dispatch_waits_for_acceptance_only() {
    prove(&[BlockMutant::WaitsForTransfer, BlockMutant::SimplePriority], |options| {
        play(ordered_device(), options, None, async |stage| {
            let page = page(1);
            for lba in 1..=5 {
                stage.layer.try_submit(&Request::barrier(S0, &scripted::at(lba * 10, &page))).expect("room");
            }
            stage.settle().await;
            same(stage.device.order(), vec![-10, -20, -30, -40, -50])?;
            same(stage.device.seen().iter().all(|seen| seen.ordered), true)?;
            same(stage.layer.stats().transfer_waits, 0)
        })
    });
}

/// E5: without ordered service a barrier follows its epoch's transfer, and the next epoch the barrier's.
#[test]
fn e5_without_ordered_service_the_host_waits_for_transfers() {
    prove(&[BlockMutant::BarrierRunsAhead], |options| {
        play(unordered_device(), options, None, async |stage| {
            let page = page(1);
            let part = |lba| scripted::at(lba, &page);
            stage.layer.try_submit(&Request::ordered(S0, &part(10))).expect("room");
            stage.layer.try_submit(&Request::barrier(S0, &part(20))).expect("room");
            stage.layer.try_submit(&Request::ordered(S0, &part(30))).expect("room");
            stage.settle().await;
            same(stage.device.order(), vec![10])?;
            stage.device.answer(10, Ok(()));
            stage.settle().await;
            same(stage.device.order(), vec![10, -20])?;
            stage.device.answer(20, Ok(()));
            stage.settle().await;
            same(stage.device.order(), vec![10, -20, 30])
        })
    });
}

/// E5: order-preserving requests wait behind a refused one; orderless ones pass it; the device is asked again
/// after 3 ms, and no sooner.
#[test]
fn e5_order_preserving_requests_wait_behind_a_refused_one() {
    prove(&[BlockMutant::RefusedOvertaken], |options| {
        play(ordered_device(), apart(options), None, async |stage| {
            let page = page(1);
            let part = |lba| scripted::at(lba, &page);
            stage.device.refuse.set(Some((1, 2)));
            stage.layer.try_submit(&Request::ordered(S0, &part(1))).expect("room");
            stage.layer.try_submit(&Request::ordered(S0, &part(2))).expect("room");
            stage.layer.try_submit(&Request::orderless(S0, &part(3))).expect("room");
            stage.sleep_ms(20).await;
            same(stage.device.order(), vec![3, 1, 2])?;
            same(stage.device.seen()[1].at_ms, 6)?;
            same(stage.device.attempts.get(), 5)
        })
    });
}

/// E5: the host counts slots, does not ask a full device, and dispatches on each completion.
#[test]
fn e5_the_host_counts_slots() {
    let capabilities = Capabilities { queue_depth: 2, ..ordered_device() };
    play(capabilities, apart(BlockOptions::default()), None, async |stage| {
        let page = page(1);
        for lba in 1..=4 {
            stage.layer.try_submit(&Request::ordered(S0, &scripted::at(lba, &page))).expect("room");
        }
        stage.sleep_ms(10).await;
        assert_eq!((stage.device.order(), stage.device.attempts.get()), (vec![1, 2], 2));
        stage.device.answer(2, Ok(()));
        stage.settle().await;
        assert_eq!((stage.device.order(), stage.device.attempts.get()), (vec![1, 2, 3], 3));
    });
}

/// E6: under legacy dispatch an epoch is transferred and flushed before the next one goes.
#[test]
fn e6_legacy_barriers_transfer_and_flush() {
    prove(&[BlockMutant::FlushForgotten], |options| {
        let options = BlockOptions { dispatch: Dispatch::Legacy, ..apart(options) };
        play(Capabilities::legacy(32, 64, 512), options, None, async |stage| {
            let page = page(1);
            let part = |lba| scripted::at(lba, &page);
            stage.layer.try_submit(&Request::ordered(S0, &part(1))).expect("room");
            stage.layer.try_submit(&Request::barrier(S0, &part(2))).expect("room");
            stage.layer.try_submit(&Request::ordered(S0, &part(3))).expect("room");
            stage.settle().await;
            same(stage.device.order(), vec![1, 2])?;
            stage.device.answer_all();
            stage.settle().await;
            same(stage.device.kinds()[2..].to_vec(), vec![CommandKind::Flush])?;
            stage.device.answer_all();
            stage.settle().await;
            same(stage.device.order(), vec![1, 2, 3])
        })
    });
}

/// E6: a pre-flush is a flush before the write, FUA a flush behind it, where the device has neither.
#[test]
fn e6_preflush_and_fua_are_emulated() {
    let options = BlockOptions { dispatch: Dispatch::Legacy, ..BlockOptions::default() };
    play(Capabilities::legacy(32, 64, 512), options, None, async |stage| {
        let page = page(1);
        let parts = scripted::at(1, &page);
        let request = Request { fua: true, preflush: true, ..Request::orderless(S0, &parts) };
        let ticket = stage.layer.try_submit(&request).expect("room");
        let expected = [CommandKind::Flush, CommandKind::Write, CommandKind::Flush];
        for step in 1..=3 {
            stage.settle().await;
            assert_eq!(stage.device.kinds(), expected[..step]);
            assert_eq!(ticket.poll_transferred(), None);
            stage.device.answer_all();
        }
        stage.settle().await;
        assert_eq!(ticket.poll_transferred(), Some(Ok(())));
        assert_eq!(ticket.durable().await, Ok(()));
    });
}

/// E6: order-preserving dispatch is refused, with the reason, on a device that has no barriers.
#[test]
fn e6_no_barriers_no_order_preserving_dispatch() {
    let runtime = weir_runtime::Runtime::simulated(weir_runtime::Simulation::default());
    let disk = weir_storage::AdversaryDisk::new(&runtime.handle(), weir_storage::AdversaryOptions::default());
    let layer = weir_block::BlockLayer::new(&runtime.handle(), disk, BlockOptions::default());
    assert_eq!(layer.err(), Some(BlockError::NoBarriers));
}

/// E9: a flush behind writes waits for those in flight and for those in the queue, and lets other commands pass.
#[test]
fn e9_a_flush_behind_writes_waits_for_them_alone() {
    use CommandKind::{Flush, Read, Write};
    prove(&[BlockMutant::FlushOvertakes], |options| {
        let options = BlockOptions { dispatch: Dispatch::Legacy, ..options };
        play(Capabilities::legacy(8, 8, 64), options, None, async |stage| {
            let page = page(1);
            let part = |lba| scripted::at(lba, &page);
            stage.layer.try_submit(&Request::orderless(S0, &part(1))).expect("room");
            stage.device.busy.set(true);
            stage.layer.try_submit(&Request::orderless(S0, &part(10))).expect("room");
            let flushed = stage.layer.flush_behind_writes().expect("room");
            stage.device.free();
            stage.settle().await;
            // One that comes later is not waited for.
            stage.layer.try_submit(&Request::orderless(S0, &part(20))).expect("room");
            stage.settle().await;
            same(stage.device.kinds(), vec![Write, Write, Write])?;
            stage.device.answer(1, Ok(()));
            stage.layer.read(Extent::new(Lba(40), 1)).expect("room");
            stage.settle().await;
            same(stage.device.kinds(), vec![Write, Write, Write, Read])?;
            // A write that has failed is not waited for either: its own ticket says so.
            stage.device.answer(10, Err(io_error()));
            stage.settle().await;
            same(stage.device.kinds(), vec![Write, Write, Write, Read, Flush])?;
            same(flushed.poll_transferred(), None)
        })
    });
}

/// E7: a queued orderless write that a barrier call covers is of the epoch: it leaves no later than the barrier,
/// though the elevator likes it least.
#[test]
fn e7_queued_writes_are_promoted() {
    prove(&[BlockMutant::NoPromotion], |options| {
        play(ordered_device(), apart(options), Listed::of(&[2, 3, 1]), async |stage| {
            let page = page(1);
            let part = |lba| scripted::at(lba, &page);
            stage.device.busy.set(true);
            let written = stage.layer.try_submit(&Request::orderless(S0, &part(1))).expect("room");
            let promotion = stage.layer.promote(S0, &[Extent::new(Lba(1), 1)]);
            stage.layer.try_submit(&Request::barrier(S0, &part(2))).expect("room");
            stage.layer.try_submit(&Request::ordered(S0, &part(3))).expect("room");
            stage.device.free();
            stage.settle().await;
            same(stage.device.order(), vec![1, -2, 3])?;
            same((promotion.queued, promotion.in_flight, promotion.tickets.len()), (1, 0, 1))?;
            stage.device.answer_all();
            stage.settle().await;
            same(written.poll_transferred(), Some(Ok(())))
        })
    });
}

/// E7: without ordered service the barrier waits for a write that the device had accepted already.
#[test]
fn e7_writes_in_flight_are_waited_for_without_ordered_service() {
    prove(&[BlockMutant::NoPromotion], |options| {
        play(unordered_device(), options, None, async |stage| {
            let page = page(1);
            let part = |lba| scripted::at(lba, &page);
            stage.layer.try_submit(&Request::orderless(S0, &part(10))).expect("room");
            stage.layer.promote(S0, &[Extent::new(Lba(10), 1)]);
            stage.layer.try_submit(&Request::barrier(S0, &part(20))).expect("room");
            stage.settle().await;
            same(stage.device.order(), vec![10])?;
            stage.device.answer(10, Ok(()));
            stage.settle().await;
            same(stage.device.order(), vec![10, -20])
        })
    });
}

/// E7: a request that entered a closed queue because it had waited long enough goes back to its place in issue
/// order when it is promoted: before the barrier that ends its epoch.
#[test]
fn e7_a_promoted_request_keeps_its_place() {
    play(unordered_device(), apart(BlockOptions::default()), None, async |stage| {
        let page = page(1);
        let part = |lba| scripted::at(lba, &page);
        let (layer, device) = (&stage.layer, &stage.device);
        layer.try_submit(&Request::ordered(S0, &part(10))).expect("room");
        layer.try_submit(&Request::barrier(S0, &part(20))).expect("room");
        layer.try_submit(&Request::orderless(S0, &part(30))).expect("room");
        layer.barrier(S0).expect("room");
        layer.try_submit(&Request::ordered(S0, &part(40))).expect("room");
        device.refuse.set(Some((30, 1)));
        stage.sleep_ms(4).await;
        assert_eq!(layer.promote(S0, &[Extent::new(Lba(30), 1)]).queued, 1);
        for lba in [10, 20, 30] {
            device.answer(lba, Ok(()));
            stage.settle().await;
        }
        assert_eq!(device.order(), vec![10, -20, -30, 40]);
    });
}

/// S5: after a failed order-preserving write nothing order-preserving of the stream goes on, until reset.
#[test]
fn s5_a_failed_stream_stops() {
    prove(&[BlockMutant::FailureIgnored], |options| {
        let capabilities = Capabilities { queue_depth: 3, ..ordered_device() };
        play(capabilities, apart(options), None, async |stage| {
            let page = page(1);
            let part = |lba| scripted::at(lba, &page);
            let (layer, device) = (&stage.layer, &stage.device);
            let first = layer.try_submit(&Request::barrier(S0, &part(1))).expect("room");
            let in_flight = layer.try_submit(&Request::barrier(S0, &part(2))).expect("room");
            let other = layer.try_submit(&Request::barrier(S1, &part(3))).expect("room");
            let queued = layer.try_submit(&Request::barrier(S0, &part(4))).expect("room");
            let held = layer.try_submit(&Request::ordered(S0, &part(5))).expect("room");
            let barrier = layer.barrier(S0).expect("room");
            let orderless = layer.try_submit(&Request::orderless(S0, &part(6))).expect("room");
            device.answer(1, Err(io_error()));
            stage.settle().await;
            same(first.poll_transferred(), Some(Err(io_error())))?;
            for ticket in [&in_flight, &queued, &held, &barrier] {
                same(ticket.poll_transferred(), Some(Err(StorageError::Aborted)))?;
            }
            same(device.order(), vec![-1, -2, -3, 6])?;
            let aborted = Some(Refused::Rejected(Rejected::Failed(StorageError::Aborted)));
            same(layer.try_submit(&Request::ordered(S0, &part(7))).err(), aborted)?;
            same(layer.barrier(S0).err(), aborted)?;
            device.answer_all();
            stage.settle().await;
            same((other.poll_transferred(), orderless.poll_transferred()), (Some(Ok(())), Some(Ok(()))))?;
            layer.reset(S0);
            layer.try_submit(&Request::barrier(S0, &part(8))).map_err(|refused| refused.to_string())?;
            same(device.order(), vec![-1, -2, -3, 6, -8])
        })
    });
}

/// S6: overlapping requests are not in flight together, and leave in issue order whatever the elevator
/// prefers; reads too. A barrier that the device services in its place separates them.
#[test]
fn s6_overlaps_keep_their_order() {
    prove(&[BlockMutant::OverlapsReordered], |options| {
        play(ordered_device(), apart(options), Listed::of(&[4, 5]), async |stage| {
            let pages = [1; 2 * 4096];
            let (layer, device) = (&stage.layer, &stage.device);
            device.busy.set(true);
            layer.try_submit(&Request::orderless(S0, &scripted::at(5, &pages))).expect("room");
            layer.try_submit(&Request::orderless(S0, &scripted::at(4, &pages))).expect("room");
            layer.read(Extent::new(Lba(5), 1)).expect("room");
            device.free();
            let mut seen = Vec::new();
            for _ in 0..3 {
                stage.settle().await;
                seen.extend(device.seen().last().map(|seen| (seen.kind, seen.lba)));
                device.answer_all();
            }
            same(seen, vec![(CommandKind::Write, 5), (CommandKind::Write, 4), (CommandKind::Read, 5)])
        })
    });
}

#[test]
fn s6_a_serviced_barrier_separates_overlaps() {
    for (capabilities, expected) in [(ordered_device(), vec![-1, -1]), (unordered_device(), vec![-1])] {
        let order = play(capabilities, BlockOptions::default(), None, async |stage| {
            let page = page(1);
            stage.layer.try_submit(&Request::barrier(S0, &scripted::at(1, &page))).expect("room");
            stage.layer.try_submit(&Request::barrier(S0, &scripted::at(1, &page))).expect("room");
            stage.settle().await;
            stage.device.order()
        });
        assert_eq!(order, expected);
    }
}

/// S6: the caller may change its page at once, also when the request had to be queued.
#[test]
fn s6_data_is_as_of_submission() {
    play(ordered_device(), apart(BlockOptions::default()), None, async |stage| {
        stage.device.busy.set(true);
        let mut page = page(1);
        for lba in [1, 2] {
            stage.layer.try_submit(&Request::ordered(S0, &scripted::at(lba, &page))).expect("room");
            page.fill(9);
        }
        stage.device.free();
        stage.settle().await;
        let bytes: Vec<u8> = stage.device.seen().iter().map(|seen| seen.byte).collect();
        assert_eq!(bytes, vec![1, 9]);
    });
}

/// The queue is bounded, says so, and says when there is space.
#[test]
fn the_queue_is_bounded() {
    let options = BlockOptions { queue_requests: 3, ..apart(BlockOptions::default()) };
    play(ordered_device(), options, None, async |stage| {
        let page = page(1);
        let part = |lba| scripted::at(lba, &page);
        let (layer, device) = (&stage.layer, &stage.device);
        device.busy.set(true);
        for lba in 1..=3 {
            layer.try_submit(&Request::barrier(S0, &part(lba))).expect("room");
        }
        assert_eq!(layer.try_submit(&Request::orderless(S1, &part(4))).err(), Some(Refused::Full));
        for _ in 0..3 {
            layer.flush().expect("flushes have room of their own");
            layer.barrier(S1).expect("barriers too");
        }
        assert_eq!(layer.flush().err(), Some(Refused::Full));
        let parts = part(4);
        let request = Request::orderless(S1, &parts);
        let late = layer.submit(&request);
        let freed = async {
            stage.handle.sleep(Duration::from_millis(1)).await;
            device.free();
        };
        let (late, ()) = futures_util::join!(late, freed);
        late.expect("space");
        stage.settle().await;
        assert_eq!(device.order(), vec![-1, -2, -3, 4]);
    });
}

/// A caller that waits for space is woken when there is some to be used, and not for every place that is free.
#[test]
fn a_full_queue_wakes_for_a_batch() {
    for (queue_requests, batch) in [(8, 2), (64, 16), (1000, 32)] {
        let options = BlockOptions { queue_requests, ..apart(BlockOptions::default()) };
        play(ordered_device(), options, None, async |stage| {
            let page = page(1);
            let (layer, device) = (&stage.layer, &stage.device);
            device.busy.set(true);
            for lba in 1..=queue_requests as u64 {
                layer.try_submit(&Request::barrier(S0, &scripted::at(lba, &page))).expect("room");
            }
            for (refused, woken) in [(batch, false), (batch + 1, true)] {
                let waiter = layer.space().listen();
                device.refuse.set(Some((refused, u32::MAX)));
                device.free();
                stage.settle().await;
                assert_eq!(waiter.now_or_never().is_some(), woken, "{refused} of {queue_requests}");
            }
        });
    }
}

/// Fewer places than a batch are told of too, if there will be no more.
#[test]
fn a_queue_that_is_empty_wakes() {
    play(ordered_device(), apart(BlockOptions::default()), None, async |stage| {
        let page = page(1);
        let (layer, device) = (&stage.layer, &stage.device);
        device.busy.set(true);
        layer.try_submit(&Request::ordered(S0, &scripted::at(1, &page))).expect("room");
        while layer.barrier(S0).is_ok() {}
        let freed = async {
            stage.handle.sleep(Duration::from_millis(1)).await;
            device.free();
        };
        let (late, ()) = futures_util::join!(layer.when_space(|layer| layer.barrier(S0)), freed);
        late.expect("space");
    });
}

/// What the device cannot do is said at submission, queued or not.
#[test]
fn mistakes_are_refused_at_submission() {
    play(ordered_device(), BlockOptions::default(), None, async |stage| {
        let page = page(1);
        for busy in [false, true] {
            stage.device.busy.set(busy);
            let before = stage.layer.stats().queued;
            let far = scripted::at(1 << 20, &page);
            let reliable = scripted::at(1, &page);
            let reliable = Request { reliable: true, ..Request::barrier(S0, &reliable) };
            for request in [Request::barrier(S0, &far), reliable] {
                let refused = stage.layer.try_submit(&request).err();
                assert!(matches!(refused, Some(Refused::Rejected(_))), "{refused:?}");
            }
            assert!(stage.layer.read(Extent::new(Lba(0), 0)).is_err());
            assert!(stage.layer.discard(S0, &[Extent::new(Lba(0), 1)]).is_err());
            assert_eq!(stage.layer.stats().queued, before);
            if !busy {
                continue;
            }
            stage.layer.try_submit(&Request::barrier(S0, &scripted::at(1, &page))).expect("a good one");
        }
        assert_eq!(stage.layer.stats().barrier_writes, 0);
    });
}

/// On a prefix device the order of receipt is the order: no priority, no waiting.
#[test]
fn prefix_devices_need_no_priority() {
    let capabilities = Capabilities { ordering: Ordering::Prefix, ..unordered_device() };
    play(capabilities, BlockOptions::default(), None, async |stage| {
        let page = page(1);
        for lba in [10, 20, 30] {
            stage.layer.try_submit(&Request::barrier(S0, &scripted::at(lba, &page))).expect("room");
        }
        assert_eq!(stage.device.order(), vec![-10, -20, -30]);
        assert!(stage.device.seen().iter().all(|seen| !seen.ordered));
    });
}
