//! Orphans: inodes that were deleted or cut short while a crash came. The next mount ends what was begun.

use super::ImageReader;
use super::extents::places;
use super::known::Known;
use super::subject::Subject;
use crate::blocks::Kind;
use crate::error::{Place, Structure};
use crate::features::Feature;
use crate::inode::FileType;
use crate::orphan::{OrphanChain, orphans_in};

/// The orphans of a filesystem.
struct Orphans<'a, R> {
    subject: &'a Subject<'a, R>,
    known: &'a mut Known,
}

/// Follows the chain of orphans, and reads the orphan file.
pub(super) async fn check<R: ImageReader>(
    subject: &Subject<'_, R>,
    known: &mut Known,
) -> Result<(), R::Error> {
    Orphans { subject, known }.all().await
}

impl<R: ImageReader> Orphans<'_, R> {
    async fn all(&mut self) -> Result<(), R::Error> {
        let mut chain = OrphanChain::new(&self.subject.superblock);
        loop {
            let number = match chain.number() {
                Ok(Some(number)) => number,
                Ok(None) => break,
                Err(error) => {
                    self.known.findings.format(&error);
                    break;
                }
            };
            let inode = self.subject.read_inode(number).await?;
            let Some(inode) = inode.filter(|inode| inode.file_type().is_some()) else {
                let what = "it is an orphan, and no file";
                self.known.findings.damaged(Place::Inode(number), Structure::Inode, what);
                break;
            };
            self.known.orphans.insert(number);
            chain.follow(&inode);
        }
        if self.subject.superblock.features().has(Feature::ORPHAN_FILE) {
            self.orphan_file().await?;
        }
        Ok(())
    }

    async fn orphan_file(&mut self) -> Result<(), R::Error> {
        let number = self.subject.superblock.orphan_file_inode.get();
        let place = Place::Inode(number);
        let inode = self.subject.read_inode(number).await?;
        let Some(inode) = inode.filter(|inode| inode.file_type() == Some(FileType::Regular)) else {
            self.known.findings.damaged(place, Structure::OrphanFile, "its inode is no regular file");
            return Ok(());
        };
        let walk = self.subject.extents(number, &inode);
        let blocks = match places(self.subject.image, walk, number).await? {
            Ok(blocks) => blocks,
            // Its inode's turn is still to come.
            Err(_) => return Ok(()),
        };
        let kind = Kind::OrphanFile { inode: number, generation: inode.generation.get() };
        for block in blocks {
            let bytes = self.subject.image.block(block).await?;
            let verified = self.subject.layout.checksums().verify(kind, block, &bytes[..]);
            match verified.and_then(|()| orphans_in(block, &bytes[..], &self.subject.superblock)) {
                Ok(listed) => self.listed_orphans(block, &listed).await?,
                Err(error) => self.known.findings.format(&error),
            }
        }
        Ok(())
    }

    async fn listed_orphans(&mut self, block: u64, listed: &[u32]) -> Result<(), R::Error> {
        let place = Place::Block(block);
        if !listed.is_empty() && !self.subject.superblock.features().has(Feature::ORPHAN_PRESENT) {
            let what = "it has entries, and the superblock says that it is empty";
            self.known.findings.damaged(place, Structure::OrphanFile, what);
        }
        for orphan in listed {
            if self.subject.read_inode(*orphan).await?.is_none() || !self.known.orphans.insert(*orphan) {
                self.known.findings.damaged(place, Structure::OrphanFile, "an entry");
            }
        }
        Ok(())
    }
}
