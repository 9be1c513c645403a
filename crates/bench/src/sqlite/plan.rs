//! What the benchmark of SQLite is going to do.

use std::time::Duration;

use serde::Serialize;
use weir_volume::{LossWindow, VolumeOptions};

use crate::plan::BenchOptions;

const MIB: u64 = 1 << 20;

/// The sizes and times of the benchmark of SQLite.
#[derive(Clone, Debug, Serialize)]
pub struct SqlitePlan {
    /// Whether this is the short benchmark.
    pub quick: bool,
    /// Rounds; every way has its turn in each.
    pub rounds: u32,
    /// A turn takes this long, in seconds.
    pub turn_seconds: f64,
    /// Bytes of the filesystem in process.
    pub filesystem_bytes: u64,
    /// Bytes of its volume: with room, so that a turn measures no cleaning.
    pub volume_bytes: u64,
    /// The volume's bound on what a crash may cost, in bytes and milliseconds.
    pub loss_window_bytes: u64,
    /// See above.
    pub loss_window_ms: u64,
}

impl SqlitePlan {
    /// The benchmark proper: five rounds of half a second a way.
    #[must_use]
    pub fn full() -> SqlitePlan {
        SqlitePlan::new(false, 5, 0.5, 256 * MIB, 2560 * MIB)
    }

    /// The short one: one round.
    #[must_use]
    pub fn quick() -> SqlitePlan {
        SqlitePlan::new(true, 1, 0.5, 256 * MIB, 2560 * MIB)
    }

    /// The smallest, for tests: it shows that everything works, and no speed.
    #[must_use]
    pub fn tiny() -> SqlitePlan {
        SqlitePlan::new(true, 2, 0.01, 32 * MIB, 128 * MIB)
    }

    fn new(
        quick: bool,
        rounds: u32,
        turn_seconds: f64,
        filesystem_bytes: u64,
        volume_bytes: u64,
    ) -> SqlitePlan {
        let window = LossWindow::default();
        SqlitePlan {
            quick,
            rounds,
            turn_seconds,
            filesystem_bytes,
            volume_bytes,
            loss_window_bytes: window.bytes,
            loss_window_ms: window.time.as_millis() as u64,
        }
    }

    /// The plan as the user's options change it.
    #[must_use]
    pub fn with(mut self, options: &BenchOptions) -> SqlitePlan {
        if let Some(rounds) = options.rounds {
            self.rounds = rounds.max(1);
        }
        self
    }

    pub(super) fn volume_options(&self) -> VolumeOptions {
        let time = Duration::from_millis(self.loss_window_ms);
        let loss_window = LossWindow { time, bytes: self.loss_window_bytes };
        VolumeOptions { loss_window, ..VolumeOptions::default() }
    }
}
