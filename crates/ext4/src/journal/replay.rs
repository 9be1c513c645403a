//! Recovery: from the log that a crash left, which copies go home.
//!
//! The classical description has three passes (find the end; collect what is revoked; write). One pass over
//! the log is enough here: transactions are read whole, each is applied to a map when its commit block is
//! found, and the map is filtered by the revocations at the end. Memory is bounded by the log's tags and records; copies
//! and changes themselves are read again when they go home.
//!
//! A revocation in transaction r hides every copy and change of that block in transactions up to and including r.

use std::collections::BTreeMap;

use weir_format::{BLOCK_BYTES, FormatError, Place, Structure};

use super::MAGIC;
use super::block::{BlockType, LogFeatures, LogFormat, TornOr};
use super::coalition::Record;
use super::data::CheckedData;
use super::mutants::ReplayMutant;
use super::ring::{LogRing, Sequence};
use super::superblock::JournalSuperblock;

/// Reads blocks of the journal.
#[allow(async_fn_in_trait, reason = "everything runs on one thread, so no future needs to be Send")]
pub trait LogReader {
    /// What a reader gets when the storage fails or the log is damaged.
    type Error: From<FormatError>;

    /// Reads block `block` of the journal (block 0 is its superblock).
    async fn read(&self, block: u32, bytes: &mut [u8; BLOCK_BYTES]) -> Result<(), Self::Error>;

    /// Reads block `home` of the filesystem, which recovery has not written yet. Asked for data in place, where the log
    /// says what it has to be.
    async fn read_home(&self, home: u64, bytes: &mut [u8; BLOCK_BYTES]) -> Result<(), Self::Error>;

    /// Whether recovery of this log drops a rule: it does not, unless a test says so.
    #[cfg(feature = "mutants")]
    fn drops(&self, _: ReplayMutant) -> bool {
        false
    }
}

/// A block that goes home: what the log holds of it, to be laid over what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeWrite {
    /// The block of the filesystem.
    pub home: u64,
    /// In the order of their transactions. Only the first may be a copy: what came before one does not count.
    pieces: Vec<Piece>,
}

/// What one place of the log holds of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    /// All of it.
    Copy { block: u32, escaped: bool },
    /// `bytes` bytes, at `at` of the log's block and at `offset` of the home.
    Change { block: u32, at: u16, offset: u16, bytes: u16 },
}

impl HomeWrite {
    /// Whether the log holds only some of its bytes: then the others are those at home.
    pub fn needs_home(&self) -> bool {
        !matches!(self.pieces.first(), Some(Piece::Copy { .. }))
    }

    /// Makes `bytes`, which are those at home where [`needs_home`](Self::needs_home) says so, what belongs there. Changes
    /// say what bytes become, so it does not matter how many of them are at home already.
    ///
    /// # Errors
    ///
    /// The reader's own.
    pub async fn restore<R: LogReader>(
        &self,
        log: &R,
        bytes: &mut [u8; BLOCK_BYTES],
    ) -> Result<(), R::Error> {
        let mut read: Option<u32> = None;
        let mut from = Box::new([0; BLOCK_BYTES]);
        for piece in &self.pieces {
            let (Piece::Copy { block, .. } | Piece::Change { block, .. }) = *piece;
            if read.replace(block) != Some(block) {
                log.read(block, &mut from).await?;
            }
            match *piece {
                Piece::Copy { escaped, .. } => {
                    bytes.copy_from_slice(&from[..]);
                    if escaped {
                        bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
                    }
                }
                Piece::Change { at, offset, bytes: changed, .. } => {
                    let [at, offset, changed] = [at, offset, changed].map(usize::from);
                    bytes[offset..offset + changed].copy_from_slice(&from[at..at + changed]);
                }
            }
        }
        Ok(())
    }
}

