//! The *source* of blocks for a mounted replica: objects of the log, read by pieces, which are kept in memory.
//!
//! - **A plain object** is read by ranges: each block is proved by the content checksum that the map has for it. What proves the
//!   object is the hash of all its bytes, so its head, which says where the blocks are, is unproved; if it is wrong, so are the
//!   blocks, and the object is read whole, which names what is wrong with it.
//! - **A packed object**, compressed or encrypted, is one LZ4 block or one message of AES-GCM: no part of it can be made out or
//!   authenticated without the rest. It is read whole (some MiB), and kept by pieces as the others are.
//! - An object is asked for once at a time; others that want something of it wait for that.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use weir_runtime::{Event, Semaphore};
use weir_storage::BLOCK_BYTES;

use crate::access::{Access, Requests};
use crate::envelope::Envelopes;
use crate::error::ReplicaError;
use crate::key::LogPlace;
use crate::log_object::{HEAD_BYTES, LogObject, Shape};
use crate::piece_cache::{PIECE_BLOCKS, PIECE_BYTES, Piece, PieceCache, PieceId};
use crate::store::StoreError;

/// Bytes of requests that are under way, at most. An object that is read whole counts as all of them: its bytes, decrypted,
/// decompressed, and cut into pieces, of up to 16 MiB each.
const UNDER_WAY_BYTES: usize = 64 << 20;

/// Why pieces cannot be had; all who waited for them get it.
pub(crate) type Failure = Rc<ReplicaError>;

/// Pieces of one object.
pub(crate) type Pieces = BTreeMap<u32, Piece>;

/// A request for an object that is under way.
#[derive(Default)]
struct UnderWay {
    ended: Event,
    failure: RefCell<Option<Failure>>,
    is_over: Cell<bool>,
}

/// The objects that a map names.
pub(crate) struct ObjectSource {
    access: Access,
    envelopes: Envelopes,
    patience: Cell<Option<Duration>>,
    cache: PieceCache,
    shapes: RefCell<BTreeMap<u32, Shape>>,
    under_way: RefCell<BTreeMap<u32, Rc<UnderWay>>>,
    budget: Semaphore,
    /// The newest object of unknown shape was packed: the next one is taken to be, too, and read by one request, not by two.
    expects_packed: Cell<bool>,
}

impl ObjectSource {
    /// With a cache of so many bytes.
    pub(crate) fn new(
        access: Access,
        envelopes: Envelopes,
        patience: Option<Duration>,
        cache_bytes: usize,
    ) -> ObjectSource {
        let expects_packed = Cell::new(envelopes.has_key());
        ObjectSource {
            access,
            envelopes,
            patience: Cell::new(patience),
            cache: PieceCache::new(cache_bytes),
            shapes: RefCell::default(),
            under_way: RefCell::default(),
            budget: Semaphore::new(UNDER_WAY_BYTES / PIECE_BYTES),
            expects_packed,
        }
    }

    pub(crate) fn cache(&self) -> &PieceCache {
        &self.cache
    }

    /// Bytes of memory at most, but for what it knows of each object.
    pub(crate) fn memory_bound(&self) -> usize {
        self.cache.bytes_max() + UNDER_WAY_BYTES
    }

    /// How long a store that does not answer is asked, also by requests that are under way.
    pub(crate) fn set_patience(&self, patience: Option<Duration>) {
        self.patience.set(patience);
        self.access.reset_patience(patience);
    }

    pub(crate) fn requests(&self) -> Requests {
        self.access.requests()
    }

    /// How long the oldest request has been waiting for its answer.
    pub(crate) fn longest_wait(&self) -> Duration {
        self.access.longest_wait()
    }

    /// Why the store is being asked again, or for how long it has not answered.
    pub(crate) fn trouble(&self) -> Option<StoreError> {
        self.access.trouble()
    }

    /// Pieces of the object with this number, which is at this place.
    pub(crate) async fn pieces(
        &self,
        number: u32,
        place: LogPlace,
        wanted: RangeInclusive<u32>,
    ) -> Result<Pieces, Failure> {
        loop {
            let mut found = Pieces::new();
            for piece in wanted.clone() {
                found.extend(self.cache.get(PieceId { object: number, piece }).map(|data| (piece, data)));
            }
            let mut missing = wanted.clone().filter(|piece| !found.contains_key(piece));
            let Some(first) = missing.next() else { return Ok(found) };
            let missing = first..=missing.next_back().unwrap_or(first);
            if self.wait_for_other(number).await? {
                continue;
            }
            found.extend(self.alone(number, self.fetch(number, place, missing)).await?);
            return Ok(found);
        }
    }

    /// The same, of the object as a whole, whatever is in memory.
    pub(crate) async fn pieces_of_whole(
        &self,
        number: u32,
        place: LogPlace,
        wanted: RangeInclusive<u32>,
    ) -> Result<Pieces, Failure> {
        while self.wait_for_other(number).await? {}
        self.alone(number, self.fetch_whole(number, place, wanted)).await
    }

