//! Orphans: inodes that were deleted or cut short while a crash came. The next mount ends what was begun.

use weir_format::{FileType, ImageReader, Place, Structure};

use super::extents::places;
use super::known::Known;
use super::subject::Subject;
use crate::blocks::Kind;
use crate::features::Feature;
use crate::orphan::{OrphanChain, orphans_in};

/// Follows the chain of orphans, and reads the orphan file.
pub(super) async fn check<R: ImageReader>(
    subject: &Subject<'_, R>,
    known: &mut Known,
) -> Result<(), R::Error> {
    let mut chain = OrphanChain::new(&subject.superblock);
    loop {
        let number = match chain.number() {
            Ok(Some(number)) => number,
            Ok(None) => break,
            Err(error) => {
                known.findings.format(&error);
                break;
            }
        };
        let inode = subject.read_inode(number).await?;
        let Some(inode) = inode.filter(|inode| inode.file_type().is_some()) else {
            let what = "it is an orphan, and no file";
            known.findings.damaged(Place::Inode(number), Structure::Inode, what);
            break;
        };
        known.orphans.insert(number);
        chain.follow(&inode);
    }
    if subject.superblock.features().has(Feature::ORPHAN_FILE) {
        orphan_file(subject, known).await?;
    }
    Ok(())
}

async fn orphan_file<R: ImageReader>(subject: &Subject<'_, R>, known: &mut Known) -> Result<(), R::Error> {
    let number = subject.superblock.orphan_file_inode.get();
    let place = Place::Inode(number);
    let inode = subject.read_inode(number).await?;
    let Some(inode) = inode.filter(|inode| inode.file_type() == Some(FileType::Regular)) else {
        known.findings.damaged(place, Structure::OrphanFile, "its inode is no regular file");
        return Ok(());
    };
    let walk = subject.extents(number, &inode);
    let blocks = match places(subject.image, walk, number).await? {
        Ok(blocks) => blocks,
        // Its inode's turn is still to come.
        Err(_) => return Ok(()),
    };
    let kind = Kind::OrphanFile { inode: number, generation: inode.generation.get() };
    for block in blocks {
        let bytes = subject.image.block(block).await?;
        let verified = subject.layout.checksums().verify(kind, block, &bytes[..]);
        match verified.and_then(|()| orphans_in(block, &bytes[..], &subject.superblock)) {
            Ok(listed) => listed_orphans(subject, known, block, &listed).await?,
            Err(error) => known.findings.format(&error),
        }
    }
    Ok(())
}

async fn listed_orphans<R: ImageReader>(
    subject: &Subject<'_, R>,
    known: &mut Known,
    block: u64,
    listed: &[u32],
) -> Result<(), R::Error> {
    let place = Place::Block(block);
    if !listed.is_empty() && !subject.superblock.features().has(Feature::ORPHAN_PRESENT) {
        let what = "it has entries, and the superblock says that it is empty";
        known.findings.damaged(place, Structure::OrphanFile, what);
    }
    for orphan in listed {
        if subject.read_inode(*orphan).await?.is_none() || !known.orphans.insert(*orphan) {
            known.findings.damaged(place, Structure::OrphanFile, "an entry");
        }
    }
    Ok(())
}
