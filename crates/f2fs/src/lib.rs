//! The on-disk format of F2FS, the log-structured filesystem for flash, in a documented subset (docs/format/f2fs.md).
//!
//! Codecs over bytes, and algorithms without policy: what is cached, cleaned or written when is the business of the crates
//! above.
//!
//! # How a file is found
//!
//! 1. [`Superblock::read`] takes block 0 or 1, and refuses by name what is outside the subset. [`Layout`] says where areas are.
//! 2. Of the two [`Checkpoint`] packs the newer one that is whole is the state of the filesystem. It says which copy of each block of
//!    the two tables is valid, and carries their newest changes in *journals*.
//! 3. The node table leads from the number of a node to its block ([`node_table`]). An [`Inode`] is a node.
//! 4. A [`NodePath`] leads from a page of a file to the word of a node that has its address.
//! 5. A directory is a file of [names](NameArea) in [buckets] by their hashes; a small one lies in its inode.
//!
//! [`Image`] does all of that, to read.
//!
//! # How space is known
//!
//! The main area consists of segments of 512 blocks. The segment table ([`segment_table`]) says which blocks are valid; a
//! [`Summary`] of each segment, to which node each block belongs. Six logs are open, each in a segment of its own
//! ([`LogKind`]).
//!
//! # What a caller keeps in mind
//!
//! Everything that is read is checked where it is read, so hostile bytes lead to a [`FormatError`](weir_format::FormatError)
//! and never out of the filesystem.

mod address;
pub mod attribute;
mod bits;
pub mod buckets;
mod checkpoint;
mod crc;
mod dentry;
mod features;
mod image;
mod inode;
mod layout;
mod mkfs;
mod name_hash;
mod node;
pub mod node_table;
mod path;
pub mod segment_table;
mod summary;
mod superblock;

pub use address::{BlockAddress, NodeId, SEGMENT_BLOCKS};
pub use checkpoint::{Checkpoint, OpenLog, newest, pack_blocks};
pub use dentry::{Dentry, NAME_MAX, NameArea, slots_of, write_dots};
pub use features::{Feature, Features};
pub use image::{Block, Image};
pub use inode::{EXTRA_BYTES, Inode, inline_flags, inode_flags};
pub use layout::Layout;
pub use mkfs::{Mkfs, NewImage};
pub use name_hash::hash_name;
pub use node::{
    ADDRESSES_PER_NODE, ATTRIBUTE_NODE_PLACE, NODE_BYTES, NodeFooter, NodeMark, read_word, write_word,
};
pub use node_table::{NODES_PER_BLOCK, NodeEntry};
pub use path::{NodePath, Step, first_page, pages_max};
pub use segment_table::{LogKind, SEGMENTS_PER_BLOCK, SegmentEntry};
pub use summary::{
    JOURNAL_NODES_MAX, JOURNAL_SEGMENTS_MAX, JournalNode, JournalSegment, Summary, SummaryEntry,
};
pub use superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock};
