//! The *staging queue*: what waits, in issue order, while the queue is closed: requests, and bare barriers.

use std::collections::VecDeque;

use weir_runtime::Instant;
use weir_storage::{Completer, Epoch, RequestId};

/// A request or a bare barrier that waits for the queue to open.
pub(crate) enum Staged {
    Request {
        id: RequestId,
        ordered: bool,
        /// The epoch that was current when it was issued.
        issued_in: Epoch,
        /// When it has waited long enough, if it is orderless (E3).
        until: Instant,
    },
    BareBarrier {
        owner: Completer,
        /// The epoch that it closes.
        issued_in: Epoch,
    },
}

impl Staged {
    fn id(&self) -> Option<RequestId> {
        match self {
            Staged::Request { id, .. } => Some(*id),
            Staged::BareBarrier { .. } => None,
        }
    }

    fn into_owner(self) -> Option<Completer> {
        match self {
            Staged::BareBarrier { owner, .. } => Some(owner),
            Staged::Request { .. } => None,
        }
    }

    /// When an orderless request has waited long enough.
    fn until(&self) -> Option<Instant> {
        match self {
            Staged::Request { ordered: false, until, .. } => Some(*until),
            _ => None,
        }
    }

    /// Whether it was issued after the request `id` of epoch `epoch`. A bare barrier ends its epoch.
    fn follows(&self, request: RequestId, epoch: Epoch) -> bool {
        match self {
            Staged::Request { id, issued_in, .. } => (*issued_in, *id) > (epoch, request),
            Staged::BareBarrier { issued_in, .. } => *issued_in >= epoch,
        }
    }
}

/// Everything that waits for one stream's queue to open.
#[derive(Default)]
pub(crate) struct StagingQueue {
    staged: VecDeque<Staged>,
    /// How many are orderless: often none, and then time changes nothing.
    orderless: usize,
}

impl StagingQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.staged.is_empty()
    }

    pub(crate) fn bare_barriers(&self) -> usize {
        self.staged.iter().filter(|staged| matches!(staged, Staged::BareBarrier { .. })).count()
    }

    pub(crate) fn push(&mut self, staged: Staged) {
        self.orderless += usize::from(staged.until().is_some());
        self.staged.push_back(staged);
    }

    /// Takes the first out, orderless or not (E3).
    pub(crate) fn pop(&mut self) -> Option<Staged> {
        self.take(0)
    }

    /// Takes a request out.
    pub(crate) fn remove(&mut self, id: RequestId) {
        if let Some(index) = self.staged.iter().position(|staged| staged.id() == Some(id)) {
            self.take(index);
        }
    }

    fn take(&mut self, index: usize) -> Option<Staged> {
        let staged = self.staged.remove(index)?;
        self.orderless -= usize::from(staged.until().is_some());
        Some(staged)
    }

    /// Makes a request order-preserving where it stands (E7).
    pub(crate) fn order(&mut self, request: RequestId) {
        for staged in &mut self.staged {
            if let Staged::Request { id, ordered, .. } = staged
                && *id == request
                && !*ordered
            {
                *ordered = true;
                self.orderless -= 1;
            }
        }
    }

    /// Puts a request that is order-preserving now back where it was issued (E7).
    pub(crate) fn put_back(&mut self, id: RequestId, issued_in: Epoch) {
        let index =
            self.staged.iter().position(|staged| staged.follows(id, issued_in)).unwrap_or(self.staged.len());
        self.staged.insert(index, Staged::Request { id, ordered: true, issued_in, until: Instant::ZERO });
    }

    /// The orderless requests that have waited long enough (E3).
    pub(crate) fn overdue(&self, now: Instant) -> Vec<RequestId> {
        if self.orderless == 0 {
            return Vec::new();
        }
        let overdue = self.staged.iter().filter(|staged| staged.until().is_some_and(|until| until <= now));
        overdue.filter_map(Staged::id).collect()
    }

    /// When the next orderless request has waited long enough, after `now`.
    pub(crate) fn next_overdue(&self, now: Instant) -> Option<Instant> {
        if self.orderless == 0 {
            return None;
        }
        self.staged.iter().filter_map(Staged::until).filter(|until| *until > now).min()
    }

    /// Takes everything but orderless requests out; gives back the owners of the bare barriers (S5).
    pub(crate) fn abort(&mut self) -> Vec<Completer> {
        let (orderless, rest): (_, VecDeque<Staged>) =
            self.staged.drain(..).partition(|staged| staged.until().is_some());
        self.staged = orderless;
        rest.into_iter().filter_map(Staged::into_owner).collect()
    }
}
