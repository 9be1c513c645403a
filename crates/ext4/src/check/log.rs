//! The journal: its superblock, and what its recovery would write.

use weir_format::{BLOCK_BYTES, FileType, FormatError, ImageReader, Place, Structure};

use super::Problem;
use super::extents::{ExtentWalk, places};
use super::finding::Findings;
use super::overlay::Overlay;
use super::subject::Subject;
use crate::descriptor::Descriptor;
use crate::features::Feature;
use crate::journal::{JournalSuperblock, LogReader, replay};
use crate::layout::Layout;
use crate::superblock::Superblock;
use crate::{inode::Inode, inode::JOURNAL_INODE};

/// The log of an image, whose blocks are at these places.
struct Log<'a, R> {
    image: &'a Overlay<'a, R>,
    places: &'a [u64],
}

impl<R: ImageReader> LogReader for Log<'_, R> {
    type Error = R::Error;

    async fn read(&self, block: u32, bytes: &mut [u8; BLOCK_BYTES]) -> Result<(), R::Error> {
        self.image.read(self.places[block as usize], &mut bytes[..]).await
    }

    async fn read_home(&self, home: u64, bytes: &mut [u8; BLOCK_BYTES]) -> Result<(), R::Error> {
        self.image.read(home, &mut bytes[..]).await
    }
}

/// Lays what the journal's recovery would write over the image, if the superblock asks for recovery. Returns
/// how many transactions that were. Damage of the journal is found here, and then nothing is laid.
pub(super) async fn recover<R: ImageReader>(
    overlay: &mut Overlay<'_, R>,
    superblock: &Superblock,
    findings: &mut Findings,
) -> Result<Option<u32>, R::Error> {
    if !superblock.features().has(Feature::NEEDS_RECOVERY) {
        return Ok(None);
    }
    let (places, journal) = match open(overlay, superblock).await? {
        Ok(opened) => opened,
        // What a recovery would write is not known, so nothing can be said of the image.
        Err(error) if error.is_unsupported() => return Err(error.into()),
        Err(error) => {
            findings.format_at(Place::Inode(JOURNAL_INODE), &error);
            return Ok(None);
        }
    };
    let log = Log { image: overlay, places: &places };
    // It may have grown: then the log has blocks behind the end that the superblock says on the image.
    let found = match replay(&journal, overlay.blocks(), &Guarded { log: &log }).await {
        Ok(found) => found,
        Err(Stopped::Storage(error)) => return Err(error),
        Err(Stopped::Format(error)) => {
            findings.format_at(Place::Inode(JOURNAL_INODE), &error);
            return Ok(None);
        }
    };
    overlay.lay(places, found.writes);
    Ok(Some(found.transactions))
}

/// Tells damage of the log from errors of the storage.
struct Guarded<'a, L> {
    log: &'a L,
}

enum Stopped<E> {
    Storage(E),
    Format(FormatError),
}

impl<E> From<FormatError> for Stopped<E> {
    fn from(error: FormatError) -> Self {
        Self::Format(error)
    }
}

impl<L: LogReader> LogReader for Guarded<'_, L> {
    type Error = Stopped<L::Error>;

    async fn read(&self, block: u32, bytes: &mut [u8; BLOCK_BYTES]) -> Result<(), Self::Error> {
        self.log.read(block, bytes).await.map_err(Stopped::Storage)
    }

    async fn read_home(&self, home: u64, bytes: &mut [u8; BLOCK_BYTES]) -> Result<(), Self::Error> {
        self.log.read_home(home, bytes).await.map_err(Stopped::Storage)
    }
}

/// The places of the journal's blocks, and its superblock.
async fn open<R: ImageReader>(
    image: &Overlay<'_, R>,
    superblock: &Superblock,
) -> Result<Result<(Vec<u64>, JournalSuperblock), FormatError>, R::Error> {
    let layout = match Layout::new(superblock) {
        Ok(layout) => layout,
        Err(error) => return Ok(Err(error)),
    };
    let inode = match inode(image, &layout).await? {
        Ok(inode) => inode,
        Err(error) => return Ok(Err(error)),
    };
    let corrupt = |what| FormatError::corrupt(Structure::Inode, Place::Inode(JOURNAL_INODE), what);
    if inode.file_type() != Some(FileType::Regular) || inode.check_supported(JOURNAL_INODE).is_err() {
        return Ok(Err(corrupt("the journal is no regular file with extents")));
    }
    let walk = ExtentWalk::new(JOURNAL_INODE, &inode, layout.checksums(), layout.blocks());
    let places = match places(image, walk, JOURNAL_INODE).await? {
        Ok(places) if places.is_empty() => return Ok(Err(corrupt("the journal has no blocks"))),
        Ok(places) => places,
        Err(error) => return Ok(Err(error)),
    };
    if inode.size() != places.len() as u64 * BLOCK_BYTES as u64 {
        return Ok(Err(corrupt("the journal's size is not that of its blocks")));
    }
    // One block in many places would be read as often, and what it lists be kept as often.
    let mut distinct = places.clone();
    distinct.sort_unstable();
    distinct.dedup();
    if distinct.len() < places.len() {
        return Ok(Err(corrupt("a block is in two places of the journal")));
    }
    let blocks = u32::try_from(places.len()).unwrap_or(u32::MAX);
    let first = image.block(places[0]).await?;
    Ok(JournalSuperblock::decode(&first[..], blocks).map(|journal| (places, journal)))
}

async fn inode<R: ImageReader>(
    image: &Overlay<'_, R>,
    layout: &Layout,
) -> Result<Result<Inode, FormatError>, R::Error> {
    let place = layout.inode_group(JOURNAL_INODE);
    let place = place.and_then(|(group, index)| Ok((group, index, layout.descriptor_place(group)?)));
    let (group, index, (block, range)) = match place {
        Ok(place) => place,
        Err(error) => return Ok(Err(error)),
    };
    let descriptor = match Descriptor::read(&image.block(block).await?[range], group, layout) {
        Ok(descriptor) => descriptor,
        Err(error) => return Ok(Err(error)),
    };
    let (block, range) = layout.inode_place(&descriptor, index);
    Ok(Inode::read(&image.block(block).await?[range], JOURNAL_INODE, &layout.checksums()))
}

/// The journal's superblock, once its inode is known to be whole.
pub(super) async fn check<R: ImageReader>(
    subject: &Subject<'_, R>,
    findings: &mut Findings,
) -> Result<(), R::Error> {
    let place = Place::Inode(JOURNAL_INODE);
    if subject.superblock.journal_inode.get() != JOURNAL_INODE {
        let what = "number of the journal's inode";
        findings.damaged(Place::Block(0), Structure::Superblock, what);
    }
    if subject.superblock.journal_device.get() != 0 || subject.superblock.journal_uuid != [0; 16] {
        let what = "a journal elsewhere";
        findings.damaged(Place::Block(0), Structure::Superblock, what);
    }
    match open(subject.image, &subject.superblock).await? {
        // What keeps it from being recovered was found before.
        Err(_) if subject.superblock.features().has(Feature::NEEDS_RECOVERY) => {}
        Err(error) => findings.format_at(place, &error),
        Ok((_, journal)) => {
            if journal.start().is_some() && !subject.superblock.features().has(Feature::NEEDS_RECOVERY) {
                let what = "it has transactions, and the superblock does not ask for recovery";
                findings.damaged(place, Structure::JournalSuperblock, what);
            }
            if journal.error() != 0 {
                findings.push(place, Problem::ErrorsNoted);
            }
        }
    }
    Ok(())
}
