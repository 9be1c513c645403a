//! What can go wrong between a caller and the block layer.

use thiserror::Error;
use weir_storage::{Rejected, StorageError};

/// Why a block layer could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BlockError {
    /// Order-preserving dispatch needs a device that knows barriers.
    #[error(
        "order-preserving dispatch needs a device with barriers; put a volume on this one, or choose legacy dispatch"
    )]
    NoBarriers,
    /// A queue without room accepts nothing.
    #[error("the queue needs room for at least one request (option `queue_requests`)")]
    NoRoom,
}

/// Why a request did not enter the block layer. Nothing was done; the caller still owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// The queue is full: wait for [`BlockLayer::space`](crate::BlockLayer::space) and submit again.
    #[error("the block layer's queue is full; wait for space and submit again")]
    Full,
    /// The device cannot do this, or accepts nothing more; [`StorageError::Aborted`] where an earlier
    /// order-preserving write of the stream failed (S5).
    #[error(transparent)]
    Rejected(#[from] Rejected),
}

impl From<StorageError> for Refused {
    fn from(error: StorageError) -> Refused {
        Refused::Rejected(Rejected::Failed(error))
    }
}
