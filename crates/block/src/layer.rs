//! The block layer as its callers see it, and its one task.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::rc::{Rc, Weak};
use std::task::Poll;

use event_listener::Event;
use futures_util::stream::{FuturesUnordered, StreamExt};
use futures_util::{FutureExt, select_biased};
use weir_runtime::{Handle, Instant};
use weir_storage::{
    Capabilities, Command, Extent, Feature, Priority, Recorder, Rejected, SharePair, Storage, StorageError,
    StreamId, Ticket, Write, WriteFlags,
};

use crate::elevator::{Elevator, elevator};
use crate::error::{BlockError, Refused};
use crate::inflight::Owners;
use crate::mutants::BlockMutant;
use crate::options::BlockOptions;
use crate::promote::Promotion;
use crate::queue::{StoredWrite, Work, store};
use crate::request::Request;
use crate::scheduler::Scheduler;
use crate::stats::Stats;

/// Places that are free in a queue that was full before the tasks that wait for space are woken: a writer that is woken
/// for every place pays for a context switch at every write (Linux: `BLK_BATCH_REQ`).
const WAKE_BATCH: usize = 32;

/// The order-preserving block layer on one storage.
///
/// Submitting never waits for a transfer: a write is handed to the device or queued, and its ticket tells
/// the rest. Dropping the layer fails the tickets of everything still queued.
pub struct BlockLayer {
    scheduler: RefCell<Scheduler>,
    clock: Handle,
    /// Notified when the queue has room again.
    space: Event,
    /// Places freed since then.
    freed: Cell<usize>,
    wake_batch: usize,
    /// Tells the dispatcher that there is something new to wait for.
    wake: Rc<Event>,
}

impl BlockLayer {
    /// A block layer on `device`.
    ///
    /// # Errors
    /// [`BlockError::NoBarriers`] for order-preserving dispatch on a device without barriers.
    pub fn new(
        handle: &Handle,
        device: Rc<dyn Storage>,
        options: BlockOptions,
    ) -> Result<Rc<BlockLayer>, BlockError> {
        BlockLayer::recorded(handle, device, options, None)
    }

    /// A block layer on `device` that reports every request issued and dispatched to a recorder; transferred and
    /// persisted are the device's to tell.
    ///
    /// # Errors
    /// As [`BlockLayer::new`].
    pub fn recorded(
        handle: &Handle,
        device: Rc<dyn Storage>,
        options: BlockOptions,
        recorder: Option<Rc<Recorder>>,
    ) -> Result<Rc<BlockLayer>, BlockError> {
        BlockLayer::with_elevator(handle, device, options, elevator(options.elevator), recorder)
    }

    /// A block layer with an elevator of the caller's own; `options.elevator` is not looked at.
    ///
    /// # Errors
    /// As [`BlockLayer::new`].
    pub fn with_elevator(
        handle: &Handle,
        device: Rc<dyn Storage>,
        options: BlockOptions,
        elevator: Box<dyn Elevator>,
        recorder: Option<Rc<Recorder>>,
    ) -> Result<Rc<BlockLayer>, BlockError> {
        let scheduler = Scheduler::new(device, options, elevator, recorder)?;
        let wake = Rc::new(Event::new());
        let layer = Rc::new(BlockLayer {
            scheduler: RefCell::new(scheduler),
            clock: handle.clone(),
            space: Event::new(),
            freed: Cell::new(0),
            wake_batch: (options.queue_requests / 4).clamp(1, WAKE_BATCH),
            wake: Rc::clone(&wake),
        });
        drop(handle.spawn(dispatcher(Rc::downgrade(&layer), wake, handle.clone())));
        Ok(layer)
    }

