//! What tests need from the host's administrator: loop devices and small mounts. Where they are not to be
//! had the test says so and ends.

#![allow(clippy::unwrap_used, dead_code, reason = "each test binary uses its part of this")]

use std::path::{Path, PathBuf};
use std::process::Command;

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
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = run("losetup", &["--detach", self.0.to_str().unwrap()]);
    }
}

/// A mounted tmpfs of a fixed size; unmounted when dropped.
pub struct SmallTmpfs(PathBuf);

impl SmallTmpfs {
    pub fn mount(at: &Path, bytes: u64) -> Result<SmallTmpfs, String> {
        let size = format!("size={bytes}");
        run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", at.to_str().unwrap()])?;
        Ok(SmallTmpfs(at.into()))
    }
}

impl Drop for SmallTmpfs {
    fn drop(&mut self) {
        let _ = run("umount", &[self.0.to_str().unwrap()]);
    }
}
