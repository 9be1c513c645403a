//! `weir replicate`: ships what a closed volume has to an object store, or checks what is there.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::Args;
use serde::Serialize;
use weir_replica::{CheckReport, Replica, Uploader};
use weir_runtime::Handle;
use weir_storage::BLOCK_BYTES;
use weir_volume::{TapBounds, VolumeOptions};

use crate::error::CliError;
use crate::replica::{RequestCounts, WriteArguments, open_store, tell_of_passed_over};
use crate::replication::{BACKLOG_MAX, LAG_DEFAULT};
use crate::size::Size;
use crate::stack::Stack;
use crate::{Verdict, in_wall_time, print};

/// Faults that are listed for people at most.
const LISTED: usize = 100;

/// Arguments of `weir replicate`.
#[derive(Debug, Args)]
pub(crate) struct ReplicateArguments {
    /// The volume, which is not mounted; with --check the URL of a replica
    #[arg(value_name = "VOLUME|URL")]
    first: String,
    /// Where the replica is: s3://BUCKET[/PREFIX], or file:///DIRECTORY with its whole path
    #[arg(value_name = "URL", required_unless_present = "check", conflicts_with = "check")]
    url: Option<String>,
    /// Read the whole replica and say what is missing or damaged; exit code 1 if anything is
    #[arg(long)]
    check: bool,
    /// Write a checkpoint, and delete what no kept state needs, however little was shipped
    #[arg(long, conflicts_with = "check")]
    checkpoint: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    write: WriteArguments,
}

/// What was shipped.
#[derive(Debug, Serialize)]
struct Shipped {
    volume: String,
    /// The newest request in the store before, and now.
    from: u64,
    to: u64,
    requests: RequestCounts,
}

/// What a check found.
#[derive(Debug, Serialize)]
struct Checked {
    volume: String,
    volume_bytes: u64,
    /// The oldest state that can be restored, and the newest: a request, and a time in UTC.
    first: Option<u64>,
    first_time: Option<String>,
    last: Option<u64>,
    last_time: Option<String>,
    checkpoints: u64,
    objects: u64,
    bytes: u64,
    faults: Vec<Fault>,
}

#[derive(Debug, Serialize)]
struct Fault {
    object: String,
    what: String,
}

/// Runs `weir replicate`.
pub(crate) fn run(arguments: &ReplicateArguments) -> Result<Verdict, CliError> {
    in_wall_time(0, async |handle: Handle| match &arguments.url {
        None => check(&handle, arguments, &arguments.first).await,
        Some(url) => ship(&handle, arguments, &PathBuf::from(&arguments.first), url).await,
    })
}

async fn ship(
    handle: &Handle,
    arguments: &ReplicateArguments,
    path: &Path,
    url: &str,
) -> Result<Verdict, CliError> {
    let options = arguments.write.options()?;
    let store = open_store(handle, url, options.unfenced)?;
    let stack = Stack::open_volume(handle, path, VolumeOptions::default()).await?;
    let volume = stack.volume().ok_or_else(|| CliError::NoVolume { path: path.to_owned() })?;
    let bounds = TapBounds { bytes: BACKLOG_MAX, time: LAG_DEFAULT, never_wait: false };
    let outcome = async {
        let mut uploader = Uploader::open(handle, Rc::clone(&volume), store, bounds, options).await?;
        tell_of_passed_over(url, uploader.passed_over());
        let from = uploader.replication().status().shipped;
        uploader.ship_all().await?;
        if arguments.checkpoint {
            uploader.checkpoint().await?;
        }
        let status = uploader.replication().status();
        let requests = status.requests.into();
        Ok(Shipped { volume: format!("{:016x}", volume.identity()), from, to: status.shipped, requests })
    };
    let outcome: Result<Shipped, CliError> = outcome.await;
    // Whatever the store says, the volume is closed.
    stack.close(path).await?;
    let shipped = outcome?;
    if arguments.json {
        print(&serde_json::to_string(&shipped)?)?;
    } else {
        let Shipped { from, to, requests, .. } = &shipped;
        print(&format!(
            "{}: the store has the volume up to position {to}, and had it up to {from}; that took {} to the store, with {} sent",
            path.display(),
            crate::plain::counted(requests.total(), "call", "calls"),
            Size(requests.bytes_created)
        ))?;
    }
    Ok(Verdict::Good)
}

async fn check(handle: &Handle, arguments: &ReplicateArguments, url: &str) -> Result<Verdict, CliError> {
    let store = open_store(handle, url, false)?;
    let replica = Replica::open(handle, store, arguments.write.read.options()?).await?;
    let report = replica.check().await?;
    let verdict = if report.faults.is_empty() { Verdict::Good } else { Verdict::Damaged };
    if arguments.json {
        let descriptor = replica.descriptor();
        let CheckReport { kept, checkpoints, objects, bytes, faults } = report;
        let (first, last) = (kept.map(|kept| kept.first), kept.map(|kept| kept.last));
        let faults = faults.into_iter().map(|fault| Fault { object: fault.key, what: fault.what }).collect();
        let volume = format!("{:016x}", descriptor.volume);
        let volume_bytes = descriptor.logical_blocks * BLOCK_BYTES as u64;
        let checked = Checked {
            volume,
            volume_bytes,
            first: first.map(|state| state.sequence),
            first_time: first.map(|state| state.time()),
            last: last.map(|state| state.sequence),
            last_time: last.map(|state| state.time()),
            checkpoints,
            objects,
            bytes,
            faults,
        };
        print(&serde_json::to_string(&checked)?)?;
        return Ok(verdict);
    }
    for fault in report.faults.iter().take(LISTED) {
        print(&fault.what)?;
    }
    let found = match report.faults.len() as u64 {
        0 => "whole".to_owned(),
        faults => format!("DAMAGED: {}", crate::plain::counted(faults, "object", "objects")),
    };
    let kept = report.kept.map_or_else(
        || "no state can be restored yet".to_owned(),
        |kept| format!("states from {} to {} can be restored", kept.first, kept.last),
    );
    print(&format!(
        "{found}; {kept}; {} of {} in the log, {}",
        crate::plain::counted(report.objects, "object", "objects"),
        Size(report.bytes),
        crate::plain::counted(report.checkpoints, "checkpoint", "checkpoints")
    ))?;
    Ok(verdict)
}
