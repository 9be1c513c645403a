//! The inode tables: which inodes are in use, and what each says of itself.

use super::{Check, DirectoryState, ImageReader, Problem};
use crate::blocks::BLOCK_BYTES;
use crate::descriptor::{Descriptor, group_flags};
use crate::error::{Place, Structure};
use crate::features::Feature;
use crate::inode::{BAD_BLOCKS_INODE, FileType, INODE_BYTES, Inode, JOURNAL_INODE, RESIZE_INODE, ROOT_INODE};
use crate::layout::Layout;

/// Blocks of an inode table that are read at a time.
const RUN_BLOCKS: u64 = 16;

/// What is wrong with an inode that nobody may use.
const RESERVED: &str = "it is reserved, and in use";

/// What is known of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum InodeState {
    /// Nobody uses it.
    #[default]
    Free,
    /// It is in use, as this kind of file.
    Used(FileType),
    /// It cannot be read.
    Unknown,
}

/// An inode, and how many names there are for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InodeRecord {
    pub state: InodeState,
    pub links: u16,
    pub names: u32,
}

/// The inodes of a group.
#[derive(Clone, Debug)]
pub(super) enum GroupState {
    /// None is in use.
    Free,
    /// They cannot be read.
    Unknown,
    Known(Box<[InodeRecord]>),
}

/// All inodes, by group.
pub(super) struct InodeTable {
    layout: Layout,
    groups: Vec<GroupState>,
}

impl InodeTable {
    pub(super) fn new(layout: &Layout) -> Self {
        Self { layout: *layout, groups: vec![GroupState::Free; layout.groups() as usize] }
    }

    pub(super) fn set_group(&mut self, group: u32, state: GroupState) {
        self.groups[group as usize] = state;
    }

    /// The inodes of a group that was read and has any in use.
    pub(super) fn group(&self, group: u32) -> Option<&[InodeRecord]> {
        match &self.groups[group as usize] {
            GroupState::Known(records) => Some(records),
            GroupState::Free | GroupState::Unknown => None,
        }
    }

    /// An inode's state; `None` if there is no such number.
    pub(super) fn state(&self, inode: u32) -> Option<InodeState> {
        let (group, index) = self.layout.inode_group(inode).ok()?;
        Some(match &self.groups[group as usize] {
            GroupState::Free => InodeState::Free,
            GroupState::Unknown => InodeState::Unknown,
            GroupState::Known(records) => records[index as usize].state,
        })
    }

    fn record(&mut self, inode: u32) -> Option<&mut InodeRecord> {
        let (group, index) = self.layout.inode_group(inode).ok()?;
        match &mut self.groups[group as usize] {
            GroupState::Known(records) => records.get_mut(index as usize),
            GroupState::Free | GroupState::Unknown => None,
        }
    }

    /// Counts a name of an inode.
    pub(super) fn add_name(&mut self, inode: u32) {
        if let Some(record) = self.record(inode) {
            record.names += 1;
        }
    }

    fn set(&mut self, inode: u32, state: InodeState, links: u16) {
        if let Some(record) = self.record(inode) {
            *record = InodeRecord { state, links, names: 0 };
        }
    }

    /// How many inodes are in use: those from `first` on, and the root.
    pub(super) fn used(&self, first: u32) -> u32 {
        let all = (0..self.layout.groups()).filter_map(|group| Some((group, self.group(group)?)));
        let used = |(group, records): (u32, &[InodeRecord])| {
            let numbered = (0..).zip(records).filter(|(_, record)| record.state != InodeState::Free);
            let numbers = numbered.map(|(index, _)| self.layout.inode_at(group, index));
            numbers.filter(|&number| number >= first || number == ROOT_INODE).count() as u32
        };
        all.map(used).sum()
    }
}

