//! The *uploader*: ships the log of an open volume, in order, only what is durable (R2), and no more behind than the options say
//! (R8). When nothing is written it asks nothing of the store.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, select, try_join};
use futures_util::{FutureExt as _, select_biased};
use tracing::{error, warn};
use weir_runtime::{Event, Handle, Instant};
use weir_storage::{BLOCK_BYTES, Capabilities, Rules, Storage as _, flush};
use weir_volume::{LogChunk, LogTap, TapBounds, Volume};

use crate::access::{Access, Requests};
use crate::catch_up::{catch_up, require_not_ahead};
use crate::check::Fault;
use crate::connecting::descriptor_of;
use crate::error::ReplicaError;
use crate::mutants::ReplicaMutant;
use crate::options::ReplicaOptions;
use crate::replica_base::ReplicaBase;
use crate::store::{ObjectStore, StoreError};
use crate::writer::{Payload, Role, Writer};

/// Where more is waiting, an object has so many times the bytes that make it full, at most.
const BEHIND_FACTOR: usize = 4;

/// How far the store is behind the volume.
#[derive(Clone, Debug, Default)]
pub struct ReplicationStatus {
    /// The newest request in the store.
    pub shipped: u64,
    /// How long ago the oldest chunk was sealed that a restore would lack. For what was sealed before the uploader was opened, how
    /// long ago that was: a bound from below.
    pub lag: Duration,
    /// Bytes of the chunks that a restore would lack. What was sealed before the uploader was opened counts with what it can have
    /// at most.
    pub lag_bytes: u64,
    /// It is further behind than the options say, or catches up.
    pub behind: bool,
    /// It is further behind than the options say, and has stopped or is past a bound. The first upload is not, for a while.
    pub overdue: bool,
    /// Requests to the store so far.
    pub requests: Requests,
    /// How long the oldest request to the store has been waiting for its answer.
    pub longest_wait: Duration,
    /// Why it ships nothing now, if so.
    pub trouble: Option<String>,
    /// It has stopped: another writer has taken over, the replica is damaged, or the store was waited for long enough.
    pub stopped: bool,
}

/// What the uploader and those who look at it share.
pub(crate) struct Shared {
    handle: Handle,
    shipped: Cell<u64>,
    is_catching_up: Cell<bool>,
    /// It catches up since the backlog was given up, which was past a bound.
    gave_up: Cell<bool>,
    requests: Cell<Requests>,
    failure: RefCell<Option<String>>,
    stopping: Cell<bool>,
    /// It is to end where it is.
    given_up: Cell<bool>,
    /// Something is to be shipped now, whatever the lag.
    hurried: Cell<bool>,
    changed: Event,
    access: Rc<Access>,
    lag: Duration,
    rules: Rules<ReplicaMutant>,
}

/// The uploader of an open volume.
pub struct Uploader {
    volume: Rc<Volume>,
    tap: Rc<LogTap>,
    writer: Box<Writer>,
    options: ReplicaOptions,
    shared: Rc<Shared>,
}

/// What others know of an uploader, and may ask of it.
#[derive(Clone)]
pub struct Replication {
    shared: Rc<Shared>,
    tap: Rc<LogTap>,
}

impl Uploader {
    /// Opens or begins the replica of an open volume, and taps the volume. Nothing is shipped until it runs.
    ///
    /// # Errors
    /// [`ReplicaError`]: what is wrong with the store or with the replica in it.
    pub async fn open(
        handle: &Handle,
        volume: Rc<Volume>,
        store: Rc<dyn ObjectStore>,
        bounds: TapBounds,
        options: ReplicaOptions,
    ) -> Result<Uploader, ReplicaError> {
        let writer = Writer::open(handle, store, descriptor_of(&volume), options).await?;
        Uploader::begin(handle, volume, writer, bounds).await
    }

    /// The same of a volume that was made on a base, by the writer that the base was opened with.
    ///
    /// # Errors
    /// [`ReplicaError::Ahead`] if the store has more than the volume; what the disk here answered.
    pub async fn open_on_base(
        handle: &Handle,
        volume: Rc<Volume>,
        base: ReplicaBase,
        bounds: TapBounds,
    ) -> Result<Uploader, ReplicaError> {
        Uploader::begin(handle, volume, base.writer, bounds).await
    }

