//! Making a filesystem: which blocks a new image consists of.
//!
//! A new image has a root directory of one block, and six open segments. The entries of those segments and of the root
//! are in the journals of the checkpoint, so that both tables are zeros but for one block.

mod image;
mod root;
mod size;

pub use image::NewImage;

use weir_format::FormatError;

use crate::features::{Feature, Features};

/// What a new filesystem is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mkfs {
    /// Size of the image in blocks of 4,096 bytes: from 52 MiB (less does not leave the cleaner its reserve) to 16 TiB. A
    /// rest that is no whole segment is left out.
    pub blocks: u64,
    /// Names the filesystem and seeds the checksums of inodes: random bytes.
    pub uuid: [u8; 16],
    /// A name for people, at most 512 units of UTF-16.
    pub label: String,
    /// When it was made: seconds since 1970.
    pub created: u64,
    /// The version of the first checkpoint: a random number, not 0. Nodes of an earlier filesystem on the device carry
    /// another one, so that roll-forward does not take them for new ones.
    pub version: u64,
    /// Space that users may not fill, in hundredths of a percent: 1 to 9,500. `None`: what leaves them the most.
    pub overprovision: Option<u32>,
    /// Whether inodes have a checksum and the time at which they were made, and the superblock a checksum.
    pub extra_attributes: bool,
    /// The owner of the root directory.
    pub uid: u32,
    /// Which group does.
    pub gid: u32,
    /// The permissions of the root directory: the lower 12 bits of its mode.
    pub permissions: u16,
    /// Whether what is not written reads as zeros, as in a new file: the tables are not cleared then.
    pub zeroed: bool,
}

impl Mkfs {
    /// A filesystem of `blocks` blocks with nothing special about it.
    pub fn new(blocks: u64, uuid: [u8; 16], version: u64, created: u64) -> Self {
        Self {
            blocks,
            uuid,
            label: String::new(),
            created,
            version,
            overprovision: None,
            extra_attributes: false,
            uid: 0,
            gid: 0,
            permissions: 0o755,
            zeroed: false,
        }
    }

    /// The features that are made.
    pub fn features(&self) -> Features {
        let extra =
            [Feature::EXTRA_ATTR, Feature::INODE_CHECKSUM, Feature::INODE_CRTIME, Feature::SB_CHECKSUM];
        extra.into_iter().fold(Features::default(), |all, one| all.with(one, self.extra_attributes))
    }

    /// Decides where everything goes.
    ///
    /// # Errors
    ///
    /// [`FormatError::Invalid`] for an option out of range.
    pub fn plan(&self) -> Result<NewImage, FormatError> {
        let invalid = [
            (self.blocks >= u64::from(u32::MAX), "a size of 16 TiB or more"),
            (self.label.encode_utf16().count() > 512, "a label of more than 512 units of UTF-16"),
            (self.label.contains('\0'), "a label with a zero in it"),
            (self.version == 0, "a first checkpoint with version 0"),
            (self.permissions > 0o7777, "permissions of more than 12 bits"),
            (
                self.overprovision.is_some_and(|ratio| !(1..=9500).contains(&ratio)),
                "an overprovision below 0.01 or above 95 percent",
            ),
        ];
        match invalid.into_iter().find(|(invalid, _)| *invalid) {
            Some((_, what)) => Err(FormatError::Invalid { what }),
            None => NewImage::plan(self),
        }
    }
}
