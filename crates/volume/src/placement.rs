//! *Placement*: where checkpoint slots and map areas lie in a volume that gets another size.
//!
//! The segments stay where they are; there are more or fewer of them. If the map areas suffice, they stay, too. Otherwise a new
//! set of slots and areas is put where the volume has nothing: before the segments, if the old set is not there and the
//! new one fits, else at the end of the disk. The place of the old set at the end becomes segments; that before the segments is lost
//! until a set fits there again.

use crate::error::{FormatError, ResizeError, VolumeError};
use crate::geometry::{
    CHECKPOINT_SLOTS, Geometry, RESERVE_MIN, checkpoint_slot_blocks, claim_blocks, may_share, with_slots,
};
use crate::layout::{ENTRIES_PER_PAGE, SUPERBLOCK_COPIES};

/// The size that a volume is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewSize {
    /// Blocks of the disk.
    pub physical_blocks: u64,
    /// Capacity shown to the user, in blocks; `None` for as much as fits, or for what it is if that is more than fits, or less and
    /// the volume shrinks.
    pub logical_blocks: Option<u64>,
}

/// What lies in the segments of a volume that is to shrink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Occupied {
    /// One more than the number of the last segment with live blocks.
    pub segments: u32,
    /// Segments with live blocks.
    pub live: u32,
    /// Live blocks.
    pub blocks: u64,
}

impl Geometry {
    /// The same volume with a size that is not smaller.
    pub(crate) fn grown_to(&self, size: NewSize) -> Result<Geometry, ResizeError> {
        let new = self.resized_to(size)?;
        let is_shorter = new.physical_blocks < self.physical_blocks;
        if !is_shorter && !new.has_map_of(self) && self.count_missing_blocks(&new, size) > 0 {
            return Err(ResizeError::TooLittle { least: self.least_grown(size) });
        }
        if is_shorter || new.logical_blocks < self.logical_blocks {
            let (logical, physical) = (self.logical_blocks, self.physical_blocks);
            return Err(ResizeError::Larger { logical, physical });
        }
        Ok(new)
    }

    /// Blocks of the disk that a larger layout with another map lacks at least: for the map, which lies behind what there was, and for
    /// the capacity that there was.
    fn count_missing_blocks(&self, new: &Geometry, size: NewSize) -> u64 {
        let of_map =
            if new.is_map_behind() { self.physical_blocks.saturating_sub(new.checkpoint_start) } else { 0 };
        let wanted = size.logical_blocks.unwrap_or(self.logical_blocks).min(self.logical_blocks);
        let of_capacity = wanted.saturating_sub(new.logical_blocks);
        // A block more may make a segment whole.
        let least = of_capacity.saturating_sub(self.segment_blocks.into()).max(of_capacity.min(1));
        of_map.max(least)
    }

    /// The same volume with a size that is not larger, or as little larger as what is in it needs.
    pub(crate) fn shrunk_to(&self, size: NewSize, occupied: Occupied) -> Result<Geometry, ResizeError> {
        let mut wanted = self.resized_to(size)?;
        if wanted.logical_blocks > self.logical_blocks && size.logical_blocks.is_none() {
            // The capacity was less than fits, and is not made more by the way.
            wanted = self.resized_to(NewSize { logical_blocks: Some(self.logical_blocks), ..size })?;
        }
        if wanted.logical_blocks > self.logical_blocks || wanted.physical_blocks > self.physical_blocks {
            let (logical, physical) = (self.logical_blocks, self.physical_blocks);
            return Err(ResizeError::Smaller { logical, physical });
        }
        if self.has_room_for(&wanted, occupied) {
            return Ok(wanted);
        }
        let mut least = Geometry { segments: occupied.segments.max(RESERVE_MIN + 1), ..wanted };
        while !least.has_segments_for(occupied) {
            let lacking = occupied.blocks.saturating_sub(least.usable_blocks());
            least.segments += 1 + (lacking / u64::from(self.segment_blocks)) as u32;
        }
        let behind = if wanted.is_map_behind() { wanted.map_end() - wanted.checkpoint_start } else { 0 };
        let physical_blocks = least.block(least.segments, 0) + behind;
        let logical_blocks = Some(wanted.logical_blocks);
        if physical_blocks < self.physical_blocks {
            let longer = self.resized_to(NewSize { physical_blocks, logical_blocks })?;
            if self.has_room_for(&longer, occupied) {
                return Ok(longer);
            }
        }
        Ok(Geometry { logical_blocks: wanted.logical_blocks, ..*self })
    }

