//! *Disk mount*: the filesystem of a disk on a directory until dropped, by the kernel or by `weir mount`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{XattrFlags, setxattr, syncfs};
use weir_crash::{KernelMount, KernelMountError};
use weir_fuse::control::{STATUS_ATTRIBUTE, SYNC_ALL};

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
        run(mount.arg(disk).arg(at))?.map_err(KernelMountError::Refused)?;
        Ok(WeirMount { weir: weir.to_owned(), at: at.to_owned(), is_mounted: true })
    }

    fn unmount(mut self) -> io::Result<()> {
        self.is_mounted = false;
        self.end()
    }

    fn end(&self) -> io::Result<()> {
        run(Command::new(&self.weir).arg("umount").arg(&self.at))?.map_err(io::Error::other)
    }
}

impl Drop for WeirMount {
    fn drop(&mut self) {
        if self.is_mounted {
            // Nobody is left who could be told.
            let _ = self.end();
        }
    }
}

/// Runs a program; what it says if it fails.
fn run(command: &mut Command) -> io::Result<Result<(), String>> {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(Ok(())),
        false => Ok(Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}
