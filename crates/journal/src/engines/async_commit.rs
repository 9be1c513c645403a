//! The legacy path with checksums in the place of the flush between JD and JC, as jbd2's feature `ASYNC_COMMIT` and the phone of
//! the FAST 2018 paper had it (its earlier manuscript).
//!
//! ```text
//! commit            D --wait-- JD -- JC --wait, flush-- next
//! calls             as those of jbd2
//! ```
//!
//! JC may be on the medium without JD: recovery finds that by the checksum of each log block, and ends there. The checksum of jbd2
//! does not always find it: a superblock and a node of an extent tree hold their own CRC-32C, so an older version of such a block
//! has the same CRC-32C over the whole block as the newer one. So our log has another checksum.
//!
//! No checksum shows that D is missing: it was transferred and not flushed when JC came to the medium. So after a power cut during a
//! commit the new blocks of a file may hold what was on the medium before they were the file's; so may blocks that were only
//! allocated and were written now, even if their zeros had been durable. All else that a call has made durable is right. For this
//! reason ext4 refuses its option `journal_async_commit` with mode ordered.

use crate::error::JournalError;
use crate::mutants::JournalMutant;
use crate::steps::Commit;
use crate::transaction::Locked;

/// Commits: JD and JC leave together, and one flush is behind both. It covers D, which was transferred before.
pub(super) async fn commit(mut commit: Commit<'_>, locked: Locked) -> Result<(), JournalError> {
    let journal = commit.journal;
    commit.write_data(&locked).await?;
    let (composed, logged) = commit.compose(locked).await?;
    let mut tickets = commit.write_log_with_commit(composed).await?;
    let round = journal.durability.begin_flush(logged.sequence);
    if !journal.drops(JournalMutant::CommitNotFlushed) {
        let flush = journal.disk.submit_flush().await?;
        journal.disk.wait_answered(&flush).await?;
    }
    drop(round);
    commit.times.flush = commit.clock.step();
    commit.end_durable(logged, tickets.pop());
    Ok(())
}
