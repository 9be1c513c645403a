//! Calls that change something: whether they may, unmount waits for those that are under way, and none is committed by
//! half (J8).

mod trim;

use std::cell::{Cell, OnceCell};
use std::pin::{Pin, pin};
use std::rc::Rc;

use event_listener::Event;
use weir_journal::{Journal, Sequence, TxHandle, Until};
use weir_vfs::{Caller, FsError, ReadOnlyReason};

use crate::space::Space;

/// What every change needs: the journal, and space.
pub(crate) struct Changes {
    /// Or why there is none: then nothing can be changed.
    journal: Result<Rc<Journal>, ReadOnlyReason>,
    space: Rc<Space>,
    /// Journal mode data: the last transaction that marked written blocks as unwritten.
    unwritten_by: Cell<Option<Sequence>>,
    /// Calls that are changing something now.
    open: Cell<u32>,
    /// Calls that let a moment through, and go on then.
    away: Cell<u32>,
    /// Calls that began.
    count: Cell<u64>,
    /// A moment is being taken: calls wait before they begin.
    held: Cell<bool>,
    /// They may begin.
    released: Event,
    /// Calls that are open and wait for what was let go to be deleted.
    reclaiming: Cell<u32>,
    /// Unmount has begun: no other call may change anything.
    closed: Cell<bool>,
    /// The last call that was open has ended.
    ended: Event,
    /// Deletes what was let go.
    reclaim: OnceCell<Box<Reclaim>>,
}

/// Frees space that is not in use any more.
type Reclaim = dyn Fn() -> Pin<Box<dyn Future<Output = ()>>>;

impl Changes {
    pub(crate) fn new(journal: Result<Rc<Journal>, ReadOnlyReason>, space: Rc<Space>) -> Rc<Changes> {
        let (unwritten_by, open, closed) = (Cell::new(None), Cell::new(0), Cell::new(false));
        Rc::new(Changes {
            journal,
            space,
            unwritten_by,
            open,
            away: Cell::new(0),
            count: Cell::new(0),
            held: Cell::new(false),
            released: Event::new(),
            reclaiming: Cell::new(0),
            closed,
            ended: Event::new(),
            reclaim: OnceCell::new(),
        })
    }

    /// Has what is above asked for space when a call finds none.
    pub(crate) fn on_missing_space(&self, reclaim: Box<Reclaim>) {
        let _ = self.reclaim.set(reclaim);
    }

    /// The journal that the mount has, in whatever state it is, or why there is none.
    pub(crate) fn mounted_with(&self) -> Result<&Rc<Journal>, &ReadOnlyReason> {
        self.journal.as_ref()
    }

    /// The journal, which every change needs.
    ///
    /// # Errors
    /// [`FsError::ReadOnly`] with the reason.
    pub(crate) fn journal(&self) -> Result<&Rc<Journal>, FsError> {
        let journal = self.mounted_with().map_err(|reason| FsError::ReadOnly(reason.clone()))?;
        match journal.aborted() {
            Some(reason) => Err(FsError::ReadOnly(reason.into())),
            None if journal.is_closing() => Err(FsError::ReadOnly(ReadOnlyReason::Unmounted)),
            None => Ok(journal),
        }
    }

    /// Opens a handle for what takes no space.
    pub(crate) async fn start(&self, credits: u32) -> Result<TxHandle, FsError> {
        Ok(self.journal()?.start(credits).await?)
    }

    /// Opens a handle for what a caller does: it takes no more of the space than the caller may.
    pub(crate) async fn start_for(&self, caller: Caller, credits: u32) -> Result<TxHandle, FsError> {
        Ok(self.start(credits).await?.of_caller(self.space.has_reserve(caller)))
    }

    /// Why nothing can be changed, if that is so.
    pub(crate) fn read_only(&self) -> Option<ReadOnlyReason> {
        match self.journal().and_then(|_| self.check_open()) {
            Err(FsError::ReadOnly(reason)) => Some(reason),
            _ => None,
        }
    }

    /// Whether a call may begin, or a long call continue.
    pub(crate) fn check_open(&self) -> Result<(), FsError> {
        if self.closed.get() { Err(FsError::ReadOnly(ReadOnlyReason::Unmounted)) } else { Ok(()) }
    }

    /// Lets no more calls begin, and waits until all that are open have ended.
    ///
    /// # Errors
    /// [`FsError::ReadOnly`] if a caller has done so before.
    pub(crate) async fn close(&self) -> Result<(), FsError> {
        self.check_open()?;
        self.closed.set(true);
        while self.open.get() + self.away.get() > 0 {
            self.ended.listen().await;
        }
        Ok(())
    }

