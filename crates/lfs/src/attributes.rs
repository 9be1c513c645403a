//! Attributes of inodes, and extended ones.

use std::rc::Rc;

use weir_f2fs::attribute::store_attributes;
use weir_f2fs::{ATTRIBUTE_NODE_PLACE, FileReader, Inode, NodeId};
use weir_format::acl::Acl;
use weir_format::{AttributeName, Attributes as Extended, FileType, Stamp};
use weir_runtime::Permit;
use weir_vfs::{
    AclChange, AclKind, AttributeChanges, Attributes, Device, Expect, FsError, Inherited, acl_from_interface,
    attributes_for_mode, check_attribute_of, find_acl, is_kept_attribute, parse_attribute,
};

use crate::changes::CALL_BLOCKS;
use crate::checkpoint::Durability;
use crate::file::File;
use crate::mounted::Mounted;

/// Units of 512 bytes in a block.
const SECTORS: u64 = 8;
/// Bits of a mode that are permissions.
const PERMISSIONS: u16 = 0xFFF;

impl Mounted {
    /// The attributes of an inode.
    pub(crate) async fn attributes_of(&self, number: NodeId) -> Result<Attributes, FsError> {
        let file = self.files.get(number).await?;
        let inode = file.inode.borrow();
        let kind = inode.file_type().ok_or(FsError::NotFound)?;
        let is_device = matches!(kind, FileType::CharacterDevice | FileType::BlockDevice);
        Ok(Attributes {
            inode: number.0,
            generation: inode.generation.get(),
            kind,
            permissions: inode.mode.get() & PERMISSIONS,
            links: inode.links.get(),
            takes_first_name: file.takes_first_name.get(),
            uid: inode.uid.get(),
            gid: inode.gid.get(),
            size: file.size_with_update(),
            sectors: inode.blocks.get().saturating_mul(SECTORS),
            accessed: inode.time(Stamp::Accessed),
            changed: inode.time(Stamp::Changed),
            modified: inode.time(Stamp::Modified),
            created: inode.time(Stamp::Created),
            device: match is_device {
                true => Device::from_words(inode.address(0).0, inode.address(1).0),
                false => Device::default(),
            },
        })
    }

    /// Changes permissions, owner and times. A list of the inode follows its permissions.
    pub(crate) async fn change_attributes(
        &self,
        number: NodeId,
        changes: &AttributeChanges,
    ) -> Result<(), FsError> {
        let change = async |(file, _locked): (Rc<File>, Permit)| {
            if let Some(mode) = changes.permissions {
                let attributes = self.extended(&file).await?;
                if let Some(lists) = attributes_for_mode(number.0, attributes, mode)? {
                    self.store_extended(&file, &lists).await?;
                }
            }
            let now = self.timer.now();
            file.change(|inode| {
                if let Some(permissions) = changes.permissions {
                    set_permissions(inode, permissions);
                }
                inode.uid = changes.uid.map_or(inode.uid, Into::into);
                inode.gid = changes.gid.map_or(inode.gid, Into::into);
                let times = [
                    (Stamp::Accessed, changes.accessed),
                    (Stamp::Modified, changes.modified),
                    (Stamp::Changed, Some(changes.changed.unwrap_or(now))),
                ];
                for (stamp, time) in times {
                    time.into_iter().for_each(|time| inode.set_time(stamp, time));
                }
            });
            Ok(())
        };
        Durability(self).run_change(CALL_BLOCKS, File::lock_found(self.files.get(number)), change).await
    }

    async fn extended(&self, file: &File) -> Result<Extended, FsError> {
        let inode = *file.inode.borrow();
        self.attributes(&inode).await
    }

    /// The list of an inode.
    pub(crate) async fn find_acl(&self, number: NodeId, kind: AclKind) -> Result<Option<Acl>, FsError> {
        let file = self.files.get(number).await?;
        find_acl(kind, number.0, &self.extended(&file).await?)
    }

    /// Sets a list of an inode, or removes it; the permissions follow.
    pub(crate) async fn change_acl(&self, number: NodeId, change: AclChange<'_>) -> Result<(), FsError> {
        self.change_extended(number, |file, attributes| {
            let permissions = file.inode.borrow().mode.get() & PERMISSIONS;
            change.apply(file.kind(), attributes, permissions).map(Some)
        })
        .await
    }

    /// What a new inode of a type and a mode gets of its directory.
    pub(crate) async fn inherit(
        &self,
        directory: &File,
        mode: (FileType, u16),
        umask: u16,
    ) -> Result<Inherited, FsError> {
        Inherited::from_directory(directory.number.0, &self.extended(directory).await?, mode, umask)
    }

