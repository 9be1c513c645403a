//! Wall time: parking, wake-ups from other threads, and no starvation.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the runtime is compared with what the machine says"
)]

use std::cell::Cell;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_runtime::{Cancelled, RemoteError, Runtime, Wall, channel};

fn wall() -> Runtime {
    Runtime::wall(Wall::default()).unwrap()
}

#[test]
fn sleeps_take_their_time_and_end_in_order() {
    let runtime = wall();
    let handle = runtime.handle();
    let start = handle.now();
    let order = Rc::new(Cell::new(0));
    for (place, millis) in [(2, 20), (1, 10)] {
        let (handle, order) = (handle.clone(), order.clone());
        handle.clone().spawn(async move {
            handle.sleep(Duration::from_millis(millis)).await;
            assert_eq!(order.replace(place) + 1, place);
        });
    }
    runtime.block_on(handle.sleep(Duration::from_millis(40))).unwrap();
    assert!(handle.now().since(start) >= Duration::from_millis(40));
    assert_eq!(order.get(), 2);
    assert_eq!(handle.trace_hash(), Runtime::wall(Wall::default()).unwrap().handle().trace_hash());
}

/// Another thread sends one message at a time and waits until it is taken, so each one finds the runtime
/// parked, or about to be; a lost wake-up would hang.
#[test]
fn another_thread_wakes_a_parked_runtime() {
    let runtime = wall();
    let (to_runtime, messages) = channel::<u32>(1);
    let (taken, acknowledged) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        for message in 0..2000 {
            to_runtime.send_blocking(message).unwrap();
            acknowledged.recv().unwrap();
        }
    });
    let count = runtime
        .block_on(async {
            let mut count = 0;
            while let Ok(message) = messages.recv().await {
                assert_eq!(message, count);
                count += 1;
                taken.send(()).unwrap();
            }
            count
        })
        .unwrap();
    thread.join().unwrap();
    assert_eq!(count, 2000);
}

#[test]
fn blocking_jobs_run_on_another_thread() {
    let runtime = wall();
    let here = std::thread::current().id();
    let job = runtime.handle().blocking(move || std::thread::current().id() != here);
    assert_eq!(runtime.block_on(job).unwrap(), Ok(true));
    let panics = runtime.handle().blocking(|| panic!("on purpose"));
    assert_eq!(runtime.block_on(panics).unwrap(), Err::<(), _>(Cancelled));
}

#[test]
fn other_threads_spawn_tasks_up_to_a_bound() {
    let runtime = wall();
    let remote = runtime.handle().remote();
    let (sender, receiver) = channel(1);
    let thread = std::thread::spawn(move || {
        remote.spawn(move |handle| {
            let handle = handle.clone();
            async move {
                handle.sleep(Duration::from_millis(1)).await;
                sender.send(5).await.unwrap();
            }
        })
    });
    assert_eq!(runtime.block_on(receiver.recv()).unwrap(), Ok(5));
    thread.join().unwrap().unwrap();

    let remote = runtime.handle().remote();
    let accepted = (0..5000).take_while(|_| remote.spawn(|_| async {}).is_ok()).count();
    assert_eq!(accepted, 1024);
    assert_eq!(remote.spawn(|_| async {}), Err(RemoteError::Full));
    runtime.block_on(runtime.handle().yield_now()).unwrap();
    runtime.block_on(runtime.handle().sleep(Duration::from_millis(1))).unwrap();
    remote.spawn(|_| async {}).unwrap();
}

/// Timers, completions and other threads have their turn beside a task that is always there.
fn nobody_starves(runtime: &Runtime) {
    let handle = runtime.handle();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let reader = std::sync::Arc::new(std::fs::File::from(std::os::fd::OwnedFd::from(reader)));
    let (sender, receiver) = channel(1);
    let ring = handle.ring().unwrap();
    ring.read(&reader, weir_runtime::Buffer::new(8), 8, 0, move |outcome| {
        sender.try_send(outcome.result.unwrap()).unwrap();
    })
    .unwrap();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(5));
        std::io::Write::write_all(&mut writer, b"late").unwrap();
    });
    runtime
        .block_on(async {
            handle.sleep(Duration::from_millis(2)).await;
            assert_eq!(receiver.recv().await, Ok(4));
            assert_eq!(handle.blocking(|| 6).await, Ok(6));
        })
        .unwrap();
    thread.join().unwrap();
}

#[test]
fn ready_tasks_do_not_starve_timers_completions_or_other_threads() {
    let runtime = wall();
    let handle = runtime.handle();
    let spinner = handle.clone();
    handle.spawn(async move {
        loop {
            spinner.yield_now().await;
        }
    });
    nobody_starves(&runtime);
}

/// A task that gives way goes on as well, beside tasks that are always ready, too.
#[test]
fn a_task_that_gives_way_starves_no_other_and_does_not_starve() {
    for others in [0, 3] {
        let runtime = wall();
        let handle = runtime.handle();
        let turns = Rc::new(Cell::new(0));
        let (giver, counted) = (handle.clone(), turns.clone());
        handle.spawn(async move {
            loop {
                giver.give_way().await;
                counted.set(counted.get() + 1);
            }
        });
        for _ in 0..others {
            let spinner = handle.clone();
            handle.spawn(async move {
                loop {
                    spinner.yield_now().await;
                }
            });
        }
        nobody_starves(&runtime);
        // On a busy machine each turn may cost other programs' time.
        let began = Instant::now();
        while turns.get() <= 10 {
            runtime.block_on(handle.sleep(Duration::from_millis(10))).unwrap();
            assert!(began.elapsed() < Duration::from_secs(20), "{} turns", turns.get());
        }
    }
}

#[test]
fn the_machine_gives_cpu_time_and_a_date() {
    let runtime = wall();
    let handle = runtime.handle();
    let before = handle.cpu_time().total();
    let mut sum = 0_u64;
    while handle.cpu_time().total() < before + Duration::from_millis(5) {
        sum = sum.wrapping_add(std::hint::black_box(1));
    }
    assert!(sum > 0);
    let date = UNIX_EPOCH + Duration::from_nanos(handle.wall_clock_nanos());
    // Other programs may have the processor in between.
    let off = SystemTime::now().duration_since(date).unwrap();
    assert!(off < Duration::from_secs(10), "{off:?}");
}

/// Two runs of the same seed draw the same streams and different entropy. Equal values have a chance of 2^-64.
#[test]
fn entropy_is_never_the_same_whatever_the_seed() {
    let (one, other) = (wall().handle(), wall().handle());
    assert_eq!(one.seed(), other.seed());
    assert_ne!(one.entropy(), other.entropy());
    assert_ne!(one.entropy(), one.entropy());
}

/// Whoever calls for one short thing after the other, and never waits, lets the rest go on, too.
#[test]
fn short_calls_do_not_starve_timers() {
    let runtime = wall();
    let handle = runtime.handle();
    let fired = Rc::new(Cell::new(false));
    let (sleeper, set) = (handle.clone(), fired.clone());
    let start = handle.now();
    handle.spawn(async move {
        sleeper.sleep(Duration::from_millis(1)).await;
        set.set(true);
    });
    while !fired.get() && handle.now().since(start) < Duration::from_secs(10) {
        runtime.block_on(async {}).unwrap();
    }
    assert!(fired.get());
}
