//! Recovery of the journal: what a crash left in the log goes home. Nothing of it depends on what is in memory, and
//! the log stays as it is until everything is home and durable, so recovery that crashes is done again.

use std::ops::Range;
use std::rc::Rc;

use tracing::{info, warn};
use weir_block::Class;
use weir_ext4::journal::{JournalSuperblock, LogReader, replay};
use weir_ext4::{
    BLOCK_BYTES, Blocks, Checksums, Descriptor, ExtentTree, FormatError, Inode, Kind, Layout, Place,
    Structure, Superblock,
};
use weir_runtime::Buffer as Memory;

use crate::disk::Disk;
use crate::error::FsError;
use crate::journal::JournalExtent;
use crate::mutants::FsMutant;
use crate::options::MountOptions;

/// Home writes submitted before their transfer is waited for.
const WRITES_AT_ONCE: usize = 256;

/// The journal as it lies on disk.
pub(crate) struct FoundJournal {
    pub(crate) superblock: JournalSuperblock,
    pub(crate) area: Vec<JournalExtent>,
}

/// Metadata blocks as they are on disk, for what has to be read before the log is replayed.
struct OnDisk<'a> {
    disk: &'a Disk,
    checksums: Checksums,
}

impl Blocks for OnDisk<'_> {
    type Error = FsError;

    async fn read<T>(
        &self,
        block: u64,
        kind: Kind,
        look: impl FnOnce(&[u8]) -> Result<T, FormatError>,
    ) -> Result<T, FsError> {
        let bytes = self.disk.read(block, 1).await?;
        self.checksums.verify(kind, block, &bytes)?;
        Ok(look(&bytes)?)
    }

    async fn modify(
        &self,
        _: u64,
        _: Kind,
        _: Range<usize>,
        _: impl FnOnce(&mut [u8]),
    ) -> Result<(), FsError> {
        Err(FsError::Invalid("nothing is changed before recovery"))
    }

    async fn allocate(&self, _: Kind, _: u64) -> Result<u64, FsError> {
        Err(FsError::Invalid("nothing is allocated before recovery"))
    }

    async fn free(&self, _: u64, _: Kind) -> Result<(), FsError> {
        Err(FsError::Invalid("nothing is freed before recovery"))
    }
}

/// Finds the journal: its inode, its blocks, and its superblock. None of them ever moves, so what is on disk is
/// right, whatever the log holds.
pub(crate) async fn find_journal(
    disk: &Disk,
    layout: &Layout,
    superblock: &Superblock,
) -> Result<FoundJournal, FsError> {
    let number = superblock.journal_inode.get();
    if number == 0 {
        return Err(FormatError::Feature { name: "a journal on another device" }.into());
    }
    let corrupt = |what| FormatError::corrupt(Structure::Inode, Place::Inode(number), what);
    let (group, index) = layout.inode_group(number)?;
    let (block, range) = layout.descriptor_place(group)?;
    let descriptor = Descriptor::read(&disk.read(block, 1).await?[range], group, layout)?;
    let (block, range) = layout.inode_place(&descriptor, index);
    let mut inode = Inode::read(&disk.read(block, 1).await?[range], number, &layout.checksums())?;
    inode.check_supported(number)?;
    let blocks = u32::try_from(inode.size() / BLOCK_BYTES as u64).map_err(|_| corrupt("size"))?;
    if u64::from(blocks) > layout.blocks() {
        return Err(corrupt("a journal larger than the filesystem").into());
    }
    let on_disk = OnDisk { disk, checksums: layout.checksums() };
    let generation = inode.generation.get();
    let tree = ExtentTree::new(&on_disk, &mut inode.block_area, number, generation, layout.blocks());
    let mut area = Vec::new();
    let mut at = 0;
    while at < blocks {
        let extent = tree.next(at).await?.filter(|extent| extent.logical == at && extent.written);
        let extent = extent.ok_or_else(|| corrupt("the journal has a hole"))?;
        area.push(JournalExtent {
            first: at,
            start: extent.physical,
            blocks: extent.length.min(blocks - at),
        });
        at = extent.end();
    }
    let Some(first) = area.first() else { return Err(corrupt("an empty journal").into()) };
    // One block in many places of the log would be read as often, and what it lists be kept as often.
    let mut places: Vec<Range<u64>> =
        area.iter().map(|extent| extent.start..extent.start + u64::from(extent.blocks)).collect();
    places.sort_by_key(|place| place.start);
    if places.windows(2).any(|pair| pair[0].end > pair[1].start) {
        return Err(corrupt("a block is in two places of the journal").into());
    }
    let superblock = JournalSuperblock::decode(&disk.read(first.start, 1).await?, blocks)?;
    Ok(FoundJournal { superblock, area })
}

impl FoundJournal {
    /// Where a block of the journal is.
    fn home(&self, block: u32) -> Result<u64, FormatError> {
        let holds = |extent: &&JournalExtent| (extent.first..extent.first + extent.blocks).contains(&block);
        let extent = self.area.iter().find(holds);
        let extent = extent.ok_or(FormatError::Invalid { what: "a block beyond the journal" })?;
        Ok(extent.start + u64::from(block - extent.first))
    }

    /// Brings home what is committed in the log, makes that durable, and calls the log empty after that.
    pub(crate) async fn replay(
        &mut self,
        disk: &Disk,
        filesystem_blocks: u64,
        options: &MountOptions,
    ) -> Result<(), FsError> {
        let log = OnDiskLog { disk, journal: self };
        let found = replay(&self.superblock, filesystem_blocks, &log).await?;
        let (transactions, blocks) = (found.transactions, found.writes.len());
        if transactions > 0 {
            warn!(transactions, blocks, "the filesystem was not unmounted: its journal is replayed");
        } else {
            info!("the filesystem was not unmounted, and its journal is empty");
        }
        let most = if options.drops(FsMutant::ReplaysInPart) { 1 } else { usize::MAX };
        for writes in found.writes.chunks(WRITES_AT_ONCE).take(most) {
            let mut tickets = Vec::new();
            for write in writes {
                let mut block = [0; BLOCK_BYTES];
                log.read(write.copy, &mut block).await?;
                write.restore(&mut block);
                let block = [memory(&block)];
                disk.write(write.home, &block, Class::Orderless, Class::Orderless, &mut tickets).await?;
            }
            disk.transferred(&tickets).await?;
        }
        // J5 (e): the log may be called empty only when all that was in it is durable at home.
        if !options.drops(FsMutant::EmptyWithoutFlush) {
            disk.flush().await?;
        }
        self.superblock.set_tail(None, found.next);
        let mut block = [0; BLOCK_BYTES];
        self.superblock.encode(&mut block);
        disk.write_commit(self.home(0)?, &memory(&block), false).await?;
        disk.flush().await
    }
}

struct OnDiskLog<'a> {
    disk: &'a Disk,
    journal: &'a FoundJournal,
}

impl LogReader for OnDiskLog<'_> {
    type Error = FsError;

    async fn read(&self, block: u32, bytes: &mut [u8; BLOCK_BYTES]) -> Result<(), FsError> {
        bytes.copy_from_slice(&self.disk.read(self.journal.home(block)?, 1).await?);
        Ok(())
    }
}

fn memory(bytes: &[u8]) -> Rc<Memory> {
    Rc::new(Memory::copy_of(bytes))
}
