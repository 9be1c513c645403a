//! The ways to write 4 KiB after 4 KiB that the papers compare, as loops of one simulated host thread.
//!
//! A thread that finds the block layer's queue full sleeps, and goes on when a batch of requests has left it,
//! as writers on Linux do.

use std::fmt;
use std::rc::Rc;

use serde::Deserialize;
use weir_block::{BlockLayer, Class, Request};
use weir_runtime::{Buffer, Handle, Random};
use weir_storage::{BLOCK_BYTES, Data, Lba, Part, Rejected, StreamId, Ticket};

use crate::application::Application;
use crate::calls::{Calls, On};
use crate::crash_test::CrashTest;
use crate::fact::Fact;
use crate::fio::Fio;
use crate::gauge::Gauge;
use crate::host::{Host, microseconds};
use crate::innodb::InnoDb;
use crate::inserts::Inserts;
use crate::parameter::Parameter;
use crate::random_writes::RandomWrites;
use crate::varmail::Varmail;

/// Requests that leave the queue before a writer that found it full goes on (Linux: `BLK_BATCH_REQ`).
const BATCH: u64 = 32;

/// Requests in the block layer's queue at most (Linux: `nr_requests`).
pub(crate) const QUEUE: u64 = 128;

/// How the order of two writes is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Way {
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
    /// Through the filesystem.
    Files(Calls),
    /// Through SQLite, on the filesystem.
    Sqlite(Inserts),
    /// Through the filesystem, as fio.
    Fio(Fio),
    /// Through the filesystem, as Filebench's varmail.
    Varmail(Varmail),
    /// Through the filesystem, as MySQL's storage engine.
    InnoDb(InnoDb),
    /// Through the filesystem, as an application of a phone.
    App(Application),
    /// To the device itself, in one area, with flushes.
    Random(RandomWrites),
    /// The same, until recovery has most to read; then a power cut.
    Recovery(RandomWrites),
    /// Not at all: something is counted.
    Fact(Fact),
    /// Through the filesystem on the worst disk, with power cuts.
    Crash(CrashTest),
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Files(calls) => calls.fmt(f),
            Way::Sqlite(inserts) => inserts.fmt(f),
            Way::Fio(fio) => fio.fmt(f),
            Way::Varmail(varmail) => varmail.fmt(f),
            Way::InnoDb(innodb) => innodb.fmt(f),
            Way::App(application) => application.fmt(f),
            Way::Random(writes) => writes.fmt(f),
            Way::Recovery(writes) => write!(f, "recovery, {writes}"),
            Way::Fact(fact) => fact.fmt(f),
            Way::Crash(test) => write!(f, "crash tests, {test}"),
            way => fmt::Debug::fmt(way, f),
        }
    }
}

impl Way {
    /// Whether writes keep order by barriers.
    #[must_use]
    pub fn has_barriers(self) -> bool {
        match self {
            Way::B | Way::BarrierCommand | Way::BarrierBurst | Way::BarrierWaiting => true,
            way => way.on().is_some_and(On::has_barriers),
        }
    }

    /// The filesystem that it is on, of those that read what they have written.
    fn on(self) -> Option<On> {
        match self {
            Way::Files(calls) => Some(calls.on),
            Way::Sqlite(inserts) => Some(inserts.on),
            Way::Fio(fio) => Some(fio.on.on),
            Way::Varmail(varmail) => Some(varmail.on.on),
            Way::InnoDb(innodb) => Some(innodb.on.on),
            Way::App(application) => Some(application.on),
            _ => None,
        }
    }

    /// Whether it waits for each write.
    pub(crate) fn waits(self) -> bool {
        match self {
            Way::Files(calls) => calls.waits(),
            Way::Sqlite(inserts) => inserts.waits(),
            Way::Fio(_) | Way::Varmail(_) | Way::InnoDb(_) | Way::App(_) => true,
            way => matches!(way, Way::XnF | Way::X | Way::BarrierWaiting),
        }
    }

    /// Whether it needs a filesystem, which reads what it has written.
    pub(crate) fn has_files(self) -> bool {
        self.on().is_some()
    }

    /// The filesystem that it is on, in words.
    pub(crate) fn ground(self) -> String {
        match self {
            Way::Files(calls) => calls.on.to_string(),
            Way::Sqlite(inserts) => inserts.on.to_string(),
            Way::Fio(fio) => fio.on.to_string(),
            Way::Varmail(varmail) => varmail.on.to_string(),
            Way::InnoDb(innodb) => innodb.ground(),
            Way::App(application) => application.on.to_string(),
            way => way.to_string(),
        }
    }

