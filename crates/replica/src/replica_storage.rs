//! A state of a replica as a storage: blocks are read from the store when they are asked for, and each is compared with its
//! checksum (R9). The map of the state is in memory, so what it takes follows the blocks that are mapped, not the volume's size.
//!
//! The state is the one of the moment when it was opened. What the writer ships later is not seen. If the writer's collection
//! deletes an object meanwhile that the state needs, reads of its blocks fail, and the error names the object: nothing here keeps
//! it, since a reader writes nothing into the store.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use tracing::{debug, error};
use weir_runtime::{Buffer, Event, Handle};
use weir_storage::{
    BLOCK_BYTES, Capabilities, Command, CommandKind, Extent, Feature, Lba, Rejected, Rules, Storage,
    StorageError, Ticket,
};
use weir_volume::content_checksum;

use crate::access::Requests;
use crate::check::Fault;
use crate::error::{Defect, ReplicaError};
use crate::history::{History, Reached};
use crate::kept_state::WantedState;
use crate::key::LogPlace;
use crate::map::{Content, ReplicaMap};
use crate::mutants::ReplicaMutant;
use crate::object_source::{Failure, ObjectSource, Pieces};
use crate::piece_cache::PIECE_BLOCKS;
use crate::read_ahead::{AHEAD_MAX, ReadAhead};
use crate::reader::{ATTEMPTS, Replica};
use crate::store::StoreError;

/// Reads that are under way at most, and blocks of each.
const READS_MAX: u32 = 64;
const READ_BLOCKS_MAX: u32 = 256;
/// Parts of one read, in different objects, that are read at one time.
const PARTS_AT_ONCE: usize = 8;
/// Reads ahead that are under way at most.
const AHEAD_READS_MAX: u32 = 8;

/// Which state is read, and how that goes.
#[derive(Clone, Debug, Default)]
pub struct ReplicaReads {
    /// The state after this request.
    pub sequence: u64,
    /// When the newest object of it was made, in milliseconds of Unix time; 0 if it has none.
    pub created_ms: u64,
    /// Blocks that it has.
    pub mapped_blocks: u64,
    /// Bytes of objects in memory now, and at most.
    pub cache_bytes: u64,
    /// See there.
    pub cache_bytes_max: u64,
    /// Requests to the store so far.
    pub requests: Requests,
    /// Reads that failed.
    pub failed_reads: u64,
    /// Why the newest of them did.
    pub failure: Option<String>,
    /// How long the oldest request to the store has been waiting for its answer.
    pub longest_wait: Duration,
    /// Why the store is being asked again, or for how long it has not answered.
    pub trouble: Option<String>,
}

struct Inner {
    handle: Handle,
    map: ReplicaMap,
    source: ObjectSource,
    blocks: u64,
    mapped_blocks: u64,
    reached: Reached,
    rules: Rules<ReplicaMutant>,
    ahead: RefCell<ReadAhead>,
    ahead_reads: Cell<u32>,
    reads: Cell<u32>,
    slots: Event,
    failed_reads: Cell<u64>,
    failure: RefCell<Option<String>>,
}

/// A state of a replica, which is only read.
#[derive(Clone)]
pub struct ReplicaStorage {
    inner: Rc<Inner>,
    capabilities: Capabilities,
}

/// Blocks that follow each other, in the volume and in an object.
struct Run {
    start: Lba,
    object: u32,
    place: LogPlace,
    first_block: u32,
    checksums: Vec<u32>,
}

impl Replica {
    /// Opens a state to be read block by block, with at most so many bytes of objects in memory. Reads its map, and the log since
    /// the checkpoint before it.
    ///
    /// # Errors
    /// [`ReplicaError`]: what is missing or damaged, or why there is no such state.
    pub async fn open_storage(
        self,
        handle: &Handle,
        wanted: WantedState,
        cache_bytes: usize,
    ) -> Result<ReplicaStorage, ReplicaError> {
        let (map, reached) = self.read_map(wanted).await?;
        let blocks = self.descriptor().logical_blocks;
        let Replica { access, envelopes, options, .. } = self;
        let source = ObjectSource::new(access, envelopes, options.patience, cache_bytes);
        Ok(ReplicaStorage::new(handle, (map, reached), source, blocks, options.rules))
    }

    async fn read_map(&self, wanted: WantedState) -> Result<(ReplicaMap, Reached), ReplicaError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let mut history = History::new(self, wanted);
            match history.read_map().await {
                // What it read was collected meanwhile, and there is a newer checkpoint.
                Err(error) if error.is_missing() && attempt < ATTEMPTS => {}
                outcome => return outcome.map(|map| (map, history.reached)),
            }
        }
    }
}

