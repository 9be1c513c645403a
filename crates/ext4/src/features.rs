//! The features of an image: which are read and written, and which are refused by name.

use FeatureSet::{Compatible, Incompatible, ReadOnlyCompatible};

use weir_format::FormatError;

/// The three sets that the superblock keeps: what an implementation that does not know a feature of the set
/// may still do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureSet {
    /// It may read and write.
    Compatible,
    /// It may do nothing.
    Incompatible,
    /// It may read.
    ReadOnlyCompatible,
}

/// A feature with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    set: FeatureSet,
    bit: u32,
    name: &'static str,
}

const fn feature(set: FeatureSet, bit: u32, name: &'static str) -> Feature {
    Feature { set, bit, name }
}

impl Feature {
    /// A journal in inode 8.
    pub const HAS_JOURNAL: Self = feature(Compatible, 0x4, "has_journal");
    /// Extended attributes.
    pub const EXT_ATTR: Self = feature(Compatible, 0x8, "ext_attr");
    /// Room for more group descriptors, held by inode 7. Not used here.
    pub const RESIZE_INODE: Self = feature(Compatible, 0x10, "resize_inode");
    /// Directories with a hashed index.
    pub const DIR_INDEX: Self = feature(Compatible, 0x20, "dir_index");
    /// A file that lists orphans. Read here; an image is only written while that file is empty.
    pub const ORPHAN_FILE: Self = feature(Compatible, 0x1000, "orphan_file");
    /// Directory entries carry the type of what they name.
    pub const FILETYPE: Self = feature(Incompatible, 0x2, "filetype");
    /// The journal must be replayed before anything else.
    pub const NEEDS_RECOVERY: Self = feature(Incompatible, 0x4, "needs_recovery");
    /// Files are mapped by extent trees.
    pub const EXTENT: Self = feature(Incompatible, 0x40, "extent");
    /// The descriptors of the last groups lie in them, and not behind the superblock.
    pub const META_BG: Self = feature(Incompatible, 0x10, "meta_bg");
    /// Block numbers of more than 32 bits, descriptors of 64 bytes.
    pub const WIDE: Self = feature(Incompatible, 0x80, "64bit");
    /// Bitmaps and inode tables may lie outside their group.
    pub const FLEX_BG: Self = feature(Incompatible, 0x200, "flex_bg");
    /// The seed of checksums is stored, so that the UUID may change.
    pub const METADATA_CSUM_SEED: Self = feature(Incompatible, 0x2000, "metadata_csum_seed");
    /// Ours: the journal is not empty, or may not be, and commit blocks in it may be there without what they commit. Another
    /// program would write home what it finds of that. It is there only as long as [`NEEDS_RECOVERY`](Self::NEEDS_RECOVERY) is.
    pub const JOURNAL_ASYNC_COMMIT: Self = feature(Incompatible, 0x1000_0000, "weir_journal_async_commit");
    /// Ours: the journal is not empty, or may not be, and holds coalition blocks, which no other program can replay. It is
    /// there only as long as [`NEEDS_RECOVERY`](Self::NEEDS_RECOVERY) is.
    pub const JOURNAL_COALITION: Self = feature(Incompatible, 0x2000_0000, "weir_journal_coalition");
    /// Ours: the same, where it holds checksums of data in place.
    pub const JOURNAL_DATA_CHECKSUMS: Self =
        feature(Incompatible, 0x4000_0000, "weir_journal_data_checksums");
    /// Copies of the superblock in some groups only.
    pub const SPARSE_SUPER: Self = feature(ReadOnlyCompatible, 0x1, "sparse_super");
    /// Files of 2 GiB and more.
    pub const LARGE_FILE: Self = feature(ReadOnlyCompatible, 0x2, "large_file");
    /// Block counts of inodes have 48 bits, or count blocks.
    pub const HUGE_FILE: Self = feature(ReadOnlyCompatible, 0x8, "huge_file");
    /// The older checksums of descriptors. Read and written only where `metadata_csum` overrides it.
    pub const UNINIT_BG: Self = feature(ReadOnlyCompatible, 0x10, "uninit_bg");
    /// A directory with more than 65,000 links counts as having one.
    pub const DIR_NLINK: Self = feature(ReadOnlyCompatible, 0x20, "dir_nlink");
    /// Inodes have room for finer and later times.
    pub const EXTRA_ISIZE: Self = feature(ReadOnlyCompatible, 0x40, "extra_isize");
    /// Every metadata block is checksummed.
    pub const METADATA_CSUM: Self = feature(ReadOnlyCompatible, 0x400, "metadata_csum");
    /// The orphan file may not be empty.
    pub const ORPHAN_PRESENT: Self = feature(ReadOnlyCompatible, 0x10000, "orphan_present");

    /// The features with a name that are refused.
    pub const REFUSED: [Self; 23] = [
        feature(Compatible, 0x200, "sparse_super2"),
        feature(Compatible, 0x400, "fast_commit"),
        feature(Compatible, 0x800, "stable_inodes"),
        feature(Incompatible, 0x1, "compression"),
        feature(Incompatible, 0x8, "journal_dev"),
        feature(Incompatible, 0x100, "mmp"),
        feature(Incompatible, 0x400, "ea_inode"),
        feature(Incompatible, 0x1000, "dirdata"),
        feature(Incompatible, 0x4000, "large_dir"),
        feature(Incompatible, 0x8000, "inline_data"),
        feature(Incompatible, 0x10000, "encrypt"),
        feature(Incompatible, 0x20000, "casefold"),
        feature(ReadOnlyCompatible, 0x4, "btree_dir"),
        feature(ReadOnlyCompatible, 0x80, "has_snapshot"),
        feature(ReadOnlyCompatible, 0x100, "quota"),
        feature(ReadOnlyCompatible, 0x200, "bigalloc"),
        feature(ReadOnlyCompatible, 0x800, "replica"),
        feature(ReadOnlyCompatible, 0x1000, "read-only"),
        feature(ReadOnlyCompatible, 0x2000, "project"),
        feature(ReadOnlyCompatible, 0x4000, "shared_blocks"),
        feature(ReadOnlyCompatible, 0x8000, "verity"),
        feature(Compatible, 0x1, "dir_prealloc"),
        feature(Compatible, 0x2, "imagic_inodes"),
    ];

