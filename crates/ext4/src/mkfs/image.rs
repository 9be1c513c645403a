//! The blocks of a new image, and the order in which they are written.

use std::iter;
use std::ops::Range;

use weir_format::{BLOCK_BYTES, FileTime, FileType, FormatError, Stamp};
use zerocopy::IntoBytes;

use super::{Mkfs, size};
use crate::bitmap;
use crate::blocks::Kind;
use crate::descriptor::{Descriptor, group_flags};
use crate::extent::{Extent, leaves_of, new_tree};
use crate::journal::JournalSuperblock;
use crate::layout::Layout;
use crate::superblock::Superblock;
use crate::{inode::Inode, inode::JOURNAL_INODE, inode::ROOT_INODE, inode::inode_flags};

type Block = [u8; BLOCK_BYTES];

/// The first inode that is not reserved, and the directory that it is.
const LOST_AND_FOUND_INODE: u32 = 11;
/// Blocks of that directory, allocated so that a check can use it on a full disk.
const LOST_AND_FOUND_BLOCKS: u32 = 4;
/// The entry that will hold a directory block's checksum.
const DIRECTORY_TAIL: [u8; 12] = [0, 0, 0, 0, 12, 0, 0, 0xDE, 0, 0, 0, 0];
/// Most blocks in one extent.
const EXTENT_BLOCKS: u32 = 32_768;
/// A filesystem that is not written yet.
#[derive(Clone, Debug)]
pub struct NewImage {
    superblock: Superblock,
    layout: Layout,
    descriptors: Vec<Descriptor>,
    /// Inodes with what is allocated to them.
    files: Vec<(u32, Inode, Vec<Extent>)>,
    /// The blocks of the directories.
    directories: Vec<(u64, Block)>,
    /// The nodes of the journal's extent tree that do not fit in its inode, and where they lie.
    nodes: Vec<(u64, Block)>,
    node_extents: Vec<Extent>,
    journal: JournalSuperblock,
    zeroed: bool,
    checksums: bool,
}

impl NewImage {
    pub(super) fn plan(options: &Mkfs) -> Result<Self, FormatError> {
        let (superblock, layout) = size::plan(options)?;
        let mut image = Self {
            superblock,
            layout,
            descriptors: Vec::new(),
            files: Vec::new(),
            directories: Vec::new(),
            nodes: Vec::new(),
            node_extents: Vec::new(),
            journal: JournalSuperblock::new(options.uuid, options.journal_length(), options.checksums)?,
            zeroed: options.zeroed,
            checksums: options.checksums,
        };
        image.place_tables();
        image.place_files(options)?;
        image.fill_directories()?;
        image.count();
        Ok(image)
    }

