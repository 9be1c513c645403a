//! Calls that change something, and checkpoints between them: a checkpoint has all of a call or nothing.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weir_journal::Disk;
use weir_runtime::{Acquire, Permit, Semaphore};
use weir_storage::StorageError;
use weir_vfs::{FsError, ReadOnlyReason};

/// Calls that change something at one time; more of them wait.
const CALLS_MAX: usize = 1 << 16;

/// What lets calls change something.
pub(crate) struct Operations {
    calls: Semaphore,
    /// Blocks that calls with a permit may still make dirty.
    changing: Cell<u64>,
    stopped: RefCell<Option<ReadOnlyReason>>,
    disk: Rc<Disk>,
}

/// The permit of a call that changes something.
pub(crate) struct ChangePermit<'a> {
    operations: &'a Operations,
    blocks: u64,
    _permit: Permit,
}

impl Drop for ChangePermit<'_> {
    fn drop(&mut self) {
        let changing = &self.operations.changing;
        changing.set(changing.get().saturating_sub(self.blocks));
    }
}

/// Stops all changes when it is dropped before its work has ended.
struct Unfinished<'a>(Option<&'a Operations>);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(operations) = self.0 {
            operations.stop(ReadOnlyReason::Abandoned);
        }
    }
}

impl Operations {
    /// Calls may change something, unless there is a reason why not.
    pub(crate) fn new(disk: Rc<Disk>, stopped: Option<ReadOnlyReason>) -> Operations {
        let calls = Semaphore::new(CALLS_MAX);
        Operations { calls, changing: Cell::new(0), stopped: RefCell::new(stopped), disk }
    }

    /// Lets one call change something, until the permit is dropped.
    pub(crate) fn begin(&self) -> Acquire {
        self.calls.acquire(1)
    }

    /// The same, for a call that makes at most so many blocks dirty.
    pub(crate) async fn begin_change(&self, blocks: u64) -> ChangePermit<'_> {
        let permit = self.begin().await;
        self.changing.set(self.changing.get() + blocks);
        ChangePermit { operations: self, blocks, _permit: permit }
    }

    /// Blocks that calls with a permit may still make dirty.
    pub(crate) fn changing_blocks(&self) -> u64 {
        self.changing.get()
    }

    /// Drives work to its end that changes something in several steps. If it is dropped before, nothing can be changed from then on:
    /// half of a change must not come to the disk.
    pub(crate) async fn complete<T>(&self, work: impl Future<Output = T>) -> T {
        let mut unfinished = Unfinished(Some(self));
        let done = work.await;
        unfinished.0 = None;
        done
    }

    /// Waits until no call changes anything, and keeps it so.
    pub(crate) fn begin_checkpoint(&self) -> Acquire {
        self.calls.acquire(CALLS_MAX)
    }

    /// Why nothing can be changed; `None` where it can. Where the storage has failed, nothing becomes durable any more, and its
    /// failure is the cause of what was aborted.
    pub(crate) fn read_only(&self) -> Option<ReadOnlyReason> {
        let stopped = self.stopped.borrow().clone();
        match stopped {
            None | Some(ReadOnlyReason::Aborted(StorageError::Aborted)) => {
                self.disk.failure().map(ReadOnlyReason::Aborted).or(stopped)
            }
            reason => reason,
        }
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

    /// Half of a change is in memory as if it were whole, or on the disk: nothing may follow it.
    pub(crate) fn stop_after(&self, error: &FsError) {
        self.stop(ReadOnlyReason::from(error.stop_reason()));
    }

    /// Nothing can be changed from now on. The first reason counts.
    pub(crate) fn stop(&self, reason: ReadOnlyReason) {
        self.stopped.borrow_mut().get_or_insert(reason);
    }
}
