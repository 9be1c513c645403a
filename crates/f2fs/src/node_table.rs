//! The node address table (NAT): where each node is.

use weir_format::{FormatError, Place, Structure};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::block::{BLOCK_BYTES, BlockAddress, NODE_ENTRIES_PER_BLOCK, NodeId};
use crate::layout::Layout;

/// Where a node is, and whose it is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct NodeEntry {
    /// Counts the uses of the number, so that summaries of a former node are told from those of this one.
    pub version: u8,
    /// The inode to which the node belongs.
    pub inode: U32,
    /// 0: the number is free. [`BlockAddress::NEW`]: it has no place yet. 1: the two inodes that stand for areas.
    pub address: U32,
}

impl NodeEntry {
    /// Where the node is.
    pub fn address(&self) -> BlockAddress {
        BlockAddress(self.address.get())
    }

    /// Checks the entry of `node`, which is not one of those that stand for areas.
    ///
    /// # Errors
    ///
    /// An address outside the main area, a node that belongs to none.
    pub fn check(&self, node: NodeId, layout: &Layout) -> Result<(), FormatError> {
        let corrupt =
            |what| Err(FormatError::corrupt(Structure::NodeAddressTable, Place::Node(node.0), what));
        let reserved = [NodeId::NULL, NodeId::NODE_INODE, NodeId::META_INODE].contains(&node);
        if reserved || !self.address().is_block() {
            return Ok(());
        }
        if layout.segment_of(self.address()).is_none() {
            return corrupt("its address is outside the main area");
        }
        let inode = NodeId(self.inode.get());
        if inode < NodeId::ROOT || inode.0 >= layout.nodes() {
            return corrupt("it belongs to an inode that cannot be");
        }
        Ok(())
    }
}

/// A block of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NodeTableBlock {
    /// The entries of consecutive nodes.
    pub entries: [NodeEntry; NODE_ENTRIES_PER_BLOCK],
    /// Not used.
    pub rest: u8,
}

const _: () = assert!(size_of::<NodeTableBlock>() == BLOCK_BYTES);

impl NodeTableBlock {
    /// Reads block `index` of the table, and checks its entries.
    ///
    /// # Errors
    ///
    /// As [`NodeEntry::check`], or a block that is too short.
    pub fn read(bytes: &[u8], index: u32, layout: &Layout) -> Result<Box<Self>, FormatError> {
        let short =
            FormatError::corrupt(Structure::NodeAddressTable, Place::Block(u64::from(index)), "too short");
        let (block, _) = Self::read_from_prefix(bytes).map_err(|_| short)?;
        let first = u64::from(index) * NODE_ENTRIES_PER_BLOCK as u64;
        for (node, entry) in (first..).zip(&block.entries) {
            // The table ends where numbers of nodes do.
            let Ok(node) = u32::try_from(node) else { break };
            entry.check(NodeId(node), layout)?;
        }
        Ok(Box::new(block))
    }
}
