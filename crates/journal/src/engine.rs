//! An *engine* says how a transaction is committed. A commit is a small graph: D, JD and JC, and between each two of
//! them what keeps the second behind the first.
//!
//! ```text
//! dual-mode (FAST 2018 paper, section 4.2)   D ------- JD --barrier-- JC --barrier-- next
//! legacy, as jbd2 has it                     D --wait-- JD --wait, flush-- JC, FUA --wait-- next
//! legacy without barriers (EXT4-OD)          D --wait-- JD --wait-- JC --wait-- next
//! legacy with async commit (as jbd2's)       D --wait-- JD -- JC --wait, flush-- next
//! OptFS (SOSP 2013; FAST 2018, section 4.6)  D --wait-- JD -- JC --wait-- next
//! prefix (OPTR paper, section 4)             D --wait-- JD --wait-- JC --wait-- next
//! flush-ahead (eMMC paper, section IV.B)     D --wait, flush-- JD, FUA --mark-- JC, FUA --wait-- next
//! without a journal                          D --wait-- blocks home --wait, flush-- next
//! ```
//!
//! The papers write a call as such a row: the dual-mode one is equation 3, and jbd2's equation 2, of the FAST 2018
//! paper's earlier manuscript. What ends a call, the wait and the flush of equation 3, is in `flush`. The rows of the
//! legacy engine without barriers and of the prefix engine differ there: a durable call of the latter ends with one
//! flush, one of the former with none.
//!
//! Flush-ahead commit is of the paper on the eMMC data-persistence path ("the eMMC paper"). The flush begins when D is
//! transferred, and runs while JD is composed. When both are over, JD and JC leave as one ordered plug (E8), so that one
//! wait is left: packed writes are made in turn, and FUA makes each durable before the next (S7).
//!
//! With *async commit*, as the phone of the FAST 2018 paper had it (a checksum in the place of the flush between JD and JC,
//! says its earlier manuscript), JD and JC leave together. JC may be on the medium without JD: the checksum of each log block
//! tells, and recovery ends there. jbd2's does not tell always: an older superblock, or node of an extent tree, in the place of
//! a newer one has the same CRC-32C, so our log has a checksum of its own.
//! One flush is behind both. What no checksum tells is that D is missing: it was transferred and not flushed when JC came to the
//! medium. So a power cut during a commit may leave files that grew, or were written where space was only allocated, with what
//! their blocks held before, be it durable zeros that were to be overwritten; all else that a call has made durable is right.
//! ext4 refuses its option `journal_async_commit` with mode ordered for that.
//!
//! *OptFS* (*Optimistic Crash Consistency*, SOSP 2013) drops that flush, too, and puts checksums of D into the log. So any
//! block of any transaction may be missing on the medium, and recovery takes the transactions before the first that is not
//! whole (J10). Its `osync` ends with JC's transfer, its `dsync` with one flush. What comes behind a commit on other engines
//! comes behind its *notice* here: the storage says that it is durable, or a timer ends and the journal flushes.
//!
//! On a *prefix device*, which keeps requests in order of receipt, what was transferred was received, so a wait is all
//! that order takes: the flush between JD and JC is dropped (the OPTR paper's optimized `fsync`), and a call that only
//! orders ends without any (`ffence`). Such a device makes the legacy path without barriers consistent, too: that is the
//! paper's no-barrier mode, whose `fsync` promises order, and durability in the end.

use crate::mutants::{JournalMutant, JournalRules};
use weir_block::Class;

/// Which journal engine commits transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The legacy path: one transaction at a time, and a wait for every transfer. With `barrier`, JC goes with
    /// pre-flush and FUA and is durable; without, nothing is flushed, and nothing ordered (EXT4-OD) but by a prefix
    /// device (the OPTR paper's no-barrier mode).
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
    /// The legacy path with checksums in the place of the flush between JD and JC (as jbd2's feature `ASYNC_COMMIT`): both
    /// leave together, and one flush makes them durable. What a durable call returned for is there. A power cut during a commit may
    /// leave a file that grew, or was written where space was only allocated, with what its blocks held before, in mode ordered
    /// as in mode writeback.
    AsyncCommit,
    /// OptFS (SOSP 2013), to be compared with: checksums of log blocks and of data in place of every flush (J10). Blocks that
    /// a transaction has allocated are written in place, others of files go through the log. It knows no barrier and needs none.
    OptFs,
    /// The engine for prefix devices (OPTR paper, section 4): it waits for every transfer as the legacy path does, so
    /// that the device receives D, JD and JC in this order, and needs neither barriers nor a flush between them. A
    /// durable call ends with one flush, shared as in dual mode.
    Prefix,
    /// Flush-ahead commit (eMMC paper, section IV.B), for storage with packed writes and FUA: a flush that runs while JD
    /// is composed makes D durable, and JD and JC leave together, in order and with FUA. It promises what the legacy
    /// path with barriers does.
    FlushAhead,
    /// No journal, as ext4 without one (eMMC paper, section VI, variant N): a commit writes D and then the blocks home,
    /// and flushes. A crash may leave anything. It is there to be compared with, and nothing mounts it by itself.
    Unjournaled,
}

