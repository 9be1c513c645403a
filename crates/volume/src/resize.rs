//! Growing and shrinking a volume that no process has open, and what [`ResizableVolume`](crate::ResizableVolume) does in between.
//!
//! 1. The volume is opened and closed, so that its log is in its checkpoints, of which there are two of one moment (V9).
//! 2. Checkpoints, and map pages where the map moves, are written anew ([`placement`](crate::placement)).
//! 3. The second copy of the superblock is written and flushed, then the first one, which counts (V11).
//!
//! What step 2 writes lies where the volume has nothing live, or is a checkpoint as any other. So up to the last write, a crash
//! leaves the old volume.

use std::rc::Rc;

use weir_runtime::{Buffer, Handle};
use weir_storage::{BLOCK_BYTES, Extent, Storage, flush};

use crate::check::{read_superblock, replace_superblocks};
use crate::checkpoint::{Checkpoint, PageTable, whole_page};
use crate::claim::work_as_owner;
use crate::common::Common;
use crate::error::{Damage, ResizeError, VolumeError};
use crate::geometry::{CHECKPOINT_SLOTS, Geometry, MAP_AREAS};
use crate::map_page::PageSlot;
use crate::options::VolumeOptions;
use crate::placement::{NewSize, Occupied};
use crate::transfer::{all_transferred, read_extent, write_buffer, write_part};
use crate::volume::{Holding, Volume};

/// The size that a volume has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resized {
    /// Capacity shown to the user, in blocks.
    pub logical_blocks: u64,
    /// Blocks of the disk.
    pub physical_blocks: u64,
}

impl Resized {
    pub(crate) fn from_geometry(geometry: &Geometry) -> Resized {
        Resized { logical_blocks: geometry.logical_blocks, physical_blocks: geometry.physical_blocks }
    }
}

/// Makes a closed volume larger. The disk must have as many blocks already. A crash leaves the old size or the new one (V11).
///
/// # Errors
/// [`ResizeError`].
pub async fn grow(
    handle: &Handle,
    disk: Rc<dyn Storage>,
    size: NewSize,
    options: VolumeOptions,
) -> Result<Resized, ResizeError> {
    require_blocks(&*disk, size)?;
    resize(handle, disk, options, |geometry, _| geometry.grown_to(size)).await
}

/// Refuses a size that the disk does not have.
pub(crate) fn require_blocks(disk: &dyn Storage, size: NewSize) -> Result<(), ResizeError> {
    let (needed, found) = (size.physical_blocks, disk.blocks());
    if found < needed { Err(ResizeError::DiskTooSmall { needed, found }) } else { Ok(()) }
}

/// Makes a closed volume smaller. Where blocks are in use at the end of the disk, the volume keeps more of the disk than
/// asked for. A crash leaves the old size or the new one (V11).
///
/// # Errors
/// [`ResizeError`]; [`ResizeError::InUse`] if a block behind the new capacity is in use.
pub async fn shrink(
    handle: &Handle,
    disk: Rc<dyn Storage>,
    size: NewSize,
    options: VolumeOptions,
) -> Result<Resized, ResizeError> {
    resize(handle, disk, options, |geometry, occupied| geometry.shrunk_to(size, occupied)).await
}

/// The size that a volume would get if nothing but its size stood in the way.
///
/// # Errors
/// [`ResizeError`].
pub async fn plan_shrink(disk: &dyn Storage, size: NewSize) -> Result<Resized, ResizeError> {
    let new = read_superblock(disk).await?.shrunk_to(size, Occupied::default())?;
    Ok(Resized::from_geometry(&new))
}

/// Resizes a volume to what `plan` says, which is asked before anything is changed, and again when it is known what is live where.
async fn resize(
    handle: &Handle,
    disk: Rc<dyn Storage>,
    options: VolumeOptions,
    plan: impl Fn(&Geometry, Occupied) -> Result<Geometry, ResizeError>,
) -> Result<Resized, ResizeError> {
    let geometry = read_superblock(&*disk).await?;
    plan(&geometry, Occupied::default())?;
    let as_owner = options.clone();
    let work = async |disk: Rc<dyn Storage>| Ok(resize_owned(handle, disk, options, plan).await);
    work_as_owner(handle, disk, &geometry, &as_owner, work).await?
}

async fn resize_owned(
    handle: &Handle,
    disk: Rc<dyn Storage>,
    options: VolumeOptions,
    plan: impl Fn(&Geometry, Occupied) -> Result<Geometry, ResizeError>,
) -> Result<Resized, ResizeError> {
    let on = (disk, None);
    let volume = Volume::open_owned(handle, on, options, Holding::default(), handle.now()).await?;
    let prepared = prepare(&volume, &plan).await;
    volume.close().await?;
    prepared?;
    resize_closed(&volume, &plan).await
}

/// Writes what a volume whose log is closed is to have of another size.
pub(crate) async fn resize_closed(
    volume: &Volume,
    plan: &impl Fn(&Geometry, Occupied) -> Result<Geometry, ResizeError>,
) -> Result<Resized, ResizeError> {
    let Common { disk, geometry, options, .. } = &**volume.common();
    let new = plan(geometry, find_occupied(volume))?;
    let is_unchanged = new == *geometry;
    if is_unchanged {
        return Err(ResizeError::Unchanged);
    }
    write_layout(&**disk, geometry, &new).await?;
    replace_superblocks(&**disk, geometry, &new, options.rules).await?;
    Ok(Resized::from_geometry(&new))
}

