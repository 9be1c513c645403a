//! Which features of F2FS an image may have.

use weir_format::FormatError;

/// A feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    bit: u32,
    name: &'static str,
}

const fn feature(bit: u32, name: &'static str) -> Feature {
    Feature { bit, name }
}

impl Feature {
    /// Inodes may have a part for further attributes.
    pub const EXTRA_ATTR: Self = feature(0x8, "extra_attr");
    /// That part holds a checksum of the inode.
    pub const INODE_CHECKSUM: Self = feature(0x20, "inode_checksum");
    /// That part holds the time at which the inode was made.
    pub const INODE_CRTIME: Self = feature(0x100, "inode_crtime");
    /// There is a directory `lost+found`.
    pub const LOST_FOUND: Self = feature(0x200, "lost_found");
    /// The superblock has a checksum.
    pub const SB_CHECKSUM: Self = feature(0x800, "sb_checksum");

    /// The features with a name that are refused.
    pub const REFUSED: [Self; 12] = [
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
        feature(0x8000, "device_alias"),
        feature(0x1_0000, "packed_ssa"),
    ];

    /// The features that are read and written.
    pub const SUPPORTED: [Self; 5] =
        [Self::EXTRA_ATTR, Self::INODE_CHECKSUM, Self::INODE_CRTIME, Self::LOST_FOUND, Self::SB_CHECKSUM];

    /// As mkfs.f2fs spells it.
    pub fn name(self) -> &'static str {
        self.name
    }
}

/// The features of one image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(pub u32);

impl Features {
    /// Whether the image has `feature`.
    pub fn has(self, feature: Feature) -> bool {
        self.0 & feature.bit != 0
    }

    /// The same with or without `feature`.
    #[must_use]
    pub fn with(self, feature: Feature, on: bool) -> Self {
        Self(if on { self.0 | feature.bit } else { self.0 & !feature.bit })
    }

    /// Whether an image with these can be read and written here.
    ///
    /// # Errors
    ///
    /// The name of a feature that is refused or missing, or the bits of one that has no name.
    pub fn check(self) -> Result<(), FormatError> {
        if let Some(feature) = Feature::REFUSED.into_iter().find(|feature| self.has(*feature)) {
            return Err(FormatError::Feature { name: feature.name });
        }
        let known = Feature::SUPPORTED.into_iter().fold(0, |bits, feature| bits | feature.bit);
        if self.0 & !known != 0 {
            return Err(FormatError::UnknownFeatures { set: "f2fs", bits: self.0 & !known });
        }
        let extra = self.has(Feature::INODE_CHECKSUM) || self.has(Feature::INODE_CRTIME);
        if extra && !self.has(Feature::EXTRA_ATTR) {
            return Err(FormatError::MissingFeature { name: Feature::EXTRA_ATTR.name });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_feature_has_a_bit_of_its_own() {
        let all: Vec<Feature> = Feature::SUPPORTED.into_iter().chain(Feature::REFUSED).collect();
        for feature in &all {
            assert!(feature.bit.is_power_of_two(), "{}", feature.name);
            assert_eq!(all.iter().filter(|other| other.bit == feature.bit).count(), 1, "{}", feature.name);
        }
    }

    #[test]
    fn what_is_refused_is_named() {
        Features::default().check().expect("no features");
        let all = Feature::SUPPORTED.into_iter().fold(Features::default(), |all, one| all.with(one, true));
        all.check().expect("all that are supported");
        for feature in Feature::REFUSED {
            let error = all.with(feature, true).check().expect_err("refused");
            assert_eq!(error, FormatError::Feature { name: feature.name() });
        }
        let unknown = Features(all.0 | 1 << 31).check();
        assert_eq!(unknown, Err(FormatError::UnknownFeatures { set: "f2fs", bits: 1 << 31 }));
        let missing = all.with(Feature::EXTRA_ATTR, false).check();
        assert_eq!(missing, Err(FormatError::MissingFeature { name: "extra_attr" }));
    }
}