    /// Has calls wait before they begin, until this is dropped, and waits until all that are open have ended.
    pub(crate) async fn hold(&self) -> Held<'_> {
        self.held.set(true);
        let held = Held(self);
        while self.open.get() > 0 {
            self.ended.listen().await;
        }
        held
    }

    /// A call is open no more.
    fn end_one(&self) {
        self.open.set(self.open.get() - 1);
        if self.open.get() == 0 {
            self.ended.notify(usize::MAX);
        }
    }

    /// Calls that have begun so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.get()
    }

    /// Runs a call that changes something, unless unmount has begun. Not to be nested: the inner one may be refused.
    pub(crate) async fn changing<T>(
        &self,
        change: impl Future<Output = Result<T, FsError>>,
    ) -> Result<T, FsError> {
        while self.held.get() {
            self.released.listen().await;
        }
        let _open = Open::new(self)?;
        self.undivided(change).await
    }

    /// The same for a deletion of what was let go. While a call that is open waits for deletions, they wait for no moment, as that
    /// waits for the call.
    pub(crate) async fn deleting<T>(
        &self,
        deletion: impl Future<Output = Result<T, FsError>>,
    ) -> Result<T, FsError> {
        self.until_may_delete().await;
        let _open = Open::new(self)?;
        self.undivided(deletion).await
    }

    /// Lets a moment through that is to be taken: for a long call between two of its parts, where it has no handle, and what it
    /// has done so far may be seen.
    pub(crate) async fn give_way(&self) {
        if self.held.get() && self.open.get() > 0 && self.reclaiming.get() == 0 {
            let _away = Away::new(self);
            self.until_may_delete().await;
        }
    }

    async fn until_may_delete(&self) {
        while self.held.get() && (self.open.get() == 0 || self.reclaiming.get() == 0) {
            self.released.listen().await;
        }
    }

    /// Runs a change, and aborts the journal if its future is dropped while it has a handle: what it has done so far
    /// would be committed without the rest (J8).
    pub(crate) async fn undivided<T>(
        &self,
        change: impl Future<Output = Result<T, FsError>>,
    ) -> Result<T, FsError> {
        let journal = self.journal()?;
        // Locals are dropped last to first: the flag is set while the change is dropped, if it has not ended.
        let _after = AtDrop { journal, abandoning: false };
        let change = pin!(change);
        let mut before = AtDrop { journal, abandoning: true };
        let done = change.await;
        before.abandoning = false;
        done
    }

    /// Aborts the journal if a change fails in its middle, so that half of it is never committed (J8).
    pub(crate) async fn all_or_abort<T>(
        &self,
        change: impl Future<Output = Result<T, FsError>>,
    ) -> Result<T, FsError> {
        let done = change.await;
        if let (Err(error), Ok(journal)) = (&done, self.journal()) {
            journal.abort(error.stop_reason());
        }
        done
    }

    /// Runs `work`, and once more if it found no space where a commit or a discard may bring some: blocks that were
    /// freed can be had when their transaction is in the log, and nothing older goes to them any more (J7), and not
    /// while they are being discarded; and blocks that became unwritten take zeros when that is durable. What was let go
    /// by then is deleted first.
    pub(crate) async fn with_space<T>(
        &self,
        work: impl AsyncFn() -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let before = (self.space.given_back(), self.space.free_inodes());
        let done = work().await;
        if let (Err(FsError::NoSpace), Some(reclaim)) = (&done, self.reclaim.get()) {
            let _waits = Reclaiming::new(self);
            reclaim().await;
        }
        match done {
            Err(FsError::NoSpace)
                if self.space.may_have_more(before.0)
                    || self.space.free_inodes() > before.1
                    || self.zeros_are_too_early()?.is_some() =>
            {
                self.journal()?.give_back().await?;
                if let Some(sequence) = self.zeros_are_too_early()? {
                    self.journal()?.commit(sequence, Until::Durable).await?;
                }
                let _none = self.space.none_discarding().await;
                work().await
            }
            done => done,
        }
    }

    /// Runs a call that changes something, and once more if it lacks space.
    pub(crate) async fn changing_with_space<T>(
        &self,
        work: impl AsyncFn() -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        self.changing(self.with_space(work)).await
    }

    /// Journal mode data: blocks that became unwritten in a transaction that is not durable hold what a power cut brings
    /// back, so they are not overwritten in place. Which transaction has to be durable first.
    pub(crate) fn zeros_are_too_early(&self) -> Result<Option<Sequence>, FsError> {
        let journal = self.journal()?;
        Ok(self.unwritten_by.get().filter(|sequence| !journal.is_durable(*sequence)))
    }

    /// Written blocks became unwritten in this transaction, in journal mode data.
    pub(crate) fn made_unwritten(&self, sequence: Sequence) {
        self.unwritten_by.set(Some(sequence));
    }
}

/// An open call; dropping it ends it.
struct Open<'a>(&'a Changes);

impl<'a> Open<'a> {
    fn new(changes: &'a Changes) -> Result<Open<'a>, FsError> {
        changes.check_open()?;
        changes.open.set(changes.open.get() + 1);
        changes.count.set(changes.count.get() + 1);
        Ok(Open(changes))
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.end_one();
    }
}

/// A call that lets a moment through; dropping it has it go on.
struct Away<'a>(&'a Changes);

impl<'a> Away<'a> {
    fn new(changes: &'a Changes) -> Away<'a> {
        changes.away.set(changes.away.get() + 1);
        changes.end_one();
        Away(changes)
    }
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        self.0.away.set(self.0.away.get() - 1);
        self.0.open.set(self.0.open.get() + 1);
        self.0.count.set(self.0.count.get() + 1);
    }
}

/// An open call waits for deletions, until this is dropped.
struct Reclaiming<'a>(&'a Changes);

impl<'a> Reclaiming<'a> {
    fn new(changes: &'a Changes) -> Reclaiming<'a> {
        changes.reclaiming.set(changes.reclaiming.get() + 1);
        changes.released.notify(usize::MAX);
        Reclaiming(changes)
    }
}

impl Drop for Reclaiming<'_> {
    fn drop(&mut self) {
        self.0.reclaiming.set(self.0.reclaiming.get() - 1);
    }
}

/// Calls wait before they begin; dropping it lets them begin.
pub(crate) struct Held<'a>(&'a Changes);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.held.set(false);
        self.0.released.notify(usize::MAX);
    }
}

/// Tells the journal when it is dropped whether a change is being abandoned.
struct AtDrop<'a> {
    journal: &'a Journal,
    abandoning: bool,
}

impl Drop for AtDrop<'_> {
    fn drop(&mut self) {
        self.journal.set_abandoning(self.abandoning);
    }
}
