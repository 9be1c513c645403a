//! *Workplace*: where the commands of a run work: on the recording mount, or on a filesystem on a disk that lies there.

use std::cell::Cell;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

use regex_lite::Regex;
use weir_runtime::{Handle, Sender, channel};

use crate::acks::ACK_NAME;
use crate::disk_record::DiskRecord;
use crate::disk_session::DiskSession;
use crate::filesystem::RecordedFilesystem;
use crate::judge::describe_status;
use crate::mount_points::detach_mounts_in;
use crate::record::LINE_BYTES_MAX;
use crate::run_plan::{RunError, RunPlan};
use crate::shell::{Shell, ShellEnd, end_processes_with, tag_of};
use crate::stop::StopCondition;

/// Lines of the output that wait to be taken in.
const LINES_WAITING: usize = 1024;

/// What was run: how long the recorded command took, and how it ended, with the processes that were ended.
pub(crate) type Ran = (f64, Result<Vec<String>, RunError>);

/// See the head of this file.
pub(crate) struct Workplace<'a> {
    handle: &'a Handle,
    plan: &'a RunPlan,
    filesystem: &'a RecordedFilesystem,
    recording: &'a Path,
    /// Operations that were recorded when the run had ended.
    ended: Cell<usize>,
}

impl<'a> Workplace<'a> {
    /// Of a run, on a filesystem that is mounted on a directory for it.
    pub(crate) fn new(
        handle: &'a Handle,
        plan: &'a RunPlan,
        filesystem: &'a RecordedFilesystem,
        recording: &'a Path,
    ) -> Workplace<'a> {
        Workplace { handle, plan, filesystem, recording, ended: Cell::new(0) }
    }

    /// What is known of the disk of the run that has ended, if there was one.
    pub(crate) fn disk_record(&self) -> Option<DiskRecord> {
        let ground = self.plan.disk.as_ref()?.ground.clone();
        Some(DiskRecord { ground, ended: self.ended.get() })
    }

    /// Runs both commands.
    pub(crate) async fn run_both(&self) -> Result<Ran, RunError> {
        if let Some(base) = &self.plan.base {
            self.filesystem.restore(&base.tree).map_err(io::Error::other)?;
        }
        let Some(disk) = &self.plan.disk else {
            return self.run_in(self.recording, None).await;
        };
        let places = (self.recording, &*self.plan.scratch);
        let session = DiskSession::begin(self.handle, disk, places, self.plan.base.is_none()).await?;
        let ran = self.run_in(session.directory(), Some(&session)).await;
        self.ended.set(self.filesystem.operations());
        let synchronised = session.synchronise(self.handle).await;
        let directory = session.directory().to_owned();
        let ended = session.end(self.handle).await;
        // Whatever became of it, nothing stays mounted.
        self.handle.blocking(move || detach_mounts_in(&directory)).await??;
        let ran = ran?;
        // A disk whose power is cut, or that is broken by a fault, takes nothing any more.
        let is_broken = self.plan.cut.is_some() || !self.plan.faults.is_empty();
        if !is_broken && ran.1.is_ok() {
            synchronised.and(ended)?;
        }
        Ok(ran)
    }

    /// Runs both commands in a directory.
    async fn run_in(&self, directory: &Path, disk: Option<&DiskSession>) -> Result<Ran, RunError> {
        let (handle, plan) = (self.handle, self.plan);
        let mut left_behind = Vec::new();
        if let (Some(setup), None) = (&plan.setup, &plan.base) {
            left_behind = self.run_command(("--setup", setup), directory, None).await?;
        }
        if let Some(disk) = disk {
            // No cut takes what the setup has made.
            disk.synchronise(handle).await?;
        }
        let lines = plan.base.as_ref().map_or(&[][..], |base| &base.lines);
        self.filesystem.end_setup(handle, &plan.faults, plan.cut.as_ref(), plan.round, lines);
        let began = handle.now();
        let run = ("--run", plan.run.as_str());
        let ended = match &plan.ack_pattern {
            None => self.run_command(run, directory, None).await,
            Some(pattern) => {
                let (sender, lines) = channel(LINES_WAITING);
                let recording = self.filesystem.clone();
                let recorded = handle.spawn(async move {
                    while let Ok(line) = lines.recv().await {
                        recording.acknowledge(line);
                    }
                });
                let reader = LineReader { pattern: pattern.clone(), lines: sender, part: Vec::new() };
                let ended = self.run_command(run, directory, Some(reader)).await;
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
        &self,
        (which, command): (&'static str, &str),
        directory: &Path,
        mut reader: Option<LineReader>,
    ) -> Result<Vec<String>, RunError> {
        let plan = self.plan;
        let (command, directory, limit) = (command.to_owned(), directory.to_owned(), plan.limit);
        let (ack, here) = (self.recording.join(ACK_NAME), plan.here.clone());
        let mut stop = StopCondition::from_flag(&plan.stops);
        if let Some(cut) = &plan.cut {
            stop = stop.or_flag(&cut.is_cut);
        }
        let running = self.handle.blocking(move || {
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
