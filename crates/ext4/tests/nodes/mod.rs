//! Metadata blocks in memory, which check what the algorithms over them do.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;

use weir_ext4::{Blocks, Checksums, Kind, check_extents};
use weir_format::{BLOCK_BYTES, FormatError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryError {
    Format(FormatError),
    NoSpace,
}

impl From<FormatError> for MemoryError {
    fn from(error: FormatError) -> Self {
        Self::Format(error)
    }
}

/// What a block holds, and its bytes.
type Stored = (Kind, Box<[u8; BLOCK_BYTES]>);

/// Blocks in use, by number. One that is not in use is an error to read, change or free.
pub struct Memory {
    pub blocks: RefCell<BTreeMap<u64, Stored>>,
    /// How many more blocks may be allocated.
    pub room: Cell<u64>,
    /// Bytes that were handed out to be changed.
    pub changed_bytes: Cell<usize>,
    /// Whether a block is verified each time it is read.
    pub verified: bool,
    pub limit: u64,
    sums: Checksums,
    next: Cell<u64>,
}

impl Memory {
    pub fn new(limit: u64) -> Self {
        Self {
            blocks: RefCell::default(),
            room: Cell::new(u64::MAX),
            changed_bytes: Cell::new(0),
            verified: true,
            limit,
            sums: Checksums::of_uuid(&[5; 16]),
            next: Cell::new(limit / 2),
        }
    }
}

impl Blocks for Memory {
    type Error = MemoryError;

    async fn read<T>(
        &self,
        block: u64,
        kind: Kind,
        look: impl FnOnce(&[u8]) -> Result<T, FormatError>,
    ) -> Result<T, MemoryError> {
        let blocks = self.blocks.borrow();
        let Some((stored, bytes)) = blocks.get(&block) else {
            assert!(!self.verified, "block {block} is read, and not in use");
            return Ok(look(&[0; BLOCK_BYTES])?);
        };
        if self.verified {
            assert_eq!(*stored, kind, "block {block}");
            self.sums.verify(kind, block, &bytes[..])?;
            check_extents(block, &bytes[..], self.limit)?;
        }
        Ok(look(&bytes[..])?)
    }

    async fn modify(
        &self,
        block: u64,
        kind: Kind,
        range: Range<usize>,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<(), MemoryError> {
        let mut blocks = self.blocks.borrow_mut();
        let (stored, bytes) = blocks.get_mut(&block).ok_or(MemoryError::NoSpace)?;
        assert_eq!(*stored, kind, "block {block}");
        self.changed_bytes.set(self.changed_bytes.get() + range.len());
        change(&mut bytes[range]);
        if self.verified {
            self.sums.update_checksum(kind, block, &mut bytes[..])?;
        }
        Ok(())
    }

    async fn allocate(&self, kind: Kind, _goal: u64) -> Result<u64, MemoryError> {
        let room = self.room.get().checked_sub(1).ok_or(MemoryError::NoSpace)?;
        self.room.set(room);
        let block = self.next.get();
        self.next.set(block + 1);
        let zeros = Box::new([0; BLOCK_BYTES]);
        assert!(self.blocks.borrow_mut().insert(block, (kind, zeros)).is_none());
        Ok(block)
    }

    async fn free(&self, block: u64, kind: Kind) -> Result<(), MemoryError> {
        let freed = self.blocks.borrow_mut().remove(&block);
        if self.verified {
            assert_eq!(freed.map(|(stored, _)| stored), Some(kind), "block {block} is freed");
        }
        self.room.set(self.room.get().saturating_add(1));
        Ok(())
    }
}
