//! Node blocks: inodes, direct nodes, which map pages of a file to blocks, and indirect nodes, which lead to other nodes. Each
//! ends with a footer that says which it is.

use weir_format::{BLOCK_BYTES, FormatError, Place, Structure};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::block::{BlockAddress, NodeId};

/// Addresses in a direct node, and nodes in an indirect one.
pub const ADDRESSES_PER_NODE: u32 = 1018;
/// Bytes of the footer.
const FOOTER_BYTES: usize = 24;
/// Bytes of a node before its footer.
pub const NODE_BYTES: usize = BLOCK_BYTES - FOOTER_BYTES;
/// The place of the node of attributes among the nodes of a file: it maps nothing.
pub const ATTRIBUTE_NODE_PLACE: u32 = u32::MAX >> PLACE_SHIFT;
/// Bits of `flags` below the place.
const PLACE_SHIFT: u32 = 3;

/// Marks of a node in its footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeMark {
    /// It belongs to a file that is no directory, so its direct nodes go to the log of warm nodes.
    Cold = 0,
    /// `fsync` has written it: recovery takes it, and what was written before it.
    Fsync = 1,
    /// The inode was not in the last checkpoint: recovery gives it its name.
    Dentry = 2,
}

/// The end of a node block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NodeFooter {
    node: U32,
    inode: U32,
    flags: U32,
    version: U64,
    next: U32,
}

const _: () = assert!(size_of::<NodeFooter>() == FOOTER_BYTES);

impl NodeFooter {
    /// The footer of a node of an inode, the `place`-th among its nodes; the inode itself has place 0.
    pub fn new(node: NodeId, inode: NodeId, place: u32) -> Self {
        let flags = (place << PLACE_SHIFT).into();
        Self { node: node.0.into(), inode: inode.0.into(), flags, version: 0.into(), next: 0.into() }
    }

    /// The footer of a block, whatever it says.
    pub fn of_block(block: &[u8]) -> Option<Self> {
        Self::read_from_bytes(block.get(NODE_BYTES..BLOCK_BYTES)?).ok()
    }

    /// Puts it at the end of its block.
    pub fn write(&self, block: &mut [u8; BLOCK_BYTES]) {
        block[NODE_BYTES..].copy_from_slice(self.as_bytes());
    }

    /// The node.
    pub fn node(&self) -> NodeId {
        NodeId(self.node.get())
    }

    /// The inode that it belongs to.
    pub fn inode(&self) -> NodeId {
        NodeId(self.inode.get())
    }

    /// Its place among the nodes of the inode: see [`path`](crate::NodePath).
    pub fn place(&self) -> u32 {
        self.flags.get() >> PLACE_SHIFT
    }

    /// Whether it has a mark.
    pub fn has(&self, mark: NodeMark) -> bool {
        self.flags.get() & 1 << mark as u32 != 0
    }

    /// Sets or takes a mark.
    pub fn set(&mut self, mark: NodeMark, value: bool) {
        let bit = 1 << mark as u32;
        let flags = self.flags.get();
        self.flags = (if value { flags | bit } else { flags & !bit }).into();
    }

    /// The checkpoint that it was written after, and above its 32 bits a checksum of that checkpoint's: so blocks of an
    /// earlier life of the log are told from its own.
    pub fn version(&self) -> u64 {
        self.version.get()
    }

    /// Where the next node of its log goes.
    pub fn next(&self) -> BlockAddress {
        BlockAddress(self.next.get())
    }

    /// Says when it is written, and where the next node goes.
    pub fn set_written(&mut self, version: u64, next: BlockAddress) {
        (self.version, self.next) = (version.into(), next.0.into());
    }

    /// That a block, found at `address`, is the node that the node table says.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for another node, or one of another inode.
    pub fn check(
        block: &[u8],
        node: NodeId,
        inode: NodeId,
        address: BlockAddress,
    ) -> Result<Self, FormatError> {
        let corrupt = |what| FormatError::corrupt(Structure::Node, Place::Block(address.0.into()), what);
        let footer = Self::of_block(block).ok_or_else(|| corrupt("too short"))?;
        if footer.node() != node || footer.inode() != inode {
            return Err(corrupt("it is another node than the node table says"));
        }
        let is_inode = node == inode;
        if is_inode != (footer.place() == 0) {
            return Err(corrupt("its place among the nodes of its file"));
        }
        Ok(footer)
    }
}

/// The addresses in a direct node, or the numbers of nodes in an indirect one.
pub fn read_word(block: &[u8], nth: u32) -> u32 {
    let at = nth as usize * 4;
    match block.get(at..at + 4) {
        Some(&[a, b, c, d]) if nth < ADDRESSES_PER_NODE => u32::from_le_bytes([a, b, c, d]),
        _ => 0,
    }
}

/// Stores an address in a direct node, or the number of a node in an indirect one. `nth` is below
/// [`ADDRESSES_PER_NODE`].
pub fn write_word(block: &mut [u8; BLOCK_BYTES], nth: u32, word: u32) {
    let at = nth as usize * 4;
    block[at..at + 4].copy_from_slice(&word.to_le_bytes());
}
