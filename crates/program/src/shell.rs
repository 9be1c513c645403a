//! *Shell*: a command that is run by `sh -c`, for a limited time, and all that it has started with it.

use std::fs;
use std::io::{self, PipeReader, Read as _, pipe};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{ioctl_fionbio, retry_on_intr};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};

use crate::stop::StopCondition;

/// How often a wait checks whether to stop.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How long to wait for the end of the output when the process group has ended.
const OUTPUT_WAIT: Duration = Duration::from_millis(200);
/// Of what a command prints, so many bytes are kept, the last ones.
const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// Bytes that are read at one time.
const READ_BYTES: usize = 64 << 10;
/// How often processes are looked for that have left a command's group.
const END_ROUNDS_MAX: usize = 10;
/// Bytes that are read when the command has ended: more than a pipe holds.
const REST_BYTES_MAX: usize = 2 << 20;

fn timespec(time: Duration) -> Timespec {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: time.subsec_nanos().into() }
}

/// The last bytes of what a command prints.
#[derive(Debug, Default)]
struct OutputTail(Vec<u8>);

impl OutputTail {
    fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        if self.0.len() > 2 * OUTPUT_BYTES_MAX {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.0.drain(..self.0.len().saturating_sub(OUTPUT_BYTES_MAX));
    }

    fn into_bytes(mut self) -> Vec<u8> {
        self.cut();
        self.0
    }
}

/// How a command has ended.
#[derive(Debug)]
pub struct ShellEnd {
    /// Its status; none if it had to be ended.
    pub status: Option<ExitStatus>,
    /// What it printed, at most the last 64 KiB.
    pub output: Vec<u8>,
    /// Processes that had left its group, and were ended.
    pub left_behind: Vec<String>,
}

/// A command under way, with a process group of its own.
pub struct Shell {
    child: Child,
    /// What it prints, or its standard error alone.
    output: Option<PipeReader>,
    /// Its standard output, if that is taken.
    taken: Option<PipeReader>,
    /// A variable of its environment that no other command has.
    tag: Vec<u8>,
    tail: OutputTail,
}

impl Shell {
    /// Starts a command in a directory, with variables of the environment, the first of which no other command has. `is_taken`:
    /// its standard output is told from its standard error.
    ///
    /// # Errors
    /// What starting it fails by.
    pub fn start(
        command: &str,
        directory: &Path,
        variables: &[(&str, &Path)],
        is_taken: bool,
    ) -> io::Result<Shell> {
        let (output, errors) = pipe()?;
        ioctl_fionbio(&output, true)?;
        let (mut taken, mut printed) = (None, errors.try_clone()?);
        if is_taken {
            let (reader, writer) = pipe()?;
            ioctl_fionbio(&reader, true)?;
            (taken, printed) = (Some(reader), writer);
        }
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(command).current_dir(directory).envs(variables.iter().copied());
        shell.stdin(Stdio::null()).stdout(printed).stderr(errors).process_group(0);
        let tag = variables.first().map_or_else(Vec::new, |(name, value)| tag_of(name, value));
        Ok(Shell { child: shell.spawn()?, output: Some(output), taken, tag, tail: OutputTail::default() })
    }

    /// Waits until it ends, and ends all that it has started; it is ended if `stop` is met, or `limit` over, before. `take` gets
    /// what comes from its standard output, if that is taken.
    ///
    /// # Errors
    /// What waiting for it fails by.
    pub fn wait_within(
        mut self,
        stop: &StopCondition,
        limit: Duration,
        mut take: impl FnMut(&[u8]),
    ) -> io::Result<ShellEnd> {
        let waited = stop.after(limit).and_then(|limit| self.wait([stop, &limit], &mut take));
        // It was not reaped, so the number is still its own.
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            // Nothing may be left of the group.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let status = self.child.wait()?;
        let has_ended = waited?;
        // Whatever keeps the output open has left the group.
        let left_behind = match self.read_rest(&mut take)? {
            true => Vec::new(),
            false => end_processes_with(&self.tag),
        };
        Ok(ShellEnd { status: has_ended.then_some(status), output: self.tail.into_bytes(), left_behind })
    }

    fn pipes(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.output.iter().chain(&self.taken).map(PipeReader::as_fd)
    }

    /// Waits until it ends (true), or one of these is met.
    fn wait(&mut self, stops: [&StopCondition; 2], take: &mut impl FnMut(&[u8])) -> io::Result<bool> {
        let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) else { return Ok(true) };
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        loop {
            let timers = stops.iter().filter_map(|stop| stop.timer());
            let all = [process.as_fd()].into_iter().chain(self.pipes()).chain(timers);
            let ready = poll_readable(all, STOP_CHECK_INTERVAL)?;
            if stops.iter().any(|stop| stop.is_met()) {
                return Ok(false);
            }
            self.read(take)?;
            if ready.first() == Some(&true) {
                return Ok(true);
            }
        }
    }

    /// Reads what is there once the group has ended: whether the output has ended, too.
    fn read_rest(&mut self, take: &mut impl FnMut(&[u8])) -> io::Result<bool> {
        let mut left = REST_BYTES_MAX;
        while self.pipes().next().is_some() {
            let is_silent = !poll_readable(self.pipes(), OUTPUT_WAIT)?.contains(&true);
            left = left.saturating_sub(self.read(take)?);
            if is_silent || left == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads once from each pipe, and closes those that have ended: how many bytes.
    fn read(&mut self, take: &mut impl FnMut(&[u8])) -> io::Result<usize> {
        let mut bytes = vec![0; READ_BYTES];
        let mut count = 0;
        for (pipe, is_taken) in [(&mut self.taken, true), (&mut self.output, false)] {
            let Some(reader) = pipe else { continue };
            match reader.read(&mut bytes) {
                Ok(0) => *pipe = None,
                Ok(read) => {
                    count += read;
                    self.tail.push(&bytes[..read]);
                    if is_taken {
                        take(&bytes[..read]);
                    }
                }
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }
}

/// A variable as it is in a process's environment.
pub(crate) fn tag_of(name: &str, value: &Path) -> Vec<u8> {
    [name.as_bytes(), b"=", value.as_os_str().as_bytes()].concat()
}

/// Which of these can be read from, or have ended, within a time.
fn poll_readable<'a>(
    descriptors: impl Iterator<Item = BorrowedFd<'a>>,
    time: Duration,
) -> io::Result<Vec<bool>> {
    let mut polled: Vec<PollFd<'a>> =
        descriptors.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)).collect();
    let time = timespec(time);
    retry_on_intr(|| poll(&mut polled, Some(&time)))?;
    Ok(polled.iter().map(|descriptor| !descriptor.revents().is_empty()).collect())
}