impl ReplicaStorage {
    /// A state of a replica of so many blocks, which are read from `source`.
    pub(crate) fn new(
        handle: &Handle,
        (map, reached): (ReplicaMap, Reached),
        source: ObjectSource,
        blocks: u64,
        rules: Rules<ReplicaMutant>,
    ) -> ReplicaStorage {
        let inner = Inner {
            handle: handle.clone(),
            mapped_blocks: map.mapped(0, u64::MAX).count() as u64,
            map,
            source,
            blocks,
            reached,
            rules,
            ahead: RefCell::default(),
            ahead_reads: Cell::default(),
            reads: Cell::default(),
            slots: Event::new(),
            failed_reads: Cell::default(),
            failure: RefCell::default(),
        };
        let capabilities = Capabilities::legacy(READS_MAX, READ_BLOCKS_MAX, BLOCK_BYTES as u32);
        ReplicaStorage { inner: Rc::new(inner), capabilities }
    }

    /// From now on a store that does not answer is asked for so long, `None` for without end. So do reads that wait already.
    pub fn set_patience(&self, patience: Option<Duration>) {
        self.inner.source.set_patience(patience);
    }

    /// What is wrong with newer checkpoints that could not be read when it was opened: the log from an older one on took their place.
    #[must_use]
    pub fn passed_over(&self) -> &[Fault] {
        &self.inner.reached.passed_over
    }

    /// Which state it is, and how reading goes.
    #[must_use]
    pub fn reads(&self) -> ReplicaReads {
        let Inner { source, reached, mapped_blocks, .. } = &*self.inner;
        ReplicaReads {
            sequence: reached.sequence,
            created_ms: reached.created_ms,
            mapped_blocks: *mapped_blocks,
            cache_bytes: source.cache().bytes() as u64,
            cache_bytes_max: source.cache().bytes_max() as u64,
            requests: source.requests(),
            failed_reads: self.inner.failed_reads.get(),
            failure: self.inner.failure.borrow().clone(),
            longest_wait: source.longest_wait(),
            trouble: source.trouble().map(|error| error.to_string()),
        }
    }

    /// Bytes of memory that it takes at most: the map, the cache, and requests that are under way.
    #[must_use]
    pub fn memory_bound(&self) -> u64 {
        (self.inner.map.memory() + self.inner.source.memory_bound()) as u64
    }
}

impl Inner {
    /// The runs of blocks that an extent has; all others read zeros.
    fn runs(&self, first: u64, end: u64) -> Vec<Run> {
        let mapped: Vec<(u32, Content)> = self.map.mapped(first, end).collect();
        let follows = |a: &(u32, Content), b: &(u32, Content)| {
            a.0 + 1 == b.0 && a.1.object == b.1.object && a.1.block.checked_add(1) == Some(b.1.block)
        };
        let run = |run: &[(u32, Content)]| {
            let (lba, Content { object, block, .. }) = run[0];
            let checksums = run.iter().map(|(_, content)| content.checksum).collect();
            // There is no object at the default place: what is in none of the table cannot be had, and does not read zeros.
            let (start, place) = (Lba(u64::from(lba)), self.map.object(object).unwrap_or_default());
            Run { start, object, place, first_block: block, checksums }
        };
        mapped.chunk_by(follows).map(run).collect()
    }

    async fn read(&self, extent: Extent) -> Result<Buffer, StorageError> {
        let mut data = Buffer::new(extent.bytes());
        let runs = self.runs(extent.start.0, extent.end().0);
        let parts = stream::iter(runs).map(|run| async move { (run.start, self.read_run(&run).await) });
        let mut parts = std::pin::pin!(parts.buffer_unordered(PARTS_AT_ONCE));
        while let Some((start, part)) = parts.next().await {
            let part = part.map_err(|failure| self.note_failure(start, &failure))?;
            let at = (start.0 - extent.start.0) as usize * BLOCK_BYTES;
            data[at..at + part.len()].copy_from_slice(&part);
        }
        Ok(data)
    }

    /// The blocks of a run, each compared with its checksum (R9).
    async fn read_run(&self, run: &Run) -> Result<Vec<u8>, Failure> {
        let wanted = run.pieces();
        let pieces = match self.source.pieces(run.object, run.place, wanted.clone()).await {
            Err(failure) if failure.is_missing() && self.rules.drops(ReplicaMutant::MissingReadsZeros) => {
                return Ok(vec![0; run.checksums.len() * BLOCK_BYTES]);
            }
            pieces => pieces?,
        };
        if let Some(bytes) = self.proved(run, &pieces) {
            return Ok(bytes);
        }
        // A range that was damaged on its way, or an object that is another one. Read whole, it says what is wrong with it.
        let pieces = self.source.pieces_of_whole(run.object, run.place, wanted).await?;
        let damaged = || ReplicaError::Damaged { key: run.place.key(), defect: Defect::Names };
        self.proved(run, &pieces).ok_or_else(|| Rc::new(damaged()))
    }

    fn proved(&self, run: &Run, pieces: &Pieces) -> Option<Vec<u8>> {
        let bytes = run.cut(pieces)?;
        let mut blocks = bytes.chunks_exact(BLOCK_BYTES).zip(&run.checksums);
        let are_right = blocks.all(|(block, checksum)| content_checksum(block) == *checksum);
        (are_right || self.rules.drops(ReplicaMutant::BlockUnproved)).then_some(bytes)
    }

