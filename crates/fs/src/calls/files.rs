//! The calls for what files hold.

use futures_util::future::LocalBoxFuture;

use weir_vfs::{Fallocate, FileCalls, FsError, InodeNumber};

use crate::files::{FileWrite, Times};
use crate::filesystem::BarrierFs;

impl FileCalls for BarrierFs {
    fn read<'a>(
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

    fn accessed(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<bool, FsError>> {
        Box::pin(async move { self.0.accesses.accessed(inode).await })
    }

    fn write<'a>(
        &'a self,
        inode: InodeNumber,
        offset: u64,
        bytes: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<usize, FsError>> {
        Box::pin(async move { self.write_with((inode, offset, bytes), Times::Stamped).await })
    }

    fn write_back<'a>(
        &'a self,
        inode: InodeNumber,
        offset: u64,
        bytes: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<usize, FsError>> {
        Box::pin(async move { self.write_with((inode, offset, bytes), Times::Kept).await })
    }

    fn truncate(&self, inode: InodeNumber, size: u64) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move {
            let fs = &self.0;
            let node = fs.node(inode).await?;
            match fs.defers(&node) {
                true => fs.atomic.truncate(&node, size).await,
                false => fs.files.truncate(&node, size).await,
            }
        })
    }

    fn fallocate(
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

    fn seek_data(&self, inode: InodeNumber, offset: u64) -> LocalBoxFuture<'_, Result<Option<u64>, FsError>> {
        Box::pin(async move {
            // What an update has written to holes is data already.
            match self.0.size_of_updated(inode).await? {
                Some(size) => Ok((offset < size).then_some(offset)),
                None => self.0.files.seek_data(inode, offset).await,
            }
        })
    }

    fn seek_hole(&self, inode: InodeNumber, offset: u64) -> LocalBoxFuture<'_, Result<Option<u64>, FsError>> {
        Box::pin(async move {
            match self.0.size_of_updated(inode).await? {
                Some(size) => Ok((offset < size).then_some(size)),
                None => self.0.files.seek_hole(inode, offset).await,
            }
        })
    }

    fn mapped_blocks(&self, inode: InodeNumber, limit: u64) -> LocalBoxFuture<'_, Result<u64, FsError>> {
        Box::pin(async move { self.0.files.mapped_blocks(inode, limit).await })
    }
}

impl BarrierFs {
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
}
