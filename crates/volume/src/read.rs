//! Reading: from the log's buffers while a block is there, otherwise from the disk below, always against
//! the checksum in the map.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use tracing::error;
use weir_runtime::Buffer;
use weir_storage::{
    BLOCK_BYTES, Command, Completer, Extent, Lba, StorageError, Ticket, read, submit_when_free,
};

use crate::base_storage::BaseStorage;
use crate::blocks::Blocks;
use crate::branches::{Branches, find_entry, pages_of_path};
use crate::common::{Common, failure};
use crate::layout::content_checksum;
use crate::log::Log;
use crate::map::Entry;
use crate::mutants::VolumeMutant;
use crate::pager::WhenFull;

/// Blocks whose failed reads are logged, each once.
const BLOCKS_LOGGED: usize = 100;

/// A block of a request that is on the disk below: its index in the request, and where it was when the read began.
type OnDisk = (usize, Entry);

/// The blocks of a request that are not in memory.
#[derive(Default)]
struct Missing {
    /// In the order of the disk below.
    on_disk: Vec<OnDisk>,
    /// Those that the base has: their indices in the request, in order (V12).
    in_base: Vec<usize>,
}

impl Missing {
    fn is_empty(&self) -> bool {
        self.on_disk.is_empty() && self.in_base.is_empty()
    }
}

/// Why a read failed.
#[derive(Clone, Copy)]
struct ReadFailure {
    error: StorageError,
    /// It was the base that failed it, which is no part of this volume.
    of_base: bool,
}

impl From<StorageError> for ReadFailure {
    fn from(error: StorageError) -> ReadFailure {
        ReadFailure { error, of_base: false }
    }
}

impl ReadFailure {
    fn of_base(error: StorageError) -> ReadFailure {
        ReadFailure { error, of_base: true }
    }
}

/// What a read wants: blocks of the volume, or of a snapshot or clone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    slot: u32,
    extent: Extent,
}

/// Reads blocks of an open volume.
pub(crate) struct Reader {
    common: Rc<Common>,
    blocks: Rc<RefCell<Blocks>>,
    log: Rc<Log>,
    branches: Rc<Branches>,
    base: Option<Rc<BaseStorage>>,
    under_way: Cell<u64>,
    /// What reads want that have not begun, as pages of the map are on their way.
    waiting: RefCell<Vec<Wanted>>,
    /// Logical blocks whose failed read is in the log.
    logged: RefCell<BTreeSet<u64>>,
}

impl Reader {
    pub(crate) fn new(log: Rc<Log>, branches: Rc<Branches>, base: Option<Rc<BaseStorage>>) -> Reader {
        let (common, blocks) = (Rc::clone(&log.common), Rc::clone(&log.blocks));
        let (under_way, waiting) = (Cell::new(0), RefCell::default());
        Reader { common, blocks, log, branches, base, under_way, waiting, logged: RefCell::default() }
    }

    /// Reads that wait for the disk below.
    pub(crate) fn under_way(&self) -> u64 {
        self.under_way.get()
    }

    /// Whether a read that was submitted before is still to look where one of these blocks is (S1): it waits for a page of
    /// the map.
    pub(crate) fn is_waiting_for(&self, slot: u32, changed: impl Fn(Extent) -> bool) -> bool {
        self.waiting.borrow().iter().any(|wanted| wanted.slot == slot && changed(wanted.extent))
    }

    /// Submits a read of a slot. What is in memory is copied now, if the map's pages are there; the rest is read by a task.
    pub(crate) fn submit(self: &Rc<Reader>, slot: u32, extent: Extent) -> Ticket {
        let wanted = Wanted { slot, extent };
        let mut data = Buffer::unfilled(extent.bytes());
        let begun = self.has_pages(wanted).then(|| self.copy_from_memory(wanted, &mut data));
        let (ticket, completer) = Ticket::pending();
        if begun.as_ref().is_some_and(Missing::is_empty) {
            complete(&completer, Ok(data));
            return ticket;
        }
        let reader = Rc::clone(self);
        self.under_way.set(self.under_way.get() + 1);
        if begun.is_none() {
            self.waiting.borrow_mut().push(wanted);
        }
        self.common.handle.spawn(async move {
            let outcome = match begun {
                Some(missing) => reader.read_missing(wanted, data, missing).await,
                None => reader.read_with_pages(wanted, data).await,
            };
            if let Err(failed) = outcome {
                reader.report(wanted, failed);
            }
            reader.under_way.set(reader.under_way.get() - 1);
            complete(&completer, outcome.map_err(|failed| failed.error));
            reader.common.slots.notify(usize::MAX);
        });
        ticket
    }

