//! Access control lists: what more there is to a mode, and what is made in a directory gets.
//!
//! No access is decided here: the kernel does that for a mount, by the lists that it asks for. Here they are kept
//! true. A file's mode and its own list say the same of owner, group and others: to set one is to set the other in the
//! same transaction (J8), and a list that says no more than a mode is not kept. What is made in a directory begins with
//! the directory's default list, in the transaction that makes it.

use std::rc::Rc;

use weir_ext4::Inode;
use weir_format::{AttributeName, Attributes, FileType, FormatError, acl::ACCESS, acl::Acl, acl::DEFAULT};
use weir_journal::TxHandle;
use weir_vfs::{AclKind, Caller, Expect, FsError, InodeNumber};

use super::AttributeStore;
use super::{xattrs::Stored, xattrs::parse};
use crate::{inodes::Node, inodes::SET_GROUP};

/// The bits of a mode that a list says, too.
const MODE_BITS: u16 = 0o777;

/// The list of this kind among the attributes of an inode.
fn find_list(kind: AclKind, inode: InodeNumber, attributes: &Attributes) -> Result<Option<Acl>, FsError> {
    let stored = attributes.get(&parse(kind.attribute())?);
    Ok(stored.map(|stored| Acl::read(inode, stored)).transpose()?)
}

/// A list from the form of the kernel's interface.
fn of_interface(value: &[u8]) -> Result<Acl, FsError> {
    Acl::of_interface(value).map_err(|error| match error {
        FormatError::Invalid { what } => FsError::Invalid(what),
        other => other.into(),
    })
}

/// Keeps a file's own list, if it says more than the mode.
fn put_access(attributes: &mut Attributes, name: &AttributeName, acl: &Acl) {
    match acl.is_mode() {
        true => drop(attributes.remove(name)),
        false => attributes.set(name.clone(), acl.to_stored()),
    }
}

/// What a new inode gets from the directory that it is made in.
pub(crate) struct Inherited {
    /// The nine bits of its mode.
    pub(crate) mode_bits: u16,
    /// Its lists, where it gets any.
    pub(crate) attributes: Option<Attributes>,
}

impl Inherited {
    /// The new inode with its mode.
    pub(crate) fn mode_of(&self, mut inode: Inode) -> Inode {
        inode.set_permissions(inode.permissions() & !MODE_BITS | self.mode_bits);
        inode
    }
}

impl AttributeStore {
    /// A list of an inode, if it has it.
    pub(crate) async fn acl(&self, inode: InodeNumber, kind: AclKind) -> Result<Option<Acl>, FsError> {
        let node = self.nodes.get(inode).await?;
        let _locked = node.lock_exclusive().await;
        find_list(kind, inode, &self.read(&node).await?)
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
        self.change_acl(caller, inode, kind, Some(&of_interface(value)?), expect, false).await
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
        let name = parse(kind.attribute())?;
        self.changes
            .changing_with_space(async || {
                let node = self.nodes.get(inode).await?;
                match (node.kind(), kind) {
                    (Some(FileType::Symlink), _) => {
                        return Err(FsError::Unsupported("an access control list of a symbolic link"));
                    }
                    (Some(FileType::Directory), _) | (_, AclKind::Access) => {}
                    _ if acl.is_some() => return Err(FsError::Invalid("a default list is for directories")),
                    _ => return Err(FsError::NoAttribute),
                }
                self.change(caller, &node, |attributes, permissions| {
                    expect.check(attributes.get(&name).is_some())?;
                    let Some(acl) = acl else {
                        attributes.remove(&name);
                        return Ok(permissions);
                    };
                    let kept = if takes_set_group { permissions & !SET_GROUP } else { permissions };
                    match kind {
                        AclKind::Default => attributes.set(name.clone(), acl.to_stored()),
                        AclKind::Access => {
                            put_access(attributes, &name, acl);
                            return Ok(kept & !MODE_BITS | acl.mode_bits());
                        }
                    }
                    Ok(permissions)
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
        let default = match kind {
            FileType::Symlink => None,
            _ => find_list(AclKind::Default, directory.number, &self.read(directory).await?)?,
        };
        let Some(default) = default else {
            let kept = if kind == FileType::Symlink { MODE_BITS } else { !umask };
            return Ok(Inherited { mode_bits: mode & MODE_BITS & kept, attributes: None });
        };
        let acl = default.inherited(mode);
        let mut attributes = Attributes::default();
        put_access(&mut attributes, &parse(ACCESS)?, &acl);
        if kind == FileType::Directory {
            attributes.set(parse(DEFAULT)?, default.to_stored());
        }
        Ok(Inherited { mode_bits: acl.mode_bits(), attributes: Some(attributes) })
    }

    /// The attributes of a node whose mode becomes this one; none if they stay. The caller holds the node's lock.
    pub(super) async fn for_mode(&self, node: &Node, mode: u16) -> Result<Option<Stored>, FsError> {
        let mut attributes = self.read(node).await?;
        let Some(mut acl) = find_list(AclKind::Access, node.number, &attributes)? else { return Ok(None) };
        if acl.mode_bits() == mode & MODE_BITS {
            return Ok(None);
        }
        acl.set_mode_bits(mode);
        attributes.set(parse(ACCESS)?, acl.to_stored());
        Stored::from_attributes(&attributes, node.inode.borrow().attribute_area().len()).map(Some)
    }
}