/// What recovery found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// What the log holds of each block, by home. They may be written in any order.
    pub writes: Vec<HomeWrite>,
    /// How many transactions were committed.
    pub transactions: u32,
    /// How many blocks had copies or changes of which a revocation hides all.
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
/// [`FormatError::Checksum`] where a valid commit block stands behind a damaged block (with asynchronous commits: where a
/// whole transaction stands behind such a one),
/// [`FormatError::Corrupt`] where a committed address lies outside the filesystem, and the reader's own.
pub async fn replay<R: LogReader>(
    superblock: &JournalSuperblock,
    filesystem_blocks: u64,
    log: &R,
) -> Result<Replay, R::Error> {
    let mut scan = Scan::new(superblock, filesystem_blocks, log);
    scan.all(u32::MAX).await?;
    let whole = scan.data.whole(&scan.format, scan.transactions, log).await?;
    if whole < scan.transactions {
        // Those behind count for nothing, and may have hidden what is to go home.
        scan = Scan::new(superblock, filesystem_blocks, log);
        scan.all(whole).await?;
    }
    scan.check_end().await?;
    Ok(scan.finish())
}

/// Blocks behind the end of the log in which a later transaction would say that it is no end.
const LOOKED_AT_BEHIND_END: u32 = 64;
/// Pieces of a block that are compared with the next one.
const RECENT_PIECES: usize = 16;

/// What the log holds of a block, each with the transaction that holds it, as a count from the first.
type Pieces = Vec<(u32, Piece)>;

/// A transaction of which the commit block was not read yet.
#[derive(Default)]
struct Pending {
    pieces: Vec<(u64, Piece)>,
    revokes: Vec<u64>,
    /// What it has written in place, and the checksums.
    written: Vec<(u64, u32)>,
    /// The first block with a wrong checksum: damage if the transaction turns out to be committed.
    damaged: Option<u32>,
}

/// Forgets the last change that lies within the next one: a block that changes again and again is read once. A revocation
/// that hides the next one hides it as well.
fn forget_overwritten(pieces: &mut Pieces, next: Piece) {
    let range = |piece: Piece| match piece {
        Piece::Copy { .. } => None,
        Piece::Change { offset, bytes, .. } => Some((offset, offset.saturating_add(bytes))),
    };
    let Some((start, end)) = range(next) else { return };
    let recent = pieces.len().saturating_sub(RECENT_PIECES);
    let within = |piece: Piece| range(piece).is_some_and(|(first, last)| start <= first && last <= end);
    if let Some(at) = (recent..pieces.len()).find(|at| within(pieces[*at].1)) {
        pieces.remove(at);
    }
}

/// The kind of the next block of the log.
enum NextBlock {
    /// More of it.
    More,
    /// Nothing: it has committed the transaction.
    Commit,
    /// The log ends here.
    End,
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
    committed: BTreeMap<u64, Pieces>,
    /// The last transaction that revokes a block, as a count from the first.
    revoked: BTreeMap<u64, u32>,
    /// What has to be in place.
    data: CheckedData,
    transactions: u32,
    /// The first block that is not of the log any more.
    ended_at: Option<u32>,
}

