//! *Shell*: a command that is run by `sh -c`, for a limited time, and all that it has started with it.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// How often a wait checks whether to stop.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Waits for a process until it ends or the time is over. It is not reaped.
///
/// # Errors
/// What waiting fails by.
pub fn ends_within(child: &Child, limit: Duration) -> io::Result<bool> {
    let Some(pid) = Pid::from_raw(child.id().cast_signed()) else { return Ok(true) };
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let seconds = i64::try_from(limit.as_secs()).unwrap_or(i64::MAX);
    let limit = Timespec { tv_sec: seconds, tv_nsec: limit.subsec_nanos().into() };
    Ok(retry_on_intr(|| poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)))? > 0)
}

/// A command under way, with a process group of its own.
pub struct Shell {
    child: Child,
}

impl Shell {
    /// Starts a command in a directory, with variables of the environment. What it prints goes to a file; its standard output
    /// to this process, `is_read`.
    ///
    /// # Errors
    /// What starting it fails by.
    pub fn start(
        command: &str,
        directory: &Path,
        variables: &[(&str, &PathBuf)],
        output: &Path,
        is_read: bool,
    ) -> io::Result<Shell> {
        let output = File::options().create(true).append(true).open(output)?;
        let errors = output.try_clone()?;
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(command).current_dir(directory).envs(variables.iter().copied());
        shell.stdin(Stdio::null()).stderr(errors).process_group(0);
        match is_read {
            true => shell.stdout(Stdio::piped()),
            false => shell.stdout(output),
        };
        Ok(Shell { child: shell.spawn()? })
    }

    /// Its standard output, once, if it is read.
    pub fn take_output(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    fn ends_within(&self, mut left: Duration, stops: &AtomicBool) -> io::Result<bool> {
        while !left.is_zero() && !stops.load(Ordering::Relaxed) {
            let now = left.min(STOP_CHECK_INTERVAL);
            if ends_within(&self.child, now)? {
                return Ok(true);
            }
            left -= now;
        }
        Ok(false)
    }

    /// Waits until it ends, and ends all that it has started; none if the time is over before, or `stops` becomes true.
    ///
    /// # Errors
    /// What waiting for it fails by.
    pub fn wait_within(mut self, limit: Duration, stops: &AtomicBool) -> io::Result<Option<ExitStatus>> {
        let in_time = self.ends_within(limit, stops);
        // It was not reaped, so the number is still its own.
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            // Nothing may be left of the group.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let status = self.child.wait()?;
        Ok(in_time?.then_some(status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_ends_in_time_or_is_ended_with_what_it_started() {
        let scratch = tempfile::tempdir().unwrap();
        let (output, seconds) = (scratch.path().join("output"), Duration::from_secs(30));
        let goes_on = AtomicBool::new(false);
        let start = |command| {
            let word = ("WORD", &PathBuf::from("told"));
            Shell::start(command, scratch.path(), &[word], &output, false).unwrap()
        };
        let status = start("echo $WORD; echo wrong >&2; (sleep 0.3; touch late) & exit 3")
            .wait_within(seconds, &goes_on);
        assert_eq!(status.unwrap().unwrap().code(), Some(3));
        assert_eq!(std::fs::read_to_string(&output).unwrap(), "told\nwrong\n");
        let looked = start("sleep 1; test ! -e late").wait_within(seconds, &goes_on);
        assert!(looked.unwrap().unwrap().success(), "what it started goes on");
        assert!(start("sleep 1000").wait_within(Duration::from_millis(50), &goes_on).unwrap().is_none());
        let stops = AtomicBool::new(true);
        assert!(start("sleep 1000").wait_within(seconds, &stops).unwrap().is_none());
    }
}
