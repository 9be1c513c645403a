//! *Random writes* with a flush after every so many, as the OPTR paper measures what its firmware costs (section 7): an
//! area that is small or large, requests that are large, small or mixed, and flushes that come often or seldom.
//!
//! A run of [`RandomWrites`]: one thread of the host writes to the device itself, without a block layer, and keeps up
//! to [`QUEUE`] commands on their way. Before a flush it waits for all of them, and then for the flush. A request starts at
//! a multiple of its size; one that is larger than a command of the device is several commands.
//!
//! A run's counts of writes are of blocks of 4 KiB here: the same amount is written, whatever the size of requests.

use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use serde::Deserialize;
use weir_flash::{FlashDevice, FlashOptions, Stats};
use weir_runtime::{Buffer, Handle, Random, Runtime, Simulation};
use weir_storage::{
    BLOCK_BYTES, Command, Data, Lba, Part, Rejected, Storage as _, StorageError, Ticket, Write, flush,
    submit_when_free,
};

use crate::device_window::DEVICE;
use crate::error::FigureError;
use crate::experiment::Experiment;
use crate::gauge::{Gauge, QUEUE_METERS, Window};
use crate::host::{Host, microseconds};
use crate::metric::{Metric, SECONDS, WRITES, metrics_of};
use crate::run::{Outcome, Run};
use crate::stage::NEVER;

/// Random writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct RandomWrites {
    /// The area that is written to, in MiB; all of the device if that is smaller.
    pub footprint_mib: u64,
    /// The size of the requests.
    pub size: Size,
    /// Requests from one flush to the next, 1 and more.
    pub flush_every: u64,
}

/// The size of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// 1 MiB.
    Large,
    /// 16 KiB.
    Small,
    /// Each of the two for half of the requests.
    Hybrid,
}

impl fmt::Display for RandomWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RandomWrites { footprint_mib, size, flush_every } = self;
        let size = match size {
            Size::Large => "large",
            Size::Small => "small",
            Size::Hybrid => "hybrid",
        };
        write!(f, "{footprint_mib} MiB {size}, flush/{flush_every}")
    }
}

/// Commands on their way at most.
const QUEUE: usize = 32;

/// Blocks of a large request, 1 MiB, and of a small one, 16 KiB.
const LARGE: u64 = 256;
const SMALL: u64 = 4;

/// How often a run looks at what cleaning may not take.
const LOOKS: u64 = 64;

/// The thread that writes.
pub(crate) struct RandomWriter {
    pub(crate) handle: Handle,
    pub(crate) device: Rc<FlashDevice>,
    writes: RandomWrites,
    host: Host,
    random: Random,
    /// What it writes: devices that keep versions only do not look at it.
    data: Rc<Buffer>,
    on_their_way: VecDeque<Ticket>,
    /// Requests so far.
    pub(crate) requests: u64,
}

impl RandomWriter {
    pub(crate) fn new(handle: &Handle, device: Rc<FlashDevice>, writes: RandomWrites, host: &Host) -> Self {
        RandomWriter {
            handle: handle.clone(),
            device,
            writes,
            host: host.clone(),
            random: handle.random("writer"),
            data: Rc::new(Buffer::new(LARGE as usize * BLOCK_BYTES)),
            on_their_way: VecDeque::new(),
            requests: 0,
        }
    }

    /// Writes one request, and flushes if it is time; how many blocks it had.
    pub(crate) async fn request(&mut self) -> Result<u64, Rejected> {
        let size = match self.writes.size {
            Size::Large => LARGE,
            Size::Small => SMALL,
            Size::Hybrid => [LARGE, SMALL][self.random.below(2) as usize],
        };
        let area = self.writes.footprint_mib.saturating_mul(LARGE).clamp(1, self.device.blocks());
        let size = size.min(area);
        let start = self.random.below(area / size) * size;
        self.handle.trace(&[start, size]);
        let most = u64::from(self.device.capabilities().max_transfer_blocks.max(1));
        for from in (start..start + size).step_by(most as usize) {
            self.command(from, most.min(start + size - from)).await?;
        }
        self.requests += 1;
        if self.requests.is_multiple_of(self.writes.flush_every.max(1)) {
            self.wait_for(0).await?;
            self.handle.work(microseconds(self.host.sync_us.value + self.host.dispatch_us.value)).await;
            flush(&*self.device).await?;
            self.handle.work(microseconds(self.host.completion_us.value)).await;
        }
        Ok(size)
    }