impl<'a, R: LogReader> Scan<'a, R> {
    fn new(superblock: &JournalSuperblock, filesystem_blocks: u64, log: &'a R) -> Scan<'a, R> {
        Scan {
            log,
            format: superblock.format(),
            ring: superblock.ring(),
            filesystem_blocks,
            place: superblock.start().unwrap_or(superblock.ring().first()),
            left: if superblock.start().is_some() { superblock.ring().blocks() } else { 0 },
            sequence: superblock.sequence(),
            committed: BTreeMap::new(),
            revoked: BTreeMap::new(),
            data: CheckedData::default(),
            transactions: 0,
            ended_at: None,
        }
    }

    #[cfg(feature = "mutants")]
    fn drops(&self, mutant: ReplayMutant) -> bool {
        self.log.drops(mutant)
    }

    #[cfg(not(feature = "mutants"))]
    const fn drops(&self, _: ReplayMutant) -> bool {
        false
    }

    /// Reads transactions to the log's end, or as many.
    async fn all(&mut self, most: u32) -> Result<(), R::Error> {
        while self.transactions < most && self.transaction().await? {}
        Ok(())
    }

    /// Reads one transaction; false when the log ends before its commit block.
    async fn transaction(&mut self) -> Result<bool, R::Error> {
        let mut pending = Pending::default();
        let mut block = Box::new([0; BLOCK_BYTES]);
        loop {
            let Some(place) = self.next(&mut block).await? else { return Ok(false) };
            self.ended_at = Some(place);
            match BlockType::from_block(&block) {
                Some((found, sequence)) if sequence == self.sequence => match found {
                    BlockType::Descriptor => {
                        if !self.copies(place, &mut block, &mut pending).await? {
                            return Ok(false);
                        }
                    }
                    BlockType::Revoke => self.revokes(place, &block, &mut pending),
                    BlockType::DataChecksums if !self.format.features.data_checksums => return Ok(false),
                    BlockType::DataChecksums => self.records(place, &block, &mut pending),
                    BlockType::Coalition => match self.coalition(place, &mut block, &mut pending).await? {
                        NextBlock::More => {}
                        NextBlock::Commit => return Ok(self.commit(pending)?),
                        NextBlock::End => return Ok(false),
                    },
                    BlockType::Commit if self.format.commit_is_whole(&block) => {
                        return Ok(self.commit(pending)?);
                    }
                    BlockType::Commit => return Ok(false),
                },
                _ => return Ok(false),
            }
        }
    }

    /// With coalition blocks most transactions are one block, which ends the log if it is torn; with asynchronous commits any
    /// torn block does. A transaction is written when the one before it is kept (J2), so whole ones behind the end say that it
    /// is damage.
    async fn check_end(&mut self) -> Result<(), R::Error> {
        let LogFeatures { coalition, async_commit, data_checksums } = self.format.features;
        // With checksums of data no transaction waits until the one before it is kept.
        let is_checked =
            !data_checksums && (coalition || async_commit) && !self.drops(ReplayMutant::TrustsEnd);
        let Some(end) = self.ended_at.filter(|_| is_checked) else { return Ok(()) };
        // With asynchronous commits the transaction that ends the log may have its commit block behind that: it is not later.
        let least = u32::from(async_commit && !self.drops(ReplayMutant::TakesOwnCommitForLater));
        let later = least..self.ring.blocks();
        let mut block = Box::new([0; BLOCK_BYTES]);
        for _ in 0..LOOKED_AT_BEHIND_END {
            if self.next(&mut block).await?.is_none() {
                break;
            }
            let Some((kind, sequence)) = BlockType::from_block(&block) else { continue };
            let ahead = sequence.0.wrapping_sub(self.sequence.0);
            let commits = match kind {
                BlockType::Commit => self.format.commit_is_whole(&block),
                BlockType::Coalition => {
                    let decoded = self.format.decode_coalition(&block);
                    decoded.is_some_and(|TornOr { whole, value }| whole && value.commits)
                }
                BlockType::Descriptor | BlockType::Revoke | BlockType::DataChecksums => false,
            };
            if commits && later.contains(&ahead) {
                let (structure, place) = (Structure::JournalBlock, Place::JournalBlock(end));
                return Err(FormatError::Checksum { structure, place }.into());
            }
        }
        Ok(())
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
            pending.pieces.push((tag.home, Piece::Copy { block: copy, escaped: tag.escaped }));
        }
        Ok(true)
    }

