//! The features of an image: which are read and written, and which are refused by name.

use weir_format::FormatError;

/// A feature with a name, as `mkfs.f2fs` spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    bit: u32,
    name: &'static str,
}

const fn feature(bit: u32, name: &'static str) -> Feature {
    Feature { bit, name }
}

impl Feature {
    /// Inodes have more fields before their addresses.
    pub const EXTRA_ATTR: Self = feature(0x8, "extra_attr");
    /// Inodes have a checksum.
    pub const INODE_CHECKSUM: Self = feature(0x20, "inode_checksum");
    /// Inodes say when they were made.
    pub const INODE_CRTIME: Self = feature(0x100, "inode_crtime");
    /// There is a directory `lost+found`.
    pub const LOST_FOUND: Self = feature(0x200, "lost_found");
    /// The superblock has a checksum.
    pub const SB_CHECKSUM: Self = feature(0x800, "sb_checksum");

    /// The features that are read and written.
    pub const SUPPORTED: [Self; 5] =
        [Self::EXTRA_ATTR, Self::INODE_CHECKSUM, Self::INODE_CRTIME, Self::LOST_FOUND, Self::SB_CHECKSUM];

    /// The features with a name that are refused.
    pub const REFUSED: [Self; 10] = [
        feature(0x1, "encrypt"),
        feature(0x2, "blkzoned"),
        feature(0x4, "atomic_write"),
        feature(0x10, "project_quota"),
        feature(0x40, "flexible_inline_xattr"),
        feature(0x80, "quota"),
        feature(0x400, "verity"),
        feature(0x1000, "casefold"),
        feature(0x2000, "compression"),
        feature(0x4000, "ro"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        self.name
    }
}

/// The features of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u32);

impl Features {
    /// Those of these bits.
    ///
    /// # Errors
    /// [`FormatError::Feature`] and [`FormatError::UnknownFeatures`] for one outside the subset.
    pub fn from_bits(bits: u32) -> Result<Self, FormatError> {
        if let Some(refused) = Feature::REFUSED.into_iter().find(|refused| bits & refused.bit != 0) {
            return Err(FormatError::Feature { name: refused.name });
        }
        let known = Feature::SUPPORTED.iter().fold(0, |known, feature| known | feature.bit);
        match bits & !known {
            0 => Ok(Self(bits)),
            unknown => Err(FormatError::UnknownFeatures { set: "f2fs", bits: unknown }),
        }
    }

    /// The bits of a superblock.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// These, with one or without.
    #[must_use]
    pub fn with(self, feature: Feature, there: bool) -> Self {
        Self(if there { self.0 | feature.bit } else { self.0 & !feature.bit })
    }

    /// Whether a feature is among them.
    pub fn has(self, feature: Feature) -> bool {
        self.0 & feature.bit != 0
    }
}
