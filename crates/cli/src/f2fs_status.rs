//! The status of a mounted F2FS.

use serde::{Deserialize, Serialize};
use weir_fuse::FileCounts;
use weir_lfs::F2fs;
use weir_vfs::MountedCalls as _;

use crate::size::Size;
use crate::status::{FULL_BELOW, LostStatus, Space, durable_but_for};
use crate::sync_promise::SyncPromise;

/// What a mounted F2FS is doing, since it was mounted.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct F2fsStatus {
    /// What `fsync` promises.
    sync: String,
    /// Whether the kernel keeps what programs write, and hands it over later.
    writeback_cache: bool,
    /// Why there are no changes, if there are none.
    pub(crate) read_only: Option<String>,
    /// There are none since the disk below was full.
    #[serde(default)]
    pub(crate) full_below: bool,
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
    /// Files whose `fsync` orders only, as their attribute says; none as long as they are being counted.
    #[serde(default)]
    order_files: Option<u64>,
    #[serde(default)]
    pub(crate) remote_files: Option<u64>,
    /// Writes that failed of pages which the kernel handed over, the files that lack what they had, and the inode of one of them.
    #[serde(flatten)]
    pub(crate) lost: LostStatus,
}

impl F2fsStatus {
    /// That of a mounted filesystem.
    pub(crate) fn from_mounted(
        filesystem: &F2fs,
        (sync, writeback_cache): (SyncPromise, bool),
        files: FileCounts,
    ) -> F2fsStatus {
        let found = filesystem.statistics();
        F2fsStatus {
            sync: sync.name().to_owned(),
            writeback_cache,
            read_only: filesystem.read_only().map(|reason| reason.to_string()),
            full_below: filesystem.read_only() == Some(FULL_BELOW),
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
            order_files: files.order_files,
            remote_files: files.remote_files,
            lost: files.lost.into(),
        }
    }

    /// For people: a label and a value a line.
    pub(crate) fn lines(&self, space: &Space) -> Vec<(&'static str, String)> {
        let promise = match self.sync == "order" {
            true => "order only (--sync order)".to_owned(),
            false => durable_but_for(&self.sync, self.order_files, self.remote_files),
        };
        let mut lines = vec![
            ("filesystem", "F2FS".to_owned()),
            ("fsync promises", promise),
            ("read only", self.read_only.as_ref().map_or("no".to_owned(), |why| format!("yes: {why}"))),
            ("space", format!("{}, {} of it can be written", space.all, space.available)),
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
        ];
        lines.extend(self.lost.line());
        lines
    }
}
