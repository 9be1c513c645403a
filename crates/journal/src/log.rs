//! The log: where the journal's blocks are on disk, what of it is in use, and how a transaction looks there.

use std::rc::Rc;

use weir_ext4::journal::{
    JournalSuperblock, LogBlock, LogFormat, LogRing, Sequence, encode_commit, encode_transaction,
};
use weir_ext4::{BLOCK_BYTES, FormatError};
use weir_runtime::Buffer as Memory;

use crate::transaction::FrozenBlock;

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

/// Blocks to be written one after the other from `start` on.
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) blocks: Vec<Rc<Memory>>,
}

/// The journal's ring of blocks.
pub(crate) struct Log {
    area: Vec<JournalExtent>,
    pub(crate) superblock: JournalSuperblock,
    pub(crate) format: LogFormat,
    pub(crate) ring: LogRing,
    /// Where the oldest transaction begins that is not all home.
    pub(crate) tail: u32,
    /// Where the next one is written.
    pub(crate) head: u32,
}

impl Log {
    /// An empty log.
    pub(crate) fn new(superblock: JournalSuperblock, area: Vec<JournalExtent>) -> Log {
        let ring = superblock.ring();
        let format = superblock.format();
        Log { area, superblock, format, ring, tail: ring.first(), head: ring.first() }
    }

    /// Blocks that can be written without touching what is still needed.
    pub(crate) fn free(&self) -> u32 {
        self.ring.free(self.tail, self.head)
    }

    /// Blocks that a transaction takes at most.
    pub(crate) fn blocks_for(&self, copies: usize, revokes: usize) -> u32 {
        u32::try_from(self.format.transaction_blocks(copies, revokes)).unwrap_or(u32::MAX)
    }

    /// Where a block of the journal is in the filesystem.
    pub(crate) fn home(&self, block: u32) -> Option<u64> {
        let extent =
            self.area.iter().find(|extent| (extent.first..extent.first + extent.blocks).contains(&block))?;
        Some(extent.start + u64::from(block - extent.first))
    }

    /// JD of a transaction, as it stands at the log's head, and JC behind it. The head moves on.
    pub(crate) fn compose(
        &mut self,
        sequence: Sequence,
        frozen: &[FrozenBlock],
        revokes: &[u64],
        unix_millis: u64,
    ) -> Result<(Vec<Run>, u64, Rc<Memory>), FormatError> {
        let mut shared: Vec<(u64, Shared)> =
            frozen.iter().map(|copy| (copy.buffer.block(), Shared(Rc::clone(&copy.content)))).collect();
        let blocks = encode_transaction(&self.format, sequence, revokes, &mut shared)?;
        let mut runs: Vec<Run> = Vec::new();
        for block in blocks {
            let content = match block {
                LogBlock::Own(bytes) => Rc::new(Memory::copy_of(&*bytes)),
                LogBlock::Copy(index) => {
                    let (_, content) = shared.get(index).ok_or(FormatError::Invalid { what: "a copy" })?;
                    Rc::clone(&content.0)
                }
            };
            let place = self.next_place()?;
            match runs.last_mut() {
                Some(run) if run.start + run.blocks.len() as u64 == place => run.blocks.push(content),
                _ => runs.push(Run { start: place, blocks: vec![content] }),
            }
        }
        let (seconds, nanos) = (unix_millis / 1000, (unix_millis % 1000) as u32 * 1_000_000);
        let commit = Memory::copy_of(&*encode_commit(&self.format, sequence, seconds, nanos));
        Ok((runs, self.next_place()?, Rc::new(commit)))
    }

    fn next_place(&mut self) -> Result<u64, FormatError> {
        let place = self.head;
        self.head = self.ring.advance(place, 1);
        self.home(place).ok_or(FormatError::Invalid { what: "the journal is shorter than it says" })
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
        let home = self.home(0).ok_or(FormatError::Invalid { what: "a journal without blocks" })?;
        Ok((home, Rc::new(Memory::copy_of(&bytes))))
    }
}

/// A copy that becomes one's own only if it has to be escaped.
struct Shared(Rc<Memory>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl AsMut<[u8]> for Shared {
    fn as_mut(&mut self) -> &mut [u8] {
        Rc::<Memory>::make_mut(&mut self.0)
    }
}
