//! The superblock: read, or made up for by a copy of it, changed in memory and in the log, and written.

use std::cell::{Ref, RefCell};
use std::mem::offset_of;
use std::rc::Rc;

use tracing::warn;
use weir_block::Durable;
use weir_ext4::journal::LogFeatures;
use weir_ext4::{Feature, Growth, Kind, SUPERBLOCK_BYTES, SUPERBLOCK_COPIES, SUPERBLOCK_OFFSET, Superblock};
use weir_format::FormatError;
use weir_journal::{BufferHead, Disk, TxHandle};
use weir_runtime::{Buffer as Memory, Handle as Clock};
use weir_storage::{BLOCK_BYTES, Extent, Lba, Part, Storage, read, write};
use weir_vfs::FsError;
use zerocopy::IntoBytes;

use crate::inodes::Metadata;
use crate::mutants::FsMutant;
use crate::options::MountOptions;

/// Journaled blocks that each change of the superblock changes.
pub(crate) const SUPERBLOCK_CREDITS: u32 = 1;

/// The superblock of a mounted filesystem.
pub(crate) struct MountedSuperblock {
    metadata: Rc<Metadata>,
    /// As it was read, with what has changed since. Its totals are set at `sync` and unmount only.
    superblock: RefCell<Superblock>,
}

impl MountedSuperblock {
    pub(crate) fn new(metadata: Rc<Metadata>, superblock: Superblock) -> Rc<MountedSuperblock> {
        Rc::new(MountedSuperblock { metadata, superblock: RefCell::new(superblock) })
    }

    /// What it says now.
    pub(crate) fn borrow(&self) -> Ref<'_, Superblock> {
        self.superblock.borrow()
    }

    /// Names the last element of the chain of orphans. Costs [`SUPERBLOCK_CREDITS`].
    pub(crate) async fn set_last_orphan(&self, handle: &TxHandle, number: u32) -> Result<(), FsError> {
        let at = offset_of!(Superblock, last_orphan);
        let block = self.block().await?;
        modify(handle, &block, at, &number.to_le_bytes());
        self.superblock.borrow_mut().last_orphan = number.into();
        Ok(())
    }

    /// Says that the orphan file is empty. Costs [`SUPERBLOCK_CREDITS`].
    pub(crate) async fn clear_orphan_file(&self, handle: &TxHandle) -> Result<(), FsError> {
        let block = self.block().await?;
        let features = self.borrow().features().with(Feature::ORPHAN_PRESENT, false);
        let at = offset_of!(Superblock, read_only_compatible);
        modify(handle, &block, at, &features.read_only_compatible.to_le_bytes());
        self.superblock.borrow_mut().set_features(features);
        Ok(())
    }

    /// Says that the filesystem has grown: how many blocks are reserved now. Costs [`SUPERBLOCK_CREDITS`].
    pub(crate) async fn grow(&self, handle: &TxHandle, growth: &Growth) -> Result<u64, FsError> {
        let block = self.block().await?;
        let mut superblock = *self.borrow();
        growth.update_superblock(&mut superblock);
        modify(handle, &block, 0, superblock.as_bytes());
        *self.superblock.borrow_mut() = superblock;
        Ok(superblock.reserved_blocks())
    }

    /// Brings the superblock's totals up to date with the groups'. They are kept lazily, as ext4 does: no mount
    /// needs them after a crash. Costs [`SUPERBLOCK_CREDITS`].
    pub(crate) async fn log_totals(&self, handle: &TxHandle) -> Result<(), FsError> {
        let block = self.block().await?;
        let mut superblock = *self.borrow();
        self.total(&mut superblock);
        if superblock != *self.borrow() {
            modify(handle, &block, 0, superblock.as_bytes());
            *self.superblock.borrow_mut() = superblock;
        }
        Ok(())
    }

    /// Marks the filesystem as clean, past the journal, which is empty, and durably.
    pub(crate) async fn close(
        &self,
        disk: &Disk,
        clock: &Clock,
        options: &MountOptions,
    ) -> Result<(), FsError> {
        let mut superblock = *self.borrow();
        self.total(&mut superblock);
        superblock.write_time = seconds(clock).into();
        set_needs_recovery(&mut superblock, false, LogFeatures::default(), options);
        write_superblock(disk, &mut superblock, options).await?;
        *self.superblock.borrow_mut() = superblock;
        Ok(())
    }

    fn total(&self, superblock: &mut Superblock) {
        superblock.set_free_blocks(self.metadata.space.free_blocks());
        superblock.free_inodes = self.metadata.space.free_inodes().into();
    }

    /// The block that it is in, as the journal has it.
    async fn block(&self) -> Result<Rc<BufferHead>, FsError> {
        Ok(self.metadata.buffers.get(0, Kind::Superblock).await?)
    }
}

/// Changes bytes of the superblock, from `at` on, in its block.
fn modify(handle: &TxHandle, block: &Rc<BufferHead>, at: usize, bytes: &[u8]) {
    let start = SUPERBLOCK_OFFSET + at;
    handle.modify(block, start..start + bytes.len(), |part| part.copy_from_slice(bytes));
}

/// The superblock, as it is on the disk.
pub(crate) async fn read_superblock(disk: &Disk) -> Result<Superblock, FsError> {
    let bytes = disk.read(0, 1).await?;
    Ok(Superblock::read(&bytes[SUPERBLOCK_OFFSET..])?)
}

