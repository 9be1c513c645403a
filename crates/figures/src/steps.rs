//! *Steps* of synchronisation calls: what their time goes to, as figure 12 of the eMMC paper divides it.

use weir_fs::Statistics;

/// A step, or two of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The wait until the data of the file, and of those in its transaction, are transferred.
    DataWriteback,
    /// The blocks of the log are made.
    ComposeDescriptor,
    /// The wait for a flush that went ahead of the log's blocks, beyond the time in which they were made.
    WaitFlush,
    /// The wait until the log's blocks are transferred, where they are waited for alone.
    WaitWriteback,
    /// The wait for the commit block, with the flush that it brings; or for the log's blocks and that one together.
    WaitCommitBlock,
    /// Both waits that have a flush in them, for that ahead and for the commit block.
    FlushAndCommitBlock,
    /// All else: context switches, calls that found nothing to commit, waits for a commit under way.
    Others,
}

/// How long the steps took, added up, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Steps {
    pub(crate) data: f64,
    pub(crate) compose: f64,
    pub(crate) flush: f64,
    pub(crate) log: f64,
    pub(crate) commit_block: f64,
    /// The calls as a whole.
    pub(crate) calls: f64,
}

impl Steps {
    /// What a filesystem has counted; of the calls as a whole nothing.
    pub(crate) fn of(statistics: &Statistics) -> Steps {
        let times = statistics.journal.commit_times;
        let [caller, data, compose, flush, log, commit_block] = [
            statistics.journal.data_of_calls,
            times.data,
            times.compose,
            times.flush,
            times.log,
            times.commit_block,
        ]
        .map(|time| time.as_nanos() as f64);
        Steps { data: caller + data, compose, flush, log, commit_block, calls: 0.0 }
    }

    /// What was counted since `before`, in calls that took so long.
    pub(crate) fn since(&self, before: &Steps, calls: f64) -> Steps {
        Steps {
            data: self.data - before.data,
            compose: self.compose - before.compose,
            flush: self.flush - before.flush,
            log: self.log - before.log,
            commit_block: self.commit_block - before.commit_block,
            calls,
        }
    }

    /// What a step takes of the calls' time, in percent; nothing of no calls.
    pub(crate) fn share(&self, step: Step) -> f64 {
        let Steps { data, compose, flush, log, commit_block, calls } = *self;
        let time = match step {
            Step::DataWriteback => data,
            Step::ComposeDescriptor => compose,
            Step::WaitFlush => flush,
            Step::WaitWriteback => log,
            Step::WaitCommitBlock => commit_block,
            Step::FlushAndCommitBlock => flush + commit_block,
            Step::Others => calls - (data + compose + flush + log + commit_block),
        };
        if calls == 0.0 { 0.0 } else { 100.0 * time / calls }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_steps_are_all_of_the_time() {
        let before = Steps { data: 1.0, ..Steps::default() };
        let after =
            Steps { data: 11.0, compose: 5.0, flush: 15.0, log: 20.0, commit_block: 30.0, calls: 0.0 };
        let steps = after.since(&before, 100.0);
        let each = [
            Step::DataWriteback,
            Step::ComposeDescriptor,
            Step::WaitFlush,
            Step::WaitWriteback,
            Step::WaitCommitBlock,
            Step::Others,
        ]
        .map(|step| steps.share(step));
        assert_eq!(each, [10.0, 5.0, 15.0, 20.0, 30.0, 20.0]);
        assert_eq!(steps.share(Step::FlushAndCommitBlock), 45.0);
    }
}
