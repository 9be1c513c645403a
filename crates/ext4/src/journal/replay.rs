//! Recovery: from the log that a crash left, which copies go home.
//!
//! The classical description has three passes (find the end; collect what is revoked; write). One pass over
//! the log is enough here: transactions are read whole, each is applied to a map when its commit block is
//! found, and the map is filtered by the revocations at the end. Memory is bounded by the log's tags, and the
//! copies themselves are read again when they go home.
//!
//! A revocation in transaction r hides every copy of that block in transactions up to and including r.

use std::collections::BTreeMap;

use super::MAGIC;
use super::block::{BlockType, LogFormat};
use super::ring::{LogRing, Sequence};
use super::superblock::JournalSuperblock;
use crate::blocks::BLOCK_BYTES;
use crate::error::{FormatError, Place, Structure};

/// Reads blocks of the journal.
#[allow(async_fn_in_trait, reason = "everything runs on one thread, so no future needs to be Send")]
pub trait LogReader {
    /// What a reader gets when the storage fails or the log is damaged.
    type Error: From<FormatError>;

    /// Reads block `block` of the journal (block 0 is its superblock).
    async fn read(&self, block: u32, bytes: &mut [u8; BLOCK_BYTES]) -> Result<(), Self::Error>;
}

/// A copy that goes home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomeWrite {
    /// The block of the filesystem.
    pub home: u64,
    /// The block of the journal that holds the copy.
    pub copy: u32,
    escaped: bool,
}

impl HomeWrite {
    /// Makes the bytes of the copy those of the home block.
    pub fn restore(&self, bytes: &mut [u8; BLOCK_BYTES]) {
        if self.escaped {
            bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
        }
    }
}

/// What recovery found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The last committed version of each block, by home. They may be written in any order.
    pub writes: Vec<HomeWrite>,
    /// How many transactions were committed.
    pub transactions: u32,
    /// How many blocks had a copy that a revocation hides.
    pub revoked: usize,
    /// The number for the first transaction of the emptied journal. It lies a whole log beyond the last one,
    /// so that no block that is now in the log can be taken for a later transaction's (rule V1).
    pub next: Sequence,
}

/// Finds what the journal with this superblock has to write home. Nothing is written; after the writes are
/// durable, the caller empties the journal by [`JournalSuperblock::set_tail`] with [`Replay::next`].
///
/// `filesystem_blocks` bounds the home addresses.
///
/// # Errors
///
/// [`FormatError::Checksum`] where a valid commit block stands behind a damaged block,
/// [`FormatError::Corrupt`] where a committed address lies outside the filesystem, and the reader's own.
pub async fn replay<R: LogReader>(
    superblock: &JournalSuperblock,
    filesystem_blocks: u64,
    log: &R,
) -> Result<Replay, R::Error> {
    let mut scan = Scan {
        log,
        format: superblock.format(),
        ring: superblock.ring(),
        filesystem_blocks,
        place: superblock.start().unwrap_or(superblock.ring().first()),
        left: if superblock.start().is_some() { superblock.ring().blocks() } else { 0 },
        sequence: superblock.sequence(),
        committed: BTreeMap::new(),
        revoked: BTreeMap::new(),
        transactions: 0,
    };
    while scan.transaction().await? {}
    Ok(scan.finish())
}

/// A copy in the log, by the transaction that holds it.
struct Copy {
    age: u32,
    write: HomeWrite,
}

/// A transaction of which the commit block was not read yet.
#[derive(Default)]
struct Pending {
    writes: Vec<HomeWrite>,
    revokes: Vec<u64>,
    /// The first block with a wrong checksum: damage if the transaction turns out to be committed.
    damaged: Option<u32>,
}

struct Scan<'a, R> {
    log: &'a R,
    format: LogFormat,
    ring: LogRing,
    filesystem_blocks: u64,
    place: u32,
    /// Blocks of the ring that were not read yet: the scan never goes round twice.
    left: u32,
    sequence: Sequence,
    committed: BTreeMap<u64, Copy>,
    /// The last transaction that revokes a block, as a count from the first.
    revoked: BTreeMap<u64, u32>,
    transactions: u32,
}

