//! Rule E8, the ordered plug: on a device that follows a script, and on the worst legal disk under power cuts, each with
//! the mutants that drop it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::scripted::{PackedWrite, S0, Stage, at, io_error, page, play, prove, same};
use weir_block::{BlockLayer, BlockMutant, BlockOptions, Dispatch, ElevatorKind, OrderedPlug, Request};
use weir_runtime::{Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Feature, Invalid, Lba, Part, Rejected,
    StorageError, Ticket, WriteFlags,
};

const PLAIN: WriteFlags = WriteFlags { barrier: false, fua: false, preflush: false, reliable: false };
const FUA: WriteFlags = WriteFlags { fua: true, ..PLAIN };
const RELIABLE: WriteFlags = WriteFlags { reliable: true, ..PLAIN };

/// Three blocks a command at most.
fn packing_device() -> Capabilities {
    Capabilities { packed: true, fua: true, reliable: true, ..Capabilities::legacy(4, 3, 512) }
}

fn legacy(options: BlockOptions) -> BlockOptions {
    BlockOptions { dispatch: Dispatch::Legacy, elevator: ElevatorKind::Deadline, ..options }
}

/// Finishes a plug of one-block writes; none is a bare barrier.
async fn finish(layer: &BlockLayer, writes: &[Option<(u64, WriteFlags)>]) -> Result<Ticket, Rejected> {
    let page = page(1);
    let mut plug = OrderedPlug::start(layer, S0)?;
    for write in writes {
        match write {
            Some((lba, flags)) => plug.write(Part::bytes(Lba(*lba), &page), *flags),
            None => plug.put_barrier(),
        }
    }
    plug.finish().await
}

/// What the device was given: of each command, first block, blocks and FUA of its writes.
fn packed(stage: &Stage) -> Vec<Vec<(u64, u64, bool)>> {
    let write = |write: &PackedWrite| (write.lba, write.blocks, write.fua);
    stage.device.seen().iter().map(|seen| seen.packed.iter().map(write).collect()).collect()
}

/// The elevator prefers low blocks, and a write that waits lies between those of the plug. It goes first, and not between.
#[test]
fn e8_a_plug_leaves_as_one_packed_command_in_order() {
    prove(&[BlockMutant::PlugReordered], |options| {
        play(packing_device(), legacy(options), None, async |stage| {
            stage.device.busy.set(true);
            let page = page(2);
            stage.layer.try_submit(&Request::orderless(S0, &at(5, &page))).expect("room");
            let plug = [Some((9, FUA)), None, Some((2, PLAIN)), Some((7, FUA))];
            finish(&stage.layer, &plug).await.expect("it is taken");
            stage.device.free();
            stage.settle().await;
            same(packed(&stage), vec![vec![], vec![(9, 1, true), (2, 1, false), (7, 1, true)]])?;
            same(stage.device.order(), vec![5, 9])
        })
    });
}

#[test]
fn e8_a_mark_keeps_writes_apart() {
    prove(&[BlockMutant::PlugBarrierForgotten], |options| {
        play(packing_device(), legacy(options), None, async |stage| {
            stage.device.instant.set(true);
            finish(&stage.layer, &[Some((4, FUA)), Some((5, FUA)), None, Some((6, FUA))])
                .await
                .expect("it is taken");
            same(packed(&stage), vec![vec![(4, 2, true), (6, 1, true)]])
        })
    });
}

/// Writes become one only where they continue each other, their flags are the same, and neither is reliable.
#[test]
fn writes_of_a_plug_that_differ_stay_apart() {
    play(packing_device(), legacy(BlockOptions::default()), None, async |stage| {
        stage.device.instant.set(true);
        for (first, second) in [((4, FUA), (5, PLAIN)), ((4, FUA), (3, FUA)), ((4, RELIABLE), (5, RELIABLE))]
        {
            finish(&stage.layer, &[Some(first), Some(second)]).await.expect("it is taken");
        }
        let seen = stage.device.seen();
        assert!(seen.len() == 3 && seen.iter().all(|command| command.packed.len() == 2), "{seen:?}");
        assert!(seen[2].packed.iter().all(|write| write.reliable));
    });
}

#[test]
fn e8_a_plug_that_is_too_large_waits_between_its_commands() {
    prove(&[BlockMutant::PlugRunsAhead], |options| {
        play(packing_device(), legacy(options), None, async |stage| {
            let done = Rc::new(Cell::new(false));
            let (layer, is_done) = (Rc::clone(&stage.layer), Rc::clone(&done));
            drop(stage.handle.spawn(async move {
                let log: Vec<_> = (10..14).map(|lba| Some((lba, FUA))).collect();
                let plug = [&log[..], &[None, Some((14, FUA))]].concat();
                is_done.set(finish(&layer, &plug).await.is_ok());
            }));
            stage.settle().await;
            let (first, second) = (vec![(10, 3, true)], vec![(13, 1, true), (14, 1, true)]);
            same((packed(&stage), done.get()), (vec![first.clone()], false))?;
            stage.device.answer(10, Ok(()));
            stage.settle().await;
            // The last command is with the device, and the caller has its ticket.
            same((packed(&stage), done.get()), (vec![first, second], true))
        })
    });
}

