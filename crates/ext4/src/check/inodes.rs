//! The inode tables: which inodes are in use, and what each says of itself.

use weir_format::{BLOCK_BYTES, FileType, ImageReader, Place, Structure};

use super::Problem;
use super::content::{Contents, SharedBlocks};
use super::known::{DirectoryState, Known};
use super::log;
use super::subject::Subject;
use super::table::{GroupState, InodeRecord, InodeState};
use crate::descriptor::{Descriptor, group_flags};
use crate::features::Feature;
use crate::{
    inode::BAD_BLOCKS_INODE, inode::INODE_BYTES, inode::Inode, inode::JOURNAL_INODE, inode::RESIZE_INODE,
    inode::ROOT_INODE,
};

/// Blocks of an inode table that are read at a time.
const RUN_BLOCKS: u64 = 16;

/// What is wrong with an inode that no file may use.
const RESERVED: &str = "it is reserved, and in use";

/// The inodes of a filesystem.
struct Inodes<'a, R> {
    subject: &'a Subject<'a, R>,
    known: &'a mut Known,
    shared: SharedBlocks,
}

/// Looks at every inode of every group, and claims their blocks.
pub(super) async fn check<R: ImageReader>(
    subject: &Subject<'_, R>,
    known: &mut Known,
) -> Result<(), R::Error> {
    Inodes { subject, known, shared: SharedBlocks::new() }.all().await
}

impl<R: ImageReader> Inodes<'_, R> {
    fn contents(&mut self) -> Contents<'_, R> {
        Contents { subject: self.subject, known: self.known, shared: &mut self.shared }
    }

    async fn all(&mut self) -> Result<(), R::Error> {
        for group in 0..self.subject.layout.groups() {
            let Some(descriptor) = self.subject.descriptors[group as usize] else { continue };
            if !descriptor.has_flag(group_flags::INODES_UNINITIALISED) {
                self.inode_table(group, &descriptor).await?;
            }
        }
        if self.subject.superblock.features().has(Feature::HAS_JOURNAL) {
            log::check(self.subject, &mut self.known.findings).await?;
        }
        for (block, (stored, counted)) in std::mem::take(&mut self.shared) {
            let what = "references to the attributes";
            self.known.findings.count(Place::Block(block), what, stored.into(), counted.into());
        }
        Ok(())
    }

    async fn inode_table(&mut self, group: u32, descriptor: &Descriptor) -> Result<(), R::Error> {
        let count = self.subject.layout.inodes_per_group() - descriptor.unused_inodes();
        let records = vec![InodeRecord::default(); self.subject.layout.inodes_per_group() as usize];
        self.known.table.set_group(group, GroupState::Known(records.into()));
        let blocks = (u64::from(count) * INODE_BYTES as u64).div_ceil(BLOCK_BYTES as u64);
        let mut bytes = vec![0; RUN_BLOCKS as usize * BLOCK_BYTES];
        let mut index = 0;
        for first in (0..blocks).step_by(RUN_BLOCKS as usize) {
            let run = RUN_BLOCKS.min(blocks - first) as usize * BLOCK_BYTES;
            self.subject.image.read(descriptor.inode_table() + first, &mut bytes[..run]).await?;
            for inode in bytes[..run].chunks_exact(INODE_BYTES).take((count - index) as usize) {
                if inode.iter().any(|byte| *byte != 0) {
                    self.inode(self.subject.layout.inode_at(group, index), inode).await?;
                }
                index += 1;
            }
        }
        Ok(())
    }

    /// Looks at an inode that is not all zeros.
    async fn inode(&mut self, number: u32, bytes: &[u8]) -> Result<(), R::Error> {
        let place = Place::Inode(number);
        let inode = match Inode::read(bytes, number, &self.subject.layout.checksums()) {
            Ok(inode) => inode,
            Err(error) => {
                self.known.findings.format_at(place, &error);
                self.known.table.set(number, InodeState::Unknown, 0);
                self.known.lose_blocks_of(number);
                return Ok(());
            }
        };
        if number < self.subject.superblock.first_inode.get() && number != ROOT_INODE {
            return self.reserved_inode(number, &inode).await;
        }
        let orphan = self.known.orphans.contains(&number);
        // A time so early is the number of an inode.
        let links_on = (1..=self.subject.layout.inodes()).contains(&inode.deleted.get());
        if inode.links.get() == 0 && !orphan && links_on {
            self.known.findings.damaged(place, Structure::Inode, "it names an orphan, and is none itself");
        }
        if inode.links.get() == 0 && !orphan {
            if inode.mode.get() != 0 && inode.deleted.get() == 0 {
                self.known.findings.damaged(place, Structure::Inode, "it has no links and was never deleted");
            }
            return Ok(());
        }
        if inode.deleted.get() != 0 && !orphan {
            self.known.findings.damaged(place, Structure::Inode, "it is in use and has a time of deletion");
        }
        let Some(kind) = inode.file_type() else {
            self.known.findings.damaged(place, Structure::Inode, "type");
            self.known.table.set(number, InodeState::Unknown, 0);
            self.known.lose_blocks_of(number);
            return Ok(());
        };
        self.known.table.set(number, InodeState::Used(kind), inode.links.get());
        // A removed directory that a program has open is in no tree: its "." and ".." are no names any more.
        if kind == FileType::Directory && inode.links.get() > 0 {
            self.known.directories.insert(number, DirectoryState::default());
        }
        self.contents().fields(number, &inode, kind);
        self.contents().content(number, &inode, kind).await
    }

    /// The inodes below the first that files get, without the root.
    async fn reserved_inode(&mut self, number: u32, inode: &Inode) -> Result<(), R::Error> {
        let place = Place::Inode(number);
        let used = inode.mode.get() != 0 || inode.links.get() != 0;
        let features = self.subject.superblock.features();
        match number {
            JOURNAL_INODE if features.has(Feature::HAS_JOURNAL) => {
                if inode.file_type() != Some(FileType::Regular) || inode.links.get() == 0 {
                    self.known.findings.damaged(place, Structure::Inode, "the journal is no regular file");
                    self.known.lose_blocks_of(number);
                    return Ok(());
                }
                self.contents().fields(number, inode, FileType::Regular);
                self.contents().content(number, inode, FileType::Regular).await
            }
            RESIZE_INODE if features.has(Feature::RESIZE_INODE) => self.contents().resize_inode(inode).await,
            BAD_BLOCKS_INODE => {
                if inode.sectors() != 0 || inode.block_area.iter().any(|byte| *byte != 0) {
                    self.known.findings.push(place, Problem::Unsupported("a list of bad blocks"));
                    self.known.blocks_unknown = true;
                } else if used
                    || inode.attribute_block() != 0
                    || inode.flags.get() != 0
                    || inode.uid() != 0
                    || inode.gid() != 0
                {
                    self.known.findings.damaged(place, Structure::Inode, RESERVED);
                }
                Ok(())
            }
            _ => {
                if used {
                    self.known.findings.damaged(place, Structure::Inode, RESERVED);
                    self.known.blocks_unknown = true;
                }
                Ok(())
            }
        }
    }
}
