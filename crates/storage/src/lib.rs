//! The storage contract of Weir: what every block store promises, and how it is checked.

mod address;
mod capability;
mod command;
mod contract;
mod error;
mod file_disk;
mod ticket;

pub use address::{BLOCK_BYTES, Extent, Lba};
pub use capability::{Capabilities, Discard, Ordering};
pub use command::{
    Command, CommandKind, Data, Epoch, Order, Part, Priority, RequestId, SharePair, StreamId, Tag, Write,
    WriteFlags,
};
pub use contract::{Storage, flush, read, submit_when_free, write};
pub use error::{Feature, Invalid, Rejected, StorageError};
pub use file_disk::{FileDisk, FileDiskError, FileDiskOptions};
pub use ticket::{Completer, LogPhase, Ticket, Watermark};