    pub(crate) async fn begin(
        handle: &Handle,
        volume: Rc<Volume>,
        writer: Writer,
        bounds: TapBounds,
    ) -> Result<Uploader, ReplicaError> {
        flush(&*volume).await?;
        let last = writer.state.end.last();
        let behind = require_not_ahead(volume.position(), &writer)?;
        let missing = if behind { bytes_at_most(&volume, last) } else { 0 };
        let options = writer.options.clone();
        let shipped = Replication::begin(handle, &volume, (&writer.access, options.rules), (bounds, missing));
        Ok(Uploader::with(volume, writer, shipped))
    }

    /// With a writer that has opened the replica.
    pub(crate) fn with(volume: Rc<Volume>, writer: Writer, replication: Replication) -> Uploader {
        let (options, Replication { shared, tap }) = (writer.options.clone(), replication);
        shared.shipped.set(writer.state.end.last());
        shared.requests.set(writer.requests());
        Uploader { volume, tap, writer: Box::new(writer), options, shared }
    }

    /// What is wrong with newer checkpoints that could not be read: the log from an older one on took their place.
    #[must_use]
    pub fn passed_over(&self) -> &[Fault] {
        &self.writer.passed_over.faults
    }

    /// For those who look at it.
    #[must_use]
    pub fn replication(&self) -> Replication {
        Replication { shared: Rc::clone(&self.shared), tap: Rc::clone(&self.tap) }
    }

    /// Ships everything that is there now, and writes a checkpoint if the log since the last one is long.
    ///
    /// # Errors
    /// [`ReplicaError`]; what was shipped before counts.
    pub async fn ship_all(&mut self) -> Result<(), ReplicaError> {
        flush(&*self.volume).await?;
        if self.shared.is_catching_up.get() || self.tap.backlog().has_gap {
            self.catch_up().await?;
        }
        while let Some(chunk) = self.tap.take_durable() {
            self.ship(vec![chunk]).await?;
        }
        self.writer.checkpoint(false).await?;
        self.note();
        Ok(())
    }

    /// Writes a checkpoint now, and collects what is not kept.
    ///
    /// # Errors
    /// What the store answered.
    pub async fn checkpoint(&mut self) -> Result<bool, ReplicaError> {
        self.writer.begin(self.volume.position().generation).await?;
        self.writer.checkpoint(true).await
    }

    /// Ships what is written until it is [stopped](Replication::stop). A store that does not answer, or refuses, is waited for without
    /// end, or as long as [the options](ReplicaOptions::stops) say. An error is in the status, too: writers do not wait for the store then.
    ///
    /// # Errors
    /// [`ReplicaError`]: another writer has taken over, an object is damaged, the store was waited for long enough, or it was [given
    /// up](Replication::give_up).
    pub async fn run(mut self) -> Result<(), ReplicaError> {
        let (replication, stops) = (self.replication(), self.options.stops);
        replication.run(stops, async move { self.run_until_stopped().await }).await
    }

    pub(crate) async fn run_until_stopped(&mut self) -> Result<(), ReplicaError> {
        let upkeep = Rc::clone(&self.writer.upkeep);
        let shipping = async {
            self.ship_until_stopped().await?;
            upkeep.close();
            Ok(())
        };
        try_join(shipping, upkeep.run()).await.map(|_| ())
    }

    async fn ship_until_stopped(&mut self) -> Result<(), ReplicaError> {
        loop {
            if self.shared.is_catching_up.get() || self.tap.backlog().has_gap {
                if !self.shared.is_catching_up.replace(true) {
                    self.tell_given_up("what changed is looked up");
                }
                self.catch_up().await?;
            }
            let chunks = self.next_chunks().await;
            if !chunks.is_empty() {
                self.ship(chunks).await?;
                self.writer.begin_checkpoint_if_due();
            } else if self.shared.stopping.get() && !self.tap.backlog().has_gap {
                return Ok(());
            }
        }
    }

    async fn catch_up(&mut self) -> Result<(), ReplicaError> {
        self.shared.gave_up.set(self.tap.backlog().has_gap);
        while !catch_up(&self.volume, &self.tap, &mut self.writer, &self.options).await? {
            self.shared.gave_up.set(true);
            self.tell_given_up("the catch-up, during which that happened, looks at all blocks again");
        }
        self.shared.is_catching_up.set(false);
        self.shared.gave_up.set(false);
        self.note();
        Ok(())
    }