    /// The features that are read and written.
    pub const SUPPORTED: [Self; 23] = [
        Self::HAS_JOURNAL,
        Self::EXT_ATTR,
        Self::RESIZE_INODE,
        Self::DIR_INDEX,
        Self::ORPHAN_FILE,
        Self::FILETYPE,
        Self::NEEDS_RECOVERY,
        Self::EXTENT,
        Self::META_BG,
        Self::WIDE,
        Self::FLEX_BG,
        Self::METADATA_CSUM_SEED,
        Self::JOURNAL_ASYNC_COMMIT,
        Self::JOURNAL_COALITION,
        Self::JOURNAL_DATA_CHECKSUMS,
        Self::SPARSE_SUPER,
        Self::LARGE_FILE,
        Self::HUGE_FILE,
        Self::UNINIT_BG,
        Self::DIR_NLINK,
        Self::EXTRA_ISIZE,
        Self::METADATA_CSUM,
        Self::ORPHAN_PRESENT,
    ];

    /// As mkfs.ext4 spells it.
    pub fn name(self) -> &'static str {
        self.name
    }
}

/// The features of one image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Bits of [`FeatureSet::Compatible`].
    pub compatible: u32,
    /// Bits of [`FeatureSet::Incompatible`].
    pub incompatible: u32,
    /// Bits of [`FeatureSet::ReadOnlyCompatible`].
    pub read_only_compatible: u32,
}

impl Features {
    /// Exactly these.
    pub fn from_list(features: &[Feature]) -> Self {
        let mut all = Self::default();
        for feature in features {
            *all.bits_mut(feature.set) |= feature.bit;
        }
        all
    }

    /// Whether the image has `feature`.
    pub fn has(&self, feature: Feature) -> bool {
        self.bits(feature.set) & feature.bit != 0
    }

    /// The same with or without `feature`.
    #[must_use]
    pub fn with(mut self, feature: Feature, on: bool) -> Self {
        let bits = self.bits_mut(feature.set);
        *bits = if on { *bits | feature.bit } else { *bits & !feature.bit };
        self
    }

    /// Whether an image with these can be read and written here.
    ///
    /// # Errors
    ///
    /// The name of a feature that is refused or missing, or the bits of one that has no name. Unknown
    /// compatible features may be ignored: that is what the set is for.
    pub fn check(&self) -> Result<(), FormatError> {
        if let Some(feature) = Feature::REFUSED.into_iter().find(|feature| self.has(*feature)) {
            return Err(FormatError::Feature { name: feature.name });
        }
        let known = Self::from_list(&Feature::SUPPORTED);
        let unknown = [
            ("incompatible", self.incompatible & !known.incompatible),
            ("read-only compatible", self.read_only_compatible & !known.read_only_compatible),
        ];
        if let Some((set, bits)) = unknown.into_iter().find(|(_, bits)| *bits != 0) {
            return Err(FormatError::UnknownFeatures { set, bits });
        }
        if self.has(Feature::UNINIT_BG) && !self.has(Feature::METADATA_CSUM) {
            return Err(FormatError::Feature { name: "uninit_bg without metadata_csum" });
        }
        for feature in [Feature::FILETYPE, Feature::EXTENT] {
            if !self.has(feature) {
                return Err(FormatError::MissingFeature { name: feature.name });
            }
        }
        Ok(())
    }

    fn bits(&self, set: FeatureSet) -> u32 {
        match set {
            Compatible => self.compatible,
            Incompatible => self.incompatible,
            ReadOnlyCompatible => self.read_only_compatible,
        }
    }

    fn bits_mut(&mut self, set: FeatureSet) -> &mut u32 {
        match set {
            Compatible => &mut self.compatible,
            Incompatible => &mut self.incompatible,
            ReadOnlyCompatible => &mut self.read_only_compatible,
        }
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
            let same = |other: &&Feature| other.set == feature.set && other.bit == feature.bit;
            assert_eq!(all.iter().filter(same).count(), 1, "{}", feature.name);
        }
    }

    #[test]
    fn what_is_refused_is_named() {
        let fine = Features::from_list(&[Feature::FILETYPE, Feature::EXTENT]);
        fine.check().expect("the smallest image");
        for feature in Feature::REFUSED {
            let error = fine.with(feature, true).check().expect_err("refused");
            assert_eq!(error, FormatError::Feature { name: feature.name });
        }
        let missing = fine.with(Feature::EXTENT, false).check();
        assert_eq!(missing, Err(FormatError::MissingFeature { name: "extent" }));
        let unknown = Features { incompatible: fine.incompatible | 1 << 31, ..fine }.check();
        assert_eq!(unknown, Err(FormatError::UnknownFeatures { set: "incompatible", bits: 1 << 31 }));
        Features { compatible: 1 << 31, ..fine }.check().expect("ignored");
        fine.with(Feature::UNINIT_BG, true).check().expect_err("old checksums alone");
    }
}
