//! The filesystem as a whole, and its order and durability: nothing changes, so all of it is on the disk.

use futures_util::future::LocalBoxFuture;
use weir_f2fs::SEGMENT_BLOCKS;
use weir_format::{BLOCK_BYTES, FileTime};
use weir_vfs::{
    Caller, Filesystem, FsError, InodeNumber, MountedCalls, NAME_BYTES_MAX, ReadOnlyReason, Statfs, SyncCall,
    SyncCalls,
};

use crate::filesystem::F2fs;

impl MountedCalls for F2fs {
    fn root(&self) -> InodeNumber {
        self.0.image.superblock.root_inode.get()
    }

    fn unmount(&self) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async { Ok(()) })
    }

    fn for_caller(&self, _caller: Caller) -> Filesystem {
        self.clone().into()
    }

    fn now(&self) -> FileTime {
        self.0.timer.now()
    }

    fn read_only(&self) -> Option<ReadOnlyReason> {
        Some(ReadOnlyReason::Mounted)
    }

    fn statfs(&self) -> LocalBoxFuture<'_, Statfs> {
        Box::pin(async {
            let (image, header) = (&self.0.image, &self.0.image.checkpoint.header);
            let blocks = u64::from(image.layout.main_segments()) * u64::from(SEGMENT_BLOCKS);
            let (nodes, valid) = (image.layout.nodes(), header.valid_blocks.get());
            let available = header.user_blocks.get().saturating_sub(valid);
            Statfs {
                block_bytes: BLOCK_BYTES as u32,
                blocks,
                free_blocks: blocks.saturating_sub(valid),
                available_blocks: available,
                inodes: nodes,
                free_inodes: nodes.saturating_sub(header.valid_nodes.get()),
                name_bytes_max: NAME_BYTES_MAX as u32,
            }
        })
    }
}

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
}