    fn has_pages(&self, Wanted { slot, extent }: Wanted) -> bool {
        let map = &self.blocks.borrow().map;
        let in_memory = |page| map.evicted(page).is_none();
        map.pages_evicted() == 0 || pages_of_path(&self.branches.path(slot), extent).all(in_memory)
    }

    /// Loads the pages of the map in which blocks are looked up.
    async fn load_pages(&self, Wanted { slot, extent }: Wanted) -> Result<(), StorageError> {
        let pages = |_: &Blocks| pages_of_path(&self.branches.path(slot), extent).collect();
        self.log.pager.load(WhenFull::Wait, pages).await.map_err(failure)
    }

    /// Reads where pages of the map are not in memory.
    async fn read_with_pages(&self, wanted: Wanted, mut data: Buffer) -> Result<Buffer, ReadFailure> {
        let loaded = self.load_pages(wanted).await;
        {
            let mut waiting = self.waiting.borrow_mut();
            waiting.iter().position(|other| *other == wanted).map(|i| waiting.swap_remove(i));
        }
        self.common.slots.notify(usize::MAX);
        loaded?;
        let missing = self.copy_from_memory(wanted, &mut data);
        self.read_missing(wanted, data, missing).await
    }

    /// Counts a failed read, and logs it if it is the first one of its block.
    fn report(&self, Wanted { slot, extent }: Wanted, ReadFailure { error, of_base }: ReadFailure) {
        let at = match error {
            StorageError::Damaged(lba) => lba,
            _ => extent.start,
        };
        self.common.count(|stats| {
            match error {
                _ if of_base => stats.failed_base_reads += 1,
                StorageError::Damaged(_) => stats.damaged_reads += 1,
                _ => stats.failed_reads += 1,
            }
            stats.first_failed = stats.first_failed.or((!of_base).then_some(at.0));
        });
        if of_base {
            // The base says itself why.
            return;
        }
        let mut logged = self.logged.borrow_mut();
        if logged.len() == BLOCKS_LOGGED || !logged.insert(at.0) {
            return;
        }
        let block = Wanted { slot, extent: Extent::new(at, 1) };
        let place = self.has_pages(block).then(|| self.entry(slot, at).block);
        match logged.len() {
            BLOCKS_LOGGED => {
                error!(
                    name: "block_unreadable",
                    block = at.0, ?place, %error, "a read failed; further failures are counted and not logged"
                )
            }
            _ => error!(name: "block_unreadable", block = at.0, ?place, %error, "a read failed"),
        }
    }

    /// Where a slot has a block, whose pages of the map are in memory.
    fn entry(&self, slot: u32, lba: Lba) -> Entry {
        find_entry(&self.blocks.borrow(), &self.branches.path(slot), lba.0 as u32)
    }

    /// Fills in what is in memory, and zeros for what nothing has, and lists the others.
    fn copy_from_memory(&self, Wanted { slot, extent }: Wanted, data: &mut Buffer) -> Missing {
        let (blocks, path) = (self.blocks.borrow(), self.branches.path(slot));
        let mut missing = Missing::default();
        for (i, lba) in extent.iter().enumerate() {
            let entry = find_entry(&blocks, &path, lba.0 as u32);
            let to = &mut data[i * BLOCK_BYTES..(i + 1) * BLOCK_BYTES];
            if !entry.is_known() && self.base.as_ref().is_some_and(|base| base.has(lba)) {
                missing.in_base.push(i);
            } else if !entry.is_mapped() {
                to.fill(0);
            } else if !self.log.copy_from_memory(entry.block, to) {
                missing.on_disk.push((i, entry));
            }
        }
        missing.on_disk.sort_unstable_by_key(|(_, entry)| entry.block);
        missing
    }

