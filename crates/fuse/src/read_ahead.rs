//! How far the kernel reads ahead on a mount: a setting of its backing device, which the superuser may change.
//!
//! The kernel's own value is 128 KiB, whatever the handshake allows: one request at a time, each of which the server takes longer to answer than
//! the disk. With nearly 4 MiB, four requests go to the disk side by side, each of as many blocks as a volume reads by one command.

use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use tracing::debug;

/// Bytes of a request that reads, at most: 255 blocks, the most that a segment of a volume holds.
pub(crate) const READ_BYTES: u32 = 255 << 12;
const READ_AHEAD_KIB: u32 = (4 * READ_BYTES) >> 10;

/// Has the kernel read ahead on a mount. Whoever may not change that has the kernel's own value.
pub(crate) fn set_read_ahead(mountpoint: &Path) {
    if let Err(error) = try_to_set(mountpoint) {
        debug!(name: "read_ahead_unset", %error, "the kernel reads ahead as it does by default");
    }
}

fn try_to_set(mountpoint: &Path) -> io::Result<()> {
    // What the kernel knows of it is enough: no request.
    let found = statx(CWD, mountpoint, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE)?;
    let setting = format!("/sys/class/bdi/{}:{}/read_ahead_kb", found.stx_dev_major, found.stx_dev_minor);
    std::fs::write(setting, READ_AHEAD_KIB.to_string())
}
