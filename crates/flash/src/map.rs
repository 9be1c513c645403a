//! The *map*: which slot holds each logical block, and which version of it that is. Everything that the firmware
//! writes down about the map is a [`Change`]: the slots of a committed page are, and so are the entries of a
//! checkpoint's log. Running and recovering apply them in the same way.
//!
//! An entry has a version of its own, also where nothing is: a block that was discarded keeps the version of its
//! discard. So the later version wins in whatever order pages are committed or found, and nobody looks into a slot
//! to know how old it is: it may have been programmed again since.

use crate::geometry::Slot;
use crate::mutants::{FlashMutant, FlashRules};

/// What happened to one logical block, or to several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A version of a block was written to a slot.
    Written { lpn: u32, version: u64, slot: Slot },
    /// Cleaning copied a version of a block to a slot.
    Moved { lpn: u32, version: u64, slot: Slot },
    /// So many blocks from this one were discarded.
    Discarded { lpn: u32, blocks: u32, version: u64 },
}

impl Change {
    /// What a change takes on flash: a logical block, 4 bytes; a slot or a number of blocks, 4; the version and the
    /// kind, 5.
    pub(crate) const BYTES: u64 = 13;

    pub(crate) fn version(self) -> u64 {
        match self {
            Change::Written { version, .. }
            | Change::Moved { version, .. }
            | Change::Discarded { version, .. } => version,
        }
    }
}

/// An entry: the slot, 4 bytes, inverted so that zeroes mean none, and the version, 5 bytes. Side by side, since
/// looking a block up should miss the processor's caches once.
type Entry = [u8; 9];

fn entry(slot: Slot, version: u64) -> Entry {
    let ([a, b, c, d], [e, f, g, h, i, ..]) = ((!slot.0).to_le_bytes(), version.to_le_bytes());
    [a, b, c, d, e, f, g, h, i]
}

fn slot_of([a, b, c, d, ..]: Entry) -> Slot {
    Slot(!u32::from_le_bytes([a, b, c, d]))
}

fn version_of([.., a, b, c, d, e]: Entry) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])
}

/// Where everything is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Map {
    entries: Vec<Entry>,
    rules: FlashRules,
}

impl Map {
    /// The map of a device with so many logical blocks, none of them written.
    pub(crate) fn new(blocks: u64, rules: FlashRules) -> Map {
        Map { entries: vec![[0; 9]; blocks as usize], rules }
    }

    /// The map that a checkpoint holds, for firmware with these rules.
    pub(crate) fn under(&self, rules: FlashRules) -> Map {
        Map { entries: self.entries.clone(), rules }
    }

    /// Where a block is.
    pub(crate) fn slot(&self, lpn: u32) -> Slot {
        self.entries.get(lpn as usize).map_or(Slot::NONE, |entry| slot_of(*entry))
    }

    /// The version of a block, or of its discard; 0 if there was neither.
    pub(crate) fn version(&self, lpn: u32) -> u64 {
        self.entries.get(lpn as usize).map_or(0, |entry| version_of(*entry))
    }

    /// The blocks that are anywhere, and where.
    pub(crate) fn places(&self) -> impl Iterator<Item = (u32, Slot)> {
        let all = (0..).zip(self.entries.iter().map(|entry| slot_of(*entry)));
        all.filter(|(_, slot)| *slot != Slot::NONE)
    }

    /// Applies a change; false if it says nothing new. Slots that no block is in any more go to `left`.
    pub(crate) fn apply(&mut self, change: Change, left: &mut Vec<Slot>) -> bool {
        match change {
            Change::Written { lpn, version, slot } => self.set(lpn, version, slot, left),
            Change::Moved { lpn, version, slot } => {
                let known = (self.slot(lpn) != Slot::NONE).then(|| self.version(lpn));
                let goes = known == Some(version) || self.rules.drops(FlashMutant::CopyResurrected);
                goes && self.put(lpn, version, slot, left)
            }
            Change::Discarded { lpn, blocks, version } => {
                let end = lpn.saturating_add(blocks).min(self.entries.len() as u32);
                (lpn..end).filter(|lpn| self.set(*lpn, version, Slot::NONE, left)).count() > 0
            }
        }
    }

    /// The later version wins.
    fn set(&mut self, lpn: u32, version: u64, slot: Slot, left: &mut Vec<Slot>) -> bool {
        let later = version > self.version(lpn) || self.rules.drops(FlashMutant::VersionIgnored);
        later && self.put(lpn, version, slot, left)
    }

    fn put(&mut self, lpn: u32, version: u64, slot: Slot, left: &mut Vec<Slot>) -> bool {
        let Some(known) = self.entries.get_mut(lpn as usize) else { return false };
        let forgets = slot == Slot::NONE && self.rules.drops(FlashMutant::DiscardUnversioned);
        let old = slot_of(std::mem::replace(known, entry(slot, if forgets { 0 } else { version })));
        if old != Slot::NONE {
            left.push(old);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Slot = Slot(7);
    const B: Slot = Slot(9);

    fn written(version: u64, slot: Slot) -> Change {
        Change::Written { lpn: 3, version, slot }
    }

    fn moved(version: u64, slot: Slot) -> Change {
        Change::Moved { lpn: 3, version, slot }
    }

    /// Applies changes to a map of eight blocks; where block 3 is then, its version, and the slots that were left.
    fn after(changes: &[Change]) -> (Slot, u64, Vec<Slot>) {
        let mut map = Map::new(8, FlashRules::all());
        let mut left = Vec::new();
        for change in changes {
            map.apply(*change, &mut left);
        }
        (map.slot(3), map.version(3), left)
    }

    #[test]
    fn the_later_version_wins_in_any_order() {
        assert_eq!(after(&[]), (Slot::NONE, 0, vec![]));
        assert_eq!(after(&[written(1, A), written(2, B)]), (B, 2, vec![A]));
        assert_eq!(after(&[written(2, B), written(1, A)]), (B, 2, vec![]));
    }

    #[test]
    fn a_discard_is_a_version() {
        let discard = Change::Discarded { lpn: 0, blocks: u32::MAX, version: 2 };
        assert_eq!(after(&[written(1, A), discard]), (Slot::NONE, 2, vec![A]));
        assert_eq!(after(&[discard, written(1, A)]), (Slot::NONE, 2, vec![]));
        assert_eq!(after(&[discard, written(3, A)]), (A, 3, vec![]));
    }

    #[test]
    fn a_copy_takes_the_place_of_its_own_version_only() {
        assert_eq!(after(&[written(1, A), moved(1, B)]), (B, 1, vec![A]));
        assert_eq!(after(&[moved(1, B)]), (Slot::NONE, 0, vec![]));
        assert_eq!(after(&[written(2, A), moved(1, B)]), (A, 2, vec![]));
        let discard = Change::Discarded { lpn: 3, blocks: 1, version: 1 };
        assert_eq!(after(&[discard, moved(1, B)]), (Slot::NONE, 1, vec![]));
    }

    #[test]
    fn an_entry_holds_all_of_its_numbers() {
        let (slot, version) = (Slot(u32::MAX - 1), (1 << 40) - 1);
        assert_eq!(after(&[written(version, slot)]), (slot, version, vec![]));
        let nowhere = Change::Written { lpn: 8, version: 1, slot: A };
        assert_eq!(after(&[nowhere]), (Slot::NONE, 0, vec![]));
    }
}
