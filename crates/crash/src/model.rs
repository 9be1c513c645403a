//! The reference model: what each block holds after each request, and nothing about how a volume works.
//!
//! A *state* is the stamp of every block. The model keeps a hash of the state after each request, so that
//! judging what recovery left is one access to a table: a prefix of the requests is left if, and only if,
//! the hash is that of some state (S3 of a prefix device; that a request is atomic follows).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use thiserror::Error;

use crate::content::{Stamp, mix, shared_stamp, written_where};

/// Why what recovery left is not what may be left.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Verdict {
    /// No prefix of the requests leaves this. `nearest` is the prefix that differs in the fewest blocks.
    #[error(
        "no prefix of the requests leaves this; after request {nearest} block {block} holds {expected}, found {found}"
    )]
    NoPrefix {
        /// The prefix that comes closest.
        nearest: u64,
        /// The first block that differs from it.
        block: u64,
        /// What that block holds after `nearest` requests.
        expected: Stamp,
        /// What it held.
        found: Stamp,
    },
    /// A prefix is left, but what was acknowledged as durable reaches further.
    #[error("only {left} requests are left, and {promised} were acknowledged as durable")]
    Lost {
        /// Requests that are left.
        left: u64,
        /// Requests that a flush, FUA or a durable ticket covered.
        promised: u64,
    },
    /// A block holds data that no request wrote.
    #[error("block {0} holds a page that was never written")]
    Foreign(u64),
    /// The volume counts another number of live blocks than different ones are read.
    #[error("{counted} blocks are live, by the volume's count, and {read} different ones are read")]
    MiscountedLive {
        /// Live blocks that the volume counts.
        counted: u64,
        /// Different contents read, zeroes not among them.
        read: u64,
    },
    /// The volume refused, or failed, something that it may not.
    #[error("{during}: {error}")]
    Failed {
        /// What was being done.
        during: &'static str,
        /// The error that came back.
        error: String,
    },
    /// A write was refused for want of space, and there is room.
    #[error("refused although there is room: {live} blocks would be live, and {usable} may be")]
    FalselyFull {
        /// Blocks that would be live with the write that was refused.
        live: u64,
        /// Blocks that may be live.
        usable: u64,
    },
    /// The run did not end in this much virtual time.
    #[error(
        "not over after {0:?} of virtual time: a task waits for something that never comes, or never ends"
    )]
    EndlessTime(Duration),
    /// The run did not end with so many commands.
    #[error("not over after {0} commands: a task goes on for ever without progress")]
    EndlessCommands(u64),
    /// A write is lost that must be left (block layer).
    #[error("write {write} is lost at block {block}: {why}")]
    Missing {
        /// The write's stamp.
        write: Stamp,
        /// The block.
        block: u64,
        /// Why it must be there.
        why: Why,
    },
    /// The order recorder found a violation of equation 1.
    #[error("{0}")]
    Order(String),
    /// A read of the running volume found something else than was there while it was under way.
    #[error("a read of block {block} found {found:?}, written last was {expected}")]
    Read {
        /// The block.
        block: u64,
        /// Written last.
        expected: Stamp,
        /// Found; `None` for a page that was never written.
        found: Option<Stamp>,
    },
}

/// Why a write must be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Why {
    /// Something of a later epoch of its stream is left (S3, E1).
    #[error("something of a later epoch is left")]
    EarlierEpoch,
    /// It was flushed, or FUA completed (S2).
    #[error("it was acknowledged as durable")]
    Durable,
    /// Another block of it is left, and requests are atomic.
    #[error("another block of it is left")]
    Torn,
}

/// What a state's hash gains by one block. Zeroes add nothing.
fn place(block: u64, stamp: Stamp) -> u64 {
    if stamp == 0 { 0 } else { mix(mix(1, block), stamp) }
}

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Write,
    Discard,
    Share,
}

/// One request: the blocks that it changes, each once, and to what.
#[derive(Clone, Debug)]
struct OpRecord {
    kind: Kind,
    /// Stamps that it has used.
    stamps: u64,
    changes: Vec<(u64, Stamp)>,
}

