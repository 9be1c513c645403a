//! A *turn*: what one mode did in one round.

use weir_storage::BLOCK_BYTES;
use weir_volume::LossWindowSeen;

use crate::measure::Measured;
use crate::mode::Mode;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// One turn of one mode.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Whose turn it was.
    pub mode: Mode,
    /// Times, latencies, processor time, depth.
    pub measured: Measured,
    /// Bytes of user data written.
    pub bytes: u64,
    /// Bytes that went to the disk, where they can be told from those of others.
    pub disk_bytes: Option<u64>,
    /// Calls or commands that made data durable.
    pub flushes: u64,
    /// The largest loss window seen, for Weir.
    pub loss_window: Option<LossWindowSeen>,
    /// Requests of the kernel that the server had at one time at most, on a mount.
    pub requests_max: Option<u64>,
    /// Blocks read back afterwards and found right.
    pub checked_blocks: u64,
}

impl Turn {
    /// The turns of one mode.
    pub(crate) fn of(mode: Mode, turns: &[Turn]) -> impl Iterator<Item = &Turn> {
        turns.iter().filter(move |turn| turn.mode == mode)
    }

    /// A turn of writes of so many bytes, of which no more is known.
    pub(crate) fn new(mode: Mode, measured: Measured, write_bytes: u64, checked_blocks: u64) -> Turn {
        let bytes = measured.writes * write_bytes;
        let (disk_bytes, flushes, loss_window, requests_max) = (None, 0, None, None);
        Turn { mode, measured, bytes, disk_bytes, flushes, loss_window, requests_max, checked_blocks }
    }

    /// A turn of writes of one block through a volume, which wrote `disk_blocks`.
    pub(crate) fn on_volume(
        mode: Mode,
        measured: Measured,
        (disk_blocks, flushes): (u64, u64),
        loss_window: LossWindowSeen,
        checked_blocks: u64,
    ) -> Turn {
        let (disk_bytes, loss_window) = (Some(disk_blocks * BLOCK), Some(loss_window));
        Turn { disk_bytes, flushes, loss_window, ..Turn::new(mode, measured, BLOCK, checked_blocks) }
    }

    fn seconds(&self) -> f64 {
        self.measured.elapsed.as_secs_f64().max(1e-9)
    }

    pub(crate) fn iops(&self) -> f64 {
        self.measured.writes as f64 / self.seconds()
    }

    pub(crate) fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds()
    }

    pub(crate) fn latency_us(&self, quantile: f64) -> f64 {
        self.measured.latency.value_at_quantile(quantile) as f64 / 1e3
    }
}
