//! How far the kernel reads ahead on a mount: a setting of its backing device, which the superuser may change.
//!
//! The kernel's own value is 128 KiB, whatever the handshake allows: one request at a time, each of which the server takes longer to answer than
//! the disk. With 4 MiB, requests of 1 MiB go to the disk side by side.

use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use tracing::debug;

const READ_AHEAD_KIB: u32 = 4096;

/// Has the kernel read ahead on a mount. Whoever may not change that has the kernel's own value.
pub(crate) fn set_read_ahead(mountpoint: &Path) {
    if let Err(error) = try_to_set(mountpoint) {
        debug!(%error, "the kernel reads ahead as it does by default");
    }
}

fn try_to_set(mountpoint: &Path) -> io::Result<()> {
    // What the kernel knows of it is enough: no request.
    let found = statx(CWD, mountpoint, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE)?;
    let setting = format!("/sys/class/bdi/{}:{}/read_ahead_kb", found.stx_dev_major, found.stx_dev_minor);
    std::fs::write(setting, READ_AHEAD_KIB.to_string())
}