impl OpRecord {
    fn to(&self, block: u64) -> Option<Stamp> {
        self.changes.iter().find(|(changed, _)| *changed == block).map(|(_, stamp)| *stamp)
    }
}

/// The states that a run has gone through, beginning with the one that it found.
#[derive(Clone, Debug)]
pub struct Model {
    first: Vec<Stamp>,
    now: Vec<Stamp>,
    records: Vec<OpRecord>,
    /// Hash of the state after each number of requests, from 0.
    hashes: Vec<u64>,
    /// Which numbers of requests lead to a hash, in increasing order.
    index: BTreeMap<u64, Vec<u64>>,
    last_stamp: Stamp,
}

impl Model {
    /// A model of `blocks` blocks of zeroes.
    #[must_use]
    pub fn new(blocks: u64) -> Model {
        Model::starting(vec![0; usize::try_from(blocks).unwrap_or(0)], 0)
    }

    fn starting(first: Vec<Stamp>, last_stamp: Stamp) -> Model {
        let hash = hash_of(&first);
        let index = BTreeMap::from([(hash, vec![0])]);
        Model { now: first.clone(), first, records: Vec::new(), hashes: vec![hash], index, last_stamp }
    }

    /// Requests so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.records.len() as u64
    }

    /// Blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.first.len() as u64
    }

    /// What `block` holds now.
    #[must_use]
    pub fn stamp(&self, block: u64) -> Stamp {
        self.now[block as usize]
    }

    /// Blocks that hold something now.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.now.iter().filter(|stamp| **stamp != 0).count() as u64
    }

    /// Whether `block` held `stamp` after any of these numbers of requests.
    #[must_use]
    pub fn held(&self, block: u64, stamp: Stamp, requests: RangeInclusive<u64>) -> bool {
        let (before, during) = self.records[..*requests.end() as usize].split_at(*requests.start() as usize);
        let at_first = before.iter().rev().find_map(|record| record.to(block));
        at_first.unwrap_or(self.first[block as usize]) == stamp
            || during.iter().any(|record| record.to(block) == Some(stamp))
    }

    /// The stamp that the next write has.
    #[must_use]
    pub fn next_stamp(&self) -> Stamp {
        self.last_stamp + 1
    }

    /// A request that writes `blocks` with [`Model::next_stamp`]. To be told *before* the request is submitted: what
    /// a crash leaves may hold it before the call returns.
    pub fn write(&mut self, blocks: Vec<u64>) {
        self.packed(&[blocks]);
    }

    /// A request that makes several writes in turn, the first with [`Model::next_stamp`], the others with those that
    /// follow. What two of them write is the later one's.
    pub fn packed(&mut self, writes: &[Vec<u64>]) {
        let mut changes = BTreeMap::new();
        for blocks in writes {
            self.last_stamp += 1;
            changes.extend(blocks.iter().map(|block| (*block, self.last_stamp)));
        }
        let (stamps, changes) = (writes.len() as u64, changes.into_iter().collect());
        self.change(OpRecord { kind: Kind::Write, stamps, changes });
    }

    /// A request that discards `blocks`.
    pub fn discard(&mut self, blocks: Vec<u64>) {
        let changes = blocks.into_iter().map(|block| (block, 0)).collect();
        self.change(OpRecord { kind: Kind::Discard, stamps: 0, changes });
    }

    /// A request that lets the second block of each pair read what the first one does now. Of pairs with one target, the
    /// last counts.
    pub fn share(&mut self, pairs: &[(u64, u64)]) {
        let of = |(from, to): &(u64, u64)| (*to, shared_stamp(self.stamp(*from), *from, *to));
        let changes: BTreeMap<u64, Stamp> = pairs.iter().map(of).collect();
        self.change(OpRecord { kind: Kind::Share, stamps: 0, changes: changes.into_iter().collect() });
    }

    /// Requests up to the last share, that one included; 0 if there was none.
    #[must_use]
    pub fn last_share(&self) -> u64 {
        self.records.iter().rposition(|record| record.kind == Kind::Share).map_or(0, |last| last as u64 + 1)
    }

    /// Different contents in what was found, zeroes not among them: as many blocks are live.
    #[must_use]
    pub fn contents(found: &[Stamp]) -> u64 {
        let written = (0..).zip(found).map(|(block, stamp)| written_where(*stamp, block));
        written.filter(|(stamp, _)| *stamp != 0).collect::<BTreeSet<_>>().len() as u64
    }

    fn change(&mut self, record: OpRecord) {
        let mut hash = self.hashes[self.records.len()];
        for (block, stamp) in &record.changes {
            let old = std::mem::replace(&mut self.now[*block as usize], *stamp);
            hash = hash.wrapping_sub(place(*block, old)).wrapping_add(place(*block, *stamp));
        }
        self.records.push(record);
        self.hashes.push(hash);
        self.index.entry(hash).or_default().push(self.records.len() as u64);
    }

    /// The last request was refused: it never was.
    pub fn withdraw(&mut self) {
        let Some(record) = self.records.pop() else { return };
        let hash = self.hashes.pop().unwrap_or_default();
        if let Some(numbers) = self.index.get_mut(&hash) {
            numbers.pop();
            if numbers.is_empty() {
                self.index.remove(&hash);
            }
        }
        self.last_stamp -= record.stamps;
        self.now = self.state_after(self.requests());
    }

    fn state_after(&self, requests: u64) -> Vec<Stamp> {
        let mut state = self.first.clone();
        for record in &self.records[..requests as usize] {
            for (block, stamp) in &record.changes {
                state[*block as usize] = *stamp;
            }
        }
        state
    }

    /// Recovery has decided: the first `requests` requests happened, and no others. They are the past that
    /// no crash takes back any more, and what came after them may never be found again (V1).
    #[must_use]
    pub fn from_prefix(&self, requests: u64) -> Model {
        Model::starting(self.state_after(requests), self.last_stamp)
    }

    /// How many requests `found` is the state of, the most if several are possible.
    ///
    /// # Errors
    /// [`Verdict::NoPrefix`], or [`Verdict::Lost`] if fewer than `promised` are left.
    pub fn judge(&self, found: &[Stamp], promised: u64) -> Result<u64, Verdict> {
        let left = self.index.get(&hash_of(found)).and_then(|numbers| numbers.last().copied());
        match left {
            None => Err(self.nearest(found)),
            Some(left) if left < promised => Err(Verdict::Lost { left, promised }),
            Some(left) => Ok(left),
        }
    }

    /// Explains a state that is no prefix's.
    fn nearest(&self, found: &[Stamp]) -> Verdict {
        let mut state = self.first.clone();
        let mut best = (usize::MAX, Verdict::NoPrefix { nearest: 0, block: 0, expected: 0, found: 0 });
        for requests in 0..=self.records.len() {
            if let Some(record) = requests.checked_sub(1).and_then(|last| self.records.get(last)) {
                record.changes.iter().for_each(|(block, stamp)| state[*block as usize] = *stamp);
            }
            let mut differ = (0..found.len()).filter(|block| state[*block] != found[*block]);
            let Some(first) = differ.next() else { continue };
            let count = 1 + differ.count();
            if count < best.0 {
                let (nearest, block) = (requests as u64, first as u64);
                best = (
                    count,
                    Verdict::NoPrefix { nearest, block, expected: state[first], found: found[first] },
                );
            }
        }
        best.1
    }
}

