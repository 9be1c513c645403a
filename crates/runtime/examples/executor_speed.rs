//! How fast the executor is: events a second of processor time. Run with `--release`.

#![allow(clippy::print_stdout, reason = "a program's output")]

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use weir_runtime::{Buffer, Handle, Ring, Runtime, Sender, Simulation, Stalled, Wall, channel};

const TASKS: u64 = 64;
const ROUNDS: u64 = 50_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let simulation = || Runtime::simulated(Simulation::default());
    measure("virtual: timed awaits", simulation(), TASKS * ROUNDS, |handle, task| async move {
        for round in 0..ROUNDS {
            handle.sleep(Duration::from_nanos(100 + (task * 7 + round) % 50)).await;
        }
    })?;
    measure("virtual: yields", simulation(), TASKS * ROUNDS, |handle, _| async move {
        for _ in 0..ROUNDS {
            handle.yield_now().await;
        }
    })?;
    measure("virtual: spawn and await", simulation(), TASKS * ROUNDS, |handle, task| async move {
        for round in 0..ROUNDS {
            let result = handle.spawn(async move { task + round }).await;
            assert_eq!(result, Ok(task + round));
        }
    })?;
    measure("virtual: channel messages", simulation(), TASKS * ROUNDS, |handle, _| async move {
        let (sender, receiver) = channel(1);
        handle.spawn(async move { while receiver.recv().await.is_ok() {} });
        for round in 0..ROUNDS {
            // The receiver is gone only when the runtime is.
            if sender.send(round).await.is_err() {
                return;
            }
        }
    })?;
    measure("wall: yields", Runtime::wall(Wall::default())?, TASKS * ROUNDS, |handle, _| async move {
        for _ in 0..ROUNDS {
            handle.yield_now().await;
        }
    })?;
    let file = Arc::new(tempfile::tempfile()?);
    file.set_len(4096)?;
    measure("wall: reads of a cached page", Runtime::wall(Wall::default())?, TASKS * ROUNDS, |handle, _| {
        let (sender, receiver) = channel(1);
        if let Some(ring) = handle.ring() {
            read_on(ring, file.clone(), Buffer::new(4096), ROUNDS, sender);
        }
        async move { assert_eq!(receiver.recv().await, Ok(())) }
    })?;
    Ok(())
}

/// Reads the page `left` times, each read started by the completion of the last.
fn read_on(ring: Ring, file: Arc<File>, buffer: Buffer, left: u64, end: Sender<()>) {
    if left == 0 {
        // The receiver is gone only when the runtime is.
        let _ = end.try_send(());
        return;
    }
    let (next_ring, next_file) = (ring.clone(), file.clone());
    let queued = ring.read(&file, buffer, 4096, 0, move |outcome| {
        let buffer = outcome.buffer.unwrap_or_else(|| Buffer::new(4096));
        read_on(next_ring, next_file, buffer, left - 1, end);
    });
    assert!(queued.is_ok(), "64 reads fit a ring of 256 entries");
}

/// Runs `task` 64 times at once and prints what it took.
fn measure<F: Future<Output = ()> + 'static>(
    what: &str,
    runtime: Runtime,
    events: u64,
    task: impl Fn(Handle, u64) -> F,
) -> Result<(), Stalled> {
    let handle = runtime.handle();
    let before = handle.cpu_time().total();
    let tasks: Vec<_> = (0..TASKS).map(|index| handle.spawn(task(handle.clone(), index))).collect();
    runtime.block_on(async {
        for task in tasks {
            assert_eq!(task.await, Ok(()));
        }
    })?;
    let spent = handle.cpu_time().total() - before;
    let rate = events as f64 / spent.as_secs_f64() / 1e6;
    println!("{what:<28} {rate:8.2} M/s  ({:.0} ns each)", spent.as_nanos() as f64 / events as f64);
    Ok(())
}
