//! *Repair* of a damaged volume (V9): what can be proved is kept, what cannot reads as an error, and nothing is guessed.
//!
//! 1. The superblock: either copy, also with one bit corrected.
//! 2. The newest checkpoint.
//! 3. Its map: pages that are damaged are made anew (`rebuild.rs`). If that does not make up for all of them, the map of the
//!    older checkpoint, with its log up to the newest one, is the same map.
//! 4. The log behind the checkpoint. A record that was durable is applied though some of its data is damaged. One that
//!    is missing ends the repair, unless the caller goes back to the prefix before it.
//! 5. All that is live is read. What fails its checksum is lost, and so is what nothing proves.
//! 6. The block of zeros that snapshots share is written anew. If their table is lost, all snapshots and clones are given up,
//!    where the caller says so.
//! 7. A new checkpoint, in a new generation of the log.

use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;

use weir_runtime::Handle;
use weir_storage::{BLOCK_BYTES, Extent, Lba, Part, Rules, Storage, flush, write};

use crate::blocks::Blocks;
use crate::check::{Reading, read_live};
use crate::checkpoint::{CHECKSUM_FIELD, Checkpoint, filled};
use crate::claim::work_as_owner;
use crate::correction::correct_bit;
use crate::error::{Damage, VolumeError};
use crate::geometry::{CHECKPOINT_SLOTS, Geometry, checkpoint_bytes};
use crate::layout::{SUPERBLOCK_COPIES, Superblock, content_checksum};
use crate::map::Entry;
use crate::mutants::VolumeMutant;
use crate::names::Pairs;
use crate::options::VolumeOptions;
use crate::rebuild::{Rebuilt, rebuild};
use crate::recovery::{Recovered, Search, Tolerance};
use crate::scan::{read_or_zeros, scan};
use crate::snapshot_table::Table;
use crate::volume::write_repaired;

/// Findings that a report lists at most.
const FINDINGS_LISTED: usize = 64;
/// Unknown blocks that become one record of shares at most.
const PAIRS_AT_ONCE: usize = 256;

/// How a volume is to be repaired.
#[derive(Clone, Debug, Default)]
pub struct RepairOptions {
    /// Where a durable record is missing, go back to what was there before it, although later records are whole.
    pub to_prefix: bool,
    /// If the table of snapshots and clones is lost, give all of them up. The volume itself keeps what it has.
    pub drop_snapshots: bool,
    /// The rules that the repair keeps: all of them.
    pub rules: Rules<VolumeMutant>,
}

/// Something that was damaged, and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A copy of the superblock is damaged; it is written anew.
    Superblock(Lba),
    /// A checkpoint is damaged, the one in this place, or its newest write is lost. Nothing else is: the other one leads as
    /// far.
    Checkpoint(Lba),
    /// A page of the map is damaged, and was made anew.
    MapPage(u32),
    /// A page of the map is damaged, and some of its blocks are lost.
    MapPageLost(u32),
    /// So many headers of chunks in the log were corrected.
    Headers(u64),
    /// So many blocks of the log's records are damaged.
    Records(u64),
    /// The log ends at a durable record that is missing: so many records, at least, are given up.
    Prefix {
        /// Records behind it.
        records: u64,
        /// Where it had to be.
        at: Lba,
    },
    /// The table of snapshots and clones is lost, and with it all of them.
    Snapshots,
    /// The block of zeros that snapshots and clones share is damaged; it is written anew.
    Zeros,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Superblock(at) => {
                write!(f, "a copy of the superblock at {at} is damaged; the other copy is used")
            }
            Finding::Checkpoint(at) => {
                write!(f, "the checkpoint at {at} is damaged or out of date; nothing is lost by that")
            }
            Finding::MapPage(page) => write!(f, "page {page} of the map is damaged; it was made anew"),
            Finding::MapPageLost(page) => {
                write!(f, "page {page} of the map is damaged; some of its blocks are lost")
            }
            Finding::Headers(count) => {
                write!(f, "{count} chunk headers of the log are damaged; they were corrected")
            }
            Finding::Records(count) => write!(f, "{count} blocks of records in the log are damaged"),
            Finding::Prefix { records, at } => write!(
                f,
                "a durable record is missing at {at}: the volume goes back to what was there before it, without the {records} \
                 requests behind it"
            ),
            Finding::Snapshots => f.write_str(
                "the table of snapshots and clones is damaged or unknown: all of them are given up",
            ),
            Finding::Zeros => f.write_str(
                "the block of zeros of snapshots is damaged; it is written anew, and nothing is lost by that",
            ),
        }
    }
}

