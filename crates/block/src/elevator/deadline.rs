//! Requests leave by ascending block address, one way, starting over at the lowest (C-SCAN); a request that
//! has waited longer than its expiry leaves first. After Linux's `deadline`, with its expiry times.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use weir_runtime::Instant;
use weir_storage::{Lba, RequestId};

use super::{Elevator, Entry};

/// A read is overdue after this time.
const READ_EXPIRY: Duration = Duration::from_millis(500);
/// A write is overdue after this time.
const WRITE_EXPIRY: Duration = Duration::from_secs(5);

/// Sorted by address, with expiry.
#[derive(Default)]
pub struct Deadline {
    places: BTreeMap<RequestId, (Lba, Instant)>,
    by_address: BTreeSet<(Lba, RequestId)>,
    by_expiry: BTreeSet<(Instant, RequestId)>,
    /// Where the head stands: the last request left from here.
    head: (Lba, RequestId),
}

impl Elevator for Deadline {
    fn insert(&mut self, entry: Entry) {
        let expiry = entry.since + if entry.read { READ_EXPIRY } else { WRITE_EXPIRY };
        self.places.insert(entry.request, (entry.start, expiry));
        self.by_address.insert((entry.start, entry.request));
        self.by_expiry.insert((expiry, entry.request));
    }

    fn pick(&mut self, now: Instant, ready: &dyn Fn(RequestId) -> bool) -> Option<RequestId> {
        let overdue =
            self.by_expiry.iter().take_while(|(expiry, _)| *expiry <= now).map(|(_, request)| *request);
        let ahead = self.by_address.range(self.head..).map(|(_, request)| *request);
        let behind = self.by_address.range(..self.head).map(|(_, request)| *request);
        overdue.chain(ahead).chain(behind).find(|request| ready(*request))
    }

    fn remove(&mut self, request: RequestId) {
        if let Some((start, expiry)) = self.places.remove(&request) {
            self.by_address.remove(&(start, request));
            self.by_expiry.remove(&(expiry, request));
            self.head = (start, request);
        }
    }
}
