//! Inodes: owner, size, times and block map of a file.
//!
//! The type is the structure on the disk, byte for byte, so what is not understood stays as it was. Numbers
//! that the format splits in two, and times, have methods.

use std::mem::offset_of;

use weir_format::{FileTime, FileType, FormatError, Place, Stamp, Structure};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{Checksums, crc32c};

/// Bytes of an inode; the only size of the subset.
pub const INODE_BYTES: usize = 256;
/// Bytes of an inode's block area: the root of an extent tree, a short symlink target, or a device.
pub const BLOCK_AREA_BYTES: usize = 60;
/// The inode that holds damaged blocks.
pub const BAD_BLOCKS_INODE: u32 = 1;
/// The root directory.
pub const ROOT_INODE: u32 = 2;
/// The inode that keeps room for more descriptors.
pub const RESIZE_INODE: u32 = 7;
/// The journal.
pub const JOURNAL_INODE: u32 = 8;
/// Where the part of an inode starts that `extra_isize` counts.
const BASE_BYTES: usize = 128;
/// The part beyond the base that this crate writes: up to and with the project number.
const EXTRA_BYTES: u16 = 32;
/// `size` never exceeds that of 2^32 - 1 blocks: no extent maps the block behind them.
const SIZE_MAX: u64 = (1 << 44) - 4096;

/// Bits of an inode's `flags`.
pub mod inode_flags {
    /// The file may not be changed.
    pub const IMMUTABLE: u32 = 0x10;
    /// The file may only grow.
    pub const APPEND_ONLY: u32 = 0x20;
    /// The content is encrypted. Refused.
    pub const ENCRYPTED: u32 = 0x800;
    /// The directory has a hashed index.
    pub const INDEXED: u32 = 0x1000;
    /// The data goes through the journal.
    pub const JOURNAL_DATA: u32 = 0x4000;
    /// `sectors` counts blocks of the filesystem.
    pub const HUGE: u32 = 0x4_0000;
    /// The block area is the root of an extent tree.
    pub const EXTENTS: u32 = 0x8_0000;
    /// The content is protected by a hash tree. Refused.
    pub const VERITY: u32 = 0x10_0000;
    /// The inode holds the value of an attribute. Refused.
    pub const ATTRIBUTE_VALUE: u32 = 0x20_0000;
    /// The content is in the inode itself. Refused.
    pub const INLINE_DATA: u32 = 0x1000_0000;
    /// Names in the directory are compared without case. Refused.
    pub const CASEFOLD: u32 = 0x4000_0000;
}

/// The earliest and the latest time that an inode has room for, in seconds since 1970: 1901 to 2446.
const EARLIEST: i64 = i32::MIN as i64;
const LATEST: i64 = (1 << 34) + EARLIEST - 1;

/// A time from the two words of the disk: seconds, then two more bits of them below thirty of nanoseconds. The
/// additional bits count 2^32 seconds each, from the signed value of the first word.
fn decode_time(seconds: u32, extra: u32) -> FileTime {
    let epoch = i64::from(extra & 3) << 32;
    FileTime { seconds: i64::from(seconds as i32) + epoch, nanoseconds: extra >> 2 }
}

/// A time as two words; what lies outside the range becomes its nearest end.
fn encode_time(time: FileTime) -> (u32, u32) {
    let seconds = time.seconds.clamp(EARLIEST, LATEST);
    let epoch = ((seconds - i64::from(seconds as i32)) >> 32) as u32 & 3;
    (seconds as u32, epoch | time.nanoseconds.min(999_999_999) << 2)
}

/// An inode of 256 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "docs/format/fs.md describes each field")]
pub struct Inode {
    pub mode: U16,
    uid_low: U16,
    size_low: U32,
    accessed: U32,
    changed: U32,
    modified: U32,
    /// When it was deleted, or the next inode in the list of orphans.
    pub deleted: U32,
    gid_low: U16,
    pub links: U16,
    sectors_low: U32,
    /// See [`inode_flags`].
    pub flags: U32,
    version_low: U32,
    /// Root of the extent tree, target of a short symlink, or numbers of a device.
    pub block_area: [u8; BLOCK_AREA_BYTES],
    /// Changes when the number is used again; part of the checksum of all blocks of the inode.
    pub generation: U32,
    attributes_low: U32,
    size_high: U32,
    fragment: U32,
    sectors_high: U16,
    attributes_high: U16,
    uid_high: U16,
    gid_high: U16,
    checksum_low: U16,
    reserved: U16,
    /// Bytes beyond the first 128 that hold fields; attributes may follow.
    pub extra_isize: U16,
    checksum_high: U16,
    changed_extra: U32,
    modified_extra: U32,
    accessed_extra: U32,
    created: U32,
    created_extra: U32,
    version_high: U32,
    pub project: U32,
    rest: [u8; 96],
}

