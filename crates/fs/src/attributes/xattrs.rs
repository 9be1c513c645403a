//! Extended attributes: small ones in the inode, the rest in one block, which other files may share.

use std::rc::Rc;

use weir_ext4::attribute;
use weir_ext4::{Blocks, Kind};
use weir_format::{AttributeName, Attributes, BLOCK_BYTES, FormatError, Stamp};
use weir_journal::TxHandle;
use weir_vfs::{
    AclKind, Caller, Expect, FsError, InodeNumber, check_attribute_of, is_kept_attribute, parse_attribute,
};

use super::AttributeStore;
use crate::inodes::Node;
use crate::mapping::Tree;

/// Blocks that a change of extended attributes changes: the inode's, the old and the new attribute block, and
/// bitmap and descriptor of each.
pub(super) const CREDITS: u32 = 8;

impl AttributeStore {
    /// The value of an extended attribute.
    pub(crate) async fn extended(&self, inode: InodeNumber, name: &[u8]) -> Result<Vec<u8>, FsError> {
        if let Some(kind) = AclKind::of_attribute(name) {
            return self.acl_attribute(inode, kind).await;
        }
        let name = parse_attribute(name)?;
        let node = self.nodes.get(inode).await?;
        let _locked = node.lock_exclusive().await;
        let found = self.read(&node).await?;
        found.get(&name).map(<[u8]>::to_vec).ok_or(FsError::NoAttribute)
    }

    /// The names of all extended attributes.
    pub(crate) async fn extended_names(&self, inode: InodeNumber) -> Result<Vec<Vec<u8>>, FsError> {
        let node = self.nodes.get(inode).await?;
        let _locked = node.lock_exclusive().await;
        let found = self.read(&node).await?;
        Ok(found.names().filter_map(AttributeName::full).filter(|name| is_kept_attribute(name)).collect())
    }

    /// Sets an extended attribute.
    pub(crate) async fn set_extended(
        &self,
        caller: Caller,
        inode: InodeNumber,
        name: &[u8],
        value: &[u8],
        expect: Expect,
    ) -> Result<(), FsError> {
        if let Some(kind) = AclKind::of_attribute(name) {
            return self.set_acl_attribute(caller, inode, kind, value, expect).await;
        }
        let full = name;
        let name = parse_attribute(name)?;
        self.changes
            .changing_with_space(async || {
                let node = self.nodes.get(inode).await?;
                check_attribute_of(node.kind(), full)?;
                self.change(caller, &node, |attributes, permissions| {
                    expect.check(attributes.get(&name).is_some())?;
                    attributes.set(name.clone(), value.to_vec());
                    Ok(permissions)
                })
                .await
            })
            .await
    }

    /// Removes an extended attribute.
    pub(crate) async fn remove_extended(
        &self,
        caller: Caller,
        inode: InodeNumber,
        name: &[u8],
    ) -> Result<(), FsError> {
        let name = parse_attribute(name)?;
        self.changes
            .changing_with_space(async || {
                let node = self.nodes.get(inode).await?;
                self.change(caller, &node, |attributes, permissions| {
                    if attributes.remove(&name) { Ok(permissions) } else { Err(FsError::NoAttribute) }
                })
                .await
            })
            .await
    }

    /// All attributes of a node, whose lock the caller holds.
    pub(super) async fn read(&self, node: &Node) -> Result<Attributes, FsError> {
        let (block, area) = {
            let inode = node.inode.borrow();
            (inode.attribute_block(), inode.attribute_area().to_vec())
        };
        if block == 0 {
            return Ok(attribute::read_attributes(node.number, &area, None)?);
        }
        let tree = Tree::from_node(node);
        tree.read(block, Kind::Attributes, |bytes| {
            attribute::read_attributes(node.number, &area, Some((block, bytes)))
        })
        .await
    }

