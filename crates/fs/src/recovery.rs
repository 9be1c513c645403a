//! Finding the journal, before anything of the filesystem can be trusted: what a crash left in it is replayed first.

use std::ops::Range;

use weir_ext4::journal::JournalSuperblock;
use weir_ext4::{Blocks, Checksums, Descriptor, ExtentTree, Inode, Kind, Layout, Superblock};
use weir_format::{BLOCK_BYTES, FormatError, Place, Structure};
use weir_journal::{Disk, FoundJournal, JournalExtent};

use weir_vfs::FsError;

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
        let bytes = self.disk.read_on_way_to_log(block).await?;
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
    let descriptor = Descriptor::read(&disk.read_on_way_to_log(block).await?[range], group, layout)?;
    let (block, range) = layout.inode_place(&descriptor, index);
    let mut inode = Inode::read(&disk.read_on_way_to_log(block).await?[range], number, &layout.checksums())?;
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