    /// Submits a write and never waits: it goes straight to the device if nothing is in its way, and is
    /// copied into the queue otherwise.
    ///
    /// # Errors
    /// [`Refused::Full`] when the queue is full; [`Refused::Rejected`] for what the device cannot do, and
    /// with [`StorageError::Aborted`](weir_storage::StorageError::Aborted) when an earlier order-preserving
    /// write of the stream failed (S5).
    #[inline]
    pub fn try_submit(&self, request: &Request<'_>) -> Result<Ticket, Refused> {
        let mut scheduler = self.scheduler.borrow_mut();
        let answer = scheduler.write(request, &self.clock);
        if !scheduler.has_work() {
            return answer;
        }
        drop(scheduler);
        if answer.as_ref().err() == Some(&Refused::Full) {
            return self.attempt(|scheduler, _| scheduler.write(request, &self.clock));
        }
        self.pump();
        answer
    }

    /// Submits a write, waiting for queue space if need be, and for nothing else: Wait-on-Dispatch at most.
    ///
    /// # Errors
    /// As [`BlockLayer::try_submit`], without [`Refused::Full`].
    pub async fn submit(&self, request: &Request<'_>) -> Result<Ticket, Rejected> {
        self.when_space(|layer| layer.try_submit(request)).await
    }

    /// Tries `attempt` until it is not refused for a full queue.
    ///
    /// # Errors
    /// Those of the attempt.
    pub async fn when_space<T>(
        &self,
        mut attempt: impl FnMut(&BlockLayer) -> Result<T, Refused>,
    ) -> Result<T, Rejected> {
        loop {
            match attempt(self) {
                Ok(done) => return Ok(done),
                Err(Refused::Rejected(rejected)) => return Err(rejected),
                Err(Refused::Full) => self.space.listen().await,
            }
        }
    }

    /// Submits a bare barrier: the stream's epoch ends here. The ticket is that of the command which carries it.
    ///
    /// # Errors
    /// As [`BlockLayer::try_submit`].
    pub fn barrier(&self, stream: StreamId) -> Result<Ticket, Refused> {
        self.attempt(|scheduler, _| scheduler.submit_barrier(stream))
    }

    /// Submits a read; the ticket carries the data.
    ///
    /// # Errors
    /// As [`BlockLayer::try_submit`].
    pub fn read(&self, extent: Extent) -> Result<Ticket, Refused> {
        self.attempt(|scheduler, now| scheduler.read(extent, now))
    }

    /// Submits a flush: when its ticket is transferred, every write transferred before this call is durable.
    ///
    /// # Errors
    /// As [`BlockLayer::try_submit`]; [`StorageError::Poisoned`](weir_storage::StorageError::Poisoned) once a
    /// flush has failed (S5).
    pub fn flush(&self) -> Result<Ticket, Refused> {
        self.attempt(|scheduler, _| scheduler.flush())
    }

    /// Submits a flush that leaves when every write submitted before it is transferred, or has failed (E9): those that were transferred
    /// are durable when its ticket is. No task has to run between their transfer and the flush.
    ///
    /// # Errors
    /// As [`BlockLayer::flush`].
    pub fn flush_behind_writes(&self) -> Result<Ticket, Refused> {
        self.attempt(|scheduler, _| scheduler.flush_behind_writes())
    }

    /// Submits an orderless discard.
    ///
    /// # Errors
    /// As [`BlockLayer::try_submit`].
    pub fn discard(&self, stream: StreamId, extents: &[Extent]) -> Result<Ticket, Refused> {
        let keep = |_: &dyn Storage| Work::Discard(extents.to_vec());
        self.attempt(|scheduler, now| scheduler.whole(stream, &Command::Discard(extents), keep, now))
    }

    /// Submits an orderless share: afterwards each target reads what its source read, all of them or none (S7).
    ///
    /// # Errors
    /// As [`BlockLayer::try_submit`].
    pub fn share(&self, stream: StreamId, pairs: &[SharePair]) -> Result<Ticket, Refused> {
        let keep = |_: &dyn Storage| Work::Share(pairs.to_vec());
        self.attempt(|scheduler, now| scheduler.whole(stream, &Command::Share(pairs), keep, now))
    }