    /// Reads a coalition block, and the copies that it lists.
    async fn coalition(
        &mut self,
        place: u32,
        block: &mut [u8; BLOCK_BYTES],
        pending: &mut Pending,
    ) -> Result<NextBlock, R::Error> {
        let Some(TornOr { whole, value }) = self.format.decode_coalition(block) else {
            return Ok(NextBlock::End);
        };
        // A block that commits is torn, and has not: so is one without the feature, left by a log that had it.
        if !self.format.features.coalition || (value.commits && !whole) {
            return Ok(NextBlock::End);
        }
        if !whole {
            pending.damaged.get_or_insert(place);
        }
        for record in value.records {
            match record {
                Record::Change { home, offset, at, bytes } => {
                    pending.pieces.push((home, Piece::Change { block: place, at, offset, bytes }));
                }
                Record::Copy { home, escaped, checksum } => {
                    let Some(copy) = self.next(block).await? else { return Ok(NextBlock::End) };
                    if self.format.coalition_checksum(self.sequence, &block[..]) != checksum {
                        pending.damaged.get_or_insert(copy);
                    }
                    pending.pieces.push((home, Piece::Copy { block: copy, escaped }));
                }
                Record::Revoke { home } => pending.revokes.push(home),
            }
        }
        Ok(if value.commits { NextBlock::Commit } else { NextBlock::More })
    }

    fn revokes(&self, place: u32, block: &[u8; BLOCK_BYTES], pending: &mut Pending) {
        match self.format.decode_revoke(block) {
            Some(list) if list.whole => pending.revokes.extend(list.value),
            _ => {
                pending.damaged.get_or_insert(place);
            }
        }
    }

    fn records(&self, place: u32, block: &[u8; BLOCK_BYTES], pending: &mut Pending) {
        match self.format.decode_records(block) {
            Some(list) if list.whole => pending.written.extend(list.value),
            _ => {
                pending.damaged.get_or_insert(place);
            }
        }
    }

    /// Takes in a transaction whose commit block is whole. False if it ends the log all the same: a block of it is missing,
    /// which with asynchronous commits is no damage.
    fn commit(&mut self, mut pending: Pending) -> Result<bool, FormatError> {
        let structure = Structure::JournalBlock;
        if let Some(place) = pending.damaged.filter(|_| !self.drops(ReplayMutant::TrustsCommitBlock)) {
            if !self.format.features.async_commit || self.drops(ReplayMutant::RefusesTornCommit) {
                return Err(FormatError::Checksum { structure, place: Place::JournalBlock(place) });
            }
            if !self.drops(ReplayMutant::ReplaysPastHole) {
                self.ended_at = Some(place);
                return Ok(false);
            }
            pending = Pending::default();
        }
        for home in &pending.revokes {
            self.data.let_go(self.transactions, *home);
        }
        for (home, checksum) in pending.written {
            if home >= self.filesystem_blocks {
                let place = Place::JournalBlock(self.place);
                return Err(FormatError::corrupt(structure, place, "data beyond the filesystem"));
            }
            self.data.written(self.transactions, home, checksum);
        }
        for (home, piece) in pending.pieces {
            self.data.let_go(self.transactions, home);
            if home >= self.filesystem_blocks {
                let (Piece::Copy { block, .. } | Piece::Change { block, .. }) = piece;
                let place = Place::JournalBlock(block);
                return Err(FormatError::corrupt(structure, place, "its home is beyond the filesystem"));
            }
            let pieces = self.committed.entry(home).or_default();
            match piece {
                Piece::Copy { .. } => pieces.clear(),
                Piece::Change { .. } => forget_overwritten(pieces, piece),
            }
            pieces.push((self.transactions, piece));
        }
        for home in pending.revokes {
            self.revoked.insert(home, self.transactions);
        }
        self.transactions += 1;
        self.sequence = self.sequence.next();
        Ok(true)
    }

    fn finish(self) -> Replay {
        let found = self.committed.len();
        let mut writes = Vec::with_capacity(found);
        for (home, pieces) in self.committed {
            let until = self.revoked.get(&home);
            let visible = pieces.into_iter().filter(|(age, _)| until.is_none_or(|until| age > until));
            let pieces: Vec<Piece> = visible.map(|(_, piece)| piece).collect();
            if !pieces.is_empty() {
                writes.push(HomeWrite { home, pieces });
            }
        }
        Replay {
            transactions: self.transactions,
            revoked: found - writes.len(),
            writes,
            next: self.sequence.plus(self.ring.blocks()),
        }
    }
}
