//! The cache of buffers. What the journal still needs stays; of the rest, what was used longest ago goes first.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use event_listener::Event;
use weir_ext4::{Checksums, Kind};
use weir_format::FormatError;
use weir_runtime::Buffer as Memory;
use weir_storage::BLOCK_BYTES;

use crate::buffer::{BufferHead, Role};
use crate::disk::Disk;
use crate::error::JournalError;

/// Uses that one use looks at, to make room: more than one, so that the cache shrinks again.
const LOOKED_AT: usize = 8;

/// What the cache has of a block.
enum CacheSlot {
    /// A task reads it.
    Loading,
    Here {
        buffer: Rc<BufferHead>,
        /// When it was used last, as a count of uses.
        used: u64,
    },
}

#[derive(Default)]
struct State {
    places: BTreeMap<u64, CacheSlot>,
    /// Uses in order, with the block used; those that are not its latest are skipped.
    uses: VecDeque<(u64, u64)>,
    next_use: u64,
}

/// All buffers in memory.
pub struct Buffers {
    disk: Rc<Disk>,
    checksums: Checksums,
    limit: usize,
    state: RefCell<State>,
    loaded: Event,
}

impl Buffers {
    /// An empty cache of at most `limit` blocks, beside those that the journal needs.
    pub fn new(disk: Rc<Disk>, checksums: Checksums, limit: usize) -> Rc<Buffers> {
        Rc::new(Buffers { disk, checksums, limit, state: RefCell::default(), loaded: Event::new() })
    }

    /// How blocks are sealed.
    pub fn checksums(&self) -> &Checksums {
        &self.checksums
    }

    /// The buffer of a block, read and verified if it is not here. Blocks that share their checksums' place with
    /// others (descriptors, inodes, bitmaps) are verified by the code that reads them.
    pub async fn get(&self, block: u64, kind: Kind) -> Result<Rc<BufferHead>, JournalError> {
        self.get_verified(block, kind, |_| Ok(())).await
    }

    /// The same, for a block that carries no checksum of its own: if it is read, `verify` looks at it first.
    pub async fn get_verified(
        &self,
        block: u64,
        kind: Kind,
        verify: impl FnOnce(&[u8]) -> Result<(), FormatError>,
    ) -> Result<Rc<BufferHead>, JournalError> {
        loop {
            if let Some(found) = self.find(block) {
                match found {
                    Some(buffer) => return Ok(buffer),
                    None => self.loaded.listen().await,
                }
                continue;
            }
            let loading = Loading { buffers: self, block };
            self.state.borrow_mut().places.insert(block, CacheSlot::Loading);
            let memory = self.disk.read(block, 1).await?;
            self.checksums.verify(kind, block, &memory)?;
            verify(&memory)?;
            drop(loading);
            let buffer = BufferHead::new(block, Role::Metadata(kind), memory);
            self.insert(&buffer);
            return Ok(buffer);
        }
    }

    /// A buffer of zeros for a block that was just allocated; what was there before does not matter.
    pub fn fresh(&self, block: u64, role: Role) -> Rc<BufferHead> {
        if let Some(Some(buffer)) = self.find(block) {
            buffer.turn_into(role);
            return buffer;
        }
        let buffer = BufferHead::new(block, role, Memory::new(BLOCK_BYTES));
        buffer.mark_all_changed();
        self.insert(&buffer);
        buffer
    }

    /// The buffer of a block, if it is here.
    pub fn cached(&self, block: u64) -> Option<Rc<BufferHead>> {
        self.find(block).flatten()
    }

    /// `Some(None)` for one that is being read.
    fn find(&self, block: u64) -> Option<Option<Rc<BufferHead>>> {
        let mut state = self.state.borrow_mut();
        let now = state.next_use;
        let found = match state.places.get_mut(&block)? {
            CacheSlot::Loading => return Some(None),
            CacheSlot::Here { buffer, used } => {
                *used = now;
                Rc::clone(buffer)
            }
        };
        state.next_use += 1;
        state.uses.push_back((now, block));
        self.make_room(&mut state);
        Some(Some(found))
    }