    /// Whether the map and the slots of a smaller layout lie where this one has nothing, and what is live in its segments.
    fn has_room_for(&self, new: &Geometry, occupied: Occupied) -> bool {
        let is_apart = !new.is_map_behind()
            || new.has_map_of(self)
            || !self.is_map_behind()
            || new.map_end() <= self.checkpoint_start;
        is_apart && new.has_segments_for(occupied)
    }

    /// Whether its segments hold what is live, and leave as many free as the cleaner needs to go on: blocks that lie scattered take
    /// more segments than packed ones.
    fn has_segments_for(&self, occupied: Occupied) -> bool {
        self.segments >= occupied.segments.max(occupied.live + self.reserve())
            && self.usable_blocks() >= occupied.blocks
    }

    /// Checkpoint slots and map areas lie where the other layout has them.
    pub(crate) fn has_map_of(&self, other: &Geometry) -> bool {
        self.checkpoint_start == other.checkpoint_start && self.map_pages == other.map_pages
    }

    /// Pages of the map of one slot.
    pub(crate) fn slot_pages(&self) -> u32 {
        if self.slots == 0 { self.map_pages } else { (self.slot_blocks() / ENTRIES_PER_PAGE as u64) as u32 }
    }

    fn resized_to(&self, size: NewSize) -> Result<Geometry, ResizeError> {
        let physical_blocks = size.physical_blocks;
        for blocks in [Some(physical_blocks), size.logical_blocks].into_iter().flatten() {
            if blocks >= u64::from(u32::MAX) {
                return Err(FormatError::TooLarge(blocks).into());
            }
        }
        if size.logical_blocks == Some(0) {
            return Err(FormatError::Empty.into());
        }
        if self.shares && !may_share(physical_blocks) {
            return Err(VolumeError::TooLargeToShare(physical_blocks).into());
        }
        let same_map = Geometry { physical_blocks, resized: true, ..*self }.with_all_segments();
        let same_map = Geometry { logical_blocks: self.capacity_in(&same_map, size), ..same_map };
        let stays = !self.is_map_behind() || physical_blocks == self.physical_blocks;
        let suffices = same_map.logical_blocks <= u64::from(self.slot_pages()) * ENTRIES_PER_PAGE as u64;
        let new = if stays && suffices { same_map } else { self.with_new_map(size)? };
        if new.segments <= RESERVE_MIN {
            let needed =
                physical_blocks + u64::from(RESERVE_MIN + 1 - new.segments) * u64::from(self.segment_blocks);
            return Err(FormatError::TooSmall { needed, found: physical_blocks }.into());
        }
        let is_same = (new.logical_blocks, physical_blocks) == (self.logical_blocks, self.physical_blocks);
        if is_same { Err(ResizeError::Unchanged) } else { Ok(new) }
    }

    /// The capacity of a layout of this volume.
    fn capacity_in(&self, new: &Geometry, size: NewSize) -> u64 {
        let thin = if self.logical_blocks > self.usable_blocks() { self.logical_blocks } else { 1 };
        size.logical_blocks.unwrap_or_else(|| new.usable_blocks().max(thin))
    }

