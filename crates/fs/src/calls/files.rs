//! The calls for what files hold.

use std::ops::Range;

use futures_util::future::LocalBoxFuture;

use crate::error::FsError;
use crate::files::{Fallocate, FileWrite, Times};
use crate::filesystem::Filesystem;
use crate::inodes::InodeNumber;

impl Filesystem {
    /// Reads from `offset` on: how many bytes, fewer than asked for only at the end of the file. The time of
    /// access stays: see [`accessed`](Self::accessed).
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::IsDirectory`], [`FsError::Invalid`] for what has no content, and what
    /// the storage fails by.
    pub fn read<'a>(
        &'a self,
        inode: InodeNumber,
        offset: u64,
        bytes: &'a mut [u8],
    ) -> LocalBoxFuture<'a, Result<usize, FsError>> {
        Box::pin(async move {
            let fs = &self.0;
            fs.atomic.read(&fs.node(inode).await?, offset, bytes).await
        })
    }

    /// What an inode holds was read just now: notes that, as [`MountOptions::access_times`] says. Whether its time of
    /// access is another one now. [`read`](Self::read) and its like do not note it by themselves: the code that calls
    /// them knows whether they serve a reader.
    ///
    /// # Errors
    /// [`FsError::NotFound`], and what reading may fail by.
    ///
    /// [`MountOptions::access_times`]: crate::MountOptions::access_times
    pub fn accessed(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<bool, FsError>> {
        Box::pin(async move { self.0.accesses.accessed(inode).await })
    }

    /// Writes at `offset`: how many bytes, all of them unless space or memory run out in between. The file grows
    /// if it has to.
    ///
    /// Nothing of it is promised to be on disk, nor in which order it goes there, before a call of
    /// [`fsync`](Self::fsync), [`fbarrier`](Self::fbarrier) or their like.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::IsDirectory`], [`FsError::Invalid`] for what has no content,
    /// [`FsError::TooLarge`], [`FsError::NoSpace`], [`FsError::ReadOnly`], and what the storage fails by;
    /// [`FsError::UpdateTooLarge`] for an atomic file ([`set_atomic`](Self::set_atomic)).
    pub fn write<'a>(
        &'a self,
        inode: InodeNumber,
        offset: u64,
        bytes: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<usize, FsError>> {
        Box::pin(async move { self.write_with((inode, offset, bytes), Times::Stamped).await })
    }

    /// Writes as [`write`](Self::write) does, and leaves the times: for a caller that has a cache of its own, writes it back
    /// later, and sets the times by [`set_attributes`](Self::set_attributes).
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub fn write_back<'a>(
        &'a self,
        inode: InodeNumber,
        offset: u64,
        bytes: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<usize, FsError>> {
        Box::pin(async move { self.write_with((inode, offset, bytes), Times::Kept).await })
    }

    async fn write_with(
        &self,
        (inode, offset, bytes): (InodeNumber, u64, &[u8]),
        times: Times,
    ) -> Result<usize, FsError> {
        let fs = &self.0;
        let node = fs.node(inode).await?;
        let write = FileWrite { caller: self.1, node: &node, offset, bytes, times };
        if !fs.defers(&node) {
            match fs.files.write(write).await {
                // It has become an atomic file meanwhile.
                Err(FsError::UpdateOpen) => {}
                done => return done,
            }
        }
        fs.atomic.write(write).await
    }

    /// Sets the size of a file. What is behind it is freed, also what was allocated behind the end; what is new is a
    /// hole.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::IsDirectory`], [`FsError::Invalid`] for what has no content,
    /// [`FsError::TooLarge`], [`FsError::ReadOnly`], and what the storage fails by.
    pub fn truncate(&self, inode: InodeNumber, size: u64) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move {
            let fs = &self.0;
            let node = fs.node(inode).await?;
            match fs.defers(&node) {
                true => fs.atomic.truncate(&node, size).await,
                false => fs.files.truncate(&node, size).await,
            }
        })
    }

    /// Allocates, zeroes or frees the blocks of `length` bytes from `offset` on. If it fails in between, a part of
    /// the range from its start is done, or of a hole from its end. What finds no room fails before the file is longer,
    /// or reads as zeros.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::IsDirectory`], [`FsError::Invalid`] for what has no content and for an
    /// empty range, [`FsError::TooLarge`], [`FsError::NoSpace`], [`FsError::ReadOnly`], and what the storage fails
    /// by.
    pub fn fallocate(
        &self,
        inode: InodeNumber,
        mode: Fallocate,
        offset: u64,
        length: u64,
    ) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move {
            let fs = &self.0;
            let node = fs.node(inode).await?;
            match offset.checked_add(length).filter(|_| length > 0) {
                Some(end) if fs.defers(&node) => fs.atomic.fallocate(self.1, &node, mode, offset..end).await,
                _ => fs.files.fallocate(self.1, &node, mode, offset, length).await,
            }
        })
    }

    /// The first byte at or behind `offset` that is not in a hole; `None` if there is none.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn seek_data(
        &self,
        inode: InodeNumber,
        offset: u64,
    ) -> LocalBoxFuture<'_, Result<Option<u64>, FsError>> {
        Box::pin(async move {
            // What an update has written to holes is data already.
            match self.0.size_of_updated(inode).await? {
                Some(size) => Ok((offset < size).then_some(offset)),
                None => self.0.files.seek_data(inode, offset).await,
            }
        })
    }

    /// The first byte at or behind `offset` that is in a hole, as the end of a file is; `None` if `offset` is
    /// behind that.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn seek_hole(
        &self,
        inode: InodeNumber,
        offset: u64,
    ) -> LocalBoxFuture<'_, Result<Option<u64>, FsError>> {
        Box::pin(async move {
            match self.0.size_of_updated(inode).await? {
                Some(size) => Ok((offset < size).then_some(size)),
                None => self.0.files.seek_hole(inode, offset).await,
            }
        })
    }

    /// Blocks that the extents of a file map up to its end, written or not. The count ends when it is above `limit`:
    /// extents of a damaged or hostile filesystem map the same blocks again and again, and this takes no more steps
    /// than it counts.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn mapped_blocks(&self, inode: InodeNumber, limit: u64) -> LocalBoxFuture<'_, Result<u64, FsError>> {
        Box::pin(async move { self.0.files.mapped_blocks(inode, limit).await })
    }

    /// Calls `observer` with a file and a range of its blocks whenever zeros are written there in place of dividing an
    /// extent, before they are. What a program writes to such a block next is an overwrite, though no program has
    /// written to it: a judge of what a power cut leaves has to know. `observer` must not call the filesystem. It
    /// takes the place of the one before it.
    pub fn observe_zeros(&self, observer: impl Fn(InodeNumber, Range<u32>) + 'static) {
        self.0.mapping.zeroed.observe(observer);
    }
}
