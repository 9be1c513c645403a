//! The on-disk format: ext4 with a jbd2 journal, in a documented subset (docs/format/fs.md).
//!
//! Codecs over bytes, and algorithms over a small trait, [`Blocks`]. No input or output, no policy: what is
//! cached, journaled or written when is the business of the crates above.
//!
//! # How a file is found
//!
//! 1. [`Superblock::read`] takes the 1,024 bytes at [`SUPERBLOCK_OFFSET`], and refuses by name what is outside
//!    the subset. With `needs_recovery`, the [`journal`] is replayed before anything else is believed; then the
//!    [`orphan`]s are dealt with.
//! 2. [`Layout::new`] says where the descriptors are, and [`Descriptor::read`] where a group has its bitmaps and
//!    its inode table.
//! 3. [`Layout::inode_group`] and [`Layout::inode_place`] lead to the bytes of an [`Inode`]; the root directory's
//!    is [`ROOT_INODE`].
//! 4. The inode's block area is the root of an [`ExtentTree`], which maps blocks of the file to blocks of the
//!    disk. A [`directory`] is a file that leads from names to inodes.
//!
//! # What a caller keeps in mind
//!
//! Everything that is read is checked where it is read, so hostile bytes lead to a [`FormatError`](weir_format::FormatError) and never
//! out of the filesystem. Everything that is changed is sealed before it is written: inodes, descriptors and
//! superblocks by their own `seal` or `write`, bitmaps through their descriptor, other blocks by
//! [`Checksums::update_checksum`]. Bytes that this crate does not understand stay as they were.

pub mod attribute;
pub mod bitmap;
mod blocks;
pub mod check;
mod checksum;
mod descriptor;
pub mod directory;
mod dirhash;
mod extent;
mod features;
mod grow;
mod inode;
pub mod journal;
mod layout;
mod mkfs;
pub mod orphan;
mod superblock;
pub mod symlink;

pub use blocks::{Blocks, Kind};
pub use checksum::Checksums;
pub use descriptor::{Descriptor, group_flags};
pub use dirhash::{HashVersion, NameHash, NameHasher};
pub use extent::{Extent, ExtentTree, check_extents};
pub use features::{Feature, FeatureSet, Features};
pub use grow::{Growth, descriptor_copies, superblock_copies};
pub use inode::{
    BAD_BLOCKS_INODE, BLOCK_AREA_BYTES, INODE_BYTES, Inode, JOURNAL_INODE, RESIZE_INODE, ROOT_INODE,
    inode_flags,
};
pub use layout::Layout;
pub use mkfs::{Mkfs, NewImage};
pub use superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_COPIES, SUPERBLOCK_OFFSET, Superblock};
