//! What can go wrong, in two places: a command is *rejected* at submission, or its ticket *fails*.

use thiserror::Error;

use crate::address::{Extent, Lba};
use crate::command::CommandKind;

/// Why a submission was not accepted. Nothing was done; the caller still owns the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Rejected {
    /// The queue is full: wait for [`Storage::slots`](crate::Storage::slots) and submit again.
    #[error("the device's queue is full; wait for a free slot and submit again")]
    Busy,
    /// The device cannot do this: ask its capabilities first.
    #[error("the device cannot do this: {0}")]
    Unsupported(Feature),
    /// The command breaks the contract: a mistake of the caller.
    #[error("invalid command: {0}")]
    Invalid(Invalid),
    /// The device accepts nothing of this kind any more, for the reason given.
    #[error(transparent)]
    Failed(#[from] StorageError),
}

/// What a device may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Feature {
    /// Whatever changes a block.
    #[error("changes: it is read-only")]
    Changes,
    /// Barriers, as a flag or a command.
    #[error("barriers (capability `ordering`)")]
    Barrier,
    /// Ordered priority.
    #[error("ordered service (capability `ordered_service`)")]
    OrderedService,
    /// Forced unit access.
    #[error("FUA writes (capability `fua`)")]
    Fua,
    /// Pre-flush.
    #[error("pre-flush writes (capability `preflush`)")]
    Preflush,
    /// Reliable writes.
    #[error("reliable writes (capability `reliable`)")]
    Reliable,
    /// Discard.
    #[error("discard (capability `discard`)")]
    Discard,
    /// Share.
    #[error("share (capability `share`)")]
    Share,
    /// Packed writes.
    #[error("packed writes (capability `packed`)")]
    Packed,
    /// Marks.
    #[error("marks (`Storage::marks`)")]
    Marks,
    /// The second phase of a ticket.
    #[error("durability notification (capability `durable_tickets`)")]
    DurableTickets,
}

/// How a command breaks the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Invalid {
    /// The range ends behind the last block.
    #[error("{0} end beyond the last block of the storage")]
    OutOfRange(Extent),
    /// No blocks, or data that is not whole blocks.
    #[error("the data at {0} is not a whole number of 4 KiB blocks, or none")]
    NotWholeBlocks(Lba),
    /// More blocks than the device takes in one command.
    #[error("{blocks} blocks in one command; the device takes at most {limit}")]
    TooLarge {
        /// Blocks asked for.
        blocks: u64,
        /// The device's limit, in blocks.
        limit: u32,
    },
    /// No extents, or more than the device takes in one command.
    #[error("{extents} extents in one command; the device takes 1 to {limit}")]
    TooManyExtents {
        /// Extents asked for.
        extents: u64,
        /// The device's limit.
        limit: u32,
    },
    /// Only reads and flushes may be head-of-queue (S1).
    #[error("only reads and flushes may go to the head of the queue")]
    HeadOfQueueWrite,
    /// Two parts, or a share's source and target, overlap.
    #[error("{0} appear twice in one command")]
    Overlap(Extent),
}

/// The name of what a device said. The library has none for EIO, which most disks give.
fn name(cause: std::io::ErrorKind) -> String {
    match cause {
        std::io::ErrorKind::UnexpectedEof => {
            "the device ends before it, and was longer when it was opened".to_owned()
        }
        cause if cause.to_string() == "uncategorized error" => "input/output error of the device".to_owned(),
        std::io::ErrorKind::Other => "input/output error of the device".to_owned(),
        cause => cause.to_string(),
    }
}

/// Why a ticket failed. Copied freely: every waiter gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StorageError {
    /// The device reported an error for this command.
    #[error("the device failed a {command:?} at {at}: {}; check the disk", name(*cause))]
    Device {
        /// What failed.
        command: CommandKind,
        /// Where; block 0 for commands without an address.
        at: Lba,
        /// What the device, or the kernel in its name, said.
        cause: std::io::ErrorKind,
    },
    /// What came back is not what was written: a checksum does not match.
    #[error("the content of {0} is damaged: its checksum does not match; restore it from a copy")]
    Damaged(Lba),
    /// No room for more data; nothing that was stored is affected.
    #[error(
        "the storage is full, or the disk of the host below it: free space there, then unmount and mount again"
    )]
    NoSpace,
    /// An earlier write or flush failed, so nothing more is acknowledged as durable.
    #[error("an earlier write or flush failed; nothing more is acknowledged; reopen the storage")]
    Poisoned,
    /// Another process has claimed the storage, so nothing more is written or acknowledged here.
    #[error(
        "another process took over the storage: this process writes and acknowledges nothing more; open it on one host at a time"
    )]
    TakenOver,
    /// It has to be in an object store, too, and that does not take it.
    #[error(
        "the object store takes nothing more, as `weir status` says; make it available, then end the mount or server and start it again"
    )]
    NotShipped,
    /// An earlier order-preserving write of the stream failed, and this one may not pass it (S5).
    #[error("an earlier order-preserving write failed, so this one was not carried out")]
    Aborted,
    /// The device was closed before it answered.
    #[error("the device was closed before it answered")]
    Gone,
    /// The device cannot tell when a single write becomes durable; flush instead.
    #[error("the device cannot tell when a single write becomes durable; flush instead")]
    DurabilityUnknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_device_has_a_name() {
        const EIO: i32 = 5;
        let told = |cause| StorageError::Device { command: CommandKind::Read, at: Lba(7), cause }.to_string();
        let eio = told(std::io::Error::from_raw_os_error(EIO).kind());
        assert_eq!(
            eio,
            "the device failed a Read at block 7: input/output error of the device; check the disk"
        );
        assert!(told(std::io::ErrorKind::UnexpectedEof).contains("was longer"));
        assert!(told(std::io::ErrorKind::StorageFull).contains("no storage space"));
    }
}