    /// Changes a node's attributes, and the twelve bits of its permissions, which `change` is given and returns.
    pub(super) async fn change(
        &self,
        caller: Caller,
        node: &Rc<Node>,
        change: impl FnOnce(&mut Attributes, u16) -> Result<u16, FsError>,
    ) -> Result<(), FsError> {
        self.changes.journal()?;
        let _locked = node.lock_exclusive().await;
        let mut attributes = self.read(node).await?;
        let had = node.inode.borrow().permissions();
        let permissions = change(&mut attributes, had)?;
        let stored = Stored::from_attributes(&attributes, node.inode.borrow().attribute_area().len())?;
        let handle = self.changes.start_for(caller, CREDITS).await?;
        // All that needs space comes first.
        self.store(&handle, node, &stored).await?;
        {
            let mut inode = node.inode.borrow_mut();
            inode.set_permissions(permissions);
            inode.set_time(Stamp::Changed, self.timer.now());
        }
        self.changes.all_or_abort(node.log(&handle)).await
    }

    /// Gives a node its attributes; the inode changes in memory. Where there is no space for them, nothing has changed.
    pub(super) async fn store(
        &self,
        handle: &TxHandle,
        node: &Rc<Node>,
        stored: &Stored,
    ) -> Result<(), FsError> {
        self.store_block(handle, node, stored.block.as_deref()).await?;
        node.inode.borrow_mut().attribute_area_mut().copy_from_slice(&stored.area);
        Ok(())
    }

    /// Takes back what [`put`](Self::put) gave a new node.
    pub(crate) async fn take(&self, handle: &TxHandle, node: &Rc<Node>) -> Result<(), FsError> {
        self.store_block(handle, node, None).await
    }

    /// Makes `block` the attribute block of a node, or leaves it without one.
    async fn store_block(
        &self,
        handle: &TxHandle,
        node: &Rc<Node>,
        block: Option<&[u8; BLOCK_BYTES]>,
    ) -> Result<(), FsError> {
        let tree = Tree::changing(node, handle);
        let old = node.inode.borrow().attribute_block();
        let shared = old != 0 && references(&tree, old).await? > 1;
        let new = match block {
            None => 0,
            Some(_) if old != 0 && !shared => old,
            Some(_) => tree.allocate(Kind::Attributes, tree.goal()).await?,
        };
        self.changes
            .all_or_abort(async {
                if let Some(block) = block {
                    let change = |bytes: &mut [u8]| bytes.copy_from_slice(block);
                    tree.modify(new, Kind::Attributes, 0..BLOCK_BYTES, change).await?;
                }
                if old != 0 && old != new {
                    self.drop_block(handle, node).await?;
                }
                Ok(())
            })
            .await?;
        tree.count_blocks(i64::from(new != 0) - i64::from(old != 0));
        node.inode.borrow_mut().set_attribute_block(new);
        Ok(())
    }

    /// Gives up a node's attribute block: frees it, or counts a reference less where others share it. The inode
    /// is as before.
    pub(crate) async fn drop_block(&self, handle: &TxHandle, node: &Rc<Node>) -> Result<(), FsError> {
        let block = node.inode.borrow().attribute_block();
        if block == 0 {
            return Ok(());
        }
        let tree = Tree::changing(node, handle);
        match references(&tree, block).await? {
            1 => tree.free(block, Kind::Attributes).await,
            shared => {
                let change = |bytes: &mut [u8]| bytes.copy_from_slice(&(shared - 1).to_le_bytes());
                tree.modify(block, Kind::Attributes, attribute::REFERENCES, change).await
            }
        }
    }
}

async fn references(tree: &Tree<'_>, block: u64) -> Result<u32, FsError> {
    tree.read(block, Kind::Attributes, |bytes| -> Result<u32, FormatError> {
        attribute::references(block, bytes)
    })
    .await
}

/// All attributes of an inode, as they are stored: in the inode, and in a block if they need one.
pub(super) struct Stored {
    area: Vec<u8>,
    block: Option<Box<[u8; BLOCK_BYTES]>>,
}

impl Stored {
    /// In an inode with so many bytes for them.
    pub(super) fn from_attributes(attributes: &Attributes, area_bytes: usize) -> Result<Stored, FsError> {
        let mut area = vec![0; area_bytes];
        let block = attribute::store_attributes(attributes, &mut area)
            .map_err(|error| FsError::from(error).full_is_no_space())?;
        Ok(Stored { area, block })
    }
}
