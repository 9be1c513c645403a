//! Phases 3 and 4 of order-preserving recovery (OPTR paper, section 3.5): which requests are complete on flash, and up
//! to where they are kept.
//!
//! Requests are numbered as they are received: the *wid* of the paper. A request is *incomplete* if `P + D < size`: `P`
//! of its blocks are on flash, and of `D` the flash says that a later request took their place in the cache. A request of
//! which the flash says nothing is incomplete too. So a record that was lost with the buffer makes a request
//! incomplete, never complete.
//!
//! What coalesced is kept together or not at all: a part of the earlier request exists as part of the later one only.
//! The *recovery point* lies before the first request that is not kept; no pair of coalesced requests lies on both sides of it.
//!
//! As in the paper the unit of the map is counted, a logical page: where this says blocks of a request, it has so many
//! logical pages, and a discard so many records.

use std::collections::BTreeMap;

use crate::mutants::{FlashMutant, FlashRules};

/// The number of a request, in order of receipt, from 1. There is room for 10^12 requests a second over half a year, so
/// it never wraps in the life of a device.
pub(crate) type Wid = u64;

/// The request that a version of a block came with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Receipt {
    pub(crate) wid: Wid,
    /// Blocks of the request.
    pub(crate) size: u32,
}

/// Where recovery ended. Writes, discards and shares are numbered as they are received, from 1 when the device was new;
/// numbers of requests that a recovery dropped are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryPoint {
    /// The last request that is kept, with all before it that no earlier recovery has dropped.
    pub kept: u64,
    /// The last request of which the flash said anything: those between were dropped.
    pub found: u64,
}

/// A coalescing record, `<x, y>, size of x`: some blocks of the earlier request were still in the cache when the later
/// one took their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Coalescing {
    pub(crate) earlier: Receipt,
    pub(crate) later: Wid,
    /// How many blocks. The paper writes one record a page.
    pub(crate) blocks: u32,
}

/// What the flash says of one request.
#[derive(Clone, Copy, Debug, Default)]
struct Evidence {
    size: u32,
    /// Blocks on flash, the paper's `P`.
    programmed: u32,
    /// Blocks whose place a later request took, the paper's `D`.
    replaced: u32,
}

/// What the flash says of the requests since the newest checkpoint.
#[derive(Debug)]
pub(crate) struct Evidences {
    requests: BTreeMap<Wid, Evidence>,
    records: Vec<Coalescing>,
    rules: FlashRules,
}

impl Evidences {
    pub(crate) fn new(rules: FlashRules) -> Evidences {
        Evidences { requests: BTreeMap::new(), records: Vec::new(), rules }
    }

    /// A block of a request is on flash.
    pub(crate) fn programmed(&mut self, receipt: Receipt) {
        let request = self.requests.entry(receipt.wid).or_default();
        request.size = receipt.size;
        request.programmed += 1;
    }

    /// A record is on flash.
    pub(crate) fn recorded(&mut self, record: Coalescing) {
        let request = self.requests.entry(record.earlier.wid).or_default();
        request.size = record.earlier.size;
        request.replaced += record.blocks;
        self.records.push(record);
    }

    /// The number behind all requests of which the flash says anything.
    pub(crate) fn end(&self) -> Wid {
        let named = self.requests.keys().copied().chain(self.records.iter().map(|record| record.later));
        named.max().map_or(0, |last| last + 1)
    }

    /// The first incomplete request from `first` on.
    fn first_incomplete(&self, first: Wid) -> Wid {
        let partly = self.rules.drops(FlashMutant::IncompleteKept);
        let complete = |request: &Evidence| partly || request.programmed + request.replaced >= request.size;
        (first..).find(|wid| !self.requests.get(wid).is_some_and(complete)).unwrap_or(Wid::MAX)
    }

    /// The first request that is not kept, where everything before `first` is covered by a checkpoint.
    pub(crate) fn recovery_point(&self, first: Wid) -> Wid {
        let first_incomplete = self.first_incomplete(first);
        let pairs = self.records.iter().map(|record| (record.earlier.wid, record.later));
        recovery_point(first_incomplete, pairs.collect())
    }
}

