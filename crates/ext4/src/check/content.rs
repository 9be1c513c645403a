//! What an inode says of itself, and which blocks it has.

use std::collections::BTreeMap;
use std::ops::Range;

use weir_format::{BLOCK_BYTES, FileType, ImageReader, Place, Structure, acl};
use zerocopy::IntoBytes;

use super::Problem;
use super::extents::WalkItem;
use super::known::Known;
use super::subject::Subject;
use crate::attribute;
use crate::blocks::Kind;
use crate::features::Feature;
use crate::symlink;
use crate::{inode::Inode, inode::RESIZE_INODE, inode::inode_flags};

/// Flags of an inode that mean something for regular files and directories only.
const FLAGS_OF_MAPPED: u32 = inode_flags::INDEXED | inode_flags::EXTENTS;
/// A flag of a feature that was never used: inodes that are no files.
const FLAG_IMAGIC: u32 = 0x2000;
/// The field of the resize inode that names its block of blocks.
const DOUBLE_INDIRECT: usize = 13 * 4;
/// Where an inode would name a fragment of a block, which no ext filesystem ever had.
const FRAGMENT: Range<usize> = 0x70..0x74;
const SECTORS_PER_BLOCK: u64 = BLOCK_BYTES as u64 / 512;

/// What the extents of a file map.
#[derive(Debug, Default)]
struct Mapped {
    /// Blocks of the disk, nodes included.
    blocks: u64,
    /// The file block behind the last mapped one, and behind the last with data.
    end: u32,
    written_end: u32,
    /// The first blocks are mapped without a hole up to here.
    without_holes: u32,
    /// Some blocks have no data yet.
    unwritten: bool,
    /// The first block's place.
    first: u64,
    /// A part could not be read.
    lost: bool,
}

/// Attribute blocks: how many references each says, and how many there are.
pub(super) type SharedBlocks = BTreeMap<u64, (u32, u32)>;

/// What inodes have.
pub(super) struct Contents<'a, R> {
    pub subject: &'a Subject<'a, R>,
    pub known: &'a mut Known,
    pub shared: &'a mut SharedBlocks,
}