#[test]
fn what_follows_a_command_that_failed_is_not_submitted() {
    play(packing_device(), legacy(BlockOptions::default()), None, async |stage| {
        let failed = Rc::new(Cell::new(None));
        let (layer, told) = (Rc::clone(&stage.layer), Rc::clone(&failed));
        drop(stage.handle.spawn(async move {
            let plug: Vec<_> = (10..14).map(|lba| Some((lba, FUA))).collect();
            told.set(finish(&layer, &plug).await.err());
        }));
        stage.settle().await;
        stage.device.answer(10, Err(io_error()));
        stage.settle().await;
        assert_eq!((packed(&stage).len(), failed.get()), (1, Some(Rejected::Failed(io_error()))));
    });
}

#[test]
fn a_plug_is_refused_where_the_device_cannot_keep_it() {
    let refused = |capabilities: Capabilities, plug: &[Option<(u64, WriteFlags)>]| {
        play(capabilities, legacy(BlockOptions::default()), None, async |stage| {
            let answer = finish(&stage.layer, plug).await.err();
            assert_eq!(stage.device.attempts.get(), 0, "nothing is submitted");
            answer
        })
    };
    let able = packing_device();
    let unable = Capabilities { packed: false, ..able };
    assert_eq!(refused(unable, &[]), Some(Rejected::Unsupported(Feature::Packed)));
    let unable = Capabilities { fua: false, ..able };
    assert_eq!(refused(unable, &[Some((1, FUA))]), Some(Rejected::Unsupported(Feature::Fua)));
    assert_eq!(refused(able, &[]), None);
    // Twice the same block is no matter of a packed write, a part of more than a command is.
    let large = page(1).repeat(4);
    let answer = play(able, legacy(BlockOptions::default()), None, async |stage| {
        let mut plug = OrderedPlug::start(&stage.layer, S0).expect("packed writes");
        plug.write(Part::bytes(Lba(1), &large), FUA);
        plug.finish().await.err()
    });
    assert_eq!(answer, Some(Rejected::Invalid(Invalid::TooLarge { blocks: 4, limit: 3 })));
}

/// After a failed flush no FUA write is acknowledged, packed or not (S5).
#[test]
fn a_plug_is_not_durable_behind_a_failed_flush() {
    play(packing_device(), legacy(BlockOptions::default()), None, async |stage| {
        let flush = stage.layer.flush().expect("room");
        stage.settle().await;
        stage.device.answer(0, Err(io_error()));
        assert_eq!(flush.transferred().await, Err(io_error()));
        let answer = finish(&stage.layer, &[Some((1, FUA))]).await.err();
        assert_eq!(answer, Some(Rejected::Failed(StorageError::Poisoned)));
    });
}

/// Cuts the power at every event of a plug of a log of four blocks, a bare barrier, and a commit block right behind it, all with
/// FUA: how often the commit block was there in part, or its log was not whole.
fn cuts(options: BlockOptions) -> Result<u64, String> {
    let (torn, broken) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Ok(()))));
    for seed in 0..60 {
        let runtime = Runtime::simulated(Simulation { seed, explore: true, cores: None });
        let handle = runtime.handle();
        let capabilities = Capabilities { queue_depth: 4, ..packing_device() };
        let disk = AdversaryDisk::new(
            &handle,
            AdversaryOptions { blocks: 16, capabilities, ..AdversaryOptions::default() },
        );
        let layer = BlockLayer::new(&handle, Rc::clone(&disk) as _, legacy(options)).expect("any device");
        let (torn, broken, random) =
            (Rc::clone(&torn), Rc::clone(&broken), RefCell::new(handle.random("crash states")));
        disk.observe(Box::new(move |disk| {
            let image = disk.crash_states().sample(&mut random.borrow_mut());
            let units = |lba: u64| {
                let bytes = image.read(Lba(lba));
                bytes.chunks(512).filter(|unit| unit.iter().all(|byte| *byte == 1)).count()
            };
            let (log, commit) = ((2..6).map(units).sum::<usize>(), units(6));
            torn.set(torn.get() + u64::from((1..8).contains(&commit)));
            if commit > 0 && log < 4 * BLOCK_BYTES / 512 {
                *broken.borrow_mut() = Err(format!("{commit} sectors of the commit block, {log} of the log"));
            }
        }));
        let log: Vec<_> = (2..6).map(|lba| Some((lba, FUA))).collect();
        let plug = [&log[..], &[None, Some((6, FUA))]].concat();
        let work = async { finish(&layer, &plug).await.expect("it is taken").transferred().await };
        assert_eq!(runtime.block_on(work).expect("no stall"), Ok(()));
    }
    broken.borrow().clone().map(|()| torn.get())
}

#[test]
fn e8_a_power_cut_leaves_the_first_writes_of_a_plug() {
    prove(
        &[BlockMutant::PlugReordered, BlockMutant::PlugBarrierForgotten, BlockMutant::PlugRunsAhead],
        |options| {
            let torn = cuts(options)?;
            assert!(torn > 20, "{torn} states with a part of the commit block");
            Ok(())
        },
    );
}
