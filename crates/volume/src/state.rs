//! What an open volume *is*: the state that changes, and what its tasks share. What is done with it stands in
//! `log` (appending), `flush`, `checkpoint`, `cleaner` and `read`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use event_listener::Event;
use tracing::error;
use weir_runtime::{Handle, Semaphore};
use weir_storage::{
    BLOCK_BYTES, Capabilities, FlushSharing, LogPhase, Recorder, Rejected, Storage, StorageError, Watermark,
};

use crate::checkpoint::Checkpoint;
use crate::discard::Discards;
use crate::geometry::Geometry;
use crate::log::Log;
use crate::map::Map;
use crate::mutants::VolumeMutant;
use crate::options::{Completion, VolumeOptions};
use crate::segments::Segments;
use crate::stats::Stats;

/// All that changes while a volume is open.
pub(crate) struct State {
    pub map: Map,
    pub segments: Segments,
    pub log: Log,
    /// The newest durable checkpoint.
    pub checkpoint: Checkpoint,
    pub stats: Stats,
    /// Segments that cleaning left alone because a block in them is damaged.
    pub pinned: BTreeSet<u32>,
}

impl State {
    /// A segment that nothing is live in any more may be written, and cleaned, again.
    pub(crate) fn unpin_empty(&mut self) {
        let segments = &self.segments;
        self.pinned.retain(|segment| segments.live(*segment) > 0);
    }
}

/// What the volume and its tasks share.
pub(crate) struct Shared {
    pub handle: Handle,
    pub disk: Rc<dyn Storage>,
    pub geometry: Geometry,
    pub options: VolumeOptions,
    pub capabilities: Capabilities,
    pub watermark: Rc<Watermark>,
    pub state: RefCell<State>,
    pub recorder: RefCell<Option<Rc<Recorder>>>,
    pub reads: Cell<u64>,
    /// Which records are wanted durable; positions are their sequence numbers.
    pub flushes: Rc<FlushSharing>,
    /// `close` has begun: nothing more is taken.
    pub closing: Cell<bool>,
    /// Upkeep can gain nothing more, and the free-segment list is down to the cleaner's reserve.
    pub stuck: Cell<bool>,
    pub checkpointing: Semaphore,
    pub slots: Event,
    pub flush_needed: Event,
    pub chunk_sealed: Event,
    pub upkeep_needed: Event,
    pub discards: Discards,
}

impl Shared {
    pub(crate) fn segment_bytes(&self) -> u64 {
        u64::from(self.geometry.segment_blocks) * BLOCK_BYTES as u64
    }

    /// How far behind a hole a chunk can lie that knows the hole to have been durable: the loss window, and
    /// as much again for the ends of segments that a large request left unused.
    pub(crate) fn window_blocks(&self) -> u32 {
        let blocks = self.options.loss_window.bytes / BLOCK_BYTES as u64 * 2;
        u32::try_from(blocks).unwrap_or(u32::MAX).saturating_add(2 * self.geometry.segment_blocks)
    }

    /// The disk below failed: nothing more is acknowledged, and all waiting callers get the error.
    pub(crate) fn fail(&self, error: Rejected) {
        if self.options.rules.drops(VolumeMutant::FailureForgotten) {
            return;
        }
        let error = failure(error);
        if self.watermark.failure().is_none() {
            error!(%error, "the disk failed: nothing more is acknowledged");
        }
        self.watermark.fail(error);
        self.flushes.fail(error);
        self.slots.notify(usize::MAX);
        self.chunk_sealed.notify(usize::MAX);
        self.upkeep_needed.notify(usize::MAX);
        self.discards.needed.notify(usize::MAX);
    }

    /// Reads, and writes whose tickets wait for the disk below. Placed writes wait for nothing.
    pub(crate) fn commands_in_flight(&self) -> u64 {
        let writes = match self.options.completion {
            Completion::Placed => 0,
            Completion::Disk => {
                (self.state.borrow().log.next_sequence - 1).saturating_sub(self.watermark.transferred_to())
            }
        };
        writes + self.reads.get()
    }

    pub(crate) fn phase(&self) -> LogPhase {
        match self.options.completion {
            Completion::Placed => LogPhase::Placed,
            Completion::Disk => LogPhase::OnDisk,
        }
    }
}

/// A rejection of our own read, as the error of a ticket.
pub(crate) fn failure(rejected: Rejected) -> StorageError {
    match rejected {
        Rejected::Failed(error) => error,
        // The map holds only addresses inside the volume; anything else means that the device changed.
        Rejected::Busy | Rejected::Unsupported(_) | Rejected::Invalid(_) => StorageError::Gone,
    }
}
