//! What can go wrong in a journal.

use thiserror::Error;
use weir_format::FormatError;
use weir_storage::{Rejected, StorageError};

/// Why an operation of the journal failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum JournalError {
    /// One operation asks for more of the log than a transaction may have.
    #[error("the journal is too small for this operation: make the filesystem with a larger one")]
    TooSmall,
    /// Checkpoints by remap, on a storage that cannot.
    #[error(
        "the storage has no share command (capability `share`), which checkpoints by remap need: let them copy"
    )]
    NoShare,
    /// The journal takes nothing any more.
    #[error("the journal takes no changes: {0}")]
    Stopped(StopReason),
    /// A block is damaged, or the log is too small for what is in it.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The storage does not take such commands: a mistake of the journal.
    #[error("the storage refused a command: {0}")]
    Refused(Rejected),
}

/// Why a journal takes no changes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StopReason {
    /// It is being closed, or is closed.
    #[error("it was closed")]
    Closed,
    /// A write or flush failed. Nothing more is acknowledged as durable; what was, is.
    #[error("it was aborted, since {0}")]
    Failed(StorageError),
    /// A change was dropped before its end. Nothing of it is committed.
    #[error("a change was abandoned before its end")]
    Abandoned,
    /// Something on disk is damaged.
    #[error("{0}")]
    Damaged(FormatError),
}

impl JournalError {
    /// Why a journal stops that meets this error.
    pub fn stop_reason(&self) -> StopReason {
        match self {
            JournalError::Storage(error) => StopReason::Failed(*error),
            JournalError::Format(error) => StopReason::Damaged(error.clone()),
            JournalError::Stopped(reason) => reason.clone(),
            JournalError::TooSmall | JournalError::NoShare | JournalError::Refused(_) => {
                StopReason::Failed(StorageError::Aborted)
            }
        }
    }
}

impl From<Rejected> for JournalError {
    fn from(rejected: Rejected) -> JournalError {
        match rejected {
            Rejected::Failed(error) => JournalError::Storage(error),
            other => JournalError::Refused(other),
        }
    }
}
