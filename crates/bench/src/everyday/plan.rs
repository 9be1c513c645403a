//! How much everyday work is done.

use serde::Serialize;

use crate::plan::BenchOptions;

/// Sizes and rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct EverydayPlan {
    /// Files of the tree, 12 KiB each on average.
    pub files: u32,
    /// Files of 500 bytes that are made one after the other.
    pub small_files: u32,
    /// Bytes of the large file.
    pub large_bytes: u64,
    /// Bytes of the volume.
    pub volume_bytes: u64,
    /// Rounds, in each of which every job is done once on both.
    pub rounds: u32,
    /// The kernel tells the mount's server of opens and closes.
    pub open_requests: bool,
}

impl EverydayPlan {
    /// Some ten minutes.
    #[must_use]
    pub fn full() -> EverydayPlan {
        EverydayPlan {
            files: 11_000,
            small_files: 20_000,
            large_bytes: 1 << 30,
            volume_bytes: 6 << 30,
            rounds: 5,
            open_requests: true,
        }
    }

    /// Under a minute.
    #[must_use]
    pub fn quick() -> EverydayPlan {
        EverydayPlan {
            files: 2_000,
            small_files: 2_000,
            large_bytes: 256 << 20,
            volume_bytes: 2 << 30,
            rounds: 1,
            open_requests: true,
        }
    }

    /// To test the program.
    #[must_use]
    pub fn tiny() -> EverydayPlan {
        EverydayPlan {
            files: 60,
            small_files: 50,
            large_bytes: 4 << 20,
            volume_bytes: 256 << 20,
            rounds: 1,
            open_requests: true,
        }
    }

    /// With the rounds that are wanted.
    #[must_use]
    pub fn with(self, options: &BenchOptions) -> EverydayPlan {
        EverydayPlan { rounds: options.rounds.unwrap_or(self.rounds), ..self }
    }

    /// Bytes that are needed on the disk: the volume, and on the host four trees and three large files.
    pub(super) fn disk_bytes(&self) -> u64 {
        self.volume_bytes + 4 * u64::from(self.files) * (16 << 10) + 3 * self.large_bytes
    }
}
