//! The log: where the journal's blocks are on disk, and what of it is in use.

use std::collections::VecDeque;
use std::rc::Rc;

use weir_ext4::journal::{JournalSuperblock, LogFeatures, LogRing, Sequence};
use weir_format::{BLOCK_BYTES, FormatError};
use weir_runtime::Buffer as Memory;

use crate::encoding::{Composed, LogEncoding};
use crate::integrity::HomeIntegrity;
use crate::mutants::{JournalMutant, JournalRules};
use crate::transaction::{FrozenBlock, Locked, Logged};

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
    integrity: HomeIntegrity,
    rules: JournalRules,
    ring: LogRing,
    /// Where the oldest transaction begins that is not all home.
    tail: u32,
    /// Where the next one is written.
    head: u32,
    retired: VecDeque<Retired>,
    /// The newest transaction that has its place.
    newest: Sequence,
    /// Checkpoints that have begun, and one: what the log took of a block before the last of them does not stay in it.
    checkpoints: u64,
    /// Blocks that may be in use.
    most: u32,
    /// Blocks that a transaction which is locked takes, and has not got.
    reserved: u32,
}

impl Log {
    /// An empty log, of which at most so many blocks are used at a time.
    pub(crate) fn new(
        superblock: JournalSuperblock,
        area: Vec<JournalExtent>,
        most: u32,
        integrity: HomeIntegrity,
        rules: JournalRules,
    ) -> Log {
        let ring = superblock.ring();
        let encoding = LogEncoding::new(superblock.format(), rules);
        let (tail, head) = (ring.first(), ring.first());
        let before = Sequence(superblock.sequence().0.wrapping_sub(1));
        Log {
            area,
            superblock,
            encoding,
            integrity,
            rules,
            ring,
            tail,
            head,
            retired: VecDeque::new(),
            newest: before,
            checkpoints: 1,
            most,
            reserved: 0,
        }
    }

    /// Whether the log holds changes of blocks, and not only blocks.
    pub(crate) fn has_coalition(&self) -> bool {
        self.superblock.format().features.coalition
    }

    /// What keeps the homes of blocks whole of which it holds changes alone.
    pub(crate) fn integrity(&self) -> HomeIntegrity {
        self.integrity
    }

    /// Where its blocks are.
    pub(crate) fn area(&self) -> &[JournalExtent] {
        &self.area
    }

    /// Blocks that may be in use.
    pub(crate) fn blocks(&self) -> u32 {
        self.ring.blocks().min(self.most)
    }

    /// Blocks in use.
    pub(crate) fn used(&self) -> u32 {
        self.ring.used(self.tail, self.head)
    }

    /// Blocks that can be written without touching what is still needed.
    pub(crate) fn free(&self) -> u32 {
        let unused = self.ring.blocks() - self.blocks();
        self.ring.free(self.tail, self.head).saturating_sub(unused)
    }

    /// A transaction that is locked takes so many blocks at most, as soon as it gets its place.
    pub(crate) fn reserve(&mut self, blocks: u32) {
        self.reserved = blocks;
    }

    /// Blocks that a transaction which is locked takes, and has not got.
    pub(crate) fn reserved(&self) -> u32 {
        self.reserved
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
        let needs_copy = |block: &FrozenBlock| self.needs_copy(block);
        let (composed, blocks) = self.encoding.compose(&locked, unix_millis, needs_copy, || {
            let place = head;
            head = self.ring.advance(place, 1);
            JournalExtent::find(&self.area, place)
                .ok_or(FormatError::Invalid { what: "the journal is shorter than it says" })
        })?;
        self.head = head;
        self.newest = locked.sequence;
        self.reserved = 0;
        for block in blocks.iter().filter(|block| block.at.is_some()) {
            block.buffer.logged_whole.set(self.checkpoints);
        }
        let Locked { sequence, revokes, data, freed, in_place, .. } = locked;
        let in_place = in_place.into_iter().map(|block| block.buffer).collect();
        Ok((composed, Logged { sequence, blocks, in_place, revokes, data, freed, log_end: head }))
    }

    /// Whether the log has to hold all of a block, whatever has changed of it: if damage of its home is made up for by the
    /// log, and what that holds of it is about to leave it.
    fn needs_copy(&self, block: &FrozenBlock) -> bool {
        self.integrity == HomeIntegrity::LoggedWhole
            && block.buffer.logged_whole.get() != self.checkpoints
            && !self.rules.drops(JournalMutant::ChangesLoggedFirst)
    }

    /// A checkpoint begins. Where it has to be so that later transactions find no block whole in the log that leaves it,
    /// the newest transaction that has its place: the checkpoint covers exactly what came until then.
    pub(crate) fn covers_exactly(&mut self) -> Option<Sequence> {
        let exact = self.has_coalition() && self.integrity == HomeIntegrity::LoggedWhole;
        (exact && !self.rules.drops(JournalMutant::CheckpointCoversMore)).then(|| {
            self.checkpoints += 1;
            self.newest
        })
    }

    /// A transaction that may go home.
    pub(crate) fn retired(&self, sequence: Sequence) -> Option<Retired> {
        self.retired.iter().find(|retired| retired.sequence == sequence).copied()
    }

    /// A transaction in it is transferred: its blocks may go home.
    pub(crate) fn retire(&mut self, logged: &Logged) {
        self.retired.push_back(Retired { sequence: logged.sequence, log_end: logged.log_end });
    }

    /// The newest transaction whose blocks may go home, unless all are home.
    pub(crate) fn newest_retired(&self) -> Option<Retired> {
        self.retired.back().copied()
    }

    /// The oldest transaction whose blocks may go home, unless all are home.
    pub(crate) fn oldest_retired(&self) -> Option<Retired> {
        self.retired.front().copied()
    }

    /// The newest transaction that may leave the log, if that `keeps` none up to it.
    pub(crate) fn newest_not_kept(&self, keeps: impl Fn(Sequence) -> bool) -> Option<Retired> {
        self.retired.iter().take_while(|retired| !keeps(retired.sequence)).last().copied()
    }

    /// Blocks that are free when a transaction and all before it have left the log.
    pub(crate) fn freed_by(&self, newest: Retired) -> u32 {
        self.ring.used(self.tail, newest.log_end)
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
        set_tail(&mut self.superblock, tail, sequence, self.rules)?;
        let mut bytes = [0; BLOCK_BYTES];
        self.superblock.encode(&mut bytes);
        let home = JournalExtent::find(&self.area, 0)
            .ok_or(FormatError::Invalid { what: "a journal without blocks" })?;
        Ok((home, Rc::new(Memory::copy_of(&bytes))))
    }
}

/// Says in the journal's superblock where the log begins, or that it is empty; an empty journal is as jbd2 has it, without
/// features of ours (J5 (e)).
pub(crate) fn set_tail(
    superblock: &mut JournalSuperblock,
    tail: Option<u32>,
    sequence: Sequence,
    rules: JournalRules,
) -> Result<(), FormatError> {
    superblock.set_tail(tail, sequence);
    if tail.is_some() || rules.drops(JournalMutant::FeaturesStay) {
        return Ok(());
    }
    superblock.set_features(LogFeatures::default())
}
