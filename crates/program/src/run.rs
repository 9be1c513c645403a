//! *Run*: a program works on a mount that records what it does.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
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
use crate::cut_point::CutPoint;
use crate::fault::Fault;
use crate::filesystem::RecordedFilesystem;
use crate::judge::describe_status;
use crate::record::{LINE_BYTES_MAX, Record, RecordError};
use crate::shell::{Shell, ShellEnd, end_processes_with, tag_of};
use crate::stop::StopCondition;
use crate::tree::Tree;

/// Lines of the output that wait to be taken in.
const LINES_WAITING: usize = 1024;

/// How long to wait for the unmount while a program keeps the mount in use.
const UNMOUNT_WAIT: Duration = Duration::from_secs(5);

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
    /// What goes wrong while it runs.
    pub faults: Vec<Fault>,
    /// A directory for the mount.
    pub scratch: PathBuf,
    /// The directory that the commands find as `WEIR_HERE`.
    pub here: PathBuf,
    /// Becomes true when the commands are to be ended.
    pub stops: Arc<AtomicBool>,
    /// Cuts the power while it runs.
    pub cut: Option<RunCut>,
    /// What it begins with in place of what the setup makes.
    pub base: Option<RunBase>,
    /// The number of the run, which the seed counts with.
    pub round: u64,
}

/// A cut while a program runs.
#[derive(Clone, Debug)]
pub struct RunCut {
    /// At which call.
    pub point: Option<CutPoint>,
    /// The power is cut. It may be set from elsewhere, too: by a signal.
    pub is_cut: Arc<AtomicBool>,
}

/// What an earlier run has left.
#[derive(Clone, Debug)]
pub struct RunBase {
    /// Its files.
    pub tree: Tree,
    /// The lines that were acknowledged.
    pub lines: Vec<Vec<u8>>,
}

/// What a run has left.
#[derive(Debug)]
pub struct RecordedRun {
    /// What it did.
    pub record: Record,
    /// How long the recorded command took.
    pub seconds: f64,
    /// What went wrong by its faults, in words.
    pub faults: Vec<String>,
    /// What makes the record worth less.
    pub warnings: Vec<String>,
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
    match fs::create_dir(&mountpoint) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && plan.base.is_some() => {}
        made => made?,
    }
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
    // A process that was not found may keep a file open, and the mount with it, until the test has ended.
    let is_kept = match select(server.ended(), handle.sleep(UNMOUNT_WAIT)).await {
        Either::Left((ended, _)) => ended.map(|()| false)?,
        Either::Right(_) => true,
    };
    let mut record = filesystem.take_record();
    // The command fails then, too.
    if let Some(error) = record.take_error() {
        return Err(error.into());
    }
    let (met, missed) = filesystem.take_met();
    let mut warnings = Vec::new();
    let (seconds, left_behind) = match ran? {
        // A program may end when something goes wrong, and what it has left is right or not.
        (seconds, Err(RunError::Failed { which, ending, .. })) if !met.is_empty() => {
            warnings.push(format!("{which} failed after a fault: {ending}"));
            (seconds, Vec::new())
        }
        (seconds, ended) => (seconds, ended?),
    };
    if !missed.is_empty() {
        warnings.push(format!("the run met no such call, so no fault: {}", missed.join(", ")));
    }
    if !left_behind.is_empty() {
        let all = left_behind.join(", ");
        warnings.push(format!("what the commands left running was ended: {all}: have them wait for it"));
    }
    if is_kept {
        warnings.push("a process that the commands left running keeps files of the mount open".to_owned());
    }
    Ok(RecordedRun { record, seconds, faults: met, warnings })
}

