//! A time limit on a command that waits for another process: the command runs as a process of its own, which this one leaves behind
//! if it takes too long. The kernel may wait for a FUSE server without an end, and lets no signal through then.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Runs this program anew with the same arguments, and `flag` behind the command's name. None if it takes longer than the limit.
///
/// # Errors
/// What starting it or waiting for it failed by.
pub(crate) fn run_within(seconds: u32, flag: &str) -> std::io::Result<Option<ExitStatus>> {
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    arguments.splice(1..1, [flag.into()]);
    let mut child = Command::new("/proc/self/exe").arg0("weir").args(arguments).spawn()?;
    if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        let limit = Timespec { tv_sec: seconds.into(), tv_nsec: 0 };
        if retry_on_intr(|| poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)))? == 0 {
            // It ends when the server lives again, at the latest.
            child.kill()?;
            return Ok(None);
        }
    }
    child.wait().map(Some)
}