const _: () = {
    assert!(size_of::<Inode>() == INODE_BYTES);
    assert!(offset_of!(Inode, block_area) == 0x28);
    assert!(offset_of!(Inode, generation) == 0x64);
    assert!(offset_of!(Inode, sectors_high) == 0x74);
    assert!(offset_of!(Inode, checksum_low) == 0x7C);
    assert!(offset_of!(Inode, extra_isize) == 0x80);
    assert!(offset_of!(Inode, created) == 0x90);
    assert!(offset_of!(Inode, rest) == 0xA0);
};

impl Inode {
    /// An inode of zeros but for its type, its permissions and the room for its newer fields.
    pub fn new(kind: FileType, permissions: u16) -> Self {
        let mut inode = Self::new_zeroed();
        inode.mode = (kind.mode_bits() | permissions & 0xFFF).into();
        inode.extra_isize = EXTRA_BYTES.into();
        inode
    }

    /// Reads inode `number` from its 256 bytes. An inode of zeros was never used; it has no checksum.
    ///
    /// # Errors
    ///
    /// A wrong checksum, or a size of the newer fields that does not fit.
    pub fn read(bytes: &[u8], number: u32, checksums: &Checksums) -> Result<Self, FormatError> {
        let corrupt = |what| FormatError::corrupt(Structure::Inode, Place::Inode(number), what);
        let (inode, _) = Self::read_from_prefix(bytes).map_err(|_| corrupt("too short"))?;
        let extra = usize::from(inode.extra_isize.get());
        if extra > INODE_BYTES - BASE_BYTES || extra % 4 != 0 {
            return Err(corrupt("size of its newer fields"));
        }
        let wanted = inode.sum(number, checksums);
        if wanted.is_some_and(|sum| sum != inode.stored_sum()) && inode.as_bytes() != [0; INODE_BYTES] {
            return Err(FormatError::Checksum { structure: Structure::Inode, place: Place::Inode(number) });
        }
        Ok(inode)
    }

    /// Stores the checksum of inode `number`; the last thing before its bytes are copied to its table.
    pub fn update_checksum(&mut self, number: u32, checksums: &Checksums) {
        if let Some(sum) = self.sum(number, checksums) {
            self.checksum_low = (sum as u16).into();
            if self.has_extra(offset_of!(Self, checksum_high), 2) {
                self.checksum_high = ((sum >> 16) as u16).into();
            }
        }
    }

    /// Whether this crate can read and write the file.
    ///
    /// # Errors
    ///
    /// The name of what it cannot.
    pub fn check_supported(&self, number: u32) -> Result<(), FormatError> {
        let refused = [
            (inode_flags::ENCRYPTED, "encrypt"),
            (inode_flags::VERITY, "verity"),
            (inode_flags::ATTRIBUTE_VALUE, "ea_inode"),
            (inode_flags::INLINE_DATA, "inline_data"),
            (inode_flags::CASEFOLD, "casefold"),
        ];
        if let Some((_, name)) = refused.into_iter().find(|(flag, _)| self.has_flag(*flag)) {
            return Err(FormatError::Feature { name });
        }
        let corrupt = |what| FormatError::corrupt(Structure::Inode, Place::Inode(number), what);
        let kind = self.file_type().ok_or_else(|| corrupt("type"))?;
        if self.size() > SIZE_MAX {
            return Err(corrupt("size"));
        }
        let mapped = matches!(kind, FileType::Regular | FileType::Directory);
        if mapped && !self.has_flag(inode_flags::EXTENTS) {
            return Err(FormatError::Feature { name: "files without extents" });
        }
        Ok(())
    }

    /// The 32 bits that the stored checksum would be; without room for its upper half, only the lower count.
    fn sum(&self, number: u32, checksums: &Checksums) -> Option<u32> {
        let seed = checksums.inode_seed(number, self.generation.get())?;
        let mut bare = *self;
        bare.checksum_low = 0.into();
        let whole = self.has_extra(offset_of!(Self, checksum_high), 2);
        if whole {
            bare.checksum_high = 0.into();
        }
        let sum = crc32c(seed, &[bare.as_bytes()]);
        Some(if whole { sum } else { sum & 0xFFFF })
    }

