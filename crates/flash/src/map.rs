//! The *map*: which slot holds each logical block, and which version of it that is. Everything that the firmware
//! writes down about the map is a [`Change`]: the slots of a committed page are, and so are the entries of a
//! checkpoint's log. Running and recovering apply them in the same way.
//!
//! An entry has a version of its own, also where nothing is: a block that was discarded keeps the version of its
//! discard. So the later version wins in whatever order pages are committed or found, and nobody looks into a slot
//! to know how old it is: it may have been programmed again since.
//!
//! # Names
//!
//! A share lets several blocks read one *content*: these are its *names*. A content is known by the version that it was
//! written with, which lies in the spare area of its slot wherever cleaning moves it, and all its names are in that slot.
//! So a move names the content and not the place that it leaves, and takes all names along: also one whose share was
//! written down before the move and is committed behind it, or the other way round, and also when recovery finds the
//! move once more (F8). The slot is left when its last name is.
//!
//! Only names of contents that were shared are listed, so a map without any costs what it did, and an entry stays as
//! small as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::geometry::Slot;
use crate::mutants::{FlashMutant, FlashRules};

/// Of a share: the block `to` reads what the block `from` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) from: u32,
    pub(crate) to: u32,
}

impl Pair {
    /// What a pair takes in a record of a share: two logical blocks.
    pub(crate) const BYTES: u64 = 8;

    /// The blocks that it names.
    pub(crate) fn blocks(&self) -> [u32; 2] {
        [self.from, self.to]
    }
}

/// What happened to one logical block, or to several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// A version of a block was written to a slot.
    Written { lpn: u32, version: u64, slot: Slot },
    /// Cleaning copied to a slot what was written as this version of a block.
    Moved { lpn: u32, version: u64, slot: Slot },
    /// So many blocks from this one were discarded.
    Discarded { lpn: u32, blocks: u32, version: u64 },
    /// Each target reads what its source did before any of them changed. No block is the target of two pairs.
    Shared { version: u64, pairs: &'a Rc<[Pair]> },
}

impl Change<'_> {
    /// What an entry of a log of changes takes on flash: a logical page, 4 bytes, and a slot, 4, as in the OPTR paper. As
    /// with full checkpoints, the version is what the spare area of the slot says.
    pub(crate) const ENTRY_BYTES: u64 = 8;

    pub(crate) fn version(self) -> u64 {
        match self {
            Change::Written { version, .. }
            | Change::Moved { version, .. }
            | Change::Discarded { version, .. }
            | Change::Shared { version, .. } => version,
        }
    }

    /// Whether its slot holds data that blocks read, and not a record.
    pub(crate) fn fills_slot(self) -> bool {
        matches!(self, Change::Written { .. } | Change::Moved { .. })
    }

    /// Entries of a log of changes that it takes.
    pub(crate) fn entries(self) -> u64 {
        match self {
            Change::Written { .. } | Change::Moved { .. } => 1,
            // The pages, and the version, which no slot tells.
            Change::Discarded { .. } => 2,
            Change::Shared { pairs, .. } => pairs.len() as u64 + 1,
        }
    }
}

/// A change as a log of changes keeps it, for longer than the page that said it.
#[derive(Clone, Debug)]
pub(crate) enum Logged {
    /// Any change but a share.
    One(Change<'static>),
    Shared {
        version: u64,
        pairs: Rc<[Pair]>,
    },
}

impl Logged {
    pub(crate) fn change(&self) -> Change<'_> {
        match self {
            Logged::One(change) => *change,
            Logged::Shared { version, pairs } => Change::Shared { version: *version, pairs },
        }
    }
}