    /// Submits several writes as one orderless packed command, which makes them in turn (S7), each with FUA and reliable
    /// as it asks; where every write has FUA, the ticket says that all is durable. Tags of the writes are not passed on,
    /// and [`BlockLayer::promote`] passes the command by: a caller that needs order behind it waits for its ticket.
    ///
    /// # Errors
    /// As [`BlockLayer::try_submit`]; [`Rejected::Unsupported`] for what the device lacks, FUA among it, as no flush can
    /// stand in for that of one write among others; for a barrier or a priority, which an orderless command cannot
    /// keep; and for a pre-flush: one flush before the command does for all of it.
    pub fn packed(&self, stream: StreamId, writes: &[Write<'_>]) -> Result<Ticket, Refused> {
        let lacks = |feature| Err(Rejected::Unsupported(feature).into());
        for write in writes {
            let WriteFlags { barrier, fua: _, preflush, reliable: _ } = write.flags;
            match (barrier, preflush, write.priority) {
                (true, ..) => return lacks(Feature::Barrier),
                (_, true, _) => return lacks(Feature::Preflush),
                (.., Priority::Ordered | Priority::HeadOfQueue) => return lacks(Feature::OrderedService),
                (.., Priority::Simple) => {}
            }
        }
        let keep = |device: &dyn Storage| {
            let kept =
                |write: &Write<'_>| StoredWrite { parts: store(write.parts, device), flags: write.flags };
            Work::Packed(writes.iter().map(kept).collect())
        };
        self.attempt(|scheduler, now| scheduler.whole(stream, &Command::Packed(writes), keep, now))
    }

    /// Makes orderless writes of `stream` that cover `pages` and are not yet transferred part of its current
    /// epoch (E7). A barrier call and a commit do this for the pages they cover, before their own requests.
    pub fn promote(&self, stream: StreamId, pages: &[Extent]) -> Promotion {
        self.with(|scheduler, _| scheduler.promote(stream, pages))
    }

    /// Why nothing order-preserving of `stream` is carried out any more, or nothing becomes durable, if something has failed
    /// (S5): the first cause, where later requests are only told that they were aborted.
    pub fn failure(&self, stream: StreamId) -> Option<StorageError> {
        self.scheduler.borrow_mut().failure(stream)
    }

    /// Lets a stream go on after a failure (S5), with a new epoch.
    pub fn reset(&self, stream: StreamId) {
        self.with(|scheduler, _| scheduler.reset(stream));
    }

    /// Notified when a full queue has room again, for a quarter of what it holds, but no more than 32 requests.
    /// Listen, then try; one thread runs, so nothing comes between.
    #[must_use]
    pub fn space(&self) -> &Event {
        &self.space
    }

    /// What was counted so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.scheduler.borrow().stats
    }

    /// What the device can do.
    pub(crate) fn capabilities(&self) -> Capabilities {
        *self.scheduler.borrow().device.capabilities()
    }

    /// The clock of the runtime, and its processor time.
    pub(crate) fn clock(&self) -> &Handle {
        &self.clock
    }

    /// Whether this layer is a mutant that drops a rule.
    pub(crate) fn drops(&self, mutant: BlockMutant) -> bool {
        self.scheduler.borrow().options.rules.drops(mutant)
    }

    /// Issues something; tries again if looking at the device makes room. After a refusal nothing moves until
    /// the dispatcher runs, so that no notification of space comes before the caller listens for it.
    fn attempt<T>(
        &self,
        mut issue: impl FnMut(&mut Scheduler, Instant) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let now = self.clock.now();
        let mut answer = issue(&mut self.scheduler.borrow_mut(), now);
        if answer.as_ref().err() == Some(&Refused::Full) {
            self.pump();
            answer = issue(&mut self.scheduler.borrow_mut(), now);
        }
        if answer.as_ref().err() != Some(&Refused::Full) {
            self.pump();
        }
        answer
    }

