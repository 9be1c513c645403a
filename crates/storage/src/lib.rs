//! The storage contract of Weir: what every block store promises, and how it is checked.

mod address;
mod adversary;
mod capability;
mod command;
mod conformance;
mod contract;
mod error;
mod file_disk;
mod recorder;
mod ticket;

pub use address::{BLOCK_BYTES, Extent, Lba};
#[cfg(feature = "mutants")]
pub use adversary::StorageMutant;
pub use adversary::{
    AdversaryDisk, AdversaryOptions, CrashStates, Expectation, Fault, Faults, Illegal, Image, Reason, Witness,
};
pub use capability::{Capabilities, Discard, Ordering};
pub use command::{
    Command, CommandKind, Data, Epoch, Order, Part, Priority, RequestId, SharePair, StreamId, Tag, Write,
    WriteFlags,
};
pub use conformance::{
    CONFORMANCE_BLOCKS_MIN, CONFORMANCE_TRANSFER_MIN, Expectations, Failure, Report, Rule, conformance,
};
pub use contract::{Storage, flush, read, submit_when_free, write};
pub use error::{Feature, Invalid, Rejected, StorageError};
pub use file_disk::{FileDisk, FileDiskError, FileDiskOptions};
pub use recorder::{Counts, Layer, Recorder, Violation};
pub use ticket::{Completer, LogPhase, Ticket, Watermark};
