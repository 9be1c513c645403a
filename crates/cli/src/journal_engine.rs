//! The engines of the journal, as they are called on the command line and in a status.

use clap::ValueEnum;
use weir_fs::{Conflicts, Engine};
use weir_storage::{Ordering, Storage};

use crate::error::CliError;

/// How the journal commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum JournalEngine {
    /// Barriers order, nothing waits: for storage that keeps barriers, as a volume does
    Dual,
    /// The same, but a block that is changed while it is being committed is not copied: it waits on a list, and so does the next
    /// commit, as the paper has it. To compare
    DualList,
    /// Waits and flushes, as ext4 does: for any storage
    Jbd2,
    /// The same without flushes, as ext4 mounted nobarrier, on a volume: consistent after a crash, but fsync only orders
    Jbd2Nobarrier,
    /// The same as jbd2 with checksums in place of a flush (journal_async_commit): for any storage, to compare. A crash may
    /// leave files that grew, or were written where space was only allocated, with what their blocks held before
    AsyncCommit,
    /// OptFS: checksums in place of every flush but that of fsync; for any storage, to compare
    #[value(name = "optfs")]
    OptFs,
    /// Waits, and one flush for fsync: for storage that keeps writes in the order in which it receives them, as a
    /// volume does
    Prefix,
    /// Waits, and a flush that begins before the journal is written: for drives with packed writes and FUA. On a volume it
    /// is slower than jbd2
    FlushAhead,
}

impl JournalEngine {
    /// The engine that it means on a storage.
    ///
    /// # Errors
    /// [`CliError::NoOrder`] for the engine whose filesystem a crash would damage there.
    pub(crate) fn engine_on(self, storage: &dyn Storage) -> Result<Engine, CliError> {
        match self {
            JournalEngine::Dual => Ok(Engine::DUAL),
            JournalEngine::DualList => Ok(Engine::Dual { conflicts: Conflicts::List }),
            JournalEngine::Jbd2 => Ok(Engine::Jbd2 { barrier: true }),
            JournalEngine::Jbd2Nobarrier if storage.capabilities().ordering != Ordering::Prefix => {
                Err(CliError::NoOrder)
            }
            JournalEngine::Jbd2Nobarrier => Ok(Engine::Jbd2 { barrier: false }),
            JournalEngine::AsyncCommit => Ok(Engine::AsyncCommit),
            JournalEngine::OptFs => Ok(Engine::OptFs),
            JournalEngine::Prefix => Ok(Engine::Prefix),
            JournalEngine::FlushAhead => Ok(Engine::FlushAhead),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the command line takes is what a status says.
    #[test]
    fn names_are_those_of_the_command_line() {
        let engines = [
            (JournalEngine::Dual, Engine::DUAL),
            (JournalEngine::DualList, Engine::Dual { conflicts: Conflicts::List }),
            (JournalEngine::Jbd2, Engine::Jbd2 { barrier: true }),
            (JournalEngine::Jbd2Nobarrier, Engine::Jbd2 { barrier: false }),
            (JournalEngine::AsyncCommit, Engine::AsyncCommit),
            (JournalEngine::OptFs, Engine::OptFs),
            (JournalEngine::Prefix, Engine::Prefix),
            (JournalEngine::FlushAhead, Engine::FlushAhead),
        ];
        assert_eq!(engines.map(|(typed, _)| typed), JournalEngine::value_variants());
        for (typed, engine) in engines {
            assert_eq!(JournalEngine::from_str(engine.name(), false), Ok(typed));
        }
    }
}
