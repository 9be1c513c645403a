//! What the benchmarks of filesystems, of mounts and of SQLite are going to do.

use serde::Serialize;
use weir_stack::VolumeSpec;
use weir_storage::BLOCK_BYTES;
use weir_volume::{LossWindow, VolumeOptions};

use crate::error::BenchError;
use crate::plan::{BenchOptions, SPAN_MIB_MAX, aligned, options_with_window, overwriting_volume};

const MIB: u64 = 1 << 20;

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// The smallest file.
const SPAN_MIB_MIN: u64 = 16;
/// The smallest filesystem: the reserve of F2FS's cleaner takes much of a small one.
const FILESYSTEM_BYTES_MIN: u64 = 96 * MIB;

/// The sizes and times of a benchmark of files.
#[derive(Clone, Debug, Serialize)]
pub struct FsPlan {
    /// Whether this is the short benchmark.
    pub quick: bool,
    /// Bytes of the file: what is overwritten, and how far a file grows before it begins anew. 0 where SQLite decides.
    #[serde(skip_serializing_if = "is_zero")]
    pub span_bytes: u64,
    /// Rounds; every mode has its turn in each.
    pub rounds: u32,
    /// A turn takes this long, in seconds.
    pub turn_seconds: f64,
    /// Bytes of the filesystem.
    pub filesystem_bytes: u64,
    /// Bytes of the volume's file: the filesystem, and room so that a turn measures no cleaning.
    pub volume_bytes: u64,
    /// The volume's bound on what a crash may cost, in bytes and milliseconds.
    pub loss_window_bytes: u64,
    /// See above.
    pub loss_window_ms: u64,
    /// Blocks in a segment of the volume.
    pub segment_blocks: u32,
}

impl FsPlan {
    /// The benchmark proper: a file of 128 MiB, five rounds of a second a mode.
    #[must_use]
    pub fn full() -> FsPlan {
        FsPlan::new(false, 5, 1.0, 128 * MIB, 4096 * MIB, 256)
    }

    /// The short one: one round.
    #[must_use]
    pub fn quick() -> FsPlan {
        FsPlan::new(true, 1, 1.0, 64 * MIB, 2048 * MIB, 256)
    }

    /// The smallest, for tests: it shows that everything works, and no speed.
    #[must_use]
    pub fn tiny() -> FsPlan {
        FsPlan::new(true, 2, 0.02, 16 * MIB, 64 * MIB, 32)
    }

    /// SQLite: five rounds of half a second a way.
    #[must_use]
    pub fn sqlite() -> FsPlan {
        FsPlan::sized(false, 5, 0.5, [256 * MIB, 2560 * MIB], 256)
    }

    /// The short one of SQLite: one round.
    #[must_use]
    pub fn sqlite_quick() -> FsPlan {
        FsPlan { quick: true, rounds: 1, ..FsPlan::sqlite() }
    }

    /// The smallest of SQLite, for tests.
    #[must_use]
    pub fn sqlite_tiny() -> FsPlan {
        FsPlan::sized(true, 2, 0.01, [32 * MIB, 128 * MIB], 256)
    }

    /// F2FS's cleaners: three rounds. A volume that is four times as large cleans little itself.
    #[must_use]
    pub fn cleaners() -> FsPlan {
        FsPlan::on_large_volume(false, 3, 1024 * MIB)
    }

    /// The smallest of F2FS's cleaners, for tests: in 96 MiB a file of half of it leaves the cleaner no room.
    #[must_use]
    pub fn cleaners_tiny() -> FsPlan {
        FsPlan::on_large_volume(true, 1, 640 * MIB)
    }

    /// With a filesystem of a quarter of the volume, and a file that fills half of it.
    fn on_large_volume(quick: bool, rounds: u32, volume_bytes: u64) -> FsPlan {
        let filesystem_bytes = aligned(volume_bytes / 4);
        let plan = FsPlan::sized(quick, rounds, 0.0, [filesystem_bytes, aligned(volume_bytes)], 256);
        FsPlan { span_bytes: filesystem_bytes / 2, ..plan }
    }

    fn new(quick: bool, rounds: u32, turn: f64, span: u64, room: u64, segment_blocks: u32) -> FsPlan {
        let mut plan = FsPlan::sized(quick, rounds, turn, [0, 0], segment_blocks);
        plan.set_span(span, room);
        plan
    }

    /// With a filesystem and a volume of these bytes.
    fn sized(
        quick: bool,
        rounds: u32,
        turn_seconds: f64,
        [filesystem_bytes, volume_bytes]: [u64; 2],
        segment_blocks: u32,
    ) -> FsPlan {
        let window = LossWindow::default();
        FsPlan {
            quick,
            span_bytes: 0,
            rounds,
            turn_seconds,
            filesystem_bytes,
            volume_bytes,
            loss_window_bytes: window.bytes,
            loss_window_ms: window.time.as_millis() as u64,
            segment_blocks,
        }
    }

    /// The filesystem has room for the file twice, as blocks that were freed are free for others only after the
    /// commit, and for its journal.
    fn set_span(&mut self, span: u64, room: u64) {
        self.span_bytes = aligned(span);
        self.filesystem_bytes = aligned((3 * span).max(FILESYSTEM_BYTES_MIN));
        self.volume_bytes = aligned(self.filesystem_bytes + self.filesystem_bytes / 4 + room);
    }

    /// The plan as the user's options change it.
    ///
    /// # Errors
    /// [`BenchError::Size`] if the span is out of range.
    pub fn with(mut self, options: &BenchOptions) -> Result<FsPlan, BenchError> {
        if let Some(bytes) = options.span_bytes {
            let (found_mib, min_mib, max_mib) = (bytes / MIB, SPAN_MIB_MIN, SPAN_MIB_MAX);
            if !(min_mib..=max_mib).contains(&found_mib) {
                return Err(BenchError::Size { found_mib, min_mib, max_mib });
            }
            let room = self.volume_bytes - self.filesystem_bytes - self.filesystem_bytes / 4;
            self.set_span(bytes, room);
        }
        if let Some(rounds) = options.rounds {
            self.rounds = rounds.max(1);
        }
        Ok(self)
    }

    /// Blocks of the file.
    #[must_use]
    pub fn span_blocks(&self) -> u64 {
        self.span_bytes / BLOCK_BYTES as u64
    }

    /// Bytes on the host's filesystem: the volume, the file that is overwritten, and the one that is appended to.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.volume_bytes + 2 * self.span_bytes
    }

    /// How the volume is opened.
    #[must_use]
    pub fn volume_options(&self) -> VolumeOptions {
        options_with_window(self.loss_window_ms, self.loss_window_bytes)
    }

    /// A volume that is as large as the filesystem.
    pub(crate) fn volume(&self) -> VolumeSpec {
        let blocks = self.filesystem_bytes / BLOCK_BYTES as u64;
        overwriting_volume(blocks, self.segment_blocks, self.volume_options())
    }
}
