//! The write cache of the disk and the medium under it: which versions of each tear unit may be found
//! after a power cut, and how they become durable.
//!
//! Writes are numbered by a *key*, in the order that counts on this device: of transfer, or of receipt
//! on a prefix device, where a write enters the cache when it is submitted. A unit holds its durable
//! content and all later versions; a version leaves when a later one is durable, so the cache holds no
//! more than what a power cut may still decide.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;
use std::rc::Rc;

use weir_runtime::Random;

use super::crash::Choice;
use super::image::{Image, Unit, garbled};
use super::queue::Completion;
use crate::command::Tag;

/// Writes that the cache holds at most, beside those in flight; the oldest is written back beyond it.
const WRITES_MAX: usize = 4096;

/// One version of one unit.
#[derive(Clone)]
struct Version {
    key: u64,
    /// Which layer of the crash states it belongs to: its epoch, or its key on a prefix device.
    layer: u64,
    /// Part of a write that persists as a whole.
    atomic: bool,
    /// False for a write that a prefix device received and has not transferred.
    transferred: bool,
    content: Unit,
}

/// The version of a unit that a read finds, of those in the cache.
fn newest_transferred(versions: &[Version]) -> Option<&Version> {
    versions.iter().rev().find(|version| version.transferred)
}

/// A write with versions in the cache.
struct Cached {
    /// The command that it came with, in order of submission.
    number: u64,
    layer: u64,
    atomic: bool,
    transferred: bool,
    units: Vec<u32>,
    /// Units whose version, or a later one, is not durable yet.
    left: usize,
    tags: Vec<Tag>,
    completion: Option<Rc<Completion>>,
}

/// A write that has become durable, or that will never be.
pub(super) struct Settled {
    pub(super) tags: Vec<Tag>,
    pub(super) completion: Option<Rc<Completion>>,
}

/// What a write brings into the cache.
pub(super) struct Entry {
    pub(super) number: u64,
    pub(super) units: Vec<(u32, Unit)>,
    pub(super) layer: u64,
    pub(super) atomic: bool,
    pub(super) transferred: bool,
    pub(super) tags: Vec<Tag>,
    pub(super) completion: Option<Rc<Completion>>,
}

/// A write that is being transferred and may persist in part.
pub(super) struct InFlight<'a> {
    pub(super) units: &'a [(u32, Unit)],
    pub(super) layer: u64,
    pub(super) atomic: bool,
}

/// The cache and the medium.
pub(super) struct Cache {
    medium: Image,
    pending: BTreeMap<u32, Vec<Version>>,
    writes: BTreeMap<u64, Cached>,
}

impl Cache {
    pub(super) fn new(medium: Image) -> Cache {
        Cache { medium, pending: BTreeMap::new(), writes: BTreeMap::new() }
    }

    pub(super) fn medium(&self) -> &Image {
        &self.medium
    }

    pub(super) fn medium_mut(&mut self) -> &mut Image {
        &mut self.medium
    }

    /// Whether nothing waits to become durable.
    pub(super) fn is_clean(&self) -> bool {
        self.writes.is_empty()
    }

    /// Puts a write into the cache. Keys only grow.
    pub(super) fn enter(&mut self, key: u64, entry: Entry) {
        let Entry { number, units, layer, atomic, transferred, tags, completion } = entry;
        let numbers: Vec<u32> = units.iter().map(|(unit, _)| *unit).collect();
        for (unit, content) in units {
            let version = Version { key, layer, atomic, transferred, content };
            self.pending.entry(unit).or_default().push(version);
        }
        let left = numbers.len();
        let cached = Cached { number, layer, atomic, transferred, units: numbers, left, tags, completion };
        self.writes.insert(key, cached);
    }

    /// The data of a write that had entered before has arrived (prefix devices).
    pub(super) fn transfer(&mut self, key: u64, tags: Vec<Tag>, completion: Option<Rc<Completion>>) {
        let Some(cached) = self.writes.get_mut(&key) else { return };
        (cached.transferred, cached.tags, cached.completion) = (true, tags, completion);
        for number in &cached.units {
            let versions = self.pending.get_mut(number).into_iter().flatten();
            versions.filter(|version| version.key == key).for_each(|version| version.transferred = true);
        }
    }

