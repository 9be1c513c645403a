//! What the commands that write or read a replica share: where it is, and how it is written.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::str::FromStr;
use std::time::{Duration, UNIX_EPOCH};

use clap::Args;
use serde::Serialize;
use tracing::Level;
use weir_bucket::{Bucket, Place};
use weir_replica::{EncryptionKey, Fault, ObjectStore, ReplicaOptions, Requests, WantedState};
use weir_runtime::Handle;
use weir_storage::{BLOCK_BYTES, FileDiskOptions};

use crate::error::CliError;
use crate::log_line::LogLine;
use crate::size::Size;

/// The variable that may hold the key.
const KEY_VARIABLE: &str = "WEIR_REPLICA_KEY";
/// Bytes of a file with a key at most.
const KEY_FILE_MAX: u64 = 1 << 10;

/// The least time that states are kept.
const KEEP_MIN: Duration = Duration::from_secs(60);

/// How a replica is read.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReadArguments {
    /// The key of an encrypted replica: a file with 64 hexadecimal digits [default: the variable WEIR_REPLICA_KEY; if that is not
    /// set either, no encryption]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// How long a command, and the start and end of a mount or server, waits for a store that does not answer. A mount or server that
    /// runs waits without end, but fails fsync of --sync remote, and reads of a URL that is mounted to be read, after this time
    #[arg(long, value_name = "TIME", default_value = "1min", value_parser = parse_duration)]
    pub(crate) patience: Duration,
}

/// How a replica is written.
#[derive(Clone, Debug, Args)]
pub(crate) struct WriteArguments {
    #[command(flatten)]
    pub(crate) read: ReadArguments,
    /// States that are younger can be restored; what only older ones need is deleted
    #[arg(long, value_name = "TIME", default_value = "1day", value_parser = parse_duration)]
    keep: Duration,
    /// Ship data as it is, not compressed by LZ4
    #[arg(long)]
    no_compression: bool,
    /// Use a store that cannot create an object only if it is absent. Two writers at one URL damage the replica then, unnoticed
    #[arg(long)]
    without_fence: bool,
}

/// What a volume takes beside its blocks: an eighth, and this.
const BESIDE: u64 = 64 << 20;

/// The size of a file, which is sparse, for a volume of this capacity.
pub(crate) fn file_size(logical_blocks: u64) -> Size {
    let bytes = logical_blocks.saturating_mul(BLOCK_BYTES as u64);
    Size(bytes.saturating_add(bytes / 8).saturating_add(BESIDE).next_multiple_of(1 << 20))
}

/// How that file is made.
pub(crate) fn sparse() -> FileDiskOptions {
    FileDiskOptions { sparse: true, ..FileDiskOptions::default() }
}

/// A length of time, such as 500ms or 7days.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, humantime::DurationError> {
    humantime::parse_duration(text)
}

impl ReadArguments {
    /// The key, of the file or of the environment.
    fn key(&self) -> Result<Option<EncryptionKey>, CliError> {
        let (text, place) = match &self.key_file {
            Some(path) => (read_key(path)?, path.display().to_string()),
            None => match std::env::var(KEY_VARIABLE) {
                Ok(text) => (text, KEY_VARIABLE.to_owned()),
                Err(_) => return Ok(None),
            },
        };
        let key = EncryptionKey::from_hex(&text);
        key.map(Some).ok_or(CliError::ReplicaKey(place))
    }

    /// Options of a replica that is read.
    pub(crate) fn options(&self) -> Result<ReplicaOptions, CliError> {
        Ok(ReplicaOptions { key: self.key()?, patience: Some(self.patience), ..ReplicaOptions::default() })
    }
}

fn read_key(path: &Path) -> Result<String, CliError> {
    let failed = |source| CliError::File { doing: "read the key in", path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(failed)?.len() > KEY_FILE_MAX {
        return Err(CliError::ReplicaKey(path.display().to_string()));
    }
    std::fs::read_to_string(path).map_err(failed)
}

impl WriteArguments {
    /// Options of a replica that is written.
    pub(crate) fn options(&self) -> Result<ReplicaOptions, CliError> {
        if self.keep < KEEP_MIN {
            return Err(CliError::Usage(
                "--keep: one minute at least: a restore that takes longer may find that what it reads was deleted",
            ));
        }
        Ok(ReplicaOptions {
            keep: self.keep,
            compress: !self.no_compression,
            unfenced: self.without_fence,
            ..self.read.options()?
        })
    }
}

/// A wanted state as it is typed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At(pub(crate) WantedState);

impl FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<At, String> {
        if text == "newest" {
            return Ok(At(WantedState::Newest));
        }
        if let Ok(sequence) = text.parse() {
            return Ok(At(WantedState::Sequence(sequence)));
        }
        let wrong = || "write a number, or a time such as \"2026-11-28 17:35:00\" (UTC)".to_owned();
        let time = humantime::parse_rfc3339_weak(text).map_err(|_| wrong())?;
        let since = time.duration_since(UNIX_EPOCH).map_err(|_| wrong())?;
        Ok(At(WantedState::Time(u64::try_from(since.as_millis()).map_err(|_| wrong())?)))
    }
}

/// The store at a URL.
pub(crate) fn open_store(
    handle: &Handle,
    url: &str,
    unfenced: bool,
) -> Result<Rc<dyn ObjectStore>, CliError> {
    let place: Place = url.parse()?;
    Ok(Rc::new(Bucket::open(handle, &place, unfenced)?))
}

/// Says which checkpoints of the replica at a URL could not be read.
pub(crate) fn tell_of_passed_over(url: &str, faults: &[Fault]) {
    for Fault { key, what } in faults {
        let message = format!(
            "{url}: {what}. An older checkpoint and the log behind it, which is whole, took its place; the next checkpoint replaces it"
        );
        LogLine::new(Level::WARN, "checkpoint_passed_over", message)
            .with("url", url)
            .with("object", key.as_str())
            .print();
    }
}

/// Requests to a store, for machines.
#[derive(Clone, Copy, Debug, Default, Serialize, serde::Deserialize)]
pub(crate) struct RequestCounts {
    pub(crate) creations: u64,
    pub(crate) reads: u64,
    pub(crate) lists: u64,
    pub(crate) deletions: u64,
    pub(crate) repeated: u64,
    pub(crate) bytes_created: u64,
    #[serde(default)]
    pub(crate) bytes_read: u64,
}

impl From<Requests> for RequestCounts {
    fn from(requests: Requests) -> RequestCounts {
        let Requests { creations, reads, lists, deletions, repeated, bytes_created, bytes_read } = requests;
        RequestCounts { creations, reads, lists, deletions, repeated, bytes_created, bytes_read }
    }
}

impl RequestCounts {
    /// All of them.
    pub(crate) fn total(&self) -> u64 {
        self.creations + self.reads + self.lists + self.deletions
    }
}
