//! How a volume is to behave while it is open.

use std::time::Duration;

use weir_storage::Rules;

use crate::map::PAGE_BYTES;
use crate::mutants::VolumeMutant;

/// When a write's ticket counts as transferred (S2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Completion {
    /// When the record has its place in the log: the log's buffer is the volume's write cache.
    #[default]
    Placed,
    /// When the disk below has taken it.
    Disk,
}

/// How much may be lost without a flush (V5). The volume flushes by itself to keep both bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossWindow {
    /// How long an acknowledged write stays volatile. A flush begins at half of it; how long that takes is up
    /// to the disk below. Should it take longer than the other half, writers wait, so that nothing more is
    /// acknowledged on top, and the time seen is in the statistics.
    pub time: Duration,
    /// No more bytes than this are volatile at any time; at a quarter of it a flush begins. At least four
    /// segments.
    pub bytes: u64,
}

impl Default for LossWindow {
    /// 100 ms and 64 MiB.
    fn default() -> LossWindow {
        LossWindow { time: Duration::from_millis(100), bytes: 64 << 20 }
    }
}

/// Which segment is cleaned first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CleaningPolicy {
    /// The one with the fewest live blocks.
    #[default]
    Greedy,
    /// The one with the best (1 - u) * sqrt(age) / (1 + u), u the share of live blocks: old segments are cleaned earlier, hot
    /// ones are left to empty themselves. (Rosenblum and Ousterhout, SOSP 1991, have the age and not its root.)
    CostBenefit,
}

/// Bytes of log after which a checkpoint is taken by default.
const CHECKPOINT_BYTES: u64 = 320 << 20;

/// The rules that a volume keeps.
pub type VolumeRules = Rules<VolumeMutant>;

/// Options of an open volume. The defaults suit a disk of today.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    /// Segment buffers, 2 to 256; each is as large as a segment. They bound the writes in flight.
    pub buffers: usize,
    /// When tickets complete.
    pub completion: Completion,
    /// What may be lost without a flush.
    pub loss_window: LossWindow,
    /// Which segments are cleaned first.
    pub cleaning: CleaningPolicy,
    /// Segments of log after which a checkpoint is taken: bounds recovery. At least 2. Default: 0, which stands for as many as
    /// are 320 MiB.
    ///
    /// Recovery reads these, and behind the log's end as far as the loss window may reach, 130 MiB: 450 MiB, less than a
    /// second of reading at 500 MB/s. What was written while the last checkpoint was on its way to the disk comes on top,
    /// and so does the map, 8 bytes for each block in use. Fewer segments cost more writing: a checkpoint writes the map
    /// pages that changed since the one before, of 2 MiB for each GiB of the volume in use, and at most one page for each
    /// block that was written.
    pub checkpoint_segments: usize,
    /// Pages of the map in memory at most, of 510 blocks and 4,124 bytes; others are read when they are needed. Recovery
    /// may take more, if the volume was open with a higher limit before; and commands that change many pages may, so that 9,488
    /// always may be there. Default: 98,304, which is 387 MiB, and the map of 190 GiB that are full.
    pub map_pages: usize,
    /// Pass discards on: segments that become free are discarded on the disk below, in the background. For sparse files
    /// and flash drives. A disk that had all its space reserved for the volume loses that. Default: false.
    pub discard_below: bool,
    /// Open a copy of a volume that was open when it was copied, as a crash would have left it. Only if no owner answers
    /// (V8). Default: false.
    pub after_crash: bool,
    /// Take marks, for a user that writes so many bytes at most before it places one (V13): a crash takes the volume back to
    /// the newest mark. A volume that was opened so is not read by older programs. Default: none.
    pub marks: Option<u64>,
    /// The rules that this volume keeps: all of them.
    pub rules: VolumeRules,
}

impl VolumeOptions {
    /// Bytes of memory that a page of the map takes.
    pub const MAP_PAGE_BYTES: u64 = PAGE_BYTES;

    /// Within their ranges, for segments of so many bytes.
    pub(crate) fn within_ranges(self, segment_bytes: u64) -> VolumeOptions {
        let asked = match self.checkpoint_segments {
            0 => (CHECKPOINT_BYTES / segment_bytes) as usize,
            asked => asked,
        };
        let LossWindow { time, bytes } = self.loss_window;
        VolumeOptions {
            buffers: self.buffers.clamp(2, 256),
            checkpoint_segments: asked.max(2),
            // Less than four segments would leave nothing to write while a flush runs.
            loss_window: LossWindow { time, bytes: bytes.max(4 * segment_bytes) },
            ..self
        }
    }
}

impl Default for VolumeOptions {
    fn default() -> VolumeOptions {
        VolumeOptions {
            buffers: 6,
            completion: Completion::default(),
            loss_window: LossWindow::default(),
            cleaning: CleaningPolicy::default(),
            checkpoint_segments: 0,
            map_pages: 98_304,
            discard_below: false,
            after_crash: false,
            marks: None,
            rules: Rules::all(),
        }
    }
}