/// Ends the processes of this user that have a variable in the environment that they were started with: what they are.
pub(crate) fn end_processes_with(tag: &[u8]) -> Vec<String> {
    let mut ended = Vec::new();
    // One may start another meanwhile.
    for _ in 0..END_ROUNDS_MAX {
        let found = processes_with(tag);
        if found.is_empty() {
            break;
        }
        for pid in found {
            let command = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_pid())).unwrap_or_default();
            // It may have ended by itself.
            let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            if kill_process(pid, Signal::KILL).is_ok() {
                ended.push(format!("{} ({})", command.trim_end(), pid.as_raw_pid()));
                let _ = poll_readable([process.as_fd()].into_iter(), OUTPUT_WAIT);
            }
        }
    }
    ended
}

/// Processes that have a variable in the environment that they were started with, and have not ended.
fn processes_with(tag: &[u8]) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw));
    let has_tag = |pid: &Pid| {
        // Other users' cannot be read; of one that has ended, this is empty.
        let variables = fs::read(format!("/proc/{}/environ", pid.as_raw_pid())).unwrap_or_default();
        variables.split(|byte| *byte == 0).any(|variable| variable == tag)
    };
    numbers.filter(has_tag).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    struct Test {
        scratch: tempfile::TempDir,
        stop: StopCondition,
    }

    impl Test {
        fn new() -> Test {
            Test { scratch: tempfile::tempdir().unwrap(), stop: StopCondition::from_flag(&Arc::default()) }
        }

        fn start(&self, command: &str, is_taken: bool) -> Shell {
            let variables = [("TAG", self.scratch.path()), ("WORD", Path::new("told"))];
            Shell::start(command, self.scratch.path(), &variables, is_taken).unwrap()
        }

        fn wait(&self, shell: Shell, milliseconds: u64) -> ShellEnd {
            let limit = Duration::from_millis(milliseconds);
            shell.wait_within(&self.stop, limit, |_| panic!("it is not taken")).unwrap()
        }

        fn run(&self, command: &str) -> ShellEnd {
            self.wait(self.start(command, false), 60_000)
        }
    }

    #[test]
    fn a_command_ends_in_time_or_is_ended_with_what_it_started() {
        let test = Test::new();
        let ended = test.run("echo $WORD; echo wrong >&2; (sleep 0.3; touch late) & exit 3");
        assert_eq!((ended.status.unwrap().code(), &ended.output[..]), (Some(3), &b"told\nwrong\n"[..]));
        assert!(test.run("sleep 1; test ! -e late").status.unwrap().success(), "what it started goes on");
        assert!(test.wait(test.start("echo a; sleep 1000", false), 50).status.is_none());
        let flag = StopCondition::from_flag(&Arc::new(AtomicBool::new(true)));
        for stop in [flag, test.stop.after(Duration::from_millis(50)).unwrap()] {
            let shell = test.start("sleep 1000", false);
            assert!(shell.wait_within(&stop, Duration::from_secs(900), |_| ()).unwrap().status.is_none());
        }
    }

    #[test]
    fn of_much_output_the_end_is_kept_while_the_command_runs() {
        let test = Test::new();
        let ended = test.run("yes no | head -c 30000000; echo end");
        assert_eq!(ended.output.len(), OUTPUT_BYTES_MAX);
        assert!(ended.output.ends_with(b"no\nend\n"));
        let mut taken = Vec::new();
        let shell = test.start("yes no | head -c 3000000; echo wrong >&2", true);
        let take = |bytes: &[u8]| taken.extend_from_slice(bytes);
        let ended = shell.wait_within(&test.stop, Duration::from_secs(60), take).unwrap();
        assert!(taken.len() == 3_000_000 && !taken.ends_with(b"wrong\n"));
        assert!(ended.output.len() == OUTPUT_BYTES_MAX && ended.left_behind.is_empty());
    }

    #[test]
    fn what_has_left_the_group_and_keeps_the_output_is_ended() {
        let test = Test::new();
        let ended = test.run("setsid sh -c 'sleep 500; touch late' & sleep 0.2; echo done");
        assert_eq!(ended.output, b"done\n");
        assert!(!ended.left_behind.is_empty(), "{ended:?}");
        let tag = tag_of("TAG", test.scratch.path());
        assert!(processes_with(&tag).is_empty());
        // What keeps nothing open is found by its tag alone.
        assert!(test.run("setsid sleep 500 >/dev/null 2>&1 & sleep 0.2").left_behind.is_empty());
        assert_eq!(end_processes_with(&tag).len(), 1);
        assert!(processes_with(&tag).is_empty());
    }
}
