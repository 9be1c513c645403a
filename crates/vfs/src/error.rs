//! What can go wrong in a filesystem. The doors turn these into errno; nothing below them knows it.

use thiserror::Error;
use weir_format::FormatError;
use weir_journal::{JournalError, StopReason};
use weir_storage::{Rejected, StorageError};

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FsError {
    /// No such name or inode.
    #[error("there is no such file or directory")]
    NotFound,
    /// The name is taken.
    #[error("the name exists already")]
    Exists,
    /// A file stands where a directory has to.
    #[error("not a directory")]
    NotDirectory,
    /// A directory stands where a file has to.
    #[error("it is a directory")]
    IsDirectory,
    /// The directory has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// No block or inode is free, or an index is full.
    #[error("no space left on the filesystem")]
    NoSpace,
    /// Beyond the largest size of a file.
    #[error("the file would be larger than the format allows")]
    TooLarge,
    /// Updates have more changes than the filesystem takes at once.
    #[error(
        "the changes of atomic files that are not synchronised would be more than the filesystem takes at once ({most} \
         blocks): synchronise them more often, or make an ext4 filesystem with a larger journal"
    )]
    UpdateTooLarge {
        /// Blocks that one transaction of the journal, or all updates of F2FS, have at most.
        most: u32,
    },
    /// An atomic file has an update that keeps it from what was asked.
    #[error(
        "the atomic file has an update that is not finished: synchronise it, or end or abandon the update"
    )]
    UpdateOpen,
    /// A name of more than 255 bytes, or an empty one.
    #[error("a name has 1 to 255 bytes")]
    NameLength,
    /// A hard link too many.
    #[error("the file has too many links already")]
    TooManyLinks,
    /// An argument that means nothing here.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// Something that no caller may do to such an inode.
    #[error("not permitted: {0}")]
    NotPermitted(&'static str),
    /// Something that this filesystem does not do.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
    /// Symbolic links that lead to each other, or too many of them.
    #[error("the path leads through more than 40 symbolic links")]
    LinkLoop,
    /// No such extended attribute.
    #[error("there is no such attribute")]
    NoAttribute,
    /// The filesystem takes no changes any more, or never did.
    #[error("the filesystem is read-only: {0}")]
    ReadOnly(ReadOnlyReason),
    /// A read-only mount of what a crash has left: nothing would be as the log says.
    #[error("the journal has to be replayed first: mount the filesystem writable once")]
    NeedsRecovery,
    /// F2FS that was not unmounted: what was synchronised since its checkpoint is behind that.
    #[error(
        "it was not unmounted, and what was written since its last checkpoint has to be recovered first: mount it by Linux once"
    )]
    NotRolledForward,
    /// Dual-mode journaling on storage that keeps no order.
    #[error("the storage keeps no order between writes: mount with the engine jbd2")]
    NoBarriers,
    /// The engine for prefix devices on another storage.
    #[error(
        "the engine prefix needs a storage that keeps requests in order of receipt, such as a volume: mount with the \
         engine dual if it keeps barriers, otherwise with jbd2"
    )]
    NoPrefix,
    /// The engine flush-ahead on storage that lacks what it needs.
    #[error(
        "the engine flush-ahead needs a storage with packed writes and FUA writes, such as a volume: mount with the engine \
         dual if it keeps barriers, otherwise with jbd2"
    )]
    NoPacked,
    /// Checkpoints by remap on a storage that has no share command.
    #[error(
        "the storage has no share command, such as a volume has, which the journal modes soj and sdj need, and F2FS's cleaner \
         share: mount with the mode ordered in place of soj, data in place of sdj, and `--cleaner copy` in place of share"
    )]
    NoShare,
    /// The storage has no marks, which moments need.
    #[error(
        "--moment needs a volume, and this is a plain image, disk or device: `weir mkfs --volume` makes one"
    )]
    NoMarks,
    /// The image is not a filesystem of the subset, or is damaged.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The storage does not take such commands: a mistake of the filesystem.
    #[error("the storage refused a command: {0}")]
    Refused(Rejected),
}

/// Why a filesystem takes no changes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadOnlyReason {
    /// It was mounted read-only.
    #[error("it was mounted read-only")]
    Mounted,
    /// It is being unmounted.
    #[error("it is being unmounted")]
    Unmounted,
    /// A write or flush that has to be durable failed. Nothing more is acknowledged as durable; what was, is.
    #[error("a write or flush failed: {0}")]
    Aborted(StorageError),
    /// The future of a call was dropped in the middle of a change. Nothing of the change is committed.
    #[error("a call was dropped in the middle of a change: mount again, and await each call to its end")]
    Abandoned,
    /// Something on disk is damaged.
    #[error("{0}")]
    Damaged(FormatError),
}

impl FsError {
    /// Why a journal stops whose filesystem meets this error.
    pub fn stop_reason(&self) -> StopReason {
        match self {
            FsError::Storage(error) => StopReason::Failed(*error),
            FsError::Format(error) | FsError::ReadOnly(ReadOnlyReason::Damaged(error)) => {
                StopReason::Damaged(error.clone())
            }
            FsError::ReadOnly(ReadOnlyReason::Abandoned) => StopReason::Abandoned,
            FsError::ReadOnly(ReadOnlyReason::Unmounted) => StopReason::Closed,
            FsError::ReadOnly(ReadOnlyReason::Aborted(error)) => StopReason::Failed(*error),
            _ => StopReason::Failed(StorageError::Aborted),
        }
    }

    /// To a caller, a structure that cannot take any more is a lack of space.
    pub fn full_is_no_space(self) -> FsError {
        match self {
            FsError::Format(FormatError::Full { .. }) => FsError::NoSpace,
            other => other,
        }
    }
}

impl From<Rejected> for FsError {
    fn from(rejected: Rejected) -> FsError {
        match rejected {
            Rejected::Failed(error) => FsError::Storage(error),
            other => FsError::Refused(other),
        }
    }
}

impl From<JournalError> for FsError {
    fn from(error: JournalError) -> FsError {
        match error {
            JournalError::TooSmall => FsError::NoSpace,
            JournalError::Stopped(reason) => FsError::ReadOnly(reason.into()),
            JournalError::Format(error) => FsError::Format(error),
            JournalError::Storage(error) => FsError::Storage(error),
            JournalError::NoShare => FsError::NoShare,
            JournalError::Refused(rejected) => FsError::Refused(rejected),
        }
    }
}

impl From<StopReason> for ReadOnlyReason {
    fn from(reason: StopReason) -> ReadOnlyReason {
        match reason {
            StopReason::Closed => ReadOnlyReason::Unmounted,
            StopReason::Failed(error) => ReadOnlyReason::Aborted(error),
            StopReason::Abandoned => ReadOnlyReason::Abandoned,
            StopReason::Damaged(error) => ReadOnlyReason::Damaged(error),
        }
    }
}
