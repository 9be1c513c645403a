//! Blocks of names: slots of eight bytes for names, a record for each slot that a name begins in, and a bitmap of slots. The
//! area in an inode that holds the names of a small directory has the same form with fewer slots.

use weir_format::{BLOCK_BYTES, FileType, FormatError, Place, Structure};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bitmap::{get_low_bit, set_low_bit};
use crate::block::NodeId;
use crate::name_hash::hash_name;

/// Bytes of a slot.
const SLOT_BYTES: usize = 8;
/// Slots in a block.
const BLOCK_SLOTS: usize = 214;
/// Bytes of the longest name.
pub const NAME_MAX: usize = 255;

/// The record of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Record {
    hash: U32,
    inode: U32,
    length: U16,
    kind: u8,
}

const RECORD_BYTES: usize = size_of::<Record>();
const _: () = assert!(RECORD_BYTES == 11);

/// Where the parts of an area of names are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameArea {
    slots: usize,
    records: usize,
    names: usize,
}

/// A name that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dentry<'a> {
    /// The first of its slots.
    pub slot: usize,
    /// Its hash, as it is stored.
    pub hash: u32,
    /// What it stands for.
    pub inode: NodeId,
    /// The type of that.
    pub kind: Option<FileType>,
    /// The name.
    pub name: &'a [u8],
}

impl Dentry<'_> {
    /// Itself, if its hash is that of its name.
    fn hashed(self, place: Place) -> Result<Self, FormatError> {
        match self.hash == hash_name(self.name) {
            true => Ok(self),
            false => Err(FormatError::corrupt(Structure::Directory, place, "the hash of a name")),
        }
    }
}

/// The slots that a name of so many bytes takes.
pub fn slots_of(length: usize) -> usize {
    length.div_ceil(SLOT_BYTES)
}

impl NameArea {
    /// The form of a block.
    pub const BLOCK: Self = Self { slots: BLOCK_SLOTS, records: 30, names: 30 + BLOCK_SLOTS * RECORD_BYTES };

