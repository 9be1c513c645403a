//! Work on several threads at once: for runs that share nothing, each with a runtime of its own.

use std::panic::resume_unwind;
use std::thread;

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

#[cfg(test)]
mod tests {
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
}
