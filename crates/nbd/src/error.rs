//! Why a connection ended.

use std::io;

use thiserror::Error;

/// Why a connection was dropped.
#[derive(Debug, Error)]
pub enum NbdError {
    /// The system failed it.
    #[error("the connection failed: {0}")]
    Connection(#[from] io::Error),
    /// The end came in the middle of something.
    #[error("the client closed the connection in the middle of a message")]
    Ended,
    /// Something else than the protocol's.
    #[error("{found:#x} is no magic number of {what}: the client does not speak NBD, or lost its place")]
    Magic {
        /// What should have begun there.
        what: &'static str,
        /// What was there.
        found: u64,
    },
    /// The client wants what the server has not offered.
    #[error("the client's flags are {0:#x}, of which the server knows 0x3: it speaks a newer protocol")]
    ClientFlags(u32),
    /// More than an option takes.
    #[error("an option of {0} bytes: the longest has 8192")]
    OptionTooLong(u32),
    /// Negotiation without end.
    #[error("the client sent more than 128 options and has not begun")]
    TooManyOptions,
    /// There is one export, whose name is empty.
    #[error("the client asked for the export {0:?}: use the default export, whose name is empty")]
    UnknownExport(String),
    /// A write of more than a request takes.
    #[error("a write of {0} bytes: the longest has 33554432")]
    PayloadTooLong(u32),
    /// Nothing was agreed in time.
    #[error("the client did not finish negotiating within 10 s")]
    Slow,
}
