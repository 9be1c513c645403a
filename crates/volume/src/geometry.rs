//! Where everything lies on the storage below: computed when a volume is made or [resized](crate::placement), and read
//! from the superblock ever after.

use weir_storage::{BLOCK_BYTES, Lba, Storage};
use zerocopy::{FromBytes, IntoBytes};

use crate::base::Base;
use crate::error::{Damage, FormatError, VolumeError};
use crate::layout::{
    CLAIM_BLOCKS, COUNTERS_END, CheckpointHeader, ENTRIES_PER_CHUNK, ENTRIES_PER_PAGE, FEATURE_BASE,
    FEATURE_CLAIMS, FEATURE_MARKS, FEATURE_RESIZED, FEATURE_SHARES, FEATURE_SNAPSHOTS, FORMAT_VERSION,
    SUPERBLOCK_COPIES, SUPERBLOCK_MAGIC, Superblock, checksum_matches, stamp_checksum,
};
use crate::names::SHARED;

/// Checkpoints alternate between this many slots.
pub(crate) const CHECKPOINT_SLOTS: u64 = 2;
/// A map page alternates between this many places.
pub(crate) const MAP_AREAS: u64 = 2;
/// Segments on a free-segment list at most: 32 KiB of segment numbers in a checkpoint.
pub(crate) const FREE_LIST_LIMIT: u32 = 8192;
/// Segments that a volume keeps free at least, so that cleaning can always make progress.
pub(crate) const RESERVE_MIN: u32 = 6;
/// Beyond the minimum, one segment in this many is kept free.
const RESERVE_SHARE: u32 = 25;
/// Blocks that one request may write, and that it writes whole or not at all, at most.
const ATOMIC_BLOCKS_MAX: u32 = 64;

/// The table of snapshots and clones, and a block of zeros.
const TABLE_BLOCKS: u64 = 2;

/// Blocks of a segment at most: 16 MiB.
const SEGMENT_BLOCKS_MAX: u32 = 4096;

/// What kind of volume to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Capacity shown to the user, in blocks; 0 for as much as fits. It may be more than fits: space is
    /// taken when a block is first written (thin provisioning), and a full volume answers `NoSpace`.
    pub logical_blocks: u64,
    /// Blocks in a segment, a power of two from 8 to 4096.
    pub segment_blocks: u32,
    /// Make the volume even if the storage holds other data.
    pub overwrite: bool,
    /// Slots for snapshots and clones, 0 to [`SLOTS_MAX`](Format::SLOTS_MAX). Each takes one block of the storage for 255 of
    /// the volume's, for its map.
    pub slots: u32,
}

impl Default for Format {
    fn default() -> Format {
        Format { logical_blocks: 0, segment_blocks: 256, overwrite: false, slots: 0 }
    }
}

/// Slots of a volume that is [sized for its disk](Format::sized_for), if that has so many blocks as [`SLOTS_BLOCKS`] says.
const SLOTS: u32 = 4;
/// From 64 MiB on, as smaller ones need all their space, to 256 GiB, as the places of the pages of the map take memory, in use or not.
const SLOTS_BLOCKS: std::ops::RangeInclusive<u64> = 1 << 14..=1 << 26;

/// Segments of a volume that is [sized for its disk](Format::sized_for) at most: each takes memory.
const SEGMENTS_MAX: u64 = 1 << 21;

impl Format {
    /// Slots of a volume at most: as many as its table names.
    pub const SLOTS_MAX: u32 = 32;

    /// The default for a disk of so many blocks: beyond 2 TiB segments are larger, so that there are not more of them.
    #[must_use]
    pub fn sized_for(blocks: u64) -> Format {
        let format = Format::default();
        let least = blocks.div_ceil(SEGMENTS_MAX).next_power_of_two().min(u64::from(SEGMENT_BLOCKS_MAX));
        let slots = if SLOTS_BLOCKS.contains(&blocks) { SLOTS } else { 0 };
        Format { segment_blocks: format.segment_blocks.max(least as u32), slots, ..format }
    }