impl<R: ImageReader> Check<'_, R> {
    /// Looks at every inode of every group, and claims their blocks.
    pub(super) async fn inodes(&mut self) -> Result<(), R::Error> {
        for group in 0..self.layout.groups() {
            let Some(descriptor) = self.descriptors[group as usize] else { continue };
            if !descriptor.has_flag(group_flags::INODES_UNINITIALISED) {
                self.inode_table(group, &descriptor).await?;
            }
        }
        if self.superblock.features().has(Feature::HAS_JOURNAL) {
            self.journal().await?;
        }
        let shared: Vec<(u64, (u32, u32))> =
            self.shared.iter().map(|(block, counts)| (*block, *counts)).collect();
        for (block, (stored, counted)) in shared {
            let what = "references to the attributes";
            self.findings.count(Place::Block(block), what, stored.into(), counted.into());
        }
        Ok(())
    }

    async fn inode_table(&mut self, group: u32, descriptor: &Descriptor) -> Result<(), R::Error> {
        let count = self.layout.inodes_per_group() - descriptor.unused_inodes();
        let records = vec![InodeRecord::default(); self.layout.inodes_per_group() as usize];
        self.table.set_group(group, GroupState::Known(records.into()));
        let blocks = (u64::from(count) * INODE_BYTES as u64).div_ceil(BLOCK_BYTES as u64);
        let mut bytes = vec![0; RUN_BLOCKS as usize * BLOCK_BYTES];
        let mut index = 0;
        for first in (0..blocks).step_by(RUN_BLOCKS as usize) {
            let run = RUN_BLOCKS.min(blocks - first) as usize * BLOCK_BYTES;
            self.image.read(descriptor.inode_table() + first, &mut bytes[..run]).await?;
            for inode in bytes[..run].chunks_exact(INODE_BYTES).take((count - index) as usize) {
                if inode.iter().any(|byte| *byte != 0) {
                    self.inode(self.layout.inode_at(group, index), inode).await?;
                }
                index += 1;
            }
        }
        Ok(())
    }

    /// Looks at an inode that is not all zeros.
    async fn inode(&mut self, number: u32, bytes: &[u8]) -> Result<(), R::Error> {
        let place = Place::Inode(number);
        let inode = match Inode::read(bytes, number, &self.layout.checksums()) {
            Ok(inode) => inode,
            Err(error) => {
                self.findings.format_at(place, &error);
                self.table.set(number, InodeState::Unknown, 0);
                self.lose_blocks_of(number);
                return Ok(());
            }
        };
        if number < self.superblock.first_inode.get() && number != ROOT_INODE {
            return self.reserved_inode(number, &inode).await;
        }
        let orphan = self.orphans.contains(&number);
        // A time so early is the number of an inode.
        let links_on = (1..=self.layout.inodes()).contains(&inode.deleted.get());
        if inode.links.get() == 0 && !orphan && links_on {
            self.findings.damaged(place, Structure::Inode, "it names an orphan, and is none itself");
        }
        if inode.links.get() == 0 && !orphan {
            if inode.mode.get() != 0 && inode.deleted.get() == 0 {
                self.findings.damaged(place, Structure::Inode, "it has no links and was never deleted");
            }
            return Ok(());
        }
        if inode.deleted.get() != 0 && !orphan {
            self.findings.damaged(place, Structure::Inode, "it is in use and has a time of deletion");
        }
        let Some(kind) = inode.file_type() else {
            self.findings.damaged(place, Structure::Inode, "type");
            self.table.set(number, InodeState::Unknown, 0);
            self.lose_blocks_of(number);
            return Ok(());
        };
        self.table.set(number, InodeState::Used(kind), inode.links.get());
        // A removed directory that somebody has open is in no tree: its "." and ".." are no names any more.
        if kind == FileType::Directory && inode.links.get() > 0 {
            self.directories.insert(number, DirectoryState::default());
        }
        self.fields(number, &inode, kind);
        self.content(number, &inode, kind).await
    }

    /// The inodes below the first that files get, without the root.
    async fn reserved_inode(&mut self, number: u32, inode: &Inode) -> Result<(), R::Error> {
        let place = Place::Inode(number);
        let used = inode.mode.get() != 0 || inode.links.get() != 0;
        let features = self.superblock.features();
        match number {
            JOURNAL_INODE if features.has(Feature::HAS_JOURNAL) => {
                if inode.file_type() != Some(FileType::Regular) || inode.links.get() == 0 {
                    self.findings.damaged(place, Structure::Inode, "the journal is no regular file");
                    self.lose_blocks_of(number);
                    return Ok(());
                }
                self.fields(number, inode, FileType::Regular);
                self.content(number, inode, FileType::Regular).await
            }
            RESIZE_INODE if features.has(Feature::RESIZE_INODE) => self.resize_inode(inode).await,
            BAD_BLOCKS_INODE => {
                if inode.sectors() != 0 || inode.block_area.iter().any(|byte| *byte != 0) {
                    self.findings.push(place, Problem::Unsupported("a list of bad blocks"));
                    self.blocks_unknown = true;
                } else if used
                    || inode.attribute_block() != 0
                    || inode.flags.get() != 0
                    || inode.uid() != 0
                    || inode.gid() != 0
                {
                    self.findings.damaged(place, Structure::Inode, RESERVED);
                }
                Ok(())
            }
            _ => {
                if used {
                    self.findings.damaged(place, Structure::Inode, RESERVED);
                    self.blocks_unknown = true;
                }
                Ok(())
            }
        }
    }

    /// What is behind an inode that cannot be read is not known: blocks, and names if it is a directory.
    pub(super) fn lose_blocks_of(&mut self, number: u32) {
        self.blocks_unknown = true;
        self.names_unknown = true;
        if let Some(state) = self.directories.get_mut(&number) {
            state.lost = true;
        }
    }
}