    /// Reads the runs of blocks that lie behind one another on the disk below, as many at one time as its queue takes.
    async fn read_missing(
        &self,
        wanted: Wanted,
        mut data: Buffer,
        Missing { on_disk, in_base }: Missing,
    ) -> Result<Buffer, ReadFailure> {
        let of_base = match &self.base {
            Some(base) => base.begin_reads(wanted.extent, &in_base).await.map_err(ReadFailure::of_base)?,
            None => Vec::new(),
        };
        let capabilities = self.common.disk.capabilities();
        let most = capabilities.max_transfer_blocks.max(1) as usize;
        let depth = capabilities.queue_depth.max(1) as usize;
        let follows = |before: &OnDisk, behind: &OnDisk| behind.1.block == before.1.block + 1;
        let mut under_way: VecDeque<(&[OnDisk], Ticket)> = VecDeque::new();
        for run in on_disk.chunk_by(follows).flat_map(|run| run.chunks(most)) {
            if under_way.len() == depth
                && let Some((run, ticket)) = under_way.pop_front()
            {
                self.take_run(wanted, run, &ticket, &mut data).await?;
            }
            let at = Extent::new(Lba(u64::from(run[0].1.block)), run.len() as u32);
            let ticket = submit_when_free(&*self.common.disk, Command::read(at)).await.map_err(failure)?;
            under_way.push_back((run, ticket));
        }
        for (run, ticket) in under_way {
            self.take_run(wanted, run, &ticket, &mut data).await?;
        }
        for (run, ticket) in of_base {
            ticket.transferred().await.map_err(ReadFailure::of_base)?;
            let to = &mut data[run.start * BLOCK_BYTES..run.end * BLOCK_BYTES];
            let found =
                ticket.take_data().filter(|found| found.len() == to.len()).ok_or(StorageError::Gone)?;
            to.copy_from_slice(&found);
        }
        Ok(data)
    }

    /// Waits for the read of a run, and puts its blocks into their places.
    async fn take_run(
        &self,
        Wanted { slot, extent }: Wanted,
        run: &[OnDisk],
        ticket: &Ticket,
        data: &mut Buffer,
    ) -> Result<(), StorageError> {
        ticket.transferred().await?;
        // Memory that it does not fill would hold what it held before.
        let is_whole = |found: &Buffer| found.len() == run.len() * BLOCK_BYTES;
        let found = ticket.take_data().filter(is_whole).ok_or(StorageError::Gone)?;
        for ((i, entry), block) in run.iter().zip(found.chunks_exact(BLOCK_BYTES)) {
            let to = &mut data[i * BLOCK_BYTES..(i + 1) * BLOCK_BYTES];
            if content_checksum(block) == entry.checksum || self.common.drops(VolumeMutant::ReadUnchecked) {
                to.copy_from_slice(block);
            } else {
                self.read_again(slot, extent.start.offset(*i as u64), *entry, to).await?;
            }
        }
        Ok(())
    }

    /// A block was not what the map said when the read began. Either it has moved since (overwritten or
    /// cleaned, its old place written again), or it is damaged.
    async fn read_again(
        &self,
        slot: u32,
        lba: Lba,
        mut tried: Entry,
        to: &mut [u8],
    ) -> Result<(), StorageError> {
        loop {
            self.load_pages(Wanted { slot, extent: Extent::new(lba, 1) }).await?;
            let entry = self.entry(slot, lba);
            if entry == tried {
                return Err(StorageError::Damaged(lba));
            }
            if !entry.is_mapped() {
                to.fill(0);
                return Ok(());
            }
            if self.log.copy_from_memory(entry.block, to) {
                return Ok(());
            }
            let found = read(&*self.common.disk, Extent::new(Lba(u64::from(entry.block)), 1))
                .await
                .map_err(failure)?;
            if content_checksum(&found) == entry.checksum {
                to.copy_from_slice(&found);
                return Ok(());
            }
            tried = entry;
        }
    }
}

fn complete(completer: &Completer, outcome: Result<Buffer, StorageError>) {
    match outcome {
        Ok(data) => {
            completer.data(data);
            completer.finish(Ok(()), Ok(()));
        }
        Err(error) => completer.finish(Err(error), Err(error)),
    }
}
