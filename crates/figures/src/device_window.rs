//! What a device counts in a run's window, and the metrics that are read from it.

use weir_flash::Stats;
use weir_storage::BLOCK_BYTES;

use crate::metric::{Meter, OVERHEAD, meter, total};

/// What a device has counted in a window.
pub(crate) struct DeviceWindow {
    pub(crate) counts: Stats,
    /// Writes, transactions or operations of the host.
    pub(crate) writes: f64,
    pub(crate) seconds: f64,
}

impl DeviceWindow {
    fn per_write(&self, count: u64) -> f64 {
        count as f64 / self.writes
    }

    /// In percent of the flash pages with the host's data.
    fn share_of_data(&self, pages: u64) -> f64 {
        100.0 * pages as f64 / self.counts.programmed_pages.max(1) as f64
    }

    fn data_pages(&self) -> f64 {
        self.per_write(self.counts.programmed_pages)
    }

    fn firmware_pages(&self) -> f64 {
        let Stats { checkpoint_pages, record_pages, summary_pages, moved_pages, .. } = self.counts;
        self.per_write(checkpoint_pages + record_pages + summary_pages + moved_pages)
    }

    fn megabytes(&self) -> f64 {
        self.counts.written_blocks as f64 * BLOCK_BYTES as f64 / 1e6 / self.seconds
    }

    fn full_checkpoint_pages(&self) -> u64 {
        self.counts.checkpoint_pages - self.counts.increment_pages
    }
}

const OF_DATA: &str = "% of data pages";

/// What is read from the device's counts. Written kilobytes, flushes and pages are of each write; `data-pages` are flash
/// pages with data that the host wrote, `firmware-pages` all others: checkpoints of the map, coalescing records, summary
/// pages, and what cleaning moves. Totals are of the window.
pub(crate) const DEVICE: &[Meter<DeviceWindow>] = &[
    meter("written", "KB", |seen| seen.per_write(seen.counts.written_blocks) * BLOCK_BYTES as f64 / 1e3),
    meter("flushes", "flushes", |seen| seen.per_write(seen.counts.flushes)),
    meter("pages", "pages", |seen| seen.data_pages() + seen.firmware_pages()),
    meter("data-pages", "pages", DeviceWindow::data_pages),
    meter("firmware-pages", "pages", DeviceWindow::firmware_pages),
    meter("megabytes", "MB/s", DeviceWindow::megabytes),
    meter(OVERHEAD.name, OVERHEAD.unit, DeviceWindow::megabytes),
    meter("increment-share", OF_DATA, |seen| seen.share_of_data(seen.counts.increment_pages)),
    meter("record-share", OF_DATA, |seen| seen.share_of_data(seen.counts.record_pages)),
    meter("full-checkpoint-share", OF_DATA, |seen| seen.share_of_data(seen.full_checkpoint_pages())),
    meter("internal-flush-share", OF_DATA, |seen| seen.share_of_data(seen.counts.internally_flushed_pages)),
    total("total-flushes", "flushes", |seen| seen.counts.flushes as f64),
    total("total-written", "blocks", |seen| seen.counts.written_blocks as f64),
    total("total-data-pages", "pages", |seen| seen.counts.programmed_pages as f64),
    total("total-checkpoint-pages", "pages", |seen| seen.counts.checkpoint_pages as f64),
    total("total-increment-pages", "pages", |seen| seen.counts.increment_pages as f64),
    total("total-record-pages", "pages", |seen| seen.counts.record_pages as f64),
    total("total-moved-pages", "pages", |seen| seen.counts.moved_pages as f64),
    total("total-internal-flushes", "flushes", |seen| seen.counts.internal_flushes as f64),
    total("total-internally-flushed-pages", "pages", |seen| seen.counts.internally_flushed_pages as f64),
];