    /// The superblock as it will be written.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Where everything is.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Every block that has to be written, with its number. The superblock comes last, so that an image that
    /// was not finished is none. Only the superblock needs to be durable after the others.
    pub fn writes(&self) -> impl Iterator<Item = (u64, [u8; BLOCK_BYTES])> + '_ {
        let groups = 0..self.layout.groups();
        let bitmaps = groups.clone().flat_map(|group| self.bitmaps(group));
        let copies = groups.skip(1).filter(|group| self.layout.has_superblock(*group));
        let copies = copies.flat_map(|group| self.base(group));
        let files = self.tables().chain(self.directories.iter().copied()).chain(self.log());
        let files = files.chain(self.nodes.iter().copied());
        bitmaps.chain(files).chain(copies).chain(self.base(0))
    }

    /// Puts the bitmaps and inode tables of each flexible group together in its first group.
    fn place_tables(&mut self) {
        let layout = self.layout;
        for group in 0..layout.groups() {
            let members = layout.flex_members(group);
            let (leader, count) = (members.start, u64::from(members.end - members.start));
            let start = layout.first_block(leader) + u64::from(layout.base_blocks(leader));
            let index = u64::from(group - leader);
            let table = start + 2 * count + index * u64::from(layout.table_blocks());
            self.descriptors.push(Descriptor::new(start + index, start + count + index, table));
        }
    }

    /// Puts the directories and the journal, in this order, into the first blocks that are free.
    fn place_files(&mut self, options: &Mkfs) -> Result<(), FormatError> {
        let layout = self.layout;
        let mut spans = (0..layout.groups()).map(|group| free_span(&layout, group));
        let mut span = 0..0;
        let journal = options.journal_length();
        let wanted = [
            (ROOT_INODE, FileType::Directory, 0o755, 3, 1),
            (LOST_AND_FOUND_INODE, FileType::Directory, 0o700, 2, LOST_AND_FOUND_BLOCKS),
            (JOURNAL_INODE, FileType::Regular, 0o600, 1, journal),
        ];
        for (number, kind, permissions, links, blocks) in wanted {
            let extents = take(&mut span, &mut spans, blocks)?;
            let leaves = leaves_of(extents.len())?;
            let leaves_at = take(&mut span, &mut spans, leaves as u32)?;
            let mut inode = Inode::new(kind, permissions);
            inode.links = links.into();
            inode.set_flag(inode_flags::EXTENTS, true);
            inode.set_size(u64::from(blocks) * BLOCK_BYTES as u64);
            inode.set_sectors((u64::from(blocks) + leaves as u64) * 8);
            let places: Vec<u64> = blocks_of(&leaves_at).collect();
            let (root, leaves) = new_tree(&extents, &places);
            inode.block_area = root;
            for (block, mut bytes) in leaves {
                let kind = Kind::Extents { inode: number, generation: 0 };
                layout.checksums().update_checksum(kind, block, &mut bytes)?;
                self.nodes.push((block, bytes));
            }
            self.node_extents.extend(leaves_at);
            if kind == FileType::Directory {
                inode.set_owner(options.uid, options.gid);
            }
            let created = FileTime { seconds: options.created.into(), nanoseconds: 0 };
            for stamp in [Stamp::Accessed, Stamp::Changed, Stamp::Modified, Stamp::Created] {
                inode.set_time(stamp, created);
            }
            self.files.push((number, inode, extents));
        }
        Ok(())
    }

    /// Fills in what depends on how much is in use.
    fn count(&mut self) {
        let layout = self.layout;
        let last = layout.groups() - 1;
        let (mut free_blocks, mut metadata) = (0, 0);
        for group in 0..layout.groups() {
            let used = u32::from(group == 0) * LOST_AND_FOUND_INODE;
            // The first use of the others works out what their own metadata takes, and no more.
            let plain = layout.table_room(group) == 0 && group != last && !self.has_file(group);
            let (bits, inode_bits) = (self.block_bitmap(group), self.inode_bitmap(group));
            let free = bitmap::count_clear(&bits, 0..layout.blocks_in(group));
            let descriptor = &mut self.descriptors[group as usize];
            descriptor.set_free_blocks(free);
            descriptor.set_free_inodes(layout.inodes_per_group() - used);
            if self.checksums {
                descriptor.set_unused_inodes(layout.inodes_per_group() - used);
                descriptor.set_flag(group_flags::TABLE_ZEROED, self.zeroed);
                descriptor.set_flag(group_flags::BLOCKS_UNINITIALISED, plain);
                descriptor.set_flag(group_flags::INODES_UNINITIALISED, used == 0);
            }
            descriptor.seal_written_bitmaps(&bits, &inode_bits, &layout);
            if group == 0 {
                descriptor.set_directories(2);
            }
            free_blocks += u64::from(free);
            metadata += u64::from(layout.base_blocks(group) + layout.table_room(group));
        }
        self.superblock.set_free_blocks(free_blocks);
        self.superblock.free_inodes = (layout.inodes() - LOST_AND_FOUND_INODE).into();
        for (_, inode, _) in self.files.iter().filter(|(number, ..)| *number == JOURNAL_INODE) {
            let size = inode.size();
            let words = inode.block_area.chunks_exact(4).map(|word| [word[0], word[1], word[2], word[3]]);
            let words = words.map(u32::from_le_bytes).chain([(size >> 32) as u32, size as u32]);
            for (backup, word) in self.superblock.journal_backup.iter_mut().zip(words) {
                *backup = word.into();
            }
            self.superblock.journal_backup_type = 1;
            metadata += size / BLOCK_BYTES as u64;
        }
        self.superblock.overhead_blocks = u32::try_from(metadata).unwrap_or(0).into();
        self.superblock.update_checksum();
    }

    /// Everything that is allocated to a file.
    fn extents(&self) -> impl Iterator<Item = &Extent> {
        self.files.iter().flat_map(|(_, _, extents)| extents).chain(&self.node_extents)
    }

    fn has_file(&self, group: u32) -> bool {
        let span = self.layout.first_block(group)..self.layout.first_block(group + 1);
        self.extents().any(|run| run.physical < span.end && run.physical + u64::from(run.length) > span.start)
    }

    fn block_bitmap(&self, group: u32) -> Block {
        let mut bits = [0; BLOCK_BYTES];
        let layout = &self.layout;
        layout.fresh_block_bitmap(group, &self.descriptors[group as usize], &mut bits);
        let base = layout.base_blocks(group);
        bitmap::set(&mut bits, base..base + layout.table_room(group));
        let (first, length) = (layout.first_block(group), u64::from(layout.blocks_in(group)));
        for run in self.extents() {
            let bit = |block: u64| block.saturating_sub(first).min(length) as u32;
            bitmap::set(&mut bits, bit(run.physical)..bit(run.physical + u64::from(run.length)));
        }
        bits
    }

    /// The bitmap of a group's inodes; all that are in use are in the first group.
    fn inode_bitmap(&self, group: u32) -> Block {
        let mut bits = [0; BLOCK_BYTES];
        self.layout.fresh_inode_bitmap(&mut bits);
        bitmap::set(&mut bits, 0..u32::from(group == 0) * LOST_AND_FOUND_INODE);
        bits
    }

    fn bitmaps(&self, group: u32) -> impl Iterator<Item = (u64, Block)> + use<> {
        let descriptor = &self.descriptors[group as usize];
        let written = descriptor.written_bitmaps(|| self.block_bitmap(group), || self.inode_bitmap(group));
        written.into_iter().flatten()
    }

    /// The superblock and the descriptors of a group that has them; the superblock last.
    fn base(&self, group: u32) -> impl Iterator<Item = (u64, Block)> + '_ {
        let first = self.layout.first_block(group);
        let each = BLOCK_BYTES / self.layout.descriptor_bytes();
        let descriptors = self.descriptors.chunks(each).zip(0_u32..).map(move |(chunk, at)| {
            let mut block = [0; BLOCK_BYTES];
            for (index, descriptor) in chunk.iter().enumerate() {
                let start = index * self.layout.descriptor_bytes();
                let number = at * each as u32 + index as u32;
                let mut descriptor = *descriptor;
                descriptor.write(&mut block[start..], number, &self.layout);
            }
            (first + 1 + u64::from(at), block)
        });
        descriptors.chain(iter::once_with(move || (first, self.superblock.to_block(group))))
    }

    /// The blocks of inode tables that a reader may look at: the first, as the inodes behind it were never used; and
    /// where no descriptor may say so, all.
    fn tables(&self) -> impl Iterator<Item = (u64, Block)> + '_ {
        let groups = if self.checksums || self.zeroed { 0 } else { self.descriptors.len() };
        let tables = self.descriptors[..groups].iter().map(Descriptor::inode_table);
        let blocks = tables.flat_map(|start| start..start + u64::from(self.layout.table_blocks()));
        iter::once_with(|| self.inodes()).chain(blocks.skip(1).map(|block| (block, [0; BLOCK_BYTES])))
    }

    /// The first block of the first inode table.
    fn inodes(&self) -> (u64, Block) {
        let mut block = [0; BLOCK_BYTES];
        let descriptor = &self.descriptors[0];
        for (number, inode, _) in &self.files {
            let mut inode = *inode;
            inode.update_checksum(*number, &self.layout.checksums());
            let (_, range) = self.layout.inode_place(descriptor, number - 1);
            block[range].copy_from_slice(inode.as_bytes());
        }
        (descriptor.inode_table(), block)
    }

    /// The journal's superblock, and an empty log behind it: an old one would never be replayed, but would
    /// mislead a person who looks for a cause.
    fn log(&self) -> impl Iterator<Item = (u64, Block)> + '_ {
        let blocks = self.blocks_of(JOURNAL_INODE);
        let written = if self.zeroed { 1 } else { usize::MAX };
        blocks.take(written).enumerate().map(|(index, block)| {
            let mut bytes = [0; BLOCK_BYTES];
            if index == 0 {
                self.journal.encode(&mut bytes);
            }
            (block, bytes)
        })
    }

    /// The blocks of a file, in order.
    fn blocks_of(&self, inode: u32) -> impl Iterator<Item = u64> + '_ {
        let files = self.files.iter().filter(move |(number, ..)| *number == inode);
        files.flat_map(|(_, _, extents)| blocks_of(extents))
    }

    fn fill_directories(&mut self) -> Result<(), FormatError> {
        let (root, spare) = (ROOT_INODE, LOST_AND_FOUND_INODE);
        let mut filled = Vec::new();
        let directory_block = |entries: &[(u32, &str)]| directory_block(entries, self.checksums);
        for block in self.blocks_of(root) {
            filled.push((block, root, directory_block(&[(root, "."), (root, ".."), (spare, "lost+found")])));
        }
        for (index, block) in self.blocks_of(spare).enumerate() {
            let entries: &[(u32, &str)] = if index == 0 { &[(spare, "."), (root, "..")] } else { &[(0, "")] };
            filled.push((block, spare, directory_block(entries)));
        }
        for (block, inode, mut bytes) in filled {
            let kind = Kind::Directory { inode, generation: 0 };
            self.layout.checksums().update_checksum(kind, block, &mut bytes)?;
            self.directories.push((block, bytes));
        }
        Ok(())
    }
}