    /// Says that the tap holds not all that is to be shipped, how far the store is behind, and what follows.
    fn tell_given_up(&self, next: &str) {
        let ReplicationStatus { lag, lag_bytes, .. } = self.replication().status();
        let lag_ms = u64::try_from(lag.as_millis()).unwrap_or(u64::MAX);
        warn!(
            name: "backlog_given_up",
            lag_ms,
            lag_bytes,
            "the store is {lag_ms} ms and {lag_bytes} bytes behind, and the backlog was given up: {next}"
        );
    }

    /// Tells others how far it is.
    fn note(&self) {
        self.shared.shipped.set(self.writer.state.end.last());
        self.shared.requests.set(self.writer.requests());
        self.shared.changed.notify(usize::MAX);
    }

    /// The chunks of the next object: as many as are durable when it is full, or when the oldest has waited long enough. None if
    /// there is a gap, or the uploader is to stop.
    async fn next_chunks(&self) -> Vec<LogChunk> {
        let mut chunks: Vec<LogChunk> = Vec::new();
        let mut bytes = 0;
        loop {
            let (sealed, asked) = (self.tap.listen(), self.shared.changed.listen());
            // What waits already goes with it: objects are created one after the other (R1), so larger ones ship faster.
            while bytes < BEHIND_FACTOR * self.options.object_bytes
                && let Some(chunk) = self.tap.take_durable()
            {
                bytes += chunk.data.len();
                chunks.push(chunk);
            }
            if self.tap.backlog().has_gap {
                return Vec::new();
            }
            let hurried = self.shared.hurried.get() || self.shared.stopping.get();
            let wait = chunks.first().map(|oldest| self.time_left(oldest.sealed_at));
            if bytes >= self.options.object_bytes || hurried || wait == Some(Duration::ZERO) {
                self.shared.hurried.set(false);
                return chunks;
            }
            let changed = select(sealed, asked);
            match wait {
                Some(wait) => {
                    let timer = pin!(self.shared.handle.sleep(wait));
                    if let Either::Right(_) = select(changed, timer).await {}
                }
                None => drop(changed.await),
            }
        }
    }

    /// How long a chunk that was sealed then may wait for others.
    fn time_left(&self, sealed_at: Instant) -> Duration {
        let most = self.options.lag.mul_f64(0.6);
        most.saturating_sub(self.shared.handle.now().since(sealed_at))
    }

    async fn ship(&mut self, chunks: Vec<LogChunk>) -> Result<(), ReplicaError> {
        let Some(last) = chunks.last().map(|chunk| chunk.last_sequence) else { return Ok(()) };
        self.writer.begin(self.volume.position().generation).await?;
        let next = self.writer.state.end.next.first;
        if chunks.first().is_some_and(|chunk| chunk.first_sequence != next) {
            self.shared.is_catching_up.set(true);
            return Ok(());
        }
        let mut payload = Payload::default();
        for chunk in chunks {
            debug_assert_eq!(chunk.data.len() % BLOCK_BYTES, 0);
            payload.entries.extend_from_slice(&chunk.entries);
            payload.data.extend_from_slice(&chunk.data);
        }
        self.writer.append(payload, Role::Requests(last)).await?;
        self.tap.release(last);
        self.note();
        Ok(())
    }
}

/// Bytes that a store with the requests up to `last` may lack of what the volume has: all that it holds, or that many requests as the
/// store lacks can bring.
pub(crate) fn bytes_at_most(volume: &Volume, last: u64) -> u64 {
    let requests = volume.position().placed.saturating_sub(last);
    let Capabilities { max_transfer_blocks, max_share_blocks, .. } = volume.capabilities();
    let per_request = u64::from(*max_transfer_blocks.max(max_share_blocks));
    let blocks = volume.stats().live_blocks.min(requests.saturating_mul(per_request));
    blocks.max(1).saturating_mul(BLOCK_BYTES as u64)
}

impl Shared {
    /// Waits until it is given up; why the store has not taken everything by then.
    async fn until_given_up(&self) -> StoreError {
        while !self.given_up.get() {
            self.changed.listen().await;
        }
        let trouble = self.access.trouble();
        trouble.unwrap_or_else(|| StoreError::Unreachable("it has not taken everything in time".to_owned()))
    }
}

/// While it lives, no writer waits for the store.
#[must_use]
pub struct WritersReleased(Rc<LogTap>);

impl Drop for WritersReleased {
    fn drop(&mut self) {
        self.0.hold_writers();
    }
}

