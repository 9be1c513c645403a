//! The superblock: what an image is, how large its parts are, and in which state it was left.
//!
//! The type is the structure on the disk, byte for byte, so what is not understood stays as it was.

use std::mem::offset_of;

use weir_format::{BLOCK_BYTES, FormatError, Place, Structure};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{Checksums, crc32c, keep_sum};
use crate::features::{Feature, Features};
use crate::inode::INODE_BYTES;

/// Bytes of a superblock.
pub const SUPERBLOCK_BYTES: usize = 1024;
/// Where the primary superblock starts in block 0. A copy starts at byte 0 of its block.
pub const SUPERBLOCK_OFFSET: usize = 1024;
/// Where copies of the superblock are in a filesystem with groups of the usual size.
pub const SUPERBLOCK_COPIES: [u64; 4] = [32_768, 98_304, 163_840, 229_376];
/// The magic number of the ext filesystems.
const MAGIC: u16 = 0xEF53;
/// The revision that has features and inode sizes.
const DYNAMIC_REVISION: u32 = 1;
/// A block is 1,024 bytes shifted left by this.
const LOG_BLOCK: u32 = 2;
/// `checksum_type`: CRC-32C.
const CRC32C: u8 = 1;
/// `state`: unmounted cleanly.
const STATE_CLEAN: u16 = 1;
/// `state`: errors were found.
const STATE_ERRORS: u16 = 2;
/// `flags`: the directory hash takes characters as signed.
const FLAG_SIGNED_HASH: u32 = 1;
/// `flags`: the directory hash takes characters as unsigned.
const FLAG_UNSIGNED_HASH: u32 = 2;

/// The superblock. Fields are named after what they say; where a field has two halves, there are methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "docs/format/fs.md describes each field")]
pub struct Superblock {
    pub inodes: U32,
    pub blocks_low: U32,
    pub reserved_blocks_low: U32,
    pub free_blocks_low: U32,
    pub free_inodes: U32,
    pub first_data_block: U32,
    pub log_block_size: U32,
    pub log_cluster_size: U32,
    pub blocks_per_group: U32,
    pub clusters_per_group: U32,
    pub inodes_per_group: U32,
    pub mount_time: U32,
    pub write_time: U32,
    pub mounts: U16,
    pub mounts_max: U16,
    pub magic: U16,
    pub state: U16,
    pub on_errors: U16,
    pub minor_revision: U16,
    pub check_time: U32,
    pub check_interval: U32,
    pub creator: U32,
    pub revision: U32,
    pub reserved_uid: U16,
    pub reserved_gid: U16,
    pub first_inode: U32,
    pub inode_size: U16,
    /// Of which group this is a copy.
    pub group: U16,
    pub compatible: U32,
    pub incompatible: U32,
    pub read_only_compatible: U32,
    pub uuid: [u8; 16],
    pub label: [u8; 16],
    pub last_mounted: [u8; 64],
    pub compression: U32,
    pub preallocation: [u8; 2],
    pub reserved_descriptor_blocks: U16,
    pub journal_uuid: [u8; 16],
    pub journal_inode: U32,
    pub journal_device: U32,
    /// Head of the list of inodes to delete or truncate after a crash; see [`orphan`](crate::orphan).
    pub last_orphan: U32,
    pub hash_seed: [U32; 4],
    pub hash_version: u8,
    /// 1: `journal_backup` is valid.
    pub journal_backup_type: u8,
    pub descriptor_size: U16,
    pub mount_options: U32,
    pub first_meta_group: U32,
    pub created: U32,
    /// The journal inode's block area, then the high and the low half of its size.
    pub journal_backup: [U32; 17],
    pub blocks_high: U32,
    pub reserved_blocks_high: U32,
    pub free_blocks_high: U32,
    pub extra_isize_min: U16,
    pub extra_isize_wanted: U16,
    pub flags: U32,
    pub raid_stride: U16,
    pub mmp_interval: U16,
    pub mmp_block: U64,
    pub raid_stripe: U32,
    pub log_groups_per_flex: u8,
    pub checksum_type: u8,
    pub encryption_level: u8,
    pub reserved: u8,
    pub kibibytes_written: U64,
    pub snapshots: [u8; 20],
    pub errors: U32,
    pub first_error: [u8; 52],
    pub last_error: [u8; 52],
    pub mount_option_text: [u8; 64],
    pub quota_inodes: [U32; 2],
    pub overhead_blocks: U32,
    pub backup_groups: [U32; 2],
    pub encryption: [u8; 20],
    pub lost_and_found_inode: U32,
    pub project_quota_inode: U32,
    pub checksum_seed: U32,
    pub times_high: [u8; 8],
    pub encoding: [U16; 2],
    pub orphan_file_inode: U32,
    pub unused: [u8; 376],
    pub checksum: U32,
}

