//! The calls for attributes of inodes, extended attributes, and access control lists.

use futures_util::future::LocalBoxFuture;
use weir_format::acl::Acl;

use crate::attributes::{AclKind, AttributeChanges, Attributes, Expect, InodeNumber};
use crate::error::FsError;
use crate::refusal::refuse;

/// Attributes of inodes.
pub trait AttributeCalls {
    /// The next inode in use behind `last`, by number; of 0, the root. Those of the format itself are left out. It may
    /// be deleted by the time that it is looked at.
    ///
    /// # Errors
    /// [`FsError::ReadOnly`] once the filesystem is unmounted, and what reading may fail by.
    fn next_inode(&self, last: InodeNumber) -> LocalBoxFuture<'_, Result<Option<InodeNumber>, FsError>>;

    /// Whether a file can have this number: neither is it one of the format itself, nor behind the last.
    fn is_file_number(&self, inode: InodeNumber) -> bool;

    /// The attributes of an inode.
    ///
    /// # Errors
    /// [`FsError::NotFound`], and what reading may fail by.
    fn attributes(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<Attributes, FsError>>;

    /// Sets attributes of an inode, and its time of change. A size that grows leaves a hole, one that shrinks
    /// frees what is behind it. An access control list goes along with the permissions.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::ReadOnly`], [`FsError::NoSpace`] when the block that its list lies in has to be
    /// split off from other files, those of [`truncate`](crate::FileCalls::truncate) for a size, and what
    /// reading may fail by.
    fn set_attributes<'a>(
        &'a self,
        inode: InodeNumber,
        changes: &'a AttributeChanges,
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        let _ = (inode, changes);
        refuse()
    }

    /// The value of an extended attribute, such as `user.comment`. Access control lists are in the form of the kernel's
    /// interface ([`Acl::to_interface`](weir_format::acl::Acl::to_interface)).
    ///
    /// # Errors
    /// [`FsError::NoAttribute`], [`FsError::NotFound`], [`FsError::Unsupported`] for a prefix that is not kept,
    /// and what reading may fail by.
    fn extended_attribute<'a>(
        &'a self,
        inode: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<Vec<u8>, FsError>>;

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// [`FsError::NotFound`], and what reading may fail by.
    fn extended_attributes(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<Vec<Vec<u8>>, FsError>>;

    /// Sets an extended attribute: `user.` of files and directories, `trusted.` and `security.` of anything, and access
    /// control lists as [`set_acl`](Self::set_acl) does.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] when an inode's attributes need more than a block and the room in the inode,
    /// [`FsError::Exists`] and [`FsError::NoAttribute`] as expected, [`FsError::NotPermitted`],
    /// [`FsError::Invalid`] for a malformed access control list,
    /// [`FsError::Unsupported`], [`FsError::NotFound`], [`FsError::ReadOnly`], and what reading may fail by.
    fn set_extended_attribute<'a>(
        &'a self,
        inode: InodeNumber,
        name: &'a [u8],
        value: &'a [u8],
        expect: Expect,
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        let _ = (inode, name, value, expect);
        refuse()
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`FsError::NoAttribute`], [`FsError::NotFound`], [`FsError::Unsupported`], [`FsError::ReadOnly`],
    /// [`FsError::NoSpace`] when a block has to be split off from other files, and what reading may fail by.
    fn remove_extended_attribute<'a>(
        &'a self,
        inode: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        let _ = (inode, name);
        refuse()
    }

    /// A list of an inode, if it has it.
    ///
    /// # Errors
    /// [`FsError::NotFound`], and what reading may fail by.
    fn acl(&self, inode: InodeNumber, kind: AclKind) -> LocalBoxFuture<'_, Result<Option<Acl>, FsError>>;

    /// Sets a list of an inode, or removes it. Setting that for access sets the mode, too; a list that says no more than
    /// a mode is not kept. `takes_set_group` says that the caller has no right to the set-group-ID bit, which is
    /// removed.
    ///
    /// # Errors
    /// [`FsError::NoAttribute`] where there is none to be removed, [`FsError::Invalid`] for a default list of what is no
    /// directory, [`FsError::Unsupported`] for a symbolic link, [`FsError::NoSpace`], [`FsError::NotFound`],
    /// [`FsError::ReadOnly`], and what reading may fail by.
    fn set_acl<'a>(
        &'a self,
        inode: InodeNumber,
        kind: AclKind,
        acl: Option<&'a Acl>,
        takes_set_group: bool,
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        let _ = (inode, kind, acl, takes_set_group);
        refuse()
    }
}
