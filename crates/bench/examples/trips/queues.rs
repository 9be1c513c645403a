//! Servers that take requests from the kernel's queues, by FUSE over io_uring.

use std::collections::VecDeque;
use std::error::Error;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use weir_runtime::{Event, FuseQueues, FuseRequest, Runtime, Wall};

use crate::answers::{Answer, TRANSFER_BYTES, answer, has_ended};

/// Requests of one queue at a time.
const DEPTH: usize = 8;
/// How long a thread sleeps at most that waits for another one's answer.
const NAP: Duration = Duration::from_micros(50);

/// Whether the kernel offers them.
pub fn are_offered() -> bool {
    std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring").is_ok_and(|value| value.trim() == "Y")
}

/// The number of queues: one a possible core, as `/sys/devices/system/cpu/possible` has them, `0-1`.
fn count() -> io::Result<u16> {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = possible.trim().rsplit('-').next().and_then(|last| last.parse::<u16>().ok());
    last.and_then(|last| last.checked_add(1)).ok_or(io::ErrorKind::InvalidData.into())
}

/// Answers all requests of some queues on this thread.
fn serve(device: &Arc<File>, queues: std::ops::Range<u16>, watch: Duration) -> io::Result<()> {
    let mut queues = FuseQueues::register(device, queues, DEPTH, TRANSFER_BYTES)?;
    let mut active = Instant::now();
    loop {
        if !queues.poll()? {
            if active.elapsed() < watch {
                thread::yield_now();
            } else {
                queues.sleep(None)?;
            }
        }
        while let Some(place) = queues.next_place() {
            let answered = queues.request(place).and_then(|asked| answer(asked, true));
            let answer = answered.ok_or(io::ErrorKind::InvalidData)?;
            queues.answer(place, answer.header, answer.body())?;
            active = Instant::now();
        }
    }
}

/// An unmount is the end, and no error.
fn until_unmounted(served: io::Result<()>) -> io::Result<()> {
    served.or_else(|error| if has_ended(&error) { Ok(()) } else { Err(error) })
}

pub fn serve_all(device: File, watch: Duration) -> io::Result<()> {
    until_unmounted(serve(&Arc::new(device), 0..count()?, watch))
}

/// Runs `work` for each queue, on a thread on its core, if it may run there.
fn for_each_queue(work: impl Fn(u16) -> io::Result<()> + Sync) -> io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let (work, allowed) = (&work, &allowed);
    let queues = 0..count()?;
    thread::scope(|scope| {
        let begin = |queue: u16| {
            scope.spawn(move || {
                if allowed.is_set(queue.into()) {
                    let mut core = CpuSet::new();
                    core.set(queue.into());
                    sched_setaffinity(None, &core)?;
                }
                until_unmounted(work(queue))
            })
        };
        let threads: Vec<_> = queues.map(begin).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Err(io::ErrorKind::Other.into())))
    })
}

pub fn serve_each(device: File, watch: Duration) -> io::Result<()> {
    let device = Arc::new(device);
    for_each_queue(|queue| serve(&device, queue..queue + 1, watch))
}

/// A request on its way to the thread that answers: its queue and place, and its pieces.
struct Asked {
    queue: u16,
    place: usize,
    header: Vec<u8>,
    operation: Vec<u8>,
    rest: Vec<u8>,
}

/// What the threads hand over to each other.
#[derive(Default)]
struct Exchange {
    asked: Mutex<VecDeque<Asked>>,
    /// By queue.
    answered: Vec<Mutex<Vec<(usize, Answer)>>>,
    woken: Event,
    ended: Mutex<bool>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn serve_by_another(device: File, watch: Duration) -> Result<(), Box<dyn Error>> {
    let device = Arc::new(device);
    let mut exchange = Exchange::default();
    exchange.answered.resize_with(count()?.into(), Mutex::default);
    let exchange = &exchange;
    thread::scope(|scope| {
        let queues = scope.spawn(|| {
            let served = for_each_queue(|queue| hand_over(&device, queue, exchange, watch));
            *lock(&exchange.ended) = true;
            exchange.woken.notify(1);
            served
        });
        answer_all(exchange, watch)?;
        Ok(queues.join().unwrap_or(Err(io::ErrorKind::Other.into()))?)
    })
}

/// Hands the requests of a queue over, and brings the answers back.
fn hand_over(device: &Arc<File>, queue: u16, exchange: &Exchange, watch: Duration) -> io::Result<()> {
    let mut queues = FuseQueues::register(device, queue..queue + 1, DEPTH, TRANSFER_BYTES)?;
    let (mut under_way, mut active) = (0, Instant::now());
    loop {
        for (place, answer) in std::mem::take(&mut *lock(&exchange.answered[usize::from(queue)])) {
            queues.answer(place, answer.header, answer.body())?;
            under_way -= 1;
        }
        if !queues.poll()? {
            match under_way {
                0 => queues.sleep(None)?,
                _ if active.elapsed() < watch => thread::yield_now(),
                _ => queues.sleep(Some(NAP))?,
            }
        }
        while let Some(place) = queues.next_place() {
            let Some(FuseRequest { header, operation, rest }) = queues.request(place) else { continue };
            let (header, operation, rest) = (header.to_vec(), operation.to_vec(), rest.to_vec());
            lock(&exchange.asked).push_back(Asked { queue, place, header, operation, rest });
            exchange.woken.notify(1);
            (under_way, active) = (under_way + 1, Instant::now());
        }
    }
}

/// The thread that answers, a runtime's as that of a filesystem is.
fn answer_all(exchange: &Exchange, watch: Duration) -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::wall(Wall::default())?;
    let handle = runtime.handle();
    Ok(runtime.block_on(async {
        let mut active = handle.now();
        while !*lock(&exchange.ended) {
            let asked = lock(&exchange.asked).pop_front();
            if let Some(Asked { queue, place, header, operation, rest }) = asked {
                let asked = FuseRequest { header: &header, operation: &operation, rest: &rest };
                if let Some(answer) = answer(asked, true) {
                    lock(&exchange.answered[usize::from(queue)]).push((place, answer));
                }
                active = handle.now();
            } else if handle.now() < active + watch {
                handle.give_way().await;
            } else {
                let woken = exchange.woken.listen();
                if lock(&exchange.asked).is_empty() && !*lock(&exchange.ended) {
                    woken.await;
                }
            }
        }
    })?)
}