const _: () = {
    assert!(size_of::<Superblock>() == SUPERBLOCK_BYTES);
    assert!(offset_of!(Superblock, magic) == 0x38);
    assert!(offset_of!(Superblock, first_inode) == 0x54);
    assert!(offset_of!(Superblock, uuid) == 0x68);
    assert!(offset_of!(Superblock, last_orphan) == 0xE8);
    assert!(offset_of!(Superblock, descriptor_size) == 0xFE);
    assert!(offset_of!(Superblock, journal_backup) == 0x10C);
    assert!(offset_of!(Superblock, blocks_high) == 0x150);
    assert!(offset_of!(Superblock, log_groups_per_flex) == 0x174);
    assert!(offset_of!(Superblock, errors) == 0x194);
    assert!(offset_of!(Superblock, overhead_blocks) == 0x248);
    assert!(offset_of!(Superblock, checksum_seed) == 0x270);
    assert!(offset_of!(Superblock, orphan_file_inode) == 0x280);
    assert!(offset_of!(Superblock, checksum) == 0x3FC);
};

impl Superblock {
    /// Reads a superblock of 1,024 bytes, and checks that this crate can read and write its filesystem.
    ///
    /// # Errors
    ///
    /// What is damaged, or the name of a feature outside the subset.
    pub fn read(bytes: &[u8]) -> Result<Self, FormatError> {
        let (superblock, _) = Self::read_from_prefix(bytes).map_err(|_| corrupt("too short"))?;
        superblock.check()?;
        Ok(superblock)
    }

    fn check(&self) -> Result<(), FormatError> {
        if self.magic.get() != MAGIC {
            return Err(FormatError::Foreign { format: "ext4" });
        }
        if self.revision.get() != DYNAMIC_REVISION {
            return Err(FormatError::Unsupported {
                what: "another revision than 1; only 1 is supported: copy the files into a filesystem that has it",
            });
        }
        // Features come before the checksum: those of an unknown filesystem say where its checksum is.
        self.features().check()?;
        if self.features().has(Feature::METADATA_CSUM) {
            if self.checksum_type != CRC32C {
                return Err(FormatError::Feature { name: "a checksum type other than CRC-32C" });
            }
            if self.checksum.get() != self.sum() {
                let (structure, place) = (Structure::Superblock, Place::Block(0));
                return Err(FormatError::Checksum { structure, place });
            }
        }
        self.check_sizes()
    }