/// The paper's Algorithm 1. In descending order of the earlier request one look at each record is enough: a point that
/// moved back lies at the earlier request of some record, and all records seen before begin there or later. `pairs` are
/// the numbers of the earlier and the later request.
pub(crate) fn recovery_point(first_incomplete: Wid, mut pairs: Vec<(Wid, Wid)>) -> Wid {
    pairs.sort_unstable_by(|one, other| other.cmp(one));
    pairs.into_iter().fold(
        first_incomplete,
        |point, (earlier, later)| {
            if earlier < point && later >= point { earlier } else { point }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow_network::FlowNetwork;

    /// Figure 6 of the paper: request 4 is incomplete; 1 and 2, 3 and 5, 5 and 6 coalesced.
    #[test]
    fn the_papers_example_has_two_valid_cuts() {
        let complete = vec![true, true, true, false, true, true];
        let network = FlowNetwork { complete, coalesced: vec![(1, 2), (3, 5), (5, 6)] };
        assert_eq!((network.cuts(), network.valid_cuts()), (7, vec![1, 3]));
        assert_eq!(network.recovery_point(), 3);
    }

    /// Algorithm 1 finds the last valid cut of the network, in a million random histories.
    #[test]
    fn algorithm_1_is_the_last_valid_cut() {
        let mut random = 1_u64;
        let mut below = |most: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % most
        };
        let (mut moved, mut far) = (0, 0);
        for _ in 0..1_000_000 {
            let requests = 1 + below(9);
            let rare = 1 + below(12);
            let complete: Vec<bool> = (0..requests).map(|_| below(rare + 1) > 0).collect();
            let mut bent = Vec::new();
            for _ in 0..below(8) {
                let (one, other) = (1 + below(requests), 1 + below(requests));
                if one != other {
                    bent.push((one.min(other), one.max(other)));
                }
            }
            let first_incomplete = 1 + complete.iter().take_while(|complete| **complete).count() as Wid;
            let network = FlowNetwork { complete, coalesced: bent };
            let point = network.recovery_point();
            assert_eq!(Some(&point), network.valid_cuts().last(), "{network:?}");
            moved += u32::from(point < first_incomplete);
            far += u32::from(point + 2 < first_incomplete);
        }
        assert!(moved > 100_000 && far > 10_000, "{moved} points moved, {far} of them far");
    }

    #[test]
    fn a_request_is_complete_with_all_its_blocks_or_their_records() {
        let mut evidences = Evidences::new(FlashRules::all());
        let (three, two) = (Receipt { wid: 7, size: 3 }, Receipt { wid: 8, size: 2 });
        assert_eq!(evidences.recovery_point(7), 7, "nothing is known");
        evidences.programmed(three);
        evidences.programmed(two);
        evidences.programmed(two);
        assert_eq!(evidences.recovery_point(7), 7);
        evidences.recorded(Coalescing { earlier: three, later: 8, blocks: 2 });
        assert_eq!((evidences.recovery_point(7), evidences.end()), (9, 9));
        // Of request 9 nothing is known, of request 10 all: both are lost.
        evidences.programmed(Receipt { wid: 10, size: 1 });
        assert_eq!((evidences.recovery_point(7), evidences.end()), (9, 11));
    }

    /// All blocks of a request may live on in later ones: its size comes from the records alone.
    #[test]
    fn a_request_may_be_complete_without_a_block_on_flash() {
        let mut evidences = Evidences::new(FlashRules::all());
        let first = Receipt { wid: 1, size: 2 };
        evidences.recorded(Coalescing { earlier: first, later: 2, blocks: 1 });
        evidences.programmed(Receipt { wid: 2, size: 1 });
        assert_eq!(evidences.recovery_point(1), 1);
        evidences.recorded(Coalescing { earlier: first, later: 3, blocks: 1 });
        // Requests 1 and 3 coalesced, and 3 is not there: nothing of the three can be kept.
        assert_eq!(evidences.recovery_point(1), 1);
        evidences.programmed(Receipt { wid: 3, size: 1 });
        assert_eq!(evidences.recovery_point(1), 4);
    }
}
