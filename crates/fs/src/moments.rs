//! Moments: what a crash leaves is the whole tree as it was at one moment.
//!
//! On a storage with [marks](weir_storage::Marks) a crash leaves what the storage held at a mark. A *moment* is a mark at
//! which that is the tree as programs see it, without what only the kernel or a program knows:
//!
//! 1. Calls that change something wait, and those that are under way end.
//! 2. All dirty file data is written, and the running transaction is committed.
//! 3. The mark is placed, and the calls go on.
//!
//! Nothing of this waits for the disk, but where the storage has no room. So no program sees another order after a crash
//! than that in which calls returned (J11), whatever it has synchronised: a call that orders has nothing to do, and one that
//! makes durable takes a moment and waits for its mark. A moment is taken after each interval in which something was
//! changed, and when the storage wants a mark.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::time::Duration;

use futures_util::future::{Either, select};
use weir_journal::Promise;
use weir_runtime::{Event, Handle as Clock, Semaphore};
use weir_storage::{Rejected, Storage, Ticket, place_mark};
use weir_vfs::FsError;

use crate::mounted::Mounted;
use crate::mutants::FsMutant;

/// Takes the moments of a mounted filesystem.
pub(crate) struct Moments {
    device: Rc<dyn Storage>,
    interval: Duration,
    /// Held while a moment is taken.
    taking: Semaphore,
    /// Moments that were begun.
    begun: Cell<u64>,
    /// The newest that was taken, and the ticket of its mark.
    newest: RefCell<(u64, Ticket)>,
    /// Calls that had changed something when it was taken.
    changes: Cell<u64>,
    /// The filesystem is being unmounted.
    stopped: Cell<bool>,
    stop: Event,
}

impl Moments {
    pub(crate) fn new(device: Rc<dyn Storage>, interval: Duration) -> Rc<Moments> {
        Rc::new(Moments {
            device,
            interval,
            taking: Semaphore::new(1),
            begun: Cell::new(0),
            newest: RefCell::new((0, Ticket::done())),
            changes: Cell::new(0),
            stopped: Cell::new(false),
            stop: Event::new(),
        })
    }

    /// The storage that has the marks.
    pub(crate) fn device(&self) -> &dyn Storage {
        &*self.device
    }

    /// Keeps what a synchronisation call promises: whatever a crash leaves is in order, so only durability takes a moment.
    ///
    /// # Errors
    /// As [`reach_durable`](Self::reach_durable).
    pub(crate) async fn keep_promise(&self, fs: &Mounted, promise: Promise) -> Result<(), FsError> {
        match promise {
            Promise::Ordered => Ok(()),
            Promise::Durable => self.reach_durable(fs).await,
        }
    }

    /// Takes a moment that begins after this was called, or has another caller take it, and waits until its mark is
    /// durable.
    ///
    /// # Errors
    /// What writing, committing or the storage failed by.
    pub(crate) async fn reach_durable(&self, fs: &Mounted) -> Result<(), FsError> {
        let wanted = self.begun.get() + 1;
        let permit = self.taking.acquire(1).await;
        if self.newest.borrow().0 < wanted {
            fs.changes.all_or_abort(self.take(fs)).await?;
        }
        drop(permit);
        let ticket = self.newest.borrow().1.clone();
        Ok(ticket.transferred().await.map_err(Rejected::Failed)?)
    }

    /// Takes one moment.
    async fn take(&self, fs: &Mounted) -> Result<(), FsError> {
        let Some(marks) = self.device.marks() else { return Ok(()) };
        marks.begin();
        let _held = match fs.options.rules.drops(FsMutant::MomentUnheld) {
            true => None,
            false => Some(fs.changes.hold().await),
        };
        let number = self.begun.get() + 1;
        self.begun.set(number);
        let changes = fs.changes.count();
        if !fs.options.rules.drops(FsMutant::MomentUnwritten) {
            fs.write_back_everything().await?;
        }
        if !fs.options.rules.drops(FsMutant::MomentUncommitted) {
            fs.changes.journal()?.commit_all().await?;
        }
        let ticket = place_mark(&*self.device).await?;
        self.newest.replace((number, ticket));
        self.changes.set(changes);
        Ok(())
    }

    /// The task that takes moments, until the filesystem is unmounted or gone.
    pub(crate) async fn run(self: Rc<Moments>, clock: Clock, fs: Weak<Mounted>) {
        let is_wanted = || self.device.marks().is_some_and(|marks| marks.is_wanted());
        while !self.stopped.get() {
            let Some(marks) = self.device.marks() else { return };
            let (wanted, stop) = (marks.wanted().listen(), self.stop.listen());
            if !is_wanted() {
                let sleep = pin!(clock.sleep(self.interval));
                if let Either::Right((Either::Right(_), _)) = select(sleep, select(wanted, stop)).await {
                    return;
                }
            }
            let Some(fs) = fs.upgrade() else { return };
            if !is_wanted() && fs.changes.count() == self.changes.get() {
                continue;
            }
            let _permit = self.taking.acquire(1).await;
            if self.stopped.get() {
                return;
            }
            // A moment that fails stops the filesystem: what is promised of a crash would not hold any more.
            if fs.changes.all_or_abort(self.take(&fs)).await.is_err() {
                marks.give_up();
                return;
            }
        }
    }

    /// Takes the last moment, when no call changes anything any more: from then on any mark is one of this tree.
    ///
    /// # Errors
    /// As [`reach_durable`](Self::reach_durable).
    pub(crate) async fn take_last(&self, fs: &Mounted) -> Result<(), FsError> {
        self.stopped.set(true);
        self.stop.notify(usize::MAX);
        let _permit = self.taking.acquire(1).await;
        fs.changes.all_or_abort(self.take(fs)).await
    }
}