/// What a repair found.
#[derive(Clone, Debug, Default)]
pub struct RepairReport {
    /// What is damaged, at most 64; data blocks are in `lost`.
    pub findings: Vec<Finding>,
    /// How many findings there are in all.
    pub findings_total: u64,
    /// Logical blocks that are lost: reading them is an error until they are written again.
    pub lost: Vec<Lba>,
    /// Live blocks that were read.
    pub live_blocks: u64,
}

impl RepairReport {
    /// Whether the repair gives up something that was whole: requests, or snapshots and clones.
    #[must_use]
    pub fn gives_up(&self) -> bool {
        self.findings.iter().any(|finding| matches!(finding, Finding::Prefix { .. } | Finding::Snapshots))
    }

    fn add(&mut self, finding: Finding) {
        self.findings_total += 1;
        if self.findings.len() < FINDINGS_LISTED {
            self.findings.push(finding);
        }
    }
}

/// Repairs the volume on `disk`, which must not be open, and writes to it if a structure is damaged, besides
/// the claim of an owner (V8). For a report
/// alone, let it write to an [`Overlay`](weir_storage::Overlay). An interrupted repair can be repeated.
///
/// Memory: the map, 8 bytes for each block in use, and for damaged pages of it up to 60 KiB each.
///
/// # Errors
/// [`VolumeError`] for damage that cannot be repaired; nothing was written then. [`Damage::LostRecord`] and
/// [`Damage::NewestCheckpoint`] are passed by with [`RepairOptions::to_prefix`], [`Damage::SnapshotTable`] with
/// [`RepairOptions::drop_snapshots`].
pub async fn repair(
    handle: &Handle,
    disk: Rc<dyn Storage>,
    options: RepairOptions,
) -> Result<RepairReport, VolumeError> {
    let mut report = RepairReport::default();
    let geometry = find_geometry(&*disk, &mut report).await?;
    geometry.fits_commands_of(&*disk)?;
    if let Some(base) = geometry.base {
        return Err(VolumeError::BaseNeeded(base.sequence));
    }
    // V8: before anything is read that another owner may still change.
    let as_volume = VolumeOptions { rules: options.rules, ..VolumeOptions::default() };
    work_as_owner(handle, disk, &geometry, &as_volume, async |disk| {
        repair_owned(handle, disk, geometry, &options, report).await
    })
    .await
}

/// Repairs a volume on a disk that no other process writes to.
async fn repair_owned(
    handle: &Handle,
    disk: Rc<dyn Storage>,
    geometry: Geometry,
    options: &RepairOptions,
    mut report: RepairReport,
) -> Result<RepairReport, VolumeError> {
    let work = Repair { disk: &*disk, geometry: &geometry, options };
    let mut found = work.find_state(&mut report).await?;
    let mut unknown = std::mem::take(&mut found.unknown);
    let read = read_live(&*disk, &geometry, &found.blocks, usize::MAX).await?;
    let Reading { live_blocks, damaged, .. } = read;
    report.live_blocks = live_blocks;
    report.lost = damaged.into_iter().chain(unknown.iter().map(|lba| Lba(u64::from(*lba)))).collect();
    report.lost.sort_unstable();
    work.mend_zeros(&found, &mut report).await?;
    if let Some(table) = work.find_lost_table(&found, &report).await {
        work.give_up_snapshots(table, &mut found, &mut report)?;
        unknown.retain(|lba| u64::from(*lba) < geometry.slot_blocks());
    }
    work.mark_lost(&unknown, &mut found).await?;
    if report.findings_total == 0 {
        return Ok(report);
    }
    let superblock = geometry.to_superblock();
    for copy in (0..SUPERBLOCK_COPIES).rev() {
        if report.findings.contains(&Finding::Superblock(Lba(copy))) {
            write(&*disk, Part::bytes(Lba(copy), &superblock)).await?;
            flush(&*disk).await?;
        }
    }
    write_repaired(handle, disk, geometry, found, options.rules).await?;
    Ok(report)
}

