//! Access control lists of inodes: kept true in the transaction that changes a mode (J8), and handed down in the one that makes an inode.

use std::rc::Rc;

use weir_format::acl::Acl;
use weir_format::{Attributes, FileType};
use weir_journal::TxHandle;
use weir_vfs::{
    AclChange, AclKind, Caller, Expect, FsError, Inherited, InodeNumber, acl_from_interface,
    attributes_for_mode, find_acl,
};

use super::AttributeStore;
use super::xattrs::Stored;
use crate::inodes::Node;

impl AttributeStore {
    /// A list of an inode, if it has it.
    pub(crate) async fn acl(&self, inode: InodeNumber, kind: AclKind) -> Result<Option<Acl>, FsError> {
        let node = self.nodes.get(inode).await?;
        let _locked = node.lock_exclusive().await;
        find_acl(kind, inode, &self.read(&node).await?)
    }

    /// Sets a list of an inode, or removes it.
    pub(crate) async fn set_acl(
        &self,
        caller: Caller,
        inode: InodeNumber,
        kind: AclKind,
        acl: Option<&Acl>,
        takes_set_group: bool,
    ) -> Result<(), FsError> {
        let expect = if acl.is_some() { Expect::Anything } else { Expect::Present };
        self.change_acl(caller, inode, kind, acl, expect, takes_set_group).await
    }

    /// A list of an inode as an extended attribute.
    pub(super) async fn acl_attribute(&self, inode: InodeNumber, kind: AclKind) -> Result<Vec<u8>, FsError> {
        Ok(self.acl(inode, kind).await?.ok_or(FsError::NoAttribute)?.to_interface())
    }

    /// Sets a list of an inode by its extended attribute.
    pub(super) async fn set_acl_attribute(
        &self,
        caller: Caller,
        inode: InodeNumber,
        kind: AclKind,
        value: &[u8],
        expect: Expect,
    ) -> Result<(), FsError> {
        self.change_acl(caller, inode, kind, Some(&acl_from_interface(value)?), expect, false).await
    }

    async fn change_acl(
        &self,
        caller: Caller,
        inode: InodeNumber,
        kind: AclKind,
        acl: Option<&Acl>,
        expect: Expect,
        takes_set_group: bool,
    ) -> Result<(), FsError> {
        let change = AclChange { kind, acl, expect, takes_set_group };
        self.changes
            .changing_with_space(async || {
                let node = self.nodes.get(inode).await?;
                let kind = node.kind();
                self.change(caller, &node, |attributes, permissions| {
                    change.apply(kind, attributes, permissions)
                })
                .await
            })
            .await
    }

    /// Puts the lists that a new inode gets into it.
    pub(crate) async fn put_inherited(
        &self,
        handle: &TxHandle,
        node: &Rc<Node>,
        inherited: &Inherited,
    ) -> Result<(), FsError> {
        let Some(lists) = &inherited.attributes else { return Ok(()) };
        let room = node.inode.borrow().attribute_area().len();
        self.store(handle, node, &Stored::from_attributes(lists, room)?).await
    }

    /// What a new inode of this mode gets from a directory, whose lock the caller holds. Where that has no default list,
    /// the bits of `umask` are taken from the mode.
    pub(crate) async fn inherit(
        &self,
        directory: &Node,
        (kind, mode): (FileType, u16),
        umask: u16,
    ) -> Result<Inherited, FsError> {
        let attributes = match kind {
            FileType::Symlink => Attributes::default(),
            _ => self.read(directory).await?,
        };
        Inherited::from_directory(directory.number, &attributes, (kind, mode), umask)
    }

    /// The attributes of a node whose mode becomes this one; none if they stay. The caller holds the node's lock.
    pub(super) async fn for_mode(&self, node: &Node, mode: u16) -> Result<Option<Stored>, FsError> {
        let attributes = attributes_for_mode(node.number, self.read(node).await?, mode)?;
        let room = node.inode.borrow().attribute_area().len();
        attributes.map(|attributes| Stored::from_attributes(&attributes, room)).transpose()
    }
}
