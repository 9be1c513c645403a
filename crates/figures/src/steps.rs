//! *Steps* of synchronisation calls: what their time goes to, as figure 12 of the eMMC paper divides it.

use weir_fs::Statistics;

/// How long the steps took, added up, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Steps {
    /// The wait until the data of the file, and of those in its transaction, are transferred.
    pub(crate) data: f64,
    /// The blocks of the log are made.
    pub(crate) compose: f64,
    /// The wait for a flush that went ahead of the log's blocks, and for the data before it, beyond the time in which they were made.
    pub(crate) flush: f64,
    /// The wait until the log's blocks are transferred, where they are waited for alone.
    pub(crate) log: f64,
    /// The wait for the commit block, with the flush that it brings; or for the log's blocks and that one together.
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

    /// All else: context switches, calls that found nothing to commit, waits for a commit under way.
    pub(crate) fn others(&self) -> f64 {
        let Steps { data, compose, flush, log, commit_block, calls } = *self;
        calls - (data + compose + flush + log + commit_block)
    }

    /// What so much time is of the calls' time, in percent; nothing of no calls.
    pub(crate) fn share(&self, time: f64) -> f64 {
        if self.calls == 0.0 { 0.0 } else { 100.0 * time / self.calls }
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
        let Steps { data, compose, flush, log, commit_block, .. } = steps;
        let each = [data, compose, flush, log, commit_block, steps.others()].map(|time| steps.share(time));
        assert_eq!(each, [10.0, 5.0, 15.0, 20.0, 30.0, 20.0]);
        assert_eq!(steps.share(flush + commit_block), 45.0);
    }
}
