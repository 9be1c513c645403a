//! Calls that change something, and checkpoints between them: a checkpoint has all of a call or nothing.

use std::cell::RefCell;

use weir_runtime::{Acquire, Semaphore};
use weir_vfs::{FsError, ReadOnlyReason};

/// Calls that change something at one time; more of them wait.
const CALLS_MAX: usize = 1 << 16;

/// What lets calls change something.
pub(crate) struct Operations {
    calls: Semaphore,
    stopped: RefCell<Option<ReadOnlyReason>>,
}

impl Operations {
    /// Calls may change something, unless there is a reason why not.
    pub(crate) fn new(stopped: Option<ReadOnlyReason>) -> Operations {
        Operations { calls: Semaphore::new(CALLS_MAX), stopped: RefCell::new(stopped) }
    }

    /// Lets one call change something, until the permit is dropped.
    pub(crate) fn begin(&self) -> Acquire {
        self.calls.acquire(1)
    }

    /// Waits until no call changes anything, and keeps it so.
    pub(crate) fn begin_checkpoint(&self) -> Acquire {
        self.calls.acquire(CALLS_MAX)
    }

    /// Why nothing can be changed; `None` where it can.
    pub(crate) fn read_only(&self) -> Option<ReadOnlyReason> {
        self.stopped.borrow().clone()
    }

    /// That something can be changed.
    ///
    /// # Errors
    /// [`FsError::ReadOnly`] with the reason why not.
    pub(crate) fn check_writable(&self) -> Result<(), FsError> {
        self.read_only().map_or(Ok(()), |reason| Err(FsError::ReadOnly(reason)))
    }

    /// Whether there may be something to make durable: nothing is, in a filesystem that is read-only by its mount, or unmounted.
    ///
    /// # Errors
    /// [`FsError::ReadOnly`] where an error has stopped it: what was changed and is not durable never will be.
    pub(crate) fn has_to_write(&self) -> Result<bool, FsError> {
        match self.read_only() {
            None => Ok(true),
            Some(ReadOnlyReason::Mounted | ReadOnlyReason::Unmounted) => Ok(false),
            Some(reason) => Err(FsError::ReadOnly(reason)),
        }
    }

    /// Nothing can be changed from now on. The first reason counts.
    pub(crate) fn stop(&self, reason: ReadOnlyReason) {
        self.stopped.borrow_mut().get_or_insert(reason);
    }
}
