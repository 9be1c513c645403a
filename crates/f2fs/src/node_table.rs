//! The node address table (NAT): where each node is.

use weir_format::{BLOCK_BYTES, FormatError, Place, Structure};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::address::{BlockAddress, NodeId};
use crate::layout::Layout;

/// Bytes of an entry.
const ENTRY_BYTES: usize = 9;
/// Entries in a block.
pub const NODES_PER_BLOCK: u32 = (BLOCK_BYTES / ENTRY_BYTES) as u32;

/// Where a node is, as a block of the table and a journal have it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct NodeEntry {
    /// Counts how often the number was given anew; [summaries](crate::SummaryEntry) repeat it.
    pub version: u8,
    inode: U32,
    address: U32,
}

impl NodeEntry {
    /// An entry of a node that belongs to an inode.
    pub fn new(version: u8, inode: NodeId, address: BlockAddress) -> Self {
        Self { version, inode: inode.0.into(), address: address.0.into() }
    }

    /// The inode that the node belongs to; itself for an inode.
    pub fn inode(&self) -> NodeId {
        NodeId(self.inode.get())
    }

    /// Where it is; [`BlockAddress::NULL`] for a number that is free.
    pub fn address(&self) -> BlockAddress {
        BlockAddress(self.address.get())
    }

    /// That the entry of `node` leads to a place in the main area, or nowhere.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] otherwise.
    pub fn check(&self, node: NodeId, layout: &Layout) -> Result<(), FormatError> {
        let corrupt =
            |what| Err(FormatError::corrupt(Structure::NodeAddressTable, Place::Inode(node.0), what));
        match self.address() {
            BlockAddress::NULL | BlockAddress::NEW => Ok(()),
            place if layout.segment_of(place).is_none() => corrupt("a node outside the main area"),
            _ if !layout.has_node(self.inode()) => corrupt("a node of an inode that cannot be"),
            _ => Ok(()),
        }
    }
}

/// The block of the table, and the entry in it, of a node.
pub fn entry_place(node: NodeId) -> (u32, usize) {
    (node.0 / NODES_PER_BLOCK, (node.0 % NODES_PER_BLOCK) as usize)
}

/// The entry `nth` of a block; free if the block has not so many.
pub fn read_entry(block: &[u8], nth: usize) -> NodeEntry {
    let bytes = block.get(nth * ENTRY_BYTES..(nth + 1) * ENTRY_BYTES);
    bytes.and_then(|bytes| NodeEntry::read_from_bytes(bytes).ok()).unwrap_or_default()
}

/// Stores the entry `nth` of a block, which has so many.
pub fn write_entry(block: &mut [u8; BLOCK_BYTES], nth: usize, entry: &NodeEntry) {
    block[nth * ENTRY_BYTES..(nth + 1) * ENTRY_BYTES].copy_from_slice(entry.as_bytes());
}
