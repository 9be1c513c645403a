//! BarrierFS: an ext4 filesystem in user space whose journal orders by barriers instead of waiting.

#![allow(dead_code, unused_imports, reason = "the calls of the filesystem come next")]

mod buffer;
mod buffers;
mod disk;
mod error;
mod journal;
mod mutants;
mod options;

pub use disk::Waits;
pub use error::{FsError, ReadOnlyReason};
pub use journal::JournalStats;
pub use mutants::FsMutant;
pub use options::{Conflicts, Engine, JournalMode, MountOptions};
