//! The model of simulated cores: who runs when, and what is counted.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use weir_runtime::{Cores, Handle, Instant, Runtime, Simulation};

type Log = Rc<RefCell<Vec<(&'static str, u64)>>>;

fn micros(count: u64) -> Duration {
    Duration::from_micros(count)
}

fn runtime(count: usize, context_switch_us: u64) -> Runtime {
    let cores = Cores { count, context_switch: micros(context_switch_us), ..Cores::default() };
    Runtime::simulated(Simulation { cores: Some(cores), ..Simulation::default() })
}

fn now_us(handle: &Handle) -> u64 {
    handle.now().as_nanos() / 1000
}

/// Two threads of 10 us of work each; when they finish.
fn two_workers(cores: usize) -> Vec<u64> {
    let runtime = runtime(cores, 3);
    let handle = runtime.handle();
    let worker = |name| {
        let inside = handle.clone();
        handle.spawn_thread(name, async move {
            inside.work(micros(10)).await;
            now_us(&inside)
        })
    };
    let (first, second) = (worker("a"), worker("b"));
    let ends = runtime.block_on(async { vec![first.await.unwrap(), second.await.unwrap()] }).unwrap();
    assert_eq!(handle.switches().total, 0, "a first start is not a switch");
    ends
}

#[test]
fn one_core_serialises_and_two_do_not() {
    assert_eq!(two_workers(1), [10, 20]);
    assert_eq!(two_workers(2), [10, 10]);
}

#[test]
fn every_wake_up_of_a_sleeping_thread_pays_and_counts_one_switch() {
    let runtime = runtime(1, 3);
    let handle = runtime.handle();
    let inside = handle.clone();
    let thread = handle.spawn_thread("sleeper", async move {
        for _ in 0..5 {
            inside.sleep(micros(100)).await;
            inside.work(micros(10)).await;
        }
        now_us(&inside)
    });
    assert_eq!(runtime.block_on(thread).unwrap(), Ok(5 * (100 + 3 + 10)));
    let counts = handle.switches();
    assert_eq!(counts.total, 5);
    assert_eq!(counts.by_thread.into_iter().collect::<Vec<_>>(), [("sleeper".to_owned(), 5)]);
}

/// One core, a switch of 3 us. A works 10; B starts at 10 and works 10; A, woken at 12, waits until B ends.
#[test]
fn a_woken_thread_waits_for_a_core_first_come_first_served() {
    let runtime = runtime(1, 3);
    let handle = runtime.handle();
    let log: Log = Rc::default();
    for name in ["a", "b"] {
        let (inside, log) = (handle.clone(), log.clone());
        handle.spawn_thread(name, async move {
            inside.work(micros(10)).await;
            log.borrow_mut().push((name, now_us(&inside)));
            inside.sleep(micros(2)).await;
            log.borrow_mut().push((name, now_us(&inside)));
            inside.work(micros(1)).await;
        });
    }
    runtime.block_on(handle.sleep(micros(1000))).unwrap();
    // B ends its work at 20, A switches in until 23 and works until 24, B (woken at 22) switches in until 27.
    assert_eq!(*log.borrow(), [("a", 10), ("b", 20), ("a", 23), ("b", 27)]);
    assert_eq!(handle.switches().total, 2);
}

#[test]
fn many_threads_take_turns_in_the_order_they_became_ready() {
    let runtime = runtime(1, 0);
    let handle = runtime.handle();
    let log: Log = Rc::default();
    for name in ["a", "b", "c", "d"] {
        let (inside, log) = (handle.clone(), log.clone());
        handle.spawn_thread(name, async move {
            inside.work(micros(10)).await;
            log.borrow_mut().push((name, now_us(&inside)));
        });
    }
    runtime.block_on(handle.sleep(micros(100))).unwrap();
    assert_eq!(*log.borrow(), [("a", 10), ("b", 20), ("c", 30), ("d", 40)]);
}

/// A thread woken at 1 us, and again while it is switched in, runs at 4 us.
#[test]
fn wake_ups_on_the_way_to_a_core_are_not_counted_twice() {
    let runtime = runtime(1, 3);
    let handle = runtime.handle();
    let waker: Rc<RefCell<Option<Waker>>> = Rc::default();
    let (inside, own) = (handle.clone(), waker.clone());
    let thread = handle.spawn_thread("t", async move {
        std::future::poll_fn(|context| {
            *own.borrow_mut() = Some(context.waker().clone());
            if inside.now() == Instant::ZERO { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        now_us(&inside)
    });
    let poker = handle.clone();
    handle.spawn(async move {
        for _ in 0..3 {
            poker.sleep(micros(1)).await;
            waker.borrow().as_ref().unwrap().wake_by_ref();
        }
    });
    assert_eq!(runtime.block_on(thread).unwrap(), Ok(1 + 3));
    assert_eq!(handle.switches().total, 1);
}

#[test]
fn plain_tasks_pay_nothing() {
    let runtime = runtime(1, 3);
    let handle = runtime.handle();
    let inside = handle.clone();
    let device = handle.spawn(async move {
        inside.work(micros(50)).await;
        inside.sleep(micros(7)).await;
        now_us(&inside)
    });
    let hog = handle.clone();
    handle.spawn_thread("hog", async move { hog.work(micros(500)).await });
    assert_eq!(runtime.block_on(device).unwrap(), Ok(7));
    assert_eq!(handle.switches().total, 0);
}

#[test]
fn without_cores_threads_are_plain_tasks() {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let inside = handle.clone();
    let thread = handle.spawn_thread("t", async move {
        inside.work(micros(50)).await;
        inside.sleep(micros(7)).await;
        now_us(&inside)
    });
    assert_eq!(runtime.block_on(thread).unwrap(), Ok(7));
    assert_eq!(handle.switches().total, 0);
}

#[test]
fn a_cancelled_thread_gives_its_core_away() {
    let runtime = runtime(1, 3);
    let handle = runtime.handle();
    let log: Log = Rc::default();
    let mut threads = Vec::new();
    for name in ["holder", "queued", "last"] {
        let (inside, log) = (handle.clone(), log.clone());
        threads.push(handle.spawn_thread(name, async move {
            inside.work(micros(100)).await;
            log.borrow_mut().push((name, now_us(&inside)));
        }));
    }
    runtime
        .block_on(async {
            handle.sleep(micros(40)).await;
            threads[1].cancel();
            threads[0].cancel();
            handle.sleep(micros(1000)).await;
        })
        .unwrap();
    assert_eq!(*log.borrow(), [("last", 140)]);
}

/// Work that lost a race is given up; what the thread awaits next is sleep, and frees the core.
#[test]
fn abandoned_work_does_not_keep_the_core() {
    let runtime = runtime(1, 0);
    let handle = runtime.handle();
    let inside = handle.clone();
    handle.spawn_thread("racer", async move {
        let mut work = Some(Box::pin(inside.work(micros(100))));
        let mut sleep = inside.sleep(micros(10));
        std::future::poll_fn(|context| {
            let working = work.as_mut().map(|work| work.as_mut().poll(context).is_ready());
            assert_ne!(working, Some(true));
            let rested = std::pin::Pin::new(&mut sleep).poll(context);
            if rested.is_ready() {
                work = None;
            }
            rested
        })
        .await;
        inside.sleep(micros(1000)).await;
    });
    let inside = handle.clone();
    let other = handle.spawn_thread("other", async move { now_us(&inside) });
    assert_eq!(runtime.block_on(other).unwrap(), Ok(10));
}

/// The caller is a thread among others: it pays for its wake-ups, keeps its core between two calls, and waits for
/// one like everybody.
#[test]
fn the_caller_may_be_a_thread() {
    let runtime = runtime(1, 3);
    let handle = runtime.handle();
    runtime.simulate_caller("caller");
    let (first, second, third) = (handle.clone(), handle.clone(), handle.clone());
    runtime.block_on(async move { first.work(micros(10)).await }).unwrap();
    assert_eq!(now_us(&handle), 10);
    let other = handle.spawn_thread("other", async move {
        second.work(micros(50)).await;
        now_us(&second)
    });
    // The only core is the caller's until it sleeps, from 10 to 110; the other one works meanwhile.
    let slept = runtime.block_on(async move {
        third.sleep(micros(100)).await;
        (now_us(&third), third.switches().by_thread.into_iter().collect::<Vec<_>>())
    });
    assert_eq!(slept, Ok((113, vec![("caller".to_owned(), 1)])));
    assert_eq!(runtime.block_on(other).unwrap(), Ok(60));
}
