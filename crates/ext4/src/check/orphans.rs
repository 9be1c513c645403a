//! Orphans: inodes that were deleted or cut short while a crash came. The next mount ends what was begun.

use super::extents::{ExtentWalk, places};
use super::{Check, ImageReader};
use crate::blocks::Kind;
use crate::error::{Place, Structure};
use crate::features::Feature;
use crate::inode::{FileType, Inode};
use crate::orphan::{OrphanChain, orphans_in};

impl<R: ImageReader> Check<'_, R> {
    /// Follows the chain of orphans, and reads the orphan file.
    pub(super) async fn orphans(&mut self) -> Result<(), R::Error> {
        let mut chain = OrphanChain::new(&self.superblock);
        loop {
            let number = match chain.number() {
                Ok(Some(number)) => number,
                Ok(None) => break,
                Err(error) => {
                    self.findings.format(&error);
                    break;
                }
            };
            let inode = self.read_inode(number).await?;
            let Some(inode) = inode.filter(|inode| inode.file_type().is_some()) else {
                let what = "it is an orphan, and no file";
                self.findings.damaged(Place::Inode(number), Structure::Inode, what);
                break;
            };
            self.orphans.insert(number);
            chain.follow(&inode);
        }
        if self.superblock.features().has(Feature::ORPHAN_FILE) {
            self.orphan_file().await?;
        }
        Ok(())
    }

    async fn orphan_file(&mut self) -> Result<(), R::Error> {
        let number = self.superblock.orphan_file_inode.get();
        let place = Place::Inode(number);
        let inode = self.read_inode(number).await?;
        let Some(inode) = inode.filter(|inode| inode.file_type() == Some(FileType::Regular)) else {
            self.findings.damaged(place, Structure::OrphanFile, "its inode is no regular file");
            return Ok(());
        };
        let walk = ExtentWalk::new(number, &inode, self.layout.checksums(), self.layout.blocks());
        let blocks = match places(self.image, walk, number).await? {
            Ok(blocks) => blocks,
            // Its inode's turn is still to come.
            Err(_) => return Ok(()),
        };
        let kind = Kind::OrphanFile { inode: number, generation: inode.generation.get() };
        for block in blocks {
            let bytes = self.image.block(block).await?;
            let verified = self.layout.checksums().verify(kind, block, &bytes[..]);
            match verified.and_then(|()| orphans_in(block, &bytes[..], &self.superblock)) {
                Ok(listed) => self.listed_orphans(block, &listed).await?,
                Err(error) => self.findings.format(&error),
            }
        }
        Ok(())
    }

    async fn listed_orphans(&mut self, block: u64, listed: &[u32]) -> Result<(), R::Error> {
        let place = Place::Block(block);
        if !listed.is_empty() && !self.superblock.features().has(Feature::ORPHAN_PRESENT) {
            let what = "it has entries, and the superblock says that it is empty";
            self.findings.damaged(place, Structure::OrphanFile, what);
        }
        for orphan in listed {
            if self.read_inode(*orphan).await?.is_none() || !self.orphans.insert(*orphan) {
                self.findings.damaged(place, Structure::OrphanFile, "an entry");
            }
        }
        Ok(())
    }

    /// An inode by its number; `None` if there is none such or it cannot be read.
    pub(super) async fn read_inode(&self, number: u32) -> Result<Option<Inode>, R::Error> {
        let Ok((group, index)) = self.layout.inode_group(number) else { return Ok(None) };
        let Some(descriptor) = self.descriptors.get(group as usize).copied().flatten() else {
            return Ok(None);
        };
        let (block, range) = self.layout.inode_place(&descriptor, index);
        let bytes = self.image.block(block).await?;
        Ok(Inode::read(&bytes[range], number, &self.layout.checksums()).ok())
    }
}
