//! The ways to write 4 KiB after 4 KiB at the block layer that the papers compare, as loops of one simulated host thread.
//!
//! The span was written in order once, if the device is not to stay erased. A run first warms up: ways that fill the
//! queue write once as much as the device's cache holds, so that what is measured is how fast it is emptied; the device
//! does not clean. A run with barriers is watched by the order recorder, and ends with a flush.
//!
//! A thread that finds the block layer's queue full sleeps, and goes on when a batch of requests has left it,
//! as writers on Linux do.

use std::fmt;
use std::rc::Rc;

use serde::Deserialize;
use weir_block::{BlockLayer, BlockOptions, Class, Dispatch, Request};
use weir_flash::{FlashDevice, FlashOptions};
use weir_runtime::{Buffer, Handle, Random, Runtime, Simulation};
use weir_storage::{BLOCK_BYTES, Data, Lba, Part, Recorder, Rejected, Storage as _, StreamId, Ticket};

use crate::error::FigureError;
use crate::experiment::Experiment;
use crate::gauge::{Gauge, QUEUE_METERS, Window};
use crate::host::{Host, microseconds};
use crate::metric::{Metric, SECONDS, WRITES, metrics_of};
use crate::run::{Outcome, RECORDED, Run};

/// Requests that leave the queue before a writer that found it full goes on (Linux: `BLK_BATCH_REQ`).
const BATCH: u64 = 32;

/// Requests in the block layer's queue at most (Linux: `nr_requests`).
const QUEUE: u64 = 128;

/// Context switches of the writer for each write, warm-up included.
const SWITCHES: Metric = Metric::new("switches", "switches");

/// How the order of two writes is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum BlockWrites {
    /// Transfer-and-flush: each write is waited for, and flushed.
    XnF,
    /// Wait-on-Transfer: each write is waited for.
    X,
    /// Barrier writes by Wait-on-Dispatch: nothing is waited for but queue space.
    B,
    /// Orderless writes without a page cache: not at all.
    P,
    /// As B, the barrier a command of its own behind each write.
    BarrierCommand,
    /// As B into an empty queue: as many writes as the device queues, then a pause until they are transferred.
    BarrierBurst,
    /// As X, each write a barrier write: barriers in place of flushes, but no order-preserving dispatch.
    BarrierWaiting,
}

impl fmt::Display for BlockWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Experiment for BlockWrites {
    fn metrics(&self) -> Vec<Metric> {
        [WRITES, SECONDS, SWITCHES].into_iter().chain(metrics_of(QUEUE_METERS)).collect()
    }

    fn has_barriers(&self) -> bool {
        !matches!(self, BlockWrites::XnF | BlockWrites::X | BlockWrites::P)
    }

    fn waits(&self) -> bool {
        matches!(self, BlockWrites::XnF | BlockWrites::X | BlockWrites::BarrierWaiting)
    }

    fn run(&self, run: &Run, seed: u64, options: FlashOptions) -> Result<Outcome, FigureError> {
        let cores = Some(run.host.simulated());
        let runtime = Runtime::simulated(Simulation { seed, cores, ..Simulation::default() });
        let handle = runtime.handle();
        let gauge = Rc::new(Gauge::new(self.window(run)));
        let recorder = self.has_barriers().then(|| Recorder::with(false, RECORDED));
        let probe = Rc::clone(&gauge);
        let options = FlashOptions { recorder: recorder.clone(), probe: Some(probe), ..options };
        let (layer, writer) = self.stack(run, &handle, &gauge, options)?;
        let work = async {
            let thread = handle.spawn_thread("writer", writer.run());
            // A task is cancelled only with its runtime.
            thread.await.unwrap_or(Ok(()))?;
            layer.when_space(BlockLayer::flush).await?.transferred().await.map_err(Rejected::from)
        };
        let ended = runtime.block_on(work);
        ended
            .map_err(|source| FigureError::Stalled { run: run.title(), source })?
            .map_err(|source| FigureError::Command { run: run.title(), source })?;
        let mut outcome = run.read(&handle, &gauge, recorder.as_deref(), WRITES, run.writes)?;
        let switches = handle.switches().total as f64 * self.commands() as f64 / gauge.accepted() as f64;
        outcome.set(SWITCHES, switches);
        Ok(outcome)
    }
}

impl BlockWrites {
    /// Commands to the device for each write.
    fn commands(self) -> u64 {
        match self {
            BlockWrites::XnF | BlockWrites::BarrierCommand => 2,
            _ => 1,
        }
    }

    fn window(self, run: &Run) -> Window {
        let cached = run.device.cache.bytes / BLOCK_BYTES as u64;
        let warm_up = if self.waits() { run.writes / 4 } else { cached + run.writes / 4 };
        let commands = self.commands();
        Window {
            warm_up: warm_up.clamp(1, run.warm_up_max.max(1)) * commands,
            measured: run.writes * commands,
            sample_ns: run.sample_ns.max(1),
        }
    }

