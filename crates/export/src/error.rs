//! Why a request is refused, or an export cannot be.

use std::io::ErrorKind;

use thiserror::Error;
use weir_storage::{Rejected, StorageError};

/// Why a request was not carried out. A server tells its client in the words of their protocol.
#[derive(Debug, Error)]
pub enum RequestError {
    /// It would change what clients may only read.
    #[error("the export is read-only")]
    ReadOnly,
    /// It is none that may be asked.
    #[error("{0}")]
    Invalid(&'static str),
    /// It is about bytes that are not there.
    #[error("the request ends beyond the last byte of the export")]
    BeyondEnd,
    /// Zeros were asked for only if they cost no more than a discard.
    #[error("zeros would have to be written, which is not fast")]
    NotFast,
    /// The disk below a sparse volume is full: free space there.
    #[error("no space is left below the export: {0}")]
    NoSpace(Rejected),
    /// The server before this one was killed, and what it had answered may be lost (N7).
    #[error(
        "the last server was killed, and writes that it had answered may be lost: restart the guest, or mount anew; with --answer \
         disk nothing would be lost"
    )]
    AnsweredLost,
    /// The storage could not.
    #[error(transparent)]
    Storage(Rejected),
}

impl RequestError {
    /// Whether the storage failed, and not the client.
    #[must_use]
    pub fn is_of_storage(&self) -> bool {
        matches!(self, RequestError::Storage(_) | RequestError::NoSpace(_))
    }
}

impl From<Rejected> for RequestError {
    fn from(rejected: Rejected) -> RequestError {
        match &rejected {
            Rejected::Failed(StorageError::NoSpace) => RequestError::NoSpace(rejected),
            Rejected::Failed(StorageError::Device { cause, .. }) if *cause == ErrorKind::StorageFull => {
                RequestError::NoSpace(rejected)
            }
            _ => RequestError::Storage(rejected),
        }
    }
}

/// The storage cannot order without a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the storage keeps no order by itself: serve a volume, or let flushes make durable")]
pub struct NoOrder;