    fn with_new_map(&self, size: NewSize) -> Result<Geometry, ResizeError> {
        let physical_blocks = size.physical_blocks;
        // As in a new volume, the map is as large as if no block of the disk were needed for anything else.
        let mapped = with_slots(
            self.capacity_in(&Geometry { segments: 0, ..*self }, size)
                .max(if size.logical_blocks.is_none() { physical_blocks } else { 0 }),
            self.slots,
        );
        if mapped >= u64::from(u32::MAX) {
            return Err(FormatError::Slots(self.slots).into());
        }
        let map_pages = mapped.div_ceil(ENTRIES_PER_PAGE as u64) as u32;
        let segments = (physical_blocks / u64::from(self.segment_blocks)) as u32;
        let checkpoint_blocks = checkpoint_slot_blocks(segments, map_pages);
        let resized = Geometry { physical_blocks, map_pages, checkpoint_blocks, resized: true, ..*self };
        let before = resized.with_map_at(SUPERBLOCK_COPIES);
        let claim_blocks = claim_blocks(self.claims);
        let placed = if self.is_map_behind() && before.map_end() + claim_blocks <= self.segments_start {
            before
        } else {
            let blocks = before.map_end() - SUPERBLOCK_COPIES;
            resized.with_map_at(physical_blocks.saturating_sub(blocks).max(self.segments_start))
        };
        let placed = placed.with_all_segments();
        Ok(Geometry { logical_blocks: self.capacity_in(&placed, size), ..placed })
    }

    fn with_map_at(self, checkpoint_start: u64) -> Geometry {
        let map_start = checkpoint_start + CHECKPOINT_SLOTS * u64::from(self.checkpoint_blocks);
        Geometry { checkpoint_start, map_start, ..self }
    }