fn hash_of(state: &[Stamp]) -> u64 {
    let places = state.iter().enumerate().map(|(block, stamp)| place(block as u64, *stamp));
    places.fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three_requests() -> Model {
        let mut model = Model::new(4);
        model.write(vec![0, 1]);
        model.write(vec![1]);
        model.discard(vec![0]);
        model
    }

    #[test]
    fn prefixes_are_found_and_nothing_else() {
        let model = three_requests();
        assert_eq!(model.judge(&[0, 0, 0, 0], 0), Ok(0));
        assert_eq!(model.judge(&[1, 1, 0, 0], 0), Ok(1));
        assert_eq!(model.judge(&[1, 2, 0, 0], 2), Ok(2));
        assert_eq!(model.judge(&[0, 2, 0, 0], 3), Ok(3));
        // A torn request, a hole, and a request that never was.
        for wrong in [[1, 0, 0, 0], [0, 1, 0, 0], [0, 2, 1, 0], [1, 2, 3, 0]] {
            assert!(matches!(model.judge(&wrong, 0), Err(Verdict::NoPrefix { .. })), "{wrong:?}");
        }
        assert_eq!(model.judge(&[1, 1, 0, 0], 2), Err(Verdict::Lost { left: 1, promised: 2 }));
    }

    #[test]
    fn what_was_refused_or_cut_off_never_comes_back() {
        let mut model = three_requests();
        model.withdraw();
        assert!(model.judge(&[0, 2, 0, 0], 0).is_err());
        let mut after = model.from_prefix(1);
        assert_eq!((after.judge(&[1, 1, 0, 0], 0), after.next_stamp()), (Ok(0), 3));
        assert!(after.judge(&[1, 2, 0, 0], 0).is_err(), "request 2 was cut off");
        assert!(after.judge(&[0, 0, 0, 0], 0).is_err(), "request 1 is the past");
        after.write(vec![3]);
        assert_eq!(after.judge(&[1, 1, 0, 3], 1), Ok(1));
    }

    #[test]
    fn a_read_finds_what_was_there_while_it_was_under_way() {
        let model = three_requests();
        let found = |requests: RangeInclusive<u64>| {
            (0..4).filter(|stamp| model.held(1, *stamp, requests.clone())).collect::<Vec<_>>()
        };
        assert_eq!((found(0..=0), found(1..=1), found(3..=3)), (vec![0], vec![1], vec![2]));
        assert_eq!((found(0..=2), found(1..=3)), (vec![0, 1, 2], vec![1, 2]));
        // A discard is a version too.
        assert!(model.held(0, 0, 2..=3) && !model.held(0, 0, 1..=2));
        assert_eq!(model.live(), 1);
    }

    #[test]
    fn a_share_reads_what_its_sources_held_before_it() {
        let mut model = three_requests();
        model.share(&[(1, 0), (0, 1), (1, 2)]);
        let shared = shared_stamp(2, 1, 2);
        assert_eq!([0, 1, 2].map(|block| model.stamp(block)), [shared_stamp(2, 1, 0), 0, shared]);
        assert_eq!(model.last_share(), 4);
        assert_eq!(Model::contents(&[shared_stamp(2, 1, 0), 0, shared, 5]), 2);
        model.share(&[(2, 1)]);
        assert_eq!(model.stamp(1), 2, "at home again");
        model.withdraw();
        assert_eq!((model.last_share(), model.next_stamp(), model.stamp(1)), (4, 3, 0));
    }

    #[test]
    fn a_packed_write_is_one_request_and_the_later_of_two_writes_counts() {
        let mut model = three_requests();
        model.packed(&[vec![0, 1], vec![1, 2]]);
        assert_eq!((model.judge(&[3, 4, 4, 0], 4), model.next_stamp()), (Ok(4), 5));
        assert!(model.judge(&[3, 3, 0, 0], 0).is_err(), "the second write is missing");
        model.withdraw();
        assert_eq!((model.judge(&[0, 2, 0, 0], 0), model.next_stamp()), (Ok(3), 3));
    }

    #[test]
    fn the_nearest_prefix_explains_a_failure() {
        let verdict = three_requests().judge(&[1, 2, 9, 0], 0);
        assert_eq!(verdict, Err(Verdict::NoPrefix { nearest: 2, block: 2, expected: 0, found: 9 }));
    }

    #[test]
    fn a_state_that_comes_twice_counts_as_the_later() {
        let mut model = Model::new(2);
        model.discard(vec![0]);
        model.discard(vec![1]);
        assert_eq!(model.judge(&[0, 0], 2), Ok(2));
    }
}
