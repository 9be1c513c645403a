//! What a mode of BarrierFS does.

use weir_fs::Engine;
use weir_vfs::SyncCall;

/// What is written, and which call follows each write of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FsMode {
    /// Which engine commits.
    pub engine: Engine,
    /// Whether the journal logs changed bytes, and not whole blocks.
    pub coalition: bool,
    /// Where writes go.
    pub write: FsWrite,
    /// The call after each of them.
    pub call: SyncCall,
}

/// Where the writes of a file go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FsWrite {
    /// Behind the end of the file: each allocates a block.
    Append,
    /// At random over a file that is there as a whole.
    Overwrite,
}

/// The engine's name in the names of modes, and in tables.
fn names_of(engine: Engine) -> (&'static str, &'static str) {
    match engine {
        Engine::Dual { .. } => ("barrierfs", "BarrierFS"),
        Engine::FlushAhead => ("flush_ahead", "its engine flush-ahead"),
        _ => ("jbd2", "its engine jbd2"),
    }
}

impl FsMode {
    /// The name that scripts rely on.
    #[must_use]
    pub fn name(self) -> String {
        let (engine, _) = names_of(self.engine);
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
        let (_, engine) = names_of(self.engine);
        let write = match self.write {
            FsWrite::Append => "append",
            FsWrite::Overwrite => "overwrite",
        };
        let coalition = if self.coalition { ", coalition" } else { "" };
        format!("{engine}{coalition}, {write} + {}", self.call.name())
    }
}
