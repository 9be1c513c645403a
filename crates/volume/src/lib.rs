//! A log-structured volume: barriers on any disk.
//!
//! The papers change firmware so that a disk keeps the order of writes. A volume does the same one layer
//! up, on the disk that is there: every write becomes a checksummed, sequence-numbered record at the head
//! of a log, many chunks of the log are in flight in any completion order, and after a crash recovery keeps
//! exactly the longest unbroken prefix. So a barrier costs nothing, a request is atomic, and a flush is one
//! flush of the disk below.
//!
//! What is promised, with the rules that keep it:
//!
//! | rule | promise | kept in |
//! |---|---|---|
//! | V1 | recovery begins a new log generation; records behind the cut never count again | `volume.rs`, `recovery.rs` |
//! | V2 | every chunk carries the last sequence number known durable; a hole below it is an error, not a silent cut | `chunk.rs`, `recovery.rs` |
//! | V3 | a version is overwritten only when what supersedes it is durable; one gate decides | `segments.rs`, `checkpoint.rs` |
//! | V4 | the segments that come next are in the checkpoint; recovery reads a bounded tail | `segments.rs`, `checkpoint.rs` |
//! | V5 | what may be lost without a flush is bounded in time and bytes, and reported | `flush.rs`, `log.rs` |
//!
//! **What the disk below may do** (the crash model): forget or keep each unit of 512 bytes or 4 KiB of what
//! was not flushed, independently and in any order, and tear any write between units. It may not lose what
//! was flushed, and a unit holds one whole version. Where it does worse, checksums notice.
//!
//! Start reading in `log.rs` (how a write gets its place), then `recovery.rs` (what a crash leaves),
//! then `checkpoint.rs`. Every bit on the medium is in `layout.rs` and in `docs/format/volume.md`.

mod check;
mod checkpoint;
mod chunk;
mod cleaner;
mod error;
mod flush;
mod geometry;
mod layout;
mod log;
mod map;
mod mutants;
mod options;
mod read;
mod recovery;
mod segments;
mod state;
mod stats;
mod transfer;
mod volume;

pub use check::{CheckReport, Info, check, inspect};
pub use error::{Damage, FormatError, VolumeError};
pub use geometry::Format;
#[cfg(feature = "mutants")]
pub use mutants::VolumeMutant;
pub use options::{CleaningPolicy, Completion, LossWindow, VolumeOptions};
pub use stats::{LossWindowSeen, RecoveryReport, Stats};
pub use volume::Volume;