/// The superblock, or what a copy of it makes up for; whether it is a copy's. A reader may look at any
/// filesystem that was there. A writer has to know that it is still there, and nothing else in its place: the
/// damaged superblock names it.
pub(crate) async fn find_superblock(
    disk: &Disk,
    device_blocks: u64,
    options: &MountOptions,
) -> Result<(Superblock, bool), FsError> {
    let block = disk.read_on_way_to_log(0).await?;
    let primary = &block[SUPERBLOCK_OFFSET..];
    let error = match Superblock::read(primary) {
        Ok(superblock) => return Ok((superblock, false)),
        Err(error) => error,
    };
    // Nothing is left that says which filesystem it was.
    let is_foreign = matches!(error, FormatError::Foreign { .. });
    let is_damage = match error {
        FormatError::Checksum { .. } | FormatError::Corrupt { .. } => true,
        FormatError::Foreign { .. } => options.read_only,
        _ => false,
    };
    if !is_damage || options.rules.drops(FsMutant::TrustsNoCopy) {
        return Err(error.into());
    }
    for place in SUPERBLOCK_COPIES.into_iter().filter(|place| *place < device_blocks) {
        let bytes = disk.read(place, 1).await?;
        let Ok(copy) = Superblock::read(&bytes[..SUPERBLOCK_BYTES]) else { continue };
        let is_there = copy.same_filesystem(primary).is_some() || options.read_only && is_foreign;
        if let Some(superblock) = copy.instead_of(primary, place).filter(|_| is_there) {
            warn!(
                name: "superblock_damaged",
                block = place, "the superblock is damaged: a copy takes its place"
            );
            return Ok((superblock, true));
        }
    }
    Err(error.into())
}

/// Puts a copy of the superblock in the place of one that cannot be read: for a storage whose changes are kept in memory.
/// Returns whether it was so, and a copy was found.
pub async fn copy_superblock(storage: &dyn Storage) -> bool {
    let read_block = async |at| read(storage, Extent::new(Lba(at), 1)).await.ok();
    if read_block(0).await.is_some() {
        return false;
    }
    for at in SUPERBLOCK_COPIES.into_iter().filter(|at| *at < storage.blocks()) {
        let copy = read_block(at).await.and_then(|block| Superblock::read(&block[..SUPERBLOCK_BYTES]).ok());
        let Some(superblock) = copy.and_then(|copy| copy.instead_of(&[], at)) else { continue };
        let mut block = [0; BLOCK_BYTES];
        block[SUPERBLOCK_OFFSET..][..SUPERBLOCK_BYTES].copy_from_slice(superblock.as_bytes());
        warn!(
            name: "superblock_unreadable",
            block = at, "the superblock cannot be read: a copy takes its place"
        );
        return write(storage, Part::bytes(Lba(0), &block)).await.is_ok();
    }
    false
}

/// Writes the superblock past the journal, into what block 0 holds besides, and makes it durable. Only the sector of
/// its first 512 bytes changes, so that a torn write leaves the old one or the new one.
pub(crate) async fn write_superblock(
    disk: &Disk,
    superblock: &mut Superblock,
    options: &MountOptions,
) -> Result<(), FsError> {
    match options.rules.drops(FsMutant::TearsSuperblock) {
        true => superblock.update_checksum(),
        false => superblock.update_checksum_in_place(),
    }
    let mut block: Memory = disk.read(0, 1).await?;
    let bytes = superblock.as_bytes();
    block[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + bytes.len()].copy_from_slice(bytes);
    disk.write_in_place(0, &Rc::new(block), Durable::Nothing).await?;
    Ok(disk.flush().await?)
}

/// A superblock as a copy has it: what the log needs is in the primary one.
pub(crate) fn without_recovery(superblock: &Superblock) -> Superblock {
    let mut copy = *superblock;
    set_needs_recovery(&mut copy, false, LogFeatures::default(), &MountOptions::default());
    copy.last_orphan = 0.into();
    copy
}

/// Says whether the log has to be looked at before anything else, and whether only we can (J5).
pub(crate) fn set_needs_recovery(
    superblock: &mut Superblock,
    needed: bool,
    log: LogFeatures,
    options: &MountOptions,
) {
    let before = superblock.features();
    let mut features = before.with(Feature::NEEDS_RECOVERY, needed);
    for (feature, has) in logs_of_ours(log) {
        let stays = options.rules.drops(FsMutant::FeaturesStay) && before.has(feature);
        features = features.with(feature, has || stays);
    }
    superblock.set_features(features);
}

/// Says that files may be larger than 2 GiB and have attributes. An image that lacks the two features may get such a file
/// at any time from now on; the kernel's ext4 adds them with the first one.
pub(crate) fn allow_all_files(superblock: &mut Superblock) {
    let features = superblock.features().with(Feature::LARGE_FILE, true).with(Feature::EXT_ATTR, true);
    superblock.set_features(features);
}

/// Whether its log may hold what only we can replay.
pub(crate) fn has_log_of_ours(superblock: &Superblock) -> bool {
    let features = superblock.features();
    logs_of_ours(LogFeatures::default()).iter().any(|(ours, _)| features.has(*ours))
}

/// The features of the filesystem that keep other programs from a log, and whether a log with these asks for them.
fn logs_of_ours(log: LogFeatures) -> [(Feature, bool); 3] {
    [
        (Feature::JOURNAL_COALITION, log.coalition),
        (Feature::JOURNAL_ASYNC_COMMIT, log.async_commit),
        (Feature::JOURNAL_DATA_CHECKSUMS, log.data_checksums),
    ]
}

/// Seconds since 1970, as a superblock keeps them.
pub(crate) fn seconds(clock: &Clock) -> u32 {
    u32::try_from(clock.wall_clock_millis() / 1000).unwrap_or(u32::MAX)
}