    /// The capacity of a volume that [`Volume::create`](crate::Volume::create) makes on `disk`, in blocks.
    ///
    /// # Errors
    /// [`VolumeError::Format`] if the sizes do not fit.
    pub fn capacity_on(&self, disk: &dyn Storage) -> Result<u64, VolumeError> {
        Ok(Geometry::plan(self, disk.blocks(), 0, disk.opener().is_some())?.logical_blocks)
    }
}

/// The layout of one volume, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub volume: u64,
    pub logical_blocks: u64,
    pub physical_blocks: u64,
    pub segment_blocks: u32,
    pub segments: u32,
    pub checkpoint_start: u64,
    pub checkpoint_blocks: u32,
    pub map_pages: u32,
    pub map_start: u64,
    pub segments_start: u64,
    /// The volume takes shares.
    pub shares: bool,
    /// There is room for a claim and a challenge, right before the segments.
    pub claims: bool,
    /// Slots for snapshots and clones. Slot 0 is the volume itself; they begin [`slot_blocks`](Geometry::slot_blocks) apart.
    pub slots: u32,
    /// The volume was resized: checkpoint slots and map areas may lie behind the segments, and may have another size than
    /// in a new volume.
    pub resized: bool,
    /// The state with which the volume begins and which it does not hold, if there is one. It has no slots then.
    pub base: Option<Base>,
    /// The volume was opened with marks: older programs would take records that do not count (V13).
    pub marks: bool,
}

impl Geometry {
    /// Lays out a volume on `physical_blocks` blocks; with `claims`, one that its openers claim (V8).
    pub(crate) fn plan(
        format: &Format,
        physical_blocks: u64,
        volume: u64,
        claims: bool,
    ) -> Result<Geometry, FormatError> {
        let segment_blocks = format.segment_blocks;
        if !segment_blocks.is_power_of_two() || !(8..=SEGMENT_BLOCKS_MAX).contains(&segment_blocks) {
            return Err(FormatError::SegmentBlocks(segment_blocks));
        }
        for blocks in [physical_blocks, format.logical_blocks] {
            if blocks >= u64::from(u32::MAX) {
                return Err(FormatError::TooLarge(blocks));
            }
        }
        let asked = if format.logical_blocks == 0 { physical_blocks } else { format.logical_blocks };
        let mapped = with_slots(asked, format.slots);
        if format.slots > Format::SLOTS_MAX
            || format.slots > 0 && (mapped >= u64::from(u32::MAX) || !may_share(physical_blocks))
        {
            return Err(FormatError::Slots(format.slots));
        }
        let geometry = Geometry::lay_out(segment_blocks, mapped, (physical_blocks, claims), volume);
        let geometry = Geometry { logical_blocks: asked, slots: format.slots, ..geometry };
        if geometry.segments <= RESERVE_MIN {
            let overhead = geometry.segments_start;
            let needed = overhead + u64::from(RESERVE_MIN + 1) * u64::from(segment_blocks);
            return Err(FormatError::TooSmall { needed, found: physical_blocks });
        }
        if format.logical_blocks != 0 {
            return Ok(geometry);
        }
        Ok(Geometry { logical_blocks: geometry.usable_blocks(), ..geometry })
    }

    /// Superblocks, then checkpoint slots, then the two map areas, then claim and challenge, then segments from a multiple
    /// of their size.
    fn lay_out(
        segment_blocks: u32,
        logical_blocks: u64,
        (physical_blocks, claims): (u64, bool),
        volume: u64,
    ) -> Geometry {
        let map_pages = u32::try_from(logical_blocks.div_ceil(ENTRIES_PER_PAGE as u64)).unwrap_or(u32::MAX);
        let most_segments = (physical_blocks / u64::from(segment_blocks)).min(u64::from(u32::MAX)) as u32;
        let checkpoint_start = SUPERBLOCK_COPIES;
        let checkpoint_blocks = checkpoint_slot_blocks(most_segments, map_pages);
        let map_start = checkpoint_start + CHECKPOINT_SLOTS * u64::from(checkpoint_blocks);
        let map_end = map_start + MAP_AREAS * u64::from(map_pages);
        let claim_blocks = claim_blocks(claims);
        let segments_start = (map_end + claim_blocks).next_multiple_of(u64::from(segment_blocks));
        let room = physical_blocks.saturating_sub(segments_start) / u64::from(segment_blocks);
        Geometry {
            volume,
            logical_blocks,
            physical_blocks,
            segment_blocks,
            segments: room as u32,
            checkpoint_start,
            checkpoint_blocks,
            map_pages,
            map_start,
            segments_start,
            shares: may_share(physical_blocks),
            claims,
            slots: 0,
            resized: false,
            base: None,
            marks: false,
        }
    }

