//! The protocol of `/dev/fuse`: what the kernel asks, and what it is answered.
//!
//! A request is a header, the operation's arguments, then names (each ends with a zero byte) or data. An answer is a
//! header and, if it is no error, what the operation gives. One `read` takes one request, one `write` brings one
//! answer. Integers are in the host's order. The kernel's `include/uapi/linux/fuse.h` is the specification; here is
//! what version 7.33 and later say to a server that asks for the capabilities in `server`.

mod answer;
mod forget;
mod names;
pub(crate) mod notice;
mod operation;

pub(crate) use answer::{Answer, NodeAttributes, Statistics, open_flags};
pub(crate) use forget::forgotten;
pub(crate) use names::{DirectoryName, Names};
pub(crate) use operation::{CopyRequest, Header, Operation, SetAttributes, Time, WriteRequest, opcode};

/// The oldest minor version of the protocol whose structures are these (Linux 5.13).
pub(crate) const OLDEST_MINOR: u32 = 33;

/// The oldest whose writeback cache can be used (Linux 6.16).
pub(crate) const OLDEST_WRITEBACK_MINOR: u32 = 44;

/// The kernel's number of the root directory.
pub(crate) const ROOT: u64 = 1;

/// How the kernel is to call a node: by its number and its generation. A file that gets the number of one that was
/// deleted is another node, so what the kernel still says of the first is not taken for the second.
pub(crate) fn node_id(number: u64, generation: u32) -> u64 {
    if number <= ROOT { number } else { u64::from(generation) << 32 | number }
}

/// The number and the generation of a node; of the root there is none.
pub(crate) fn of_node_id(id: u64) -> (u64, u32) {
    (id & u64::from(u32::MAX), (id >> 32) as u32)
}

/// Bytes of a write, or of what is read, in one request.
pub(crate) const TRANSFER_BYTES: u32 = 1 << 20;

/// Bytes of a request, at most: a write with its header and arguments.
pub(crate) const REQUEST_BYTES: usize = TRANSFER_BYTES as usize + 4096;