    /// The form of an area of so many bytes in an inode.
    pub fn of_inline(bytes: usize) -> Self {
        let slots = bytes * 8 / ((RECORD_BYTES + SLOT_BYTES) * 8 + 1);
        let records = bytes - slots * (RECORD_BYTES + SLOT_BYTES);
        Self { slots, records, names: records + slots * RECORD_BYTES }
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The names in an area. An area that is damaged ends with an error.
    pub fn names<'a>(
        &self,
        area: &'a [u8],
        place: Place,
    ) -> impl Iterator<Item = Result<Dentry<'a>, FormatError>> {
        self.walk(area, move |form, slot| form.read(area, slot, place)?.hashed(place))
    }

    /// The names in an area as `read` has them, to the first error.
    fn walk<'a>(
        &self,
        area: &'a [u8],
        read: impl Fn(&Self, usize) -> Result<Dentry<'a>, FormatError>,
    ) -> impl Iterator<Item = Result<Dentry<'a>, FormatError>> {
        let (this, mut slot) = (*self, 0);
        std::iter::from_fn(move || {
            while slot < this.slots && !get_low_bit(area, slot) {
                slot += 1;
            }
            if slot >= this.slots {
                return None;
            }
            let found = read(&this, slot);
            slot = found.as_ref().map_or(this.slots, |found| slot + slots_of(found.name.len()));
            Some(found)
        })
    }

    /// The name that begins in a slot; its hash may be any.
    fn read<'a>(&self, area: &'a [u8], slot: usize, place: Place) -> Result<Dentry<'a>, FormatError> {
        let corrupt = |what| FormatError::corrupt(Structure::Directory, place, what);
        let at = self.records + slot * RECORD_BYTES;
        let record = area.get(at..at + RECORD_BYTES).and_then(|bytes| Record::read_from_bytes(bytes).ok());
        let record = record.ok_or_else(|| corrupt("too short"))?;
        let length = usize::from(record.length.get());
        if length == 0 || length > NAME_MAX || slot + slots_of(length) > self.slots {
            return Err(corrupt("length of a name"));
        }
        let start = self.names + slot * SLOT_BYTES;
        let name = area.get(start..start + length).ok_or_else(|| corrupt("too short"))?;
        if record.inode < NodeId::ROOT.0 || name.contains(&0) || name.contains(&b'/') {
            return Err(corrupt("a name that no path can have, or of no inode"));
        }
        let kind = FileType::of_entry_code(record.kind);
        Ok(Dentry { slot, hash: record.hash.get(), inode: NodeId(record.inode.get()), kind, name })
    }

    /// The name in an area, if it is there. Only its own hash is compared: those of others take longer than all else here.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for a damaged area.
    pub fn find<'a>(
        &self,
        area: &'a [u8],
        name: &[u8],
        place: Place,
    ) -> Result<Option<Dentry<'a>>, FormatError> {
        for found in self.walk(area, |form, slot| form.read(area, slot, place)) {
            let found = found?;
            if found.name == name {
                return found.hashed(place).map(Some);
            }
        }
        Ok(None)
    }

    /// The first of as many free slots in a row as a name of so many bytes needs.
    pub fn find_room(&self, area: &[u8], length: usize) -> Option<usize> {
        let needed = slots_of(length);
        let mut free = 0;
        for slot in 0..self.slots {
            free = if get_low_bit(area, slot) { 0 } else { free + 1 };
            if free == needed {
                return Some(slot + 1 - needed);
            }
        }
        None
    }

    /// Puts a name into free slots.
    ///
    /// # Errors
    /// [`FormatError::Invalid`] for a name that is empty or too long, [`FormatError::Full`] if it does not fit there.
    pub fn insert(
        &self,
        area: &mut [u8],
        slot: usize,
        (name, inode, kind): (&[u8], NodeId, FileType),
    ) -> Result<(), FormatError> {
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(FormatError::Invalid { what: "a name has 1 to 255 bytes" });
        }
        let (record, start) = (self.records + slot * RECORD_BYTES, self.names + slot * SLOT_BYTES);
        let end = slot + slots_of(name.len());
        if end > self.slots || area.len() < self.names + self.slots * SLOT_BYTES {
            return Err(FormatError::Full { what: "a block of names" });
        }
        let hash = hash_name(name);
        let length = name.len() as u16;
        let entry = Record {
            hash: hash.into(),
            inode: inode.0.into(),
            length: length.into(),
            kind: kind.entry_code(),
        };
        area[record..record + RECORD_BYTES].copy_from_slice(entry.as_bytes());
        area[start..start + name.len()].copy_from_slice(name);
        (slot..end).for_each(|slot| set_low_bit(area, slot, true));
        Ok(())
    }

    /// Takes out the name that begins in a slot, which is there.
    pub fn remove(&self, area: &mut [u8], slot: usize, length: usize) {
        (slot..slot + slots_of(length)).for_each(|slot| set_low_bit(area, slot, false));
    }

    /// Lets a name that begins in a slot, which is there, stand for another inode.
    pub fn set_target(&self, area: &mut [u8], slot: usize, inode: NodeId, kind: FileType) {
        let at = self.records + slot * RECORD_BYTES;
        if let Some(bytes) = area.get_mut(at + 4..at + RECORD_BYTES) {
            bytes[..4].copy_from_slice(&inode.0.to_le_bytes());
            bytes[6] = kind.entry_code();
        }
    }
}

/// Writes "." and "..", which are the first names of every directory, into an empty area.
///
/// # Errors
/// [`FormatError::Full`] for an area with fewer than two slots.
pub fn write_dots(area: &mut [u8], form: NameArea, own: NodeId, parent: NodeId) -> Result<(), FormatError> {
    form.insert(area, 0, (b".", own, FileType::Directory))?;
    form.insert(area, 1, (b"..", parent, FileType::Directory))
}

const _: () = assert!(NameArea::BLOCK.names + BLOCK_SLOTS * SLOT_BYTES == BLOCK_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_beside_one_with_a_damaged_hash() {
        let (form, place) = (NameArea::BLOCK, Place::Inode(3));
        let mut area = [0; BLOCK_BYTES];
        for (slot, name) in [b"first", b"other", b"third"].into_iter().enumerate() {
            form.insert(&mut area, slot, (name, NodeId(4), FileType::Regular)).expect("inserted");
        }
        area[form.records + RECORD_BYTES] ^= 1;
        let found = |name: &[u8]| form.find(&area, name, place).map(|found| found.map(|found| found.slot));
        assert_eq!((found(b"first"), found(b"third"), found(b"none")), (Ok(Some(0)), Ok(Some(2)), Ok(None)));
        assert!(found(b"other").is_err());
        // A list of all names ends at the damaged one.
        let listed: Vec<bool> = form.names(&area, place).map(|found| found.is_ok()).collect();
        assert_eq!(listed, [true, false]);
    }
}
