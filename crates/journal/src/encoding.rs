//! The encoding of the log: how what a transaction has frozen becomes JD and JC. No other part knows what a block of the
//! log looks like; what others have to know of a block is where the log holds it ([`LoggedAt`]).

use std::rc::Rc;

use weir_ext4::FormatError;
use weir_ext4::journal::{LogBlock, LogFormat, encode_commit, encode_transaction};
use weir_runtime::Buffer as Memory;

use crate::disk::Run;
use crate::transaction::{FrozenBlock, Locked, LoggedAt, LoggedBlock};

/// How transactions stand in the log: as jbd2 has them, with a copy of every block, whole.
pub(crate) struct LogEncoding(LogFormat);

/// JD and JC.
pub(crate) struct Composed {
    pub(crate) log: Vec<Run>,
    pub(crate) commit_at: u64,
    pub(crate) commit: Rc<Memory>,
}

impl LogEncoding {
    /// The encoding of a journal with this format.
    pub(crate) fn new(format: LogFormat) -> LogEncoding {
        LogEncoding(format)
    }

    /// Blocks of the log that a transaction takes at most.
    pub(crate) fn blocks_for(&self, changed: usize, revoked: usize) -> u32 {
        u32::try_from(self.0.transaction_blocks(changed, revoked)).unwrap_or(u32::MAX)
    }

    /// A transaction as it stands in the log, on the places that `next_place` gives one after the other, and where its
    /// blocks lie there.
    pub(crate) fn compose(
        &self,
        locked: &Locked,
        unix_millis: u64,
        mut next_place: impl FnMut() -> Result<u64, FormatError>,
    ) -> Result<(Composed, Vec<LoggedBlock>), FormatError> {
        let Locked { sequence, frozen, revokes, .. } = locked;
        let mut copies: Vec<(u64, Shared)> =
            frozen.iter().map(|copy| (copy.buffer.block(), Shared(Rc::clone(&copy.content)))).collect();
        let mut logged = Vec::with_capacity(frozen.len());
        let mut log = Vec::new();
        for block in encode_transaction(&self.0, *sequence, revokes, &mut copies)? {
            let place = next_place()?;
            let bytes = match block {
                LogBlock::Own(bytes) => Rc::new(Memory::copy_of(&*bytes)),
                LogBlock::Copy(index) => {
                    let found = copies.get(index).zip(frozen.get(index));
                    let ((_, copy), block) = found.ok_or(FormatError::Invalid { what: "a copy" })?;
                    logged.push(logged_at(block, copy, place));
                    Rc::clone(&copy.0)
                }
            };
            Run::push(&mut log, place, bytes);
        }
        let (seconds, nanos) = (unix_millis / 1000, (unix_millis % 1000) as u32 * 1_000_000);
        let commit = Memory::copy_of(&*encode_commit(&self.0, *sequence, seconds, nanos));
        Ok((Composed { log, commit_at: next_place()?, commit: Rc::new(commit) }, logged))
    }
}

/// A copy that is not the frozen block itself was escaped.
fn logged_at(block: &FrozenBlock, copy: &Shared, place: u64) -> LoggedBlock {
    let escaped = !Rc::ptr_eq(&block.content, &copy.0);
    let (buffer, content) = (Rc::clone(&block.buffer), Rc::clone(&block.content));
    LoggedBlock { buffer, content, at: LoggedAt { place, escaped } }
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