/// What happens to a block that is changed again while its transaction is being committed (J4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// What lies between a part of a commit and the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    /// Nothing: both are in one epoch, in any order. Without barriers, all is one epoch.
    SameEpoch,
    /// A barrier: the next part is in a later epoch. Nothing waits for a transfer.
    Barrier,
    /// A wait for the transfer (Wait-on-Transfer).
    Transfer,
    /// A wait for the transfer, and a flush. Where JC is the next part, it is written with pre-flush and FUA.
    TransferAndFlush,
    /// A wait for the transfer, and a flush, during which the next part is composed.
    FlushAhead,
    /// A mark in an ordered plug (E8): both parts have FUA, and leave together.
    Mark,
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
            Engine::AsyncCommit => CommitGraph {
                behind_data: Edge::Transfer,
                behind_log: Edge::SameEpoch,
                behind_commit: Edge::TransferAndFlush,
            },
            Engine::OptFs => CommitGraph {
                behind_data: Edge::Transfer,
                behind_log: Edge::SameEpoch,
                behind_commit: Edge::Transfer,
            },
            Engine::Prefix => CommitGraph {
                behind_data: Edge::Transfer,
                behind_log: Edge::Transfer,
                behind_commit: Edge::Transfer,
            },
            Engine::FlushAhead => CommitGraph {
                behind_data: Edge::FlushAhead,
                behind_log: Edge::Mark,
                behind_commit: Edge::Transfer,
            },
            // What stands for JD are the blocks themselves, and JC is left out.
            Engine::Unjournaled => CommitGraph {
                behind_data: Edge::Transfer,
                behind_log: Edge::TransferAndFlush,
                behind_commit: Edge::Transfer,
            },
        }
    }

    /// Whether conflicts go on a list (J4).
    pub(crate) fn lists_conflicts(self) -> bool {
        matches!(self, Engine::Dual { conflicts: Conflicts::List | Conflicts::ListUntilTransfer })
    }

    /// Whether a transaction that a caller wants durable gives its blocks up only when it is (J4).
    pub(crate) fn holds_until_durable(self) -> bool {
        self == Engine::Dual { conflicts: Conflicts::List }
    }

    /// How a call submits the data that it was made for: in the epoch that the next barrier closes, where there are
    /// barriers.
    pub fn class_of_calls(self) -> Class {
        if self.uses_barriers() { Class::Ordered } else { Class::Orderless }
    }

    /// Whether data and log blocks go in epochs, so that the storage keeps their order.
    pub fn uses_barriers(self) -> bool {
        matches!(self, Engine::Dual { .. })
    }

    /// Whether it makes anything durable: the legacy path without barriers does not.
    pub fn flushes(self) -> bool {
        self != Engine::Jbd2 { barrier: false }
    }

    /// Whether it is right on prefix devices alone.
    pub fn needs_prefix(self) -> bool {
        self == Engine::Prefix
    }

    /// Whether it needs packed writes and FUA.
    pub fn needs_packed(self) -> bool {
        self == Engine::FlushAhead
    }

    /// Whether what it commits is in the log before it is home.
    pub fn logs(self) -> bool {
        self != Engine::Unjournaled
    }

    /// Whether a call that only orders is made durable all the same, as no less keeps order: on the legacy path.
    pub fn orders_by_durability(self) -> bool {
        matches!(self, Engine::Jbd2 { .. } | Engine::AsyncCommit | Engine::FlushAhead | Engine::Unjournaled)
    }

    /// Whether JC may be on the medium without JD, so that the log needs checksums.
    pub fn commits_early(self) -> bool {
        matches!(self, Engine::AsyncCommit | Engine::OptFs)
    }

    /// Whether the log tells of missing data, and transactions are durable by notice only (J10).
    pub fn checks_data(self) -> bool {
        self == Engine::OptFs
    }

    /// Whether the host keeps order by flushes: the log's tail goes behind one, and is written with FUA. What is committed is
    /// durable before it goes home, by JC's own FUA or by a flush behind JC.
    pub fn orders_by_flushes(self) -> bool {
        matches!(
            self,
            Engine::Jbd2 { barrier: true } | Engine::AsyncCommit | Engine::OptFs | Engine::FlushAhead
        )
    }

    /// Whether a flush behind JC makes transactions durable, for the callers that want it (J1).
    pub(crate) fn flushes_for_callers(self) -> bool {
        matches!(self, Engine::Dual { .. } | Engine::OptFs | Engine::Prefix)
    }
}
