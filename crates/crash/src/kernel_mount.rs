//! *Kernel mount*: an image that the kernel has mounted on a directory, by a loop device, until dropped.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Errno, retry_on_intr};
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use thiserror::Error;

/// Attempts to unmount, and the pause between two: 10 s in all.
const UNMOUNTS: u32 = 500;
const PAUSE: Duration = Duration::from_millis(20);

/// How long `mount` and other helpers may take, and how long one that is ended may.
const HELPER_LIMIT: Duration = Duration::from_secs(120);
const END_LIMIT: Duration = Duration::from_secs(5);
/// Of what a helper says, so much is kept.
const SAID_BYTES_MAX: u64 = 64 << 10;
/// What `mount` ends with if the kernel refuses the filesystem.
const MOUNT_REFUSED: i32 = 32;

/// Why an image is not mounted.
#[derive(Debug, Error)]
pub enum KernelMountError {
    /// The program `mount` cannot be started, or was ended.
    #[error("cannot run mount: {0}: is it installed (package mount)?")]
    Io(#[from] io::Error),
    /// It was refused, in these words.
    #[error("{0}")]
    Refused(String),
}

/// See the head of this file.
#[derive(Debug)]
pub struct KernelMount {
    at: PathBuf,
    is_mounted: bool,
}

impl KernelMount {
    /// Mounts an image with a filesystem of this type on a directory that is there, with options of `mount`, between commas. The
    /// filesystem recovers as after any power cut.
    ///
    /// # Errors
    /// All of [`KernelMountError`].
    pub fn new(
        image: &Path,
        at: &Path,
        filesystem: &str,
        options: &str,
    ) -> Result<KernelMount, KernelMountError> {
        let comma = if options.is_empty() { "" } else { "," };
        let options = format!("loop{comma}{options}");
        let mut mount = Command::new("mount");
        mount.args(["-t", filesystem, "-o", &options]).arg(image).arg(at).env("LC_ALL", "C");
        let (at, ended) = (at.to_owned(), run_helper(&mut mount));
        if matches!(&ended, Ok(HelperEnd { status, .. }) if status.success()) {
            return Ok(KernelMount { at, is_mounted: true });
        }
        // One that was ended may have mounted before.
        let _ = unmount(&at, UNMOUNTS);
        Err(ended?.into_error(MOUNT_REFUSED))
    }

    /// Unmounts, which writes back all that is dirty.
    ///
    /// # Errors
    /// `EBUSY` if it stays in use, and what else the kernel says. It is detached then, and ends with its last user.
    pub fn unmount(mut self) -> io::Result<()> {
        self.is_mounted = false;
        unmount(&self.at, UNMOUNTS)
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        if self.is_mounted {
            // A drop returns no error.
            let _ = unmount(&self.at, UNMOUNTS);
        }
    }
}

/// How a helper has ended.
#[derive(Debug)]
pub struct HelperEnd {
    /// Its status.
    pub status: ExitStatus,
    /// What it said on both outputs, at most the first 64 KiB.
    pub said: String,
}

impl HelperEnd {
    /// Why there is no mount. Only the status `refused` is the answer of a filesystem: with any other, or a signal, nothing
    /// is known.
    #[must_use]
    pub fn into_error(self, refused: i32) -> KernelMountError {
        match self.status.code() == Some(refused) {
            true => KernelMountError::Refused(self.said),
            false => KernelMountError::Io(io::Error::other(format!("{}: {}", self.status, self.said))),
        }
    }
}

/// Runs a program that mounts, unmounts or makes a filesystem, in a process group of its own: a signal from the terminal does not
/// reach it. After two minutes it is ended.
///
/// # Errors
/// What starting it fails by, and [`io::ErrorKind::TimedOut`].
pub fn run_helper(command: &mut Command) -> io::Result<HelperEnd> {
    run_helper_within(command, HELPER_LIMIT)
}

fn run_helper_within(command: &mut Command, limit: Duration) -> io::Result<HelperEnd> {
    // A pipe would stay open as long as a server that the helper leaves running.
    let mut output = File::from(memfd_create("said", MemfdFlags::CLOEXEC)?);
    let command = command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
    let mut child = command.process_group(0).spawn()?;
    if !ends_within(&child, limit)? {
        if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        // What the kernel does not end is left to it.
        if ends_within(&child, END_LIMIT)? {
            child.wait()?;
        }
        let program = command.get_program().display();
        let said = format!("{program} did not end within {} s", limit.as_secs());
        return Err(io::Error::new(io::ErrorKind::TimedOut, said));
    }
    let status = child.wait()?;
    let mut said = Vec::new();
    output.rewind()?;
    output.take(SAID_BYTES_MAX).read_to_end(&mut said)?;
    Ok(HelperEnd { status, said: String::from_utf8_lossy(&said).trim().to_owned() })
}

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

/// Unmounts. Other threads start programs, and a child holds every file that was open here until it is a program: so
/// the mount may be busy for a moment without a user. If it stays busy, it is detached, and ends with its last user.
///
/// # Errors
/// `EBUSY` if it is still busy after so many attempts, and what else the kernel says.
#[expect(clippy::disallowed_methods, reason = "it waits for what other processes do")]
fn unmount(at: &Path, attempts: u32) -> io::Result<()> {
    for _ in 0..attempts {
        match rustix::mount::unmount(at, UnmountFlags::empty()) {
            Err(Errno::BUSY) => std::thread::sleep(PAUSE),
            ended => return Ok(ended?),
        }
    }
    rustix::mount::unmount(at, UnmountFlags::DETACH)?;
    Err(Errno::BUSY.into())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use tempfile::TempDir;

    use super::*;

    /// A mount point in `place` with a filesystem in memory; none where this machine does not mount for us.
    fn mounted(place: &TempDir) -> Option<PathBuf> {
        let at = place.path().join("mounted");
        fs::create_dir(&at).expect("a mount point");
        let output = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&at).output();
        if output.is_ok_and(|output| output.status.success()) {
            return Some(at);
        }
        eprintln!("skipped: this machine does not mount for us");
        None
    }

