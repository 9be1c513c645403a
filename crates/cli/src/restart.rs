//! `weir restart`: the server of a mount hands over to the program that is installed by now, and programs that use the mount do not
//! notice.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::error::CliError;
use crate::{print, status};

/// From one look at the status to the next.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// So many in a second.
const LOOKS_A_SECOND: u32 = 100;

/// Arguments of `weir restart`.
#[derive(Debug, Args)]
pub(crate) struct RestartArguments {
    /// The directory that a filesystem is mounted on
    mountpoint: PathBuf,
    /// How long to wait for the server's answers
    #[arg(long, value_name = "SECONDS", default_value_t = status::ANSWERED_WITHIN, value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
}

/// Runs the command.
pub(crate) fn run(arguments: &RestartArguments) -> Result<(), CliError> {
    let path = &arguments.mountpoint;
    status::require_answer(path, arguments.timeout)?;
    let status = status::ask(path)?;
    let no_restart = || CliError::NoRestart(path.clone());
    let before = status.restarts().ok_or_else(no_restart)?.restarts_asked;
    let process = Pid::from_raw(status.pid.cast_signed()).ok_or_else(no_restart)?;
    let failed = |source: rustix::io::Errno| CliError::File {
        doing: "ask the server to restart of",
        path: path.clone(),
        source: source.into(),
    };
    let server = pidfd_open(process, PidfdFlags::empty()).map_err(failed)?;
    // The number is that of the server's own namespace of processes: here it may be another process, which the signal
    // would end, or make do something else.
    if !is_weirs(process) || !takes_signal(process, Signal::USR2) {
        return Err(no_restart());
    }
    pidfd_send_signal(&server, Signal::USR2).map_err(failed)?;
    for _ in 0..arguments.timeout.saturating_mul(LOOKS_A_SECOND) {
        pause(&server, path)?;
        let now = status::ask(path)?;
        let restarts = now.restarts().ok_or_else(no_restart)?;
        if restarts.restarts_asked > before {
            return match restarts.restart_refused.clone() {
                None => print(&format!(
                    "{}: process {} serves it now, weir {}",
                    path.display(),
                    now.pid,
                    now.version.as_deref().unwrap_or("of an older version")
                )),
                Some(why) => Err(CliError::RestartRefused { path: path.clone(), why }),
            };
        }
    }
    Err(CliError::Unanswered { path: path.clone(), seconds: arguments.timeout })
}

/// Whether a process was started as this program, by whatever name is made of its own: such as `mount.weir`.
fn is_weirs(process: Pid) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{}/comm", process.as_raw_pid()));
    name.is_ok_and(|name| name.contains("weir"))
}

/// Whether a process has a handler for a signal.
fn takes_signal(process: Pid, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.as_raw_pid()));
    let caught = status.ok().and_then(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    });
    caught.is_some_and(|caught| caught & 1 << (signal.as_raw() - 1) != 0)
}

/// Waits a moment, or until the server has ended.
fn pause(server: &OwnedFd, path: &Path) -> Result<(), CliError> {
    let ended = poll(&mut [PollFd::new(&server.as_fd(), PollFlags::IN)], Some(&LOOK));
    if ended.unwrap_or(0) > 0 { Err(CliError::ServerEnded(path.to_owned())) } else { Ok(()) }
}
