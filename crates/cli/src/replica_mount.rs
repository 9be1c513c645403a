//! `weir mount URL`: a state of a replica, read from its object store, and what its status says of that.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use weir_replica::{Replica, ReplicaReads, WantedState};
use weir_runtime::Handle;

use crate::error::CliError;
use crate::memory::Limit;
use crate::plain::counted;
use crate::replica::{At, ReadArguments, RequestCounts, open_store, tell_of_passed_over};
use crate::replication::wait_text;
use crate::size::Size;
use crate::stack::Stack;

/// The URL that was given in the place of a file.
pub(crate) fn url_of(source: &Path) -> Option<&str> {
    source.to_str().filter(|text| text.contains("://"))
}

/// Opens a state of the replica at a URL.
pub(crate) async fn open(
    handle: &Handle,
    url: &str,
    at: Option<At>,
    read: &ReadArguments,
    limit: Limit,
) -> Result<Stack, CliError> {
    let store = open_store(handle, url, false)?;
    let replica = Replica::open(handle, store, read.options()?).await?;
    let wanted = at.map_or(WantedState::Newest, |At(wanted)| wanted);
    let opened = replica.open_storage(handle, wanted, limit.cache_bytes()).await?;
    tell_of_passed_over(url, opened.passed_over());
    Ok(Stack::on_replica(opened))
}

/// Which state is mounted, and how reading it goes.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct ReplicaLine {
    /// The state after this request.
    pub(crate) sequence: u64,
    /// When its newest object was made, and how many seconds ago that was.
    pub(crate) made: Option<String>,
    pub(crate) age_s: Option<u64>,
    /// Bytes of blocks that it has.
    pub(crate) mapped_bytes: u64,
    pub(crate) cache_bytes: u64,
    pub(crate) cache_bytes_max: u64,
    pub(crate) failed_reads: u64,
    /// Why the newest of them did.
    pub(crate) failure: Option<String>,
    /// How long the oldest request to the store has been waiting for its answer.
    #[serde(default)]
    pub(crate) longest_wait_ms: u64,
    /// Why the store is being asked again, or for how long it has not answered.
    pub(crate) trouble: Option<String>,
    pub(crate) requests: RequestCounts,
}

impl ReplicaLine {
    /// What is told now.
    pub(crate) fn new(reads: &ReplicaReads, handle: &Handle) -> ReplicaLine {
        let created_ms = Some(reads.created_ms).filter(|created| *created > 0);
        let made = created_ms.and_then(|created| UNIX_EPOCH.checked_add(Duration::from_millis(created)));
        let age = |created| handle.wall_clock_millis().saturating_sub(created) / 1000;
        ReplicaLine {
            sequence: reads.sequence,
            made: made.map(|made| humantime::format_rfc3339_seconds(made).to_string()),
            age_s: created_ms.map(age),
            mapped_bytes: Size::of_blocks(reads.mapped_blocks).0,
            cache_bytes: reads.cache_bytes,
            cache_bytes_max: reads.cache_bytes_max,
            failed_reads: reads.failed_reads,
            failure: reads.failure.clone(),
            longest_wait_ms: reads.longest_wait.as_millis() as u64,
            trouble: reads.trouble.clone(),
            requests: reads.requests.into(),
        }
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let made = match (&self.made, self.age_s) {
            (Some(made), Some(age)) => {
                let age = humantime::format_duration(Duration::from_secs(age));
                format!(", made {made}, {age} ago; nothing newer is shown")
            }
            _ => String::new(),
        };
        format!(
            "as of position {}{made}; {} of blocks; {}{}, {} read, {} of {} in memory",
            self.sequence,
            Size(self.mapped_bytes),
            counted(self.requests.total(), "call", "calls") + " to the store",
            wait_text(self.longest_wait_ms),
            Size(self.requests.bytes_read),
            Size(self.cache_bytes),
            Size(self.cache_bytes_max)
        )
    }
}
