//! What CrashMonkey leaves of a run (`RandomPermuter` of utsaslab/crashmonkey), from the log of its requests.
//!
//! A request that flushes, has FUA or is a barrier ends an *epoch*, and belongs to it. Of the epochs the first k are left, each
//! number k as likely, and of the last of these n requests, each number n as likely, which are drawn and applied in the order
//! in which they were drawn; the one that ends the epoch is left with all others only. No permutation comes twice.
//!
//! So of two writes to one block in an epoch the older one may win. Complete epochs in which that can happen are
//! permuted, too. No storage may do that: a write carries its data as of its submission, and reads find the newest one (S6).
//! [`Overlaps::InOrder`] leaves that out, and is legal.

use std::collections::BTreeSet;
use std::ops::Range;

use weir_runtime::Random;
use weir_storage::{BLOCK_BYTES, Lba};

use crate::named::named;
use crate::request_log::Request;

named! {
    /// What becomes of requests of one epoch that write the same block.
    Overlaps {
        /// They are applied in the order in which they were drawn, as CrashMonkey does it.
        AsDrawn = "as drawn",
        /// They keep their order.
        InOrder = "in order",
    }
}

/// Draws without a new permutation, at least, until it is taken for sure that there is none; and as a multiple of the
/// permutations that there were. Both are CrashMonkey's.
const DRAWS_MIN: usize = 1000;
const DRAWS_FACTOR: usize = 2;

/// Requests that are left of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permutation {
    /// The last epoch of which something is left, from 0.
    pub epoch: usize,
    /// The places of the requests in the log, in the order in which they are applied.
    pub requests: Vec<usize>,
}

impl Permutation {
    /// Applies it to the bytes of a disk; what lies behind their end is left out.
    pub fn apply(&self, log: &[Request], disk: &mut [u8]) {
        for (block, bytes) in self.requests.iter().filter_map(|nth| log.get(*nth)?.block.as_ref()) {
            let from = usize::try_from(block.0).ok().and_then(|block| block.checked_mul(BLOCK_BYTES));
            let place = from.and_then(|from| disk.get_mut(from..from + bytes.len()));
            if let Some(place) = place {
                place.copy_from_slice(bytes);
            }
        }
    }
}

/// An epoch of a log.
struct Epoch {
    requests: Range<usize>,
    /// Its last request ends it. That of the last epoch need not.
    has_end: bool,
    /// Two of its requests write one block.
    overlaps: bool,
}

impl Epoch {
    fn of_log(log: &[Request]) -> Vec<Epoch> {
        let mut from = 0;
        let of_part = |part: &[Request]| {
            let requests = from..from + part.len();
            from = requests.end;
            let mut blocks: BTreeSet<Lba> = BTreeSet::new();
            let written = part.iter().filter_map(|request| Some(request.block.as_ref()?.0));
            let overlaps = written.filter(|block| !blocks.insert(*block)).count() > 0;
            Epoch { requests, has_end: part.last().is_some_and(|last| last.ends_epoch), overlaps }
        };
        log.split_inclusive(|request| request.ends_epoch).map(of_part).collect()
    }

    /// So many of its requests in an order that is drawn; what ends it comes last.
    fn permute(&self, count: usize, random: &mut Random) -> Vec<usize> {
        let mut free: Vec<usize> = self.requests.clone().collect();
        let end = if self.has_end { free.pop() } else { None };
        let mut drawn = Vec::with_capacity(count);
        while drawn.len() < count && !free.is_empty() {
            drawn.push(free.remove(random.below(free.len() as u64) as usize));
        }
        drawn.extend(end.filter(|_| drawn.len() < count));
        drawn
    }
}

/// Draws permutations of a log: the n-th is a function of the log, of the random numbers, and of n.
pub struct Permuter {
    epochs: Vec<Epoch>,
    overlaps: Overlaps,
    random: Random,
    made: BTreeSet<Vec<usize>>,
}

impl Permuter {
    /// Of this log.
    #[must_use]
    pub fn new(log: &[Request], overlaps: Overlaps, random: Random) -> Permuter {
        Permuter { epochs: Epoch::of_log(log), overlaps, random, made: BTreeSet::new() }
    }

    /// Epochs of the log.
    #[must_use]
    pub fn epochs(&self) -> usize {
        self.epochs.len()
    }

    fn draw(&mut self) -> Option<Permutation> {
        let random = &mut self.random;
        let epoch = random.below(self.epochs.len() as u64) as usize;
        let (last, before) = self.epochs.get(..=epoch)?.split_last()?;
        let count = 1 + random.below(last.requests.len() as u64) as usize;
        let mut requests = Vec::new();
        for complete in before {
            match complete.overlaps && self.overlaps == Overlaps::AsDrawn {
                true => requests.extend(complete.permute(complete.requests.len(), random)),
                false => requests.extend(complete.requests.clone()),
            }
        }
        let mut drawn = last.permute(count, random);
        if self.overlaps == Overlaps::InOrder {
            drawn.sort_unstable();
        }
        requests.extend(drawn);
        Some(Permutation { epoch, requests })
    }
}

impl Iterator for Permuter {
    type Item = Permutation;

    fn next(&mut self) -> Option<Permutation> {
        for _ in 0..DRAWS_MIN.max(DRAWS_FACTOR * self.made.len()) {
            let drawn = self.draw()?;
            if self.made.insert(drawn.requests.clone()) {
                return Some(drawn);
            }
        }
        None
    }
}
