//! A *checkpoint* is the firmware's map as it was at one moment, in the system area of the flash. Recovery
//! starts from the newest whole one and reads the spare areas of the pages programmed since.
//!
//! Two places are written in turn, so that one is whole at any time. A checkpoint is committed when its last page is
//! programmed.

use crate::map::Map;
use crate::mechanism::Progress;

impl Checkpoint {
    /// What an entry of the map takes on flash: its slot. Its version is in the slot's spare area. Only that of a block
    /// whose older versions are still on their way is written down, beside the map: few, on the one page more
    /// that a checkpoint takes.
    pub(crate) const ENTRY_BYTES: u64 = 4;
}

/// The map at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoint {
    /// Checkpoints are numbered from 0.
    pub(crate) number: u64,
    /// Pages with this sequence number and later ones are looked at by recovery: some were not committed yet.
    pub(crate) scan_from: u64,
    /// Pages with this sequence number and later ones were not allocated yet.
    pub(crate) end: u64,
    /// The next version.
    pub(crate) next_version: u64,
    /// How far the barrier mechanism had come.
    pub(crate) progress: Progress,
    /// Where each logical block was. Nothing on a device that is never cut.
    pub(crate) map: Option<Map>,
}