    async fn command(&mut self, start: u64, blocks: u64) -> Result<(), Rejected> {
        self.wait_for(QUEUE - 1).await?;
        self.handle.work(microseconds(self.host.write_us.value + self.host.dispatch_us.value)).await;
        let data = Data::Shared { buffer: &self.data, offset: 0, bytes: blocks as usize * BLOCK_BYTES };
        let parts = [Part { start: Lba(start), data }];
        let ticket = submit_when_free(&*self.device, Command::Write(Write::new(&parts))).await?;
        self.on_their_way.push_back(ticket);
        Ok(())
    }

    /// Waits until no more than so many commands are on their way.
    pub(crate) async fn wait_for(&mut self, most: usize) -> Result<(), Rejected> {
        while self.on_their_way.len() > most
            && let Some(oldest) = self.on_their_way.pop_front()
        {
            oldest.transferred().await?;
        }
        Ok(())
    }
}

/// What a window showed beside the gauge.
struct Seen {
    requests: u64,
    counts: Stats,
    held_back: f64,
}

/// Requests a second.
const REQUESTS: Metric = WRITES;
/// Full erase blocks that cleaning may not take before the next checkpoint, on average.
const HELD_BACK: Metric = Metric::new("held-back", "erase blocks");

impl Experiment for RandomWrites {
    fn metrics(&self) -> Vec<Metric> {
        let shared = metrics_of(QUEUE_METERS).chain(metrics_of(DEVICE));
        [REQUESTS, SECONDS, HELD_BACK].into_iter().chain(shared).collect()
    }

    fn run(&self, run: &Run, seed: u64, options: FlashOptions) -> Result<Outcome, FigureError> {
        let cores = Some(run.host.simulated());
        let runtime = Runtime::simulated(Simulation { seed, cores, ..Simulation::default() });
        let handle = runtime.handle();
        let window = Window { warm_up: NEVER, measured: 2, sample_ns: run.sample_ns };
        let gauge = Rc::new(Gauge::new(window));
        let options = FlashOptions { probe: Some(Rc::<Gauge>::clone(&gauge)), ..options };
        let device = FlashDevice::new(&handle, &run.device, options);
        run.prepare(&device, run.device.blocks);
        let writer = RandomWriter::new(&handle, device, *self, &run.host);
        let task =
            handle.spawn_thread("writer", measured(writer, run.writes, run.warm_up_max, Rc::clone(&gauge)));
        let ended = runtime.block_on(task);
        let seen = ended
            .map_err(|source| FigureError::Stalled { run: run.title(), source })?
            // A task is cancelled only with its runtime.
            .unwrap_or(Err(Rejected::Failed(StorageError::Gone)))
            .map_err(|source| FigureError::Command { run: run.title(), source })?;
        let mut outcome = run.read(&handle, &gauge, None, REQUESTS, seen.requests)?;
        outcome.set(HELD_BACK, seen.held_back);
        outcome.read_device(seen.counts, REQUESTS);
        Ok(outcome)
    }
}

/// Writes `warm_up` blocks, and then `blocks` in the window.
async fn measured(
    mut writer: RandomWriter,
    blocks: u64,
    warm_up: u64,
    gauge: Rc<Gauge>,
) -> Result<Seen, Rejected> {
    let mut written = 0;
    while written < warm_up {
        written += writer.request().await?;
    }
    let now = |writer: &RandomWriter| writer.handle.now().as_nanos();
    gauge.begin(now(&writer));
    let (counts, requests) = (writer.device.stats(), writer.requests);
    let mut held_back = 0.0;
    for look in 1..=LOOKS {
        while written < warm_up + blocks * look / LOOKS {
            written += writer.request().await?;
        }
        held_back += f64::from(writer.device.held_back()) / LOOKS as f64;
        if look == LOOKS / 2 {
            gauge.halve(now(&writer));
        }
    }
    gauge.end(now(&writer));
    let counts = writer.device.stats().since(&counts);
    let requests = writer.requests - requests;
    writer.wait_for(0).await?;
    Ok(Seen { requests, counts, held_back })
}