    fn check_sizes(&self) -> Result<(), FormatError> {
        if self.log_block_size.get() != LOG_BLOCK {
            return Err(FormatError::Unsupported {
                what: match self.log_block_size.get() {
                    0 => {
                        "blocks of 1024 bytes; only 4096 is supported: copy the files into a filesystem that has them"
                    }
                    1 => {
                        "blocks of 2048 bytes; only 4096 is supported: copy the files into a filesystem that has them"
                    }
                    _ => {
                        "blocks of another size than 4096 bytes, which alone is supported: copy the files into a filesystem that has them"
                    }
                },
            });
        }
        if usize::from(self.inode_size.get()) != INODE_BYTES {
            return Err(FormatError::Unsupported {
                what: "inodes of another size than 256 bytes; only 256 is supported: copy the files into a filesystem that has them",
            });
        }
        let descriptor = self.descriptor_size.get();
        let wide = self.features().has(Feature::WIDE);
        if (wide && descriptor != 64) || (!wide && !matches!(descriptor, 0 | 32)) {
            return Err(FormatError::Feature { name: "a descriptor size other than 32, or 64 with 64bit" });
        }
        let (blocks, per_group) = (self.blocks(), self.blocks_per_group.get());
        let inodes = self.inodes_per_group.get();
        let bitmap_bits = BLOCK_BYTES as u32 * 8;
        let wrong = [
            (self.log_cluster_size.get() != LOG_BLOCK, "cluster size"),
            (self.clusters_per_group.get() != per_group, "clusters per group"),
            (self.first_data_block.get() != 0, "first data block"),
            (per_group == 0 || !per_group.is_multiple_of(8) || per_group > bitmap_bits, "blocks per group"),
            (inodes == 0 || !inodes.is_multiple_of(16) || inodes > bitmap_bits, "inodes per group"),
            (blocks == 0 || blocks > 1 << 48, "number of blocks"),
            (self.free_blocks() > blocks, "number of free blocks"),
            (self.free_inodes.get() > self.inodes.get(), "number of free inodes"),
            (self.log_groups_per_flex > 31, "groups in a flexible group"),
            (self.first_inode.get() < 11 || self.first_inode.get() > self.inodes.get(), "first inode"),
        ];
        if let Some((_, what)) = wrong.into_iter().find(|(wrong, _)| *wrong) {
            return Err(corrupt(what));
        }
        let groups = blocks.div_ceil(u64::from(per_group));
        if groups.checked_mul(u64::from(inodes)) != Some(u64::from(self.inodes.get())) {
            return Err(corrupt("number of inodes"));
        }
        Ok(())
    }

    /// Stores the checksum; the last thing before a superblock is written.
    pub fn update_checksum(&mut self) {
        if self.features().has(Feature::METADATA_CSUM) {
            self.checksum = self.sum().into();
        }
    }

    /// The same without a change of the checksum, or of anything else in its sector, so that a torn write does no
    /// harm: bytes that no program reads make up for it.
    pub fn update_checksum_in_place(&mut self) {
        if self.features().has(Feature::METADATA_CSUM) {
            keep_sum(self.as_mut_bytes());
        }
    }

    /// The block of a group that it is in: the primary one in group 0, and a copy in others.
    pub fn to_block(&self, group: u32) -> [u8; BLOCK_BYTES] {
        let mut copy = *self;
        // Sixteen bits: groups beyond cannot say who they are, and no program asks.
        copy.group = (group as u16).into();
        copy.update_checksum();
        let mut block = [0; BLOCK_BYTES];
        let start = if group == 0 { SUPERBLOCK_OFFSET } else { 0 };
        block[start..start + size_of::<Self>()].copy_from_slice(copy.as_bytes());
        block
    }

    /// This copy, found in block `block`, in place of the primary superblock, of which `damaged` is left. `None` if it
    /// is no copy for that place.
    ///
    /// Copies are as old as the last change of sizes. What the primary alone knows is taken from what is left of it,
    /// if that names the same filesystem: the head of the chain of orphans, which the caller checks, and whether
    /// errors were noted. A file of orphans is to be looked at in any case.
    pub fn instead_of(&self, damaged: &[u8], block: u64) -> Option<Self> {
        let group = u64::from(self.group.get());
        if group == 0 || group * u64::from(self.blocks_per_group.get()) != block {
            return None;
        }
        let mut superblock = *self;
        superblock.group = 0.into();
        if self.features().has(Feature::ORPHAN_FILE) {
            superblock.set_features(self.features().with(Feature::ORPHAN_PRESENT, true));
        }
        if let Some(left) = self.same_filesystem(damaged) {
            superblock.last_orphan = left.last_orphan;
            superblock.set_state(self.is_clean(), left.has_errors());
        }
        superblock.update_checksum();
        Some(superblock)
    }

    /// What a damaged superblock says, if it names the same filesystem as this one.
    pub fn same_filesystem(&self, damaged: &[u8]) -> Option<Self> {
        let (left, _) = Self::read_from_prefix(damaged).ok()?;
        (left.magic == self.magic && left.uuid == self.uuid).then_some(left)
    }

