//! A *measure*: the number of a run that a series shows, and its unit.

use serde::Deserialize;
use weir_crash::Condition;
use weir_storage::BLOCK_BYTES;

use crate::run::Outcome;
use crate::steps::Step;

/// What is shown of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Writes a second.
    Iops,
    /// Inserts a second.
    Inserts,
    /// Operations a second, of a mail server.
    Operations,
    /// Transactions a second.
    Transactions,
    /// Kilobytes that are written to the device for each transaction or operation.
    Written,
    /// What a step takes of the time of synchronisation calls, in percent.
    Step(Step),
    /// Journal blocks over all blocks that are written while a synchronisation call is under way.
    JournalRatio,
    /// Flushes of the device for each transaction or operation.
    Flushes,
    /// Commands in the device's queue, on average.
    DepthMean,
    /// Commands in the device's queue, at most.
    DepthMax,
    /// Microseconds between two commands, on average.
    DelayMean,
    /// The median of them.
    DelayP50,
    /// The 99th percentile of them.
    DelayP99,
    /// Milliseconds that a synchronisation call takes, on average.
    LatencyMean,
    /// The median of them.
    LatencyP50,
    /// The 99th percentile of them.
    LatencyP99,
    /// The 99.9th percentile of them.
    LatencyP999,
    /// The 99.99th percentile of them.
    LatencyP9999,
    /// Flash pages that the device programs for each write or insert, whatever for.
    Pages,
    /// Those of them with data that the host wrote.
    DataPages,
    /// All others: checkpoints of the map, coalescing records, summary pages, and what cleaning moves.
    FirmwarePages,
    /// Megabytes that are written in a second.
    Megabytes,
    /// How much less that is, in percent.
    Overhead,
    /// Pages of increments in percent of the pages with the host's data.
    IncrementShare,
    /// Pages of coalescing records, in the same way.
    RecordShare,
    /// Pages of full checkpoints.
    FullCheckpointShare,
    /// Pages with the host's data that are written because the firmware flushes by itself.
    InternalFlushShare,
    /// Full erase blocks that cleaning may not take before the next checkpoint, on average.
    HeldBack,
    /// Pages that recovery reads.
    RecoveryPages,
    /// Of these, pages of the full checkpoint.
    RecoveryCheckpointPages,
    /// Of these, pages of increments and coalescing records.
    RecoveryLogPages,
    /// Of these, first pages of erase blocks.
    RecoveryProbedPages,
    /// Of these, pages programmed since the newest checkpoint.
    RecoveryScannedPages,
    /// Milliseconds that recovery reads.
    RecoveryTime,
    /// States after a power cut.
    States,
    /// Crash tests, of 1,000, that leave a clean filesystem.
    Clean,
    /// Those that leave one which a repair makes whole.
    Fixed,
    /// Those that leave one which is beyond repair, or not what was promised.
    Failed,
    /// Cuts between requests.
    Cuts,
    /// The number of a request.
    Request,
    /// Bytes of memory.
    Bytes,
    /// Context switches of the calling thread for each call.
    Switches,
    /// Microseconds from one commit of the journal to the next.
    CommitInterval,
    /// Microseconds of a commit's dispatch.
    CommitDispatch,
    /// Microseconds of a commit's dispatch and transfer.
    CommitTransfer,
    /// Microseconds of a commit's dispatch, transfer and flush.
    CommitFlush,
    /// Microseconds from the dispatch of JD to that of JC.
    LogToCommit,
}

