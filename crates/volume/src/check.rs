//! Looking at a volume from outside: is there one, what does it say of itself, is it whole.

use std::rc::Rc;

use weir_runtime::Handle;
use weir_storage::{Extent, Lba, Opener, Part, Rules, Storage, flush, write};

use crate::base::Base;
use crate::blocks::Blocks;
use crate::checkpoint::Checkpoint;
use crate::claim::{self, claim_to_destroy, work_as_owner};
use crate::error::{Damage, VolumeError};
use crate::geometry::{Geometry, may_share};
use crate::layout::{FORMAT_VERSION, SUPERBLOCK_COPIES, content_checksum};
use crate::mutants::VolumeMutant;
use crate::options::VolumeOptions;
use crate::recovery::{Recovered, Search};
use crate::transfer::read_extent;

/// Damaged blocks that a report lists at most.
const DAMAGED_LISTED: usize = 64;

/// What a volume says of itself, without recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Version of the format.
    pub version: u32,
    /// The volume's identity.
    pub volume: u64,
    /// Capacity shown to users, in blocks.
    pub logical_blocks: u64,
    /// Blocks of the storage below that the volume uses.
    pub physical_blocks: u64,
    /// Data blocks that may be live at the same time.
    pub usable_blocks: u64,
    /// Blocks in a segment.
    pub segment_blocks: u32,
    /// Segments.
    pub segments: u32,
    /// Number of the newest checkpoint.
    pub checkpoint: u64,
    /// The log generation that it began or continues.
    pub generation: u64,
    /// Sequence number of the first request behind it.
    pub next_sequence: u64,
    /// The volume takes shares; [`upgrade`] has those of older programs take them.
    pub shares: bool,
    /// Slots for snapshots and clones.
    pub slots: u32,
    /// The state with which it begins and which it does not hold, if there is one.
    pub base: Option<Base>,
    /// The owner that has it open, or did not close it; `None` if it was closed, or has no claim.
    pub opener: Option<Opener>,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckReport {
    /// Whole copies of the superblock, 1 or 2: with one, the next damage to it is the end of the volume.
    pub superblock_copies: u64,
    /// Both copies are whole, and the second one says something else, as a resize or an upgrade leaves it that a power cut
    /// interrupted. The first one counts, and opening the volume makes the second one like it (V11).
    pub superblocks_differ: bool,
    /// Records behind the newest checkpoint that recovery would replay.
    pub records: u64,
    /// Live blocks, each read and compared with its checksum.
    pub live_blocks: u64,
    /// Logical blocks whose block was shared: that others read, too, or did before it was overwritten there.
    pub shared_names: u64,
    /// Logical blocks that failed their checksum or could not be read; at most the first 64.
    pub damaged: Vec<Lba>,
    /// How many there are in all.
    pub damaged_total: u64,
}

