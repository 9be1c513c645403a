//! Names, and what keeps inodes.

use std::pin::Pin;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use weir_f2fs::{FileReader, NodeId};
use weir_format::{Cookie, DirectoryEntry, FileType};
use weir_vfs::{FsError, Hold, InodeNumber, LetGo, NameCalls, NewNode, RenameFlags, check_name_length};

use crate::file::File;
use crate::filesystem::F2fs;
use crate::mounted::Mounted;
use crate::namespace::Namespace;

/// Names that one call reads, and the rest of their block.
const NAMES_AT_ONCE: usize = 256;

impl F2fs {
    /// Holds a file.
    fn held(&self, file: &File) -> Hold {
        self.0.files.holds.add(file.number.0);
        Hold::new(file.number.0, Rc::<Mounted>::clone(&self.0) as Rc<dyn LetGo>)
    }

    async fn find_file(&self, directory: InodeNumber, name: &[u8]) -> Result<Rc<File>, FsError> {
        check_name_length(name)?;
        let directory = self.0.files.get(NodeId(directory)).await?;
        let found = self.0.find(&directory, name).await?.ok_or(FsError::NotFound)?;
        self.0.files.get(found.inode).await
    }
}

impl NameCalls for F2fs {
    fn lookup<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<InodeNumber, FsError>> {
        Box::pin(async move { Ok(self.find_file(directory, name).await?.number.0) })
    }

    fn read_directory(
        &self,
        directory: InodeNumber,
        after: Cookie,
    ) -> LocalBoxFuture<'_, Result<Vec<DirectoryEntry>, FsError>> {
        Box::pin(async move {
            let directory = self.0.directory(directory).await?;
            let inode = *directory.inode.borrow();
            self.0.read_names(&inode, after, NAMES_AT_ONCE).await
        })
    }

    fn read_link(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<Vec<u8>, FsError>> {
        Box::pin(async move {
            let file = self.0.files.get(NodeId(inode)).await?;
            let inode = *file.inode.borrow();
            match inode.file_type() {
                Some(FileType::Symlink) => self.0.link_target(&inode).await,
                _ => Err(FsError::Invalid("only a symbolic link has a target")),
            }
        })
    }

    fn unlink<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        Box::pin(async move { Namespace(&self.0).take_name(directory, name, false).await })
    }

    fn rmdir<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        Box::pin(async move { Namespace(&self.0).take_name(directory, name, true).await })
    }

    fn rename<'a>(
        &'a self,
        from: (InodeNumber, &'a [u8]),
        to: (InodeNumber, &'a [u8]),
        flags: RenameFlags,
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        Box::pin(async move { Namespace(&self.0).rename_file(self.1, from, to, flags).await })
    }

    fn open(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move {
            let file = self.0.files.get(NodeId(inode)).await?;
            file.opens.set(file.opens.get() + 1);
            Ok(())
        })
    }

    fn release(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move {
            let file = self.0.files.get(NodeId(inode)).await?;
            let left = file.opens.get().checked_sub(1).ok_or(FsError::Invalid("the inode is not open"))?;
            file.opens.set(left);
            if left == 0 && file.update.borrow().is_some() {
                // The caller that began it has not ended it. A file without a name is found no more by its number.
                let _locked = file.lock_exclusive().await;
                file.update.take();
            }
            if left > 0 || file.links() > 0 {
                // Nothing changes, so nothing has to be writable.
                return Ok(());
            }
            let _call = self.0.operations.begin().await;
            self.0.operations.check_writable()?;
            self.0.operations.complete(self.0.delete_if_unused(&file)).await
        })
    }

    fn hold(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<Hold, FsError>> {
        Box::pin(async move { Ok(self.held(&*self.0.files.get(NodeId(inode)).await?)) })
    }

    fn let_go(&self, inode: InodeNumber, count: u64) {
        LetGo::let_go(Rc::<Mounted>::clone(&self.0), inode, count);
    }

    fn on_reclaim(&self, _take_in: Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()>>>>) {}

    fn held_inodes(&self) -> u64 {
        self.0.files.holds.inodes() as u64
    }

    fn is_held(&self, inode: InodeNumber) -> bool {
        self.0.files.holds.contains(inode)
    }

    fn list_held(&self) -> Vec<InodeNumber> {
        self.0.files.holds.list()
    }

    fn lookup_held<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<Hold, FsError>> {
        Box::pin(async move { Ok(self.held(&*self.find_file(directory, name).await?)) })
    }

    fn create_held<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
        new: &'a NewNode,
    ) -> LocalBoxFuture<'a, Result<Hold, FsError>> {
        Box::pin(async move {
            if new.kind == FileType::Symlink {
                return Err(FsError::Invalid("a symbolic link has a target"));
            }
            Ok(self.held(&*Namespace(&self.0).create_file((directory, name), new, &[]).await?))
        })
    }

    fn create_unnamed_held<'a>(
        &'a self,
        directory: InodeNumber,
        new: &'a NewNode,
    ) -> LocalBoxFuture<'a, Result<Hold, FsError>> {
        Box::pin(
            async move { Ok(self.held(&*Namespace(&self.0).create_unnamed_file(directory, new).await?)) },
        )
    }

    fn symlink_held<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
        target: &'a [u8],
        owner: (u32, u32),
    ) -> LocalBoxFuture<'a, Result<Hold, FsError>> {
        Box::pin(async move {
            Ok(self.held(&*Namespace(&self.0).create_link((directory, name), target, owner).await?))
        })
    }

    fn link_held<'a>(
        &'a self,
        inode: InodeNumber,
        directory: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<Hold, FsError>> {
        Box::pin(async move { Ok(self.held(&*Namespace(&self.0).add_name(inode, (directory, name)).await?)) })
    }
}
