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
use std::collections::VecDeque;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::time::Duration;

use futures_util::future::{Either, select};
use weir_journal::Promise;
use weir_runtime::{Event, Handle as Clock, Instant, Semaphore};
use weir_storage::{Rejected, Storage, Ticket, place_mark};
use weir_vfs::FsError;

use crate::mounted::Mounted;
use crate::mutants::FsMutant;

/// Moments that are remembered while their marks are not durable.
const TAKEN_MAX: usize = 64;

/// A moment that was taken.
struct Moment {
    number: u64,
    /// When its tree was the one that programs see.
    at: Instant,
    /// Calls that had changed something by then.
    changes: u64,
    mark: Ticket,
}

impl Moment {
    fn is_safe(&self) -> bool {
        self.mark.poll_transferred() == Some(Ok(()))
    }
}

/// Takes the moments of a mounted filesystem.
pub(crate) struct Moments {
    clock: Clock,
    device: Rc<dyn Storage>,
    interval: Duration,
    /// Held while a moment is taken.
    taking: Semaphore,
    /// Moments that were begun.
    begun: Cell<u64>,
    /// The newest whose mark is known to be durable, and those behind it, in order: never empty.
    taken: RefCell<VecDeque<Moment>>,
    /// The filesystem is being unmounted.
    stopped: Cell<bool>,
    stop: Event,
}

impl Moments {
    pub(crate) fn new(clock: &Clock, device: Rc<dyn Storage>, interval: Duration) -> Rc<Moments> {
        let mounted = Moment { number: 0, at: clock.now(), changes: 0, mark: Ticket::done() };
        Rc::new(Moments {
            clock: clock.clone(),
            device,
            interval,
            taking: Semaphore::new(1),
            begun: Cell::new(0),
            taken: RefCell::new(VecDeque::from([mounted])),
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
        let shares_older = fs.options.rules.drops(FsMutant::MomentShared);
        let wanted = self.begun.get() + u64::from(!shares_older);
        let permit = self.taking.acquire(1).await;
        if self.newest(|moment| moment.number) < Some(wanted) {
            fs.changes.all_or_abort(self.take(fs)).await?;
        }
        drop(permit);
        match self.newest(|moment| moment.mark.clone()) {
            Some(mark) if !fs.options.rules.drops(FsMutant::MomentUnawaited) => {
                Ok(mark.transferred().await.map_err(Rejected::Failed)?)
            }
            _ => Ok(()),
        }
    }

    /// How old the tree is that a crash would leave now, when so many calls have changed something: zero if that is what
    /// programs see.
    pub(crate) fn age(&self, changes: u64) -> Duration {
        let mut taken = self.taken.borrow_mut();
        forget_older(&mut taken);
        let safe = taken.front().filter(|safe| safe.changes != changes);
        safe.map_or(Duration::ZERO, |safe| self.clock.now().since(safe.at))
    }

    fn newest<T>(&self, part: impl FnOnce(&Moment) -> T) -> Option<T> {
        self.taken.borrow().back().map(part)
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
        let (at, changes) = (self.clock.now(), fs.changes.count());
        if !fs.options.rules.drops(FsMutant::MomentUnwritten) {
            fs.write_back_everything().await?;
        }
        if !fs.options.rules.drops(FsMutant::MomentUncommitted) {
            fs.changes.journal()?.commit_all().await?;
        }
        let mark = place_mark(&*self.device).await?;
        let mut taken = self.taken.borrow_mut();
        forget_older(&mut taken);
        // The safe one and the newest ones are not forgotten.
        if taken.len() > TAKEN_MAX {
            taken.remove(1);
        }
        taken.push_back(Moment { number, at, changes, mark });
        Ok(())
    }

    /// The task that takes moments, until the filesystem is unmounted or gone.
    pub(crate) async fn run(self: Rc<Moments>, fs: Weak<Mounted>) {
        let is_wanted = || self.device.marks().is_some_and(|marks| marks.is_wanted());
        let is_late = fs.upgrade().is_some_and(|fs| fs.options.rules.drops(FsMutant::MomentLate));
        let interval = if is_late { 2 * self.interval } else { self.interval };
        while !self.stopped.get() {
            let Some(marks) = self.device.marks() else { return };
            let (wanted, stop) = (marks.wanted().listen(), self.stop.listen());
            if !is_wanted() {
                let sleep = pin!(self.clock.sleep(interval));
                if let Either::Right((Either::Right(_), _)) = select(sleep, select(wanted, stop)).await {
                    return;
                }
            }
            let Some(fs) = fs.upgrade() else { return };
            if !is_wanted() && self.newest(|moment| moment.changes) == Some(fs.changes.count()) {
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
        if fs.options.rules.drops(FsMutant::MomentNotLast) {
            return Ok(());
        }
        fs.changes.all_or_abort(self.take(fs)).await
    }
}

/// Forgets the moments before the newest safe one.
fn forget_older(taken: &mut VecDeque<Moment>) {
    let safe = taken.iter().rposition(Moment::is_safe).unwrap_or(0);
    taken.drain(..safe);
}