    /// Waits for the request for an object that is under way; whether there was one.
    async fn wait_for_other(&self, number: u32) -> Result<bool, Failure> {
        let other = self.under_way.borrow().get(&number).cloned();
        match other {
            Some(other) => until_over(&other).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Carries out a request for an object, alone, and tells the outcome to those who wait. While the store does not answer it is
    /// asked as long as the options say, and from then on once for each read, so that no program waits long for an error.
    async fn alone(
        &self,
        number: u32,
        request: impl Future<Output = Result<Pieces, ReplicaError>>,
    ) -> Result<Pieces, Failure> {
        let under_way = Rc::new(UnderWay::default());
        self.under_way.borrow_mut().insert(number, Rc::clone(&under_way));
        let outcome = request.await.map_err(Rc::new);
        match &outcome {
            Ok(_) => self.access.set_patience(self.patience.get()),
            Err(failure) => {
                if matches!(**failure, ReplicaError::Store(StoreError::Unreachable(_))) {
                    self.access.set_patience(Some(Duration::ZERO));
                }
                under_way.failure.replace(Some(Rc::clone(failure)));
            }
        }
        self.under_way.borrow_mut().remove(&number);
        under_way.is_over.set(true);
        under_way.ended.notify(usize::MAX);
        outcome
    }

    async fn fetch(
        &self,
        number: u32,
        place: LogPlace,
        wanted: RangeInclusive<u32>,
    ) -> Result<Pieces, ReplicaError> {
        let known = self.shapes.borrow().get(&number).copied();
        let shape = match known {
            Some(shape) => Some(shape),
            None if self.expects_packed.get() => Some(Shape::Packed),
            None => self.read_shape(number, place).await?,
        };
        if let Some(Shape::Plain { data_at, blocks }) = shape
            && let Some(pieces) = self.fetch_range(number, place, wanted.clone(), (data_at, blocks)).await?
        {
            return Ok(pieces);
        }
        self.fetch_whole(number, place, wanted).await
    }

    /// What the head of an object says; `None` if that makes no sense.
    async fn read_shape(&self, number: u32, place: LogPlace) -> Result<Option<Shape>, ReplicaError> {
        let _permit = self.budget.acquire(1).await;
        match self.access.get_range(&place.key(), 0..HEAD_BYTES as u64).await {
            Ok(head) => Ok(self.note_shape(number, &head)),
            Err(StoreError::Refused(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn note_shape(&self, number: u32, head: &[u8]) -> Option<Shape> {
        let shape = Shape::from_head(head)?;
        // With a key, an object that is not encrypted is an error, which reading it whole tells.
        let shape = if self.envelopes.has_key() { Shape::Packed } else { shape };
        self.expects_packed.set(shape == Shape::Packed);
        self.shapes.borrow_mut().insert(number, shape);
        Some(shape)
    }

    /// Pieces of a plain object in one request; `None` if it has not all of them.
    async fn fetch_range(
        &self,
        number: u32,
        place: LogPlace,
        wanted: RangeInclusive<u32>,
        (data_at, blocks): (u64, u32),
    ) -> Result<Option<Pieces>, ReplicaError> {
        let (first, end) = (wanted.start().saturating_mul(PIECE_BLOCKS), wanted.end().saturating_add(1));
        let end = end.saturating_mul(PIECE_BLOCKS).min(blocks);
        if first >= end {
            return Ok(None);
        }
        let pieces = (end - first).div_ceil(PIECE_BLOCKS) as usize;
        let _permit = self.budget.acquire(pieces.min(UNDER_WAY_BYTES / PIECE_BYTES)).await;
        let at = |block: u32| data_at + u64::from(block) * BLOCK_BYTES as u64;
        match self.access.get_range(&place.key(), at(first)..at(end)).await {
            Ok(bytes) => Ok(Some(self.keep(number, *wanted.start(), &bytes))),
            Err(StoreError::Refused(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads an object whole, and verifies it (R5).
    async fn fetch_whole(
        &self,
        number: u32,
        place: LogPlace,
        wanted: RangeInclusive<u32>,
    ) -> Result<Pieces, ReplicaError> {
        let _permit = self.budget.acquire(UNDER_WAY_BYTES / PIECE_BYTES).await;
        let bytes = self.access.get(&place.key()).await?;
        self.note_shape(number, &bytes);
        let (object, _) = LogObject::decode_in_thread(&self.envelopes, place, bytes).await?;
        let bytes_of = |pieces: RangeInclusive<u32>| {
            let start = (*pieces.start() as usize * PIECE_BYTES).min(object.data.len());
            let end = (*pieces.end() as usize + 1).saturating_mul(PIECE_BYTES).min(object.data.len());
            &object.data[start..end.max(start)]
        };
        let count = object.data.len().div_ceil(PIECE_BYTES) as u32;
        if self.cache.bytes_max() >= object.data.len() {
            self.keep(number, 0, bytes_of(0..=count));
        }
        // Behind the others, so that they stay.
        Ok(self.keep(number, *wanted.start(), bytes_of(wanted)))
    }

    /// Keeps pieces in memory, of which the first is this one.
    fn keep(&self, number: u32, first: u32, bytes: &[u8]) -> Pieces {
        let pieces = (first..).zip(bytes.chunks(PIECE_BYTES).map(Piece::from));
        let pieces: Pieces = pieces.collect();
        for (piece, data) in &pieces {
            self.cache.insert(PieceId { object: number, piece: *piece }, Rc::clone(data));
        }
        pieces
    }
}

/// Waits for a request of another read, and fails if that does.
async fn until_over(other: &UnderWay) -> Result<(), Failure> {
    while !other.is_over.get() {
        let ended = other.ended.listen();
        ended.await;
    }
    let failure = other.failure.borrow().clone();
    failure.map_or(Ok(()), Err)
}
