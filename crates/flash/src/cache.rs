//! The write-back cache: versions of logical pages that are transferred and not committed to flash yet.
//!
//! An entry is *waiting* until a page takes it, then *issued* until that page is committed, and gone then. A new
//! version takes the place of one that waits if the mechanism treats both alike: then the older one is never
//! written, and what was asked of it is asked of the newer. It does so only within its epoch, also in transactional
//! writeback, so that any prefix of the cache may become a unit: otherwise a unit that found no room on flash would
//! never end.

use std::collections::VecDeque;
use std::rc::Rc;

use hashbrown::HashTable;

use crate::clean_pages::CleanPages;
use crate::geometry::{BlockSet, Page};
use crate::map::Pair;
use crate::medium::{Content, Payload};
use crate::mutants::{FlashMutant, FlashRules};
use crate::profile::{Mechanism, Replacement};
use crate::recovery_point::Receipt;

/// The number of an entry; reused once it is gone.
pub(crate) type EntryId = u32;

/// The request that it belongs to; `None` if requests are not followed.
pub(crate) type Owner = Option<u32>;

/// A version of a logical page.
#[derive(Debug)]
pub(crate) struct Entry {
    lpn: u32,
    pub(crate) version: u64,
    payload: Payload,
    receipt: Receipt,
    /// Blocks of the logical page that are to be read before it is programmed: the rest of it is in memory.
    missing: BlockSet,
    /// The oldest version whose place it took.
    pub(crate) first_version: u64,
    epoch: u64,
    /// Versions of one group may take each other's place: the unit and the epoch, as far as they matter.
    group: (u64, u64),
    waiting: bool,
    /// A discard came later: no version after that takes its place.
    closed: bool,
    pub(crate) owner: Owner,
    /// The owners of versions whose place it took.
    pub(crate) heirs: Vec<u32>,
    /// A page that holds it is not torn (F12).
    reliable: bool,
}

impl Entry {
    /// The pairs of a share's record.
    pub(crate) fn shared_pairs(&self) -> Option<&Rc<[Pair]>> {
        if let Payload::Share(pairs) = &self.payload { Some(pairs) } else { None }
    }
}

/// Where a version comes from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Source {
    pub(crate) owner: Owner,
    /// The request that it came with.
    pub(crate) receipt: Receipt,
    /// It came by a reliable write.
    pub(crate) reliable: bool,
}

/// A version that enters the cache.
pub(crate) struct Incoming {
    pub(crate) lpn: u32,
    pub(crate) version: u64,
    pub(crate) payload: Payload,
    pub(crate) epoch: u64,
    pub(crate) of: Source,
    /// Of a logical page of several blocks, those that the host wrote, and those that are on flash alone.
    pub(crate) written: BlockSet,
    pub(crate) missing: BlockSet,
}

/// Waiting entries that a page takes.
pub(crate) struct Taken {
    pub(crate) ids: Vec<EntryId>,
    /// They end a unit.
    pub(crate) ends_unit: bool,
    /// Pages to be read first.
    pub(crate) reads: u32,
    /// One of them is reliable.
    pub(crate) reliable: bool,
}

/// The cache.
pub(crate) struct Cache {
    mechanism: Mechanism,
    replacement: Replacement,
    rules: FlashRules,
    entries: Vec<Entry>,
    unused: Vec<EntryId>,
    /// Waiting entries, in the order in which they are written back: that of their first version's transfer, or of
    /// their last one's. Those that a flush waits for come first.
    order: VecDeque<EntryId>,
    /// The newest entry of each logical page. Never iterated in an order that matters.
    index: HashTable<EntryId>,
    /// The entries of each page that was issued. Never iterated.
    pages: HashTable<(Page, Vec<EntryId>)>,
    spare_lists: Vec<Vec<EntryId>>,
    /// In-order writeback: epochs with entries that are not committed yet, and how many.
    epochs: VecDeque<(u64, u64)>,
    /// Transactional writeback: waiting entries of the unit that is being written back.
    unit_left: usize,
    /// Units begun.
    units: u64,
    /// No version takes the place of one up to this: a flush waits for it (order-preserving recovery).
    closed_to: u64,
    /// A flush waits for everything up to this: it keeps its place in the order.
    flushed_to: u64,
    capacity: usize,
    /// Places promised to commands that are being transferred.
    reserved: usize,
    /// What is committed and still here (LRU).
    clean: Option<CleanPages>,
    /// Where what waits must find room on flash before anything is cleaned (order-preserving recovery).
    budget: Option<Budget>,
}

