//! What a check finds: a place, and what is wrong there.

use std::fmt;

use weir_format::{FormatError, Place};

use super::Report;
use crate::block::{BlockAddress, NodeId};
use crate::inode::Extent;

/// A report lists at most this many findings.
const LISTED_MAX: usize = 1_000;

/// What is wrong at a place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Bytes that are not what the format has there.
    #[error("{0}")]
    Format(FormatError),
    /// One copy of the superblock is damaged; the check went on with the other.
    #[error("this copy of the superblock is damaged, and the other is not: a writable mount writes it anew")]
    SuperblockCopy,
    /// Errors were noted while the filesystem was in use.
    #[error("the checkpoint says that errors occurred while it was in use")]
    ErrorsNoted,
    /// The node has no place, which a checkpoint does not leave so.
    #[error("it is in use and was never written")]
    NodeWithoutPlace,
    /// The node is in a block that is free.
    #[error("its block {0} is free in the segment table")]
    NodeInFreeBlock(BlockAddress),
    /// The node is in a segment of data.
    #[error("its block {0} is in a segment of data")]
    NodeInDataSegment(BlockAddress),
    /// The footer of the node's block is that of another node.
    #[error("its block {address} is that of node {node} of inode {inode}")]
    Footer {
        /// The block.
        address: BlockAddress,
        /// Which node its footer names.
        node: NodeId,
        /// Which inode its footer names.
        inode: NodeId,
    },
    /// A summary names another owner of a node's block.
    #[error("the summary has node {owner} as the owner of its block {address}")]
    NodeOwner {
        /// The block.
        address: BlockAddress,
        /// Whom the summary names.
        owner: NodeId,
    },
    /// The node belongs to an inode that is not in use.
    #[error("it belongs to inode {0}, which is not in use")]
    NoInode(NodeId),
    /// The root directory is not in use.
    #[error("the root directory is not in use")]
    NoRoot,
    /// An orphan that is no inode in use.
    #[error("it is listed as an orphan, and is no inode in use")]
    Orphan,
    /// The summary of a segment is of the other kind than the segment.
    #[error("its summary says nodes where it holds data, or the reverse")]
    SummaryKind,
    /// A block of data is owned by a node that is not in use, or by an earlier one of that number.
    #[error("the owner of its block {offset}, node {owner}, is not in use or was freed since")]
    DataOwner {
        /// The block in the segment.
        offset: u32,
        /// Whom the summary names.
        owner: NodeId,
    },
    /// A summary names another word, or another node, than the one that leads to the block.
    #[error("the summary has word {word} of node {owner} as the owner of its block {address}")]
    PageOwner {
        /// The block.
        address: BlockAddress,
        /// Whom the summary names.
        owner: NodeId,
        /// Which of its words.
        word: u16,
    },
    /// A file has a block outside the main area.
    #[error("it has block {0}, which is outside the main area")]
    BlockOutside(BlockAddress),
    /// Two files, or one of them twice, have the same block.
    #[error("it has block {0}, which a file has already")]
    BlockTwice(BlockAddress),
    /// A file has a block that is free.
    #[error("its block {0} is free in the segment table")]
    BlockFree(BlockAddress),
    /// A file has data in a segment of nodes.
    #[error("its block {0} is in a segment of nodes")]
    BlockOfNodes(BlockAddress),
    /// The inode notes an extent that its pages do not make.
    #[error("it notes an extent of {} pages from page {} on at block {}, and they lie elsewhere", .0.pages, .0.page, .0.address)]
    Extent(Extent),
    /// A name stands for an inode that is not in use.
    #[error("a name in it stands for inode {0}, which is not in use")]
    NameOfNothing(NodeId),
    /// A node is in use, and no file leads to it.
    #[error("it is in use, and no file leads to it")]
    NodeOfNoFile,
    /// Blocks of a segment are in use, and no file leads to them.
    #[error("{blocks} of its blocks are in use, block {first} the first of them, and no file leads to them")]
    BlocksOfNoFile {
        /// How many.
        blocks: u32,
        /// The first of them.
        first: BlockAddress,
    },
    /// A number that is kept differs from what was counted.
    #[error("the number of {what} is {stored}; it should be {counted}")]
    Count {
        /// Of what.
        what: &'static str,
        /// The number in the image.
        stored: u64,
        /// The number that it should be.
        counted: u64,
    },
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub place: Place,
    /// What.
    pub problem: Problem,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            // It names the place by itself.
            Problem::Format(error) => write!(f, "{error}"),
            problem => write!(f, "{}: {problem}", self.place),
        }
    }
}

/// What was found up to now.
#[derive(Debug, Default)]
pub(super) struct Findings {
    listed: Vec<Finding>,
    total: u64,
    /// See [`Report::damaged_pack`].
    pub damaged_pack: Option<FormatError>,
}

impl Findings {
    pub fn push(&mut self, place: Place, problem: Problem) {
        self.total += 1;
        if self.listed.len() < LISTED_MAX {
            self.listed.push(Finding { place, problem });
        }
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Notes what reading came upon.
    pub fn format(&mut self, error: FormatError) {
        let place = match &error {
            FormatError::Corrupt { place, .. } | FormatError::Checksum { place, .. } => *place,
            _ => Place::Block(0),
        };
        self.push(place, Problem::Format(error));
    }

    pub fn count(&mut self, what: &'static str, stored: u64, counted: u64, place: Place) {
        if stored != counted {
            self.push(place, Problem::Count { what, stored, counted });
        }
    }

    pub fn report(self) -> Report {
        Report {
            findings: self.listed,
            total: self.total,
            damaged_pack: self.damaged_pack,
            ..Report::default()
        }
    }
}
