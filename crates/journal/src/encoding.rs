//! The encoding of the log: how what a transaction has frozen becomes JD and JC. No other part knows what a block of the
//! log looks like; what others have to know of a block is where the log holds it ([`LoggedAt`]).
//!
//! Blocks stand there whole, as jbd2 has them, or, with *journal coalition*, as the bytes that have changed, packed into
//! as few blocks as they need. What is logged whole all the same: a block that is new, since all of it has changed; one of
//! which so much has changed that it does not pay; and one that has to be there whole ([`HomeIntegrity`]).

use std::rc::Rc;

use weir_block::Run;
use weir_ext4::journal::{
    Changes, Coalition, LogBlock, LogFormat, encode_coalition, encode_commit, encode_data_checksums,
    encode_transaction,
};
use weir_format::FormatError;
use weir_runtime::Buffer as Memory;
use weir_storage::BLOCK_BYTES;

use crate::mutants::{JournalMutant, JournalRules};
use crate::transaction::{FrozenBlock, Locked, LoggedAt, LoggedBlock};

/// How transactions stand in the log.
pub(crate) struct LogEncoding {
    format: LogFormat,
    rules: JournalRules,
}

/// JD and JC. With journal coalition JC may hold all there is to log, and JD be nothing.
pub(crate) struct Composed {
    pub(crate) log: Vec<Run>,
    pub(crate) commit_at: u64,
    pub(crate) commit: Rc<Memory>,
}

impl LogEncoding {
    /// The encoding of a journal with this format.
    pub(crate) fn new(format: LogFormat, rules: JournalRules) -> LogEncoding {
        LogEncoding { format, rules }
    }

    /// Blocks of the log that a transaction takes at most.
    pub(crate) fn blocks_for(&self, changed: usize, revoked: usize) -> u32 {
        u32::try_from(self.format.transaction_blocks(changed, revoked)).unwrap_or(u32::MAX)
    }

    /// A transaction as it stands in the log, on the places that `next_place` gives one after the other, and where its
    /// blocks lie there. Blocks for which `needs_copy` holds stand there whole.
    pub(crate) fn compose(
        &self,
        locked: &Locked,
        unix_millis: u64,
        needs_copy: impl Fn(&FrozenBlock) -> bool,
        mut next_place: impl FnMut() -> Result<u64, FormatError>,
    ) -> Result<(Composed, Vec<LoggedBlock>), FormatError> {
        let Locked { sequence, frozen, revokes, .. } = locked;
        let changes: Vec<Option<Changes<'_>>> =
            frozen.iter().map(|block| self.changes(block, &needs_copy)).collect();
        let mut logged: Vec<LoggedBlock> = frozen.iter().map(not_in_log).collect();
        let whole: Vec<usize> = (0..frozen.len()).filter(|nth| changes[*nth].is_none()).collect();
        let copy = |nth: &usize| (frozen[*nth].buffer.block(), Shared(Rc::clone(&frozen[*nth].content)));
        let mut copies: Vec<(u64, Shared)> = whole.iter().map(copy).collect();
        let changes: Vec<Changes<'_>> = changes.into_iter().flatten().collect();
        let Coalition { blocks, commits } = match self.format.features.coalition {
            true => encode_coalition(&self.format, *sequence, revokes, &changes, &mut copies)?,
            false => {
                let blocks = encode_transaction(&self.format, *sequence, revokes, &mut copies)?;
                Coalition { blocks, commits: false }
            }
        };
        let blocks = blocks.into_iter().chain(self.data_checksums(locked).into_iter().map(LogBlock::Own));
        let mut places = Vec::new();
        for block in blocks {
            let place = next_place()?;
            let bytes = match block {
                LogBlock::Own(bytes) => Rc::new(Memory::copy_of(&*bytes)),
                LogBlock::Copy(index) => {
                    let found = copies.get(index).zip(whole.get(index));
                    let ((_, copy), nth) = found.ok_or(FormatError::Invalid { what: "a copy" })?;
                    // A copy that is not the frozen block itself was escaped.
                    let escaped = !Rc::ptr_eq(&logged[*nth].content, &copy.0);
                    logged[*nth].at = Some(LoggedAt { place, escaped });
                    Rc::clone(&copy.0)
                }
            };
            places.push((place, bytes));
        }
        if !commits {
            let (seconds, nanos) = (unix_millis / 1000, (unix_millis % 1000) as u32 * 1_000_000);
            let commit = Memory::copy_of(&*encode_commit(&self.format, *sequence, seconds, nanos));
            places.push((next_place()?, Rc::new(commit)));
        }
        let (commit_at, commit) = places.pop().ok_or(FormatError::Invalid { what: "a transaction" })?;
        let mut log = Vec::new();
        places.into_iter().for_each(|(place, bytes)| Run::push(&mut log, place, bytes));
        Ok((Composed { log, commit_at, commit }, logged))
    }

    /// What the log says of data that is written in place (J10).
    fn data_checksums(&self, locked: &Locked) -> Vec<Box<[u8; BLOCK_BYTES]>> {
        if self.rules.drops(JournalMutant::DataUnchecked) {
            return Vec::new();
        }
        let written = locked.in_place.iter().map(|block| (block.buffer.block(), &block.content[..]));
        encode_data_checksums(&self.format, locked.sequence, written)
    }

    /// What has changed of a block, if that is what the log is to hold.
    fn changes<'a>(
        &self,
        block: &'a FrozenBlock,
        needs_copy: impl Fn(&FrozenBlock) -> bool,
    ) -> Option<Changes<'a>> {
        if !self.format.features.coalition || needs_copy(block) {
            return None;
        }
        let mut ranges = block.changed.all().to_vec();
        if self.rules.drops(JournalMutant::RangeForgotten) && ranges.len() > 1 {
            ranges.pop();
        }
        if self.rules.drops(JournalMutant::NewBlockMerged) && block.changed.bytes() == BLOCK_BYTES as u64 {
            let zero = |at: &usize| block.content[*at] == 0;
            ranges = (0..BLOCK_BYTES).filter(|at| !zero(at)).map(|at| at as u16..at as u16 + 1).collect();
        }
        Changes::of(block.buffer.block(), &block.content, &ranges)
    }
}

fn not_in_log(block: &FrozenBlock) -> LoggedBlock {
    let (buffer, content) = (Rc::clone(&block.buffer), Rc::clone(&block.content));
    LoggedBlock { buffer, content, at: None }
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
