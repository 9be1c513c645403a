//! *Run*: a program works on a mount that records what it does.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};
use regex_lite::Regex;
use rustix::process::{getegid, geteuid};
use thiserror::Error;
use weir_fuse::{REQUEST_BYTES_UNDER_WAY_MAX, Server, ServerError, ServerOptions, SyncMode};
use weir_runtime::{Cancelled, Handle, Sender, channel};
use weir_vfs::FsError;

use crate::acks::ACK_NAME;
use crate::filesystem::RecordedFilesystem;
use crate::judge::{describe_status, read_end};
use crate::record::{LINE_BYTES_MAX, Record, RecordError};
use crate::shell::Shell;

/// Lines of the output that wait to be taken in.
const LINES_WAITING: usize = 1024;

/// How long to wait for the end of a command's output when it has ended.
const OUTPUT_WAIT: Duration = Duration::from_secs(5);

/// What is run, and how it is recorded.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// Makes what the run begins with.
    pub setup: Option<String>,
    /// What is recorded.
    pub run: String,
    /// How long each of them may take.
    pub limit: Duration,
    /// Bytes that both may write.
    pub data_max: u64,
    /// A line of the run's standard output that matches acknowledges: its first group, or all that matches.
    pub ack_pattern: Option<Regex>,
    /// A directory for the mount.
    pub scratch: PathBuf,
    /// The directory that the commands find as `WEIR_HERE`.
    pub here: PathBuf,
    /// Becomes true when the commands are to be ended.
    pub stops: Arc<AtomicBool>,
}

/// What a run has left.
#[derive(Debug)]
pub struct RecordedRun {
    /// What it did.
    pub record: Record,
    /// How long the recorded command took.
    pub seconds: f64,
}