    /// A write leaves without ever becoming durable. Later keys stay.
    pub(super) fn withdraw(&mut self, key: u64) -> Option<Settled> {
        let cached = self.writes.remove(&key)?;
        for number in &cached.units {
            self.drop_version(*number, key);
        }
        Some(Settled { tags: cached.tags, completion: cached.completion })
    }

    fn drop_version(&mut self, number: u32, key: u64) {
        if let Some(versions) = self.pending.get_mut(&number) {
            versions.retain(|version| version.key != key);
            if versions.is_empty() {
                self.pending.remove(&number);
            }
        }
    }

    /// What reads find, everywhere.
    pub(super) fn view(&self) -> Image {
        let mut image = self.medium.clone();
        self.visit_transferred(.., &mut |number, unit| image.set(number, unit.clone()));
        image
    }

    /// What a read finds: the newest version that was transferred.
    pub(super) fn read(&self, number: u32) -> &Unit {
        let newest = self.pending.get(&number).and_then(|versions| newest_transferred(versions));
        newest.map_or_else(|| self.medium.unit(number), |version| &version.content)
    }

    /// Calls `visit` with each of these units that has a transferred version in the cache, and the newest of them.
    pub(super) fn visit_transferred(&self, units: impl RangeBounds<u32>, visit: &mut impl FnMut(u32, &Unit)) {
        for (number, versions) in self.pending.range(units) {
            if let Some(newest) = newest_transferred(versions) {
                visit(*number, &newest.content);
            }
        }
    }

    /// What a unit holds once everything received is transferred.
    pub(super) fn last_received(&self, number: u32) -> &Unit {
        let newest = self.pending.get(&number).and_then(|versions| versions.last());
        newest.map_or_else(|| self.medium.unit(number), |version| &version.content)
    }

    /// Whether everything before `key` is transferred.
    pub(super) fn transferred_before(&self, key: u64) -> bool {
        self.writes.range(..key).all(|(_, cached)| cached.transferred)
    }

    /// The last key that was transferred and is still in the cache, or 0.
    pub(super) fn last_transferred(&self) -> u64 {
        self.writes.iter().rev().find(|(_, cached)| cached.transferred).map_or(0, |(key, _)| *key)
    }

    /// The last key that came with a command submitted before command `number`, or 0.
    pub(super) fn last_submitted_before(&self, number: u64) -> u64 {
        self.writes.iter().rev().find(|(_, cached)| cached.number < number).map_or(0, |(key, _)| *key)
    }

    /// Whether anything up to `key` is not durable.
    pub(super) fn pending_through(&self, key: u64) -> bool {
        self.writes.range(..=key).next().is_some()
    }

    /// The last key of a layer before `layer`.
    pub(super) fn last_before_layer(&self, layer: u64) -> u64 {
        self.writes.iter().rev().find(|(_, cached)| cached.layer < layer).map_or(0, |(key, _)| *key)
    }

    /// Everything up to `through` becomes durable.
    pub(super) fn persist_through(&mut self, through: u64) -> Vec<Settled> {
        let rest = self.writes.split_off(&through.saturating_add(1));
        let done = std::mem::replace(&mut self.writes, rest);
        let touched: BTreeSet<u32> = done.values().flat_map(|cached| cached.units.iter().copied()).collect();
        for number in touched {
            self.persist_unit(number, through);
        }
        done.into_values()
            .map(|cached| Settled { tags: cached.tags, completion: cached.completion })
            .collect()
    }

    /// One write becomes durable, and with it older versions of what it wrote.
    pub(super) fn persist_write(&mut self, key: u64) -> Vec<Settled> {
        let Some(cached) = self.writes.remove(&key) else { return Vec::new() };
        let mut superseded: Vec<u64> =
            cached.units.iter().flat_map(|number| self.persist_unit(*number, key)).collect();
        superseded.retain(|older| *older != key);
        let mut settled = self.count_down(superseded);
        settled.push(Settled { tags: cached.tags, completion: cached.completion });
        settled
    }