impl<R: ImageReader> Contents<'_, R> {
    /// What can be judged without looking further than the inode.
    pub(super) fn fields(&mut self, number: u32, inode: &Inode, kind: FileType) {
        let mapped = matches!(kind, FileType::Regular | FileType::Directory);
        let linked = kind == FileType::Symlink;
        let indexed = self.subject.superblock.features().has(Feature::DIR_INDEX);
        let has_any = |flags| inode.flags.get() & flags != 0;
        let wrong = [
            (!mapped && !linked && has_any(FLAGS_OF_MAPPED), "a flag of files in a special file"),
            (
                inode.has_flag(inode_flags::INDEXED) && !(kind == FileType::Directory && indexed),
                "an index where there can be none",
            ),
            (has_any(FLAG_IMAGIC), "a flag of the feature imagic_inodes"),
            (!mapped && !linked && inode.size() != 0, "the size of a special file"),
            (inode.as_bytes()[FRAGMENT] != [0; 4], "a fragment"),
            (
                inode.has_flag(inode_flags::HUGE)
                    && !self.subject.superblock.features().has(Feature::HUGE_FILE),
                "a flag of the feature huge_file",
            ),
        ];
        for (_, what) in wrong.into_iter().filter(|(wrong, _)| *wrong) {
            self.known.findings.damaged(Place::Inode(number), Structure::Inode, what);
        }
    }

    /// Attributes and blocks; claims them, and compares the size and the number of blocks with them.
    pub(super) async fn content(
        &mut self,
        number: u32,
        inode: &Inode,
        kind: FileType,
    ) -> Result<(), R::Error> {
        let place = Place::Inode(number);
        if let Err(error) = inode.check_supported(number) {
            self.known.findings.format_at(place, &error);
            self.known.lose_blocks_of(number);
            return Ok(());
        }
        let attributes = self.attributes(number, inode).await?;
        let mut mapped = Mapped::default();
        if inode.has_flag(inode_flags::EXTENTS) {
            mapped = self.extents(number, inode).await?;
        }
        if mapped.lost {
            self.known.lose_blocks_of(number);
            return Ok(());
        }
        let counted = (mapped.blocks + attributes) * SECTORS_PER_BLOCK;
        self.known.findings.count(place, "sectors of its blocks", inode.sectors(), counted);
        if mapped.unwritten && kind != FileType::Regular {
            self.known.findings.damaged(
                place,
                Structure::Inode,
                "blocks without data in what is no regular file",
            );
        }
        // The next mount deletes an orphan, or cuts it to its size: until then it may have blocks behind that.
        if self.known.orphans.contains(&number) && (inode.links.get() == 0 || kind == FileType::Regular) {
            return Ok(());
        }
        match kind {
            FileType::Symlink => self.symlink(number, inode, &mapped).await,
            FileType::Regular | FileType::Directory => {
                self.size(number, inode, kind, &mapped);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn size(&mut self, number: u32, inode: &Inode, kind: FileType, mapped: &Mapped) {
        let (size, block) = (inode.size(), BLOCK_BYTES as u64);
        let fits = if kind == FileType::Directory {
            let whole = mapped.without_holes == mapped.end && mapped.end > 0;
            whole && size == u64::from(mapped.end) * block
        } else {
            // The last block with data may be the one into which the file was about to grow.
            size >= u64::from(mapped.written_end.saturating_sub(1)) * block
        };
        if !fits {
            self.known.findings.push(Place::Inode(number), Problem::Size { size, blocks: mapped.end.into() });
            if kind == FileType::Directory {
                self.known.lose_blocks_of(number);
            }
        }
    }

    /// Claims the blocks that the extents of an inode map, and those of the tree itself.
    async fn extents(&mut self, number: u32, inode: &Inode) -> Result<Mapped, R::Error> {
        let place = Place::Inode(number);
        let mut walk = self.subject.extents(number, inode);
        let mut mapped = Mapped::default();
        while let Some(step) = walk.next(self.subject.image).await? {
            match step {
                WalkItem::Damage(error) => {
                    self.known.findings.format_at(place, &error);
                    mapped.lost = true;
                }
                WalkItem::Node(block) => {
                    mapped.blocks += 1;
                    if !self.known.claim(place, block, 1) {
                        walk.leave_out();
                        mapped.lost = true;
                    }
                }
                WalkItem::Extent(extent) => {
                    if !self.known.claim(place, extent.physical, extent.length.into()) {
                        mapped.lost = true;
                    }
                    if mapped.end == 0 {
                        mapped.first = extent.physical;
                    }
                    if extent.logical == mapped.without_holes {
                        mapped.without_holes = extent.end();
                    }
                    mapped.blocks += u64::from(extent.length);
                    mapped.end = extent.end();
                    if extent.written {
                        mapped.written_end = extent.end();
                    } else {
                        mapped.unwritten = true;
                    }
                }
            }
        }
        Ok(mapped)
    }

    /// Reads the attributes of an inode. Returns how many blocks they take: 0 or 1.
    async fn attributes(&mut self, number: u32, inode: &Inode) -> Result<u64, R::Error> {
        let place = Place::Inode(number);
        let block = inode.attribute_block();
        if let Err(error) = attribute::check_hashes(number, inode.attribute_area(), None) {
            self.known.findings.format_at(place, &error);
        }
        if block == 0 {
            let read = attribute::read_attributes(number, inode.attribute_area(), None);
            if let Err(error) = read.and_then(|found| acl::check(number, &found)) {
                self.known.findings.format_at(place, &error);
            }
            return Ok(0);
        }
        if block >= self.subject.layout.blocks() {
            self.known.findings.damaged(
                place,
                Structure::Inode,
                "its block of attributes is beyond the filesystem",
            );
            return Ok(1);
        }
        let bytes = self.subject.image.block(block).await?;
        if let Some((_, counted)) = self.shared.get_mut(&block) {
            *counted += 1;
        } else if self.known.claim(place, block, 1) {
            let read = self
                .subject
                .layout
                .checksums()
                .verify(Kind::Attributes, block, &bytes[..])
                .and_then(|()| attribute::references(block, &bytes[..]))
                .and_then(|stored| {
                    attribute::check_hashes(number, &[], Some((block, &bytes[..]))).map(|()| stored)
                });
            match read {
                Ok(stored) => _ = self.shared.insert(block, (stored, 1)),
                Err(error) => {
                    self.known.findings.format_at(place, &error);
                    return Ok(1);
                }
            }
        }
        let outside = Some((block, &bytes[..]));
        let read = attribute::read_attributes(number, inode.attribute_area(), outside);
        if let Err(error) = read.and_then(|found| acl::check(number, &found)) {
            self.known.findings.format_at(place, &error);
        }
        Ok(1)
    }

    async fn symlink(&mut self, number: u32, inode: &Inode, mapped: &Mapped) -> Result<(), R::Error> {
        let place = Place::Inode(number);
        // Both are the target and what is behind it.
        let (target, bytes) = match symlink::short_target(inode, number) {
            Ok(Some(target)) => (Ok(target), inode.block_area.to_vec()),
            Ok(None) if mapped.blocks == 1 && mapped.end == 1 => {
                let block = self.subject.image.block(mapped.first).await?;
                (symlink::long_target(inode, number, &block[..]), block.to_vec())
            }
            Ok(None) => {
                let problem = Problem::Size { size: inode.size(), blocks: mapped.end.into() };
                self.known.findings.push(place, problem);
                return Ok(());
            }
            Err(error) => (Err(error), Vec::new()),
        };
        match target {
            Ok(target) if target.contains(&0) || bytes.get(target.len()) != Some(&0) => {
                let what = "its length is not that of the target up to a zero byte";
                self.known.findings.damaged(place, Structure::SymlinkTarget, what);
            }
            Ok(_) => {}
            Err(error) => self.known.findings.format_at(place, &error),
        }
        Ok(())
    }

    /// The inode that keeps room for descriptors: a block, and in it the blocks of the first group's reserve;
    /// each of those names its fellows in the groups with copies. All but the first are claimed already.
    pub(super) async fn resize_inode(&mut self, inode: &Inode) -> Result<(), R::Error> {
        let place = Place::Inode(RESIZE_INODE);
        let wrong = "the reserve of descriptors is not what it should be";
        let reserve = u64::from(self.subject.superblock.reserved_descriptor_blocks.get());
        if reserve == 0 && inode.block_area.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let map = u64::from(number(&inode.block_area, DOUBLE_INDIRECT));
        let plain = inode.file_type() == Some(FileType::Regular) && inode.links.get() > 0;
        let others =
            inode.block_area[..DOUBLE_INDIRECT].iter().chain(&inode.block_area[DOUBLE_INDIRECT + 4..]);
        if !plain || others.into_iter().any(|byte| *byte != 0) || !self.known.claim(place, map, 1) {
            self.known.findings.damaged(place, Structure::Inode, wrong);
            self.known.blocks_unknown = true;
            return Ok(());
        }
        let copies: Vec<u64> = (1..self.subject.layout.groups())
            .filter(|group| self.subject.layout.has_superblock(*group))
            .map(|group| self.subject.layout.first_block(group))
            .collect();
        let first = 1 + self.subject.layout.descriptor_blocks_in_front();
        let mut wanted = [0; BLOCK_BYTES];
        let mut right = true;
        for block in first..first + reserve {
            put(&mut wanted, (block - 1) as usize % (BLOCK_BYTES / 4), block);
            let mut fellows = [0; BLOCK_BYTES];
            for (slot, copy) in copies.iter().take(BLOCK_BYTES / 4).enumerate() {
                put(&mut fellows, slot, block + copy);
            }
            right &= *self.subject.image.block(block).await? == fellows;
        }
        right &= *self.subject.image.block(map).await? == wanted;
        if !right {
            self.known.findings.damaged(place, Structure::Inode, wrong);
        }
        let counted = (1 + reserve * (1 + copies.len() as u64)) * SECTORS_PER_BLOCK;
        self.known.findings.count(place, "sectors of its blocks", inode.sectors(), counted);
        Ok(())
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Writes a block's number, of which 32 bits count here, into a slot.
fn put(bytes: &mut [u8; BLOCK_BYTES], slot: usize, block: u64) {
    bytes[slot * 4..slot * 4 + 4].copy_from_slice(&(block as u32).to_le_bytes());
}
