//! Making a filesystem: which blocks a new image consists of.
//!
//! The parts of a new image are where a rule says they are, so nothing but the descriptors is held in memory,
//! and the bitmaps of most groups are not even written: their flags say that only the group's own metadata
//! is in use. Without checksums descriptors have no such flags, and all bitmaps and tables are written.

mod image;
mod size;

pub use image::NewImage;

use weir_format::{BLOCK_BYTES, FormatError};

use crate::features::{Feature, Features};

/// Blocks in a group: the bits of one bitmap block.
const BLOCKS_PER_GROUP: u32 = BLOCK_BYTES as u32 * 8;
/// Groups whose bitmaps and inode tables lie together, as a power of two.
const LOG_GROUPS_PER_FLEX: u8 = 4;
/// The smallest journal that jbd2 takes.
const JOURNAL_BLOCKS_MIN: u32 = 1024;
/// The largest journal that is made unless the caller asks for another: 256 MiB.
const JOURNAL_BLOCKS_SHARE_MAX: u32 = 65_536;
/// The largest one that mke2fs makes, 39 GiB, and the share of the blocks that it gives a journal at most.
const JOURNAL_BLOCKS_MAX: u32 = 10_240_000;
const JOURNAL_SHARE_MAX: u64 = 2;
/// 8 MiB: below, a journal leaves no room for files.
const BLOCKS_MIN: u64 = 2048;
/// 16 TiB.
const BLOCKS_MAX: u64 = 1 << 32;
/// What a last group must have besides its own metadata to be worth it.
pub(crate) const LAST_GROUP_ROOM: u32 = 50;

/// What a new filesystem is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mkfs {
    /// Size of the image in blocks of 4,096 bytes: 2,048 (8 MiB) to 2^32 (16 TiB). A rest too small for a
    /// group is left out.
    pub blocks: u64,
    /// Names the filesystem and seeds its checksums: random bytes.
    pub uuid: [u8; 16],
    /// Seeds the hashes of names: random bytes.
    pub hash_seed: [u8; 16],
    /// A name for people, at most 16 bytes.
    pub label: String,
    /// When it was made: seconds since 1970.
    pub created: u32,
    /// One inode for this many bytes: at least 4,096. `None`: 4,096 below 512 MiB, 16,384 below 4 TiB, 32,768
    /// from there.
    pub bytes_per_inode: Option<u32>,
    /// Blocks of the journal: 1,024 to 10,240,000, and at most half of all. `None`: by the image's size, 4 MiB to 256 MiB.
    pub journal_blocks: Option<u32>,
    /// Percent of the blocks that only the superuser may take: 0 to 50.
    pub reserved_percent: u8,
    /// The owner of the root directory.
    pub uid: u32,
    /// Which group does.
    pub gid: u32,
    /// Whether what is not written reads as zeros, as in a new file: the journal is not cleared then, and
    /// inode tables count as cleared.
    pub zeroed: bool,
    /// Whether metadata and the journal's blocks carry checksums. Without them damage is found where it makes no sense,
    /// and not else; and all bitmaps and inode tables are written, as no flag may say that they were not.
    pub checksums: bool,
}

impl Mkfs {
    /// A filesystem of `blocks` blocks with nothing special about it.
    pub fn new(blocks: u64, uuid: [u8; 16], hash_seed: [u8; 16], created: u32) -> Self {
        Self {
            blocks,
            uuid,
            hash_seed,
            label: String::new(),
            created,
            bytes_per_inode: None,
            journal_blocks: None,
            reserved_percent: 5,
            uid: 0,
            gid: 0,
            zeroed: false,
            checksums: true,
        }
    }

    /// The features that are made.
    pub fn features(&self) -> Features {
        let always = Features::from_list(&[
            Feature::HAS_JOURNAL,
            Feature::EXT_ATTR,
            Feature::DIR_INDEX,
            Feature::FILETYPE,
            Feature::EXTENT,
            Feature::WIDE,
            Feature::FLEX_BG,
            Feature::SPARSE_SUPER,
            Feature::LARGE_FILE,
            Feature::HUGE_FILE,
            Feature::DIR_NLINK,
            Feature::EXTRA_ISIZE,
        ]);
        always.with(Feature::METADATA_CSUM, self.checksums)
    }

    /// Decides where everything goes.
    ///
    /// # Errors
    ///
    /// [`FormatError::Invalid`] for an option out of range, [`FormatError::Full`] if the journal does not fit.
    pub fn plan(&self) -> Result<NewImage, FormatError> {
        let invalid = [
            (!(BLOCKS_MIN..=BLOCKS_MAX).contains(&self.blocks), "a size below 8 MiB or above 16 TiB"),
            (self.label.len() > 16, "a label of more than 16 bytes"),
            (self.reserved_percent > 50, "more than 50 percent reserved"),
            (self.bytes_per_inode.is_some_and(|bytes| bytes < 4096), "fewer than 4,096 bytes for each inode"),
            (
                self.journal_blocks.is_some_and(|blocks| blocks < JOURNAL_BLOCKS_MIN),
                "a journal of fewer than 1,024 blocks (4 MiB)",
            ),
            (
                self.journal_blocks.is_some_and(|blocks| blocks > JOURNAL_BLOCKS_MAX),
                "a journal of more than 10,240,000 blocks (39 GiB), which jbd2's tools do not take",
            ),
        ];
        match invalid.into_iter().find(|(invalid, _)| *invalid) {
            Some((_, what)) => Err(FormatError::Invalid { what }),
            None if u64::from(self.journal_length()) * JOURNAL_SHARE_MAX > self.blocks => {
                Err(FormatError::Full {
                    what: "a journal takes half of a filesystem at most: make it smaller",
                })
            }
            None => NewImage::plan(self),
        }
    }

    /// Blocks of the journal: a 64th of a large image, a larger share of a small one.
    fn journal_length(&self) -> u32 {
        let share = match self.blocks {
            ..32_768 => JOURNAL_BLOCKS_MIN,
            32_768..262_144 => 4096,
            262_144..524_288 => 8192,
            524_288..4_194_304 => 16_384,
            4_194_304..8_388_608 => 32_768,
            _ => JOURNAL_BLOCKS_SHARE_MAX,
        };
        self.journal_blocks.unwrap_or(share)
    }
}
