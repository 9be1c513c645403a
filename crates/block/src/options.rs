//! How a block layer is furnished.

use std::time::Duration;

use weir_storage::Rules;

use crate::mutants::BlockMutant;

/// Which discipline orders the requests inside an epoch (E2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ElevatorKind {
    /// First in, first out.
    #[default]
    Noop,
    /// Ascending block addresses, with an expiry for each request.
    Deadline,
    /// Round robin over streams, a quantum of blocks each.
    Fair,
}

/// Who keeps order between epochs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dispatch {
    /// The device, by barriers: a command follows as soon as the last was accepted (E5).
    #[default]
    OrderPreserving,
    /// The host, by transfer-and-flush where the caller asks (E6); works on every device.
    Legacy,
}

/// The options of a [`BlockLayer`](crate::BlockLayer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockOptions {
    /// The discipline inside an epoch. Default: noop.
    pub elevator: ElevatorKind,
    /// Who keeps order between epochs. Default: the device.
    pub dispatch: Dispatch,
    /// Writes and discards that may be queued, 1 and more; as many reads, flushes and bare barriers again.
    /// Default: 128, as Linux's `nr_requests`.
    pub queue_requests: usize,
    /// How long an orderless request waits at most for a closed queue (E3). Default: 3 ms.
    pub closed_wait: Duration,
    /// Whether a request that continues a queued one becomes part of it. Default: yes.
    pub merge: bool,
    /// When to try again after a device refused with slots free (E5). Default: 3 ms, as for SCSI
    /// (FAST 2018 paper, section 3.3).
    pub busy_retry: Duration,
    /// The rules that this layer keeps: all of them.
    pub rules: Rules<BlockMutant>,
}

impl Default for BlockOptions {
    fn default() -> BlockOptions {
        BlockOptions {
            elevator: ElevatorKind::default(),
            dispatch: Dispatch::default(),
            queue_requests: 128,
            closed_wait: Duration::from_millis(3),
            merge: true,
            busy_retry: Duration::from_millis(3),
            rules: Rules::all(),
        }
    }
}
