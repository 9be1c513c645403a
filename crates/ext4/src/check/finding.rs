//! What a check finds: a place, and what is wrong there.

use std::fmt;

use weir_format::{FormatError, Place, Structure};

use super::Report;

/// A report lists at most this many findings.
const LISTED_MAX: usize = 1_000;

/// What is wrong at a place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A checksum does not match the bytes that it covers.
    #[error("the checksum of the {0} does not match its bytes")]
    Checksum(Structure),
    /// A field has a value that it cannot have.
    #[error("the {0} is damaged: {1}")]
    Damaged(Structure, &'static str),
    /// Something is used that this crate does not read; what depends on it was not checked.
    #[error("it uses {0}, which is not supported")]
    Unsupported(&'static str),
    /// The image is shorter than its filesystem.
    #[error("the filesystem has {blocks} blocks, but the device only {device}")]
    Truncated {
        /// Blocks that the superblock says.
        blocks: u64,
        /// Blocks that there are.
        device: u64,
    },
    /// The filesystem was not unmounted, and has no journal that would make up for it.
    #[error("the filesystem was not unmounted cleanly")]
    NotClean,
    /// A mount noted errors in the superblock or the journal, and no check has cleared them since.
    #[error("the superblock says that errors occurred while it was in use")]
    ErrorsNoted,
    /// A copy of the superblock or of descriptors says something else than the original.
    #[error("the copy of the {0} differs from the original")]
    CopyDiffers(Structure),
    /// A block that something else uses, too.
    #[error("block {block} is in use twice")]
    BlockTwice {
        /// The first such block of the place.
        block: u64,
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
    /// A file's size does not go with its blocks.
    #[error("the size is {size} bytes, with {blocks} blocks mapped")]
    Size {
        /// The size in bytes.
        size: u64,
        /// The block behind the last that is mapped.
        blocks: u64,
    },
    /// An entry of a directory is wrong.
    #[error("the name \"{}\" {what}", name.escape_ascii())]
    Name {
        /// The name.
        name: Vec<u8>,
        /// What is wrong with it.
        what: &'static str,
    },
    /// ".." stands for another directory than the one above.
    #[error("\"..\" names inode {stored}, but the parent directory is inode {parent}")]
    Parent {
        /// What ".." says.
        stored: u32,
        /// The directory with the name.
        parent: u32,
    },
    /// An inode is in use, and no name leads to it from the root.
    #[error("it is in use, but cannot be reached from the root directory")]
    Unreachable,
    /// A bitmap calls in use what is not used.
    #[error("the {structure} marks {count} as in use that are not, the first at {first}")]
    MarkedUsed {
        /// Which bitmap.
        structure: Structure,
        /// The first block or inode.
        first: u64,
        /// How many.
        count: u32,
    },
    /// A bitmap marks as free what is in use.
    #[error("the {structure} marks {count} as free that are in use, the first at {first}")]
    MarkedFree {
        /// Which bitmap.
        structure: Structure,
        /// The first block or inode.
        first: u64,
        /// How many.
        count: u32,
    },
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub place: Place,
    /// What.
    pub problem: Problem,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.problem)
    }
}

/// Findings as they come in: the first ones, and their number.
#[derive(Debug, Default)]
pub(super) struct Findings {
    listed: Vec<Finding>,
    total: u64,
}

impl Findings {
    pub(super) fn push(&mut self, place: Place, problem: Problem) {
        self.total += 1;
        if self.listed.len() < LISTED_MAX {
            self.listed.push(Finding { place, problem });
        }
    }

    /// A structure that cannot be read; without a place of its own, it is the superblock's.
    pub(super) fn format(&mut self, error: &FormatError) {
        let (place, problem) = match *error {
            FormatError::Checksum { structure, place } => (place, Problem::Checksum(structure)),
            FormatError::Corrupt { structure, place, what } => (place, Problem::Damaged(structure, what)),
            FormatError::Foreign { .. } => {
                (Place::Block(0), Problem::Damaged(Structure::Superblock, "no magic number of ext4"))
            }
            ref other => (Place::Block(0), unsupported(other)),
        };
        // A descriptor may have been in the way of the journal already.
        let descriptor = matches!(
            problem,
            Problem::Checksum(Structure::Descriptor) | Problem::Damaged(Structure::Descriptor, _)
        );
        if !descriptor || !self.listed.iter().any(|known| known.place == place && known.problem == problem) {
            self.push(place, problem);
        }
    }

    /// The same, for errors that name no place: then it is `place`.
    pub(super) fn format_at(&mut self, place: Place, error: &FormatError) {
        match error {
            FormatError::Checksum { .. } | FormatError::Corrupt { .. } => self.format(error),
            other => self.push(place, unsupported(other)),
        }
    }

    /// A number that should be another.
    pub(super) fn count(&mut self, place: Place, what: &'static str, stored: u64, counted: u64) {
        if stored != counted {
            self.push(place, Problem::Count { what, stored, counted });
        }
    }

    pub(super) fn damaged(&mut self, place: Place, structure: Structure, what: &'static str) {
        self.push(place, Problem::Damaged(structure, what));
    }

    pub(super) fn report(self) -> Report {
        Report { findings: self.listed, total: self.total, ..Report::default() }
    }
}

fn unsupported(error: &FormatError) -> Problem {
    Problem::Unsupported(match error {
        FormatError::Feature { name } | FormatError::MissingFeature { name } => name,
        FormatError::Full { what } | FormatError::Invalid { what } | FormatError::Unsupported { what } => {
            what
        }
        _ => "unknown features",
    })
}
