//! Pages of slabs: taken, given back, taken again, and from other threads.

use super::*;

/// A pool of its own, as threads share theirs with other tests.
fn pages(pool: &mut Pool, count: usize) -> Vec<usize> {
    (0..count).map(|_| pool.take(PAGE).0).collect()
}

fn put(pool: &mut Pool, pages: impl IntoIterator<Item = usize>) {
    pages.into_iter().for_each(|address| pool.put(address, PAGE));
}

#[test]
fn a_page_takes_a_page_and_what_is_free_is_used_first() {
    let mut pool = Pool::new();
    let taken = pages(&mut pool, 2 * SLAB_PAGES);
    assert_eq!((pool.slabs.len(), pool.held()), (2, 2 * SLAB));
    let different: BTreeSet<_> = taken.iter().copied().collect();
    assert_eq!(different.len(), taken.len());
    // Every third one: nothing else than these is taken next.
    let third: Vec<_> = taken.iter().copied().step_by(3).collect();
    put(&mut pool, third.iter().copied());
    let again: BTreeSet<_> = pages(&mut pool, third.len()).into_iter().collect();
    assert_eq!(again, third.into_iter().collect());
    assert_eq!(pool.held(), 2 * SLAB);
    put(&mut pool, taken);
}

#[test]
fn what_nobody_needed_for_a_while_is_given_back_whatever_lies_beside_it() {
    let mut pool = Pool::new();
    let taken = pages(&mut pool, 4 * SLAB_PAGES);
    let (kept, freed): (Vec<_>, Vec<_>) = taken.into_iter().partition(|page| (page / PAGE).is_multiple_of(8));
    put(&mut pool, freed);
    pool.release_unused();
    assert_eq!(pool.held(), 4 * SLAB, "it was needed a moment ago");
    pool.release_unused();
    assert_eq!(pool.held(), kept.len() * PAGE);
    // What is given back is zero when it comes again, and the slabs that are free go as a whole.
    let (address, is_fresh) = pool.take(PAGE);
    assert!(is_fresh && !kept.contains(&address));
    put(&mut pool, kept.into_iter().chain([address]));
    (0..2).for_each(|_| pool.release_unused());
    assert_eq!((pool.held(), pool.slabs.len()), (0, 0));
}

#[test]
fn what_is_used_again_and_again_stays() {
    let mut pool = Pool::new();
    for _ in 0..10 {
        let taken = pages(&mut pool, 100);
        put(&mut pool, taken);
        let long = pool.take(100_000).0;
        pool.put(long, 100_000);
        pool.release_unused();
        assert_eq!(pool.held(), 100 * PAGE + 131_072);
    }
    (0..2).for_each(|_| pool.release_unused());
    assert_eq!(pool.held(), 0);
}

#[test]
fn of_longer_pieces_a_bounded_part_is_kept() {
    let mut pool = Pool::new();
    let lengths = [PAGE + 1, 3 * PAGE, SLAB, SLAB + 1, 5 << 20];
    let taken: Vec<_> = (0..100).map(|i| lengths[i % 5]).map(|bytes| (pool.take(bytes).0, bytes)).collect();
    assert_eq!(pool.held(), 0, "what is in use is not counted");
    taken.into_iter().for_each(|(address, bytes)| pool.put(address, bytes));
    assert!(pool.held() <= LONG_MAX && pool.held() > LONG_MAX / 2, "{}", pool.held());
    (0..2).for_each(|_| pool.release_unused());
    assert_eq!(pool.held(), 0);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "threads share what is tested")]
#[cfg_attr(miri, ignore = "it looks at each of too many bytes")]
fn pieces_of_all_threads_are_zero_and_their_own() {
    let fill = |mark: u8| {
        let mut kept: Vec<Piece> = Vec::new();
        for round in 0..3000_usize {
            let mut piece = Piece::zeroed([1, PAGE, PAGE + 1, 70_000][round % 4]);
            assert!(piece.bytes().iter().all(|byte| *byte == 0));
            piece.bytes_mut().fill(mark);
            kept.push(piece);
            if kept.len() > 50 {
                let old = kept.swap_remove(round % 50);
                assert!(old.bytes().iter().all(|byte| *byte == mark));
            }
            if round % 100 == 0 {
                release_unused(round % 1000 == 0);
            }
        }
        kept
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (1..5).map(|mark| (mark, scope.spawn(move || fill(mark)))).collect();
        for (mark, thread) in threads {
            // Freed by another thread than the one that took them.
            let kept = thread.join().expect("no assertion failed");
            assert!(kept.iter().all(|piece| piece.bytes().iter().all(|byte| *byte == mark)));
        }
    });
}
