//! A mounted filesystem of any format, as callers have it.

use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use crate::attributes::InodeNumber;
use crate::calls::FilesystemCalls;
use crate::error::FsError;

/// A mounted filesystem; clones share it. [`unmount`](crate::MountedCalls::unmount) ends it for all of them.
///
/// The future of a call that changes something is to be driven to its end. One that is dropped while it waits for
/// its turn changes nothing; one that is dropped in the middle of a change makes the filesystem read-only
/// ([`ReadOnlyReason::Abandoned`](crate::ReadOnlyReason::Abandoned)), since half of a change must not be committed.
#[derive(Clone)]
pub struct Filesystem(Rc<dyn FilesystemCalls>);

impl Filesystem {
    /// A filesystem of some format.
    pub fn new(calls: Rc<dyn FilesystemCalls>) -> Filesystem {
        Filesystem(calls)
    }

    /// Runs `write`, which writes to a file up to the byte `end`, and orders that before everything that is written
    /// later, as if [`fdatabarrier`](crate::SyncCalls::fdatabarrier) followed it; but not what makes the file longer, which is
    /// for [`fbarrier`](crate::SyncCalls::fbarrier) to order. So a program that writes in place says once that each of its
    /// writes is to be ordered, and need not call for each.
    ///
    /// # Errors
    /// As [`fdatabarrier`](crate::SyncCalls::fdatabarrier); inside, those of `write`, which orders nothing then.
    pub async fn in_order<T, E>(
        &self,
        inode: InodeNumber,
        end: u64,
        write: impl Future<Output = Result<T, E>>,
    ) -> Result<Result<T, E>, FsError> {
        let is_in_place = self.attributes(inode).await?.size >= end;
        let done = write.await;
        if is_in_place && done.is_ok() {
            self.fdatabarrier(inode).await?;
        }
        Ok(done)
    }
}

impl Deref for Filesystem {
    type Target = dyn FilesystemCalls;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl fmt::Debug for Filesystem {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Filesystem")
    }
}
