//! *Metrics* of a mount for Prometheus: numbers of its status under names by Prometheus' conventions, as text. A new one is one more
//! row of [`METRICS`].

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;
use weir_storage::BLOCK_BYTES;

use crate::health::Health;
use crate::status::Status;

/// How a number behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It goes up and down.
    Gauge,
    /// It only grows, from 0 when the mount begins.
    Counter,
}

/// A metric, or one of several that have a name in common and follow each other.
struct Metric {
    name: &'static str,
    /// Such as `promise="order"`, or nothing.
    label: &'static str,
    kind: Kind,
    /// Where the status has it, or its object `f2fs`: a number, or a truth value (1 and 0).
    at: &'static str,
    /// What the number is multiplied by.
    factor: f64,
    help: &'static str,
}

const fn gauge(name: &'static str, at: &'static str, help: &'static str) -> Metric {
    Metric { name, label: "", kind: Kind::Gauge, at, factor: 1.0, help }
}

const fn counter(name: &'static str, at: &'static str, help: &'static str) -> Metric {
    Metric { kind: Kind::Counter, ..gauge(name, at, help) }
}

impl Metric {
    const fn labelled(self, label: &'static str) -> Metric {
        Metric { label, ..self }
    }

    /// The status counts blocks, and the metric bytes.
    const fn of_blocks(self) -> Metric {
        Metric { factor: BLOCK_BYTES as f64, ..self }
    }

    /// The status has milliseconds, and the metric seconds.
    const fn of_millis(self) -> Metric {
        Metric { factor: 0.001, ..self }
    }

    /// Its number in a status; none if the mount has no such thing.
    fn value(&self, status: &Value) -> Option<f64> {
        let found = status.pointer(self.at).or_else(|| status["f2fs"].pointer(self.at));
        let number = match found? {
            Value::Number(number) => number.as_f64()?,
            Value::Bool(holds) => f64::from(u8::from(*holds)),
            _ => return None,
        };
        Some(number * self.factor)
    }
}

/// What has the server's version as a label, as others' metrics do.
const BUILD_INFO: &str = "weir_build_info";
const SYNC_CALLS: &str = "Calls of fsync and its like.";
const STORE_REQUESTS: &str = "Requests to the object store of the replication.";

/// All of them. What a kind of mount does not have, its status lacks, and is left out.
const METRICS: &[Metric] = &[
    gauge("weir_healthy", "/health/healthy", "Whether weir status finds nothing wrong."),
    gauge("weir_resident_memory_bytes", "/memory_bytes", "Memory of the server."),
    gauge("weir_requests_under_way", "/requests/under_way", "Requests that are being answered."),
    gauge(
        "weir_disk_commands_under_way",
        "/requests/disk_commands",
        "Commands that the disk has not answered.",
    ),
    counter("weir_sync_calls_total", "/calls_durable", SYNC_CALLS).labelled("promise=\"durable\""),
    counter("weir_sync_calls_total", "/calls_ordered", SYNC_CALLS).labelled("promise=\"order\""),
    counter("weir_flushes_total", "/flushes", "Flushes that the filesystem asked for."),
    counter("weir_flushes_saved_total", "/flushes_saved", "Calls that had no flush of their own."),
    counter("weir_transfer_waits_total", "/waits_for_transfer", "Waits until the storage had data."),
    counter("weir_epochs_total", "/epochs", "Epochs that a barrier has ended."),
    counter("weir_journal_commits_total", "/commits", "Transactions that were committed."),
    counter("weir_checkpoints_total", "/checkpoints", "Checkpoints of the journal, or of F2FS."),
    gauge("weir_journal_used_bytes", "/log_blocks_used", "Of the journal, what is in use.").of_blocks(),
    gauge("weir_cached_bytes", "/pages", "File data in the server's memory.").of_blocks(),
    gauge("weir_dirty_bytes", "/pages_dirty", "File data in memory that is not written yet.").of_blocks(),
    counter("weir_discarded_bytes_total", "/blocks_discarded", "Space that was discarded.").of_blocks(),
    counter("weir_restarts_total", "/restarts", "Restarts of the server that programs did not notice."),
    counter("weir_split_units_total", "/split_units", "Units of files that a crash can tear."),
    gauge(
        "weir_incomplete_files",
        "/incomplete_files",
        "Files that lack data of mappings or the kernel's cache.",
    ),
    counter("weir_disk_flushes_total", "/storage/flushes", "Flushes of the disk by the volume."),
    counter("weir_volume_written_bytes_total", "/storage/user_blocks", "What was written to the volume.")
        .of_blocks(),
    counter("weir_disk_written_bytes_total", "/storage/disk_blocks", "What the volume wrote to the disk.")
        .of_blocks(),
    gauge("weir_volume_segments", "/storage/segments", "Segments of the volume."),
    gauge("weir_volume_free_segments", "/storage/segments_free", "Segments of the volume that are free."),
    counter("weir_damaged_reads_total", "/storage/damage/damaged_reads", "Reads that found damage."),
    counter("weir_failed_reads_total", "/storage/damage/failed_reads", "Reads that the disk below failed."),
    gauge("weir_loss_window_seconds_max", "/storage/loss_window/ms", "Largest loss window so far.")
        .of_millis(),
    gauge("weir_loss_window_bytes_max", "/storage/loss_window/bytes", "Largest loss window so far."),
    gauge(
        "weir_free_below_bytes",
        "/storage/free_below",
        "Free space of the filesystem that has the volume's file.",
    ),
    gauge("weir_moment_age_seconds", "/moment_age_ms", "How old the tree is that a crash would leave.")
        .of_millis(),
    gauge("weir_replication_lag_seconds", "/replication/lag_ms", "How far the store is behind.").of_millis(),
    gauge("weir_replication_lag_bytes", "/replication/lag_bytes", "How far the store is behind."),
    gauge("weir_replication_behind", "/replication/overdue", "Whether it is further behind than it may be."),
    gauge("weir_replication_stopped", "/replication/stopped", "Whether nothing more is shipped."),
    counter("weir_replication_requests_total", "/replication/requests/creations", STORE_REQUESTS)
        .labelled("request=\"create\""),
    counter("weir_replication_requests_total", "/replication/requests/reads", STORE_REQUESTS)
        .labelled("request=\"read\""),
    counter("weir_replication_requests_total", "/replication/requests/lists", STORE_REQUESTS)
        .labelled("request=\"list\""),
    counter("weir_replication_requests_total", "/replication/requests/deletions", STORE_REQUESTS)
        .labelled("request=\"delete\""),
    gauge("weir_replica_age_seconds", "/replica/age_s", "Age of the state of a replica that is mounted."),
    counter("weir_replica_failed_reads_total", "/replica/failed_reads", "Reads of the store that failed."),
    counter(
        "weir_f2fs_cleaned_segments_total",
        "/f2fs/segments_cleaned",
        "Segments of F2FS that were cleaned.",
    ),
    gauge("weir_f2fs_free_segments", "/f2fs/segments_free", "Segments of F2FS that are free."),
];

