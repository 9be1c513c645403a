//! Making a volume. The superblocks come last, so what is on the disk before is no volume: a process that makes a volume and is ended
//! meanwhile leaves parts of its first checkpoints and nothing else, and the same volume can be made there anew.

use weir_runtime::{Buffer, Handle};
use weir_storage::{BLOCK_BYTES, Extent, Lba, Part, Storage, flush, write};

use crate::base::Base;
use crate::check::{read_superblock, require_closed};
use crate::checkpoint::Checkpoint;
use crate::claim::clear;
use crate::error::VolumeError;
use crate::geometry::{CHECKPOINT_SLOTS, Format, Geometry};
use crate::layout::SUPERBLOCK_COPIES;
use crate::transfer::{all_transferred, read_extent, write_buffer};
use crate::volume::Volume;

/// Blocks read at a time when a whole storage is looked through.
const SCAN_BLOCKS: u32 = 256;

impl Volume {
    /// Makes an empty volume on `disk`.
    ///
    /// # Errors
    /// [`VolumeError::NotEmpty`] or [`VolumeError::VolumeExists`] if the disk holds data and `format` does not
    /// say to overwrite it; [`VolumeError::OpenElsewhere`] if it holds a volume that is open;
    /// [`VolumeError::Format`] if the sizes do not fit.
    pub async fn create(handle: &Handle, disk: &dyn Storage, format: Format) -> Result<(), VolumeError> {
        let geometry = plan(disk, format, handle.entropy())?;
        create_planned(handle, disk, format, &geometry).await
    }

    /// Makes a volume on `disk` that begins with the state of a base and does not hold it (V12), and goes on as the volume with
    /// that identity. It has no slots for snapshots.
    ///
    /// # Errors
    /// As [`create`](Self::create); but what an earlier call for that identity has left, which was ended before the volume was
    /// one, is no data.
    pub async fn create_on_base(
        handle: &Handle,
        disk: &dyn Storage,
        format: Format,
        identity: u64,
        base: Base,
    ) -> Result<(), VolumeError> {
        let geometry = Geometry { base: Some(base), ..plan_on_base(disk, format, identity)? };
        create_planned(handle, disk, format, &geometry).await
    }

    /// That `disk` holds nothing, or only what [`create_on_base`](Self::create_on_base) leaves for that format and identity if it is
    /// ended before the volume is one.
    ///
    /// # Errors
    /// Those of `create_on_base`.
    pub async fn require_unused(
        disk: &dyn Storage,
        format: Format,
        identity: u64,
    ) -> Result<(), VolumeError> {
        require_unused(disk, &plan_on_base(disk, format, identity)?).await
    }
}

fn plan(disk: &dyn Storage, format: Format, identity: u64) -> Result<Geometry, VolumeError> {
    let geometry = Geometry::plan(&format, disk.blocks(), identity, disk.opener().is_some())?;
    geometry.fits_commands_of(disk)?;
    Ok(geometry)
}

fn plan_on_base(disk: &dyn Storage, format: Format, identity: u64) -> Result<Geometry, VolumeError> {
    plan(disk, Format { slots: 0, ..format }, identity)
}

async fn create_planned(
    handle: &Handle,
    disk: &dyn Storage,
    format: Format,
    geometry: &Geometry,
) -> Result<(), VolumeError> {
    if format.overwrite {
        require_closed(handle, disk).await?;
    } else {
        require_unused(disk, geometry).await?;
    }
    // The old superblocks go first, the new ones come last: whatever is in between is no volume.
    write_superblocks(disk, &vec![0; BLOCK_BYTES]).await?;
    clear(disk, geometry).await?;
    for slot in 0..CHECKPOINT_SLOTS {
        let mut buffer = Buffer::new(geometry.checkpoint_blocks as usize * BLOCK_BYTES);
        Checkpoint::first(geometry, slot).encode(geometry, &mut buffer);
        let bytes = buffer.len();
        all_transferred(write_buffer(disk, geometry.checkpoint_slot(slot), buffer, bytes).await?).await?;
    }
    flush(disk).await?;
    write_superblocks(disk, &geometry.to_superblock()).await
}

async fn write_superblocks(disk: &dyn Storage, block: &[u8]) -> Result<(), VolumeError> {
    for copy in 0..SUPERBLOCK_COPIES {
        write(disk, Part::bytes(Lba(copy), block)).await?;
    }
    Ok(flush(disk).await?)
}

/// Refuses a disk that holds anything but zeros, and parts of the first checkpoints of the volume that is to be made.
async fn require_unused(disk: &dyn Storage, geometry: &Geometry) -> Result<(), VolumeError> {
    match read_superblock(disk).await {
        Err(VolumeError::Foreign) => {}
        Err(VolumeError::Disk(error)) => return Err(error.into()),
        Ok(_) | Err(_) => return Err(VolumeError::VolumeExists),
    }
    let mut from = Lba(0);
    while let Some(at) = find_data(disk, from).await? {
        let place = |slot| Extent::new(geometry.checkpoint_slot(slot), geometry.checkpoint_blocks);
        let slot = (0..CHECKPOINT_SLOTS).find(|slot| place(*slot).overlaps(Extent::new(at, 1)));
        let Some(slot) = slot else { return Err(VolumeError::NotEmpty(at)) };
        let found = read_extent(disk, place(slot)).await?;
        if !Checkpoint::is_part_of_first(&found, geometry, slot) {
            return Err(VolumeError::NotEmpty(at));
        }
        from = place(slot).end();
    }
    Ok(())
}

/// The first block from here on that is not all zeros.
async fn find_data(disk: &dyn Storage, mut from: Lba) -> Result<Option<Lba>, VolumeError> {
    while let Some(at) = disk.next_data(from) {
        let left = u32::try_from(disk.blocks() - at.0).unwrap_or(u32::MAX);
        let extent = Extent::new(at, left.min(SCAN_BLOCKS));
        let bytes = read_extent(disk, extent).await?;
        if let Some(used) = bytes.chunks(BLOCK_BYTES).position(|block| block.iter().any(|byte| *byte != 0)) {
            return Ok(Some(at.offset(used as u64)));
        }
        from = extent.end();
    }
    Ok(None)
}
