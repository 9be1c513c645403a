//! Virtual time: jumps, order, determinism, stalls, cancellation.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::cell::{Cell, RefCell};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use rand::RngExt;
use weir_runtime::{Cancelled, Event, Handle, Instant, RemoteError, Runtime, Simulation, channel};

/// Tells a child process where to write its trace hash.
const HASH_FILE: &str = "WEIR_RUNTIME_TEST_HASH_FILE";

fn nanos(count: u64) -> Duration {
    Duration::from_nanos(count)
}

fn simulated(seed: u64, explore: bool) -> Runtime {
    Runtime::simulated(Simulation { seed, explore, cores: None })
}

/// A run with timers, channels, events and randomness; its trace hash and the order of its steps.
fn busy_run(seed: u64, explore: bool) -> (u64, Vec<u64>) {
    let runtime = simulated(seed, explore);
    let handle = runtime.handle();
    let steps = Rc::new(RefCell::new(Vec::new()));
    let (sender, receiver) = channel::<u64>(4);
    for worker in 0..8 {
        let (handle, sender) = (handle.clone(), sender.clone());
        let mut random = handle.random("worker");
        handle.clone().spawn(async move {
            for round in 0..20 {
                // Few distinct delays, so that many tasks are ready at the same instant.
                handle.sleep(nanos(10 * random.random_range(1..4_u64))).await;
                sender.send(worker * 100 + round).await.unwrap();
            }
        });
    }
    drop(sender);
    let seen = steps.clone();
    let finished = runtime.block_on(async move {
        while let Ok(step) = receiver.recv().await {
            seen.borrow_mut().push(step);
        }
    });
    finished.unwrap();
    let steps = steps.take();
    (handle.trace_hash(), steps)
}

#[test]
fn time_jumps_to_the_next_timer_and_equal_deadlines_keep_their_order() {
    let runtime = simulated(0, false);
    let handle = runtime.handle();
    let log = Rc::new(RefCell::new(Vec::new()));
    for (name, delay) in [("c", 30), ("a", 10), ("b1", 20), ("b2", 20), ("zero", 0)] {
        let (handle, log) = (handle.clone(), log.clone());
        handle.clone().spawn(async move {
            handle.sleep(nanos(delay)).await;
            log.borrow_mut().push((name, handle.now().as_nanos()));
        });
    }
    runtime.block_on(handle.sleep(Duration::from_secs(86_400))).unwrap();
    assert_eq!(*log.borrow(), [("zero", 0), ("a", 10), ("b1", 20), ("b2", 20), ("c", 30)]);
    assert_eq!(handle.now(), Instant::ZERO + Duration::from_secs(86_400));
}

#[test]
fn a_dropped_timer_does_not_move_time() {
    let runtime = simulated(0, false);
    let handle = runtime.handle();
    let sleeper = {
        let handle = handle.clone();
        runtime.handle().spawn(async move { handle.sleep(nanos(1000)).await })
    };
    runtime.block_on(handle.sleep(nanos(1))).unwrap();
    sleeper.cancel();
    let stalled = runtime.block_on(std::future::pending::<()>()).unwrap_err();
    assert_eq!((stalled.waiting, stalled.at_nanos), (0, 1));
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    for explore in [false, true] {
        assert_eq!(busy_run(7, explore), busy_run(7, explore));
        assert_ne!(busy_run(7, explore).0, busy_run(8, explore).0);
    }
}

#[test]
fn entropy_is_seeded_in_virtual_time() {
    let twice = |seed| {
        let handle = simulated(seed, false).handle();
        [handle.entropy(), handle.entropy()]
    };
    assert_eq!(twice(1), twice(1));
    assert_ne!(twice(1), twice(2));
    let [first, second] = twice(1);
    assert_ne!(first, second);
}

/// Without randomness of its own a program is the same for every seed, unless the runtime explores.
#[test]
fn exploring_changes_the_order_of_ready_tasks_and_nothing_else_does() {
    let order = |seed, explore| {
        let runtime = simulated(seed, explore);
        let handle = runtime.handle();
        let log = Rc::new(RefCell::new(Vec::new()));
        for task in 0..16 {
            let (handle, log) = (handle.clone(), log.clone());
            handle.clone().spawn(async move {
                handle.sleep(nanos(5)).await;
                log.borrow_mut().push(task);
            });
        }
        runtime.block_on(handle.sleep(nanos(10))).unwrap();
        (handle.trace_hash(), log.take())
    };
    assert_eq!(order(1, false), order(2, false));
    assert_eq!(order(1, false).1, (0..16).collect::<Vec<_>>());
    assert_ne!(order(1, true), order(2, true));
    assert_eq!(order(1, true), order(1, true));
    let mut sorted = order(1, true).1;
    sorted.sort_unstable();
    assert_eq!(sorted, (0..16).collect::<Vec<_>>(), "every task still runs");
}