    fn is_mounted(at: &Path) -> bool {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("a list of mounts");
        mounts.lines().any(|line| line.split(' ').nth(1) == at.to_str())
    }

    #[test]
    fn a_helper_that_is_ended_is_no_refused_filesystem() {
        let shell = |script: &str, limit| {
            run_helper_within(Command::new("sh").args(["-c", script]), Duration::from_secs(limit))
        };
        let error_of = |script: &str| shell(script, 60).expect("it ends").into_error(MOUNT_REFUSED);
        assert!(matches!(error_of("echo no; exit 32"), KernelMountError::Refused(said) if said == "no"));
        for other in ["exit 1", "kill -INT $$"] {
            assert!(matches!(error_of(other), KernelMountError::Io(_)), "{other}");
        }
        // What it leaves running is not waited for, and it is in no group of a terminal's.
        assert!(shell("sleep 30 & exit 0", 10).expect("it ends").status.success());
        let group = shell("cut -d ' ' -f 5 /proc/$$/stat; echo $$", 60).expect("it ends").said;
        let mut numbers = group.split_whitespace();
        assert_eq!(numbers.next(), numbers.next());
        let late = shell("sleep 30", 0).map_err(|error| error.kind());
        assert_eq!(late.err(), Some(io::ErrorKind::TimedOut));
    }

    #[test]
    fn a_mount_that_is_busy_for_a_moment_is_waited_for() {
        let place = TempDir::new().expect("room");
        let Some(at) = mounted(&place) else { return };
        let mut holder =
            Command::new("sleep").arg("0.3").current_dir(&at).spawn().expect("sleep is installed");
        assert_eq!(unmount(&at, UNMOUNTS).map_err(|error| error.raw_os_error()), Ok(()));
        assert!(!is_mounted(&at));
        holder.wait().expect("it ends");
    }

    #[test]
    fn a_mount_that_stays_busy_is_told_and_does_not_stay_behind() {
        let place = TempDir::new().expect("room");
        let Some(at) = mounted(&place) else { return };
        let _held = File::create(at.join("file")).expect("room");
        let busy = unmount(&at, 3).map_err(|error| error.raw_os_error());
        assert_eq!(busy, Err(Some(Errno::BUSY.raw_os_error())));
        assert!(!is_mounted(&at));
        let nothing = unmount(&at, 3).map_err(|error| error.raw_os_error());
        assert_eq!(nothing, Err(Some(Errno::INVAL.raw_os_error())));
    }
}