/// Sees to it that nothing is in the open volume that the new layout has no place for.
pub(crate) async fn prepare(
    volume: &Volume,
    plan: &impl Fn(&Geometry, Occupied) -> Result<Geometry, ResizeError>,
) -> Result<(), ResizeError> {
    let (geometry, branches) = (&volume.common().geometry, volume.branches());
    let new = plan(geometry, Occupied::default())?;
    let slots_move = new.slots > 0 && new.slot_pages() != geometry.slot_pages();
    let is_smaller = new.logical_blocks < geometry.logical_blocks;
    if (slots_move || is_smaller) && !branches.table().branches.is_empty() {
        return Err(ResizeError::Snapshots);
    }
    if is_smaller && let Some(last) = branches.last_mapped(new.logical_blocks).await? {
        return Err(ResizeError::InUse { last, blocks: new.logical_blocks });
    }
    if slots_move {
        branches.empty_slots().await?;
    }
    Ok(())
}

fn find_occupied(volume: &Volume) -> Occupied {
    let segments = &volume.log().blocks.borrow().segments;
    let last = segments.live_segments().last();
    Occupied {
        segments: last.map_or(0, |last| last + 1),
        live: segments.live_segments().count() as u32,
        blocks: segments.live_total(),
    }
}

/// Writes the checkpoints of a closed volume, and its map if that moves, as the new layout has them.
async fn write_layout(disk: &dyn Storage, old: &Geometry, new: &Geometry) -> Result<(), VolumeError> {
    let mut checkpoints = Vec::new();
    for slot in 0..CHECKPOINT_SLOTS {
        let at = old.checkpoint_slot(slot);
        let bytes = read_extent(disk, Extent::new(at, old.checkpoint_blocks)).await?;
        let found = Checkpoint::parse(&bytes, old, slot)?;
        checkpoints.push(found.ok_or(VolumeError::Damaged { what: Damage::NoCheckpoint, at })?);
    }
    checkpoints.sort_unstable_by_key(|checkpoint| checkpoint.number);
    let moves = !new.has_map_of(old);
    if let (true, Some(newest)) = (moves, checkpoints.last()) {
        let tables = copy_map(disk, old, new, &newest.pages).await?;
        for ((slot, table), checkpoint) in (0..).zip(tables).zip(&mut checkpoints) {
            (checkpoint.slot, checkpoint.pages) = (slot, table);
        }
    }
    // Where the old ones are replaced, the older one first: until it is durable, the newest is there.
    for checkpoint in checkpoints {
        let mut buffer = Buffer::new(new.checkpoint_blocks as usize * BLOCK_BYTES);
        let at = new.checkpoint_slot(checkpoint.slot);
        adapt_checkpoint(checkpoint, new).encode(new, &mut buffer);
        let bytes = buffer.len();
        all_transferred(write_buffer(disk, at, buffer, bytes).await?).await?;
        if !moves {
            flush(disk).await?;
        }
    }
    Ok(())
}

/// The next checkpoint in the same slot, whose free-segment list names segments that the new layout has.
fn adapt_checkpoint(old: Checkpoint, new: &Geometry) -> Checkpoint {
    let first = old.free_list.first().copied();
    let mut free_list = old.free_list;
    free_list.retain(|segment| *segment < new.segments);
    free_list.truncate(new.free_list_limit());
    // The log goes on at the beginning of a segment, if the one that it was in is gone. Nothing live is in that.
    let log_offset = if free_list.first().copied() == first { old.log_offset } else { 0 };
    Checkpoint { number: old.number + CHECKPOINT_SLOTS, free_list, log_offset, ..old }
}

/// Copies the pages of the map that the new layout has, too, into both its areas. The first table names those in the first area,
/// and the second one the others.
async fn copy_map(
    disk: &dyn Storage,
    old: &Geometry,
    new: &Geometry,
    pages: &PageTable,
) -> Result<[PageTable; MAP_AREAS as usize], VolumeError> {
    let kept = match old.slot_pages() == new.slot_pages() {
        true => new.map_pages,
        false => old.slot_pages().min(new.slot_pages()),
    };
    let mut tables = [PageTable::new(new.map_pages), PageTable::new(new.map_pages)];
    for (first, count, place) in pages.runs() {
        let count = count.min(kept.saturating_sub(first));
        if count == 0 {
            continue;
        }
        let at = old.map_page(place.area(), first);
        let bytes = Rc::new(read_extent(disk, Extent::new(at, count)).await?);
        for (page, block) in (first..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
            let at = at.offset(u64::from(page - first));
            let whole = whole_page(block, page, old.volume);
            let checksum = whole.ok_or(VolumeError::Damaged { what: Damage::MapPage, at })?.checksum.get();
            for (table, place) in tables.iter_mut().zip([PageSlot::First, PageSlot::Second]) {
                table.moved(page, place, checksum);
            }
        }
        for place in [PageSlot::First, PageSlot::Second] {
            let to = new.map_page(place.area(), first);
            all_transferred(write_part(disk, to, &bytes, 0..bytes.len()).await?).await?;
        }
    }
    Ok(tables)
}