/// Also the child of the test below: it then leaves its hash in a file.
#[test]
fn hash_of_a_run_with_exploration() {
    let (hash, _) = busy_run(42, true);
    if let Some(path) = std::env::var_os(HASH_FILE) {
        std::fs::write(path, hash.to_string()).unwrap();
    }
}

#[test]
fn two_processes_agree_on_the_hash() {
    let directory = tempfile::tempdir().unwrap();
    let hash_of_child = |name: &str| {
        let path = directory.path().join(name);
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "virtual_time::hash_of_a_run_with_exploration"])
            .env(HASH_FILE, &path)
            .output()
            .unwrap()
            .status;
        assert!(status.success());
        std::fs::read_to_string(path).unwrap()
    };
    let first = hash_of_child("first");
    assert_eq!(first, hash_of_child("second"));
    assert_eq!(first, busy_run(42, true).0.to_string());
}

#[test]
fn traced_words_change_the_hash() {
    let hash = |words: &[u64]| {
        let runtime = simulated(0, false);
        runtime.handle().trace(words);
        runtime.handle().trace_hash()
    };
    assert_eq!(hash(&[1, 2]), hash(&[1, 2]));
    assert_ne!(hash(&[1, 2]), hash(&[1, 3]));
}

#[test]
fn a_lost_wake_up_is_a_stall_that_counts_the_waiting_tasks() {
    let runtime = simulated(0, false);
    let handle = runtime.handle();
    let event = Rc::new(Event::new());
    for _ in 0..3 {
        let event = event.clone();
        handle.spawn(async move { event.listen().await });
    }
    let listener = event.listen();
    let stalled = runtime.block_on(async {
        handle.sleep(nanos(9)).await;
        listener.await;
    });
    let stalled = stalled.unwrap_err();
    assert_eq!((stalled.waiting, stalled.at_nanos), (3, 9));
    assert!(stalled.to_string().contains("3 spawned tasks wait"));
    // The control: with the wake-up nothing stalls.
    event.notify(usize::MAX);
    runtime.block_on(handle.sleep(nanos(1))).unwrap();
    assert_eq!(runtime.block_on(std::future::pending::<()>()).unwrap_err().waiting, 0);
}

#[test]
fn tasks_give_results_and_cancelled_tasks_say_so() {
    let runtime = simulated(0, false);
    let handle = runtime.handle();
    runtime
        .block_on(async {
            assert_eq!(handle.spawn(async { 5 }).await, Ok(5));

            let dropped = Rc::new(Cell::new(false));
            let flag = SetOnDrop(dropped.clone());
            let sleeper = handle.clone();
            let task = handle.spawn(async move {
                let _flag = flag;
                sleeper.sleep(nanos(100)).await;
            });
            handle.yield_now().await;
            task.cancel();
            assert!(dropped.get() && task.is_finished());
            assert_eq!(task.await, Err(Cancelled));

            let finished = handle.spawn(async { 6 });
            handle.yield_now().await;
            finished.cancel();
            assert_eq!(finished.await, Ok(6), "a finished task keeps its result");
        })
        .unwrap();
}

#[test]
fn a_task_can_cancel_itself_and_its_slot_is_used_again() {
    let runtime = simulated(0, false);
    let handle = runtime.handle();
    let own: Rc<RefCell<Option<weir_runtime::Task<()>>>> = Rc::default();
    let (inside, sleeper) = (own.clone(), handle.clone());
    *own.borrow_mut() = Some(handle.spawn(async move {
        if let Some(task) = inside.borrow().as_ref() {
            task.cancel();
        }
        sleeper.sleep(nanos(1)).await;
        unreachable!("cancelled at the await before");
    }));
    runtime.block_on(handle.sleep(nanos(5))).unwrap();
    assert!(own.borrow().as_ref().unwrap().is_finished());
    // A later task in the same slot is not reached by what is left of the first.
    own.borrow().as_ref().unwrap().cancel();
    let next = handle.spawn(async { 1 });
    own.borrow().as_ref().unwrap().cancel();
    assert_eq!(runtime.block_on(next).unwrap(), Ok(1));
}

