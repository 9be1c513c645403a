//! Streams take turns; in its turn a stream may send a quantum of blocks. After Linux's CFQ, without its
//! time slices and idling, which rotating disks needed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use weir_runtime::Instant;
use weir_storage::{RequestId, StreamId};

use super::{Elevator, Entry};

/// Blocks that a stream sends before the next one's turn.
const QUANTUM_BLOCKS: u64 = 64;

/// Round robin over streams, first in, first out within each.
#[derive(Default)]
pub struct Fair {
    streams: BTreeMap<StreamId, BTreeSet<RequestId>>,
    places: BTreeMap<RequestId, (StreamId, u64)>,
    /// Whose turn it is.
    turn: StreamId,
    /// Blocks that the turn has used.
    used_blocks: u64,
}

impl Fair {
    fn first_ready(&self, stream: StreamId, ready: &dyn Fn(RequestId) -> bool) -> Option<RequestId> {
        self.streams.get(&stream)?.iter().copied().find(|request| ready(*request))
    }

    /// The streams in the order of their turns, the current one last.
    fn others(&self) -> impl Iterator<Item = StreamId> {
        let behind = self.streams.range((Excluded(self.turn), Unbounded));
        behind.chain(self.streams.range(..=self.turn)).map(|(stream, _)| *stream)
    }
}

impl Elevator for Fair {
    fn insert(&mut self, entry: Entry) {
        self.streams.entry(entry.stream).or_default().insert(entry.request);
        self.places.insert(entry.request, (entry.stream, entry.blocks));
    }

    fn pick(&mut self, _: Instant, ready: &dyn Fn(RequestId) -> bool) -> Option<RequestId> {
        if self.used_blocks < QUANTUM_BLOCKS
            && let Some(request) = self.first_ready(self.turn, ready)
        {
            return Some(request);
        }
        self.others().find_map(|stream| self.first_ready(stream, ready))
    }

    fn remove(&mut self, request: RequestId) {
        let Some((stream, blocks)) = self.places.remove(&request) else { return };
        if stream != self.turn || self.used_blocks >= QUANTUM_BLOCKS {
            self.turn = stream;
            self.used_blocks = 0;
        }
        self.used_blocks += blocks;
        if let Some(queued) = self.streams.get_mut(&stream) {
            queued.remove(&request);
            if queued.is_empty() {
                self.streams.remove(&stream);
            }
        }
    }
}