impl Measure {
    /// The number that is shown.
    #[must_use]
    pub fn of(self, outcome: &Outcome) -> f64 {
        match self {
            Measure::Iops | Measure::Inserts | Measure::Operations | Measure::Transactions => outcome.iops,
            Measure::Written => outcome.per_write(outcome.counts.written_blocks) * BLOCK_BYTES as f64 / 1e3,
            Measure::Step(step) => outcome.steps.share(step),
            Measure::JournalRatio => outcome.persisted.journal_ratio(),
            Measure::Flushes => outcome.per_write(outcome.counts.flushes),
            Measure::DepthMean => outcome.depth.mean,
            Measure::DepthMax => f64::from(outcome.depth.max),
            Measure::DelayMean => outcome.delays.mean,
            Measure::DelayP50 => outcome.delays.p50,
            Measure::DelayP99 => outcome.delays.p99,
            Measure::LatencyMean => outcome.latency.mean / 1e3,
            Measure::LatencyP50 => outcome.latency.p50 / 1e3,
            Measure::LatencyP99 => outcome.latency.p99 / 1e3,
            Measure::LatencyP999 => outcome.latency.p999 / 1e3,
            Measure::LatencyP9999 => outcome.latency.p9999 / 1e3,
            Measure::Pages => outcome.data_pages() + outcome.firmware_pages(),
            Measure::DataPages => outcome.data_pages(),
            Measure::FirmwarePages => outcome.firmware_pages(),
            Measure::Megabytes | Measure::Overhead => {
                outcome.counts.written_blocks as f64 * BLOCK_BYTES as f64 / 1e6 / outcome.seconds
            }
            Measure::IncrementShare => outcome.share_of_data(outcome.counts.increment_pages),
            Measure::RecordShare => outcome.share_of_data(outcome.counts.record_pages),
            Measure::FullCheckpointShare => {
                outcome.share_of_data(outcome.counts.checkpoint_pages - outcome.counts.increment_pages)
            }
            Measure::InternalFlushShare => outcome.share_of_data(outcome.counts.internally_flushed_pages),
            Measure::HeldBack => outcome.held_back,
            Measure::RecoveryPages => outcome.recovery.pages() as f64,
            Measure::RecoveryCheckpointPages => outcome.recovery.checkpoint_pages as f64,
            Measure::RecoveryLogPages => outcome.recovery.log_pages as f64,
            Measure::RecoveryProbedPages => outcome.recovery.probed_pages as f64,
            Measure::RecoveryScannedPages => outcome.recovery.scanned_pages as f64,
            Measure::RecoveryTime => outcome.recovery.time_ns as f64 / 1e6,
            Measure::States | Measure::Cuts | Measure::Request | Measure::Bytes => outcome.number,
            Measure::Clean | Measure::Fixed | Measure::Failed => {
                let found = self.condition().map_or(0, |condition| outcome.tally.all(condition));
                1e3 * found as f64 / outcome.tally.tests() as f64
            }
            Measure::Switches => outcome.switches,
            Measure::CommitInterval => outcome.commits.interval_us,
            Measure::CommitDispatch => outcome.commits.dispatch_us,
            Measure::LogToCommit => outcome.commits.log_to_commit_us,
            Measure::CommitTransfer => outcome.commits.dispatch_us + outcome.commits.transfer_us,
            Measure::CommitFlush => {
                outcome.commits.dispatch_us + outcome.commits.transfer_us + outcome.commits.flush_us
            }
        }
    }

    /// The condition whose crash tests it counts.
    pub(crate) fn condition(self) -> Option<Condition> {
        match self {
            Measure::Clean => Some(Condition::Clean),
            Measure::Fixed => Some(Condition::Fixed),
            Measure::Failed => Some(Condition::Failed),
            _ => None,
        }
    }

    /// What is shown of a number beside the one that it is shown as a share of.
    #[must_use]
    pub fn beside(self, ours: f64, over: f64) -> f64 {
        let share = 100.0 * ours / over;
        if self == Measure::Overhead { 100.0 - share } else { share }
    }

    /// Its unit.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Measure::Iops => "writes/s",
            Measure::Inserts => "inserts/s",
            Measure::Operations => "operations/s",
            Measure::Transactions => "transactions/s",
            Measure::Written => "KB",
            Measure::Step(_) => "% of the calls",
            Measure::JournalRatio => "of all blocks",
            Measure::Flushes => "flushes",
            Measure::DepthMean | Measure::DepthMax => "commands",
            Measure::DelayMean | Measure::DelayP50 | Measure::DelayP99 => "us",
            Measure::LatencyMean
            | Measure::LatencyP50
            | Measure::LatencyP99
            | Measure::LatencyP999
            | Measure::LatencyP9999 => "ms",
            Measure::Pages | Measure::DataPages | Measure::FirmwarePages => "pages",
            Measure::Megabytes => "MB/s",
            Measure::Overhead => "% less",
            Measure::IncrementShare
            | Measure::RecordShare
            | Measure::FullCheckpointShare
            | Measure::InternalFlushShare => "% of data pages",
            Measure::HeldBack => "erase blocks",
            Measure::RecoveryPages
            | Measure::RecoveryCheckpointPages
            | Measure::RecoveryLogPages
            | Measure::RecoveryProbedPages
            | Measure::RecoveryScannedPages => "pages",
            Measure::RecoveryTime => "ms",
            Measure::States => "states",
            Measure::Clean | Measure::Fixed | Measure::Failed => "of 1,000 tests",
            Measure::Cuts => "cuts",
            Measure::Request => "request",
            Measure::Bytes => "bytes",
            Measure::Switches => "switches",
            Measure::CommitInterval
            | Measure::CommitDispatch
            | Measure::CommitTransfer
            | Measure::CommitFlush
            | Measure::LogToCommit => "us",
        }
    }
}
