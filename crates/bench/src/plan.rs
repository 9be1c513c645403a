//! What a benchmark is going to do: sizes, rounds and quotas.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use weir_stack::VolumeSpec;
use weir_storage::BLOCK_BYTES;
use weir_volume::{Format, LossWindow, VolumeOptions};

use crate::emulated::Emulated;
use crate::error::BenchError;
use crate::raw::FILL_ALIGNMENT_BLOCKS;

/// What the user asks for.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Where the scratch files go; not used with a device.
    pub directory: PathBuf,
    /// The emulated device that takes the disk's place.
    pub device: Option<Emulated>,
    /// Bytes that each mode writes over, 64 segments to 1 TiB; `None` for the plan's own choice.
    pub span_bytes: Option<u64>,
    /// Rounds; `None` for the plan's own choice.
    pub rounds: Option<u32>,
    /// Decides what is written where.
    pub seed: u64,
    /// Leave the scratch files behind, with names.
    pub keep: bool,
}

/// The sizes and times of a benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Whether this is the short benchmark.
    pub quick: bool,
    /// Bytes that each mode writes over.
    pub span_bytes: u64,
    /// Rounds; every mode has its turn in each.
    pub rounds: u32,
    /// A turn takes at least this long, in seconds ...
    pub turn_seconds_min: f64,
    /// ... and, in the short benchmark, at most this long.
    pub turn_seconds_max: Option<f64>,
    /// The short benchmark cuts turns short to end within this many seconds.
    pub seconds_max: Option<f64>,
    /// Bytes that Weir may hold in memory: its segment buffers, or its loss window if that is more.
    pub weir_buffers_bytes: u64,
    /// Bytes that every mode writes in all rounds together at least: four times that.
    pub quota_bytes: u64,
    /// The volume's bound on what a crash may cost, in bytes and milliseconds.
    pub loss_window_bytes: u64,
    /// See above.
    pub loss_window_ms: u64,
    /// Blocks in a segment of the volumes.
    pub segment_blocks: u32,
    /// Size of the fresh volume's file: the span, and room for what a turn writes before the log comes round
    /// to where it began.
    pub fresh_bytes: u64,
    /// That room.
    pub fresh_room_bytes: u64,
    /// Size of the steady volume's file: the span is 80 % of it.
    pub steady_bytes: u64,
}

const MIB: u64 = 1 << 20;

/// The smallest span, in segments: with fewer, those that a volume keeps free make the steady volume fuller
/// than it says.
const SPAN_SEGMENTS_MIN: u64 = 64;

/// The largest span: what a disk may have.
pub(crate) const SPAN_MIB_MAX: u64 = 1 << 20;

/// Room on the fresh volume beside the span: what a fast disk takes in a turn of a second.
const FRESH_ROOM: u64 = 4096 * MIB;

/// How often what Weir may buffer is written at least.
const QUOTA_FACTOR: u64 = 4;

/// Share of the steady volume's file that is live, in percent.
const STEADY_PERCENT: u64 = 80;

/// A turn takes this much longer than its measured part: opening, closing, reading back.
const OVERHEAD: f64 = 1.15;

impl Plan {
    /// The benchmark proper: 1 GiB, five rounds of at least a second a mode.
    #[must_use]
    pub fn full() -> Plan {
        Plan::new(false, 1024 * MIB, 5, Duration::from_secs(1), LossWindow::default(), 256)
    }

    /// The short one, which ends within half a minute: 128 MiB, one round.
    #[must_use]
    pub fn quick() -> Plan {
        let window = LossWindow { bytes: 16 * MIB, ..LossWindow::default() };
        let plan = Plan::new(true, 128 * MIB, 1, Duration::from_secs(1), window, 256);
        Plan { turn_seconds_max: Some(4.0), seconds_max: Some(22.0), ..plan }
    }

    /// The benchmark on an emulated device, which may be a phone's and has no host's filesystem: five rounds over
    /// 64 MiB, through a smaller volume, in about two minutes.
    #[must_use]
    pub fn device() -> Plan {
        let window = LossWindow { bytes: 16 * MIB, ..LossWindow::default() };
        let mut plan = Plan::new(false, 64 * MIB, 5, Duration::from_secs(1), window, 128);
        plan.fresh_room_bytes = 512 * MIB;
        plan.set_span(plan.span_bytes);
        Plan { turn_seconds_max: Some(4.0), seconds_max: Some(110.0), ..plan }
    }

