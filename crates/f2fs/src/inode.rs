//! Inodes: a node block with what is known of a file, and with its first addresses, its attributes, or its content.
//!
//! The 923 words behind the fixed fields are shared, in this order:
//!
//! | what | words | where |
//! |---|---|---|
//! | extra fields | `extra_bytes` / 4 | with the feature `extra_attr` |
//! | addresses; or one reserved word, and the content of a file or a directory | the rest | |
//! | attributes | 50 | if the inode says so, and in all that hold a directory |

use std::ops::Range;

use weir_format::{BLOCK_BYTES, FileTime, FileType, FormatError, Place, Stamp, Structure};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::block::{BlockAddress, NodeId};
use crate::crc::crc32;
use crate::node::NodeFooter;

/// Bytes of the fixed fields.
const FIXED_BYTES: usize = 360;
/// Words that addresses, extra fields, attributes and content share.
const WORDS: usize = 923;
/// Words of attributes in an inode.
const ATTRIBUTE_WORDS: usize = 50;
/// Bytes of the extra fields up to and with the checksum, and with the time of creation.
const CHECKSUM_END: usize = 12;
const CREATED_END: usize = 24;
/// Bytes of the extra fields that `mkfs.f2fs` and Linux make.
pub const EXTRA_BYTES: u16 = 36;
/// Where the checksum is in the block.
const CHECKSUM: Range<usize> = FIXED_BYTES + 8..FIXED_BYTES + 12;
/// Bytes of the longest name.
const NAME_MAX: usize = 255;

/// Bits of `inline`.
pub mod inline_flags {
    /// Attributes lie in the inode.
    pub const ATTRIBUTES: u8 = 0x01;
    /// The content of the file lies in the inode.
    pub const DATA: u8 = 0x02;
    /// The names of the directory lie in the inode.
    pub const NAMES: u8 = 0x04;
    /// The content in the inode is not empty.
    pub const DATA_EXISTS: u8 = 0x08;
    /// There are extra fields.
    pub const EXTRA: u8 = 0x20;
}

/// Bits of `flags`, as `chattr` has them.
pub mod inode_flags {
    /// The file may not be changed.
    pub const IMMUTABLE: u32 = 0x10;
    /// The file may only grow.
    pub const APPEND_ONLY: u32 = 0x20;
    /// The content is compressed. Refused.
    pub const COMPRESSED: u32 = 0x4;
    /// The content is encrypted. Refused.
    pub const ENCRYPTED: u32 = 0x800;
    /// Names are compared without case. Refused.
    pub const CASEFOLD: u32 = 0x4000_0000;
}

/// An inode: the fixed fields, the shared words, and the numbers of up to five nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the names of Documentation/filesystems/f2fs.rst, in words")]
pub struct Inode {
    pub mode: U16,
    pub advice: u8,
    /// See [`inline_flags`].
    pub inline: u8,
    pub uid: U32,
    pub gid: U32,
    pub links: U32,
    pub size: U64,
    /// Blocks of data and nodes, itself included.
    pub blocks: U64,
    accessed: U64,
    changed: U64,
    modified: U64,
    accessed_nanoseconds: U32,
    changed_nanoseconds: U32,
    modified_nanoseconds: U32,
    pub generation: U32,
    /// Of a directory: levels of its hash table. Of a file: how often cleaning has failed to move it.
    pub depth: U32,
    pub attribute_node: U32,
    /// See [`inode_flags`].
    pub flags: U32,
    /// The directory that it was given its name in, for recovery.
    pub parent: U32,
    name_bytes: U32,
    name: [u8; NAME_MAX],
    pub directory_level: u8,
    extent: [U32; 3],
    words: [U32; WORDS],
    pub nodes: [U32; 5],
    footer: NodeFooter,
}

const _: () = assert!(size_of::<Inode>() == BLOCK_BYTES);

/// A part of a file that lies in one piece, if its inode notes one. Linux reads these pages without a look at their addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// The first page of it.
    pub page: u32,
    /// Where that page is.
    pub address: BlockAddress,
    /// How many pages it has: 0 if none is noted.
    pub pages: u32,
}

impl Extent {
    /// Whether a page is in it, and its address is the one that follows from it.
    pub fn has(&self, page: u64, address: BlockAddress) -> bool {
        let nth = page.checked_sub(self.page.into()).filter(|nth| *nth < self.pages.into());
        nth.is_some_and(|nth| u64::from(self.address.0) + nth == u64::from(address.0))
    }
}

impl Inode {
    /// A new inode without names, times and content. Extra fields take `extra_bytes`, or there are none.
    pub fn new(number: NodeId, kind: FileType, permissions: u16, extra_bytes: u16) -> Self {
        let mut inode = Self::new_zeroed();
        inode.mode = (kind.mode_bits() | permissions & 0xFFF).into();
        if extra_bytes > 0 {
            inode.inline |= inline_flags::EXTRA;
            inode.words[0] = u32::from(extra_bytes).into();
        }
        inode.footer = NodeFooter::new(number, number, 0);
        inode
    }

