//! The log: where the journal's blocks are on disk, and what of it is in use.

use std::collections::VecDeque;
use std::rc::Rc;

use weir_ext4::journal::{JournalSuperblock, LogRing, Sequence};
use weir_ext4::{BLOCK_BYTES, FormatError};
use weir_runtime::Buffer as Memory;

use crate::encoding::{Composed, LogEncoding};
use crate::transaction::{Locked, Logged};

/// Consecutive blocks of the journal, on consecutive blocks of the filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalExtent {
    /// The first block, counted from the journal's start.
    pub first: u32,
    /// Where that is in the filesystem.
    pub start: u64,
    /// How many.
    pub blocks: u32,
}

impl JournalExtent {
    /// Where a block of the journal is in the filesystem.
    pub(crate) fn find(area: &[JournalExtent], block: u32) -> Option<u64> {
        let behind = area.partition_point(|extent| extent.first <= block);
        let extent = area.get(behind.checked_sub(1)?)?;
        let within = Some(block - extent.first).filter(|within| *within < extent.blocks)?;
        Some(extent.start + u64::from(within))
    }
}

/// A transaction that is in the log, transferred, and not all home.
#[derive(Clone, Copy)]
pub(crate) struct Retired {
    pub(crate) sequence: Sequence,
    /// Where the log's tail is when this and all before it are home.
    pub(crate) log_end: u32,
}

/// The journal's ring of blocks.
pub(crate) struct Log {
    area: Vec<JournalExtent>,
    superblock: JournalSuperblock,
    encoding: LogEncoding,
    ring: LogRing,
    /// Where the oldest transaction begins that is not all home.
    tail: u32,
    /// Where the next one is written.
    head: u32,
    retired: VecDeque<Retired>,
}

impl Log {
    /// An empty log.
    pub(crate) fn new(superblock: JournalSuperblock, area: Vec<JournalExtent>) -> Log {
        let ring = superblock.ring();
        let encoding = LogEncoding::new(superblock.format());
        let (tail, head) = (ring.first(), ring.first());
        Log { area, superblock, encoding, ring, tail, head, retired: VecDeque::new() }
    }

    /// Blocks that it has.
    pub(crate) fn blocks(&self) -> u32 {
        self.ring.blocks()
    }

    /// Blocks in use.
    pub(crate) fn used(&self) -> u32 {
        self.ring.used(self.tail, self.head)
    }

    /// Blocks that can be written without touching what is still needed.
    pub(crate) fn free(&self) -> u32 {
        self.ring.free(self.tail, self.head)
    }

    /// Blocks that a transaction takes at most.
    pub(crate) fn blocks_for(&self, changed: usize, revoked: usize) -> u32 {
        self.encoding.blocks_for(changed, revoked)
    }

    /// Blocks that a transaction may change at most, if the log is empty, and it revokes some.
    pub(crate) fn most_credits(&self) -> u32 {
        let fits = |changed: &u32| self.blocks_for(*changed as usize, 1) < self.blocks();
        (0..self.blocks()).rev().find(fits).unwrap_or(0)
    }

    /// Gives a transaction its place at the log's head, and says what is to be written there. The head moves on.
    pub(crate) fn append(
        &mut self,
        locked: Locked,
        unix_millis: u64,
    ) -> Result<(Composed, Logged), FormatError> {
        let mut head = self.head;
        let (composed, blocks) = self.encoding.compose(&locked, unix_millis, || {
            let place = head;
            head = self.ring.advance(place, 1);
            JournalExtent::find(&self.area, place)
                .ok_or(FormatError::Invalid { what: "the journal is shorter than it says" })
        })?;
        self.head = head;
        let Locked { sequence, revokes, data, freed, .. } = locked;
        Ok((composed, Logged { sequence, blocks, revokes, data, freed, log_end: head }))
    }

    /// A transaction in it is transferred: its blocks may go home.
    pub(crate) fn retire(&mut self, logged: &Logged) {
        self.retired.push_back(Retired { sequence: logged.sequence, log_end: logged.log_end });
    }

    /// The newest transaction whose blocks may go home, unless all are home.
    pub(crate) fn newest_retired(&self) -> Option<Retired> {
        self.retired.back().copied()
    }

    /// A transaction and all before it are home, and the tail on disk says so: their space is free.
    pub(crate) fn free_to(&mut self, newest: Retired) {
        while self.retired.front().is_some_and(|retired| !retired.sequence.is_after(newest.sequence)) {
            self.retired.pop_front();
        }
        self.tail = newest.log_end;
    }

    /// Where the oldest transaction begins that is not all home.
    pub(crate) fn tail(&self) -> u32 {
        self.tail
    }

    /// Block 0 of the journal, and where it is, with the tail at `tail`, or none if the log is empty.
    pub(crate) fn superblock(
        &mut self,
        tail: Option<u32>,
        sequence: Sequence,
    ) -> Result<(u64, Rc<Memory>), FormatError> {
        self.superblock.set_tail(tail, sequence);
        let mut bytes = [0; BLOCK_BYTES];
        self.superblock.encode(&mut bytes);
        let home = JournalExtent::find(&self.area, 0)
            .ok_or(FormatError::Invalid { what: "a journal without blocks" })?;
        Ok((home, Rc::new(Memory::copy_of(&bytes))))
    }
}
