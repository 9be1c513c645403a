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

use futures_util::future::LocalBoxFuture;
use weir_format::{Cookie, DirectoryEntry, FileType};

use crate::attributes::InodeNumber;
use crate::error::FsError;
use crate::hold::Hold;
use crate::names::{NewNode, RenameFlags};
use crate::refusal::refuse;

/// Names, and what keeps inodes.
pub trait NameCalls {
    /// What a name in a directory stands for; "." and ".." too.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotDirectory`], [`FsError::NameLength`], and what reading may fail by.
    fn lookup<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<InodeNumber, FsError>>;

    /// Names of a directory behind `after`, in the order of their cookies, "." and ".." first; none at the end.
    /// A cookie stays valid while names come and go: a name that is there all the time is read exactly once.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotDirectory`], and what reading may fail by.
    fn read_directory(
        &self,
        directory: InodeNumber,
        after: Cookie,
    ) -> LocalBoxFuture<'_, Result<Vec<DirectoryEntry>, FsError>>;

    /// Makes a file, directory, device, pipe or socket.
    ///
    /// # Errors
    /// [`FsError::Exists`], [`FsError::NotFound`] for a directory that was removed, [`FsError::NotDirectory`],
    /// [`FsError::NameLength`], [`FsError::TooManyLinks`], [`FsError::NoSpace`], [`FsError::ReadOnly`],
    /// [`FsError::Invalid`] for names and numbers that cannot be, and what reading may fail by.
    fn create<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
        new: &'a NewNode,
    ) -> LocalBoxFuture<'a, Result<InodeNumber, FsError>> {
        Box::pin(async move { Ok(self.create_held(directory, name, new).await?.inode()) })
    }

    /// Makes a directory, whatever `kind` says.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    fn mkdir<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
        new: &'a NewNode,
    ) -> LocalBoxFuture<'a, Result<InodeNumber, FsError>> {
        Box::pin(
            async move { self.create(directory, name, &NewNode { kind: FileType::Directory, ..*new }).await },
        )
    }

    /// Makes a file without a name, and [opens](Self::open) it. It is deleted when it is released, and by the next mount
    /// after a crash, unless [`link`](Self::link) has given it a name by then. The directory says where on the disk it
    /// goes, and hands down its group.
    ///
    /// # Errors
    /// As [`create`](Self::create), but for those of names; [`FsError::Invalid`] for anything but a regular file.
    fn create_unnamed<'a>(
        &'a self,
        directory: InodeNumber,
        new: &'a NewNode,
    ) -> LocalBoxFuture<'a, Result<InodeNumber, FsError>> {
        Box::pin(async move { Ok(self.create_unnamed_held(directory, new).await?.inode()) })
    }

    /// Makes a symbolic link to `target`, 1 to 4,095 bytes.
    ///
    /// # Errors
    /// As [`create`](Self::create); [`FsError::Invalid`] for a target that cannot be.
    fn symlink<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
        target: &'a [u8],
        owner: (u32, u32),
    ) -> LocalBoxFuture<'a, Result<InodeNumber, FsError>> {
        Box::pin(async move { Ok(self.symlink_held(directory, name, target, owner).await?.inode()) })
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for anything else, [`FsError::NotFound`], and what reading may fail by.
    fn read_link(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<Vec<u8>, FsError>>;

    /// Gives an inode another name, or one that was [made without](Self::create_unnamed) its first. Directories have
    /// only one.
    ///
    /// # Errors
    /// As [`create`](Self::create); [`FsError::NotPermitted`] for a directory, [`FsError::NotFound`] for an
    /// inode that has lost its names, [`FsError::TooManyLinks`] beyond 65,000.
    fn link<'a>(
        &'a self,
        inode: InodeNumber,
        directory: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        Box::pin(async move { self.link_held(inode, directory, name).await.map(drop) })
    }

    /// Takes a name of anything but a directory. An inode without names is deleted once no caller has it open
    /// or holds it.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::IsDirectory`], [`FsError::NotDirectory`], [`FsError::NameLength`],
    /// [`FsError::Invalid`], [`FsError::ReadOnly`], and what reading may fail by.
    fn unlink<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        let _ = (directory, name);
        refuse()
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As [`unlink`](Self::unlink); [`FsError::NotEmpty`], and [`FsError::NotDirectory`] also for a file of
    /// that name.
    fn rmdir<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        let _ = (directory, name);
        refuse()
    }

    /// Gives what one name stands for another name instead, in one atomic group. What the new name stood for
    /// loses it: a file gives way to files, an empty directory to directories. Nothing happens if both names
    /// stand for one inode already.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::Exists`] with `no_replace`, [`FsError::NotEmpty`],
    /// [`FsError::IsDirectory`] for a file over a directory, [`FsError::NotDirectory`] for the reverse,
    /// [`FsError::Invalid`] for a directory into itself or below, for "." and "..", and for an exchange with another
    /// flag, [`FsError::TooManyLinks`], [`FsError::NoSpace`], [`FsError::NameLength`], [`FsError::ReadOnly`], and
    /// what reading may fail by.
    fn rename<'a>(
        &'a self,
        from: (InodeNumber, &'a [u8]),
        to: (InodeNumber, &'a [u8]),
        flags: RenameFlags,
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        let _ = (from, to, flags);
        refuse()
    }

    /// Keeps an inode from being deleted until it is [released](Self::release), once for each call, also when
    /// its last name goes. An inode that is [held](Self::hold) can be opened without a name.
    /// What is left of it after a crash is deleted at the next mount.
    ///
    /// # Errors
    /// [`FsError::NotFound`], and what reading may fail by.
    fn open(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>>;

    /// Undoes one [`open`](Self::open); the last one deletes an inode that has no name any more and is not held. It also puts the update of
    /// an atomic file into the journal, as no caller can synchronise it any more; one that was begun is taken back.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for an inode that is not open, and what changes may fail by.
    fn release(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>>;

    /// Holds an inode.
    ///
    /// # Errors
    /// [`FsError::NotFound`] for one that is deleted, or that nothing keeps from it; and what reading may fail by.
    fn hold(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<Hold, FsError>>;

    /// Takes so many [kept](Hold::keep) holds of an inode back; what is more than it has does nothing. After the last, an
    /// inode without names that no caller has open is deleted soon: [`statfs`](crate::MountedCalls::statfs) and the search
    /// for space wait for that. What is left of it after a crash is deleted at the next mount.
    fn let_go(&self, inode: InodeNumber, count: u64);

    /// Has `take_in` called and awaited before free space is reported or an allocation fails: it releases what the client has forgotten by
    /// then. It is given up after a second. Of several, the first stays.
    fn on_reclaim(&self, take_in: Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()>>>>);

    /// Inodes that are held now.
    fn held_inodes(&self) -> u64;

    /// Whether an inode is held now.
    fn is_held(&self, inode: InodeNumber) -> bool;

    /// All that are held now, ascending.
    fn list_held(&self) -> Vec<InodeNumber>;

    /// As [`lookup`](Self::lookup), and holds the inode.
    ///
    /// # Errors
    /// Those of `lookup`.
    fn lookup_held<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<Hold, FsError>>;

    /// As [`create`](Self::create), and holds the inode.
    ///
    /// # Errors
    /// Those of `create`.
    fn create_held<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
        new: &'a NewNode,
    ) -> LocalBoxFuture<'a, Result<Hold, FsError>> {
        let _ = (directory, name, new);
        refuse()
    }

    /// As [`create_unnamed`](Self::create_unnamed), and holds the inode.
    ///
    /// # Errors
    /// Those of `create_unnamed`.
    fn create_unnamed_held<'a>(
        &'a self,
        directory: InodeNumber,
        new: &'a NewNode,
    ) -> LocalBoxFuture<'a, Result<Hold, FsError>> {
        let _ = (directory, new);
        refuse()
    }

    /// As [`symlink`](Self::symlink), and holds the inode.
    ///
    /// # Errors
    /// Those of `symlink`.
    fn symlink_held<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
        target: &'a [u8],
        owner: (u32, u32),
    ) -> LocalBoxFuture<'a, Result<Hold, FsError>> {
        let _ = (directory, name, target, owner);
        refuse()
    }

    /// As [`link`](Self::link), and holds the inode.
    ///
    /// # Errors
    /// Those of `link`.
    fn link_held<'a>(
        &'a self,
        inode: InodeNumber,
        directory: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<Hold, FsError>> {
        let _ = (inode, directory, name);
        refuse()
    }
}
