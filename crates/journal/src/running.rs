//! The running transaction: what handles change, until it is locked.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use weir_ext4::Checksums;
use weir_ext4::journal::Sequence;
use weir_format::FormatError;
use weir_runtime::Instant;
use weir_storage::Extent;

use crate::buffer::{BufferHead, Role};
use crate::transaction::{FrozenBlock, Locked, OrderedData};

/// The transaction that takes changes.
pub(crate) struct Running {
    sequence: Sequence,
    /// Handles that are open.
    handles: u32,
    /// Blocks that open handles may still change, by what they asked for.
    granted: u32,
    /// Nothing enters any more.
    locked: bool,
    /// A caller wants it committed.
    requested: bool,
    buffers: BTreeMap<u64, Rc<BufferHead>>,
    revokes: BTreeSet<u64>,
    /// By [`OrderedData::id`].
    data: BTreeMap<u64, Rc<dyn OrderedData>>,
    /// What it frees (J7).
    freed: Vec<Extent>,
    /// Blocks of files that it has allocated, where these are to be written in place (J10).
    fresh: BTreeSet<u64>,
    /// Blocks that it has changed while an earlier transaction held them, and which (J4, policy list).
    conflicts: BTreeMap<u64, Sequence>,
    /// Dirty pages were dropped since it takes their blocks away: a caller may wait for it already.
    drops_pages: bool,
    /// It is committed though it may have nothing to commit (J3).
    forced: bool,
    /// When the first change came.
    since: Option<Instant>,
}

impl Running {
    pub(crate) fn new(sequence: Sequence) -> Running {
        Running {
            sequence,
            handles: 0,
            granted: 0,
            locked: false,
            requested: false,
            buffers: BTreeMap::new(),
            revokes: BTreeSet::new(),
            data: BTreeMap::new(),
            freed: Vec::new(),
            fresh: BTreeSet::new(),
            conflicts: BTreeMap::new(),
            drops_pages: false,
            forced: false,
            since: None,
        }
    }