    /// The newest version of a unit up to `through` becomes durable; gives back the keys of those that
    /// this settles.
    fn persist_unit(&mut self, number: u32, through: u64) -> Vec<u64> {
        let Some(versions) = self.pending.get_mut(&number) else { return Vec::new() };
        let split = versions.partition_point(|version| version.key <= through);
        let older: Vec<Version> = versions.drain(..split).collect();
        if versions.is_empty() {
            self.pending.remove(&number);
        }
        if let Some(version) = older.last() {
            self.medium.set(number, version.content.clone());
        }
        older.iter().map(|version| version.key).collect()
    }

    /// Each of these writes has one unit fewer to wait for.
    fn count_down(&mut self, mut keys: Vec<u64>) -> Vec<Settled> {
        keys.sort_unstable();
        let mut settled = Vec::new();
        for key in keys {
            let Some(cached) = self.writes.get_mut(&key) else { continue };
            cached.left -= 1;
            if cached.left == 0
                && let Some(cached) = self.writes.remove(&key)
            {
                settled.push(Settled { tags: cached.tags, completion: cached.completion });
            }
        }
        settled
    }

    /// A cache that is full makes room: its oldest write becomes durable, which every order allows.
    pub(super) fn make_room(&mut self) -> Vec<Settled> {
        match self.writes.first_key_value() {
            Some((&oldest, cached)) if cached.transferred && self.writes.len() > WRITES_MAX => {
                self.persist_write(oldest)
            }
            _ => Vec::new(),
        }
    }

    /// The device writes something back by itself: a unit, or a whole write, of the oldest layer.
    pub(super) fn write_back(&mut self, random: &mut Random) -> Vec<Settled> {
        let Some(oldest) = self.writes.values().map(|cached| cached.layer).min() else { return Vec::new() };
        let candidates: Vec<u64> =
            self.writes.iter().filter(|(_, cached)| cached.layer == oldest).map(|(key, _)| *key).collect();
        let key = candidates[random.below(candidates.len() as u64) as usize];
        let Some(cached) = self.writes.get(&key) else { return Vec::new() };
        if !cached.transferred {
            return Vec::new();
        }
        if cached.atomic || cached.units.is_empty() || random.below(4) == 0 {
            return self.persist_write(key);
        }
        let number = cached.units[random.below(cached.units.len() as u64) as usize];
        let settled = self.persist_unit(number, key);
        self.count_down(settled)
    }

    /// A failed flush: everything up to `through` is lost or kept, by units, or on a prefix device by
    /// requests from the end. What is lost never becomes durable.
    pub(super) fn lose(&mut self, through: u64, prefix: bool, random: &mut Random) -> Vec<Settled> {
        let keys: Vec<u64> = self.writes.range(..=through).map(|(key, _)| *key).collect();
        let kept = random.below(keys.len() as u64 + 1) as usize;
        let mut lost = Vec::new();
        for (i, key) in keys.into_iter().enumerate() {
            let Some(cached) = self.writes.get(&key) else { continue };
            if prefix || cached.atomic {
                let goes = if prefix { i >= kept } else { random.below(2) == 0 };
                lost.extend(goes.then(|| self.withdraw(key)).flatten());
                continue;
            }
            let gone: Vec<u32> = cached.units.iter().copied().filter(|_| random.below(2) == 0).collect();
            lost.extend(self.lose_units(key, &gone));
        }
        lost
    }

