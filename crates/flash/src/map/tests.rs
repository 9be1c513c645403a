//! The map by itself: versions, discards, copies, names; and whatever is on its way at once, replaying it in the order of
//! the pages finds what running it did.

use super::*;

const A: Slot = Slot(7);
const B: Slot = Slot(9);

fn written(version: u64, slot: Slot) -> Change<'static> {
    Change::Written { lpn: 3, version, slot }
}

fn moved(version: u64, slot: Slot) -> Change<'static> {
    Change::Moved { lpn: 3, version, slot }
}

/// The pairs are never freed: there are few.
fn shared(version: u64, pairs: &[(u32, u32)]) -> Change<'static> {
    let pairs: Rc<[Pair]> = pairs.iter().map(|(from, to)| Pair { from: *from, to: *to }).collect();
    Change::Shared { version, pairs: Box::leak(Box::new(pairs)) }
}

/// A map of eight blocks after these changes, and the slots that were left.
fn applied(changes: &[Change<'_>]) -> (Map, Vec<Slot>) {
    let mut map = Map::new(8, FlashRules::all());
    let mut left = Vec::new();
    for change in changes {
        map.apply(*change, &mut left);
    }
    (map, left)
}

/// Where block 3 is after these changes, its version, and the slots that were left.
fn after(changes: &[Change<'_>]) -> (Slot, u64, Vec<Slot>) {
    let (map, left) = applied(changes);
    (map.slot(3), map.version(3), left)
}

/// Where the first five blocks are after these changes, and the slots that were left.
fn slots(changes: &[Change<'_>]) -> ([Slot; 5], Vec<Slot>) {
    let (map, left) = applied(changes);
    ([0, 1, 2, 3, 4].map(|lpn| map.slot(lpn)), left)
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

const NO: Slot = Slot::NONE;

#[test]
fn a_slot_is_left_with_its_last_name() {
    let both = [written(1, A), shared(2, &[(3, 4)])];
    assert_eq!(slots(&both), ([NO, NO, NO, A, A], vec![]));
    let one = [&both[..], &[written(3, B)]].concat();
    assert_eq!(slots(&one), ([NO, NO, NO, B, A], vec![]));
    let discard = |lpn, version| Change::Discarded { lpn, blocks: 1, version };
    assert_eq!(slots(&[&one[..], &[discard(4, 4)]].concat()), ([NO, NO, NO, B, NO], vec![A]));
    assert_eq!(slots(&[&both[..], &[discard(3, 4)]].concat()), ([NO, NO, NO, NO, A], vec![]));
    let (map, _) = applied(&one);
    assert!(map.reads(A, 3, 1) && map.reads(B, 3, 3) && !map.reads(Slot(11), 3, 1));
    assert_eq!((map.shared(), map.slots().collect::<Vec<_>>()), (1, vec![B, A]));
}

#[test]
fn a_share_is_a_version_and_one_of_nothing_leaves_nothing() {
    let over = [written(1, A), Change::Written { lpn: 4, version: 2, slot: B }, shared(3, &[(3, 4)])];
    assert_eq!(slots(&over), ([NO, NO, NO, A, A], vec![B]));
    let late = [&over[..], &[Change::Written { lpn: 4, version: 2, slot: B }]].concat();
    assert_eq!(slots(&late), slots(&over));
    assert_eq!(slots(&[written(1, A), shared(2, &[(0, 3)])]), ([NO; 5], vec![A]));
}

#[test]
fn a_share_is_shared_on_and_survives_what_it_came_from() {
    let chain = [written(1, A), shared(2, &[(3, 4)]), shared(3, &[(4, 0)]), written(4, B)];
    assert_eq!(slots(&chain), ([A, NO, NO, B, A], vec![]));
    // Shared once more to a name that it has, and back to the block that it was written for.
    let again = [&chain[..], &[shared(5, &[(4, 0)]), shared(6, &[(0, 3)])]].concat();
    assert_eq!(slots(&again), ([A, NO, NO, A, A], vec![B]));
    let (map, _) = applied(&again);
    assert_eq!((map.version(0), map.version(3), map.version(4)), (5, 6, 2));
}

#[test]
fn pairs_of_one_share_see_what_was_before_it() {
    let two = [written(1, A), Change::Written { lpn: 4, version: 2, slot: B }];
    assert_eq!(slots(&[&two[..], &[shared(3, &[(3, 4), (4, 3)])]].concat()), ([NO, NO, NO, B, A], vec![]));
    assert_eq!(slots(&[&two[..], &[shared(3, &[(3, 4), (4, 0)])]].concat()), ([B, NO, NO, A, A], vec![]));
}

#[test]
fn a_copy_takes_all_names_along() {
    let both = [written(1, A), shared(2, &[(3, 4)])];
    assert_eq!(slots(&[&both[..], &[moved(1, B)]].concat()), ([NO, NO, NO, B, B], vec![A]));
    // In the other order, and where the block that it was written for reads something else.
    assert_eq!(slots(&[written(1, A), moved(1, B), shared(2, &[(3, 4)])]), ([NO, NO, NO, B, B], vec![A]));
    let without = [&both[..], &[written(3, B), moved(1, Slot(11))]].concat();
    assert_eq!(slots(&without), ([NO, NO, NO, B, Slot(11)], vec![A]));
    // Nobody reads it any more.
    let gone = [&both[..], &[written(3, B), shared(4, &[(0, 4)]), moved(1, Slot(11))]].concat();
    assert_eq!(slots(&gone), ([NO, NO, NO, B, NO], vec![A]));
}

const BLOCKS: u32 = 12;

/// Firmware that writes, discards, shares and cleans; and what blocks should read, in the order of what was asked for.
struct Firmware {
    random: u64,
    map: Map,
    /// All pages in the order in which they were issued, one change each.
    pages: Vec<Logged>,
    on_their_way: Vec<usize>,
    /// The newest checkpoint, and the first page that recovery looks at.
    checkpoint: (Map, usize),
    version: u64,
    /// What each slot was programmed with, and in which page.
    labels: BTreeMap<Slot, ((u32, u64), usize)>,
    valid: BTreeSet<Slot>,
    expected: Vec<Option<(u32, u64)>>,
}

impl Firmware {
    fn new(seed: u64) -> Firmware {
        let map = Map::new(u64::from(BLOCKS), FlashRules::all());
        Firmware {
            random: seed,
            checkpoint: (map.clone(), 0),
            map,
            pages: Vec::new(),
            on_their_way: Vec::new(),
            version: 0,
            labels: BTreeMap::new(),
            valid: BTreeSet::new(),
            expected: vec![None; BLOCKS as usize],
        }
    }

    fn draw(&mut self, below: u32) -> u32 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) as u32 % below
    }

    fn issue(&mut self, change: Change<'_>) {
        self.on_their_way.push(self.pages.len());
        self.pages.push(change.into());
    }

    /// A slot that was never programmed, or that was left and is not looked at by recovery.
    fn slot_for(&mut self, label: (u32, u64)) -> Slot {
        let (valid, from) = (&self.valid, self.checkpoint.1);
        let mut erased = self.labels.iter().filter(|(slot, (_, page))| !valid.contains(slot) && *page < from);
        let slot = erased.next().map_or(Slot(self.labels.len() as u32), |(slot, _)| *slot);
        self.labels.insert(slot, (label, self.pages.len()));
        slot
    }

    fn has_host_data_on_its_way(&self) -> bool {
        self.on_their_way.iter().any(|page| !matches!(self.pages[*page].change(), Change::Moved { .. }))
    }

    fn write(&mut self) {
        let (lpn, version) = (self.draw(BLOCKS), self.version);
        let slot = self.slot_for((lpn, version));
        self.expected[lpn as usize] = Some((lpn, version));
        self.issue(Change::Written { lpn, version, slot });
    }

    fn discard(&mut self) {
        let (lpn, blocks, version) = (self.draw(BLOCKS), 1 + self.draw(3), self.version);
        let end = (lpn + blocks).min(BLOCKS);
        self.expected[lpn as usize..end as usize].fill(None);
        self.issue(Change::Discarded { lpn, blocks, version });
    }

    /// As the machine has it: everything before is committed.
    fn share(&mut self) {
        while self.has_host_data_on_its_way() {
            self.commit();
        }
        let mut pairs = BTreeMap::new();
        for _ in 0..1 + self.draw(4) {
            let (from, to) = (self.draw(BLOCKS), self.draw(BLOCKS));
            pairs.insert(to, if from == to { (to + 1) % BLOCKS } else { from });
        }
        let before = self.expected.clone();
        pairs.iter().for_each(|(to, from)| self.expected[*to as usize] = before[*from as usize]);
        let pairs: Rc<[Pair]> = pairs.into_iter().map(|(to, from)| Pair { from, to }).collect();
        self.issue(Change::Shared { version: self.version, pairs: &pairs });
    }

    /// A slot is on its way once at a time.
    fn clean(&mut self) {
        let slots: Vec<Slot> = self.map.slots().collect();
        if slots.is_empty() {
            return;
        }
        let slot = slots[self.draw(slots.len() as u32) as usize];
        let ((lpn, version), _) = self.labels[&slot];
        let moving = |page: &usize| matches!(self.pages[*page].change(), Change::Moved { lpn: l, version: v, .. } if (l, v) == (lpn, version));
        if !self.on_their_way.iter().any(moving) {
            let slot = self.slot_for((lpn, version));
            self.issue(Change::Moved { lpn, version, slot });
        }
    }

    /// One of the pages on their way is committed, whichever.
    fn commit(&mut self) {
        if self.on_their_way.is_empty() {
            return;
        }
        let nth = self.draw(self.on_their_way.len() as u32) as usize;
        let page = self.on_their_way.swap_remove(nth);
        let change = self.pages[page].change();
        let mut left = Vec::new();
        if self.map.apply(change, &mut left)
            && let Change::Written { slot, .. } | Change::Moved { slot, .. } = change
        {
            assert!(self.valid.insert(slot), "{slot:?} is taken twice by {change:?}");
        }
        for slot in left {
            assert!(self.valid.remove(&slot), "{slot:?} is left twice by {change:?}");
        }
    }

    fn step(&mut self) {
        self.version += 1;
        let sharing =
            self.on_their_way.iter().any(|page| matches!(self.pages[*page].change(), Change::Shared { .. }));
        match self.draw(16) {
            0..4 if !sharing => self.write(),
            4 if !sharing => self.discard(),
            5 | 6 if !sharing => self.share(),
            7..11 => self.clean(),
            11 => {
                let from = self.on_their_way.iter().min().copied().unwrap_or(self.pages.len());
                self.checkpoint = (self.map.clone(), from);
            }
            _ => self.commit(),
        }
    }

    /// The power is cut: what was on its way is lost.
    fn recovered(&self) -> Map {
        let (mut map, from) = self.checkpoint.clone();
        for page in (from..self.pages.len()).filter(|page| !self.on_their_way.contains(page)) {
            map.apply(self.pages[page].change(), &mut Vec::new());
        }
        map
    }

    fn check(&self) {
        assert_eq!(self.recovered(), self.map);
        assert_eq!(self.map.slots().collect::<BTreeSet<_>>(), self.valid);
        if self.has_host_data_on_its_way() {
            return;
        }
        for (lpn, expected) in (0..).zip(&self.expected) {
            let slot = self.map.slot(lpn);
            let found = (slot != Slot::NONE).then(|| self.labels[&slot].0);
            assert_eq!(found, *expected, "block {lpn}");
            assert!(found.is_none_or(|(lpn, version)| self.map.reads(slot, lpn, version)));
        }
    }
}

/// Shares and moves of what they share are on their way at once and are committed in either order, checkpoints hold a part
/// of them, slots are used again; and no slot is counted twice or forgotten.
#[test]
fn recovery_replays_what_running_applied() {
    for seed in 0..300 {
        let mut firmware = Firmware::new(seed);
        for _ in 0..300 {
            firmware.step();
            firmware.check();
        }
        assert!(firmware.pages.len() > 50);
    }
}
