//! An *epoch* is a set of order-preserving writes that may be reordered among themselves; a barrier closes
//! it. Epochs belong to a stream. This file is one stream's side of epoch-based scheduling (FAST 2018 paper,
//! section 3.4); what a queued request may do is decided in `dispatch`.
//!
//! The phases of a stream's queue:
//!
//! - **Open**: requests enter; those that are order-preserving belong to the epoch that is leaving.
//! - **Closed**: a barrier has entered and lost its flag. Nothing else enters until the last order-preserving
//!   request was accepted by the device, as the new barrier: *barrier reassignment* (E4). What comes meanwhile
//!   waits in the staging queue.
//! - **Settling**: the host keeps order, and waits until the epoch is transferred.
//! - **Flushing**: the host keeps order, and waits for its flush (E6).

use weir_storage::{Completer, Epoch, RequestId, StorageError, StreamId};

use crate::staging::StagingQueue;

/// Who puts epochs in order once their requests are dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderingPolicy {
    /// The device: it services a barrier in its place (S1), or orders by receipt (S3). Nothing waits.
    Device,
    /// The device keeps what was transferred in order, but services commands as it likes: the host lets a
    /// barrier follow its epoch's transfer, and the next epoch the barrier's.
    Transfer,
    /// The device keeps no order: the host waits for the transfer, and flushes (E6).
    Flush,
}

/// See the head of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    Closed,
    Settling,
    Flushing,
}

/// One sequence of epochs.
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    pub(crate) phase: Phase,
    /// The epoch of the next request issued.
    pub(crate) issuing: Epoch,
    /// The epoch of the order-preserving requests in the queue.
    pub(crate) leaving: Epoch,
    /// Order-preserving requests in the queue.
    pub(crate) queued: usize,
    /// Order-preserving commands in flight.
    pub(crate) in_flight: usize,
    /// An order-preserving request that the device refused: the others wait behind it (E5).
    pub(crate) refused: Option<RequestId>,
    /// The request whose barrier flag closed the queue; none for a bare barrier.
    pub(crate) closed_by: Option<RequestId>,
    /// The caller that put a bare barrier on the leaving epoch.
    pub(crate) bare_barriers: Vec<Completer>,
    pub(crate) staging: StagingQueue,
    /// An order-preserving write failed: nothing order-preserving goes on (S5).
    pub(crate) failed: Option<StorageError>,
}

impl Stream {
    fn new(id: StreamId) -> Stream {
        Stream {
            id,
            phase: Phase::Open,
            issuing: Epoch(0),
            leaving: Epoch(0),
            queued: 0,
            in_flight: 0,
            refused: None,
            closed_by: None,
            bare_barriers: Vec::new(),
            staging: StagingQueue::default(),
            failed: None,
        }
    }

    /// A barrier enters, as a flag or bare.
    pub(crate) fn close(&mut self, by: Option<RequestId>) {
        self.phase = Phase::Closed;
        self.closed_by = by;
    }

    /// The barrier has left, and where the host keeps order, the epoch is where it should be.
    pub(crate) fn open(&mut self) {
        self.phase = Phase::Open;
        self.closed_by = None;
        self.leaving.0 += 1;
    }

    /// A barrier that found nothing queued and was accepted at once: it entered, closed the queue, left as
    /// the last, and opened it again (E4).
    pub(crate) fn pass_barrier(&mut self) {
        self.issuing.0 += 1;
        self.leaving.0 += 1;
    }

    /// Whether the next order-preserving request to be accepted is the last of a closed epoch, hence its
    /// barrier.
    pub(crate) fn last_is_leaving(&self) -> bool {
        self.phase == Phase::Closed && self.queued == 1
    }
}

/// All streams that were ever named, by number.
#[derive(Default)]
pub(crate) struct Streams(Vec<Stream>);

impl Streams {
    /// The stream `id`, made when it is first named.
    #[inline]
    pub(crate) fn named(&mut self, id: StreamId) -> &mut Stream {
        let index = self.index(id);
        &mut self.0[index]
    }

    /// Where the stream `id` stands until another is made.
    #[inline]
    pub(crate) fn index(&mut self, id: StreamId) -> usize {
        match self.0.first() {
            Some(first) if first.id == id => 0,
            _ => self.find_or_insert(id),
        }
    }

    fn find_or_insert(&mut self, id: StreamId) -> usize {
        self.0.binary_search_by_key(&id, |stream| stream.id).unwrap_or_else(|index| {
            self.0.insert(index, Stream::new(id));
            index
        })
    }

    pub(crate) fn get(&self, id: StreamId) -> Option<&Stream> {
        self.0.binary_search_by_key(&id, |stream| stream.id).ok().map(|index| &self.0[index])
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.0.iter()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn at(&mut self, index: usize) -> &mut Stream {
        &mut self.0[index]
    }
}
