//! CrashMonkey's choice of what is left: epochs, permutations, and requests that write one block.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use weir_crash::{LoggedStorage, Overlaps, Permutation, Permuter, Request};
use weir_runtime::{Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Command, Lba, Ordering, Part, Write,
    WriteFlags, submit_when_free,
};

const PLAIN: WriteFlags = WriteFlags { barrier: false, fua: false, preflush: false, reliable: false };

/// A write of so many blocks from a block on, all of whose bytes are equal.
type Written = (u64, usize, WriteFlags);

/// The log of writes, the n-th of which writes n; with a flush at the end.
fn log_of(writes: &[Written]) -> Vec<Request> {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let capabilities = Capabilities {
        fua: true,
        preflush: true,
        ordering: Ordering::Barrier,
        ..Capabilities::legacy(32, 32, BLOCK_BYTES as u32)
    };
    let options = AdversaryOptions { blocks: 64, capabilities, ..AdversaryOptions::default() };
    let log = Rc::new(RefCell::new(Vec::new()));
    let work = async {
        let storage = LoggedStorage::before(AdversaryDisk::new(&handle, options));
        let sink = Rc::clone(&log);
        storage.send_to(move |request| sink.borrow_mut().push(request));
        for (byte, (start, blocks, flags)) in (1..).zip(writes) {
            let bytes = vec![byte; blocks * BLOCK_BYTES];
            let parts = [Part::bytes(Lba(*start), &bytes)];
            let write = Write { flags: *flags, ..Write::new(&parts) };
            submit_when_free(&*storage, Command::Write(write)).await.unwrap().transferred().await.unwrap();
        }
        submit_when_free(&*storage, Command::Flush).await.unwrap().transferred().await.unwrap();
        storage.stop();
        submit_when_free(&*storage, Command::Flush).await.unwrap();
    };
    runtime.block_on(work).unwrap();
    log.take()
}

fn permuter(log: &[Request], overlaps: Overlaps, seed: u64) -> Permuter {
    let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
    Permuter::new(log, overlaps, runtime.handle().random("permutations"))
}

/// The blocks that a permutation leaves, by their first bytes.
fn left(log: &[Request], permutation: &Permutation, blocks: usize) -> Vec<u8> {
    let mut disk = vec![0; blocks * BLOCK_BYTES];
    permutation.apply(log, &mut disk);
    disk.chunks(BLOCK_BYTES).map(|block| block[0]).collect()
}

/// Each permutation that has request `later` has `earlier`, too.
fn keeps_order(log: &[Request], [earlier, later]: [usize; 2]) -> bool {
    let has = |permutation: &Permutation, nth: usize| permutation.requests.contains(&nth);
    permuter(log, Overlaps::AsDrawn, 1).take(500).all(|left| !has(&left, later) || has(&left, earlier))
}

#[test]
fn a_command_of_several_blocks_is_as_many_requests_of_which_the_last_has_the_flags() {
    let log = log_of(&[(4, 3, WriteFlags { barrier: true, ..PLAIN })]);
    let blocks: Vec<_> = log.iter().map(|request| request.block.as_ref().map(|(block, _)| block.0)).collect();
    assert_eq!(blocks, [Some(4), Some(5), Some(6), None]);
    let ends: Vec<_> = log.iter().map(|request| request.ends_epoch).collect();
    assert_eq!(ends, [false, false, true, true]);
}