    /// Whether `disk` takes the largest chunk in one command.
    pub(crate) fn fits_commands_of(&self, disk: &dyn Storage) -> Result<(), VolumeError> {
        let needed = self.segment_blocks.min(1 + ENTRIES_PER_CHUNK as u32);
        let found = disk.capabilities().max_transfer_blocks;
        if found < needed { Err(VolumeError::Transfer { needed, found }) } else { Ok(()) }
    }

    /// Logical blocks from the beginning of one slot to the next: whole pages of the map.
    pub(crate) fn slot_blocks(&self) -> u64 {
        u64::from(self.map_pages.saturating_sub(1) / (1 + self.slots)) * ENTRIES_PER_PAGE as u64
    }

    /// Logical blocks of the volume, its slots and their table: those that a record may name.
    pub(crate) fn addressable_blocks(&self) -> u64 {
        self.table().map_or(self.logical_blocks, |table| table.0 + TABLE_BLOCKS)
    }

    /// The logical block that holds the table of snapshots and clones. The block behind it holds zeros.
    pub(crate) fn table(&self) -> Option<Lba> {
        (self.slots > 0).then(|| Lba(self.slot_blocks() * u64::from(1 + self.slots)))
    }

    /// Segments that are kept free for cleaning.
    pub(crate) fn reserve(&self) -> u32 {
        RESERVE_MIN.max(self.segments / RESERVE_SHARE)
    }

    /// Data blocks in a segment that is written in whole chunks.
    pub(crate) fn data_blocks_per_segment(&self) -> u32 {
        self.segment_blocks - self.segment_blocks.div_ceil(ENTRIES_PER_CHUNK as u32 + 1)
    }

    /// Blocks that one request may write, and that it writes whole or not at all, at most.
    pub(crate) fn atomic_blocks(&self) -> u32 {
        ATOMIC_BLOCKS_MAX.min(self.data_blocks_per_segment())
    }

    /// Data blocks that may be live at the same time: what the segments outside the reserve hold, each less
    /// one block for the header of a chunk that was sealed before the segment was full.
    pub(crate) fn usable_blocks(&self) -> u64 {
        let segments = self.segments.saturating_sub(self.reserve());
        u64::from(segments) * u64::from(self.data_blocks_per_segment() - 1)
    }

    /// Segments that a free-segment list may name.
    pub(crate) fn free_list_limit(&self) -> usize {
        let slot_bytes = self.checkpoint_blocks as usize * BLOCK_BYTES;
        let room = slot_bytes.saturating_sub(checkpoint_bytes(0, self.map_pages)) / size_of::<u32>();
        room.min(self.segments.min(FREE_LIST_LIMIT) as usize)
    }

    /// The address of a block of a segment.
    pub(crate) fn block(&self, segment: u32, offset: u32) -> u64 {
        self.segments_start + u64::from(segment) * u64::from(self.segment_blocks) + u64::from(offset)
    }

    /// The segment that a physical block lies in; `None` outside the segments.
    pub(crate) fn segment_of(&self, block: u32) -> Option<u32> {
        let inside = u64::from(block).checked_sub(self.segments_start)?;
        let segment = inside >> self.segment_blocks.trailing_zeros();
        (segment < u64::from(self.segments)).then_some(segment as u32)
    }

