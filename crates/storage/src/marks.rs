//! Marks: a storage that a crash takes back to a moment that its user has chosen, and to no other.

use std::pin::pin;

use event_listener::Event;
use futures_util::future::{Either, select};

use crate::contract::Storage;
use crate::error::{Feature, Rejected};
use crate::ticket::Ticket;

/// A storage of which a crash leaves the requests up to a *mark*, and none behind it.
///
/// A flush of such a storage makes durable what a mark covers, and nothing else: what was flushed and has no mark
/// behind it is gone after a crash. So only a mark's own ticket promises durability.
pub trait Marks {
    /// From now on until the next mark is placed, requests may use the room that is kept for them
    /// ([`room`](Self::room)): what a user writes to bring its state to a moment.
    fn begin(&self);

    /// Places a mark behind all requests that were submitted before. The ticket is durable when a crash leaves this mark or
    /// a later one.
    ///
    /// # Errors
    /// [`Rejected::Busy`]: listen to [`slots`](crate::Storage::slots), then place it again. Other errors are final.
    fn place(&self) -> Result<Ticket, Rejected>;

    /// Bytes that are kept for requests between [`begin`](Self::begin) and [`place`](Self::place).
    fn room(&self) -> u64;

    /// Whether the storage needs a mark soon: it can free no space, or take no checkpoint, without one.
    fn is_wanted(&self) -> bool;

    /// No mark is placed any more, as the user has failed: what waits for one, and cannot go on without, fails.
    fn give_up(&self);

    /// Notified when a mark becomes wanted.
    fn wanted(&self) -> &Event;
}

/// Places a mark on a storage that has them, waiting for room as often as needed.
///
/// # Errors
/// [`Rejected`] in every form but [`Rejected::Busy`].
pub async fn place_mark(storage: &dyn Storage) -> Result<Ticket, Rejected> {
    let marks = storage.marks().ok_or(Rejected::Unsupported(Feature::Marks))?;
    loop {
        let slot = storage.slots().listen();
        match marks.place() {
            Err(Rejected::Busy) => slot.await,
            placed => return placed,
        }
    }
}

/// Runs what changes nothing that the user of a storage takes for its state, such as mounting, and places a mark whenever the
/// storage wants one.
pub async fn run_with_marks<T>(storage: &dyn Storage, work: impl Future<Output = T>) -> T {
    let Some(marks) = storage.marks() else { return work.await };
    let mut work = pin!(work);
    loop {
        let wanted = marks.wanted().listen();
        if marks.is_wanted() {
            // What has failed fails the work, too.
            let _failed = place_mark(storage).await;
        }
        match select(work.as_mut(), wanted).await {
            Either::Left((done, _)) => return done,
            Either::Right(_) => {}
        }
    }
}
