//! What tests need from the host's administrator: loop devices and small mounts. Where they are not to be
//! had the test says so and ends.

#![allow(clippy::unwrap_used, dead_code, reason = "each test binary uses its part of this")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use weir_runtime::Handle;
use weir_storage::{FileDisk, FileDiskError, FileDiskOptions};

/// Opens a disk whose last user has just let go. While this process starts another program, the child has a
/// share of every open file, and so of the lock, until it has replaced itself.
pub async fn open_soon(handle: &Handle, path: &Path, options: &FileDiskOptions) -> Rc<FileDisk> {
    for _ in 0..2_000 {
        match FileDisk::open(handle, path, options.clone()) {
            Ok(disk) => return disk,
            Err(FileDiskError::Locked { .. } | FileDiskError::Busy { .. }) => {
                handle.sleep(Duration::from_millis(1)).await;
            }
            Err(e) => panic!("{e}"),
        }
    }
    panic!("{} stays locked", path.display());
}

/// Says why a test did not run.
pub fn skip(reason: &str) {
    eprintln!("skipped: {reason}");
}

fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}

/// A loop device over a file; detached when dropped.
pub struct LoopDevice(PathBuf);

impl LoopDevice {
    pub fn attach(file: &Path) -> Result<LoopDevice, String> {
        run("losetup", &["--find", "--show", file.to_str().unwrap()]).map(|name| LoopDevice(name.into()))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Flushes that the device has carried out: field 16 of the kernel's block statistics
    /// (Documentation/block/stat.rst).
    pub fn flushes(&self) -> u64 {
        let name = self.0.file_name().unwrap().to_str().unwrap();
        let stat = std::fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
        stat.split_whitespace().nth(15).unwrap().parse().unwrap()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = run("losetup", &["--detach", self.0.to_str().unwrap()]);
    }
}

/// A mounted filesystem; unmounted when dropped.
pub struct Mount(PathBuf);

impl Mount {
    /// A tmpfs of `bytes` bytes.
    pub fn tmpfs(at: &Path, bytes: u64) -> Result<Mount, String> {
        let size = format!("size={bytes}");
        run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", at.to_str().unwrap()])?;
        Ok(Mount(at.into()))
    }

    /// A file at another path, whose file is hidden meanwhile.
    pub fn bind(file: &Path, at: &Path) -> Result<Mount, String> {
        run("mount", &["--bind", file.to_str().unwrap(), at.to_str().unwrap()])?;
        Ok(Mount(at.into()))
    }

    /// A new ext4 on `device`.
    pub fn ext4(device: &LoopDevice, at: &Path) -> Result<Mount, String> {
        run("mkfs.ext4", &["-q", device.0.to_str().unwrap()])?;
        run("mount", &[device.0.to_str().unwrap(), at.to_str().unwrap()])?;
        Ok(Mount(at.into()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A loop device on it may take a moment to let go of its file.
        let _ = run("umount", &["--lazy", self.0.to_str().unwrap()]);
    }
}