    /// Blocks of the disk that are enough to grow to, if a smaller addition has no room for the map.
    fn least_grown(&self, size: NewSize) -> u64 {
        let mut least = size.physical_blocks;
        loop {
            let new = self.with_new_map(NewSize { physical_blocks: least, ..size });
            match new.map_or(0, |new| self.count_missing_blocks(&new, size)) {
                0 => return least,
                more => least += more,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_storage::{BLOCK_BYTES, Lba};

    use super::*;
    use crate::geometry::Format;
    use crate::layout::{Superblock, stamp_checksum};

    fn volume(physical_blocks: u64, slots: u32, claims: bool) -> Geometry {
        let format = Format { segment_blocks: 8, slots, ..Format::default() };
        Geometry::plan(&format, physical_blocks, 7, claims).unwrap()
    }

    /// Nothing of it overlaps, and all of it lies on the disk.
    fn is_sound(found: &Geometry) -> bool {
        let claim_blocks = claim_blocks(found.claims);
        let segments = found.segments_start..found.block(found.segments, 0);
        let map = found.checkpoint_start..found.map_end();
        let apart = map.end + claim_blocks <= segments.start || map.start >= segments.end;
        let listed = found.free_list_limit() > RESERVE_MIN as usize;
        let on_disk = map.end.max(segments.end) <= found.physical_blocks;
        apart && listed && on_disk && map.start >= SUPERBLOCK_COPIES && found.segments > RESERVE_MIN
    }

    fn resized_volumes() -> Vec<Geometry> {
        let mut found = Vec::new();
        for (slots, claims) in [(0, false), (0, true), (4, true), (32, false)] {
            let mut geometry = volume(3000, slots, claims);
            for physical_blocks in [3100, 9000, 200_000, 90_000, 5000, 1_000_000, 2000] {
                let size = NewSize { physical_blocks, logical_blocks: None };
                let new = match physical_blocks > geometry.physical_blocks {
                    true => geometry.grown_to(size),
                    false => geometry.shrunk_to(size, Occupied::default()),
                };
                geometry = new.unwrap();
                found.push(geometry);
            }
        }
        found
    }

    #[test]
    fn a_layout_of_another_size_is_sound_and_read_back_as_it_is() {
        for geometry in resized_volumes() {
            assert!(is_sound(&geometry), "{geometry:?}");
            let block = geometry.to_superblock();
            assert_eq!(Geometry::from_superblock(&block, Lba(0)), Ok(geometry));
        }
    }

    #[test]
    fn the_least_growth_that_is_named_is_enough_and_a_block_less_is_not() {
        let geometry = volume(3000, 4, true);
        let geometry = geometry.grown_to(NewSize { physical_blocks: 9000, logical_blocks: None }).unwrap();
        let grown = |physical_blocks| geometry.grown_to(NewSize { physical_blocks, logical_blocks: None });
        let Err(ResizeError::TooLittle { least }) = grown(9010) else { panic!("there is no room") };
        assert!(grown(least).is_ok());
        assert!(matches!(grown(least - 1), Err(ResizeError::TooLittle { .. })), "{least}");
    }

    /// The map does not lie at the end yet, and takes more than a small addition has.
    #[test]
    fn the_least_growth_leaves_the_capacity_that_there_was() {
        for slots in [0, 4] {
            let mut geometry = volume(3000, slots, true);
            let least = loop {
                let size = NewSize { physical_blocks: geometry.physical_blocks + 8, logical_blocks: None };
                match geometry.grown_to(size) {
                    Ok(new) => geometry = new,
                    Err(ResizeError::TooLittle { least }) => break least,
                    Err(error) => panic!("{slots} slots: {error}"),
                }
            };
            let grown =
                |physical_blocks| geometry.grown_to(NewSize { physical_blocks, logical_blocks: None });
            assert!(grown(least).unwrap().logical_blocks >= geometry.logical_blocks);
            assert!(matches!(grown(least - 1), Err(ResizeError::TooLittle { .. })), "{slots} slots: {least}");
        }
    }

    /// Where the disk stays as long, a larger map has no place: what is behind the old one may be live.
    #[test]
    fn growth_leaves_each_segment_that_there_was() {
        for geometry in resized_volumes() {
            for (longer, logical_blocks) in [(0, 10), (0, 1_000), (8, 10), (8, 1_000), (100_000, 1_000)] {
                let physical_blocks = geometry.physical_blocks + longer;
                let logical_blocks = Some(geometry.logical_blocks * logical_blocks);
                match geometry.grown_to(NewSize { physical_blocks, logical_blocks }) {
                    Ok(new) => assert!(new.segments >= geometry.segments, "{geometry:?} to {new:?}"),
                    Err(ResizeError::TooLittle { least }) => assert!(least > physical_blocks),
                    Err(error) => assert!(matches!(error, ResizeError::Volume(_)), "{error}"),
                }
            }
        }
    }

    /// Whatever the fields say under a good checksum, what is not refused is sound.
    #[test]
    fn a_superblock_of_a_resized_volume_is_refused_or_sound() {
        let (mut refused, mut sound) = (0, 0);
        for geometry in resized_volumes() {
            for field in (16..92).step_by(4) {
                let block = geometry.to_superblock();
                let was = u32::from_le_bytes(block[field..field + 4].try_into().unwrap());
                for value in [
                    0,
                    1,
                    7,
                    was ^ 1,
                    was.wrapping_sub(8),
                    was.wrapping_add(8),
                    was.wrapping_mul(2),
                    u32::MAX,
                ] {
                    let mut block = block.clone();
                    block[field..field + 4].copy_from_slice(&value.to_le_bytes());
                    stamp_checksum(&mut block[..BLOCK_BYTES], std::mem::offset_of!(Superblock, checksum));
                    match Geometry::from_superblock(&block, Lba(0)) {
                        Err(_) => refused += 1,
                        Ok(found) if is_sound(&found) => sound += 1,
                        Ok(found) => panic!("field at {field} set to {value}: {found:?}"),
                    }
                }
            }
        }
        assert!(refused > 1000 && sound > 100, "{refused} refused, {sound} sound");
    }
}