/// The geometry by whichever copy of the superblock is whole, or is whole with one bit corrected.
async fn find_geometry(disk: &dyn Storage, report: &mut RepairReport) -> Result<Geometry, VolumeError> {
    let mut found = Err(VolumeError::Foreign);
    let mut corrected = None;
    for copy in (0..SUPERBLOCK_COPIES.min(disk.blocks())).map(Lba) {
        let mut block = read_or_zeros(disk, Extent::new(copy, 1)).await;
        match Geometry::from_superblock(&block, copy) {
            Ok(geometry) => {
                // The first whole copy counts; an interrupted resize may have left another one (V11).
                match found {
                    Err(_) => found = Ok(geometry),
                    Ok(counts) if counts != geometry => report.add(Finding::Superblock(copy)),
                    Ok(_) => {}
                }
                continue;
            }
            Err(VolumeError::Foreign) => {}
            Err(error) if found == Err(VolumeError::Foreign) => found = Err(error),
            Err(_) => {}
        }
        report.add(Finding::Superblock(copy));
        if correct_bit(&mut block, std::mem::offset_of!(Superblock, checksum)) {
            corrected = corrected.or(Geometry::from_superblock(&block, copy).ok());
        }
    }
    let geometry = match (found, corrected) {
        (Err(_), Some(geometry)) => geometry,
        (found, _) => found?,
    };
    if disk.blocks() < geometry.physical_blocks {
        return Err(VolumeError::Truncated { needed: geometry.physical_blocks, found: disk.blocks() });
    }
    Ok(geometry)
}

struct Repair<'a> {
    disk: &'a dyn Storage,
    geometry: &'a Geometry,
    options: &'a RepairOptions,
}

