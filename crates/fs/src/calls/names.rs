//! The calls for names, and for what keeps inodes: open files, and holds.
//!
//! # Holds
//!
//! They are for doors whose client is told of inodes and says later that it has forgotten them, as a kernel does.
//! A door that tells its client of an inode holds it, once for each time: by one of these calls, which find or make the
//! inode and hold it before its name may go, and by [`Hold::keep`] when the client has been told. It lets go as many times as
//! the client says. An inode without names that is held is as alive as one that is open: it can be opened, read, changed,
//! and looked at.

use std::pin::Pin;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use weir_format::{Cookie, DirectoryEntry};
use weir_vfs::{FsError, Hold, InodeNumber, LetGo as _, NameCalls, NewNode, RenameFlags};

use crate::filesystem::BarrierFs;

impl NameCalls for BarrierFs {
    fn lookup<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<InodeNumber, FsError>> {
        Box::pin(async move { self.0.directories.lookup(directory, name).await })
    }

    fn read_directory(
        &self,
        directory: InodeNumber,
        after: Cookie,
    ) -> LocalBoxFuture<'_, Result<Vec<DirectoryEntry>, FsError>> {
        Box::pin(async move { self.0.directories.read(directory, after).await })
    }

    fn read_link(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<Vec<u8>, FsError>> {
        Box::pin(async move { self.0.directories.read_link(inode).await })
    }

    fn unlink<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        Box::pin(async move { self.0.namespace.unlink(directory, name).await })
    }

    fn rmdir<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        Box::pin(async move { self.0.namespace.rmdir(directory, name).await })
    }

    fn rename<'a>(
        &'a self,
        (from, old): (InodeNumber, &'a [u8]),
        (to, new): (InodeNumber, &'a [u8]),
        flags: RenameFlags,
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        Box::pin(async move { self.0.namespace.rename(self.1, (from, old), (to, new), flags).await })
    }

    fn open(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move { self.0.namespace.open(inode).await })
    }

    fn release(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move {
            let last = self.0.nodes.find(inode).filter(|node| node.opens.get() == 1);
            let settled = match last {
                Some(node) => self.0.atomic.settle(&node).await,
                None => Ok(()),
            };
            // After an error, too, or the inode would stay open without end.
            self.0.namespace.release(inode).await.and(settled)
        })
    }

    fn hold(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<Hold, FsError>> {
        Box::pin(async move { self.0.deletion.hold_existing(inode).await })
    }

    fn let_go(&self, inode: InodeNumber, count: u64) {
        Rc::clone(&self.0.deletion).let_go(inode, count);
    }

    fn on_reclaim(&self, take_in: Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()>>>>) {
        self.0.deletion.on_reclaim(take_in);
    }

    fn held_inodes(&self) -> u64 {
        self.0.nodes.holds.inodes() as u64
    }

    fn is_held(&self, inode: InodeNumber) -> bool {
        self.0.nodes.holds.contains(inode)
    }

    fn list_held(&self) -> Vec<InodeNumber> {
        self.0.nodes.holds.list()
    }

    fn lookup_held<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<Hold, FsError>> {
        Box::pin(async move { self.0.namespace.lookup(directory, name).await })
    }

    fn create_held<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
        new: &'a NewNode,
    ) -> LocalBoxFuture<'a, Result<Hold, FsError>> {
        Box::pin(async move { self.0.namespace.create(self.1, directory, name, new).await })
    }

    fn create_unnamed_held<'a>(
        &'a self,
        directory: InodeNumber,
        new: &'a NewNode,
    ) -> LocalBoxFuture<'a, Result<Hold, FsError>> {
        Box::pin(async move { self.0.namespace.create_unnamed(self.1, directory, new).await })
    }

    fn symlink_held<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
        target: &'a [u8],
        (uid, gid): (u32, u32),
    ) -> LocalBoxFuture<'a, Result<Hold, FsError>> {
        Box::pin(async move { self.0.namespace.symlink(self.1, directory, name, target, (uid, gid)).await })
    }

    fn link_held<'a>(
        &'a self,
        inode: InodeNumber,
        directory: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<Hold, FsError>> {
        Box::pin(async move { self.0.namespace.link(self.1, inode, directory, name).await })
    }
}