/// Why there is no record.
#[derive(Debug, Error)]
pub enum RunError {
    /// There is no mount.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A command cannot be started, or its output not be kept.
    #[error("cannot run a command: {0}")]
    Io(#[from] io::Error),
    /// A thread has ended by itself.
    #[error("cannot run a command: {0}")]
    Cancelled(#[from] Cancelled),
    /// A command failed.
    #[error("{which} failed: {ending}\n{output}")]
    Failed {
        /// `--setup` or `--run`.
        which: &'static str,
        /// How it ended.
        ending: String,
        /// What it printed.
        output: String,
    },
    /// It was stopped.
    #[error("the test was ended by a signal")]
    Stopped,
    /// It did more than can be kept.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// Mounts, runs, and unmounts.
///
/// # Errors
/// All of [`RunError`].
pub async fn record_run(handle: &Handle, plan: &RunPlan) -> Result<RecordedRun, RunError> {
    let mountpoint = plan.scratch.join("mount");
    fs::create_dir(&mountpoint)?;
    let owner = (geteuid().as_raw(), getegid().as_raw());
    let filesystem = RecordedFilesystem::new(handle, owner, plan.data_max);
    let options = ServerOptions {
        name: "weir-crash".to_owned(),
        allow_other: false,
        read_only: false,
        no_exec: false,
        access_times: false,
        sync: SyncMode::Durable,
        writeback_cache: false,
        open_requests: false,
        file_handles: true,
        awake: false,
        request_bytes_max: REQUEST_BYTES_UNDER_WAY_MAX,
    };
    let status = async |_, _| "{}".to_owned();
    let trim = async |_, _| Err(FsError::Unsupported("trim"));
    let served = filesystem.to_filesystem();
    let mut server = Server::mount(handle, served, &mountpoint, &options, status, trim).await?;
    let ran = run_both(handle, plan, &mountpoint, &filesystem).await;
    server.unmount().await?;
    server.ended().await?;
    let mut record = filesystem.take_record();
    // The command fails then, too.
    if let Some(error) = record.take_error() {
        return Err(error.into());
    }
    Ok(RecordedRun { record, seconds: ran? })
}

async fn run_both(
    handle: &Handle,
    plan: &RunPlan,
    mountpoint: &Path,
    filesystem: &RecordedFilesystem,
) -> Result<f64, RunError> {
    if let Some(setup) = &plan.setup {
        run_command(handle, plan, ("--setup", setup), mountpoint, None).await?;
    }
    filesystem.end_setup();
    let began = handle.now();
    match &plan.ack_pattern {
        None => run_command(handle, plan, ("--run", &plan.run), mountpoint, None).await?,
        Some(pattern) => {
            let (sender, lines) = channel(LINES_WAITING);
            let recording = filesystem.clone();
            let recorded = handle.spawn(async move {
                while let Ok(line) = lines.recv().await {
                    recording.acknowledge(line);
                }
            });
            let reader = LineReader { pattern: pattern.clone(), lines: sender };
            run_command(handle, plan, ("--run", &plan.run), mountpoint, Some(reader)).await?;
            recorded.await?;
        }
    }
    Ok(handle.now().since(began).as_secs_f64())
}

/// Runs a command on a thread of its own: this one answers what the command asks of the mount.
async fn run_command(
    handle: &Handle,
    plan: &RunPlan,
    (which, command): (&'static str, &str),
    mountpoint: &Path,
    reader: Option<LineReader>,
) -> Result<(), RunError> {
    let output = plan.scratch.join(format!("output{which}"));
    let (command, directory, limit) = (command.to_owned(), mountpoint.to_owned(), plan.limit);
    let (ack, kept, here) = (mountpoint.join(ACK_NAME), output.clone(), plan.here.clone());
    let is_read = reader.is_some();
    let starting = handle.blocking(move || {
        let variables = [("WEIR_DIR", &directory), ("WEIR_ACK", &ack), ("WEIR_HERE", &here)];
        let mut shell = Shell::start(&command, &directory, &variables, &kept, is_read)?;
        let printed = shell.take_output();
        Ok::<_, io::Error>((shell, printed, kept))
    });
    let (shell, printed, kept) = starting.await??;
    let reading = handle.blocking(move || match (reader, printed) {
        (Some(reader), Some(printed)) => reader.read(printed, &kept),
        _ => Ok(()),
    });
    let stops = Arc::clone(&plan.stops);
    let waiting = handle.blocking(move || shell.wait_within(limit, &stops));
    let (ended, reading) = (waiting.await??, pin!(reading));
    // What has left the group of the command may keep its output open.
    if let Either::Left((read, _)) = select(reading, handle.sleep(OUTPUT_WAIT)).await {
        read??;
    }
    if plan.stops.load(Ordering::Relaxed) {
        return Err(RunError::Stopped);
    }
    let ending = match ended {
        Some(status) if status.success() => return Ok(()),
        Some(status) => describe_status(status),
        None => format!("not within {} s", limit.as_secs()),
    };
    let output = String::from_utf8_lossy(&read_end(&output)?).into_owned();
    Err(RunError::Failed { which, ending, output })
}

/// Takes acknowledgements out of what a program prints.
struct LineReader {
    pattern: Regex,
    lines: Sender<Vec<u8>>,
}

impl LineReader {
    /// Reads to the end, and keeps all of it in a file.
    fn read(&self, printed: impl io::Read, kept: &Path) -> io::Result<()> {
        let mut kept = File::options().append(true).open(kept)?;
        let mut printed = BufReader::new(printed);
        loop {
            let mut line = Vec::new();
            if printed.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            kept.write_all(&line)?;
            let text = String::from_utf8_lossy(&line);
            if let Some(found) = self.pattern.captures(text.trim_end_matches('\n')) {
                let text = found.get(1).or(found.get(0)).map_or("", |part| part.as_str());
                // After the end of the run there is no receiver.
                let _ = self.lines.send_blocking(text.as_bytes().to_vec());
            }
        }
    }
}