impl Repair<'_> {
    /// The newest state that can be proved, in memory.
    async fn find_state(&self, report: &mut RepairReport) -> Result<Recovered, VolumeError> {
        let mut checkpoints = self.checkpoints(report).await?;
        checkpoints.sort_unstable_by_key(|checkpoint| checkpoint.number);
        let at = self.geometry.checkpoint_slot(0);
        let mut newest = checkpoints.pop().ok_or(VolumeError::Damaged { what: Damage::NoCheckpoint, at })?;
        newest.alone = checkpoints.is_empty();
        let (found, map) = self.replay(&newest, checkpoints.pop().as_ref()).await?;
        self.take_note(&found, &map, report);
        Ok(found)
    }

    fn take_note(&self, found: &Recovered, map: &Rebuilt, report: &mut RepairReport) {
        map.rebuilt.iter().for_each(|page| report.add(Finding::MapPage(*page)));
        map.lost.iter().for_each(|page| report.add(Finding::MapPageLost(*page)));
        let met = found.met;
        if met.is_stale {
            report.add(Finding::Checkpoint(found.checkpoint.place_of_newer(self.geometry)));
        }
        if met.corrected > 0 {
            report.add(Finding::Headers(met.corrected));
        }
        if met.damaged > 0 {
            report.add(Finding::Records(met.damaged));
        }
        if met.durable >= found.next_sequence || found.is_short {
            let records = (met.last + 1).saturating_sub(found.next_sequence);
            report.add(Finding::Prefix { records, at: met.cut });
        }
    }

    /// The checkpoints that are whole, or are whole with one bit corrected.
    async fn checkpoints(&self, report: &mut RepairReport) -> Result<Vec<Checkpoint>, VolumeError> {
        let mut whole = Vec::new();
        let mut fillings: [Vec<bool>; CHECKPOINT_SLOTS as usize] = Default::default();
        for (slot, filling) in (0..).zip(&mut fillings) {
            let at = self.geometry.checkpoint_slot(slot);
            let mut bytes = read_or_zeros(self.disk, Extent::new(at, self.geometry.checkpoint_blocks)).await;
            *filling = filled(&bytes);
            if let Ok(Some(checkpoint)) = Checkpoint::parse(&bytes, self.geometry, slot) {
                whole.push(checkpoint);
                continue;
            }
            report.add(Finding::Checkpoint(at));
            if self.correct_checkpoint(&mut bytes)
                && let Ok(Some(checkpoint)) = Checkpoint::parse(&bytes, self.geometry, slot)
            {
                whole.push(checkpoint);
            }
        }
        whole.iter_mut().for_each(|checkpoint| checkpoint.filled.clone_from(&fillings));
        Ok(whole)
    }

    /// Corrects one bit of a checkpoint. Its length is in it, too: the bit may be one of those.
    fn correct_checkpoint(&self, bytes: &mut [u8]) -> bool {
        const LENGTH_FIELD: usize = std::mem::offset_of!(crate::layout::CheckpointHeader, free_list);
        let stored =
            bytes[LENGTH_FIELD..].iter().take(4).rev().fold(0, |length, byte| length << 8 | u32::from(*byte));
        let lengths = std::iter::once(0).chain((0..32).map(|bit| 1_u32 << bit)).map(|bit| stored ^ bit);
        let limit = self.geometry.free_list_limit() as u32;
        for length in lengths.filter(|length| *length <= limit) {
            let used = checkpoint_bytes(length, self.geometry.map_pages).next_multiple_of(BLOCK_BYTES);
            let Some(part) = bytes.get(..used) else { continue };
            let mut part = part.to_vec();
            let is_corrected = correct_bit(&mut part, CHECKSUM_FIELD);
            if is_corrected && part[LENGTH_FIELD..][..4] == length.to_le_bytes() {
                bytes[..used].copy_from_slice(&part);
                return true;
            }
        }
        false
    }

    /// Loads the map of the newest checkpoint. If pages of it are lost, the older checkpoint may make up for them.
    async fn load_map(
        &self,
        newest: &mut Checkpoint,
        older: Option<&Checkpoint>,
    ) -> Result<Rebuilt, VolumeError> {
        let mut map = rebuild(self.disk, self.geometry, newest, self.options.rules).await?;
        if let Some(older) = older.filter(|_| !map.unknown.is_empty())
            && let Some(mut blocks) = self.advance(older, newest.next_sequence).await
        {
            map.rebuilt.append(&mut map.lost);
            map.unknown.clear();
            map.rebuilt.iter().for_each(|page| blocks.map.write_again(*page));
            map.blocks = blocks;
        }
        Ok(map)
    }

    /// The map of a checkpoint with its log up to the record before `end`, which the newest checkpoint was taken at: none
    /// if that log is not left, or does not make up for what is damaged of the map.
    async fn advance(&self, older: &Checkpoint, end: u64) -> Option<Blocks> {
        let (rules, mut checkpoint) = (self.options.rules, older.clone());
        let map = rebuild(self.disk, self.geometry, &mut checkpoint, rules).await.ok()?;
        // What a checkpoint holds was durable before it.
        let durable = end.checked_sub(1)?;
        let tolerance = Tolerance { durable, end: Some(end), unknown: map.unknown };
        let loaded = (checkpoint, map.blocks);
        let tolerance = Some(tolerance);
        let (disk, geometry) = (self.disk, self.geometry);
        let found =
            Recovered::behind(disk, geometry, rules, loaded, tolerance, Search::Beginning).await.ok()?;
        (found.next_sequence == end && found.unknown.is_empty()).then_some(found.blocks)
    }

    /// Loads the map of the newest checkpoint and replays the log behind it: once to find what was durable, and again where
    /// that is not what the first replay reached.
    async fn replay(
        &self,
        checkpoint: &Checkpoint,
        older: Option<&Checkpoint>,
    ) -> Result<(Recovered, Rebuilt), VolumeError> {
        let mut tolerance = Tolerance::default();
        let mut is_first = true;
        loop {
            let mut checkpoint = checkpoint.clone();
            let mut map = self.load_map(&mut checkpoint, older).await?;
            tolerance.unknown.clone_from(&map.unknown);
            let blocks = std::mem::replace(
                &mut map.blocks,
                Blocks::new(self.geometry, self.options.rules, usize::MAX),
            );
            let found = Recovered::behind(
                self.disk,
                self.geometry,
                self.options.rules,
                (checkpoint, blocks),
                Some(tolerance.clone()),
                Search::All,
            )
            .await?;
            if is_first && found.met.durable >= found.next_sequence {
                is_first = false;
                tolerance.durable = found.met.durable;
                continue;
            }
            return Ok((self.require_all(found).await?, map));
        }
    }

    /// The log must not go on behind what was replayed, or the caller goes back to a prefix.
    async fn require_all(&self, mut found: Recovered) -> Result<Recovered, VolumeError> {
        let Checkpoint { number, alone, .. } = found.checkpoint;
        let knows_newer = found.met.newest > number;
        if found.met.durable >= found.next_sequence && !knows_newer && !self.options.to_prefix {
            return Err(VolumeError::Damaged { what: Damage::LostRecord, at: found.met.cut });
        }
        if !alone && !knows_newer {
            return Ok(found);
        }
        // If a newer checkpoint is or may be lost, only a scan says whether anything was written behind it.
        let (mut newest, mut generation, mut last) = (0, 0, 0);
        scan(self.disk, self.geometry, |chunk, _| {
            newest = newest.max(chunk.header.checkpoint.get());
            generation = generation.max(chunk.header.generation.get());
            if chunk.header.generation.get() >= found.checkpoint.generation {
                last = last.max(chunk.last_sequence());
            }
        })
        .await;
        found.is_short =
            newest > number && (last >= found.next_sequence || generation > found.checkpoint.generation);
        if found.is_short && !self.options.to_prefix {
            let at = found.checkpoint.place_of_newer(self.geometry);
            return Err(VolumeError::Damaged { what: Damage::NewestCheckpoint, at });
        }
        found.met.last = found.met.last.max(last);
        found.met.is_stale = newest > number && !alone && !found.is_short;
        found.checkpoint.number = number.max(newest);
        found.checkpoint.generation = found.checkpoint.generation.max(generation);
        Ok(found)
    }

    /// Writes the block of zeros anew where it is, as what it holds is known.
    async fn mend_zeros(&self, found: &Recovered, report: &mut RepairReport) -> Result<(), VolumeError> {
        let zeros = self.geometry.table().map(|table| Lba(table.0 + 1));
        let Some(zeros) = zeros.filter(|zeros| report.lost.contains(zeros)) else { return Ok(()) };
        let (entry, block) = (found.blocks.entry(zeros.0 as u32), [0; BLOCK_BYTES]);
        if !entry.is_mapped() || entry.checksum != content_checksum(&block) {
            return Ok(());
        }
        write(self.disk, Part::bytes(Lba(u64::from(entry.block)), &block)).await?;
        flush(self.disk).await?;
        report.lost.retain(|lba| found.blocks.entry(lba.0 as u32).block != entry.block);
        report.add(Finding::Zeros);
        Ok(())
    }

    /// The table of snapshots, if it is lost, or its content is not one.
    async fn find_lost_table(&self, found: &Recovered, report: &RepairReport) -> Option<Lba> {
        let table = self.geometry.table()?;
        if report.lost.contains(&table) {
            return Some(table);
        }
        let entry = Some(found.blocks.entry(table.0 as u32)).filter(|entry| entry.is_mapped())?;
        let block = read_or_zeros(self.disk, Extent::new(Lba(u64::from(entry.block)), 1)).await;
        Table::from_block(&block, self.geometry).is_err().then_some(table)
    }

    /// Nothing but the table, which is lost, says what is in the slots: they are discarded, and the table is then empty.
    fn give_up_snapshots(
        &self,
        table: Lba,
        found: &mut Recovered,
        report: &mut RepairReport,
    ) -> Result<(), VolumeError> {
        if !self.options.drop_snapshots {
            return Err(VolumeError::Damaged { what: Damage::SnapshotTable, at: table });
        }
        let (slots, end) = (self.geometry.slot_blocks(), self.geometry.addressable_blocks());
        found.blocks.discard(slots, end, found.next_sequence.saturating_sub(1));
        report.lost.retain(|lba| lba.0 < slots);
        // The gravest comes first, as not all are listed.
        report.findings.insert(0, Finding::Snapshots);
        report.findings_total += 1;
        Ok(())
    }

    /// Has unknown blocks name a block that is not what the map says of it, so that reading them is an error: in a volume
    /// with shares all the same one.
    async fn mark_lost(&self, unknown: &BTreeSet<u32>, found: &mut Recovered) -> Result<(), VolumeError> {
        let sequence = found.next_sequence.saturating_sub(1);
        let mut unknown = unknown.iter().copied();
        let empty: Vec<u32> =
            (0..self.geometry.segments).rev().filter(|s| found.blocks.segments.is_empty(*s)).collect();
        let places =
            empty.iter().flat_map(|s| (0..self.geometry.segment_blocks).map(|i| self.geometry.block(*s, i)));
        for place in places {
            let Some(first) = unknown.next() else { return Ok(()) };
            let block = read_or_zeros(self.disk, Extent::new(Lba(place), 1)).await;
            let entry = Entry { block: place as u32, checksum: !content_checksum(&block) };
            found.blocks.set(first, entry, sequence);
            if !self.geometry.shares {
                continue;
            }
            loop {
                let pairs: Pairs = unknown.by_ref().take(PAIRS_AT_ONCE).map(|lba| (lba, first)).collect();
                if pairs.is_empty() {
                    return Ok(());
                }
                found.blocks.share(&pairs, sequence);
            }
        }
        match unknown.next() {
            Some(_) => Err(weir_storage::Rejected::Failed(weir_storage::StorageError::NoSpace).into()),
            None => Ok(()),
        }
    }
}
