//! The calls by which a filesystem passes from one server to the next, while the client of its door keeps what it has.
//!
//! The first server [unmounts](HandoverCalls::unmount_for_handover) it, the next one mounts it and
//! [takes up](HandoverCalls::restore_holds) what the client has been told of. Open files are opened again.

use futures_util::future::LocalBoxFuture;
use thiserror::Error;

use crate::attributes::InodeNumber;
use crate::error::{FsError, ReadOnlyReason};
use crate::refusal::refuse;

/// An inode that the client of a door has been told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldInode {
    /// Its number.
    pub inode: InodeNumber,
    /// How often it is held.
    pub holds: u32,
    /// It was made without a name, and may get its first.
    pub takes_first_name: bool,
}

/// Why a filesystem cannot be handed over now.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HandoverRefusal {
    /// Its format has no handover.
    #[error("only ext4 is handed over: unmount it, and mount it again")]
    Unsupported,
    /// What was written to an atomic file is not in the journal, and half of an update must not go there.
    #[error(
        "the atomic file with inode {0} has an update that is not finished: synchronise it, or end or abandon the update"
    )]
    UpdateOpen(InodeNumber),
    /// It takes no changes any more.
    #[error("the filesystem takes no changes any more: {0}: unmount it, and mount it again")]
    Stopped(ReadOnlyReason),
}

/// What passes a filesystem from one server to the next.
pub trait HandoverCalls {
    /// Whether it can be handed over now.
    ///
    /// # Errors
    /// Why not.
    fn check_handover(&self) -> Result<(), HandoverRefusal> {
        Err(HandoverRefusal::Unsupported)
    }

    /// All inodes that are held, by number.
    fn list_holds(&self) -> Vec<HeldInode> {
        Vec::new()
    }

    /// As [`unmount`](crate::MountedCalls::unmount), but that what is open or held and has no name stays. The caller has
    /// [checked](Self::check_handover) that it may be called.
    ///
    /// # Errors
    /// As [`unmount`](crate::MountedCalls::unmount).
    fn unmount_for_handover(&self) -> LocalBoxFuture<'_, Result<(), FsError>> {
        refuse()
    }

    /// Holds what was held when a filesystem was unmounted for a handover, and deletes what has no name and is not held. The mount
    /// was asked to leave both alone.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for an inode that cannot have been held, and what reading may fail by.
    fn restore_holds<'a>(&'a self, held: &'a [HeldInode]) -> LocalBoxFuture<'a, Result<(), FsError>> {
        let _ = held;
        refuse()
    }
}
