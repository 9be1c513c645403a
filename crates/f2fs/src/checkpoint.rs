//! Checkpoints: the state from which everything else is believed.
//!
//! There are two packs, each in a segment of its own, and a checkpoint overwrites the older one. A pack:
//!
//! | blocks | what |
//! |---|---|
//! | 1 | the header, with the bitmaps of table copies |
//! | payload | the bitmap of segment table copies, where it is too large for the header |
//! | 0 or more | orphans: inodes without a name that were open |
//! | 1 to 3 | summaries of the three data logs, and both journals: a block each, or compact |
//! | 0 or 3 | summaries of the three node logs, after an unmount |
//! | 1 | the header again |
//!
//! A pack is whole if header and footer are the same and their checksum is right. The newer whole pack counts.

mod compact;
mod header;
mod orphans;
mod pack;

pub use header::{Allocation, CheckpointHeader, LogState, checkpoint_flags, header_checksum};
pub use orphans::MAX_ORPHANS_PER_BLOCK;
pub use pack::CheckpointPack;

use weir_format::{FormatError, Place, Structure};

/// A pack that starts at block `start` is damaged.
fn corrupt(start: u32, what: &'static str) -> FormatError {
    FormatError::corrupt(Structure::Checkpoint, Place::Block(u64::from(start)), what)
}
