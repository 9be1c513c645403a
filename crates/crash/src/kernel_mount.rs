//! *Kernel mount*: an image that the kernel has mounted on a directory, by a loop device, until dropped.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use thiserror::Error;

/// Attempts to unmount, and the pause between two: 10 s in all.
const UNMOUNTS: u32 = 500;
const PAUSE: Duration = Duration::from_millis(20);

/// Why an image is not mounted.
#[derive(Debug, Error)]
pub enum KernelMountError {
    /// The program `mount` cannot be started.
    #[error("cannot run mount: {0}: install it (package mount)")]
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
        let output = mount.output()?;
        match output.status.success() {
            true => Ok(KernelMount { at: at.to_owned(), is_mounted: true }),
            false => {
                let said = [&output.stdout[..], &output.stderr].concat();
                Err(KernelMountError::Refused(String::from_utf8_lossy(&said).trim().to_owned()))
            }
        }
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
            // Nobody is left who could be told.
            let _ = unmount(&self.at, UNMOUNTS);
        }
    }
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
