//! The on-disk format of F2FS, the log-structured filesystem for flash, in a subset (docs/format/f2fs.md): what the areas of
//! the disk hold, nodes, files and names, without input, output or policy.
//!
//! # How a node is found
//!
//! 1. [`Superblock::choose`] takes blocks 0 and 1, and refuses by name what is outside the subset; [`Layout::new`]
//!    says where the areas are.
//! 2. [`CheckpointPack::choose`] takes the newer whole pack of the two. It says which copy of each table block is
//!    valid, and carries the newest entries of both tables in the journals of its summaries.
//! 3. The node address table ([`NodeTableBlock`], unless [`NodeJournal`] has the node) leads to the node's block.
//!
//! [`Mkfs`] plans a new image, and [`check`] compares the areas of one with each other.
//!
//! # The subset
//!
//! Blocks of 4,096 bytes, segments of 512 blocks, one segment a section, one section a zone, one device. The features of
//! [`Feature::SUPPORTED`]; those of [`Feature::REFUSED`] are refused by name, and so are checkpoints with large bitmaps of
//! the node address table (`mkfs.f2fs -i`), disabled checkpoints and unfinished resizes. The bitmaps of full and empty
//! table blocks that a checkpoint may have behind it (`nat_bits`) are neither read nor kept.
//!
//! # How a file is found
//!
//! An [`Inode`] is a node. A [`NodePath`] leads from a page of a file to the word of a node that has its address. A directory is a
//! file of [names](NameArea) in [buckets] by their hashes; a small one lies in its inode, and so does a small file. [`Image`] does
//! all of that, to read.
//!
//! # What a caller keeps in mind
//!
//! Everything that is read is checked where it is read, so hostile bytes lead to a [`FormatError`] and never out of the
//! filesystem. What can only be judged with other blocks (is the owner in a summary really the owner?) is the
//! caller's to compare.

pub mod attribute;
mod bitmap;
mod block;
pub mod buckets;
mod chain;
pub mod check;
mod checkpoint;
mod crc;
mod dentry;
mod features;
mod image;
mod inode;
mod layout;
mod log;
mod mkfs;
mod name_hash;
mod node;
mod node_table;
mod path;
mod reader;
mod segment_table;
mod summary;
mod superblock;

pub use block::{
    BLOCK_BYTES, BlockAddress, NODE_ENTRIES_PER_BLOCK, NodeId, SEGMENT_BLOCKS, SEGMENT_ENTRIES_PER_BLOCK,
    SegmentNumber,
};
pub use chain::{ChainNode, read_chain};
pub use checkpoint::{
    Allocation, CheckpointHeader, CheckpointPack, LogState, MAX_ORPHANS_PER_BLOCK, checkpoint_flags,
    header_checksum,
};
pub use crc::crc32;
pub use dentry::{Dentry, NAME_MAX, NameArea, slots_of, write_dots};
pub use features::{Feature, Features};
pub use image::{Block, Image, SharedBlock, read_block, read_superblock};
pub use inode::{EXTRA_BYTES, Extent, Inode, inline_flags, inode_flags};
pub use layout::{Layout, TableCopies};
pub use log::Log;
pub use mkfs::{Mkfs, NewImage};
pub use name_hash::hash_name;
pub use node::{
    ADDRESSES_PER_NODE, ATTRIBUTE_NODE_PLACE, NODE_BYTES, NodeFooter, NodeMark, read_word, write_word,
};
pub use node_table::{NodeEntry, NodeTableBlock};
pub use path::{NodePath, Step, first_page, pages_max};
pub use reader::{FileReader, FoundName, bytes_of_page};
pub use segment_table::{SegmentEntry, SegmentTableBlock};
pub use summary::{
    Journal, NODE_JOURNAL_ENTRIES, NodeJournal, NodeJournalEntry, SEGMENT_JOURNAL_ENTRIES, SegmentJournal,
    SegmentJournalEntry, Summary, SummaryBlock, SummaryKind,
};
pub use superblock::{ChosenSuperblock, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock};
pub use weir_format::{FormatError, Place, Structure};