/// The metrics of a mount, of its status as JSON, in Prometheus' text format. An error of the JSON gives no metrics.
pub(crate) fn text_of(status: &str) -> serde_json::Result<String> {
    let mut document: Value = serde_json::from_str(status)?;
    let health = Health::from_status(&serde_json::from_str::<Status>(status)?);
    document["health"] = serde_json::to_value(&health)?;
    let mut text = String::from("# HELP weir_finding Something that is wrong.\n# TYPE weir_finding gauge\n");
    // Findings may have a cause in common.
    let causes: BTreeSet<&str> = health.findings.iter().map(|finding| finding.cause).collect();
    for cause in causes {
        let _ = writeln!(text, "weir_finding{{cause=\"{cause}\"}} 1");
    }
    if let Some(version) = document["version"].as_str() {
        let _ = writeln!(text, "# HELP {BUILD_INFO} The version of the server.\n# TYPE {BUILD_INFO} gauge");
        let _ = writeln!(text, "{BUILD_INFO}{{version=\"{version}\"}} 1");
    }
    let mut last = "";
    for metric in METRICS {
        let Some(value) = metric.value(&document) else { continue };
        let Metric { name, label, kind, help, .. } = metric;
        if *name != last {
            let kind = if *kind == Kind::Counter { "counter" } else { "gauge" };
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            last = name;
        }
        let label = if label.is_empty() { String::new() } else { format!("{{{label}}}") };
        let _ = writeln!(text, "{name}{label} {value}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_prometheus_conventions() {
        let mut seen = BTreeSet::new();
        for metric in METRICS {
            let Metric { name, label, kind, help, .. } = metric;
            assert!(
                name.starts_with("weir_") && name.chars().all(|c| c.is_ascii_lowercase() || "_2".contains(c)),
                "{name}"
            );
            assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
            assert!(help.ends_with('.'), "{name}");
            assert!(*name != "weir_finding" && seen.insert((*name, *label)), "{name} is there twice");
        }
    }

    /// The board shows metrics that exist.
    #[test]
    fn the_board_shows_metrics_that_there_are() {
        let board = include_str!("../../../examples/grafana.json");
        let shown: BTreeSet<&str> = board
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .filter(|word| word.starts_with("weir_"))
            .collect();
        let known: BTreeSet<&str> =
            METRICS.iter().map(|metric| metric.name).chain(["weir_finding"]).collect();
        assert!(shown.len() > 10, "{shown:?}");
        assert!(shown.is_subset(&known), "{:?}", shown.difference(&known));
        serde_json::from_str::<Value>(board).unwrap();
    }
}