    /// The parameters of a host, by name, that it depends on.
    pub(crate) fn parameters_of(self, host: &Host) -> impl Iterator<Item = (&'static str, &Parameter)> {
        let sqlite = matches!(self, Way::Sqlite(_) | Way::App(_));
        host.parameters().into_iter().filter(move |(key, _)| match *key {
            "compose_us" => self.has_files(),
            "sqlite_insert_us" => sqlite,
            "scan_us" => self.on() == Some(On::OptFs),
            "small_call_us" => matches!(self, Way::Sqlite(_)),
            _ => true,
        })
    }

    /// Commands to the device for each write.
    pub(crate) fn commands(self) -> u64 {
        match self {
            Way::XnF | Way::BarrierCommand => 2,
            _ => 1,
        }
    }
}

/// One thread of the host that writes.
pub(crate) struct Writer {
    pub(crate) handle: Handle,
    pub(crate) layer: Rc<BlockLayer>,
    pub(crate) gauge: Rc<Gauge>,
    pub(crate) host: Host,
    pub(crate) way: Way,
    /// Blocks that it writes to.
    pub(crate) span: u64,
    pub(crate) random: Random,
    /// What it writes: devices that keep versions only do not look at it.
    pub(crate) page: Rc<Buffer>,
    /// The device's queue depth.
    pub(crate) depth: u32,
    /// Requests issued.
    pub(crate) issued: u64,
}

impl Writer {
    /// Writes until the window has ended.
    pub(crate) async fn run(mut self) -> Result<(), Rejected> {
        while !self.gauge.is_done() {
            match self.way {
                Way::XnF | Way::X | Way::BarrierWaiting => self.waiting().await?,
                Way::B | Way::P => self.streaming().await?,
                Way::BarrierCommand => self.separately().await?,
                Way::BarrierBurst => self.burst().await?,
                // Not for one thread at the block layer.
                Way::Files(_)
                | Way::Sqlite(_)
                | Way::Fio(_)
                | Way::Varmail(_)
                | Way::InnoDb(_)
                | Way::App(_)
                | Way::Random(_)
                | Way::Recovery(_)
                | Way::Fact(_)
                | Way::Crash(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// The calls, up to the request's dispatch.
    async fn call(&self) {
        let host = &self.host;
        let sync = if self.way == Way::P { 0.0 } else { host.sync_us.value };
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

    async fn answered(&self, ticket: Ticket) -> Result<(), Rejected> {
        ticket.transferred().await?;
        self.handle.work(microseconds(self.host.completion_us.value)).await;
        Ok(())
    }

    async fn waiting(&mut self) -> Result<(), Rejected> {
        self.call().await;
        let class = if self.way.has_barriers() { Class::Barrier } else { Class::Orderless };
        let ticket = self.issue(class).await?;
        self.answered(ticket).await?;
        if self.way == Way::XnF {
            self.handle.work(microseconds(self.host.dispatch_us.value)).await;
            let ticket = self.layer.when_space(BlockLayer::flush).await?;
            self.answered(ticket).await?;
        }
        Ok(())
    }

    async fn streaming(&mut self) -> Result<(), Rejected> {
        self.call().await;
        if self.issued.saturating_sub(self.gauge.accepted()) >= QUEUE {
            let (gauge, issued) = (Rc::clone(&self.gauge), self.issued);
            self.sleep_until(move || issued.saturating_sub(gauge.accepted()) <= QUEUE - BATCH).await;
        }
        let class = if self.way.has_barriers() { Class::Barrier } else { Class::Orderless };
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
    async fn separately(&mut self) -> Result<(), Rejected> {
        self.call().await;
        if self.gauge.depth() + 2 > self.depth {
            let (gauge, depth) = (Rc::clone(&self.gauge), self.depth * 3 / 4);
            self.sleep_until(move || gauge.depth() <= depth).await;
        }
        drop(self.issue(Class::Ordered).await?);
        self.handle.work(microseconds(self.host.dispatch_us.value)).await;
        self.layer.when_space(|layer| layer.barrier(StreamId(0))).await.map(drop)
    }

    async fn burst(&mut self) -> Result<(), Rejected> {
        let mut tickets = Vec::new();
        for _ in 0..self.depth {
            self.call().await;
            tickets.push(self.issue(Class::Barrier).await?);
        }
        for ticket in tickets {
            ticket.transferred().await?;
        }
        self.gauge.pause();
        Ok(())
    }
}
