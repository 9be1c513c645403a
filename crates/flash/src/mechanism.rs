//! The barrier mechanisms (FAST 2018 paper, section 3.2; OPTR paper, section 3): what may be written back when, when a programmed page
//! is *committed*, and what recovery keeps. A page is committed when no power cut can take it back; the map points to it
//! from then on, and what it supersedes is garbage. With order-preserving recovery the map points to a page before: what
//! it supersedes is held back until its request is settled ([`crate::unsettled`]).
//!
//! | mechanism | written back | committed | recovery keeps |
//! |---|---|---|---|
//! | none | in any order | when programmed | everything |
//! | power-loss protection | in any order | when programmed; in the cache already | everything, and the cache |
//! | in-order writeback | one epoch after the other | when programmed | everything |
//! | transactional writeback | in any order, as one unit | when its unit and all before it are programmed | whole units |
//! | in-order recovery | in any order | when all pages before it in the log are programmed | the log to the first gap |
//! | order-preserving recovery | in any order | when programmed, but what it supersedes is kept until it is settled | whole requests, to the recovery point |
//!
//! Copies made by cleaning ([`Tag::Moved`]) stand outside: what they copy was committed already.

use std::collections::VecDeque;

use crate::geometry::Page;
use crate::medium::Tag;
use crate::mutants::{FlashMutant, FlashRules};
use crate::profile::Mechanism;

/// How far a mechanism had come when a checkpoint was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Everything before this place in the log, or this unit, is committed.
    pub(crate) committed: u64,
    /// The next place in the log, or the next unit.
    pub(crate) next: u64,
}

/// A unit of transactional writeback that is not committed yet.
#[derive(Clone, Debug, Default)]
struct Unit {
    programmed: Vec<Page>,
    issued: u32,
    closed: bool,
}

/// Tags pages as they are written back, and says when they are committed.
#[derive(Debug)]
pub(crate) struct Sequencer {
    mechanism: Mechanism,
    progress: Progress,
    /// In-order recovery: pages from `committed` on, `None` while they are being programmed.
    log: VecDeque<Option<Page>>,
    /// Transactional writeback: units from `committed` on.
    units: VecDeque<Unit>,
}

impl Sequencer {
    /// A sequencer that goes on from `progress`, with nothing on its way.
    pub(crate) fn new(mechanism: Mechanism, progress: Progress) -> Sequencer {
        Sequencer { mechanism, progress, log: VecDeque::new(), units: VecDeque::new() }
    }

    pub(crate) fn progress(&self) -> Progress {
        self.progress
    }

    /// The tag of the next page to be written back; `last` closes the unit that it belongs to.
    pub(crate) fn tag(&mut self, last: bool) -> Tag {
        match self.mechanism {
            Mechanism::None | Mechanism::PowerLossProtection | Mechanism::InOrderWriteback => Tag::Plain,
            Mechanism::OrderPreservingRecovery => Tag::Request,
            Mechanism::InOrderRecovery => {
                self.log.push_back(None);
                self.progress.next += 1;
                Tag::Log(self.progress.next - 1)
            }
            Mechanism::TransactionalWriteback => {
                let id = self.progress.next;
                if (id - self.progress.committed) as usize == self.units.len() {
                    self.units.push_back(Unit::default());
                }
                let Some(unit) = self.units.back_mut() else { return Tag::Plain };
                unit.issued += 1;
                let pages = last.then_some(unit.issued);
                if last {
                    unit.closed = true;
                    self.progress.next += 1;
                }
                Tag::Transaction { id, pages }
            }
        }
    }

    /// A page was programmed: the pages that are committed from now on, in their order, go to `newly`.
    pub(crate) fn programmed(&mut self, page: Page, tag: Tag, newly: &mut Vec<Page>) {
        let committed = self.progress.committed;
        match tag {
            Tag::Plain | Tag::Request | Tag::Moved | Tag::Summary | Tag::Torn => newly.push(page),
            Tag::Log(position) => {
                if let Some(place) = self.log.get_mut((position - committed) as usize) {
                    *place = Some(page);
                }
                while let Some(Some(page)) = self.log.front() {
                    newly.push(*page);
                    self.log.pop_front();
                    self.progress.committed += 1;
                }
            }
            Tag::Transaction { id, .. } => {
                if let Some(unit) = self.units.get_mut((id - committed) as usize) {
                    unit.programmed.push(page);
                }
                let whole = |unit: &Unit| unit.closed && unit.programmed.len() == unit.issued as usize;
                while self.units.front().is_some_and(whole) {
                    if let Some(mut unit) = self.units.pop_front() {
                        newly.append(&mut unit.programmed);
                        self.progress.committed += 1;
                    }
                }
            }
        }
    }
}

/// Which pages recovery keeps, of those found behind a checkpoint: how far the log or the units go.
#[derive(Debug)]
pub(crate) struct Kept {
    mechanism: Mechanism,
    /// Everything before this place or unit is kept.
    end: u64,
}

impl Kept {
    /// Decides from the tags of all pages found.
    pub(crate) fn from_tags(
        tags: impl Iterator<Item = Tag>,
        progress: Progress,
        mechanism: Mechanism,
        rules: FlashRules,
    ) -> Kept {
        let end = match mechanism {
            Mechanism::None
            | Mechanism::PowerLossProtection
            | Mechanism::InOrderWriteback
            | Mechanism::OrderPreservingRecovery => 0,
            Mechanism::InOrderRecovery => {
                let mut places: Vec<u64> = tags
                    .filter_map(|tag| match tag {
                        Tag::Log(position) if position >= progress.committed => Some(position),
                        _ => None,
                    })
                    .collect();
                places.sort_unstable();
                let skips = rules.drops(FlashMutant::GapIgnored);
                let behind = |end, place: &u64| if *place == end || skips { place + 1 } else { end };
                places.iter().fold(progress.committed, behind)
            }
            Mechanism::TransactionalWriteback => whole_units(tags, progress.committed, rules),
        };
        Kept { mechanism, end }
    }

    /// Whether a page with this tag is kept.
    pub(crate) fn keeps(&self, tag: Tag) -> bool {
        match tag {
            Tag::Plain | Tag::Request | Tag::Moved | Tag::Summary => true,
            Tag::Torn => false,
            Tag::Log(place) => place < self.end || self.mechanism != Mechanism::InOrderRecovery,
            Tag::Transaction { id, .. } => {
                id < self.end || self.mechanism != Mechanism::TransactionalWriteback
            }
        }
    }

    /// The next place or unit after recovery: behind everything that was kept.
    pub(crate) fn progress(&self) -> Progress {
        Progress { committed: self.end, next: self.end }
    }
}

/// The end of the run of whole units from `committed` on.
fn whole_units(tags: impl Iterator<Item = Tag>, committed: u64, rules: FlashRules) -> u64 {
    let mut units: std::collections::BTreeMap<u64, (u32, Option<u32>)> = std::collections::BTreeMap::new();
    for tag in tags {
        if let Tag::Transaction { id, pages } = tag {
            let unit = units.entry(id).or_default();
            unit.0 += 1;
            unit.1 = unit.1.or(pages);
        }
    }
    let mut end = committed;
    while let Some((found, pages)) = units.get(&end) {
        let whole = *pages == Some(*found) || rules.drops(FlashMutant::UnitsTornApart);
        if !whole {
            break;
        }
        end += 1;
    }
    end
}
