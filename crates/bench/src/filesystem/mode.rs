//! What a mode of BarrierFS does.

use serde::Serialize;
use weir_fs::{Conflicts, Engine, Filesystem, FsError, InodeNumber};

/// What is written, and which call follows each write of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FsMode {
    /// Which engine commits.
    pub engine: JournalEngine,
    /// Whether the journal logs changed bytes, and not whole blocks.
    pub coalition: bool,
    /// Where writes go.
    pub write: FsWrite,
    /// The call after each of them.
    pub call: Call,
}

/// The journal's engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JournalEngine {
    /// Dual-mode journaling, policy copy: what BarrierFS is.
    Dual,
    /// The legacy path, which waits for each transfer and flushes.
    Jbd2,
    /// Flush-ahead commit (eMMC paper).
    FlushAhead,
}

/// Where the writes of a file go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FsWrite {
    /// Behind the end of the file: each allocates a block.
    Append,
    /// At random over a file that is there as a whole.
    Overwrite,
}

/// A synchronisation call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// Data and inode are durable when it returns.
    Fsync,
    /// Data is, and what is needed to find it.
    Fdatasync,
    /// Data and inode are ordered before whatever comes later.
    Fbarrier,
    /// Data is, and what is needed to find it.
    Fdatabarrier,
}

/// What a call promises when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Promise {
    /// It is on the medium.
    Durable,
    /// It is before everything that comes later, and durable within the loss window.
    Ordered,
}

impl Call {
    /// What it promises.
    #[must_use]
    pub fn promise(self) -> Promise {
        match self {
            Call::Fsync | Call::Fdatasync => Promise::Durable,
            Call::Fbarrier | Call::Fdatabarrier => Promise::Ordered,
        }
    }

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Call::Fsync => "fsync",
            Call::Fdatasync => "fdatasync",
            Call::Fbarrier => "fbarrier",
            Call::Fdatabarrier => "fdatabarrier",
        }
    }

    pub(super) async fn call(self, filesystem: &Filesystem, inode: InodeNumber) -> Result<(), FsError> {
        match self {
            Call::Fsync => filesystem.fsync(inode).await,
            Call::Fdatasync => filesystem.fdatasync(inode).await,
            Call::Fbarrier => filesystem.fbarrier(inode).await,
            Call::Fdatabarrier => filesystem.fdatabarrier(inode).await,
        }
    }
}

impl JournalEngine {
    pub(super) fn engine(self) -> Engine {
        match self {
            JournalEngine::Dual => Engine::Dual { conflicts: Conflicts::Copy },
            JournalEngine::Jbd2 => Engine::Jbd2 { barrier: true },
            JournalEngine::FlushAhead => Engine::FlushAhead,
        }
    }
}

impl FsMode {
    /// The name that scripts rely on.
    #[must_use]
    pub fn name(self) -> String {
        let engine = match self.engine {
            JournalEngine::Dual => "barrierfs",
            JournalEngine::Jbd2 => "jbd2",
            JournalEngine::FlushAhead => "flush_ahead",
        };
        let write = match self.write {
            FsWrite::Append => "append",
            FsWrite::Overwrite => "overwrite",
        };
        let coalition = if self.coalition { "_coalition" } else { "" };
        format!("{engine}{coalition}_{write}_{}", self.call.name())
    }

    /// What it does, for a table.
    #[must_use]
    pub fn title(self) -> String {
        let engine = match self.engine {
            JournalEngine::Dual => "BarrierFS",
            JournalEngine::Jbd2 => "its engine jbd2",
            JournalEngine::FlushAhead => "its engine flush-ahead",
        };
        let write = match self.write {
            FsWrite::Append => "append",
            FsWrite::Overwrite => "overwrite",
        };
        let coalition = if self.coalition { ", coalition" } else { "" };
        format!("{engine}{coalition}, {write} + {}", self.call.name())
    }
}