    /// Reads inode `number` from its block, which was found at `address`. `seed` is that of the
    /// [superblock](crate::Superblock::inode_seed), where inodes have checksums.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] and [`FormatError::Checksum`] for damage, [`FormatError::Feature`] for what is outside the
    /// subset.
    pub fn read(
        block: &[u8],
        number: NodeId,
        address: BlockAddress,
        seed: Option<u32>,
    ) -> Result<Self, FormatError> {
        let corrupt = |what| Err(FormatError::corrupt(Structure::Inode, Place::Inode(number.0), what));
        NodeFooter::check(block, number, number, address)?;
        let Ok(inode) = Self::read_from_bytes(block) else { return corrupt("too short") };
        let extra = inode.extra_bytes();
        if extra % 4 != 0 || extra > 4 * (WORDS - ATTRIBUTE_WORDS - 1) {
            return corrupt("size of its extra fields");
        }
        if inode.has_checksum(seed) && inode.sum(seed.unwrap_or_default()) != inode.stored_sum() {
            return Err(FormatError::Checksum { structure: Structure::Inode, place: Place::Inode(number.0) });
        }
        let Some(kind) = inode.file_type() else { return corrupt("its type") };
        if inode.has_inline(inline_flags::DATA) && !matches!(kind, FileType::Regular | FileType::Symlink)
            || inode.has_inline(inline_flags::NAMES) && kind != FileType::Directory
        {
            return corrupt("content of another type of file");
        }
        if inode.name_bytes > NAME_MAX as u32 {
            return corrupt("length of its name");
        }
        if inode.has_inline(inline_flags::DATA) && inode.size > inode.inline_area().len() as u64 {
            return corrupt("more content than fits in it");
        }
        let refused = [
            (inode_flags::COMPRESSED, "compression"),
            (inode_flags::ENCRYPTED, "encrypt"),
            (inode_flags::CASEFOLD, "casefold"),
        ];
        let flags = inode.flags.get();
        match refused.into_iter().find(|(flag, _)| flags & flag != 0) {
            // Compression is a wish, as long as the image does not have the feature.
            Some((inode_flags::COMPRESSED, _)) | None => Ok(inode),
            Some((_, name)) => Err(FormatError::Feature { name }),
        }
    }

    /// Stores the checksum, where inodes have one, and puts the inode into its block: the last thing before that is written.
    pub fn write(&mut self, block: &mut [u8; BLOCK_BYTES], seed: Option<u32>) {
        if self.has_checksum(seed) {
            self.words[2] = self.sum(seed.unwrap_or_default()).into();
        }
        block.copy_from_slice(self.as_bytes());
    }

    fn has_checksum(&self, seed: Option<u32>) -> bool {
        seed.is_some() && self.extra_bytes() >= CHECKSUM_END
    }

    fn stored_sum(&self) -> u32 {
        self.words[2].get()
    }

    /// Over the number, the generation, and all of the block but the checksum itself.
    fn sum(&self, seed: u32) -> u32 {
        let bytes = self.as_bytes();
        let own = crc32(crc32(seed, &self.number().0.to_le_bytes()), &self.generation.get().to_le_bytes());
        crc32(crc32(crc32(own, &bytes[..CHECKSUM.start]), &[0; 4]), &bytes[CHECKSUM.end..])
    }

    /// Its number.
    pub fn number(&self) -> NodeId {
        self.footer.node()
    }

    /// The footer of its block.
    pub fn footer(&self) -> &NodeFooter {
        &self.footer
    }

    /// The footer of its block.
    pub fn footer_mut(&mut self) -> &mut NodeFooter {
        &mut self.footer
    }

    /// What it is, by its mode.
    pub fn file_type(&self) -> Option<FileType> {
        FileType::of_mode(self.mode.get())
    }

    /// Whether a bit of `inline` is set.
    pub fn has_inline(&self, flag: u8) -> bool {
        self.inline & flag != 0
    }

    /// Sets or clears a bit of `inline`.
    pub fn set_inline(&mut self, flag: u8, value: bool) {
        self.inline = if value { self.inline | flag } else { self.inline & !flag };
    }

    /// Bytes of the extra fields: 0 without.
    fn extra_bytes(&self) -> usize {
        match self.has_inline(inline_flags::EXTRA) {
            true => (self.words[0].get() & 0xFFFF) as usize,
            false => 0,
        }
    }

    /// Words that are kept for attributes.
    fn attribute_words(&self) -> usize {
        let there = self.has_inline(inline_flags::ATTRIBUTES | inline_flags::NAMES);
        if there { ATTRIBUTE_WORDS } else { 0 }
    }