    /// Its number.
    pub(crate) fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// Nothing was changed, so there is nothing to commit.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffers.is_empty()
            && self.revokes.is_empty()
            && self.data.is_empty()
            && self.freed.is_empty()
            && !self.drops_pages
            && !self.forced
    }

    /// Blocks that it has changed.
    pub(crate) fn changed(&self) -> usize {
        self.buffers.len()
    }

    /// Blocks that it has changed, or whose change it has granted.
    pub(crate) fn changed_or_granted(&self) -> u32 {
        self.buffers.len() as u32 + self.granted
    }

    /// Blocks that it revokes.
    pub(crate) fn revoked(&self) -> usize {
        self.revokes.len()
    }

    /// Has it committed soon.
    pub(crate) fn request(&mut self) {
        self.requested = true;
    }

    /// It is committed, also if there is nothing to commit.
    pub(crate) fn force(&mut self) {
        self.forced = true;
    }

    /// Whether a caller wants it committed.
    pub(crate) fn is_requested(&self) -> bool {
        self.requested
    }

    /// When the first change came.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// Nothing enters any more.
    pub(crate) fn lock(&mut self) {
        self.locked = true;
    }

    /// Whether nothing enters any more.
    pub(crate) fn is_locked(&self) -> bool {
        self.locked
    }

    /// A handle may change `credits` blocks from now on; one that is not counted does not keep it open.
    pub(crate) fn open(&mut self, credits: u32, counted: bool) {
        self.granted += credits;
        self.handles += u32::from(counted);
    }

    /// A handle is closed that was counted: whether it was the last.
    pub(crate) fn close(&mut self) -> bool {
        self.handles -= 1;
        self.handles == 0
    }

    /// Whether handles are open.
    pub(crate) fn has_handles(&self) -> bool {
        self.handles > 0
    }

    /// Of what a handle was granted, it has used this, or gives it back.
    pub(crate) fn spend(&mut self, blocks: u32) {
        self.granted = self.granted.saturating_sub(blocks);
    }

    /// It changes now: whether this is its first change, from which its age counts.
    pub(crate) fn begin_change(&mut self, now: impl FnOnce() -> Instant) -> bool {
        let first = self.since.is_none();
        self.since.get_or_insert_with(now);
        first
    }

    /// Takes a buffer in, and says whether it is new. By the list (J4), one that a transaction holds which is not
    /// `released` is a conflict.
    pub(crate) fn enter(&mut self, buffer: &Rc<BufferHead>, released: Option<Sequence>) -> bool {
        if buffer.changed_in.replace(Some(self.sequence)) == Some(self.sequence) {
            return false;
        }
        if let Some(released) = released
            && let Some(holder) = buffer.held_by.get().filter(|holder| holder.is_after(released))
        {
            self.conflicts.insert(buffer.block(), holder);
        }
        buffer.pins.set(buffer.pins.get() + 1);
        // Changed again, it is to be replayed after all.
        self.revokes.remove(&buffer.block());
        if let Some(old) = self.buffers.insert(buffer.block(), Rc::clone(buffer)) {
            leave(&old);
        }
        true
    }

    /// Whether it has changed a block that a transaction holds which is not `released` (J4, policy list).
    pub(crate) fn has_conflict(&self, released: Sequence) -> bool {
        self.conflicts.values().any(|holder| holder.is_after(released))
    }

    /// A block is freed: it is not committed, should it have been changed.
    pub(crate) fn forget(&mut self, block: u64) {
        if let Some(buffer) = self.buffers.remove(&block) {
            leave(&buffer);
            self.conflicts.remove(&block);
        }
        self.fresh.remove(&block);
    }

    /// It has allocated blocks of a file, which are to be written in place.
    pub(crate) fn allocated(&mut self, blocks: Range<u64>) {
        self.fresh.extend(blocks);
    }

    /// Blocks of file data that it has changed, of those that are `wanted`.
    pub(crate) fn data_blocks(&self, wanted: impl Fn(u64) -> bool) -> u64 {
        let data = self.buffers.values().filter(|buffer| buffer.role() == Role::Data);
        data.filter(|buffer| wanted(buffer.block())).count() as u64
    }

    /// What the log holds of a block is not replayed (J5 d).
    pub(crate) fn revoke(&mut self, block: u64) {
        self.revokes.insert(block);
    }

    /// It takes blocks of dirty pages away: it is not empty from now on.
    pub(crate) fn drop_pages(&mut self) {
        self.drops_pages = true;
    }

    /// It frees blocks (J7).
    pub(crate) fn free(&mut self, extent: Extent) {
        self.freed.push(extent);
    }

    /// The file data that it refers to, if it is the transaction of that number.
    pub(crate) fn data_of(&self, sequence: Sequence) -> Vec<Rc<dyn OrderedData>> {
        if self.sequence == sequence { self.data.values().cloned().collect() } else { Vec::new() }
    }

    /// It refers to file data (J2).
    pub(crate) fn attach(&mut self, data: Rc<dyn OrderedData>) {
        self.data.insert(data.id(), data);
    }

    /// Takes out the blocks that are `wanted`, as they are now, sealed: they are not committed with it, unless they change again.
    pub(crate) fn take_blocks(
        &mut self,
        wanted: impl Fn(&BufferHead) -> bool,
        checksums: &Checksums,
    ) -> Result<Vec<FrozenBlock>, FormatError> {
        let mut taken = Vec::new();
        self.buffers.retain(|_, buffer| {
            let takes = wanted(buffer);
            if takes {
                taken.push(Rc::clone(buffer));
            }
            !takes
        });
        if self.is_empty() {
            // Its age counts from the next change.
            self.since = None;
        }
        taken.into_iter().map(|buffer| FrozenBlock::from_buffer(buffer, self.sequence, checksums)).collect()
    }

    /// What it commits: its blocks as they are now, sealed (J4).
    /// Data blocks that it has allocated are to be written in place.
    pub(crate) fn freeze(self, checksums: &Checksums) -> Result<Locked, FormatError> {
        let (mut frozen, mut in_place) = (Vec::with_capacity(self.buffers.len()), Vec::new());
        for buffer in self.buffers.into_values() {
            let fresh = buffer.role() == Role::Data && self.fresh.contains(&buffer.block());
            let to = if fresh { &mut in_place } else { &mut frozen };
            to.push(FrozenBlock::from_buffer(buffer, self.sequence, checksums)?);
        }
        Ok(Locked {
            sequence: self.sequence,
            frozen,
            in_place,
            revokes: self.revokes.into_iter().collect(),
            data: self.data.into_values().collect(),
            freed: self.freed,
        })
    }
}

/// A buffer leaves the running transaction without being committed. Should it come back, all of it is new to the log.
fn leave(buffer: &BufferHead) {
    buffer.mark_all_changed();
    buffer.changed_in.set(None);
    buffer.unpin();
}
