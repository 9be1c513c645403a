//! The protocol of `/dev/fuse`: what the kernel asks, and what it is answered.
//!
//! A request is a header, the operation's arguments, then names (each ends with a zero byte) or data. An answer is a
//! header and, if it is no error, what the operation gives. One `read` takes one request, one `write` brings one
//! answer. Integers are in the host's order. The kernel's `include/uapi/linux/fuse.h` is the specification; here is
//! what version 7.33 and later say to a server that asks for the capabilities in `server`.

mod answer;
mod operation;

pub(crate) use answer::{Answer, Names, NodeAttributes, Statistics, open_flags};
pub(crate) use operation::{Header, Operation, SetAttributes, Time, WriteRequest, opcode};

/// The oldest minor version of the protocol whose structures are these (Linux 5.13).
pub(crate) const OLDEST_MINOR: u32 = 33;

/// The kernel's number of the root directory.
pub(crate) const ROOT: u64 = 1;

/// Bytes of a write, or of what is read, in one request.
pub(crate) const TRANSFER_BYTES: u32 = 1 << 20;

/// Bytes of a request, at most: a write with its header and arguments.
pub(crate) const REQUEST_BYTES: usize = TRANSFER_BYTES as usize + 4096;