    fn insert(&self, buffer: &Rc<BufferHead>) {
        let mut state = self.state.borrow_mut();
        let now = state.next_use;
        state.next_use += 1;
        state.uses.push_back((now, buffer.block()));
        state.places.insert(buffer.block(), CacheSlot::Here { buffer: Rc::clone(buffer), used: now });
        self.make_room(&mut state);
    }

    /// Forgets what was used longest ago and no caller needs, as far as there is too much, and returns how many uses it
    /// has looked at. These are few: a large transaction may need more blocks than the cache is to hold, and nothing can
    /// be forgotten then. Later uses look at the others.
    fn make_room(&self, state: &mut State) -> usize {
        for looked_at in 0..state.uses.len().min(LOOKED_AT) {
            if state.places.len() <= self.limit && state.uses.len() <= 4 * self.limit.max(16) {
                return looked_at;
            }
            let Some((at, block)) = state.uses.pop_front() else { return looked_at };
            let Some(CacheSlot::Here { buffer, used }) = state.places.get(&block) else { continue };
            if *used != at {
                continue;
            }
            let needed = buffer.pins.get() > 0 || Rc::strong_count(buffer) > 1;
            if needed || state.places.len() <= self.limit {
                state.uses.push_back((at, block));
            } else {
                state.places.remove(&block);
            }
        }
        LOOKED_AT
    }

    /// Forgets a block that was freed. The journal keeps what it needs of it.
    pub fn forget(&self, block: u64) {
        let mut state = self.state.borrow_mut();
        if matches!(state.places.get(&block), Some(CacheSlot::Here { .. })) {
            state.places.remove(&block);
        }
    }

    /// Forgets what is here of file data in a range of blocks. The journal keeps what it needs of it.
    pub fn forget_data(&self, blocks: Range<u64>) {
        let mut state = self.state.borrow_mut();
        let is_data =
            |slot: &CacheSlot| matches!(slot, CacheSlot::Here { buffer, .. } if buffer.role() == Role::Data);
        let here = state.places.range(blocks).filter(|(_, slot)| is_data(slot));
        for block in here.map(|(block, _)| *block).collect::<Vec<_>>() {
            state.places.remove(&block);
        }
    }
}

/// Marks a block as being read until dropped, also by an error or by a caller that gives up.
struct Loading<'a> {
    buffers: &'a Buffers,
    block: u64,
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        let mut state = self.buffers.state.borrow_mut();
        if matches!(state.places.get(&self.block), Some(CacheSlot::Loading)) {
            state.places.remove(&self.block);
        }
        drop(state);
        self.buffers.loaded.notify(usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use weir_block::{BlockLayer, BlockOptions, Dispatch};
    use weir_runtime::{Runtime, Simulation};
    use weir_storage::{AdversaryDisk, AdversaryOptions, Rules, Storage};

    use super::*;

    const LIMIT: usize = 64;

    #[test]
    fn what_cannot_be_forgotten_is_not_looked_at_again_and_again() {
        let runtime = Runtime::simulated(Simulation::default());
        let clock = runtime.handle();
        let storage = AdversaryDisk::new(&clock, AdversaryOptions { blocks: 8192, ..Default::default() });
        let capabilities = *storage.capabilities();
        let options = BlockOptions { dispatch: Dispatch::Legacy, ..BlockOptions::default() };
        let layer = BlockLayer::new(&clock, storage, options).expect("it fits");
        let disk = Disk::new(&clock, layer, capabilities, Rules::all());
        let buffers = Buffers::new(disk, Checksums::none(), LIMIT);
        let held: Vec<_> = (0..4000).map(|block| buffers.fresh(block, Role::Data)).collect();
        assert_eq!(buffers.state.borrow().places.len(), held.len());
        assert_eq!(buffers.make_room(&mut buffers.state.borrow_mut()), LOOKED_AT);
        drop(held);
        // What is free by then goes with the uses that come next.
        (4000..5000).for_each(|block| drop(buffers.fresh(block, Role::Data)));
        let state = buffers.state.borrow();
        assert!(state.places.len() <= LIMIT && state.uses.len() <= 4 * LIMIT, "{}", state.places.len());
    }
}
