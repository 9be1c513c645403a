//! A volume behind a server: `weir mount` or `weir disk`, in a process of its own.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use serde::Deserialize;
use tempfile::TempDir;
use weir_fuse::control::STATUS_ATTRIBUTE;
use weir_runtime::Handle;
use weir_volume::LossWindowSeen;

use crate::error::BenchError;

/// Bytes of a status at most.
const STATUS_MAX: usize = 1 << 16;

/// How often unmounting is tried, and how long it is between: the kernel releases the files of an io_uring that has ended, and a loop
/// device, a moment later, and until then the mount is busy.
const UNMOUNT_TRIES: u32 = 50;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(100);

/// What a server makes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// BarrierFS on it is mounted.
    Filesystem {
        /// Options of `weir mount`.
        options: &'static [&'static str],
    },
    /// The volume itself is one file.
    Disk,
}

/// A server, ended when dropped.
pub(crate) struct Served {
    program: PathBuf,
    server: Child,
    mountpoint: TempDir,
}

/// What is wanted of a server's status.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct ServedStatus {
    pub(super) storage: StorageStatus,
    pub(super) requests: RequestsStatus,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct StorageStatus {
    pub(super) disk_blocks: u64,
    pub(super) loss_window: ServedLossWindow,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct ServedLossWindow {
    ms: f64,
    bytes: u64,
}

impl ServedStatus {
    pub(super) fn loss_window(&self) -> LossWindowSeen {
        let ServedLossWindow { ms, bytes } = self.storage.loss_window;
        // A time that is none is the server's mistake, and shows as none.
        let time_max = Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default();
        LossWindowSeen { time_max, bytes_max: bytes }
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct RequestsStatus {
    pub(super) under_way_max: u64,
}

fn failed(doing: &'static str) -> impl Fn(io::Error) -> BenchError {
    move |source| BenchError::Server { doing, told: source.to_string() }
}

/// Makes a volume of `bytes` bytes for a door, with a filesystem where that serves one.
pub(crate) fn make_volume(program: &Path, door: Door, bytes: u64, volume: &Path) -> Result<(), BenchError> {
    let mut command = Command::new(program);
    match door {
        Door::Filesystem { .. } => command.args(["mkfs", "--volume"]),
        Door::Disk => command.args(["volume", "create"]),
    };
    command.arg(volume).args(["--size", &bytes.to_string()]);
    let made = command.output().map_err(failed("run weir to make a volume"))?;
    if made.status.success() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&made.stderr).trim().to_owned();
    Err(BenchError::Server { doing: "make a volume", told })
}

impl Served {
    /// Starts the server of a volume, and waits until it has mounted.
    pub(crate) fn start(program: &Path, door: Door, volume: &Path) -> Result<Served, BenchError> {
        let mountpoint = tempfile::Builder::new().prefix("weir-bench-").tempdir();
        let mountpoint = mountpoint.map_err(failed("make a directory to mount on"))?;
        let mut command = Command::new(program);
        match door {
            Door::Filesystem { options } => {
                command.arg("mount").args(options).arg(volume).arg(mountpoint.path())
            }
            Door::Disk => command.arg("disk").arg("--volume").arg(volume).arg(mountpoint.path()),
        };
        command.args(["--foreground", "--with-parent"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let server = command.spawn().map_err(failed("start a server"))?;
        let mut served = Served { program: program.to_owned(), server, mountpoint };
        served.wait_until_mounted()?;
        Ok(served)
    }

    /// The server says on standard error that it has mounted, or why it has not.
    fn wait_until_mounted(&mut self) -> Result<(), BenchError> {
        let Some(output) = self.server.stderr.take() else { return Ok(()) };
        let mut output = BufReader::new(output.take(STATUS_MAX as u64));
        let mut told = String::new();
        while output.read_line(&mut told).map_err(failed("read the messages of a server"))? > 0 {
            if told.contains("mounted on") {
                // What it may say later is little, and goes to where errors go when it ends.
                self.server.stderr = Some(output.into_inner().into_inner());
                return Ok(());
            }
        }
        Err(BenchError::Server { doing: "mount", told: told.trim().to_owned() })
    }

    /// What is on the mount.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.mountpoint.path().join(name)
    }

    pub(super) fn status(&self) -> Result<ServedStatus, BenchError> {
        let mut value = Vec::with_capacity(STATUS_MAX);
        let asked =
            rustix::fs::getxattr(self.mountpoint.path(), STATUS_ATTRIBUTE, spare_capacity(&mut value));
        asked.map_err(|errno| failed("ask a server for its status")(errno.into()))?;
        serde_json::from_slice(&value).map_err(|error| failed("read a server's status")(error.into()))
    }

    /// Unmounts, and waits until the server has ended.
    pub(crate) async fn end(mut self, handle: &Handle) -> Result<(), BenchError> {
        for tries_left in (0..UNMOUNT_TRIES).rev() {
            let messages = if tries_left > 0 { Stdio::null() } else { Stdio::inherit() };
            if self.unmount(messages).map_err(failed("run weir umount"))? {
                break;
            }
            if tries_left == 0 {
                // It said why. The server is there still, and ends when this is dropped.
                return Err(BenchError::Server { doing: "unmount", told: "weir umount failed".to_owned() });
            }
            handle.sleep(UNMOUNT_PAUSE).await;
        }
        let mut told = String::new();
        if let Some(output) = self.server.stderr.take() {
            output
                .take(STATUS_MAX as u64)
                .read_to_string(&mut told)
                .map_err(failed("read the messages of a server"))?;
        }
        let ended = self.server.wait().map_err(failed("wait for a server"))?;
        if ended.success() {
            return Ok(());
        }
        Err(BenchError::Server { doing: "unmount", told: told.trim().to_owned() })
    }

    fn unmount(&self, messages: Stdio) -> io::Result<bool> {
        let mut command = Command::new(&self.program);
        command.arg("umount").arg(self.mountpoint.path()).stdin(Stdio::null()).stdout(Stdio::null());
        Ok(command.stderr(messages).status()?.success())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // After `end` there is nothing left to do.
        if matches!(self.server.try_wait(), Ok(None)) {
            let unmounted = self.unmount(Stdio::inherit());
            if !matches!(unmounted, Ok(true)) {
                let _ = self.server.kill();
            }
            let _ = self.server.wait();
        }
    }
}
