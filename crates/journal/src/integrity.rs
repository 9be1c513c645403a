//! What keeps a block's home whole with journal coalition. The log then holds the changed bytes of a block alone, and its
//! other bytes are those at home: a home that is damaged because the power failed while it was written cannot be made up
//! for (section IV.A of the paper on eMMC, its figure 10b).
//!
//! A home that is torn between an older and a newer state of the block would do no harm, as the log holds every byte in
//! which the two differ until the newer one is home. But a drive that is known to tear is not trusted to leave nothing
//! worse.

use std::fmt;

use weir_storage::{BLOCK_BYTES, Capabilities};

/// What keeps the home of a block whole of which the log holds changes alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HomeIntegrity {
    /// The storage tears no block, such as a volume, which keeps requests whole.
    NeverTorn,
    /// Homes are written by reliable writes (the paper's way).
    ReliableWrites,
    /// The first change of a block after each checkpoint has the log hold all of it, as databases log pages: until that
    /// is home, the log can make up for a damaged home. Costs a block of the log for each block and checkpoint. It does not
    /// cover what leads to the log: where power cuts corrupt, and no write is reliable, no journal is safe.
    LoggedWhole,
}

impl HomeIntegrity {
    /// What it is on a storage with these capabilities.
    pub fn from_capabilities(capabilities: &Capabilities) -> HomeIntegrity {
        let tears = capabilities.tear_unit_bytes < BLOCK_BYTES as u32 || capabilities.corrupts_when_cut;
        // Homes that are consecutive leave in one command.
        let is_whole = capabilities.atomic_blocks >= capabilities.max_transfer_blocks || !tears;
        match (is_whole, capabilities.reliable) {
            (true, _) => HomeIntegrity::NeverTorn,
            (false, true) => HomeIntegrity::ReliableWrites,
            (false, false) => HomeIntegrity::LoggedWhole,
        }
    }
}

impl fmt::Display for HomeIntegrity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HomeIntegrity::NeverTorn => "the storage tears no block",
            HomeIntegrity::ReliableWrites => "homes by reliable writes",
            HomeIntegrity::LoggedWhole => "blocks logged whole after each checkpoint",
        })
    }
}