    /// Where a checkpoint slot starts.
    pub(crate) fn checkpoint_slot(&self, slot: u64) -> Lba {
        Lba(self.checkpoint_start + slot * u64::from(self.checkpoint_blocks))
    }

    /// Where a map page lies in one of the two areas.
    pub(crate) fn map_page(&self, area: u8, page: u32) -> Lba {
        Lba(self.map_start + u64::from(area) * u64::from(self.map_pages) + u64::from(page))
    }

    /// Where the claim lies; the challenge is the block behind it.
    pub(crate) fn claim(&self) -> Option<Lba> {
        self.claims.then(|| Lba(self.segments_start - CLAIM_BLOCKS))
    }

    /// The block behind the map areas.
    pub(crate) fn map_end(&self) -> u64 {
        self.map_start + MAP_AREAS * u64::from(self.map_pages)
    }

    /// Checkpoint slots and map areas lie behind the segments.
    pub(crate) fn is_map_behind(&self) -> bool {
        self.checkpoint_start >= self.segments_start
    }

    /// The same volume with claims, if there is room for them.
    pub(crate) fn with_claims(self) -> Option<Geometry> {
        let used = if self.is_map_behind() { SUPERBLOCK_COPIES } else { self.map_end() };
        (self.segments_start - used >= CLAIM_BLOCKS).then_some(Geometry { claims: true, ..self })
    }

    fn features(&self) -> u64 {
        let shares = if self.shares { FEATURE_SHARES } else { 0 };
        let snapshots = if self.slots > 0 { FEATURE_SNAPSHOTS } else { 0 };
        let resized = if self.resized { FEATURE_RESIZED } else { 0 };
        let base = if self.base.is_some() { FEATURE_BASE } else { 0 };
        let marks = if self.marks { FEATURE_MARKS } else { 0 };
        shares | snapshots | resized | base | marks | if self.claims { FEATURE_CLAIMS } else { 0 }
    }

    /// The superblock as a whole block.
    pub(crate) fn to_superblock(self) -> Vec<u8> {
        let Base { sequence, generation, epoch, token } =
            self.base.unwrap_or(Base { sequence: 0, generation: 0, epoch: 0, token: 0 });
        let superblock = Superblock {
            magic: SUPERBLOCK_MAGIC,
            version: FORMAT_VERSION.into(),
            checksum: 0.into(),
            volume: self.volume.into(),
            logical_blocks: self.logical_blocks.into(),
            physical_blocks: self.physical_blocks.into(),
            segment_blocks: self.segment_blocks.into(),
            segments: self.segments.into(),
            checkpoint_start: self.checkpoint_start.into(),
            checkpoint_blocks: self.checkpoint_blocks.into(),
            map_pages: self.map_pages.into(),
            map_start: self.map_start.into(),
            segments_start: self.segments_start.into(),
            features: self.features().into(),
            slots: self.slots.into(),
            base_sequence: sequence.into(),
            base_generation: generation.into(),
            base_epoch: epoch.into(),
            base_token: token.into(),
        };
        let mut block = vec![0; BLOCK_BYTES];
        block[..size_of::<Superblock>()].copy_from_slice(superblock.as_bytes());
        stamp_checksum(&mut block, std::mem::offset_of!(Superblock, checksum));
        block
    }

