//! The on-disk format: ext4 with a jbd2 journal, in a documented subset (docs/format/fs.md).
//!
//! Codecs over bytes, and algorithms over a small trait, [`Blocks`]. No input or output, no policy: what is
//! cached, journaled or written when is somebody else's business.

pub mod attribute;
pub mod bitmap;
mod blocks;
pub mod check;
mod checksum;
mod descriptor;
pub mod directory;
mod dirhash;
mod error;
mod extent;
mod features;
mod inode;
pub mod journal;
mod layout;
mod mkfs;
pub mod orphan;
mod superblock;
pub mod symlink;

pub use blocks::{BLOCK_BYTES, Blocks, Kind};
pub use checksum::Checksums;
pub use descriptor::{Descriptor, group_flags};
pub use dirhash::{HashVersion, NameHash, NameHasher};
pub use error::{FormatError, Place, Structure};
pub use extent::{Extent, ExtentTree, check_extents};
pub use features::{Feature, FeatureSet, Features};
pub use inode::{
    BAD_BLOCKS_INODE, BLOCK_AREA_BYTES, FileTime, FileType, INODE_BYTES, Inode, JOURNAL_INODE, RESIZE_INODE,
    ROOT_INODE, Stamp, inode_flags,
};
pub use layout::Layout;
pub use mkfs::{Mkfs, NewImage};
pub use superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock};
