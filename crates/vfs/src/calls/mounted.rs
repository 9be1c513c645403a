//! The calls for a mounted filesystem as a whole.

use std::ops::Range;

use futures_util::future::LocalBoxFuture;
use weir_format::FileTime;

use crate::attributes::InodeNumber;
use crate::caller::Caller;
use crate::error::{FsError, ReadOnlyReason};
use crate::filesystem::Filesystem;
use crate::refusal::refuse;
use crate::statfs::Statfs;

/// The filesystem as a whole.
pub trait MountedCalls {
    /// The root directory.
    fn root(&self) -> InodeNumber;

    /// Waits until no call changes anything, deletes files that are open or held without a name, writes everything back,
    /// and marks the filesystem clean. All clones of it can only read from the beginning of that on, even if it fails.
    ///
    /// # Errors
    /// [`FsError::ReadOnly`] if it was stopped by a failure: then the next mount recovers; or if it is unmounted already.
    fn unmount(&self) -> LocalBoxFuture<'_, Result<(), FsError>>;

    /// The same filesystem, for what `caller` does: its calls leave the superuser's reserve alone, unless the caller is
    /// one of those who may have it. Without this, the caller is [`Caller::SUPERUSER`].
    fn for_caller(&self, caller: Caller) -> Filesystem;

    /// Names the thread that makes the next calls, up to the next wait; 0 for what the kernel writes back by itself. A filesystem
    /// that records its callers uses it.
    fn note_thread(&self, thread: u32) {
        let _ = thread;
    }

    /// The time with which a change is stamped now. It moves with the timer (J6).
    fn now(&self) -> FileTime;

    /// Why nothing can be changed, if that is so.
    fn read_only(&self) -> Option<ReadOnlyReason>;

    /// How large the filesystem is, and how much of it is free. What was [let go](crate::NameCalls::let_go) by now is deleted
    /// first, if that takes no longer than a second.
    fn statfs(&self) -> LocalBoxFuture<'_, Statfs>;

    /// Discards what is free between two places of the filesystem, in bytes, where at least `minimum` bytes are free in
    /// a row: how many bytes that were. What was freed before the call is among them, and made durable first (J7).
    ///
    /// # Errors
    /// [`FsError::ReadOnly`]; [`FsError::Unsupported`] if the storage cannot discard; [`FsError::Invalid`] for a range
    /// of less than a block or beyond the end, and a minimum that no run can have.
    fn trim(&self, range: Range<u64>, minimum: u64) -> LocalBoxFuture<'_, Result<u64, FsError>> {
        let _ = (range, minimum);
        refuse()
    }

    /// Makes the filesystem as large as fits into `blocks` blocks of the storage, which has them: its size then, in blocks. It is
    /// durable when this returns.
    ///
    /// # Errors
    /// [`FsError::ReadOnly`]; [`FsError::Unsupported`] if it cannot grow, or not on this storage.
    fn grow(&self, blocks: u64) -> LocalBoxFuture<'_, Result<u64, FsError>> {
        let _ = blocks;
        refuse()
    }
}