    /// Reads a superblock and checks every field: the layout must be the one that `plan` would make.
    pub(crate) fn from_superblock(block: &[u8], at: Lba) -> Result<Geometry, VolumeError> {
        let (superblock, _) = Superblock::read_from_prefix(block).map_err(|_| VolumeError::Foreign)?;
        if superblock.magic != SUPERBLOCK_MAGIC {
            return Err(VolumeError::Foreign);
        }
        if !checksum_matches(block, std::mem::offset_of!(Superblock, checksum)) {
            return Err(VolumeError::Damaged { what: Damage::Superblock, at });
        }
        if superblock.version.get() > FORMAT_VERSION {
            let (found, known) = (superblock.version.get(), FORMAT_VERSION);
            return Err(VolumeError::NewerVersion { found, known });
        }
        if superblock.version.get() < FORMAT_VERSION {
            let (found, known) = (superblock.version.get(), FORMAT_VERSION);
            return Err(VolumeError::OlderVersion { found, known });
        }
        let known = FEATURE_SHARES
            | FEATURE_CLAIMS
            | FEATURE_SNAPSHOTS
            | FEATURE_RESIZED
            | FEATURE_BASE
            | FEATURE_MARKS;
        let unknown = superblock.features.get() & !known;
        if unknown != 0 {
            return Err(VolumeError::UnknownFeatures(unknown));
        }
        Geometry::check_fields(&superblock)
            .map_err(|field| VolumeError::Damaged { what: Damage::Field(field), at })
    }

    fn check_fields(superblock: &Superblock) -> Result<Geometry, &'static str> {
        let segment_blocks = superblock.segment_blocks.get();
        let (logical, physical) = (superblock.logical_blocks.get(), superblock.physical_blocks.get());
        let check = |holds: bool, field: &'static str| if holds { Ok(()) } else { Err(field) };
        check(superblock.version.get() == FORMAT_VERSION, "version")?;
        check(segment_blocks.is_power_of_two() && (8..=4096).contains(&segment_blocks), "segment_blocks")?;
        check((1..u64::from(u32::MAX)).contains(&logical), "logical_blocks")?;
        check(physical < u64::from(u32::MAX), "physical_blocks")?;
        // The slot and map areas may have been laid out for more logical blocks than there are.
        let map_pages = superblock.map_pages.get();
        check(u64::from(map_pages) * ENTRIES_PER_PAGE as u64 >= logical, "map_pages")?;
        check(u64::from(map_pages) <= u64::from(u32::MAX).div_ceil(ENTRIES_PER_PAGE as u64), "map_pages")?;
        let mapped = u64::from(map_pages) * ENTRIES_PER_PAGE as u64;
        let claims = superblock.features.get() & FEATURE_CLAIMS != 0;
        let found = match superblock.features.get() & FEATURE_RESIZED {
            0 => Geometry::lay_out(segment_blocks, mapped, (physical, claims), superblock.volume.get()),
            _ => Geometry::from_resized(superblock)?,
        };
        check(superblock.checkpoint_start.get() == found.checkpoint_start, "checkpoint_start")?;
        check(superblock.checkpoint_blocks.get() == found.checkpoint_blocks, "checkpoint_blocks")?;
        check(superblock.map_start.get() == found.map_start, "map_start")?;
        check(superblock.segments_start.get() == found.segments_start, "segments_start")?;
        check(superblock.segments.get() == found.segments, "segments")?;
        check(found.segments > RESERVE_MIN, "segments")?;
        let shares = superblock.features.get() & FEATURE_SHARES != 0;
        check(!shares || may_share(physical), "features")?;
        let has_slots = superblock.features.get() & FEATURE_SNAPSHOTS != 0;
        let slots = superblock.slots.get();
        check(has_slots == (slots > 0) && slots <= Format::SLOTS_MAX && (shares || !has_slots), "slots")?;
        let base = (superblock.features.get() & FEATURE_BASE != 0).then(|| Base {
            sequence: superblock.base_sequence.get(),
            generation: superblock.base_generation.get(),
            epoch: superblock.base_epoch.get(),
            token: superblock.base_token.get(),
        });
        let counts =
            |base: Base| base.sequence < COUNTERS_END && (1..COUNTERS_END).contains(&base.generation);
        check(base.is_none_or(|base| counts(base) && slots == 0), "base")?;
        let marks = superblock.features.get() & FEATURE_MARKS != 0;
        let found = Geometry { logical_blocks: logical, shares, slots, base, marks, ..found };
        check(!has_slots || found.slot_blocks() >= logical, "slots")?;
        check(!has_slots || (map_pages - 1).is_multiple_of(1 + slots), "slots")?;
        Ok(found)
    }

    /// The layout of a volume that was resized, where checkpoint slots and map areas lie in one piece before the segments, or
    /// behind them.
    fn from_resized(superblock: &Superblock) -> Result<Geometry, &'static str> {
        let check = |holds: bool, field: &'static str| if holds { Ok(()) } else { Err(field) };
        let (physical, segment_blocks) = (superblock.physical_blocks.get(), superblock.segment_blocks.get());
        let (map_pages, checkpoint_blocks) = (superblock.map_pages.get(), superblock.checkpoint_blocks.get());
        let bounds =
            [RESERVE_MIN + 1, FREE_LIST_LIMIT].map(|listed| checkpoint_slot_blocks(listed, map_pages));
        check((bounds[0]..=bounds[1]).contains(&checkpoint_blocks), "checkpoint_blocks")?;
        let (checkpoint_start, segments_start) =
            (superblock.checkpoint_start.get(), superblock.segments_start.get());
        check(checkpoint_start <= physical, "checkpoint_start")?;
        check(segments_start.is_multiple_of(u64::from(segment_blocks)), "segments_start")?;
        let claims = superblock.features.get() & FEATURE_CLAIMS != 0;
        let claim_blocks = claim_blocks(claims);
        check((SUPERBLOCK_COPIES + claim_blocks..=physical).contains(&segments_start), "segments_start")?;
        let found = Geometry {
            volume: superblock.volume.get(),
            logical_blocks: superblock.logical_blocks.get(),
            physical_blocks: physical,
            segment_blocks,
            segments: 0,
            checkpoint_start,
            checkpoint_blocks,
            map_pages,
            map_start: checkpoint_start + CHECKPOINT_SLOTS * u64::from(checkpoint_blocks),
            segments_start,
            shares: false,
            claims,
            slots: 0,
            resized: true,
            base: None,
            marks: false,
        };
        let fits = match found.is_map_behind() {
            true => found.map_end() <= physical,
            false => {
                checkpoint_start == SUPERBLOCK_COPIES && found.map_end() + claim_blocks <= segments_start
            }
        };
        check(fits, "checkpoint_start")?;
        Ok(found.with_all_segments())
    }

    /// The same volume with as many segments as there is room for.
    pub(crate) fn with_all_segments(self) -> Geometry {
        let end = if self.is_map_behind() { self.checkpoint_start } else { self.physical_blocks };
        let room = end.saturating_sub(self.segments_start) / u64::from(self.segment_blocks);
        Geometry { segments: u32::try_from(room).unwrap_or(u32::MAX), ..self }
    }
}