/// FUA, a barrier and a flush end an epoch; and if they did not, it would be seen.
#[test]
fn what_ends_an_epoch_keeps_order() {
    let after = |flags| log_of(&[(1, 1, PLAIN), (2, 1, flags), (3, 1, PLAIN)]);
    for flags in [WriteFlags { fua: true, ..PLAIN }, WriteFlags { barrier: true, ..PLAIN }] {
        let mut log = after(flags);
        assert!(keeps_order(&log, [0, 1]) && keeps_order(&log, [1, 2]), "{flags:?}");
        log.iter_mut().for_each(|request| request.ends_epoch = false);
        assert!(!keeps_order(&log, [0, 1]) && !keeps_order(&log, [1, 2]), "{flags:?}");
    }
    // The flush before a write is a request by itself, and the write is not covered.
    let log = after(WriteFlags { preflush: true, ..PLAIN });
    assert_eq!(log[1], Request::END);
    assert!(keeps_order(&log, [0, 2]) && !keeps_order(&log, [2, 3]));
    let log = after(WriteFlags { preflush: true, fua: true, ..PLAIN });
    assert!(log.len() == 4 && keeps_order(&log, [0, 1]) && keeps_order(&log, [1, 2]));
}

#[test]
fn no_permutation_comes_twice_and_all_come() {
    let log = log_of(&[(1, 3, PLAIN)]);
    // Those of no more than three requests, without what ends the epoch; and with it, all three.
    for (overlaps, all) in [(Overlaps::InOrder, 7 + 1), (Overlaps::AsDrawn, 3 + 6 + 6 + 6)] {
        let permutations: Vec<_> = permuter(&log, overlaps, 1).map(|left| left.requests).collect();
        let different: BTreeSet<_> = permutations.iter().cloned().collect();
        assert_eq!((permutations.len(), different.len()), (all, all), "{overlaps}");
    }
}

/// Of two writes to one block the older may win, in complete epochs too; not where they keep their order.
#[test]
fn overlaps_are_permuted_or_keep_their_order() {
    let log =
        log_of(&[(1, 1, PLAIN), (1, 1, PLAIN), (2, 1, WriteFlags { barrier: true, ..PLAIN }), (3, 1, PLAIN)]);
    let wins = |overlaps, complete: bool| -> BTreeSet<u8> {
        let of = permuter(&log, overlaps, 1).take(200).filter(|left| (left.epoch > 0) == complete);
        of.filter(|left| [0, 1].iter().all(|nth| left.requests.contains(nth)))
            .map(|permutation| left(&log, &permutation, 4)[1])
            .collect()
    };
    for complete in [false, true] {
        assert_eq!(wins(Overlaps::AsDrawn, complete), BTreeSet::from([1, 2]), "{complete}");
        assert_eq!(wins(Overlaps::InOrder, complete), BTreeSet::from([2]), "{complete}");
    }
}

#[test]
fn a_seed_and_a_number_give_the_same_state_again() {
    let log = log_of(&[(1, 9, PLAIN), (4, 9, PLAIN), (2, 3, PLAIN)]);
    for overlaps in Overlaps::ALL {
        let nth = |seed, nth| permuter(&log, overlaps, seed).nth(nth).unwrap();
        let all: Vec<_> = permuter(&log, overlaps, 7).take(50).collect();
        for number in [0, 17, 49] {
            assert_eq!(nth(7, number), all[number], "{overlaps}");
            assert_eq!(left(&log, &nth(7, number), 16), left(&log, &all[number], 16), "{overlaps}");
        }
        assert_ne!(nth(8, 17), all[17], "{overlaps}");
    }
}

#[test]
fn a_log_is_read_as_it_was_written() {
    let log = log_of(&[(1, 2, PLAIN), (63, 1, WriteFlags { fua: true, ..PLAIN })]);
    let mut records = Vec::new();
    log.iter().for_each(|request| request.write_to(&mut records).unwrap());
    let bytes: u64 = log.iter().map(Request::record_bytes).sum();
    assert_eq!(records.len() as u64, bytes);
    let read = |mut records: &[u8]| {
        let next = || Request::read_from(&mut records).unwrap();
        std::iter::from_fn(next).collect::<Vec<_>>()
    };
    assert_eq!(read(&records), log);
    // What is cut off is no request.
    assert_eq!(read(&records[..records.len() - 20]), log[..2]);
    assert_eq!(
        Permuter::new(&[], Overlaps::AsDrawn, Runtime::simulated(Simulation::default()).handle().random(""))
            .next(),
        None
    );
}