/// Runs both commands: how long the recorded one took, and how it ended, with the processes that were ended.
async fn run_both(
    handle: &Handle,
    plan: &RunPlan,
    mountpoint: &Path,
    filesystem: &RecordedFilesystem,
) -> Result<(f64, Result<Vec<String>, RunError>), RunError> {
    let mut left_behind = Vec::new();
    let base = plan.base.as_ref();
    if let Some(base) = base {
        filesystem.restore(&base.tree).map_err(io::Error::other)?;
    } else if let Some(setup) = &plan.setup {
        left_behind = run_command(handle, plan, ("--setup", setup), mountpoint, None).await?;
    }
    let lines = base.map_or(&[][..], |base| &base.lines);
    filesystem.end_setup(handle, &plan.faults, plan.cut.as_ref(), plan.round, lines);
    let began = handle.now();
    let run = ("--run", plan.run.as_str());
    let ended = match &plan.ack_pattern {
        None => run_command(handle, plan, run, mountpoint, None).await,
        Some(pattern) => {
            let (sender, lines) = channel(LINES_WAITING);
            let recording = filesystem.clone();
            let recorded = handle.spawn(async move {
                while let Ok(line) = lines.recv().await {
                    recording.acknowledge(line);
                }
            });
            let reader = LineReader { pattern: pattern.clone(), lines: sender, part: Vec::new() };
            let ended = run_command(handle, plan, run, mountpoint, Some(reader)).await;
            recorded.await?;
            ended
        }
    };
    let ended = ended.map(|left| {
        left_behind.extend(left);
        left_behind
    });
    Ok((handle.now().since(began).as_secs_f64(), ended))
}

/// Runs a command on a thread of its own: this one answers what the command asks of the mount. What processes were ended that
/// had left its group.
async fn run_command(
    handle: &Handle,
    plan: &RunPlan,
    (which, command): (&'static str, &str),
    mountpoint: &Path,
    mut reader: Option<LineReader>,
) -> Result<Vec<String>, RunError> {
    let (command, directory, limit) = (command.to_owned(), mountpoint.to_owned(), plan.limit);
    let (ack, here) = (mountpoint.join(ACK_NAME), plan.here.clone());
    let mut stop = StopCondition::from_flag(&plan.stops);
    if let Some(cut) = &plan.cut {
        stop = stop.or_flag(&cut.is_cut);
    }
    let running = handle.blocking(move || {
        let variables = [("WEIR_DIR", &*directory), ("WEIR_ACK", &*ack), ("WEIR_HERE", &*here)];
        let shell = Shell::start(&command, &directory, &variables, reader.is_some())?;
        let take = |bytes: &[u8]| reader.iter_mut().for_each(|reader| reader.push(bytes));
        let mut end = shell.wait_within(&stop, limit, take)?;
        // They may have files of the mount open.
        end.left_behind.extend(end_processes_with(&tag_of("WEIR_DIR", &directory)));
        reader.iter_mut().for_each(LineReader::end);
        Ok::<_, io::Error>(end)
    });
    let ShellEnd { status, output, left_behind } = running.await??;
    if plan.stops.load(Ordering::Relaxed) {
        return Err(RunError::Stopped);
    }
    if plan.cut.as_ref().is_some_and(|cut| cut.is_cut.load(Ordering::Relaxed)) {
        return Ok(left_behind);
    }
    let ending = match status {
        Some(status) if status.success() => return Ok(left_behind),
        Some(status) => describe_status(status),
        None => format!("not within {} s", limit.as_secs()),
    };
    let output = String::from_utf8_lossy(&output).into_owned();
    Err(RunError::Failed { which, ending, output })
}

/// Takes acknowledgements out of what a program prints.
struct LineReader {
    pattern: Regex,
    lines: Sender<Vec<u8>>,
    /// A line that has not ended.
    part: Vec<u8>,
}

impl LineReader {
    fn push(&mut self, printed: &[u8]) {
        for part in printed.split_inclusive(|byte| *byte == b'\n') {
            self.part.extend_from_slice(part);
            if part.ends_with(b"\n") || self.part.len() >= LINE_BYTES_MAX {
                self.end();
            }
        }
    }

    fn end(&mut self) {
        let line = std::mem::take(&mut self.part);
        let text = String::from_utf8_lossy(&line);
        if let Some(found) = self.pattern.captures(text.trim_end_matches('\n')).filter(|_| !line.is_empty()) {
            let text = found.get(1).or(found.get(0)).map_or("", |part| part.as_str());
            // After the end of the run there is no receiver.
            let _ = self.lines.send_blocking(text.as_bytes().to_vec());
        }
    }
}