    fn sum(&self) -> u32 {
        crc32c(!0, &[&self.as_bytes()[..offset_of!(Self, checksum)]])
    }

    /// Which features the image has.
    pub fn features(&self) -> Features {
        Features {
            compatible: self.compatible.get(),
            incompatible: self.incompatible.get(),
            read_only_compatible: self.read_only_compatible.get(),
        }
    }

    /// Changes the features.
    pub fn set_features(&mut self, features: Features) {
        self.compatible = features.compatible.into();
        self.incompatible = features.incompatible.into();
        self.read_only_compatible = features.read_only_compatible.into();
    }

    /// How the structures of this filesystem are sealed.
    pub fn checksums(&self) -> Checksums {
        let features = self.features();
        if !features.has(Feature::METADATA_CSUM) {
            Checksums::none()
        } else if features.has(Feature::METADATA_CSUM_SEED) {
            Checksums::of_seed(self.checksum_seed.get())
        } else {
            Checksums::of_uuid(&self.uuid)
        }
    }

    /// Blocks in the filesystem.
    pub fn blocks(&self) -> u64 {
        self.wide(self.blocks_low, self.blocks_high)
    }

    /// Blocks that only the superuser may take.
    pub fn reserved_blocks(&self) -> u64 {
        self.wide(self.reserved_blocks_low, self.reserved_blocks_high)
    }

    /// Free blocks, as of the last clean unmount: the groups' descriptors know better.
    pub fn free_blocks(&self) -> u64 {
        self.wide(self.free_blocks_low, self.free_blocks_high)
    }

    /// Sets the number of free blocks.
    pub fn set_free_blocks(&mut self, blocks: u64) {
        (self.free_blocks_low, self.free_blocks_high) = halves(blocks);
    }

    /// Sets the number of blocks, and of those that are reserved.
    pub fn set_blocks(&mut self, blocks: u64, reserved: u64) {
        (self.blocks_low, self.blocks_high) = halves(blocks);
        (self.reserved_blocks_low, self.reserved_blocks_high) = halves(reserved);
    }

    /// Whether the filesystem was unmounted cleanly. With a journal, only `needs_recovery` says so.
    pub fn is_clean(&self) -> bool {
        self.state.get() & STATE_CLEAN != 0
    }

    /// Whether a mount found the filesystem damaged and no check came since.
    pub fn has_errors(&self) -> bool {
        self.state.get() & STATE_ERRORS != 0
    }

    /// Notes a clean unmount or its absence, and whether damage was found.
    pub fn set_state(&mut self, clean: bool, errors: bool) {
        self.state = (u16::from(clean) * STATE_CLEAN + u16::from(errors) * STATE_ERRORS).into();
    }

    /// Whether the directory hash takes the bytes of a name as signed numbers, as it does on machines whose
    /// characters are signed.
    pub fn signed_hash(&self) -> bool {
        self.flags.get() & FLAG_UNSIGNED_HASH == 0
    }

    /// A new superblock: the constants of the format, and nothing of what depends on a size.
    pub(crate) fn blank(features: Features) -> Self {
        let mut superblock: Self = zerocopy::FromZeros::new_zeroed();
        superblock.set_features(features);
        superblock.magic = MAGIC.into();
        superblock.revision = DYNAMIC_REVISION.into();
        superblock.log_block_size = LOG_BLOCK.into();
        superblock.log_cluster_size = LOG_BLOCK.into();
        superblock.inode_size = (INODE_BYTES as u16).into();
        superblock.checksum_type = CRC32C;
        superblock.flags = FLAG_SIGNED_HASH.into();
        superblock.set_state(true, false);
        superblock
    }

    fn wide(&self, low: U32, high: U32) -> u64 {
        let high = if self.features().has(Feature::WIDE) { high.get() } else { 0 };
        u64::from(low.get()) | u64::from(high) << 32
    }
}

fn halves(number: u64) -> (U32, U32) {
    ((number as u32).into(), ((number >> 32) as u32).into())
}

fn corrupt(what: &'static str) -> FormatError {
    FormatError::corrupt(Structure::Superblock, Place::Block(0), what)
}
