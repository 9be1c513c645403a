//! An *engine* says how a transaction is committed. A commit is a small graph: D, JD and JC, and between each two of
//! them what keeps the second behind the first.
//!
//! ```text
//! dual-mode (FAST 2018 paper, section 4.2)   D ------- JD --barrier-- JC --barrier-- next
//! legacy, as jbd2 has it                     D --wait-- JD --wait, flush-- JC, FUA --wait-- next
//! legacy without barriers (EXT4-OD)          D --wait-- JD --wait-- JC --wait-- next
//! ```
//!
//! The papers write a call as such a row: the dual-mode one is equation 3, and jbd2's equation 2, of the FAST 2018
//! paper's earlier manuscript. What ends a call, the wait and the flush of equation 3, is in `flush`.

use crate::mutants::{JournalMutant, JournalRules};

/// Which journal engine commits transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The legacy path: one transaction at a time, and a wait for every transfer. With `barrier`, JC goes with
    /// pre-flush and FUA and is durable; without, nothing is flushed and nothing ordered (EXT4-OD).
    Jbd2 {
        /// Whether JC is written with pre-flush and FUA.
        barrier: bool,
    },
    /// Dual-mode journaling (FAST 2018 paper, section 4.2): a commit task that dispatches and never waits for a
    /// transfer, and a flush task that makes durable what a caller wants durable (J1).
    Dual {
        /// What happens to a block that is changed again while its transaction is being committed (J4).
        conflicts: Conflicts,
    },
}

/// What happens to a block that is changed again while its transaction is being committed (J4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conflicts {
    /// It goes on a list, and the running transaction commits only when the list is empty (FAST 2018 paper,
    /// section 4.3).
    List,
    /// Log blocks are immutable copies, made when the block is changed again; nothing waits.
    #[default]
    Copy,
}

/// What lies between a part of a commit and the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    /// Nothing: both are in one epoch, in any order.
    SameEpoch,
    /// A barrier: the next part is in a later epoch. Nothing waits for a transfer.
    Barrier,
    /// A wait for the transfer (Wait-on-Transfer).
    Transfer,
    /// A wait for the transfer, and a flush: the next part is written with pre-flush and FUA.
    TransferAndFlush,
}

/// The graph of a commit: what follows each of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommitGraph {
    /// Between D, the data of every attached file, and JD, the descriptor and log blocks.
    pub(crate) behind_data: Edge,
    /// Between JD and JC, the commit block.
    pub(crate) behind_log: Edge,
    /// Between JC and the next transaction.
    pub(crate) behind_commit: Edge,
}

impl Engine {
    /// How this engine commits.
    pub(crate) fn graph(self, rules: JournalRules) -> CommitGraph {
        match self {
            // J2, equation 3: {D, JD} is one epoch, {JC} the next.
            Engine::Dual { .. } => CommitGraph {
                behind_data: Edge::SameEpoch,
                behind_log: match rules.drops(JournalMutant::CommitInEpochOfLog) {
                    true => Edge::SameEpoch,
                    false => Edge::Barrier,
                },
                behind_commit: Edge::Barrier,
            },
            // Equation 2, whose last flush is the FUA of JC.
            Engine::Jbd2 { barrier } => CommitGraph {
                behind_data: Edge::Transfer,
                behind_log: if barrier { Edge::TransferAndFlush } else { Edge::Transfer },
                behind_commit: Edge::Transfer,
            },
        }
    }

    /// Whether conflicts go on a list (J4).
    pub(crate) fn lists_conflicts(self) -> bool {
        self == Engine::Dual { conflicts: Conflicts::List }
    }

    /// Whether data and log blocks go in epochs, so that the storage keeps their order.
    pub fn uses_barriers(self) -> bool {
        matches!(self, Engine::Dual { .. })
    }

    /// Whether it makes anything durable: the legacy path without barriers does not.
    pub fn flushes(self) -> bool {
        self != Engine::Jbd2 { barrier: false }
    }
}