/// Reads the superblock, or its copy if the first is damaged.
pub(crate) async fn read_superblock(disk: &dyn Storage) -> Result<Geometry, VolumeError> {
    let mut first_error = None;
    for copy in 0..SUPERBLOCK_COPIES.min(disk.blocks()) {
        let at = Lba(copy);
        let outcome = match read_extent(disk, Extent::new(at, 1)).await {
            Ok(block) => Geometry::from_superblock(&block, at),
            Err(error) => Err(error.into()),
        };
        match outcome {
            Ok(geometry) => {
                let (needed, found) = (geometry.physical_blocks, disk.blocks());
                return if found < needed {
                    Err(VolumeError::Truncated { needed, found })
                } else {
                    Ok(geometry)
                };
            }
            // A damaged copy says more than a foreign one.
            Err(VolumeError::Foreign) => {}
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.unwrap_or(VolumeError::Foreign))
}

/// One copy of the superblock, if it is whole.
async fn read_copy(disk: &dyn Storage, copy: u64) -> Option<Geometry> {
    let block = read_extent(disk, Extent::new(Lba(copy), 1)).await.ok()?;
    Geometry::from_superblock(&block, Lba(copy)).ok()
}

/// How many copies of the superblock are whole and say the same.
async fn whole_superblocks(disk: &dyn Storage, geometry: &Geometry) -> u64 {
    let mut whole = 0;
    for copy in 0..SUPERBLOCK_COPIES {
        whole += u64::from(read_copy(disk, copy).await == Some(*geometry));
    }
    whole
}

/// The second copy of the superblock, if it is one of this volume and says something else than the first, which counts.
async fn read_other(disk: &dyn Storage, geometry: &Geometry) -> Option<Geometry> {
    let (first, second) = (read_copy(disk, 0).await, read_copy(disk, SUPERBLOCK_COPIES - 1).await);
    second.filter(|found| first == Some(*geometry) && found != geometry && found.volume == geometry.volume)
}

/// Before its owner changes the volume: if the second copy of the superblock says something else than the first, which counts, as
/// an interrupted resize or upgrade leaves it, it is made like that. It would soon name a map that is out of date (V11).
pub(crate) async fn settle_superblocks(
    disk: &dyn Storage,
    geometry: &Geometry,
    rules: Rules<VolumeMutant>,
) -> Result<(), VolumeError> {
    let second = SUPERBLOCK_COPIES - 1;
    let differs = read_copy(disk, second).await.is_some_and(|found| found != *geometry);
    if differs && !rules.drops(VolumeMutant::SuperblocksDiffer) {
        write(disk, Part::bytes(Lba(second), &geometry.to_superblock())).await?;
        flush(disk).await?;
    }
    Ok(())
}

/// Has older programs refuse a volume that is opened with marks (V13).
pub(crate) async fn prepare_marks(
    disk: &dyn Storage,
    geometry: Geometry,
    options: &VolumeOptions,
) -> Result<Geometry, VolumeError> {
    let marked = Geometry { marks: geometry.marks || options.marks.is_some(), ..geometry };
    if marked != geometry {
        replace_superblocks(disk, &geometry, &marked, options.rules).await?;
    }
    Ok(marked)
}

/// Says what is on `disk` without changing anything.
///
/// # Errors
/// [`VolumeError`] if it is not a whole volume.
pub async fn inspect(disk: &dyn Storage) -> Result<Info, VolumeError> {
    let geometry = read_superblock(disk).await?;
    let mut checkpoint = Checkpoint::newest(disk, &geometry).await?;
    if checkpoint.alone {
        checkpoint =
            Recovered::recover(disk, &geometry, Rules::all(), usize::MAX, Search::All).await?.checkpoint;
    }
    Ok(Info {
        version: FORMAT_VERSION,
        volume: geometry.volume,
        logical_blocks: geometry.logical_blocks,
        physical_blocks: geometry.physical_blocks,
        usable_blocks: geometry.usable_blocks(),
        segment_blocks: geometry.segment_blocks,
        segments: geometry.segments,
        checkpoint: checkpoint.number,
        generation: checkpoint.generation,
        next_sequence: checkpoint.next_sequence,
        shares: geometry.shares,
        slots: geometry.slots,
        base: geometry.base,
        opener: claim::opener(disk, &geometry).await?,
    })
}

/// Replays the log in memory and reads every live block, without changing anything.
///
/// # Errors
/// [`VolumeError`] if the structures do not hold together; damaged data is in the report.
pub async fn check(disk: &dyn Storage) -> Result<CheckReport, VolumeError> {
    let geometry = read_superblock(disk).await?;
    let Recovered { blocks, records, .. } =
        Recovered::recover(disk, &geometry, Rules::all(), usize::MAX, Search::All).await?;
    let superblock_copies = whole_superblocks(disk, &geometry).await;
    let superblocks_differ = read_other(disk, &geometry).await.is_some();
    let shared_names = blocks.names().count();
    let Reading { live_blocks, damaged, damaged_total } =
        read_live(disk, &geometry, &blocks, DAMAGED_LISTED).await?;
    Ok(CheckReport {
        superblock_copies,
        superblocks_differ,
        records,
        live_blocks,
        shared_names,
        damaged,
        damaged_total,
    })
}

/// What reading all live blocks has found.
#[derive(Default)]
pub(crate) struct Reading {
    pub live_blocks: u64,
    /// Logical blocks that failed, in order, as many as were wanted.
    pub damaged: Vec<Lba>,
    pub damaged_total: u64,
}

/// Reads every live block, and lists at most `listed` of those that cannot be read or fail their checksum.
pub(crate) async fn read_live(
    disk: &dyn Storage,
    geometry: &Geometry,
    blocks: &Blocks,
    listed: usize,
) -> Result<Reading, VolumeError> {
    let mut report = Reading::default();
    let mut seen = vec![0_u64; (geometry.physical_blocks as usize).div_ceil(64)];
    for (lba, entry) in blocks.mapped().filter(|(lba, entry)| blocks.is_first_name(*lba, *entry)) {
        let at = Lba(u64::from(entry.block));
        let (word, bit) = (entry.block as usize / 64, 1 << (entry.block % 64));
        if seen[word] & bit != 0 {
            return Err(VolumeError::Damaged { what: Damage::Names, at });
        }
        seen[word] |= bit;
        report.live_blocks += 1;
        let read = read_extent(disk, Extent::new(at, 1)).await;
        if !read.is_ok_and(|block| content_checksum(&block) == entry.checksum) {
            let others = blocks.names().of(entry.block).filter(|name| *name != lba);
            for name in others.chain([lba]) {
                report.damaged_total += 1;
                if report.damaged.len() < listed {
                    report.damaged.push(Lba(u64::from(name)));
                }
            }
        }
    }
    report.damaged.sort_unstable();
    Ok(report)
}

/// Has a volume that an older program made take shares, and, where others can reach the storage and there is room, a claim
/// (V8); older programs do not read it from then on. Whether anything was lacking. A crash leaves the volume as it was, or
/// upgraded.
///
/// # Errors
/// [`VolumeError::TooLargeToShare`] if addresses leave no room for the shared flag; [`VolumeError`] if there is
/// no whole volume, or it is open.
pub async fn upgrade(handle: &Handle, disk: Rc<dyn Storage>) -> Result<bool, VolumeError> {
    let geometry = read_superblock(&*disk).await?;
    if !may_share(geometry.physical_blocks) {
        return Err(VolumeError::TooLargeToShare(geometry.physical_blocks));
    }
    let upgraded = Geometry { shares: true, ..geometry };
    let claimed = disk.opener().and_then(|_| upgraded.with_claims());
    let upgraded = claimed.unwrap_or(upgraded);
    if whole_superblocks(&*disk, &upgraded).await == SUPERBLOCK_COPIES {
        return Ok(false);
    }
    let options = VolumeOptions::default();
    work_as_owner(handle, disk, &geometry, &options, async |disk| {
        replace_superblocks(&*disk, &geometry, &upgraded, Rules::all()).await
    })
    .await?;
    Ok(upgraded != geometry)
}

/// Makes sure that no process has the volume open that may be on `disk`, before it is destroyed (V8).
///
/// # Errors
/// [`VolumeError::OpenElsewhere`] and [`VolumeError::OpenedMeanwhile`]; what the disk answered.
pub async fn require_closed(handle: &Handle, disk: &dyn Storage) -> Result<(), VolumeError> {
    // Without a whole superblock no process has it open.
    let Ok(geometry) = read_superblock(disk).await else { return Ok(()) };
    claim_to_destroy(handle, disk, &geometry).await
}

/// Writes both superblocks anew, and with that makes what was written before durable.
pub(crate) async fn replace_superblocks(
    disk: &dyn Storage,
    geometry: &Geometry,
    new: &Geometry,
    rules: Rules<VolumeMutant>,
) -> Result<(), VolumeError> {
    if new.claims && !geometry.claims {
        claim::clear(disk, new).await?;
        flush(disk).await?;
    }
    let block = new.to_superblock();
    // The first whole copy counts. It comes last, so that what it names, and a whole copy of the new kind, are durable when
    // it does (V11).
    for copy in (0..SUPERBLOCK_COPIES).rev() {
        write(disk, Part::bytes(Lba(copy), &block)).await?;
        if copy == 0 || !rules.drops(VolumeMutant::ResizedTooEarly) {
            flush(disk).await?;
        }
    }
    Ok(())
}