    fn stored_sum(&self) -> u32 {
        let whole = self.has_extra(offset_of!(Self, checksum_high), 2);
        let high = if whole { self.checksum_high.get() } else { 0 };
        u32::from(self.checksum_low.get()) | u32::from(high) << 16
    }

    /// Whether the newer fields reach over the `length` bytes at `offset`.
    fn has_extra(&self, offset: usize, length: usize) -> bool {
        BASE_BYTES + usize::from(self.extra_isize.get()) >= offset + length
    }

    /// What the file is, if its mode says something known.
    pub fn file_type(&self) -> Option<FileType> {
        FileType::of_mode(self.mode.get())
    }

    /// The twelve bits of its permissions.
    pub fn permissions(&self) -> u16 {
        self.mode.get() & 0xFFF
    }

    /// Sets the twelve bits of its permissions; others are left out.
    pub fn set_permissions(&mut self, permissions: u16) {
        self.mode = (self.mode.get() & 0xF000 | permissions & 0xFFF).into();
    }

    /// Whether all bits of `flag` (see [`inode_flags`]) are set.
    pub fn has_flag(&self, flag: u32) -> bool {
        self.flags.get() & flag == flag
    }

    /// Sets or clears `flag`.
    pub fn set_flag(&mut self, flag: u32, on: bool) {
        let flags = self.flags.get();
        self.flags = if on { flags | flag } else { flags & !flag }.into();
    }

    /// The owner.
    pub fn uid(&self) -> u32 {
        u32::from(self.uid_low.get()) | u32::from(self.uid_high.get()) << 16
    }

    /// The owning group.
    pub fn gid(&self) -> u32 {
        u32::from(self.gid_low.get()) | u32::from(self.gid_high.get()) << 16
    }

    /// Sets the owner and the owning group.
    pub fn set_owner(&mut self, uid: u32, gid: u32) {
        (self.uid_low, self.uid_high) = ((uid as u16).into(), ((uid >> 16) as u16).into());
        (self.gid_low, self.gid_high) = ((gid as u16).into(), ((gid >> 16) as u16).into());
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        u64::from(self.size_low.get()) | u64::from(self.size_high.get()) << 32
    }

    /// Sets the size in bytes.
    pub fn set_size(&mut self, size: u64) {
        (self.size_low, self.size_high) = ((size as u32).into(), ((size >> 32) as u32).into());
    }

    /// The block of extended attributes; 0 if there is none.
    pub fn attribute_block(&self) -> u64 {
        u64::from(self.attributes_low.get()) | u64::from(self.attributes_high.get()) << 32
    }

    /// Sets the block of extended attributes, a number of 48 bits.
    pub fn set_attribute_block(&mut self, block: u64) {
        self.attributes_low = (block as u32).into();
        self.attributes_high = ((block >> 32) as u16).into();
    }

    /// Space in use in units of 512 bytes, metadata blocks of the file included.
    pub fn sectors(&self) -> u64 {
        let count = u64::from(self.sectors_low.get()) | u64::from(self.sectors_high.get()) << 32;
        if self.has_flag(inode_flags::HUGE) { count * 8 } else { count }
    }

    /// Sets the space in use in units of 512 bytes: what does not fit in 48 bits is counted in blocks, which
    /// the feature `huge_file` allows.
    pub fn set_sectors(&mut self, sectors: u64) {
        let huge = sectors >= 1 << 48;
        let count = if huge { sectors / 8 } else { sectors };
        self.set_flag(inode_flags::HUGE, huge);
        self.sectors_low = (count as u32).into();
        self.sectors_high = ((count >> 32) as u16).into();
    }

    /// One of the times. An inode without room for it says 1970 for its creation, and whole seconds for the
    /// others.
    pub fn time(&self, stamp: Stamp) -> FileTime {
        let (seconds, extra) = match stamp {
            Stamp::Accessed => (self.accessed, self.accessed_extra),
            Stamp::Changed => (self.changed, self.changed_extra),
            Stamp::Modified => (self.modified, self.modified_extra),
            Stamp::Created => (self.created, self.created_extra),
        };
        match (self.has_time_extra(stamp), stamp) {
            (true, _) => decode_time(seconds.get(), extra.get()),
            (false, Stamp::Created) => FileTime::default(),
            (false, _) => decode_time(seconds.get(), 0),
        }
    }

