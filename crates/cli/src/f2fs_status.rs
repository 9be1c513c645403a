//! The status of a mounted F2FS.

use serde::{Deserialize, Serialize};
use weir_lfs::F2fs;
use weir_vfs::MountedCalls as _;

use crate::size::Size;

/// What a mounted F2FS is doing, since it was mounted.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct F2fsStatus {
    /// What `fsync` promises.
    sync: String,
    /// Whether the kernel keeps what programs write, and hands it over later.
    writeback_cache: bool,
    /// Why there are no changes, if there are none.
    pub(crate) read_only: Option<String>,
    /// How the cleaner moves blocks.
    cleaner: String,
    segments: u32,
    segments_free: u32,
    segments_cleaned: u64,
    pages_moved: u64,
    nodes_moved: u64,
    checkpoints: u64,
    /// Epochs that were ended.
    epochs: u64,
    calls_durable: u64,
    calls_ordered: u64,
    flushes: u64,
    waits_for_transfer: u64,
    pages: u64,
    pages_dirty: u64,
}

impl F2fsStatus {
    /// That of a mounted filesystem.
    pub(crate) fn from_mounted(filesystem: &F2fs, only_orders: bool, writeback_cache: bool) -> F2fsStatus {
        let found = filesystem.statistics();
        F2fsStatus {
            sync: if only_orders { "order" } else { "durable" }.to_owned(),
            writeback_cache,
            read_only: filesystem.read_only().map(|reason| reason.to_string()),
            cleaner: found.cleaner.name().to_owned(),
            segments: found.segments,
            segments_free: found.segments_free,
            segments_cleaned: found.cleaned.segments,
            pages_moved: found.cleaned.pages,
            nodes_moved: found.cleaned.nodes,
            checkpoints: found.checkpoints,
            epochs: found.epochs,
            calls_durable: found.answered.0,
            calls_ordered: found.answered.1,
            flushes: found.waits.flushes + found.waits.durable_commits,
            waits_for_transfer: found.waits.transfers,
            pages: found.pages as u64,
            pages_dirty: found.pages_dirty as u64,
        }
    }

    /// For people: a label and a value a line. `space` is all of it, and what of it is free.
    pub(crate) fn lines(&self, [space, free]: [Size; 2]) -> Vec<(&'static str, String)> {
        let is_order = self.sync == "order";
        let promise = if is_order { "order only (--sync order)" } else { "durability" };
        vec![
            ("filesystem", "F2FS".to_owned()),
            ("fsync promises", promise.to_owned()),
            ("read only", self.read_only.as_ref().map_or("no".to_owned(), |why| format!("yes: {why}"))),
            ("space", format!("{space}, {free} of it free")),
            ("segments", format!("{}, {} of them free", self.segments, self.segments_free)),
            (
                "cleaner",
                format!(
                    "{}: {} segments cleaned, {} pages and {} nodes moved",
                    self.cleaner, self.segments_cleaned, self.pages_moved, self.nodes_moved
                ),
            ),
            ("checkpoints", self.checkpoints.to_string()),
            (
                "file data in memory",
                format!("{}, {} of it dirty", Size::of_blocks(self.pages), Size::of_blocks(self.pages_dirty)),
            ),
            ("epochs", self.epochs.to_string()),
            (
                "synchronisation calls",
                format!("{} for durability, {} for order", self.calls_durable, self.calls_ordered),
            ),
            ("flushes asked for", self.flushes.to_string()),
            ("waits for a transfer", self.waits_for_transfer.to_string()),
        ]
    }
}
