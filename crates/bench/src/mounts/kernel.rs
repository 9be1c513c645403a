//! The kernel's own ext4 on a volume: `weir disk`, a loop device, and a mount without barriers, which sends no flush
//! and needs none for its order, as the volume keeps that of its writes.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use weir_runtime::Handle;

use crate::error::BenchError;
use crate::mounts::served::{Door, Served, ServedStatus};

/// Where programs of the superuser are.
const PATH: &str = "/usr/sbin:/sbin:/usr/bin:/bin";

/// A mounted ext4; all of it goes when dropped, first what is on the others.
pub(super) struct KernelExt4 {
    mount: Mount,
    device: Loop,
    served: Served,
}

/// A directory on which something is mounted, until dropped.
struct Mount(TempDir);

/// A loop device, until dropped.
struct Loop(String);

impl Drop for Mount {
    fn drop(&mut self) {
        // It may be unmounted already.
        let _ = run("umount", &[self.0.path().as_ref()]);
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = run("losetup", &["--detach".as_ref(), self.0.as_ref()]);
    }
}

/// Runs a program of the system; what it told on standard output.
fn run(program: &'static str, arguments: &[&OsStr]) -> Result<String, BenchError> {
    let failed = |told| BenchError::Program { program, told };
    let output = Command::new(program).args(arguments).env("PATH", PATH).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

impl KernelExt4 {
    /// Makes an ext4 on a volume, and mounts it without barriers.
    pub(super) fn make(program: &Path, volume: &Path) -> Result<KernelExt4, BenchError> {
        let served = Served::start(program, Door::Disk, volume)?;
        let file = served.path(weir_fuse::DISK_NAME);
        let device = Loop(run(
            "losetup",
            &["--find".as_ref(), "--show".as_ref(), "--direct-io=on".as_ref(), file.as_ref()],
        )?);
        // A new volume reads as zeros.
        let quick = "nodiscard,lazy_itable_init=0,lazy_journal_init=0,assume_storage_prezeroed=1";
        run("mkfs.ext4", &["-q".as_ref(), "-E".as_ref(), quick.as_ref(), device.0.as_ref()])?;
        let directory = tempfile::Builder::new().prefix("weir-bench-").tempdir();
        let directory =
            directory.map_err(|error| BenchError::Program { program: "mount", told: error.to_string() })?;
        let options = ["-t", "ext4", "-o", "nobarrier"].map(OsStr::new);
        run("mount", &[&options[..], &[device.0.as_ref(), directory.path().as_ref()]].concat())?;
        Ok(KernelExt4 { mount: Mount(directory), device, served })
    }

    /// A file on it.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.mount.0.path().join(name)
    }

    pub(super) fn status(&self) -> Result<ServedStatus, BenchError> {
        self.served.status()
    }

    /// Unmounts it, checks it with e2fsck, and ends the server.
    pub(super) async fn end(self, handle: &Handle) -> Result<(), BenchError> {
        let KernelExt4 { mount, device, served } = self;
        run("umount", &[mount.0.path().as_ref()])?;
        run("e2fsck", &["-fn".as_ref(), device.0.as_ref()])?;
        drop((mount, device));
        served.end(handle).await
    }
}
