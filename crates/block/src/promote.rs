//! Promotion (E7): an orderless write to a page that a barrier call or a commit covers becomes part of the
//! epoch. Without it, data under writeback is overtaken by the commit that takes it for written.

use weir_storage::{Extent, Order, RequestId, StreamId, Ticket};

use crate::mutants::BlockMutant;
use crate::queue::{Stage, Work};
use crate::scheduler::Scheduler;

/// What [`BlockLayer::promote`](crate::BlockLayer::promote) found.
#[derive(Default)]
pub struct Promotion {
    /// Requests that were queued, and are order-preserving now.
    pub queued: usize,
    /// Commands that the device had accepted already.
    pub in_flight: usize,
    /// The tickets of all of them: a caller that wants the pages durable awaits these before flushing.
    pub tickets: Vec<Ticket>,
}

impl Scheduler {
    /// Makes queued and in-flight orderless writes to `pages` part of the current epoch (E7).
    pub(crate) fn promote(&mut self, id: StreamId, pages: &[Extent]) -> Promotion {
        let mut promotion = Promotion::default();
        if self.options.rules.drops(BlockMutant::NoPromotion) {
            return promotion;
        }
        self.retire();
        let covers = |extent: Extent| pages.iter().any(|page| page.overlaps(extent));
        let queued: Vec<RequestId> = self
            .queue
            .iter()
            .filter(|request| request.stream == id && request.epoch.is_none())
            .filter(|request| matches!(request.work, Work::Write { .. }) && request.work.any(covers))
            .map(|request| request.id)
            .collect();
        for request in queued {
            self.promote_queued(id, request, &mut promotion);
        }
        let stream = self.streams.named(id);
        for flight in self.flights.iter_mut() {
            if flight.writes && flight.extents.iter().any(|extent| covers(*extent)) {
                // Accepted already: S1 puts it before the barrier. Where the host keeps order, the barrier
                // waits for it like for the rest of its epoch.
                if flight.ordered.is_none() {
                    flight.ordered = Some(id);
                    stream.in_flight += 1;
                }
                promotion.in_flight += 1;
                promotion.tickets.push(flight.ticket.clone());
            }
        }
        // If one of them fails, its stream does (S5).
        self.flights.watch_all();
        promotion
    }

    /// A queued orderless request joins the epoch of its place in issue order, which is the current one or
    /// one before it: either way the next barrier comes after it.
    fn promote_queued(&mut self, id: StreamId, request: RequestId, promotion: &mut Promotion) {
        let stream = self.streams.named(id);
        let Some(pending) = self.queue.get_mut(request) else { return };
        let epoch = pending.issued_in.max(stream.leaving);
        if pending.stage == Stage::Staged {
            stream.staging.order(request);
        } else if epoch == stream.leaving {
            stream.queued += 1;
        } else {
            // It had waited long enough to enter a queue closed for others (E3); now it is one of them.
            pending.stage = Stage::Staged;
            self.elevator.remove(request);
            stream.staging.put_back(request, epoch);
        }
        pending.epoch = Some(epoch);
        for tag in &mut pending.tags {
            tag.order = Order::Epoch(id, epoch);
            // The recorder knows no way into an epoch that others have left behind; order is kept all the same.
            if let Some(recorder) = self.recorder.as_ref().filter(|_| epoch == stream.issuing) {
                recorder.issued(*tag);
            }
        }
        self.stats.promoted += 1;
        promotion.queued += 1;
        promotion.tickets.extend(pending.tickets.iter().cloned());
    }
}