impl<R: LogReader> Scan<'_, R> {
    /// Reads one transaction; false when the log ends before its commit block.
    async fn transaction(&mut self) -> Result<bool, R::Error> {
        let mut pending = Pending::default();
        let mut block = Box::new([0; BLOCK_BYTES]);
        loop {
            let Some(place) = self.next(&mut block).await? else { return Ok(false) };
            match BlockType::of(&block) {
                Some((found, sequence)) if sequence == self.sequence => match found {
                    BlockType::Descriptor => {
                        if !self.copies(place, &mut block, &mut pending).await? {
                            return Ok(false);
                        }
                    }
                    BlockType::Revoke => self.revokes(place, &block, &mut pending),
                    BlockType::Commit if self.format.commit_is_whole(&block) => {
                        self.commit(pending)?;
                        return Ok(true);
                    }
                    BlockType::Commit => return Ok(false),
                },
                _ => return Ok(false),
            }
        }
    }

    /// Reads the next block of the ring; `None` after the last one.
    async fn next(&mut self, block: &mut [u8; BLOCK_BYTES]) -> Result<Option<u32>, R::Error> {
        if self.left == 0 {
            return Ok(None);
        }
        let place = self.place;
        self.log.read(place, block).await?;
        self.left -= 1;
        self.place = self.ring.advance(place, 1);
        Ok(Some(place))
    }

    /// Reads what a descriptor block describes; false when the log ends within it.
    async fn copies(
        &mut self,
        place: u32,
        block: &mut [u8; BLOCK_BYTES],
        pending: &mut Pending,
    ) -> Result<bool, R::Error> {
        let descriptor = self.format.decode_descriptor(block);
        if !descriptor.whole {
            pending.damaged.get_or_insert(place);
        }
        for tag in descriptor.value {
            let Some(copy) = self.next(block).await? else { return Ok(false) };
            if self.format.copy_checksum(self.sequence, &block[..]) != tag.checksum {
                pending.damaged.get_or_insert(copy);
            }
            pending.writes.push(HomeWrite { home: tag.home, copy, escaped: tag.escaped });
        }
        Ok(true)
    }

    fn revokes(&self, place: u32, block: &[u8; BLOCK_BYTES], pending: &mut Pending) {
        match self.format.decode_revoke(block) {
            Some(list) if list.whole => pending.revokes.extend(list.value),
            _ => {
                pending.damaged.get_or_insert(place);
            }
        }
    }

    fn commit(&mut self, pending: Pending) -> Result<(), FormatError> {
        let structure = Structure::JournalBlock;
        if let Some(place) = pending.damaged {
            return Err(FormatError::Checksum { structure, place: Place::JournalBlock(place) });
        }
        for write in pending.writes {
            if write.home >= self.filesystem_blocks {
                let place = Place::JournalBlock(write.copy);
                return Err(FormatError::corrupt(structure, place, "its home is beyond the filesystem"));
            }
            self.committed.insert(write.home, Copy { age: self.transactions, write });
        }
        for home in pending.revokes {
            self.revoked.insert(home, self.transactions);
        }
        self.transactions += 1;
        self.sequence = self.sequence.next();
        Ok(())
    }

    fn finish(self) -> Replay {
        let found = self.committed.len();
        let hidden = |home: &u64, copy: &Copy| self.revoked.get(home).is_some_and(|&until| copy.age <= until);
        let visible = self.committed.iter().filter(|(home, copy)| !hidden(home, copy));
        let writes: Vec<HomeWrite> = visible.map(|(_, copy)| copy.write).collect();
        Replay {
            transactions: self.transactions,
            revoked: found - writes.len(),
            writes,
            next: self.sequence.plus(self.ring.blocks()),
        }
    }
}
