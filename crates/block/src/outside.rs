//! What waits *outside* a closed queue, in issue order: requests, and bare marks.

use std::collections::VecDeque;

use weir_runtime::Instant;
use weir_storage::{Completer, Epoch, RequestId, Rules};

use crate::mutants::BlockMutant;

/// A request or a mark that waits for the queue to open.
pub(crate) enum Held {
    Request {
        id: RequestId,
        ordered: bool,
        /// The epoch that was current when it was issued.
        place: Epoch,
        /// When it has waited long enough, if it is orderless (E3).
        until: Instant,
    },
    Mark {
        owner: Completer,
        /// The epoch that it closes.
        place: Epoch,
    },
}

impl Held {
    fn id(&self) -> Option<RequestId> {
        match self {
            Held::Request { id, .. } => Some(*id),
            Held::Mark { .. } => None,
        }
    }

    fn into_owner(self) -> Option<Completer> {
        match self {
            Held::Mark { owner, .. } => Some(owner),
            Held::Request { .. } => None,
        }
    }

    /// When an orderless request has waited long enough.
    fn until(&self) -> Option<Instant> {
        match self {
            Held::Request { ordered: false, until, .. } => Some(*until),
            _ => None,
        }
    }

    /// Whether it was issued after the request `id` of epoch `epoch`. A mark ends its epoch.
    fn follows(&self, request: RequestId, epoch: Epoch) -> bool {
        match self {
            Held::Request { id, place, .. } => (*place, *id) > (epoch, request),
            Held::Mark { place, .. } => *place >= epoch,
        }
    }
}

/// Everything outside one stream's queue.
#[derive(Default)]
pub(crate) struct Outside {
    held: VecDeque<Held>,
    /// How many are orderless: often none, and then time changes nothing.
    orderless: usize,
}

impl Outside {
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(crate) fn marks(&self) -> usize {
        self.held.iter().filter(|held| matches!(held, Held::Mark { .. })).count()
    }

    pub(crate) fn push(&mut self, held: Held) {
        self.orderless += usize::from(held.until().is_some());
        self.held.push_back(held);
    }

    /// Takes the first out, orderless or not (E3).
    pub(crate) fn pop(&mut self, rules: Rules<BlockMutant>) -> Option<Held> {
        if rules.drops(BlockMutant::OrderlessStarved)
            && let Some(first) = self.held.iter().position(|held| held.until().is_none())
        {
            return self.take(first);
        }
        self.take(0)
    }

    /// Takes a request out.
    pub(crate) fn remove(&mut self, id: RequestId) {
        if let Some(place) = self.held.iter().position(|held| held.id() == Some(id)) {
            self.take(place);
        }
    }

    fn take(&mut self, place: usize) -> Option<Held> {
        let held = self.held.remove(place)?;
        self.orderless -= usize::from(held.until().is_some());
        Some(held)
    }

    /// Makes a request order-preserving where it stands (E7).
    pub(crate) fn order(&mut self, request: RequestId) {
        for held in &mut self.held {
            if let Held::Request { id, ordered, .. } = held
                && *id == request
                && !*ordered
            {
                *ordered = true;
                self.orderless -= 1;
            }
        }
    }

    /// Puts a request that is order-preserving now back where it was issued (E7).
    pub(crate) fn put_back(&mut self, id: RequestId, place: Epoch) {
        let index = self.held.iter().position(|held| held.follows(id, place)).unwrap_or(self.held.len());
        self.held.insert(index, Held::Request { id, ordered: true, place, until: Instant::ZERO });
    }

    /// The orderless requests that have waited long enough (E3).
    pub(crate) fn overdue(&self, now: Instant) -> Vec<RequestId> {
        if self.orderless == 0 {
            return Vec::new();
        }
        let overdue = self.held.iter().filter(|held| held.until().is_some_and(|until| until <= now));
        overdue.filter_map(Held::id).collect()
    }

    /// When the next orderless request has waited long enough, after `now`.
    pub(crate) fn next_overdue(&self, now: Instant) -> Option<Instant> {
        if self.orderless == 0 {
            return None;
        }
        self.held.iter().filter_map(Held::until).filter(|until| *until > now).min()
    }

    /// Takes everything but orderless requests out; gives back the owners of the marks (S5).
    pub(crate) fn abort(&mut self) -> Vec<Completer> {
        let (orderless, rest): (_, VecDeque<Held>) =
            self.held.drain(..).partition(|held| held.until().is_some());
        self.held = orderless;
        rest.into_iter().filter_map(Held::into_owner).collect()
    }
}
