//! Errors as the kernel's numbers.

use fuser::Errno;
use weir_fs::{FsError, ReadOnlyReason};

/// The number of an error.
pub(crate) fn errno(error: &FsError) -> Errno {
    match error {
        FsError::NotFound => Errno::ENOENT,
        FsError::Exists => Errno::EEXIST,
        FsError::NotDirectory => Errno::ENOTDIR,
        FsError::IsDirectory => Errno::EISDIR,
        FsError::NotEmpty => Errno::ENOTEMPTY,
        FsError::NoSpace => Errno::ENOSPC,
        FsError::TooLarge => Errno::EFBIG,
        FsError::NameLength => Errno::ENAMETOOLONG,
        FsError::TooManyLinks => Errno::EMLINK,
        FsError::Invalid(_) => Errno::EINVAL,
        FsError::NotPermitted(_) => Errno::EPERM,
        FsError::Unsupported(_) => Errno::EOPNOTSUPP,
        FsError::LinkLoop => Errno::ELOOP,
        FsError::NoAttribute => Errno::ENODATA,
        FsError::ReadOnly(_) => Errno::EROFS,
        FsError::NeedsRecovery
        | FsError::NoBarriers
        | FsError::Format(_)
        | FsError::Storage(_)
        | FsError::Refused(_) => Errno::EIO,
    }
}

/// The number of an error of a synchronisation call. That of a filesystem that lost its journal is EIO: a caller
/// of `fsync` looks for that one.
pub(crate) fn errno_of_sync(error: &FsError) -> Errno {
    match error {
        FsError::ReadOnly(ReadOnlyReason::Mounted) => Errno::EROFS,
        FsError::ReadOnly(_) => Errno::EIO,
        other => errno(other),
    }
}
