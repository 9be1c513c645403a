//! Calls that change something: unmount waits for those that are under way, and none is committed by half (J8).

use std::cell::Cell;
use std::pin::pin;

use event_listener::Event;

use weir_journal::Journal;

use crate::error::{FsError, ReadOnlyReason};
use crate::filesystem::Mounted;

/// The calls that are changing something now.
#[derive(Default)]
pub(crate) struct Operations {
    open: Cell<u32>,
    /// Unmount has begun: no other call may change anything.
    closed: Cell<bool>,
    /// The last one that was open has ended.
    ended: Event,
}

impl Operations {
    /// Lets no more begin, and waits until all that are open have ended.
    ///
    /// # Errors
    /// [`FsError::ReadOnly`] if somebody has done so before.
    pub(crate) async fn close(&self) -> Result<(), FsError> {
        self.check()?;
        self.closed.set(true);
        while self.open.get() > 0 {
            self.ended.listen().await;
        }
        Ok(())
    }

    /// Whether a call may begin.
    pub(crate) fn check(&self) -> Result<(), FsError> {
        if self.closed.get() { Err(FsError::ReadOnly(ReadOnlyReason::Unmounted)) } else { Ok(()) }
    }
}

/// An open operation; dropping it ends it.
struct Open<'a>(&'a Operations);

impl<'a> Open<'a> {
    fn new(operations: &'a Operations) -> Result<Open<'a>, FsError> {
        operations.check()?;
        operations.open.set(operations.open.get() + 1);
        Ok(Open(operations))
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
        if self.0.open.get() == 0 {
            self.0.ended.notify(usize::MAX);
        }
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

impl Mounted {
    /// Runs a call that changes something, unless unmount has begun. Not to be nested: the inner one may be refused.
    pub(crate) async fn changing<T>(
        &self,
        change: impl Future<Output = Result<T, FsError>>,
    ) -> Result<T, FsError> {
        let _open = Open::new(&self.operations)?;
        self.undivided(change).await
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
}
