//! The filesystem as a whole, and its order and durability.

use std::ops::Range;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use weir_f2fs::{NodeId, SEGMENT_BLOCKS};
use weir_format::{BLOCK_BYTES, FileTime};
use weir_vfs::{
    Caller, Filesystem, FsError, HandoverCalls, InodeNumber, MountedCalls, NAME_BYTES_MAX, ReadOnlyReason,
    Statfs, SyncCall, SyncCalls,
};

use crate::checkpoint::Durability;
use crate::content::Content;
use crate::filesystem::F2fs;
use crate::mount;

/// What has no name is in memory alone, so there is no handover.
impl HandoverCalls for F2fs {}

impl MountedCalls for F2fs {
    fn root(&self) -> InodeNumber {
        NodeId::ROOT.0
    }

    fn unmount(&self) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(mount::unmount(&self.0))
    }

    fn for_caller(&self, caller: Caller) -> Filesystem {
        F2fs(Rc::clone(&self.0), caller).into()
    }

    fn now(&self) -> FileTime {
        self.0.timer.now()
    }

    fn trim(&self, _range: Range<u64>, _minimum: u64) -> LocalBoxFuture<'_, Result<u64, FsError>> {
        Box::pin(async { Err(NO_DISCARD) })
    }

    fn grow(&self, _blocks: u64) -> LocalBoxFuture<'_, Result<u64, FsError>> {
        Box::pin(async { Err(FsError::Unsupported("growing F2FS")) })
    }

    fn read_only(&self) -> Option<ReadOnlyReason> {
        self.0.operations.read_only()
    }

    fn statfs(&self) -> LocalBoxFuture<'_, Statfs> {
        Box::pin(async {
            let placement = &self.0.placement;
            let blocks = u64::from(self.0.layout.main_segments()) * u64::from(SEGMENT_BLOCKS);
            let (user, used) = placement.space.borrow().user_blocks();
            let (nodes, _) = placement.table.counts();
            let all = self.0.layout.nodes();
            Statfs {
                block_bytes: BLOCK_BYTES as u32,
                blocks,
                free_blocks: blocks.saturating_sub(used),
                available_blocks: user.saturating_sub(used),
                inodes: all,
                free_inodes: all.saturating_sub(nodes),
                name_bytes_max: NAME_BYTES_MAX as u32,
            }
        })
    }
}

/// What a call is answered that F2FS here has not.
const NO_DISCARD: FsError = FsError::Unsupported("F2FS discards nothing");
const NO_ATOMIC_FILES: FsError =
    FsError::Unsupported("F2FS has no atomic files, only updates that a program begins and ends");

impl SyncCalls for F2fs {
    fn sync(&self) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async { Durability(&self.0).sync().await })
    }

    fn synchronise(&self, inode: InodeNumber, call: SyncCall) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move { Durability(&self.0).synchronise(NodeId(inode), call).await })
    }

    fn is_atomic(&self, _inode: InodeNumber) -> LocalBoxFuture<'_, Result<bool, FsError>> {
        Box::pin(async { Ok(false) })
    }

    fn set_atomic(&self, _inode: InodeNumber, atomic: bool) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move { if atomic { Err(NO_ATOMIC_FILES) } else { Ok(()) } })
    }

    fn has_atomic_writes(&self) -> bool {
        true
    }

    fn begin_update(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move { Content(&self.0).begin_update(inode).await })
    }

    fn end_updates<'a>(&'a self, inodes: &'a [InodeNumber]) -> LocalBoxFuture<'a, Result<(), FsError>> {
        Box::pin(async move { Content(&self.0).end_updates(inodes).await })
    }

    fn abandon_update(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move { Content(&self.0).abandon_update(inode).await })
    }
}