    /// The value of an extended attribute.
    pub(crate) async fn extended_attribute(&self, number: NodeId, name: &[u8]) -> Result<Vec<u8>, FsError> {
        if let Some(kind) = AclKind::of_attribute(name) {
            return Ok(self.find_acl(number, kind).await?.ok_or(FsError::NoAttribute)?.to_interface());
        }
        let file = self.files.get(number).await?;
        let found = self.extended(&file).await?;
        let name = AttributeName::parse(name).map_err(|_| FsError::NoAttribute)?;
        found.get(&name).map(<[u8]>::to_vec).ok_or(FsError::NoAttribute)
    }

    /// The names of all extended attributes.
    pub(crate) async fn extended_names(&self, number: NodeId) -> Result<Vec<Vec<u8>>, FsError> {
        let file = self.files.get(number).await?;
        let attributes = self.extended(&file).await?;
        Ok(attributes
            .names()
            .filter_map(AttributeName::full)
            .filter(|name| is_kept_attribute(name))
            .collect())
    }

    /// Sets an extended attribute.
    pub(crate) async fn set_extended(
        &self,
        number: NodeId,
        name: &[u8],
        value: &[u8],
        expect: Expect,
    ) -> Result<(), FsError> {
        if let Some(kind) = AclKind::of_attribute(name) {
            let acl = acl_from_interface(value)?;
            return self
                .change_acl(number, AclChange { kind, acl: Some(&acl), expect, takes_set_group: false })
                .await;
        }
        let parsed = parse_attribute(name)?;
        self.change_extended(number, |file, attributes| {
            check_attribute_of(file.kind(), name)?;
            expect.check(attributes.get(&parsed).is_some())?;
            attributes.set(parsed, value.to_vec());
            Ok(None)
        })
        .await
    }

    /// Removes an extended attribute.
    pub(crate) async fn remove_extended(&self, number: NodeId, name: &[u8]) -> Result<(), FsError> {
        let name = parse_attribute(name)?;
        self.change_extended(number, |_, attributes| match attributes.remove(&name) {
            true => Ok(None),
            false => Err(FsError::NoAttribute),
        })
        .await
    }

    /// Changes extended attributes, and the permissions if the change tells others.
    async fn change_extended(
        &self,
        number: NodeId,
        change: impl FnOnce(&File, &mut Extended) -> Result<Option<u16>, FsError>,
    ) -> Result<(), FsError> {
        let change = async |(file, _locked): (Rc<File>, Permit)| {
            let mut attributes = self.extended(&file).await?;
            let permissions = change(&file, &mut attributes)?;
            self.store_extended(&file, &attributes).await?;
            // Behind what may wait or fail.
            file.change(|inode| {
                permissions.into_iter().for_each(|permissions| set_permissions(inode, permissions));
                inode.set_time(Stamp::Changed, self.timer.now());
            });
            Ok(())
        };
        Durability(self).run_change(CALL_BLOCKS, File::lock_found(self.files.get(number)), change).await
    }

    /// Stores all extended attributes: in the inode, and where they do not fit, in a node of their own.
    pub(crate) async fn store_extended(&self, file: &Rc<File>, attributes: &Extended) -> Result<(), FsError> {
        let mut area = file.inode.borrow().attribute_area().to_vec();
        let outside = store_attributes(attributes, &mut area)
            .map_err(|error| FsError::from(error).full_is_no_space())?;
        let node = NodeId(file.inode.borrow().attribute_node.get());
        // Roll-forward brings back what is in the inode.
        if node != NodeId::NULL || outside.is_some() {
            file.needs_checkpoint.set(true);
        }
        match outside {
            None => self.free_attribute_node(file).await?,
            Some(bytes) => {
                let block = if node == NodeId::NULL {
                    self.make_attribute_node(file).await?
                } else {
                    self.placement.nodes.load(node, file.number).await?
                };
                self.placement.nodes.set_bytes(&block, &bytes);
            }
        }
        file.change(|inode| inode.attribute_area_mut().copy_from_slice(&area));
        Ok(())
    }

    /// Makes the node of a file's attributes.
    ///
    /// # Errors
    /// [`FsError::NoSpace`]; what reading the node table fails by.
    pub(crate) async fn make_attribute_node(
        &self,
        file: &Rc<File>,
    ) -> Result<Rc<crate::nodes::NodeBlock>, FsError> {
        self.placement.space.borrow_mut().promise(1)?;
        let made = self.placement.nodes.create(file.number, ATTRIBUTE_NODE_PLACE).await;
        let give_back =
            |_: &FsError| self.placement.space.borrow_mut().give_back(weir_f2fs::BlockAddress::NEW);
        let block = made.inspect_err(give_back)?;
        file.change(|inode| inode.attribute_node = block.id.0.into());
        file.count_blocks(1);
        Ok(block)
    }
}

fn set_permissions(inode: &mut Inode, permissions: u16) {
    inode.mode = (inode.mode.get() & !PERMISSIONS | permissions & PERMISSIONS).into();
}
