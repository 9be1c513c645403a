//! What can be wrong with bytes that claim to be a filesystem.

use std::fmt;

/// A structure of the format, as errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Structure {
    /// The superblock or a copy of it.
    Superblock,
    /// A group descriptor.
    Descriptor,
    /// A bitmap of blocks.
    BlockBitmap,
    /// A bitmap of inodes.
    InodeBitmap,
    /// An inode.
    Inode,
    /// A node of an extent tree, the root in the inode included.
    ExtentNode,
    /// A block of directory entries.
    Directory,
    /// A node of a directory's hashed index.
    DirectoryIndex,
    /// Extended attributes, in an inode or in a block.
    Attributes,
    /// The target of a symbolic link.
    SymlinkTarget,
    /// A block of the orphan file.
    OrphanFile,
    /// The journal's superblock.
    JournalSuperblock,
    /// A descriptor, revoke or commit block of the journal.
    JournalBlock,
    /// F2FS: a checkpoint pack, or a part of it.
    Checkpoint,
    /// F2FS: a block of the node address table.
    NodeAddressTable,
    /// F2FS: a block of the segment information table.
    SegmentTable,
    /// F2FS: a summary of the blocks of a segment.
    Summary,
    /// F2FS: a node block.
    Node,
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Superblock => "superblock",
            Self::Descriptor => "group descriptor",
            Self::BlockBitmap => "block bitmap",
            Self::InodeBitmap => "inode bitmap",
            Self::Inode => "inode",
            Self::ExtentNode => "extent node",
            Self::Directory => "directory block",
            Self::DirectoryIndex => "directory index",
            Self::Attributes => "extended attributes",
            Self::SymlinkTarget => "symlink target",
            Self::OrphanFile => "orphan file",
            Self::JournalSuperblock => "journal superblock",
            Self::JournalBlock => "journal block",
            Self::Checkpoint => "checkpoint",
            Self::NodeAddressTable => "node address table",
            Self::SegmentTable => "segment information table",
            Self::Summary => "segment summary",
            Self::Node => "node",
        })
    }
}

/// Where a structure lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In a block of the filesystem.
    Block(u64),
    /// Of or in an inode.
    Inode(u32),
    /// Of a block group.
    Group(u32),
    /// In a block of the journal, counted from the journal's start.
    JournalBlock(u32),
    /// F2FS: of a segment of the main area.
    Segment(u32),
    /// F2FS: of or in a node.
    Node(u32),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block(block) => write!(f, "block {block}"),
            Self::Inode(inode) => write!(f, "inode {inode}"),
            Self::Group(group) => write!(f, "group {group}"),
            Self::JournalBlock(block) => write!(f, "journal block {block}"),
            Self::Segment(segment) => write!(f, "segment {segment}"),
            Self::Node(node) => write!(f, "node {node}"),
        }
    }
}

/// Why bytes are not a filesystem that this crate reads, or why a change does not fit into them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The bytes do not name the format where a superblock does: they are something else, or the superblock is lost.
    #[error("it holds no {format} filesystem")]
    Foreign {
        /// Which format was expected.
        format: &'static str,
    },
    /// The checksum stored in a structure is not that of its bytes: damage. Check the filesystem.
    #[error("{place}: the checksum of the {structure} does not match its bytes")]
    Checksum {
        /// What it is.
        structure: Structure,
        /// Where it is.
        place: Place,
    },
    /// The image uses a feature outside the subset (docs/format/fs.md): make it without.
    #[error(
        "the filesystem uses the feature {name}, which is not supported: copy its files into one without it"
    )]
    Feature {
        /// Its name as mkfs.ext4 spells it, or what it is.
        name: &'static str,
    },
    /// The image is made in another way than the subset (docs/format/fs.md).
    #[error("the filesystem has {what}")]
    Unsupported {
        /// What it has, and how to make one that is supported.
        what: &'static str,
    },
    /// The image uses features without a name.
    #[error("the filesystem uses unknown {set} features {bits:#x}: copy its files into one without them")]
    UnknownFeatures {
        /// compatible, incompatible or read-only compatible.
        set: &'static str,
        /// Their bits in that set.
        bits: u32,
    },
    /// The image lacks a feature that this crate relies on: make it with.
    #[error("the filesystem lacks the feature {name}, which is needed: copy its files into one that has it")]
    MissingFeature {
        /// Its name as mkfs.ext4 spells it.
        name: &'static str,
    },
    /// A field has a value that it cannot have: damage. Check the filesystem.
    #[error("the {structure} of {place} is damaged: {what}")]
    Corrupt {
        /// What it is.
        structure: Structure,
        /// Where it is.
        place: Place,
        /// Which field, and what is wrong with it.
        what: &'static str,
    },
    /// A structure has reached the largest size that the format allows, or there is no room left.
    #[error("no room: {what}")]
    Full {
        /// What is full.
        what: &'static str,
    },
    /// An option, or a value to be stored, lies outside what the format can hold.
    #[error("invalid: {what}")]
    Invalid {
        /// Which, and what it must be.
        what: &'static str,
    },
}

impl FormatError {
    /// Whether it says nothing of damage: the image, or its journal, is of a kind that this crate does not read.
    pub fn is_unsupported(&self) -> bool {
        use FormatError::{Feature, MissingFeature, UnknownFeatures, Unsupported};
        matches!(self, Feature { .. } | MissingFeature { .. } | UnknownFeatures { .. } | Unsupported { .. })
    }

    /// A damaged `structure` in a block.
    pub fn corrupt(structure: Structure, place: Place, what: &'static str) -> Self {
        Self::Corrupt { structure, place, what }
    }
}
