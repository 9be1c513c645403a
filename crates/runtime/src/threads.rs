//! Work on several threads at once: for runs that share nothing, each with a runtime of its own.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// Threads that this machine runs at the same time; 1 where it does not say.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "all others ask here; no result may depend on it")]
pub fn cores() -> u64 {
    thread::available_parallelism().map_or(1, |cores| NonZero::get(cores) as u64)
}

/// Calls `work` with 0, 1 and so on below `count`, each on a thread of its own, and returns the results in this order. A
/// panic of one of them is one of the caller.
#[expect(clippy::disallowed_methods, reason = "all others ask here")]
pub fn run_on_threads<T: Send>(count: u64, work: impl Fn(u64) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..count).map(|index| scope.spawn(move || work(index))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// Calls `work` with 0, 1 and so on below `count`, on `threads` threads, at least 1. A thread that has finished a number
/// takes the next one, so the numbers begin in order. Returns the results in order.
///
/// # Errors
/// That of the lowest number that fails, on any number of threads. Numbers that have not begun by then are left out.
pub fn share_among_threads<T: Send, E: Send>(
    threads: u64,
    count: u64,
    work: impl Fn(u64) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let (next, has_failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let shares = run_on_threads(threads.clamp(1, count.max(1)), |_| {
        let mut results = Vec::new();
        while !has_failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            let result = work(number);
            has_failed.fetch_or(result.is_err(), Ordering::Relaxed);
            results.push((number, result));
        }
        results
    });
    let mut results: Vec<_> = shares.into_iter().flatten().collect();
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn results_are_in_the_order_of_their_numbers() {
        assert_eq!(run_on_threads(5, |index| index * index), [0, 1, 4, 9, 16]);
        assert!(run_on_threads(0, |index| index).is_empty());
    }

    #[test]
    #[should_panic(expected = "number 2")]
    fn a_panic_is_passed_on() {
        run_on_threads(3, |index| assert!(index != 2, "number 2"));
    }

    #[test]
    fn shared_results_are_in_the_order_of_their_numbers() {
        for threads in [0, 1, 2, 9] {
            let squares = share_among_threads(threads, 5, |number| Ok::<_, Infallible>(number * number));
            assert_eq!(squares, Ok(vec![0, 1, 4, 9, 16]), "{threads}");
            assert_eq!(share_among_threads(threads, 0, Ok::<_, Infallible>), Ok(Vec::new()), "{threads}");
        }
    }

    /// Each number waits for another one: they are over only if two run at a time.
    #[test]
    fn shared_work_runs_at_the_same_time() {
        let pair = Barrier::new(2);
        let leaders = share_among_threads(2, 6, |_| Ok::<_, Infallible>(pair.wait().is_leader())).unwrap();
        assert_eq!(leaders.iter().filter(|is_leader| **is_leader).count(), 3);
    }

    #[test]
    fn of_shared_work_the_lowest_number_that_fails_is_told() {
        for threads in [1, 2, 4] {
            let begun = AtomicU64::new(0);
            let failed = share_among_threads(threads, 100, |number| {
                begun.fetch_add(1, Ordering::Relaxed);
                if number >= 7 { Err(number) } else { Ok(()) }
            });
            assert_eq!(failed, Err(7), "{threads}");
            assert!(begun.into_inner() <= 7 + threads, "{threads}");
        }
    }
}