/// A block of directories; the last entry reaches up to the checksum's, where there is one.
fn directory_block(entries: &[(u32, &str)], checksums: bool) -> Block {
    let mut block = [0; BLOCK_BYTES];
    let end = BLOCK_BYTES - if checksums { DIRECTORY_TAIL.len() } else { 0 };
    let mut start = 0;
    for (at, (inode, name)) in entries.iter().enumerate() {
        let length = (8 + name.len()).next_multiple_of(4);
        let length = if at + 1 == entries.len() { end - start } else { length };
        let kind = if *inode == 0 { 0 } else { FileType::Directory.entry_code() };
        block[start..start + 4].copy_from_slice(&inode.to_le_bytes());
        block[start + 4..start + 6].copy_from_slice(&(length as u16).to_le_bytes());
        block[start + 6..start + 8].copy_from_slice(&[name.len() as u8, kind]);
        block[start + 8..start + 8 + name.len()].copy_from_slice(name.as_bytes());
        start += length;
    }
    block[end..].copy_from_slice(&DIRECTORY_TAIL[..BLOCK_BYTES - end]);
    block
}

/// The blocks of extents, in order.
fn blocks_of(extents: &[Extent]) -> impl Iterator<Item = u64> + '_ {
    extents.iter().flat_map(|run| run.physical..run.physical + u64::from(run.length))
}

/// The blocks of a group behind all metadata.
fn free_span(layout: &Layout, group: u32) -> Range<u64> {
    let first = layout.first_block(group);
    let taken = layout.base_blocks(group) + layout.table_room(group);
    first + u64::from(taken)..first + u64::from(layout.blocks_in(group))
}

/// Takes `wanted` blocks from `span`, and from `spans` behind it.
fn take(
    span: &mut Range<u64>,
    spans: &mut impl Iterator<Item = Range<u64>>,
    wanted: u32,
) -> Result<Vec<Extent>, FormatError> {
    let mut extents: Vec<Extent> = Vec::new();
    let mut logical = 0;
    while logical < wanted {
        let free = span.end.saturating_sub(span.start).min(u64::from(EXTENT_BLOCKS)) as u32;
        let length = free.min(wanted - logical);
        if length == 0 {
            let full = FormatError::Full { what: "the journal does not fit in the image" };
            *span = spans.next().ok_or(full)?;
            continue;
        }
        extents.push(Extent { logical, length, physical: span.start, written: true });
        span.start += u64::from(length);
        logical += length;
    }
    Ok(extents)
}