/// Pages that what waits in the cache may need.
struct Budget {
    /// Logical pages that a page holds.
    slots: usize,
    /// With what is promised.
    pages_max: usize,
    /// Pages that commands which are being transferred need.
    reserved: usize,
}

impl Budget {
    /// Pages that so many waiting versions may need, and each command that is being transferred, if it is written by
    /// itself.
    fn needed(&self, waiting: usize) -> usize {
        waiting.div_ceil(self.slots) + self.reserved
    }
}

fn hash(word: u32) -> u64 {
    u64::from(word).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Cache {
    /// A cache of so many logical pages, of which a page on flash holds `slots`.
    pub(crate) fn new(
        capacity: usize,
        slots: usize,
        (mechanism, replacement): (Mechanism, Replacement),
        rules: FlashRules,
    ) -> Cache {
        let ordered = mechanism == Mechanism::OrderPreservingRecovery;
        Cache {
            mechanism,
            replacement,
            rules,
            entries: Vec::new(),
            unused: Vec::new(),
            order: VecDeque::new(),
            index: HashTable::new(),
            pages: HashTable::new(),
            spare_lists: Vec::new(),
            epochs: VecDeque::new(),
            unit_left: 0,
            units: 0,
            closed_to: 0,
            flushed_to: 0,
            capacity,
            reserved: 0,
            clean: (replacement == Replacement::Lru).then(CleanPages::default),
            budget: ordered.then_some(Budget { slots, pages_max: 0, reserved: 0 }),
        }
    }

    /// Entries that are not committed yet.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.unused.len()
    }

    /// Entries that no page has taken.
    pub(crate) fn waiting(&self) -> usize {
        self.order.len()
    }

    /// Whether the versions that a command brings find places: so many by each of its writes.
    pub(crate) fn has_room(&self, places: impl Iterator<Item = usize> + Clone) -> bool {
        let in_budget = |budget: &Budget| {
            let pages: usize = places.clone().map(|places| places.div_ceil(budget.slots)).sum();
            budget.needed(self.waiting()) + pages <= budget.pages_max
        };
        let all: usize = places.clone().sum();
        self.len() + self.reserved + all <= self.capacity && self.budget.as_ref().is_none_or(in_budget)
    }

    /// Promises places to a command.
    pub(crate) fn reserve(&mut self, places: usize) {
        self.reserved += places;
        if let Some(budget) = &mut self.budget {
            budget.reserved += places.div_ceil(budget.slots);
        }
    }

    /// The command that was promised places takes them.
    pub(crate) fn redeem(&mut self, places: usize) {
        self.reserved -= places;
        if let Some(budget) = &mut self.budget {
            budget.reserved -= places.div_ceil(budget.slots);
        }
    }

    /// Lets what waits need so many pages at most. How many it may need now.
    pub(crate) fn limit(&mut self, pages_max: usize) -> usize {
        let waiting = self.waiting();
        let Some(budget) = &mut self.budget else { return 0 };
        budget.pages_max = pages_max;
        budget.needed(waiting)
    }

    /// Lets no version take the place of one up to this one any more.
    pub(crate) fn close_to(&mut self, version: u64) {
        self.closed_to = version;
    }

    /// Everything up to this version is to be written back in the order that it has now.
    pub(crate) fn flush_to(&mut self, version: u64) {
        self.flushed_to = version;
    }

    fn group(&self, epoch: u64) -> (u64, u64) {
        match self.mechanism {
            _ if self.rules.drops(FlashMutant::CoalescesAcrossEpochs) => (0, 0),
            Mechanism::None | Mechanism::PowerLossProtection | Mechanism::OrderPreservingRecovery => (0, 0),
            Mechanism::InOrderWriteback | Mechanism::InOrderRecovery => (0, epoch),
            Mechanism::TransactionalWriteback => (self.units, epoch),
        }
    }

    /// Takes a version in; where it took the place of an older one, what request that came with.
    pub(crate) fn insert(&mut self, incoming: Incoming) -> Option<Receipt> {
        let Incoming { lpn, version, payload, epoch, of, written, missing } = incoming;
        let Source { owner, receipt, reliable } = of;
        let group = self.group(epoch);
        let discarded = if let Payload::Discard(blocks) = payload { Some(blocks) } else { None };
        let is_record = payload.is_record();
        let newest = if is_record { None } else { self.newest(lpn) };
        if let Some(id) = newest {
            let entry = &mut self.entries[id as usize];
            let open = !entry.closed && entry.version > self.closed_to;
            if entry.waiting && open && entry.group == group {
                entry.heirs.extend(entry.owner.take());
                (entry.version, entry.payload, entry.owner) = (version, payload, owner);
                entry.reliable = reliable;
                entry.missing &= !written;
                let earlier = std::mem::replace(&mut entry.receipt, receipt);
                self.used_again(id);
                self.clean.iter_mut().for_each(|clean| clean.written(lpn, version, false));
                return Some(earlier);
            }
        }
        let first_version = version;
        let entry = Entry {
            lpn,
            version,
            payload,
            receipt,
            missing,
            first_version,
            epoch,
            group,
            waiting: true,
            closed: false,
            owner,
            heirs: Vec::new(),
            reliable,
        };
        let id = self.place(entry);
        if let Some(clean) = &mut self.clean {
            clean.written(lpn, version, is_record);
            self.shrink_clean();
        }
        self.order.push_back(id);
        self.count_epoch(epoch);
        match discarded {
            Some(blocks) => self.of_covered(lpn, blocks, |entry| {
                entry.closed = true;
                true
            }),
            None if is_record => {}
            None => self.point_to(lpn, id),
        }
        None
    }

    /// A waiting entry has a new version: the last to be written back, where that is the order. Caches with this order are
    /// small enough to be searched.
    fn used_again(&mut self, id: EntryId) {
        let kept = self.entries[id as usize].first_version <= self.flushed_to;
        if self.replacement == Replacement::Fifo || kept {
            return;
        }
        if let Some(place) = self.order.iter().position(|other| *other == id) {
            self.order.remove(place);
            self.order.push_back(id);
        }
    }

    fn place(&mut self, entry: Entry) -> EntryId {
        match self.unused.pop() {
            Some(id) => {
                self.entries[id as usize] = entry;
                id
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as EntryId
            }
        }
    }

    fn count_epoch(&mut self, epoch: u64) {
        if self.mechanism == Mechanism::InOrderWriteback {
            match self.epochs.back_mut() {
                Some((last, count)) if *last == epoch => *count += 1,
                _ => self.epochs.push_back((epoch, 1)),
            }
        }
    }

    fn newest(&self, lpn: u32) -> Option<EntryId> {
        self.index.find(hash(lpn), |id| self.entries[*id as usize].lpn == lpn).copied()
    }

    fn point_to(&mut self, lpn: u32, id: EntryId) {
        let entries = &self.entries;
        match self.index.find_mut(hash(lpn), |other| entries[*other as usize].lpn == lpn) {
            Some(newest) => *newest = id,
            None => {
                self.index.insert_unique(hash(lpn), id, |other| hash(entries[*other as usize].lpn));
            }
        }
    }

    /// Looks at the newest version of each of so many blocks, and keeps those findable that `keep` says.
    fn of_covered(&mut self, lpn: u32, blocks: u32, mut keep: impl FnMut(&mut Entry) -> bool) {
        let covered = lpn..lpn.saturating_add(blocks);
        let entries = &mut self.entries;
        if covered.len() > self.index.len() {
            let is_covered = |entry: &Entry| covered.contains(&entry.lpn);
            self.index.retain(|id| {
                let entry = &mut entries[*id as usize];
                !is_covered(entry) || keep(entry)
            });
            return;
        }
        for lpn in covered {
            let found = self.index.find_entry(hash(lpn), |id| entries[*id as usize].lpn == lpn);
            if let Ok(newest) = found
                && !keep(&mut entries[*newest.get() as usize])
            {
                newest.remove();
            }
        }
    }

    /// Whether a logical page that is committed is still here.
    pub(crate) fn has_clean(&mut self, lpn: u32) -> bool {
        self.clean.as_mut().is_some_and(|clean| clean.find(lpn))
    }

    fn shrink_clean(&mut self) {
        let places = self.capacity.saturating_sub(self.len());
        self.clean.iter_mut().for_each(|clean| clean.shrink_to(places));
    }

    /// The newest version of a logical page.
    pub(crate) fn find(&self, lpn: u32) -> Option<Content> {
        self.newest(lpn).map(|id| self.content(id))
    }

    /// Whether it has a version of a logical page that is not committed.
    pub(crate) fn has(&self, lpn: u32) -> bool {
        self.newest(lpn).is_some()
    }

    fn content(&self, id: EntryId) -> Content {
        let entry = &self.entries[id as usize];
        let Entry { lpn, version, receipt, .. } = *entry;
        Content { lpn, version, payload: entry.payload.clone(), receipt }
    }

    /// Every version that is not committed yet, oldest first: what capacitors save. Discards and shares are answered
    /// when they are committed, so these may be lost.
    pub(crate) fn all(&self) -> Vec<Content> {
        let mut live = vec![true; self.entries.len()];
        self.unused.iter().for_each(|id| live[*id as usize] = false);
        let ids = (0..self.entries.len() as EntryId).filter(|id| live[*id as usize]);
        let mut contents: Vec<Content> = ids.map(|id| self.content(id)).collect();
        contents.retain(|content| !content.payload.is_record());
        contents.sort_unstable_by_key(|content| content.version);
        contents
    }

    /// Begins a unit of what waits, where there is none (transactional writeback): of `most` entries at most,
    /// since a unit that finds no room on flash would never end. Whether one begins.
    pub(crate) fn begin_unit(&mut self, most: usize) -> bool {
        let begins = self.mechanism == Mechanism::TransactionalWriteback && self.unit_left == 0 && most > 0;
        if begins {
            self.unit_left = most.min(self.order.len());
            self.units += 1;
        }
        begins
    }

    /// Waiting entries of the unit that is being written back; 0 where there is none.
    pub(crate) fn unit_left(&self) -> usize {
        self.unit_left
    }

    /// How many of the waiting entries the next page may take, up to `most`, and whether nothing can join them
    /// any more, so that a full page will never come.
    pub(crate) fn eligible(&self, most: usize) -> (usize, bool) {
        let Some(first) = self.order.front().map(|id| &self.entries[*id as usize]) else { return (0, false) };
        match self.mechanism {
            Mechanism::TransactionalWriteback => (most.min(self.unit_left), self.unit_left <= most),
            Mechanism::InOrderWriteback if !self.rules.drops(FlashMutant::EpochsMixed) => {
                if self.epochs.front().is_some_and(|(oldest, _)| *oldest != first.epoch) {
                    return (0, false);
                }
                let entries = self.order.iter().take(most).map(|id| &self.entries[*id as usize]);
                let run = entries.take_while(|entry| entry.epoch == first.epoch).count();
                (run, self.order.len() > run)
            }
            _ => (most.min(self.order.len()), false),
        }
    }

    /// The first of the waiting entries that a page may take whose logical page `may` be written back now. A log has
    /// its epochs in order (in-order recovery).
    pub(crate) fn first_that(&self, may: impl Fn(u32) -> bool) -> Option<usize> {
        let (run, _) = self.eligible(usize::MAX);
        let one_epoch = self.mechanism == Mechanism::InOrderRecovery;
        let mut entries = self.order.iter().take(run).map(|id| &self.entries[*id as usize]).peekable();
        let oldest = entries.peek()?.epoch;
        entries.take_while(|entry| !one_epoch || entry.epoch == oldest).position(|entry| may(entry.lpn))
    }

    /// Whether a waiting entry has a version up to this one.
    pub(crate) fn waits_since(&self, place: usize, version: u64) -> bool {
        self.order.get(place).is_some_and(|id| self.entries[*id as usize].first_version <= version)
    }

    /// Takes `count` waiting entries from this place on for a page. Tell [`Cache::issued`] which page it was.
    pub(crate) fn take(&mut self, place: usize, count: usize, contents: &mut Vec<Content>) -> Taken {
        let mut ids = self.spare_lists.pop().unwrap_or_default();
        let (mut reads, mut reliable) = (0, false);
        for _ in 0..count {
            let next = match place {
                0 => self.order.pop_front(),
                place => self.order.remove(place),
            };
            let Some(id) = next else { break };
            let entry = &mut self.entries[id as usize];
            entry.waiting = false;
            reads += u32::from(entry.missing != 0);
            reliable |= entry.reliable;
            contents.push(self.content(id));
            ids.push(id);
        }
        let in_unit = self.unit_left > 0;
        self.unit_left = self.unit_left.saturating_sub(ids.len());
        Taken { ids, ends_unit: in_unit && self.unit_left == 0, reads, reliable }
    }

    /// The page that took entries.
    pub(crate) fn issued(&mut self, page: Page, ids: Vec<EntryId>) {
        self.pages.insert_unique(hash(page.0), (page, ids), |(page, _)| hash(page.0));
    }

    /// A page is committed: its entries leave the cache, each is passed to `gone` first.
    pub(crate) fn committed(&mut self, page: Page, mut gone: impl FnMut(&Entry)) {
        let Ok(found) = self.pages.find_entry(hash(page.0), |(other, _)| *other == page) else { return };
        let ((_, mut ids), _) = found.remove();
        for id in ids.drain(..) {
            let entry = &mut self.entries[id as usize];
            gone(entry);
            entry.heirs.clear();
            let payload = std::mem::replace(&mut entry.payload, Payload::Version);
            let (lpn, version, epoch) = (entry.lpn, entry.version, entry.epoch);
            if let Ok(newest) = self.index.find_entry(hash(lpn), |newest| *newest == id) {
                newest.remove();
            }
            if self.mechanism == Mechanism::InOrderWriteback
                && let Some((_, count)) = self.epochs.iter_mut().find(|(other, _)| *other == epoch)
            {
                *count -= 1;
            }
            self.unused.push(id);
            if let Some(clean) = &mut self.clean {
                match &payload {
                    Payload::Discard(blocks) => clean.forget(lpn..lpn.saturating_add(*blocks)),
                    Payload::Share(pairs) => {
                        pairs.iter().for_each(|pair| clean.forget(pair.to..pair.to.saturating_add(1)));
                    }
                    _ => clean.keep(lpn, version),
                }
            }
            // What it covers is found until then, and never again.
            if let Payload::Discard(blocks) = payload {
                self.of_covered(lpn, blocks, |entry| entry.version > version);
            }
        }
        while self.epochs.front().is_some_and(|(_, count)| *count == 0) {
            self.epochs.pop_front();
        }
        self.spare_lists.push(ids);
        if self.clean.is_some() {
            self.shrink_clean();
        }
    }
}