    /// The device, the block layer on it, and the writer.
    fn stack(
        self,
        run: &Run,
        handle: &Handle,
        gauge: &Rc<Gauge>,
        options: FlashOptions,
    ) -> Result<(Rc<BlockLayer>, Writer), FigureError> {
        let recorder = options.recorder.clone();
        let device = FlashDevice::new(handle, &run.device, options);
        let span = run.span.clamp(1, device.blocks());
        run.prepare(&device, span);
        let dispatch = if self.has_barriers() { Dispatch::OrderPreserving } else { Dispatch::Legacy };
        // Random writes have nothing to merge; without it a request is a command, and can be counted.
        let queue_requests = QUEUE as usize;
        let options = BlockOptions { dispatch, queue_requests, merge: false, ..BlockOptions::default() };
        let layer = BlockLayer::recorded(handle, device, options, recorder)
            .map_err(|source| FigureError::Block { run: run.title(), source })?;
        let writer = Writer {
            handle: handle.clone(),
            layer: Rc::clone(&layer),
            gauge: Rc::clone(gauge),
            host: run.host.clone(),
            order: self,
            span,
            random: handle.random("writer"),
            page: Rc::new(Buffer::new(BLOCK_BYTES)),
            depth: run.device.host.queue_depth,
            issued: 0,
        };
        Ok((layer, writer))
    }
}

/// One thread of the host that writes.
struct Writer {
    handle: Handle,
    layer: Rc<BlockLayer>,
    gauge: Rc<Gauge>,
    host: Host,
    order: BlockWrites,
    /// Blocks that it writes to.
    span: u64,
    random: Random,
    /// What it writes: devices that keep versions only do not look at it.
    page: Rc<Buffer>,
    /// The device's queue depth.
    depth: u32,
    /// Requests issued.
    issued: u64,
}

impl Writer {
    /// Writes until the window has ended.
    async fn run(mut self) -> Result<(), Rejected> {
        while !self.gauge.is_done() {
            match self.order {
                BlockWrites::XnF | BlockWrites::X | BlockWrites::BarrierWaiting => {
                    self.write_and_wait().await?
                }
                BlockWrites::B | BlockWrites::P => self.write_on().await?,
                BlockWrites::BarrierCommand => self.write_and_put_barrier().await?,
                BlockWrites::BarrierBurst => self.write_burst().await?,
            }
        }
        Ok(())
    }

    /// The calls, up to the request's dispatch.
    async fn spend_call(&self) {
        let host = &self.host;
        let sync = if self.order == BlockWrites::P { 0.0 } else { host.sync_us.value };
        self.handle.work(microseconds(host.write_us.value + sync + host.dispatch_us.value)).await;
    }

    async fn issue(&mut self, class: Class) -> Result<Ticket, Rejected> {
        let data = Data::Shared { buffer: &self.page, offset: 0, bytes: BLOCK_BYTES };
        let block = self.random.below(self.span);
        self.handle.trace(&[block]);
        let parts = [Part { start: Lba(block), data }];
        self.issued += 1;
        self.layer.submit(&Request::new(StreamId(0), class, &parts)).await
    }

    async fn wait_for(&self, ticket: Ticket) -> Result<(), Rejected> {
        ticket.transferred().await?;
        self.handle.work(microseconds(self.host.completion_us.value)).await;
        Ok(())
    }

    async fn write_and_wait(&mut self) -> Result<(), Rejected> {
        self.spend_call().await;
        let class = if self.order.has_barriers() { Class::Barrier } else { Class::Orderless };
        let ticket = self.issue(class).await?;
        self.wait_for(ticket).await?;
        if self.order == BlockWrites::XnF {
            self.handle.work(microseconds(self.host.dispatch_us.value)).await;
            let ticket = self.layer.when_space(BlockLayer::flush).await?;
            self.wait_for(ticket).await?;
        }
        Ok(())
    }

    async fn write_on(&mut self) -> Result<(), Rejected> {
        self.spend_call().await;
        if self.issued.saturating_sub(self.gauge.accepted()) >= QUEUE {
            let (gauge, issued) = (Rc::clone(&self.gauge), self.issued);
            self.sleep_until(move || issued.saturating_sub(gauge.accepted()) <= QUEUE - BATCH).await;
        }
        let class = if self.order.has_barriers() { Class::Barrier } else { Class::Orderless };
        self.issue(class).await.map(drop)
    }

    /// Sleeps until an answer of the device makes `ready` true. The harness looks, not the thread: it
    /// is woken, and pays for a context switch, once.
    async fn sleep_until(&self, ready: impl Fn() -> bool + 'static) {
        let gauge = Rc::clone(&self.gauge);
        let look = async move {
            while !ready() {
                gauge.answers.listen().await;
            }
        };
        // The runtime outlives its threads, so the task is never cancelled.
        let _ = self.handle.spawn(look).await;
    }

    /// A write that is not queued but accepted at once, and a barrier behind it: in the queue they would become
    /// one command (E4).
    async fn write_and_put_barrier(&mut self) -> Result<(), Rejected> {
        self.spend_call().await;
        if self.gauge.depth() + 2 > self.depth {
            let (gauge, depth) = (Rc::clone(&self.gauge), self.depth * 3 / 4);
            self.sleep_until(move || gauge.depth() <= depth).await;
        }
        drop(self.issue(Class::Ordered).await?);
        self.handle.work(microseconds(self.host.dispatch_us.value)).await;
        self.layer.when_space(|layer| layer.barrier(StreamId(0))).await.map(drop)
    }

    async fn write_burst(&mut self) -> Result<(), Rejected> {
        let mut tickets = Vec::new();
        for _ in 0..self.depth {
            self.spend_call().await;
            tickets.push(self.issue(Class::Barrier).await?);
        }
        for ticket in tickets {
            ticket.transferred().await?;
        }
        self.gauge.pause();
        Ok(())
    }
}
