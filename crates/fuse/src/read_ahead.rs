//! How far the kernel reads ahead on a mount: a setting of its backing device, which the superuser may change.
//!
//! The kernel's own value is 128 KiB, whatever the handshake allows: one request at a time, each of which the server takes longer to answer than
//! the disk. With nearly 4 MiB, four requests go to the disk side by side, each of as many blocks as a volume reads by one command.

use tracing::debug;

/// Bytes of a request that reads, at most: 255 blocks, the most that a segment of a volume holds.
pub(crate) const READ_BYTES: u32 = 255 << 12;
const READ_AHEAD_KIB: u32 = (4 * READ_BYTES) >> 10;

/// Has the kernel read ahead on a mount, by the number of its device. Without the right to change that, the kernel's own value stays.
pub(crate) fn set_read_ahead((major, minor): (u32, u32)) {
    let setting = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = std::fs::write(setting, READ_AHEAD_KIB.to_string()) {
        debug!(name: "read_ahead_unset", %error, "the kernel reads ahead as it does by default");
    }
}