    /// Takes note of a read that fails, and says what its reader is told.
    fn note_failure(&self, at: Lba, failure: &ReplicaError) -> StorageError {
        let told = if failure.is_missing() {
            format!(
                "{failure}: what is mounted is not kept any more, since the writer deletes what is older than its --keep; mount \
                 a newer state"
            )
        } else {
            failure.to_string()
        };
        error!(
            name: "store_block_unreadable",
            block = at.0, failure = %told, "a block cannot be read from the store"
        );
        self.failed_reads.set(self.failed_reads.get() + 1);
        self.failure.replace(Some(told));
        let device = |cause| StorageError::Device { command: CommandKind::Read, at, cause };
        match failure {
            ReplicaError::Store(StoreError::Unreachable(_)) => device(std::io::ErrorKind::TimedOut),
            ReplicaError::Store(StoreError::Missing(_)) => device(std::io::ErrorKind::NotFound),
            ReplicaError::Store(_) => device(std::io::ErrorKind::Other),
            _ => StorageError::Damaged(at),
        }
    }

    /// Fetches what a reader in sequence will want.
    async fn read_ahead(&self, first: u64, end: u64) {
        for run in self.runs(first, end.min(self.blocks)) {
            if let Err(failure) = self.source.pieces(run.object, run.place, run.pieces()).await {
                // A read of these blocks requests them again, and returns the error.
                debug!(name: "store_read_ahead_failed", %failure, "what was to be read ahead cannot be had");
                return;
            }
        }
    }
}

impl Run {
    fn end_block(&self) -> u32 {
        self.first_block.saturating_add(self.checksums.len() as u32)
    }

    fn pieces(&self) -> std::ops::RangeInclusive<u32> {
        self.first_block / PIECE_BLOCKS..=(self.end_block() - 1) / PIECE_BLOCKS
    }

    /// Its blocks, of the pieces that they lie in; `None` if one is missing.
    fn cut(&self, pieces: &Pieces) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.checksums.len() * BLOCK_BYTES);
        let mut block = self.first_block;
        while block < self.end_block() {
            let (piece, within) = (block / PIECE_BLOCKS, block % PIECE_BLOCKS);
            let count = (PIECE_BLOCKS - within).min(self.end_block() - block);
            let start = within as usize * BLOCK_BYTES;
            bytes.extend_from_slice(pieces.get(&piece)?.get(start..start + count as usize * BLOCK_BYTES)?);
            block += count;
        }
        Some(bytes)
    }
}

impl Storage for ReplicaStorage {
    fn blocks(&self) -> u64 {
        self.inner.blocks
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        self.capabilities.check(&command, self.inner.blocks)?;
        let extent = match command {
            Command::Read { extent, .. } => extent,
            // Nothing was written.
            Command::Flush => return Ok(Ticket::done()),
            _ => return Err(Rejected::Unsupported(Feature::Changes)),
        };
        let inner = Rc::clone(&self.inner);
        if inner.reads.get() == READS_MAX {
            return Err(Rejected::Busy);
        }
        inner.reads.set(inner.reads.get() + 1);
        self.begin_read_ahead(extent);
        let (ticket, completer) = Ticket::pending();
        // Dropping a task lets it run on.
        drop(self.inner.handle.spawn(async move {
            match inner.read(extent).await {
                Ok(data) => {
                    completer.data(data);
                    completer.finish(Ok(()), Err(StorageError::DurabilityUnknown));
                }
                Err(error) => completer.transferred(Err(error)),
            }
            inner.reads.set(inner.reads.get() - 1);
            inner.slots.notify(usize::MAX);
        }));
        Ok(ticket)
    }

    fn slots(&self) -> &Event {
        &self.inner.slots
    }

    fn next_data(&self, from: Lba) -> Option<Lba> {
        let next = self.inner.map.mapped(from.0, self.inner.blocks).next();
        next.map(|(lba, _)| Lba(u64::from(lba)))
    }
}

impl ReplicaStorage {
    fn begin_read_ahead(&self, extent: Extent) {
        let Some(range) = self.inner.ahead.borrow_mut().note(extent) else { return };
        // More than a cache holds would be given up before it is wanted.
        let has_room = self.inner.source.cache().bytes_max() >= 2 * AHEAD_MAX as usize * BLOCK_BYTES;
        if !has_room || self.inner.ahead_reads.get() == AHEAD_READS_MAX {
            return;
        }
        let inner = Rc::clone(&self.inner);
        inner.ahead_reads.set(inner.ahead_reads.get() + 1);
        drop(self.inner.handle.spawn(async move {
            inner.read_ahead(range.start, range.end).await;
            inner.ahead_reads.set(inner.ahead_reads.get() - 1);
        }));
    }
}