    /// Sets one of the times, as finely as the inode has room for; what lies outside the range from 1901 to
    /// 2446 becomes its nearest end.
    pub fn set_time(&mut self, stamp: Stamp, time: FileTime) {
        let room = self.has_time_extra(stamp);
        let (seconds, extra) = match stamp {
            Stamp::Accessed => (&mut self.accessed, &mut self.accessed_extra),
            Stamp::Changed => (&mut self.changed, &mut self.changed_extra),
            Stamp::Modified => (&mut self.modified, &mut self.modified_extra),
            Stamp::Created => (&mut self.created, &mut self.created_extra),
        };
        let (first, second) = encode_time(time);
        if room {
            (*seconds, *extra) = (first.into(), second.into());
        } else if stamp != Stamp::Created {
            let clamped = time.seconds.clamp(i64::from(i32::MIN), i64::from(i32::MAX));
            *seconds = (clamped as u32).into();
        }
    }

    fn has_time_extra(&self, stamp: Stamp) -> bool {
        let offset = match stamp {
            Stamp::Accessed => offset_of!(Self, accessed_extra),
            Stamp::Changed => offset_of!(Self, changed_extra),
            Stamp::Modified => offset_of!(Self, modified_extra),
            Stamp::Created => offset_of!(Self, created_extra),
        };
        self.has_extra(offset, 4)
    }

    /// The change counter.
    pub fn version(&self) -> u64 {
        u64::from(self.version_low.get()) | u64::from(self.version_high.get()) << 32
    }

    /// Sets the change counter.
    pub fn set_version(&mut self, version: u64) {
        (self.version_low, self.version_high) = ((version as u32).into(), ((version >> 32) as u32).into());
    }

    /// The bytes behind the newer fields, where attributes may be.
    pub fn attribute_area(&self) -> &[u8] {
        &self.as_bytes()[self.attribute_start()..]
    }

    /// The same, to change.
    pub fn attribute_area_mut(&mut self) -> &mut [u8] {
        let start = self.attribute_start();
        &mut self.as_mut_bytes()[start..]
    }

    fn attribute_start(&self) -> usize {
        // Without newer fields, not even their size counts, and there is no room for attributes.
        match usize::from(self.extra_isize.get()) {
            0 => INODE_BYTES,
            extra => (BASE_BYTES + extra).min(INODE_BYTES),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_reach_from_1901_to_2446() {
        let inner = [0, 1, -1, 1 << 31, (1 << 32) + 5, EARLIEST, LATEST];
        for seconds in inner {
            let time = FileTime { seconds, nanoseconds: 999_999_999 };
            let (first, second) = encode_time(time);
            assert_eq!(decode_time(first, second), time);
        }
        let late = encode_time(FileTime { seconds: i64::MAX, nanoseconds: u32::MAX });
        let latest = FileTime { seconds: 15_032_385_535, nanoseconds: 999_999_999 };
        assert_eq!(decode_time(late.0, late.1), latest);
    }

    #[test]
    fn a_small_inode_keeps_whole_seconds() {
        let mut inode = Inode::new(FileType::Regular, 0o644);
        inode.extra_isize = 0.into();
        let time = FileTime { seconds: 1 << 33, nanoseconds: 7 };
        inode.set_time(Stamp::Modified, time);
        inode.set_time(Stamp::Created, time);
        assert_eq!(inode.time(Stamp::Modified), FileTime { seconds: i64::from(i32::MAX), nanoseconds: 0 });
        assert_eq!(inode.time(Stamp::Created), FileTime::default());
    }

    #[test]
    fn every_byte_of_a_sealed_inode_counts() {
        let sums = Checksums::of_uuid(&[1; 16]);
        for extra in [0_u16, 4, 32] {
            let mut inode = Inode::new(FileType::Directory, 0o755);
            inode.extra_isize = extra.into();
            inode.set_size(1 << 40);
            inode.update_checksum(12, &sums);
            let bytes: [u8; INODE_BYTES] = inode.as_bytes().try_into().expect("256 bytes");
            assert_eq!(Inode::read(&bytes, 12, &sums), Ok(inode));
            Inode::read(&bytes, 13, &sums).expect_err("another inode");
            for at in 0..INODE_BYTES {
                let mut flipped = bytes;
                flipped[at] ^= 1;
                Inode::read(&flipped, 12, &sums).expect_err("a flipped bit");
            }
        }
        Inode::read(&[0; INODE_BYTES], 12, &sums).expect("never used");
    }

    #[test]
    fn space_is_counted_in_sectors_until_it_does_not_fit() {
        let mut inode = Inode::new(FileType::Regular, 0);
        for (sectors, huge) in [(8, false), ((1 << 48) - 8, false), (1 << 48, true), (1 << 49, true)] {
            inode.set_sectors(sectors);
            assert_eq!((inode.sectors(), inode.has_flag(inode_flags::HUGE)), (sectors, huge));
        }
    }
}