/// Logical blocks that the map of a volume of so many blocks with slots has: each slot whole pages, then one page of which the
/// table has the first blocks.
pub(crate) fn with_slots(blocks: u64, slots: u32) -> u64 {
    let page = ENTRIES_PER_PAGE as u64;
    if slots == 0 {
        blocks
    } else {
        blocks.next_multiple_of(page).saturating_mul(1 + u64::from(slots)) + page
    }
}

/// Blocks of a claim and a challenge, in a volume that has them.
pub(crate) fn claim_blocks(claims: bool) -> u64 {
    if claims { CLAIM_BLOCKS } else { 0 }
}

/// Whether a map entry has room for the shared flag beside any address.
pub(crate) fn may_share(physical_blocks: u64) -> bool {
    physical_blocks <= u64::from(SHARED)
}

/// Blocks of a checkpoint slot of a volume of so many segments and map pages.
pub(crate) fn checkpoint_slot_blocks(segments: u32, map_pages: u32) -> u32 {
    checkpoint_bytes(segments.min(FREE_LIST_LIMIT), map_pages).div_ceil(BLOCK_BYTES) as u32
}

/// Bytes of a checkpoint with so many segments on its free-segment list and so many map pages.
pub(crate) fn checkpoint_bytes(free_list: u32, map_pages: u32) -> usize {
    size_of::<CheckpointHeader>() + free_list as usize * size_of::<u32>() + (map_pages as usize).div_ceil(4)
}