impl Replication {
    /// Taps a volume of which the store lacks this many bytes.
    pub(crate) fn begin(
        handle: &Handle,
        volume: &Rc<Volume>,
        (access, rules): (&Rc<Access>, Rules<ReplicaMutant>),
        (bounds, missing): (TapBounds, u64),
    ) -> Replication {
        let shared = Rc::new(Shared {
            handle: handle.clone(),
            shipped: Cell::default(),
            is_catching_up: Cell::new(missing > 0),
            gave_up: Cell::default(),
            requests: Cell::default(),
            failure: RefCell::default(),
            stopping: Cell::new(false),
            given_up: Cell::new(false),
            hurried: Cell::new(false),
            changed: Event::new(),
            access: Rc::clone(access),
            lag: bounds.time,
            rules,
        });
        let tap = Rc::new(volume.tap(bounds));
        if missing > 0 {
            tap.note_missing(missing);
        }
        Replication { shared, tap }
    }

    /// Does what ships the volume until it ends, or is given up. What the store does not answer, or refuses, is asked again, without end
    /// unless it `stops` when patience is over. An error is in the status, too: writers do not wait for the store then.
    pub(crate) async fn run(
        &self,
        stops: bool,
        shipping: impl Future<Output = Result<(), ReplicaError>>,
    ) -> Result<(), ReplicaError> {
        let Replication { shared, tap } = self;
        shared.access.repeat_refusals();
        if !stops {
            shared.access.set_patience(None);
        }
        let outcome = {
            let mut shipping = pin!(shipping.fuse());
            let mut given_up = pin!(shared.until_given_up().fuse());
            select_biased! {
                outcome = shipping => outcome,
                why = given_up => Err(why.into()),
            }
        };
        shared.requests.set(shared.access.requests());
        if let Err(failure) = &outcome {
            error!(name: "shipping_stopped", %failure, "nothing more is shipped to the store");
            shared.failure.replace(Some(failure.to_string()));
            tap.close();
        }
        shared.changed.notify(usize::MAX);
        outcome
    }

    /// How far the store is behind.
    #[must_use]
    pub fn status(&self) -> ReplicationStatus {
        let backlog = self.tap.backlog();
        let now = self.shared.handle.now();
        let lag = backlog.oldest.map_or(Duration::ZERO, |oldest| now.since(oldest));
        let stopped = self.shared.failure.borrow().is_some();
        let is_catching_up = self.shared.is_catching_up.get();
        let gave_up = backlog.has_gap || self.shared.gave_up.get();
        let overdue = stopped || gave_up || lag > self.shared.lag;
        let trouble = self.shared.failure.borrow().clone();
        let trouble = trouble.or_else(|| self.shared.access.trouble().map(|error| error.to_string()));
        ReplicationStatus {
            shipped: self.shared.shipped.get(),
            lag,
            lag_bytes: backlog.bytes + backlog.missing_bytes,
            behind: overdue || is_catching_up,
            overdue,
            requests: self.shared.access.requests(),
            longest_wait: self.shared.access.longest_wait(),
            trouble,
            stopped,
        }
    }

    /// Ships what is there, and ends then.
    pub fn stop(&self) {
        self.shared.stopping.set(true);
        self.shared.changed.notify(usize::MAX);
    }

    /// Has writers not wait for the store, however far it is behind: past the bound in bytes the backlog is given up.
    pub fn release_writers(&self) -> WritersReleased {
        self.tap.release_writers();
        WritersReleased(Rc::clone(&self.tap))
    }

    /// Ends shipping where it is.
    pub fn give_up(&self) {
        self.shared.given_up.set(true);
        self.shared.changed.notify(usize::MAX);
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.shared.handle
    }

    /// How long the oldest request to the store has been waiting for its answer.
    pub(crate) fn longest_wait(&self) -> Duration {
        self.shared.access.longest_wait()
    }

    /// Waits until the store has everything up to this request, which is durable here (R12).
    ///
    /// # Errors
    /// Why nothing more is shipped.
    pub async fn until_shipped(&self, sequence: u64) -> Result<(), String> {
        loop {
            let changed = self.shared.changed.listen();
            if self.shared.shipped.get() >= sequence
                || self.shared.rules.drops(ReplicaMutant::RemoteUnawaited)
            {
                return Ok(());
            }
            if let Some(failure) = &*self.shared.failure.borrow() {
                return Err(failure.clone());
            }
            if !self.shared.hurried.replace(true) {
                self.shared.changed.notify(usize::MAX);
            }
            changed.await;
        }
    }
}
