//! Errors as the kernel's numbers.

use rustix::io::Errno;
use weir_storage::{Rejected, StorageError};
use weir_vfs::{FsError, ReadOnlyReason};

/// The number of an error.
pub(crate) fn errno(error: &FsError) -> Errno {
    match error {
        FsError::NotFound => Errno::NOENT,
        FsError::Exists => Errno::EXIST,
        FsError::NotDirectory => Errno::NOTDIR,
        FsError::IsDirectory => Errno::ISDIR,
        FsError::NotEmpty => Errno::NOTEMPTY,
        FsError::NoSpace => Errno::NOSPC,
        // The disk below is full.
        FsError::Storage(StorageError::NoSpace)
        | FsError::Refused(Rejected::Failed(StorageError::NoSpace))
        | FsError::ReadOnly(ReadOnlyReason::Aborted(StorageError::NoSpace)) => Errno::NOSPC,
        FsError::TooLarge | FsError::UpdateTooLarge { .. } => Errno::FBIG,
        FsError::UpdateOpen => Errno::BUSY,
        FsError::NameLength => Errno::NAMETOOLONG,
        FsError::TooManyLinks => Errno::MLINK,
        FsError::Invalid(_) => Errno::INVAL,
        FsError::NotPermitted(_) => Errno::PERM,
        FsError::Unsupported(_) => Errno::OPNOTSUPP,
        FsError::LinkLoop => Errno::LOOP,
        FsError::NoAttribute => Errno::NODATA,
        FsError::ReadOnly(_) => Errno::ROFS,
        FsError::NeedsRecovery
        | FsError::NotRolledForward
        | FsError::NoBarriers
        | FsError::NoPrefix
        | FsError::NoPacked
        | FsError::NoShare
        | FsError::NoMarks
        | FsError::Format(_)
        | FsError::Storage(_)
        | FsError::Refused(_) => Errno::IO,
    }
}

/// The number of an error of a synchronisation call. That of a filesystem that lost its journal is EIO: a caller
/// of `fsync` looks for that one; where a full disk below is the cause, it is ENOSPC.
pub(crate) fn errno_of_sync(error: &FsError) -> Errno {
    match error {
        FsError::ReadOnly(ReadOnlyReason::Mounted) => Errno::ROFS,
        FsError::ReadOnly(ReadOnlyReason::Aborted(StorageError::NoSpace)) => Errno::NOSPC,
        FsError::ReadOnly(_) => Errno::IO,
        other => errno(other),
    }
}
