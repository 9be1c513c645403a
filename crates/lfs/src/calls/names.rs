//! Names, and what keeps inodes: nothing is deleted, so nothing has to.

use std::pin::Pin;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use weir_f2fs::Inode;
use weir_format::{Cookie, DirectoryEntry, FileType};
use weir_vfs::{FsError, Hold, InodeNumber, LetGo, NameCalls, check_name_length};

use crate::filesystem::{F2fs, Mounted};

/// Names that one call reads, and the rest of their block.
const NAMES_AT_ONCE: usize = 256;

impl Mounted {
    async fn directory(&self, number: InodeNumber) -> Result<Inode, FsError> {
        let inode = self.inode(number).await?;
        match inode.file_type() {
            Some(FileType::Directory) => Ok(inode),
            _ => Err(FsError::NotDirectory),
        }
    }

    async fn lookup(&self, directory: InodeNumber, name: &[u8]) -> Result<InodeNumber, FsError> {
        check_name_length(name)?;
        let directory = self.directory(directory).await?;
        let found = self.image.find_name(&directory, name).await?;
        found.map(|node| node.0).ok_or(FsError::NotFound)
    }
}

impl F2fs {
    fn held(&self, inode: InodeNumber) -> Hold {
        Hold::new(inode, Rc::<Mounted>::clone(&self.0) as Rc<dyn LetGo>)
    }
}

impl NameCalls for F2fs {
    fn lookup<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<InodeNumber, FsError>> {
        Box::pin(self.0.lookup(directory, name))
    }

    fn read_directory(
        &self,
        directory: InodeNumber,
        after: Cookie,
    ) -> LocalBoxFuture<'_, Result<Vec<DirectoryEntry>, FsError>> {
        Box::pin(async move {
            let directory = self.0.directory(directory).await?;
            self.0.image.read_names(&directory, after, NAMES_AT_ONCE).await
        })
    }

    fn read_link(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<Vec<u8>, FsError>> {
        Box::pin(async move {
            let inode = self.0.inode(inode).await?;
            match inode.file_type() {
                Some(FileType::Symlink) => self.0.image.link_target(&inode).await,
                _ => Err(FsError::Invalid("only a symbolic link has a target")),
            }
        })
    }

    fn open(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move { self.0.inode(inode).await.map(|_| ()) })
    }

    fn release(&self, _inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async { Ok(()) })
    }

    fn hold(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<Hold, FsError>> {
        Box::pin(async move { self.0.inode(inode).await.map(|_| self.held(inode)) })
    }

    fn let_go(&self, _inode: InodeNumber, _count: u64) {}

    fn on_reclaim(&self, _take_in: Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()>>>>) {}

    fn held_inodes(&self) -> u64 {
        0
    }

    fn lookup_held<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<Hold, FsError>> {
        Box::pin(async move { self.0.lookup(directory, name).await.map(|inode| self.held(inode)) })
    }
}
