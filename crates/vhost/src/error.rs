//! Why a frontend is dropped, or a ring served no more.

use std::io;

use thiserror::Error;
use vhost::vhost_user;

/// Why a frontend was dropped.
#[derive(Debug, Error)]
pub enum VhostError {
    /// The system failed it.
    #[error("the connection failed: {0}")]
    Connection(#[from] io::Error),
    /// A message that is none of the protocol, or not in its turn.
    #[error("the frontend does not keep to the protocol: {0}")]
    Protocol(vhost_user::Error),
    /// Half a message, and no more.
    #[error("the frontend did not send all of a message, or did not take the reply, within 10 s")]
    Slow,
    /// Memory that cannot be mapped.
    #[error("the guest's memory cannot be mapped: {0}; share it (memory-backend-memfd, share=on)")]
    Memory(String),
    /// A ring in no memory.
    #[error("ring {0} is not in the memory that the frontend shares")]
    RingOutside(usize),
    /// In-flight memory of another shape.
    #[error("the memory for requests under way is not as this server gives it: {0}")]
    Inflight(&'static str),
    /// More queues, or longer ones, than there are.
    #[error("queue {queue} of {size} requests: there are 16 of 1024 at most (num-queues, queue-size)")]
    Queues {
        /// Its number, from 0.
        queue: usize,
        /// Its length.
        size: u32,
    },
}

impl From<VhostError> for vhost_user::Error {
    fn from(error: VhostError) -> vhost_user::Error {
        vhost_user::Error::ReqHandlerError(io::Error::other(error))
    }
}