    /// The words that addresses may take.
    fn address_words(&self) -> Range<usize> {
        let start = (self.extra_bytes() / 4).min(WORDS);
        start..(WORDS - self.attribute_words()).max(start)
    }

    /// Addresses that lie in the inode: pages of the file before the first of its other nodes.
    pub fn addresses(&self) -> u32 {
        self.address_words().len() as u32
    }

    /// The address of a page, which is less than [`addresses`](Self::addresses).
    pub fn address(&self, page: u32) -> BlockAddress {
        let words = &self.words[self.address_words()];
        words.get(page as usize).map_or(BlockAddress::NULL, |word| BlockAddress(word.get()))
    }

    /// Sets the address of a page; nothing if it is not in the inode.
    pub fn set_address(&mut self, page: u32, address: BlockAddress) {
        let words = self.address_words();
        if let Some(word) = self.words[words].get_mut(page as usize) {
            *word = address.0.into();
        }
    }

    /// Where content in the inode is: the bytes behind one reserved word.
    fn inline_words(&self) -> Range<usize> {
        let words = self.address_words();
        (words.start + 1).min(words.end)..words.end
    }

    /// The bytes that hold the content of a file, or the names of a directory, where they lie in the inode.
    pub fn inline_area(&self) -> &[u8] {
        self.words[self.inline_words()].as_bytes()
    }

    /// The same, to be changed.
    pub fn inline_area_mut(&mut self) -> &mut [u8] {
        let words = self.inline_words();
        self.words[words].as_mut_bytes()
    }

    /// Where attributes are. A directory with its names in the inode keeps the room, and may not use it.
    fn attribute_range(&self) -> Range<usize> {
        let words = if self.has_inline(inline_flags::ATTRIBUTES) { ATTRIBUTE_WORDS } else { 0 };
        WORDS - words..WORDS
    }

    /// The bytes of attributes in the inode; none if it has no room for them.
    pub fn attribute_area(&self) -> &[u8] {
        self.words[self.attribute_range()].as_bytes()
    }

    /// The same, to be changed.
    pub fn attribute_area_mut(&mut self) -> &mut [u8] {
        let words = self.attribute_range();
        self.words[words].as_mut_bytes()
    }

    /// The part of the file that it notes as an extent.
    pub fn extent(&self) -> Extent {
        let [page, address, pages] = self.extent.map(U32::get);
        Extent { page, address: BlockAddress(address), pages }
    }

    /// Notes a part of the file as an extent.
    pub fn set_extent(&mut self, extent: Extent) {
        self.extent = [extent.page, extent.address.0, extent.pages].map(U32::new);
    }

    /// The name that it was given last, for recovery.
    pub fn name(&self) -> &[u8] {
        &self.name[..(self.name_bytes.get() as usize).min(NAME_MAX)]
    }

    /// Notes the name that it was given, and in which directory. A name has 255 bytes at most.
    pub fn set_name(&mut self, parent: NodeId, name: &[u8]) {
        let length = name.len().min(NAME_MAX);
        self.parent = parent.0.into();
        self.name.fill(0);
        self.name[..length].copy_from_slice(&name[..length]);
        self.name_bytes = (length as u32).into();
    }

    /// One of its times; that of creation is 0 where it has no room for it.
    pub fn time(&self, stamp: Stamp) -> FileTime {
        let (seconds, nanoseconds) = match stamp {
            Stamp::Accessed => (self.accessed.get(), self.accessed_nanoseconds.get()),
            Stamp::Changed => (self.changed.get(), self.changed_nanoseconds.get()),
            Stamp::Modified => (self.modified.get(), self.modified_nanoseconds.get()),
            Stamp::Created if self.extra_bytes() >= CREATED_END => {
                let seconds = u64::from(self.words[3].get()) | u64::from(self.words[4].get()) << 32;
                (seconds, self.words[5].get())
            }
            Stamp::Created => (0, 0),
        };
        FileTime { seconds: seconds.cast_signed(), nanoseconds: nanoseconds.min(999_999_999) }
    }

    /// Sets one of its times; that of creation only where it has room for it.
    pub fn set_time(&mut self, stamp: Stamp, time: FileTime) {
        let seconds = time.seconds.cast_unsigned();
        let (place, nanoseconds) = match stamp {
            Stamp::Accessed => (&mut self.accessed, &mut self.accessed_nanoseconds),
            Stamp::Changed => (&mut self.changed, &mut self.changed_nanoseconds),
            Stamp::Modified => (&mut self.modified, &mut self.modified_nanoseconds),
            Stamp::Created => {
                if self.extra_bytes() >= CREATED_END {
                    self.words[3] = (seconds as u32).into();
                    self.words[4] = ((seconds >> 32) as u32).into();
                    self.words[5] = time.nanoseconds.into();
                }
                return;
            }
        };
        (*place, *nanoseconds) = (seconds.into(), time.nanoseconds.into());
    }
}
