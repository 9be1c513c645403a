//! *Health*: what is wrong with a mount, as its status tells. A new cause is one more entry in [`findings`].
//!
//! What only happened once, such as a loss window that was exceeded, and what somebody chose, such as a read-only mount, is in the
//! status and no finding: it would never go away, or never be wanted to.

use serde::Serialize;

use crate::plain::counted;
use crate::size::Size;
use crate::status::{ASKED_READ_ONLY, Status};

/// How much older than its interval a moment may be, in milliseconds: no disk that works takes so long for one.
const LATE_MS: u64 = 5_000;

/// What to do when nothing more is shipped, whatever the store answers from then on.
const STOPPED_ADVICE: &str = "; shipping has stopped: mend the cause, as by making the store available, then end the mount or \
                              server and start it again";

/// Something that is wrong.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    /// Its name, for scripts.
    pub(crate) cause: &'static str,
    /// What it is, and what to do.
    what: String,
}

/// For machines.
#[derive(Debug, Serialize)]
pub(crate) struct Health {
    pub(crate) healthy: bool,
    pub(crate) findings: Vec<Finding>,
}

impl Health {
    /// That of a mount, or of a server of a volume.
    pub(crate) fn from_status(status: &Status) -> Health {
        let findings = findings(status);
        Health { healthy: findings.is_empty(), findings }
    }

    /// For people, as one line.
    pub(crate) fn line(&self) -> String {
        if self.healthy {
            return "healthy".to_owned();
        }
        let told: Vec<&str> = self.findings.iter().map(|finding| finding.what.as_str()).collect();
        format!("NOT HEALTHY: {}", told.join("; and "))
    }
}

fn findings(status: &Status) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |cause, what| findings.push(Finding { cause, what });
    if let Some(why) = status.read_only().filter(|why| *why != &ASKED_READ_ONLY.to_string()) {
        add("no_changes", format!("it takes no changes any more: {why}"));
    } else if let Some(why) = &status.storage.failed {
        add("storage_failed", format!("the storage has failed and acknowledges no write: {why}"));
    }
    if status.storage.below_is_silent {
        add("below_is_silent", "the disk below does not answer: requests that need it wait".to_owned());
    }
    if let Some(bytes) = status.storage.cut_file_bytes {
        let what = "its file was truncated while it was in use, and the data behind the new end is lost";
        add(
            "file_cut",
            format!(
                "{what}: unmount it, or end `weir serve`, and run `truncate -s {bytes}` and `{}` on the file",
                status.storage.check_command()
            ),
        );
    }
    if let Some(replication) = status.replication.as_ref().filter(|found| found.stopped || found.overdue) {
        let (cause, advice) = match replication.stopped {
            true => ("replication_stopped", STOPPED_ADVICE),
            false => ("replication_behind", ""),
        };
        add(cause, format!("the object store is {}{advice}", replication.text()));
    }
    let is_to_be_written = status.read_only().is_none();
    if status.remote_files() > 0 && status.replication.is_none() && is_to_be_written {
        let files = counted(status.remote_files(), "file that is", "files that are");
        add(
            "no_store",
            format!(
                "`fsync` fails of {files} to be in an object store (user.weir.sync): mount it by --replicate, or set another mode"
            ),
        );
    }
    if let Some(replica) = &status.replica {
        if let Some(trouble) = &replica.trouble {
            add("store_silent", format!("the object store cannot be read now: {trouble}"));
        }
        if let Some(failure) = &replica.failure {
            let reads = counted(replica.failed_reads, "read of the store", "reads of the store");
            add("failed_reads", format!("{reads} failed, the newest one as {failure}"));
        }
    }
    if status.is_full_below() {
        let free = status.storage.free_below.unwrap_or_default();
        add("full_below", format!("the disk below ran full, and has {} free now", Size(free)));
    }
    if let Some(reads) = status.storage.volume.as_ref().and_then(|volume| volume.damage.line()) {
        add("failed_reads", format!("reads failed: {reads}"));
    }
    if let Some((age_ms, interval_ms)) = status.moment().filter(|(age, most)| *age > (most + LATE_MS) as f64)
    {
        let what = format!(
            "a crash would leave a tree of {:.0} s ago, and {interval_ms} ms and a transfer are promised: the \
             disk below is too slow for what is written",
            age_ms / 1e3
        );
        add("moment_late", what);
    }
    if let Some(lost) = status.lost().map(|lost| lost.incomplete_files).filter(|files| *files > 0) {
        add(
            "lost_writes",
            format!(
                "{} data that programs wrote through mappings or the writeback cache",
                counted(lost, "file lacks", "files lack")
            ),
        );
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status of a mount with `--moment 100ms` whose newest moment is so many milliseconds old.
    fn status_with(age_ms: f64) -> Status {
        let told = serde_json::json!({
            "pid": 1, "storage": {"kind": "a volume"},
            "requests": {"under_way": 0, "under_way_max": 0, "disk_commands": 0},
            "sync": "durable", "moment_ms": 100, "moment_age_ms": age_ms, "engine": "dual", "read_only": null,
            "commits": 0, "checkpoints": 0, "log_blocks_used": 0, "waits_for_transfer": 0, "epochs": 0,
            "calls_durable": 0, "calls_ordered": 0, "flushes": 0, "flushes_saved": 0, "pages": 0, "pages_dirty": 0
        });
        serde_json::from_value(told).unwrap()
    }

    #[test]
    fn a_moment_that_is_far_too_old_is_a_finding() {
        assert!(Health::from_status(&status_with(5_100.0)).healthy, "a slow disk");
        let health = Health::from_status(&status_with(30_000.0));
        assert_eq!(health.findings.iter().map(|finding| finding.cause).collect::<Vec<_>>(), ["moment_late"]);
        assert!(health.line().contains("a tree of 30 s ago, and 100 ms"), "{}", health.line());
    }
}
