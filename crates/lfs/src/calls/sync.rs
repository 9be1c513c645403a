//! Order and durability: nothing changes, so all of it is on the disk.

use futures_util::future::LocalBoxFuture;
use weir_vfs::{FsError, InodeNumber, SyncCall, SyncCalls};

use crate::filesystem::F2fs;

impl SyncCalls for F2fs {
    fn sync(&self) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async { Ok(()) })
    }

    fn synchronise(&self, inode: InodeNumber, _call: SyncCall) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move { self.0.inode(inode).await.map(|_| ()) })
    }

    fn is_atomic(&self, _inode: InodeNumber) -> LocalBoxFuture<'_, Result<bool, FsError>> {
        Box::pin(async { Ok(false) })
    }

    fn synchronise_group<'a>(
        &'a self,
        inodes: &'a [InodeNumber],
        call: SyncCall,
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        Box::pin(async move {
            for inode in inodes {
                self.synchronise(*inode, call).await?;
            }
            Ok(())
        })
    }
}
