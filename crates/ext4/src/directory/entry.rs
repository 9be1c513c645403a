//! Entries: how one block of a directory holds names.
//!
//! A block is a chain of records, each as long as it says, without gaps to the end of the block. A record
//! with inode 0 is free; a record longer than its name has room behind it. With checksums the last twelve
//! bytes are the checksum, dressed as a free record.

use weir_format::{BLOCK_BYTES, FileType};

/// Bytes of a record before the name.
pub(super) const HEADER: usize = 8;
/// Bytes that the checksum takes at the end of a block.
const TAIL: usize = 12;
/// The longest name.
pub const NAME_MAX: usize = 255;
/// What is wrong with a directory that begins otherwise.
pub(crate) const NO_DOTS: &str = "\".\" and \"..\" are not its first two names";
/// Bytes of the records of "." and of the shortest names.
pub(super) const RECORD_MIN: usize = 12;

/// Where records end in a block.
pub(super) fn records_end(sealed: bool) -> usize {
    if sealed { BLOCK_BYTES - TAIL } else { BLOCK_BYTES }
}

/// Bytes of a record for a name of this length: a multiple of four.
pub(super) fn record_bytes(name: usize) -> usize {
    (HEADER + name).next_multiple_of(4)
}

/// A record of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    /// Its offset in the block.
    pub at: usize,
    /// Its length, the room behind the name included.
    pub length: usize,
    /// The inode; 0 when the record is free.
    pub inode: u32,
    /// The file's type, if the filesystem keeps it in entries.
    pub kind: Option<FileType>,
    /// The name.
    pub name: &'a [u8],
}

/// Whether a name can be one of a path: it is not empty, is not "." or "..", and has no zero byte and no slash.
pub(crate) fn is_ordinary(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&0) && !name.contains(&b'/')
}

/// The name that record `index` must have: the first two records of a directory's first block are "." and "..".
pub(crate) fn dot_at(is_first_block: bool, index: usize) -> Option<&'static [u8]> {
    match (is_first_block, index) {
        (true, 0) => Some(b"."),
        (true, 1) => Some(b".."),
        _ => None,
    }
}

impl<'a> Record<'a> {
    /// The record, if record `index` of a block may have its name. A name that no path can have would lead a caller
    /// that joins it to a path, or copies it to the host, out of the directory.
    pub(super) fn checked(self, is_first_block: bool, index: usize) -> Result<Record<'a>, &'static str> {
        match dot_at(is_first_block, index) {
            Some(dot) if !self.is_live() || self.name != dot => Err(NO_DOTS),
            None if self.is_live() && !is_ordinary(self.name) => Err("a name that no path can have"),
            _ => Ok(self),
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        self.inode != 0
    }

    /// The bytes that it needs; the rest is room.
    pub(super) fn used(&self) -> usize {
        if self.is_live() { record_bytes(self.name.len()) } else { 0 }
    }
}

/// The records of a block, in order. Ends after the first that is damaged.
pub(crate) struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Records<'a> {
    /// The records of a block of 4,096 bytes, with a checksum at its end if `sealed`.
    pub(crate) fn of(block: &'a [u8], sealed: bool) -> Self {
        Self { bytes: &block[..records_end(sealed).min(block.len())], at: 0 }
    }

    fn parse(&self) -> Result<Record<'a>, &'static str> {
        let rest = &self.bytes[self.at..];
        if rest.len() < RECORD_MIN {
            return Err("a record's length leaves too little behind it");
        }
        let length = usize::from(u16::from_le_bytes([rest[4], rest[5]]));
        if length < RECORD_MIN || !length.is_multiple_of(4) || length > rest.len() {
            return Err("a record's length");
        }
        let name = usize::from(rest[6]);
        if record_bytes(name) > length {
            return Err("a name longer than its record");
        }
        Ok(Record {
            at: self.at,
            length,
            inode: u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]),
            kind: FileType::of_entry_code(rest[7]),
            name: &rest[HEADER..HEADER + name],
        })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let record = self.parse();
        self.at = record.map_or(self.bytes.len(), |record| record.at + record.length);
        Some(record)
    }
}

/// Writes a record of `length` bytes at the start of `bytes`. What was behind the name becomes zero up to the
/// next multiple of four.
pub(super) fn put(bytes: &mut [u8], inode: u32, kind: Option<FileType>, name: &[u8], length: usize) {
    bytes[..4].copy_from_slice(&inode.to_le_bytes());
    bytes[4..6].copy_from_slice(&(length as u16).to_le_bytes());
    bytes[6] = name.len() as u8;
    bytes[7] = kind.map_or(0, FileType::entry_code);
    bytes[HEADER..HEADER + name.len()].copy_from_slice(name);
    bytes[HEADER + name.len()..record_bytes(name.len())].fill(0);
}

/// Makes a block of `records`, packed from its start, the last one with all the room.
pub(super) fn pack(records: &[Record<'_>], sealed: bool) -> Box<[u8; BLOCK_BYTES]> {
    let mut block = Box::new([0; BLOCK_BYTES]);
    let end = records_end(sealed);
    let mut at = 0;
    for (index, record) in records.iter().enumerate() {
        let last = index + 1 == records.len();
        let length = if last { end - at } else { record_bytes(record.name.len()) };
        put(&mut block[at..], record.inode, record.kind, record.name, length);
        at += length;
    }
    if records.is_empty() {
        put(&mut block[..], 0, None, b"", end);
    }
    if sealed {
        block[end..end + HEADER].copy_from_slice(&[0, 0, 0, 0, TAIL as u8, 0, 0, 0xDE]);
    }
    block
}

/// A directory's first block, with "." and "..", not yet sealed with its checksum.
pub fn first_block(inode: u32, parent: u32, file_types: bool, sealed: bool) -> Box<[u8; BLOCK_BYTES]> {
    let kind = file_types.then_some(FileType::Directory);
    let record = |inode, name| Record { at: 0, length: 0, inode, kind, name };
    pack(&[record(inode, b"."), record(parent, b"..")], sealed)
}

/// A directory's further block without names, not yet sealed with its checksum.
pub fn empty_block(sealed: bool) -> Box<[u8; BLOCK_BYTES]> {
    pack(&[], sealed)
}

/// Room for a record: behind the `used` bytes of the record at `at`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub at: usize,
    pub used: usize,
    pub length: usize,
}

impl Slot {
    /// The bytes that [`fill`](Self::fill) changes for a name of this length.
    pub(super) fn range(&self, name: usize) -> std::ops::Range<usize> {
        self.at..self.at + self.used + record_bytes(name)
    }

    /// Puts a record into the slot; `bytes` are those of [`range`](Self::range).
    pub(super) fn fill(&self, bytes: &mut [u8], inode: u32, kind: Option<FileType>, name: &[u8]) {
        if self.used > 0 {
            bytes[4..6].copy_from_slice(&(self.used as u16).to_le_bytes());
        }
        put(&mut bytes[self.used..], inode, kind, name, self.length - self.used);
    }
}

/// The first room for a name of `needed` bytes among these records.
pub(super) fn find_slot(records: &[Record<'_>], name: usize) -> Option<Slot> {
    let slots =
        records.iter().map(|record| Slot { at: record.at, used: record.used(), length: record.length });
    slots.into_iter().find(|slot| slot.length - slot.used >= record_bytes(name))
}
