//! What files hold.

use futures_util::future::LocalBoxFuture;
use weir_vfs::{Fallocate, FileCalls, FsError, InodeNumber};

use crate::content::Content;
use crate::filesystem::F2fs;

impl FileCalls for F2fs {
    fn read<'a>(
        &'a self,
        inode: InodeNumber,
        offset: u64,
        bytes: &'a mut [u8],
    ) -> LocalBoxFuture<'a, Result<usize, FsError>> {
        Box::pin(async move {
            let file = Content(&self.0).regular(inode).await?;
            Content(&self.0).read_content(&file, offset, bytes).await
        })
    }

    fn accessed(&self, _inode: InodeNumber) -> LocalBoxFuture<'_, Result<bool, FsError>> {
        // Times of access are not kept, as with the mount option noatime: each would cost a node.
        Box::pin(async { Ok(false) })
    }

    fn write<'a>(
        &'a self,
        inode: InodeNumber,
        offset: u64,
        bytes: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<usize, FsError>> {
        Box::pin(async move { Content(&self.0).write_content(inode, offset, bytes).await })
    }

    fn write_back<'a>(
        &'a self,
        inode: InodeNumber,
        offset: u64,
        bytes: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<usize, FsError>> {
        Box::pin(async move { Content(&self.0).write_content(inode, offset, bytes).await })
    }

    fn truncate(&self, inode: InodeNumber, size: u64) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move { Content(&self.0).truncate_file(inode, size).await })
    }

    fn fallocate(
        &self,
        inode: InodeNumber,
        mode: Fallocate,
        offset: u64,
        length: u64,
    ) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move { Content(&self.0).allocate(inode, mode, offset, length).await })
    }

    fn seek_data(&self, inode: InodeNumber, offset: u64) -> LocalBoxFuture<'_, Result<Option<u64>, FsError>> {
        Box::pin(async move {
            // What an update has written to holes is data already.
            match self.0.size_of_updated(inode).await? {
                Some(size) => Ok((offset < size).then_some(offset)),
                None => Content(&self.0).find_data(inode, offset).await,
            }
        })
    }

    fn seek_hole(&self, inode: InodeNumber, offset: u64) -> LocalBoxFuture<'_, Result<Option<u64>, FsError>> {
        Box::pin(async move {
            match self.0.size_of_updated(inode).await? {
                Some(size) => Ok((offset < size).then_some(size)),
                None => Content(&self.0).find_hole(inode, offset).await,
            }
        })
    }

    fn mapped_blocks(&self, inode: InodeNumber, limit: u64) -> LocalBoxFuture<'_, Result<u64, FsError>> {
        Box::pin(async move { Content(&self.0).count_pages(inode, limit).await })
    }
}
