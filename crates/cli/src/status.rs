//! `weir status`: what a mount is doing.

use std::path::{Path, PathBuf};

use clap::Args;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use weir_fs::{Engine, Filesystem};
use weir_fuse::SyncMode;
use weir_fuse::control::STATUS_ATTRIBUTE;
use weir_storage::BLOCK_BYTES;

use crate::error::CliError;
use crate::print;
use crate::size::Size;
use crate::stack::{Stack, StackStatus};

/// Bytes of a status at most.
const STATUS_MAX: usize = 1 << 16;

/// Arguments of `weir status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    /// The directory that a filesystem is mounted on, or anything in it
    mountpoint: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What a server tells of its mount.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Status {
    /// The server's process.
    pub(crate) pid: u32,
    /// What `fsync` promises.
    sync: String,
    /// The journal's engine; none without a journal.
    engine: Option<String>,
    /// Why there are no changes, if there are none.
    read_only: Option<String>,
    commits: u64,
    checkpoints: u64,
    log_blocks_used: u64,
    waits_for_transfer: u64,
    flushes: u64,
    pages: u64,
    pages_dirty: u64,
    storage: StackStatus,
}

/// The same, with what the kernel knows of the space.
#[derive(Debug, Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    status: &'a Status,
    block_bytes: u64,
    blocks: u64,
    blocks_free: u64,
}

/// The status of a mount, for its server to tell.
pub(crate) fn status(stack: &Stack, filesystem: &Filesystem, sync: SyncMode) -> String {
    let found = filesystem.statistics();
    let status = Status {
        pid: std::process::id(),
        sync: if sync == SyncMode::Order { "order" } else { "durable" }.to_owned(),
        engine: found.engine.map(|engine| name(engine).to_owned()),
        read_only: filesystem.read_only().map(|reason| reason.to_string()),
        commits: found.journal.commits,
        checkpoints: found.journal.checkpoints,
        log_blocks_used: found.journal.log_blocks_used.into(),
        waits_for_transfer: found.waits.transfers,
        flushes: found.waits.flushes + found.waits.durable_commits,
        pages: found.pages as u64,
        pages_dirty: found.pages_dirty as u64,
        storage: stack.status(),
    };
    // Numbers and texts always become JSON.
    serde_json::to_string(&status).unwrap_or_default()
}

fn name(engine: Engine) -> &'static str {
    match engine {
        Engine::Dual { .. } => "dual",
        Engine::Jbd2 { .. } => "jbd2",
    }
}

/// Asks the server of the mount that `path` is on.
pub(crate) fn ask(path: &Path) -> Result<Status, CliError> {
    let mut value = Vec::with_capacity(STATUS_MAX);
    let asked = rustix::fs::getxattr(path, STATUS_ATTRIBUTE, spare_capacity(&mut value));
    asked.map_err(|errno| match errno {
        Errno::NOTCONN => CliError::ServerEnded { path: path.to_owned() },
        _ => CliError::NotMounted { path: path.to_owned() },
    })?;
    serde_json::from_slice(&value).map_err(|error| unreadable(path)(error.into()))
}

fn unreadable(path: &Path) -> impl Fn(std::io::Error) -> CliError {
    |source| CliError::File { doing: "read the status of", path: path.to_owned(), source }
}

/// Runs the command.
pub(crate) fn run(arguments: &StatusArguments) -> Result<(), CliError> {
    let path = &arguments.mountpoint;
    let status = ask(path)?;
    let space = rustix::fs::statvfs(path).map_err(|error| unreadable(path)(error.into()))?;
    if arguments.json {
        let (block_bytes, blocks, blocks_free) = (space.f_frsize, space.f_blocks, space.f_bfree);
        return print(&serde_json::to_string(&Document {
            status: &status,
            block_bytes,
            blocks,
            blocks_free,
        })?);
    }
    let space = [space.f_blocks, space.f_bfree].map(|blocks| Size(blocks * space.f_frsize));
    print(&lines(&status, space))
}

/// For people: one line a value, in words and units.
fn lines(status: &Status, [space, free]: [Size; 2]) -> String {
    let blocks = |count: u64| Size(count * BLOCK_BYTES as u64);
    let mut lines = vec![
        ("fsync promises", if status.sync == "order" { "order only" } else { "durability" }.to_owned()),
        ("storage", status.storage.kind.clone()),
        ("engine", status.engine.clone().unwrap_or_else(|| "none".to_owned())),
        ("read only", status.read_only.as_ref().map_or_else(|| "no".to_owned(), |why| format!("yes: {why}"))),
        ("space", format!("{space}, {free} of it free")),
        (
            "file data in memory",
            format!("{}, {} of it dirty", blocks(status.pages), blocks(status.pages_dirty)),
        ),
        (
            "journal",
            format!(
                "{} commits, {} checkpoints, {} of the log in use",
                status.commits,
                status.checkpoints,
                blocks(status.log_blocks_used)
            ),
        ),
        ("flushes asked for", status.flushes.to_string()),
        ("waits for a transfer", status.waits_for_transfer.to_string()),
    ];
    if let Some(volume) = &status.storage.volume {
        lines.extend([
            ("flushes of the disk", volume.flushes.to_string()),
            (
                "written",
                format!(
                    "{} to the volume, {} by it to the disk",
                    blocks(volume.user_blocks),
                    blocks(volume.disk_blocks)
                ),
            ),
            ("segments of the volume", format!("{}, {} of them free", volume.segments, volume.segments_free)),
            (
                "loss window so far",
                format!("at most {:.1} ms, {}", volume.loss_window_ms, Size(volume.loss_window_bytes)),
            ),
        ]);
    }
    lines.push(("server", format!("process {}", status.pid)));
    let lines: Vec<String> = lines.into_iter().map(|(label, value)| format!("{label:<24}{value}")).collect();
    lines.join("\n")
}
