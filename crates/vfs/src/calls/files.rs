//! The calls for what files hold.

use futures_util::future::LocalBoxFuture;

use crate::attributes::InodeNumber;
use crate::error::FsError;
use crate::fallocate::Fallocate;
use crate::refusal::refuse;

/// What files hold.
pub trait FileCalls {
    /// Reads from `offset` on: how many bytes, fewer than asked for only at the end of the file. The time of
    /// access stays: see [`accessed`](Self::accessed).
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::IsDirectory`], [`FsError::Invalid`] for what has no content, and what
    /// the storage fails by.
    fn read<'a>(
        &'a self,
        inode: InodeNumber,
        offset: u64,
        bytes: &'a mut [u8],
    ) -> LocalBoxFuture<'a, Result<usize, FsError>>;

    /// What an inode holds was read just now: notes that, as its mount says. Whether its time of
    /// access is another one now. [`read`](Self::read) and its like do not note it by themselves: the code that calls
    /// them knows whether they serve a reader.
    ///
    /// # Errors
    /// [`FsError::NotFound`], and what reading may fail by.
    fn accessed(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<bool, FsError>>;

    /// Writes at `offset`: how many bytes, all of them unless space or memory run out in between. The file grows
    /// if it has to.
    ///
    /// Nothing of it is promised to be on disk, nor in which order it goes there, before a call of
    /// [`fsync`](crate::SyncCalls::fsync), [`fbarrier`](crate::SyncCalls::fbarrier) or their like.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::IsDirectory`], [`FsError::Invalid`] for what has no content,
    /// [`FsError::TooLarge`], [`FsError::NoSpace`], [`FsError::ReadOnly`], and what the storage fails by;
    /// [`FsError::UpdateTooLarge`] for an atomic file ([`set_atomic`](crate::SyncCalls::set_atomic)).
    fn write<'a>(
        &'a self,
        inode: InodeNumber,
        offset: u64,
        bytes: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<usize, FsError>> {
        let _ = (inode, offset, bytes);
        refuse()
    }

    /// Writes as [`write`](Self::write) does, and leaves the times: for a caller that has a cache of its own, writes it back
    /// later, and sets the times by [`set_attributes`](crate::AttributeCalls::set_attributes).
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    fn write_back<'a>(
        &'a self,
        inode: InodeNumber,
        offset: u64,
        bytes: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<usize, FsError>> {
        let _ = (inode, offset, bytes);
        refuse()
    }

    /// Sets the size of a file. What is behind it is freed, also what was allocated behind the end; what is new is a
    /// hole.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::IsDirectory`], [`FsError::Invalid`] for what has no content,
    /// [`FsError::TooLarge`], [`FsError::ReadOnly`], and what the storage fails by.
    fn truncate(&self, inode: InodeNumber, size: u64) -> LocalBoxFuture<'_, Result<(), FsError>> {
        let _ = (inode, size);
        refuse()
    }

    /// Allocates, zeroes or frees the blocks of `length` bytes from `offset` on. If it fails in between, a part of
    /// the range from its start is done, or of a hole from its end. What finds no room fails before the file is longer,
    /// or reads as zeros.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::IsDirectory`], [`FsError::Invalid`] for what has no content and for an
    /// empty range, [`FsError::TooLarge`], [`FsError::NoSpace`], [`FsError::ReadOnly`], and what the storage fails
    /// by.
    fn fallocate(
        &self,
        inode: InodeNumber,
        mode: Fallocate,
        offset: u64,
        length: u64,
    ) -> LocalBoxFuture<'_, Result<(), FsError>> {
        let _ = (inode, mode, offset, length);
        refuse()
    }

    /// The first byte at or behind `offset` that is not in a hole; `None` if there is none.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn seek_data(&self, inode: InodeNumber, offset: u64) -> LocalBoxFuture<'_, Result<Option<u64>, FsError>>;

    /// The first byte at or behind `offset` that is in a hole, as the end of a file is; `None` if `offset` is
    /// behind that.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn seek_hole(&self, inode: InodeNumber, offset: u64) -> LocalBoxFuture<'_, Result<Option<u64>, FsError>>;

    /// Blocks that the extents of a file map up to its end, written or not. The count ends when it is above `limit`:
    /// extents of a damaged or hostile filesystem map the same blocks again and again, and this takes no more steps
    /// than it counts.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn mapped_blocks(&self, inode: InodeNumber, limit: u64) -> LocalBoxFuture<'_, Result<u64, FsError>>;
}