impl From<Change<'_>> for Logged {
    fn from(change: Change<'_>) -> Logged {
        match change {
            Change::Written { lpn, version, slot } => Logged::One(Change::Written { lpn, version, slot }),
            Change::Moved { lpn, version, slot } => Logged::One(Change::Moved { lpn, version, slot }),
            Change::Discarded { lpn, blocks, version } => {
                Logged::One(Change::Discarded { lpn, blocks, version })
            }
            Change::Shared { version, pairs } => Logged::Shared { version, pairs: Rc::clone(pairs) },
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
    /// The names of each content that was shared and is not left yet: by the content's version.
    names: BTreeSet<(u64, u32)>,
    /// The content of each block that reads one by a share. Others read what was written with their own version.
    shared: BTreeMap<u32, u64>,
    rules: FlashRules,
}

impl Map {
    /// The map of a device with so many logical blocks, none of them written.
    pub(crate) fn new(blocks: u64, rules: FlashRules) -> Map {
        let (names, shared) = Default::default();
        Map { entries: vec![[0; 9]; blocks as usize], names, shared, rules }
    }

    /// The map that a checkpoint holds, for firmware with these rules.
    pub(crate) fn under(&self, rules: FlashRules) -> Map {
        Map { rules, ..self.clone() }
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

    /// The slots that blocks are in, each once.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.places().filter(|(lpn, _)| self.stands_for_slot(*lpn)).map(|(_, slot)| slot)
    }

    /// Whether a block is the first name of what it reads.
    fn stands_for_slot(&self, lpn: u32) -> bool {
        self.first_name_of(self.content(lpn)).is_none_or(|first| first == lpn)
    }

    /// Whether a block reads the slot, which holds what was written as this version of `lpn`.
    pub(crate) fn reads(&self, slot: Slot, lpn: u32, version: u64) -> bool {
        self.slot(lpn) == slot || (!self.names.is_empty() && self.reads_by_share(slot, version))
    }

    #[cold]
    fn reads_by_share(&self, slot: Slot, content: u64) -> bool {
        let named = self.first_name_of(content).is_some_and(|name| self.slot(name) == slot);
        named && !self.rules.drops(FlashMutant::SharedErased)
    }

    /// Whether a content has several names, or had.
    pub(crate) fn has_names(&self) -> bool {
        !self.names.is_empty()
    }

    /// Blocks that read what was written as another version than theirs.
    pub(crate) fn shared(&self) -> u64 {
        self.shared.len() as u64
    }

    /// The version with which was written what a block reads.
    pub(crate) fn content(&self, lpn: u32) -> u64 {
        self.shared.get(&lpn).copied().unwrap_or_else(|| self.version(lpn))
    }

    /// The names of a content; none if it was never shared.
    fn names_of(&self, content: u64) -> impl Iterator<Item = u32> {
        self.names.range((content, 0)..=(content, u32::MAX)).map(|(_, lpn)| *lpn)
    }

    fn first_name_of(&self, content: u64) -> Option<u32> {
        self.names_of(content).next()
    }

    /// Whether recovery passes over a change: never, unless a rule is dropped.
    pub(crate) fn forgets(&self, change: &Change<'_>) -> bool {
        match change {
            Change::Discarded { .. } => self.rules.drops(FlashMutant::DiscardForgotten),
            Change::Shared { .. } => self.rules.drops(FlashMutant::ShareForgotten),
            Change::Written { .. } | Change::Moved { .. } => false,
        }
    }

    /// Applies a change; false if it says nothing new. Slots that no block is in any more go to `left`.
    pub(crate) fn apply(&mut self, change: Change<'_>, left: &mut Vec<Slot>) -> bool {
        match change {
            Change::Written { lpn, version, slot } => self.set(lpn, version, slot, left),
            Change::Moved { lpn, version, slot } => self.move_content(lpn, version, slot, left),
            Change::Discarded { lpn, blocks, version } => {
                let end = lpn.saturating_add(blocks).min(self.entries.len() as u32);
                (lpn..end).filter(|lpn| self.set(*lpn, version, Slot::NONE, left)).count() > 0
            }
            Change::Shared { version, pairs } => self.share(version, pairs, left),
        }
    }

    /// The later version wins.
    fn set(&mut self, lpn: u32, version: u64, slot: Slot, left: &mut Vec<Slot>) -> bool {
        self.is_later(lpn, version) && self.put(lpn, version, slot, left)
    }

    fn is_later(&self, lpn: u32, version: u64) -> bool {
        version > self.version(lpn) || self.rules.drops(FlashMutant::VersionIgnored)
    }

    fn put(&mut self, lpn: u32, version: u64, slot: Slot, left: &mut Vec<Slot>) -> bool {
        let Some(known) = self.entries.get_mut(lpn as usize) else { return false };
        let old = std::mem::replace(known, entry(slot, version));
        if slot_of(old) != Slot::NONE && (self.names.is_empty() || self.was_last_name(lpn, version_of(old))) {
            left.push(slot_of(old));
        }
        true
    }

    /// A block, which had this version, reads something else from now on. Whether it was the last name of what it read.
    #[cold]
    fn was_last_name(&mut self, lpn: u32, version: u64) -> bool {
        let content = self.shared.remove(&lpn).unwrap_or(version);
        !self.names.remove(&(content, lpn)) || self.first_name_of(content).is_none()
    }

    /// The names of a content move with it. Its own block is the only one if it was never shared.
    fn move_content(&mut self, lpn: u32, content: u64, slot: Slot, left: &mut Vec<Slot>) -> bool {
        if !self.names.is_empty()
            && let Some(first) = self.first_name_of(content)
        {
            return self.move_names(content, first, slot, left);
        }
        let known = (self.slot(lpn) != Slot::NONE).then(|| self.version(lpn));
        let goes = known == Some(content) || self.rules.drops(FlashMutant::CopyResurrected);
        goes && self.put(lpn, content, slot, left)
    }

    #[cold]
    fn move_names(&mut self, content: u64, first: u32, slot: Slot, left: &mut Vec<Slot>) -> bool {
        left.push(self.slot(first));
        let Map { entries, names, .. } = self;
        for (_, name) in names.range((content, 0)..=(content, u32::MAX)) {
            if let Some(known) = entries.get_mut(*name as usize) {
                *known = entry(slot, version_of(*known));
            }
        }
        true
    }

    /// All sources are looked up before a target changes, and new names are listed before old ones are gone: a block may
    /// be both source and target.
    #[cold]
    fn share(&mut self, version: u64, pairs: &[Pair], left: &mut Vec<Slot>) -> bool {
        let later = pairs.iter().filter(|pair| self.is_later(pair.to, version));
        let renamed: Vec<(Pair, Slot, u64)> =
            later.map(|pair| (*pair, self.slot(pair.from), self.content(pair.from))).collect();
        for (pair, _, content) in renamed.iter().filter(|(_, slot, _)| *slot != Slot::NONE) {
            self.names.extend([(*content, pair.from), (*content, pair.to)]);
        }
        for &(Pair { to, .. }, slot, content) in &renamed {
            let reads_it = slot != Slot::NONE && self.slot(to) == slot;
            if !reads_it {
                self.put(to, version, slot, left);
            } else if let Some(known) = self.entries.get_mut(to as usize) {
                *known = entry(slot, version);
            }
            if slot != Slot::NONE {
                self.shared.insert(to, content);
            }
        }
        !renamed.is_empty()
    }
}

#[cfg(test)]
mod tests;
