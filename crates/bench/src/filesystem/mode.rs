//! What a mode of a filesystem does.

use weir_vfs::{Promise, SyncCall};

use crate::filesystem::kind::FsKind;

/// What is written, and which call follows each write of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FsMode {
    /// Through which filesystem.
    pub kind: FsKind,
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
    /// The same, all writes before a call as one update, which a crash leaves as a whole: of an atomic file, or F2FS's atomic writes.
    Update,
}

impl FsWrite {
    fn name(self) -> &'static str {
        match self {
            FsWrite::Append => "append",
            FsWrite::Overwrite => "overwrite",
            FsWrite::Update => "update",
        }
    }
}

impl FsMode {
    /// What holds when a call returns. One that flushes nothing only orders, as the volume keeps requests in order.
    #[must_use]
    pub fn promise(self) -> Promise {
        if self.kind.flushes() { self.call.promise() } else { Promise::Ordered }
    }

    /// The name that scripts rely on.
    #[must_use]
    pub fn name(self) -> String {
        let (kind, _) = self.kind.names();
        format!("{kind}_{}_{}", self.write.name(), self.call.name())
    }

    /// What it does, for a table.
    #[must_use]
    pub fn title(self) -> String {
        let (_, kind) = self.kind.names();
        format!("{kind}, {} + {}", self.write.name(), self.call.name())
    }
}
