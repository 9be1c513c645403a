//! *Disk record*: what is known of a run whose record is that of a disk.

use serde::{Deserialize, Serialize};

use crate::disk_ground::DiskGround;

/// See the head of this file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskRecord {
    /// The disk, and the filesystem on it.
    pub ground: DiskGround,
    /// Operations until the run had ended; what follows are those of the unmount.
    pub ended: usize,
}
