//! The discipline that has none: requests leave in issue order.

use std::collections::BTreeSet;

use weir_runtime::Instant;
use weir_storage::RequestId;

use super::{Elevator, Entry};

/// First in, first out.
#[derive(Default)]
pub struct Noop {
    queued: BTreeSet<RequestId>,
}

impl Elevator for Noop {
    fn insert(&mut self, entry: Entry) {
        self.queued.insert(entry.request);
    }

    fn pick(&mut self, _: Instant, ready: &dyn Fn(RequestId) -> bool) -> Option<RequestId> {
        self.queued.iter().copied().find(|request| ready(*request))
    }

    fn remove(&mut self, request: RequestId) {
        self.queued.remove(&request);
    }
}
