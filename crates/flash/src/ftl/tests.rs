//! The count of valid slots of each erase block is what counting anew finds, whatever is written, discarded, shared,
//! cleaned and erased.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::*;
use crate::map::Pair;
use crate::profile::Mechanism;
use crate::recovery::Recovered;
use crate::recovery_point::Receipt;

const BLOCKS: u32 = 100;

/// A page that is a unit by itself.
const ALONE: Taken = Taken { ids: Vec::new(), ends_unit: true, reads: 0, reliable: false };

/// Two dies of twelve erase blocks, each of four pages of two slots.
fn profile() -> Profile {
    let mut profile = Profile::builtin("ufs20").unwrap().with_mechanism(Mechanism::None);
    profile.blocks = u64::from(BLOCKS);
    let nand = &mut profile.nand;
    (nand.channels, nand.ways, nand.planes, nand.multi_plane) = (2, 1, 1, false);
    (nand.blocks_per_plane, nand.pages_per_block, nand.page_bytes) = (12, 4, 8192);
    let ftl = &mut profile.ftl;
    (ftl.gc_free_blocks, ftl.checkpoint_share, ftl.log_share, ftl.share) = (3, 0.2, 1.0, 16);
    profile.cache.bytes = profile.cache.bytes.max(u64::from(profile.host.max_transfer_blocks) * 4096);
    assert_eq!(profile.check(), Ok(()));
    profile
}

struct Host {
    ftl: Ftl,
    random: u64,
    now: u64,
    version: u64,
    pages_on_their_way: usize,
}

impl Host {
    fn draw(&mut self, below: u32) -> u32 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) as u32 % below
    }

    fn write(&mut self, payload: Payload) {
        let lpn = self.draw(BLOCKS);
        self.version += 1;
        let mut contents = vec![Content { lpn, version: self.version, payload, receipt: Receipt::default() }];
        if self.draw(2) == 0 {
            self.version += 1;
            let lpn = (lpn + 1) % BLOCKS;
            contents.push(Content {
                lpn,
                version: self.version,
                payload: Payload::Version,
                receipt: Receipt::default(),
            });
        }
        let page = self.ftl.write_back(contents, &ALONE, self.now);
        self.pages_on_their_way += usize::from(page.is_some());
    }

    fn share(&mut self) {
        let pairs = (0..1 + self.draw(4)).map(|_| (self.draw(BLOCKS), self.draw(BLOCKS)));
        let by_target: BTreeMap<u32, u32> = pairs.filter(|(to, from)| to != from).collect();
        let pairs: Rc<[Pair]> = by_target.into_iter().map(|(to, from)| Pair { from, to }).collect();
        self.version += 1;
        let contents = vec![Content {
            lpn: 0,
            version: self.version,
            payload: Payload::Share(pairs),
            receipt: Receipt::default(),
        }];
        let page = self.ftl.write_back(contents, &ALONE, self.now);
        self.pages_on_their_way += usize::from(page.is_some());
    }

    /// Lets the next thing happen; false if there is none.
    fn advance(&mut self) -> bool {
        let Some(at) = self.ftl.array.next() else { return false };
        self.now = at;
        let mut outcome = Outcome::default();
        self.ftl.advance(at, &mut outcome);
        self.pages_on_their_way -= outcome.committed.len();
        self.ftl.checkpoint_if_due(self.version + 1, at);
        self.ftl.array.start_deferred(at);
        let mut valid = vec![0; self.ftl.blocks.len()];
        for slot in self.ftl.map.slots() {
            valid[self.ftl.geometry.place_of(slot).0.0 as usize] += 1;
        }
        let counted: Vec<u32> = self.ftl.blocks.iter().map(|block| block.valid).collect();
        assert_eq!(counted, valid);
        true
    }
}

fn host(profile: &Profile) -> Host {
    let rules = FlashRules::all();
    let start = Recovered::nothing(profile, rules).start;
    let medium = Medium::new(Geometry::new(profile));
    let options = FlashOptions { rules, ..FlashOptions::default() };
    let ftl = Ftl::new(profile, &options, medium, start);
    Host { ftl, random: 1, now: 0, version: 0, pages_on_their_way: 0 }
}

/// Two blocks read one slot. The newer write is committed first: a flush that covers the older one alone does not settle
/// what the slot holds, since recovery may go back from the newer one. Slots held back behind such a flush, and behind one
/// of both.
fn held_back_behind_flushes() -> [u32; 2] {
    let mut host = host(&profile().with_mechanism(Mechanism::OrderPreservingRecovery));
    let shared: Rc<[Pair]> = Rc::new([Pair { from: 0, to: 1 }]);
    let changes = [
        (0, 1, Payload::Version),
        (1, 2, Payload::Share(shared)),
        (1, 4, Payload::Version),
        (0, 3, Payload::Version),
    ];
    for (lpn, version, payload) in changes {
        let content = Content { lpn, version, payload, receipt: Receipt::default() };
        host.ftl.write_back(vec![content], &ALONE, host.now);
        while host.ftl.array.next().is_some() {
            host.now = host.ftl.array.next().unwrap_or(host.now);
            host.ftl.advance(host.now, &mut Outcome::default());
        }
        host.ftl.settle(version.min(2), host.now);
    }
    [3, 4].map(|version| {
        host.ftl.settle(version, host.now);
        host.ftl.blocks.iter().map(|block| block.unsettled).sum()
    })
}

#[test]
fn what_had_several_names_is_held_back_for_the_newest_change_that_took_one() {
    assert_eq!(held_back_behind_flushes(), [1, 0]);
}

#[test]
fn valid_slots_are_counted_once_each() {
    let mut host = host(&profile());
    for _ in 0..6000 {
        match host.draw(20) {
            0 => host.write(Payload::Discard(3)),
            1 => {
                while host.pages_on_their_way > 0 && host.advance() {}
                host.share();
                while host.pages_on_their_way > 0 && host.advance() {}
            }
            2..12 => host.write(Payload::Version),
            _ => drop(host.advance()),
        }
    }
    let Stats { erases, moved_blocks, increments, .. } = host.ftl.stats;
    assert!(erases > 100 && moved_blocks > 100 && increments > 10, "{:?}", host.ftl.stats);
    assert!(host.ftl.map.shared() > 0);
}