    /// The short one on an emulated device, which ends within half a minute: 16 MiB, one round.
    #[must_use]
    pub fn device_quick() -> Plan {
        let window = LossWindow { bytes: 4 * MIB, ..LossWindow::default() };
        let mut plan = Plan::new(true, 16 * MIB, 1, Duration::from_secs(1), window, 64);
        plan.fresh_room_bytes = 256 * MIB;
        plan.set_span(plan.span_bytes);
        Plan { turn_seconds_max: Some(4.0), seconds_max: Some(24.0), ..plan }
    }

    /// The smallest, for tests: it shows that everything works, and no speed.
    #[must_use]
    pub fn tiny() -> Plan {
        let window = LossWindow { bytes: MIB, ..LossWindow::default() };
        let mut plan = Plan::new(true, 16 * MIB, 2, Duration::from_millis(5), window, 32);
        plan.fresh_room_bytes = 48 * MIB;
        plan.set_span(plan.span_bytes);
        Plan { turn_seconds_max: Some(0.2), ..plan }
    }

    fn new(
        quick: bool,
        span: u64,
        rounds: u32,
        turn: Duration,
        window: LossWindow,
        segment_blocks: u32,
    ) -> Plan {
        let mut plan = Plan {
            quick,
            span_bytes: 0,
            rounds,
            turn_seconds_min: turn.as_secs_f64(),
            turn_seconds_max: None,
            seconds_max: None,
            weir_buffers_bytes: 0,
            quota_bytes: 0,
            loss_window_bytes: window.bytes,
            loss_window_ms: window.time.as_millis() as u64,
            segment_blocks,
            fresh_bytes: 0,
            fresh_room_bytes: FRESH_ROOM,
            steady_bytes: 0,
        };
        let buffers = plan.volume_options().buffers as u64 * u64::from(segment_blocks) * BLOCK_BYTES as u64;
        plan.weir_buffers_bytes = buffers.max(window.bytes);
        plan.quota_bytes = QUOTA_FACTOR * plan.weir_buffers_bytes;
        plan.set_span(span);
        plan
    }

    /// The plan as the user's options change it.
    ///
    /// # Errors
    /// [`BenchError::Size`] if the span is out of range.
    pub fn with(mut self, options: &BenchOptions) -> Result<Plan, BenchError> {
        if let Some(bytes) = options.span_bytes {
            let segment_bytes = u64::from(self.segment_blocks) * BLOCK_BYTES as u64;
            let (min_mib, max_mib) = (SPAN_SEGMENTS_MIN * segment_bytes / MIB, SPAN_MIB_MAX);
            let found_mib = bytes / MIB;
            if !(min_mib..=max_mib).contains(&found_mib) {
                return Err(BenchError::Size { found_mib, min_mib, max_mib });
            }
            self.scale_room(bytes);
            self.set_span(bytes);
        }
        if let Some(rounds) = options.rounds {
            self.rounds = rounds.max(1);
        }
        Ok(self)
    }

    /// A smaller span needs less room: the fresh volume stays as empty as it was. A larger span does not need
    /// more, as a turn does not write more.
    fn scale_room(&mut self, span_bytes: u64) {
        if span_bytes < self.span_bytes {
            self.fresh_room_bytes = self.fresh_room_bytes / self.span_bytes.max(1) * span_bytes;
        }
    }

    fn set_span(&mut self, bytes: u64) {
        self.span_bytes = aligned(bytes);
        self.fresh_bytes = aligned(self.span_bytes + self.span_bytes / 4 + self.fresh_room_bytes);
        self.steady_bytes = aligned(self.span_bytes * 100 / STEADY_PERCENT);
    }

    /// How long a turn may take when `left` seconds are left for `turns` turns: what the others, at their
    /// shortest, leave over.
    #[must_use]
    pub(crate) fn turn_max(&self, left: Option<Duration>, turns: u64) -> Duration {
        let own = self.turn_seconds_max.map_or(Duration::MAX, Duration::from_secs_f64);
        let Some(left) = left else { return own };
        let others = self.turn_seconds_min * OVERHEAD * turns.saturating_sub(1) as f64;
        let shortest = Duration::from_secs_f64(self.turn_seconds_min / 10.0);
        own.min(left.saturating_sub(Duration::from_secs_f64(others)).max(shortest))
    }

    /// Blocks in the span.
    #[must_use]
    pub fn span_blocks(&self) -> u64 {
        self.span_bytes / BLOCK_BYTES as u64
    }