    /// The rest of a write that lost units stays in the cache, under its key and without its name.
    fn lose_units(&mut self, key: u64, gone: &[u32]) -> Option<Settled> {
        let cached = self.writes.get_mut(&key).filter(|_| !gone.is_empty())?;
        let lost = Settled { tags: std::mem::take(&mut cached.tags), completion: cached.completion.take() };
        let still =
            |number: &u32| self.pending.get(number).is_some_and(|all| all.iter().any(|v| v.key == key));
        let present = gone.iter().filter(|number| still(number)).count();
        cached.left -= present;
        cached.units.retain(|number| !gone.contains(number));
        if cached.left == 0 {
            self.writes.remove(&key);
        }
        for number in gone {
            self.drop_version(*number, key);
        }
        Some(lost)
    }

    /// Forgets all waiting tasks: the power is gone.
    pub(super) fn abandon(&mut self) -> Vec<Rc<Completion>> {
        self.writes.values_mut().filter_map(|cached| cached.completion.take()).collect()
    }

    /// The layers of the crash states, the writes in flight in the youngest of theirs. What is not atomic may be left
    /// as garbage where the disk `garbles` (S4).
    pub(super) fn layers(&self, in_flight: &[InFlight<'_>], garbles: bool) -> Vec<Vec<Choice>> {
        let cached = self.pending.iter().flat_map(|(number, versions)| {
            versions.iter().map(move |v| Candidate {
                layer: v.layer,
                key: v.key,
                number: *number,
                atomic: v.atomic,
                content: &v.content,
            })
        });
        let flying = in_flight.iter().enumerate().flat_map(|(i, write)| {
            write.units.iter().map(move |(number, content)| Candidate {
                layer: write.layer,
                // Behind everything transferred, in order of submission.
                key: u64::MAX - in_flight.len() as u64 + i as u64,
                number: *number,
                atomic: write.atomic,
                content,
            })
        });
        let unit_bytes = self.medium.unit_bytes();
        let garbage = |candidate: &Candidate<'_>| {
            let old = self.medium.unit(candidate.number);
            (garbles && !candidate.atomic).then(|| garbled(old, candidate.content, unit_bytes))
        };
        choices(cached.chain(flying).collect(), garbage)
    }
}

/// A version that a power cut decides about.
struct Candidate<'a> {
    layer: u64,
    key: u64,
    number: u32,
    atomic: bool,
    content: &'a Unit,
}

/// Turns candidates into choices. A unit that an atomic write touches cannot be decided on its own:
/// all its versions become pieces, applied in order. Garbage comes before the version that it stands for, which is
/// the newest that may be left, and what is left of a layer that is applied.
fn choices(
    mut candidates: Vec<Candidate<'_>>,
    garbage: impl Fn(&Candidate<'_>) -> Option<Unit>,
) -> Vec<Vec<Choice>> {
    let entangled: BTreeSet<(u64, u32)> =
        candidates.iter().filter(|c| c.atomic).map(|c| (c.layer, c.number)).collect();
    candidates.sort_by_key(|c| (c.layer, c.key, c.number));
    let mut layers: BTreeMap<u64, Vec<Choice>> = BTreeMap::new();
    let mut unit_at: BTreeMap<(u64, u32), usize> = BTreeMap::new();
    let mut piece_of: Option<(u64, u64)> = None;
    for candidate in candidates {
        let garbage = garbage(&candidate);
        let Candidate { layer, key, number, atomic, content } = candidate;
        let choices = layers.entry(layer).or_default();
        if atomic && piece_of == Some((layer, key)) {
            if let Some(Choice::Piece(units)) = choices.last_mut() {
                units.push((number, content.clone()));
            }
        } else if atomic || entangled.contains(&(layer, number)) {
            let versions = garbage.into_iter().chain([content.clone()]);
            choices.extend(versions.map(|version| Choice::Piece(vec![(number, version)])));
            piece_of = atomic.then_some((layer, key));
        } else {
            let place = *unit_at.entry((layer, number)).or_insert(choices.len());
            match choices.get_mut(place) {
                Some(Choice::Unit { versions, .. }) => versions.push(content.clone()),
                _ => {
                    let versions = garbage.into_iter().chain([content.clone()]).collect();
                    choices.push(Choice::Unit { number, versions });
                }
            }
        }
    }
    layers.into_values().collect()
}
