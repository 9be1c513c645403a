//! An *elevator* decides which of the queued requests leaves next. It knows nothing of epochs, barriers or
//! overlaps: the epoch scheduler asks it for its first choice among those that may leave, so that every
//! elevator works under every rule (E2).

mod deadline;
mod fair;
mod noop;

use weir_runtime::Instant;
use weir_storage::{Lba, RequestId, StreamId};

pub use deadline::Deadline;
pub use fair::Fair;
pub use noop::Noop;

use crate::options::ElevatorKind;

/// What an elevator sees of a queued request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which request; numbers ascend in issue order.
    pub request: RequestId,
    /// Whose request.
    pub stream: StreamId,
    /// Its first block.
    pub start: Lba,
    /// How many blocks.
    pub blocks: u64,
    /// A read; writes and discards otherwise.
    pub read: bool,
    /// When it entered the queue.
    pub since: Instant,
}

/// A scheduling discipline.
pub trait Elevator {
    /// A request enters the queue.
    fn insert(&mut self, entry: Entry);

    /// The discipline's first choice among the requests for which `ready` holds. It stays in the queue:
    /// the device may refuse it.
    fn pick(&mut self, now: Instant, ready: &dyn Fn(RequestId) -> bool) -> Option<RequestId>;

    /// A request left the queue. Unknown requests are ignored.
    fn remove(&mut self, request: RequestId);
}

/// A fresh elevator of the given kind.
pub(crate) fn elevator(kind: ElevatorKind) -> Box<dyn Elevator> {
    match kind {
        ElevatorKind::Noop => Box::new(Noop::default()),
        ElevatorKind::Deadline => Box::new(Deadline::default()),
        ElevatorKind::Fair => Box::new(Fair::default()),
    }
}
