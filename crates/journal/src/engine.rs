//! The names of the engines, and what others know of them. How they work is in [`engines`](crate::engines).

mod facts;
mod names;

pub use facts::{Facts, Needs, OrderBy};
pub use names::UnknownEngine;

/// Which journal engine commits transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Engine {
    /// Dual-mode journaling: a commit task that dispatches and never waits for a transfer, and a flush task that makes durable
    /// what a caller wants durable (J1). It orders by barriers.
    Dual {
        /// What happens to a block that is changed again while its transaction is being committed (J4).
        conflicts: Conflicts,
    },
    /// The legacy path: one transaction at a time, and a wait for every transfer.
    Jbd2 {
        /// Whether JC is written with pre-flush and FUA, and is durable then. Without, nothing is flushed, and nothing ordered
        /// (EXT4-OD) but by a prefix device (the OPTR paper's no-barrier mode).
        barrier: bool,
    },
    /// The legacy path with checksums in the place of the flush between JD and JC. A power cut during a commit may leave a file
    /// that grew, or was written where space was only allocated, with what its blocks held before.
    AsyncCommit,
    /// OptFS, to be compared with: checksums of log blocks and of data in place of every flush (J10).
    OptFs,
    /// The engine for prefix devices, which keep requests in order of receipt: it waits for every transfer, and needs neither
    /// barriers nor a flush between.
    Prefix,
    /// Flush-ahead commit, for storage with packed writes and FUA: a flush that runs while JD is composed makes D durable.
    FlushAhead,
    /// No journal, as ext4 without one, to be compared with: a crash may leave anything, and nothing mounts it by itself.
    Unjournaled,
}

/// What happens to a block that is changed again while its transaction is being committed (J4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Conflicts {
    /// It goes on a list, and the running transaction commits only when the list is empty (FAST 2018 paper,
    /// section 4.4). A transaction gives its blocks up when it is durable; one that no caller wants durable, when JC is
    /// transferred (section 4.2, and the earlier manuscript's).
    List,
    /// The same list, but every transaction gives its blocks up when JC is transferred.
    ListUntilTransfer,
    /// Log blocks are immutable copies, made when the block is changed again; nothing waits.
    #[default]
    Copy,
}

impl Engine {
    /// Dual-mode journaling with copies, what BarrierFS is.
    pub const DUAL: Engine = Engine::Dual { conflicts: Conflicts::Copy };
    /// The legacy path with barriers.
    pub const JBD2: Engine = Engine::Jbd2 { barrier: true };

    /// Whether conflicts go on a list (J4).
    pub(crate) fn lists_conflicts(self) -> bool {
        matches!(self, Engine::Dual { conflicts: Conflicts::List | Conflicts::ListUntilTransfer })
    }

    /// Whether a transaction that a caller wants durable gives its blocks up only when it is (J4).
    pub(crate) fn holds_until_durable(self) -> bool {
        self == Engine::Dual { conflicts: Conflicts::List }
    }
}
