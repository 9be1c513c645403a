//! What others must know of an engine: one table.

use weir_block::Class;
use weir_ext4::journal::LogFeatures;

use super::Engine;

/// What keeps the order of an engine's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderBy {
    /// Barriers: data and log blocks go in epochs.
    Barriers,
    /// The host, by flushes.
    Flushes,
    /// Nothing but the storage, which keeps requests in order of receipt if it is a prefix device; the host waits for
    /// transfers.
    Receipt,
}

/// What an engine needs of the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// That it keeps requests in order of receipt.
    Prefix,
    /// Packed writes and FUA.
    Packed,
}

/// What others know of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What keeps order.
    pub order: OrderBy,
    /// Whether anything is made durable.
    pub flushes: bool,
    /// Whether a flush behind JC, by the flush task, makes transactions durable for the callers that want it (J1). On other
    /// engines a transaction is durable when its commit ends.
    pub flushes_for_callers: bool,
    /// What of the log's format the engine needs; coalition is the mount's choice.
    pub log: LogFeatures,
    /// Whether what is committed is in the log before it is home.
    pub logs: bool,
    /// What it needs of the storage.
    pub needs: Needs,
}

const PLAIN: LogFeatures = LogFeatures { coalition: false, async_commit: false, data_checksums: false };
/// JC may be on the medium without JD: checksums tell.
const CHECKED: LogFeatures = LogFeatures { async_commit: true, ..PLAIN };
/// D may be missing, too: checksums of data in place tell (J10).
const DATA_CHECKED: LogFeatures = LogFeatures { data_checksums: true, ..CHECKED };

impl Engine {
    /// What others know of it.
    #[must_use]
    pub const fn facts(self) -> Facts {
        let legacy = Facts {
            order: OrderBy::Flushes,
            flushes: true,
            flushes_for_callers: false,
            log: PLAIN,
            logs: true,
            needs: Needs::Nothing,
        };
        match self {
            Engine::Dual { .. } => Facts { order: OrderBy::Barriers, flushes_for_callers: true, ..legacy },
            Engine::Jbd2 { barrier: true } => legacy,
            Engine::Jbd2 { barrier: false } => Facts { order: OrderBy::Receipt, flushes: false, ..legacy },
            Engine::AsyncCommit => Facts { log: CHECKED, ..legacy },
            Engine::OptFs => Facts { log: DATA_CHECKED, flushes_for_callers: true, ..legacy },
            Engine::Prefix => {
                Facts { order: OrderBy::Receipt, flushes_for_callers: true, needs: Needs::Prefix, ..legacy }
            }
            Engine::FlushAhead => Facts { needs: Needs::Packed, ..legacy },
            Engine::Unjournaled => Facts { order: OrderBy::Receipt, flushes: false, logs: false, ..legacy },
        }
    }

    /// Whether data and log blocks go in epochs, so that the storage keeps their order.
    #[must_use]
    pub const fn uses_barriers(self) -> bool {
        matches!(self.facts().order, OrderBy::Barriers)
    }

    /// How a call submits the data that it was made for: in the epoch that the next barrier closes, where there are
    /// barriers.
    #[must_use]
    pub const fn class_of_calls(self) -> Class {
        if self.uses_barriers() { Class::Ordered } else { Class::Orderless }
    }
}
