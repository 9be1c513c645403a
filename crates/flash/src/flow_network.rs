//! The *flow network* of the OPTR paper (section 3.5): the definition of where recovery may end. Requests are vertices
//! between a source and a sink, joined in their order by straight edges, and from the earlier to the later by a bent
//! edge for each pair that coalesced. A cut lies between two vertices that follow each other.
//!
//! Firmware builds no network; it uses Algorithm 1 (`recovery_point`), which finds the last valid cut.

use crate::recovery_point::recovery_point;

/// Requests since the newest checkpoint, numbered from 1 in order of receipt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowNetwork {
    /// Whether the flash has each request completely.
    pub complete: Vec<bool>,
    /// Pairs that coalesced: the number of the earlier request, then that of the later.
    pub coalesced: Vec<(u64, u64)>,
}

impl FlowNetwork {
    /// How many cuts there are. Cut `n` lies before request `n`.
    #[must_use]
    pub fn cuts(&self) -> u64 {
        self.complete.len() as u64 + 1
    }

    /// The cuts at which recovery may end: one edge crosses, and every request before it is complete.
    #[must_use]
    pub fn valid_cuts(&self) -> Vec<u64> {
        let complete = self.leading_complete();
        (1..=self.cuts()).filter(|cut| *cut <= complete + 1 && self.size(*cut) == 1).collect()
    }

    /// The first request that is not kept, as the firmware finds it.
    #[must_use]
    pub fn recovery_point(&self) -> u64 {
        recovery_point(self.leading_complete() + 1, self.coalesced.clone())
    }

    /// Edges that cross a cut.
    fn size(&self, cut: u64) -> usize {
        let crossing = self.coalesced.iter().filter(|(earlier, later)| *earlier < cut && cut <= *later);
        1 + crossing.count()
    }

    fn leading_complete(&self) -> u64 {
        self.complete.iter().take_while(|complete| **complete).count() as u64
    }
}