struct SetOnDrop(Rc<Cell<bool>>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

/// Spawns from its destructor, as a careless guard may.
struct SpawnOnDrop(Handle, Rc<Cell<bool>>);

impl Drop for SpawnOnDrop {
    fn drop(&mut self) {
        let task = self.0.spawn(std::future::pending::<()>());
        self.1.set(task.is_finished());
    }
}

#[test]
fn a_dropped_runtime_drops_its_tasks_and_takes_no_new_ones() {
    let runtime = simulated(0, false);
    let handle = runtime.handle();
    let refused = Rc::new(Cell::new(false));
    let guard = SpawnOnDrop(handle.clone(), refused.clone());
    let waiting = handle.spawn(async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    });
    runtime.block_on(handle.yield_now()).unwrap();
    drop(runtime);
    assert!(waiting.is_finished());
    assert!(refused.get());
    assert!(handle.spawn(async {}).is_finished());
    assert_eq!(handle.remote().spawn(|_| async {}), Err(RemoteError::Closed));
}

#[test]
fn blocking_jobs_run_in_place_in_virtual_time() {
    let runtime = simulated(0, false);
    let here = std::thread::current().id();
    let job = runtime.handle().blocking(move || std::thread::current().id() == here);
    assert_eq!(runtime.block_on(job).unwrap(), Ok(true));
}

#[test]
fn the_simulated_date_follows_the_seed_and_the_clock() {
    let millis = |seed, sleep_ms| {
        let runtime = simulated(seed, false);
        runtime.block_on(runtime.handle().sleep(Duration::from_millis(sleep_ms))).unwrap();
        runtime.handle().wall_clock_millis()
    };
    assert_eq!(millis(1, 500), millis(1, 0) + 500);
    assert_ne!(millis(1, 0), millis(2, 0));
}

/// A step moves the date, and neither the clock that timers go by nor what the trace sees.
#[test]
fn the_date_can_be_stepped() {
    let runtime = simulated(0, false);
    let handle = runtime.handle();
    let (date, now, trace) = (handle.wall_clock_nanos(), handle.now(), handle.trace_hash());
    handle.step_wall_clock(1_500_000_000);
    assert_eq!(handle.wall_clock_nanos(), date + 1_500_000_000);
    handle.step_wall_clock(-3_000_000_000);
    assert_eq!(handle.wall_clock_nanos(), date - 1_500_000_000);
    assert_eq!((handle.now(), handle.trace_hash()), (now, trace));
    handle.step_wall_clock(i64::MIN);
    handle.step_wall_clock(i64::MIN);
    assert_eq!(handle.wall_clock_nanos(), 0, "there is nothing before 1970");
}

#[test]
#[should_panic(expected = "block_on was called from inside a task")]
fn block_on_inside_itself_is_a_bug() {
    let runtime = simulated(0, false);
    let _ = runtime.block_on(async { runtime.block_on(async {}) });
}

/// A runtime that runs inside a task of another neither takes nor loses the wake-ups that the outer one gets
/// meanwhile, nor those that are left when its own `block_on` ends.
#[test]
fn a_runtime_inside_another_keeps_their_wake_ups_apart() {
    let outer = Runtime::simulated(Simulation::default());
    let inner = Runtime::simulated(Simulation::default());
    let event = Rc::new(Event::new());
    let woken = Rc::new(Cell::new(0));
    for runtime in [&outer, &inner] {
        let (event, woken) = (event.clone(), woken.clone());
        drop(runtime.handle().spawn(async move {
            event.listen().await;
            woken.set(woken.get() + 1);
        }));
    }
    let handle = inner.handle();
    let finished = outer.block_on(async {
        outer.handle().yield_now().await;
        let inside = inner.block_on(async {
            handle.yield_now().await;
            event.notify(2);
        });
        assert!(inside.is_ok());
        outer.handle().sleep(Duration::from_nanos(1)).await;
        woken.get()
    });
    assert_eq!(finished.ok(), Some(1), "the outer task ran, the inner one waits for its runtime");
    assert!(inner.block_on(async { handle.yield_now().await }).is_ok());
    assert_eq!(woken.get(), 2);
}