    /// Does something to the scheduler, then moves on whatever moved.
    fn with<T>(&self, act: impl FnOnce(&mut Scheduler, Instant) -> T) -> T {
        let done = act(&mut self.scheduler.borrow_mut(), self.clock.now());
        self.pump();
        done
    }

    /// Moves everything on that can move, and wakes the tasks that wait for that.
    fn pump(&self) {
        self.move_on();
        if self.scheduler.borrow().has_news() {
            self.wake.notify(1);
        }
    }

    fn move_on(&self) {
        let mut scheduler = self.scheduler.borrow_mut();
        scheduler.pump(self.clock.now());
        let freed = self.freed.get() + std::mem::take(&mut scheduler.freed);
        let enough = if scheduler.queue.is_empty() { 1 } else { self.wake_batch };
        drop(scheduler);
        if freed >= enough {
            self.freed.set(0);
            self.space.notify(usize::MAX);
        } else {
            self.freed.set(freed);
        }
    }
}

impl Drop for BlockLayer {
    fn drop(&mut self) {
        self.wake.notify(1);
    }
}

/// The second phase of a queued write, from the device's ticket to the layer's.
async fn pass_durability(ticket: Ticket, owners: Owners) {
    let result = ticket.durable().await;
    owners.iter().for_each(|owner| owner.durable(result));
}

async fn settle(ticket: Ticket) {
    // The scheduler looks at the ticket itself; here only the moment counts.
    let _ = ticket.transferred().await;
}

/// The next future to finish; never, while there is none.
async fn next<F: Future<Output = ()>>(futures: &mut FuturesUnordered<F>) {
    if futures.is_empty() {
        pending::<()>().await;
    }
    futures.next().await;
}

/// Sleeps until a deadline; never wakes without one.
async fn until(clock: &Handle, deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => clock.sleep_until(deadline).await,
        None => pending().await,
    }
}

/// Finishes when the device has answered a command; the command's ticket wakes the task that waits here.
async fn any_settled(layer: &Weak<BlockLayer>) {
    poll_fn(|_| match layer.upgrade() {
        Some(layer) if layer.scheduler.borrow().flights.any_settled() => Poll::Ready(()),
        _ => Poll::Pending,
    })
    .await;
}

/// Finishes when a slot becomes free on a device that refused something.
async fn slot(layer: &Weak<BlockLayer>) {
    poll_fn(|context| match layer.upgrade() {
        Some(layer) => layer.scheduler.borrow_mut().refusals.poll_slot(context),
        None => Poll::Pending,
    })
    .await;
}

/// Moves queued requests on: at every completion, free slot, and deadline.
async fn dispatcher(layer: Weak<BlockLayer>, wake: Rc<Event>, clock: Handle) {
    let waker = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
    if let Some(layer) = layer.upgrade() {
        layer.scheduler.borrow_mut().flights.wake_by(waker);
    }
    let mut flights = FuturesUnordered::new();
    let mut durables = FuturesUnordered::new();
    let mut woken = wake.listen().fuse();
    while let Some(layer_now) = layer.upgrade() {
        let deadline = {
            let mut scheduler = layer_now.scheduler.borrow_mut();
            flights.extend(scheduler.flights.take_fresh().into_iter().map(settle));
            durables
                .extend(scheduler.durables.drain(..).map(|(ticket, owners)| pass_durability(ticket, owners)));
            scheduler.next_deadline(clock.now())
        };
        drop(layer_now);
        select_biased! {
            () = woken => {
                woken = wake.listen().fuse();
                continue;
            }
            () = slot(&layer).fuse() => if let Some(layer) = layer.upgrade() {
                layer.scheduler.borrow_mut().refusals.clear();
            },
            () = any_settled(&layer).fuse() => {}
            () = next(&mut flights).fuse() => while flights.next().now_or_never().flatten().is_some() {},
            () = next(&mut durables).fuse() => continue,
            () = until(&clock, deadline).fuse() => {}
        }
        if let Some(layer) = layer.upgrade() {
            layer.move_on();
        }
    }
}
