//! *Disk mount*: the filesystem of a disk on a directory until dropped, by the kernel or by `weir mount`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{XattrFlags, setxattr, syncfs};
use weir_crash::{HelperEnd, KernelMount, KernelMountError, run_helper};
use weir_fuse::control::{STATUS_ATTRIBUTE, SYNC_ALL};

use crate::mount_points::detach_mounts_in;
use crate::shell::{end_processes_with, tag_of};

/// A variable of the environment of a server: where it has mounted.
const SERVER_TAG: &str = "WEIR_CRASH_SERVER";
/// What `weir mount` ends with if there is no mount, as the filesystem is damaged, or for any other reason.
const MOUNT_REFUSED: i32 = 2;

/// See the head of this file.
pub(crate) enum DiskMount {
    /// The kernel's.
    Kernel(KernelMount),
    /// Weir's.
    Weir(WeirMount),
}

impl DiskMount {
    /// Writes all that is dirty in the filesystem on a directory to the disk, and flushes.
    pub(crate) fn synchronise(&self, directory: &Path) -> io::Result<()> {
        syncfs(std::fs::File::open(directory)?)?;
        match self {
            DiskMount::Kernel(_) => Ok(()),
            // The kernel does not tell a server of `syncfs`.
            DiskMount::Weir(_) => {
                let name = String::from_utf8_lossy(STATUS_ATTRIBUTE);
                Ok(setxattr(directory, &*name, SYNC_ALL, XattrFlags::empty())?)
            }
        }
    }

    /// Unmounts, which writes all that is dirty.
    pub(crate) fn unmount(self) -> io::Result<()> {
        match self {
            DiskMount::Kernel(mount) => mount.unmount(),
            DiskMount::Weir(mount) => mount.unmount(),
        }
    }
}

/// A mount of Weir, whose server is a process of its own.
pub(crate) struct WeirMount {
    weir: PathBuf,
    at: PathBuf,
    is_mounted: bool,
}

impl WeirMount {
    /// Mounts a disk by the program `weir`, with options of `weir mount` between commas.
    pub(crate) fn new(
        weir: &Path,
        disk: &Path,
        at: &Path,
        options: &str,
    ) -> Result<WeirMount, KernelMountError> {
        let options = options.split(',').filter(|option| !option.is_empty());
        let mut mount = Command::new(weir);
        // The server that had the disk of a state is not asked whether it lives.
        mount.args(["mount", "--after-crash"]).args(options.map(|option| format!("--{option}")));
        // By this variable its server is found.
        let ended = run_helper(mount.arg(disk).arg(at).env(SERVER_TAG, at));
        let mut mount = WeirMount { weir: weir.to_owned(), at: at.to_owned(), is_mounted: true };
        if matches!(&ended, Ok(HelperEnd { status, .. }) if status.success()) {
            return Ok(mount);
        }
        // One that was ended may have left a server.
        mount.is_mounted = false;
        mount.detach()?;
        Err(ended?.into_error(MOUNT_REFUSED))
    }

    fn unmount(mut self) -> io::Result<()> {
        self.is_mounted = false;
        self.end()
    }

    /// Unmounts. Of a disk that takes nothing any more, the server is ended, and the mount detached.
    fn end(&self) -> io::Result<()> {
        let ended = run_helper(Command::new(&self.weir).arg("umount").arg(&self.at));
        if matches!(&ended, Ok(HelperEnd { status, .. }) if status.success()) {
            return Ok(());
        }
        self.detach()?;
        Err(io::Error::other(ended?.said))
    }

    fn detach(&self) -> io::Result<()> {
        detach_mounts_in(&self.at)?;
        end_processes_with(&tag_of(SERVER_TAG, &self.at));
        Ok(())
    }
}

impl Drop for WeirMount {
    fn drop(&mut self) {
        if self.is_mounted {
            // A drop returns no error.
            let _ = self.end();
        }
    }
}