    /// Bytes on the filesystem: the span once raw, once for the host, at most once appended, and the two
    /// volumes.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        3 * self.span_bytes + self.fresh_bytes + self.steady_bytes
    }

    /// Sizes of the emulated devices that take the files' place: for the raw modes, and for the two volumes.
    #[must_use]
    pub(crate) fn device_sizes(&self) -> [u64; 3] {
        [self.span_bytes, self.fresh_bytes, self.steady_bytes]
    }

    /// Size of the file on which the cost of cleaning is counted: a quarter of the span, and at least so many
    /// segments that the few which a volume keeps free do not distort the utilisation.
    #[must_use]
    pub fn cleaning_bytes(&self) -> u64 {
        let segments = 160 * u64::from(self.segment_blocks) * BLOCK_BYTES as u64;
        aligned(segments.max(self.span_bytes / 4))
    }

    /// How the volumes are opened.
    #[must_use]
    pub fn volume_options(&self) -> VolumeOptions {
        options_with_window(self.loss_window_ms, self.loss_window_bytes)
    }

    /// A volume that is as large as the span.
    pub(crate) fn volume(&self) -> VolumeSpec {
        overwriting_volume(self.span_blocks(), self.segment_blocks, self.volume_options())
    }
}

/// How a volume with this loss window is opened.
pub(crate) fn options_with_window(ms: u64, bytes: u64) -> VolumeOptions {
    let loss_window = LossWindow { time: Duration::from_millis(ms), bytes };
    VolumeOptions { loss_window, ..VolumeOptions::default() }
}

/// A volume that takes the place of what its disk holds.
pub(crate) fn overwriting_volume(
    logical_blocks: u64,
    segment_blocks: u32,
    options: VolumeOptions,
) -> VolumeSpec {
    VolumeSpec { format: Format { logical_blocks, segment_blocks, overwrite: true, slots: 0 }, options }
}

/// Rounded up to what can be filled at full speed.
pub(crate) fn aligned(bytes: u64) -> u64 {
    bytes.next_multiple_of(FILL_ALIGNMENT_BLOCKS * BLOCK_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(span_bytes: Option<u64>, rounds: Option<u32>) -> BenchOptions {
        BenchOptions { directory: PathBuf::new(), device: None, span_bytes, rounds, seed: 0, keep: false }
    }

    #[test]
    fn the_quota_is_four_times_what_weir_may_buffer() {
        for plan in [Plan::full(), Plan::quick(), Plan::device(), Plan::device_quick(), Plan::tiny()] {
            assert_eq!(plan.quota_bytes, 4 * plan.weir_buffers_bytes);
            assert!(plan.weir_buffers_bytes >= plan.loss_window_bytes);
            let share = plan.span_bytes as f64 / plan.steady_bytes as f64;
            assert!((0.75..=0.8).contains(&share), "{share}");
        }
    }

    #[test]
    fn a_turn_leaves_time_for_the_others() {
        let plan = Plan { turn_seconds_min: 1.0, turn_seconds_max: Some(4.0), ..Plan::full() };
        let seconds = Duration::from_secs_f64;
        assert_eq!(plan.turn_max(None, 13), seconds(4.0));
        assert_eq!(plan.turn_max(Some(seconds(20.0)), 11), seconds(4.0));
        let two = plan.turn_max(Some(seconds(13.5)), 11).as_secs_f64();
        assert!((two - 2.0).abs() < 1e-6, "{two}");
        assert_eq!(plan.turn_max(Some(seconds(1.0)), 11), seconds(0.1));
    }

    #[test]
    fn a_smaller_span_needs_less_room() {
        for plan in [Plan::full(), Plan::quick(), Plan::device(), Plan::tiny()] {
            let half = plan.clone().with(&options(Some(plan.span_bytes / 2), None)).unwrap();
            let share = half.disk_bytes() as f64 / plan.disk_bytes() as f64;
            assert!((0.49..0.51).contains(&share), "{share}");
            let double = plan.clone().with(&options(Some(plan.span_bytes * 2), None)).unwrap();
            assert_eq!(double.fresh_room_bytes, plan.fresh_room_bytes);
        }
    }

    #[test]
    fn the_user_may_change_span_and_rounds() {
        let plan = Plan::full().with(&options(Some(100 * MIB), Some(3))).unwrap();
        assert_eq!((plan.span_bytes, plan.rounds), (100 * MIB, 3));
        for bytes in [1, 64 * MIB - 1, (1 << 40) + MIB] {
            let found = Plan::full().with(&options(Some(bytes), None));
            assert!(matches!(found, Err(BenchError::Size { min_mib: 64, .. })), "{bytes}: {found:?}");
        }
        assert_eq!(Plan::quick().with(&options(None, None)).unwrap().span_bytes, 128 * MIB);
    }
}
