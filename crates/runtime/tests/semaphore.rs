//! The semaphore: fair, and safe under cancellation.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use proptest::prelude::{Strategy, any, prop_oneof, proptest};
use weir_runtime::{Acquire, Permit, Runtime, Semaphore, Simulation};

#[test]
fn requests_are_served_in_order_also_behind_a_large_one() {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let semaphore = Semaphore::new(2);
    let log = Rc::new(RefCell::new(Vec::new()));
    for (name, permits) in [("first", 1), ("large", 2), ("small", 1)] {
        let (handle, semaphore, log) = (handle.clone(), semaphore.clone(), log.clone());
        handle.clone().spawn(async move {
            let _permit = semaphore.acquire(permits).await;
            log.borrow_mut().push((name, handle.now().as_nanos()));
            handle.sleep(Duration::from_nanos(10)).await;
        });
    }
    runtime.block_on(handle.sleep(Duration::from_nanos(100))).unwrap();
    assert_eq!(*log.borrow(), [("first", 0), ("large", 10), ("small", 20)]);
    assert_eq!((semaphore.available(), semaphore.waiting()), (2, 0));
}

#[test]
fn cancelling_a_large_request_lets_the_small_ones_go() {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let semaphore = Semaphore::new(2);
    runtime
        .block_on(async {
            let _held = semaphore.acquire(1).await;
            let waiter = |permits| {
                let semaphore = semaphore.clone();
                handle.spawn(async move { semaphore.acquire(permits).await.permits() })
            };
            let (large, small) = (waiter(2), waiter(1));
            handle.yield_now().await;
            assert!(!small.is_finished());
            large.cancel();
            assert_eq!(small.await, Ok(1));
        })
        .unwrap();
}

#[derive(Clone, Debug)]
enum Step {
    Request(usize),
    Cancel(usize),
    Poll(usize),
    Return(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..4_usize).prop_map(Step::Request),
        any::<usize>().prop_map(Step::Cancel),
        any::<usize>().prop_map(Step::Poll),
        any::<usize>().prop_map(Step::Return),
    ]
}

/// Polls a request; its permit, if it was granted.
fn poll(request: &mut Acquire) -> Option<Permit> {
    match Pin::new(request).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(permit) => Some(permit),
        Poll::Pending => None,
    }
}

proptest! {
    /// No permit is lost or made, whatever is cancelled when; and a request is never granted while an earlier
    /// one still waits.
    #[test]
    fn permits_are_conserved_and_order_is_kept(steps in proptest::collection::vec(step(), 1..60)) {
        const TOTAL: usize = 3;
        let semaphore = Semaphore::new(TOTAL);
        let mut requests: VecDeque<Acquire> = VecDeque::new();
        let mut held: Vec<Permit> = Vec::new();
        for step in steps {
            match step {
                Step::Request(permits) => {
                    let mut request = semaphore.acquire(permits);
                    match poll(&mut request) {
                        Some(permit) => {
                            // Whoever came before has been granted; polling them all must show it.
                            for mut earlier in requests.drain(..) {
                                held.push(poll(&mut earlier).expect("an earlier request was overtaken"));
                            }
                            held.push(permit);
                        }
                        None => requests.push_back(request),
                    }
                }
                Step::Cancel(index) if !requests.is_empty() => {
                    requests.remove(index % requests.len());
                }
                Step::Poll(index) if !requests.is_empty() => {
                    let index = index % requests.len();
                    if let Some(permit) = poll(&mut requests[index]) {
                        requests.remove(index);
                        held.push(permit);
                    }
                }
                Step::Return(index) if !held.is_empty() => {
                    drop(held.swap_remove(index % held.len()));
                }
                _ => {}
            }
            let in_hand: usize = held.iter().map(Permit::permits).sum();
            assert!(in_hand + semaphore.available() <= TOTAL);
        }
        drop(requests);
        drop(held);
        assert_eq!((semaphore.available(), semaphore.waiting()), (TOTAL, 0));
    }
}
