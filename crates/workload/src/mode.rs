//! The ways of writing that a benchmark puts side by side.

use crate::caller::WeirCalls;
use crate::host::HostCalls;

/// One way of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Random 4 KiB writes straight to the disk, this many in flight.
    RawRandom(u32),
    /// Sequential 256 KiB writes straight to the disk, eight in flight.
    RawSequential,
    /// Random 4 KiB writes straight to a disk that keeps barriers itself, each a barrier.
    OwnBarrier,
    /// The host's filesystem.
    Host(HostCalls),
    /// Through Weir, on a volume made for the turn.
    Fresh(WeirCalls),
    /// B through Weir, on a volume that is 80 % full and long in use.
    Steady,
}

/// Blocks in a write of [`Mode::RawSequential`]: 256 KiB.
pub const SEQUENTIAL_BLOCKS: u32 = 64;

/// Writes in flight in [`Mode::RawSequential`].
pub const SEQUENTIAL_DEPTH: u32 = 8;

impl Mode {
    /// All modes, in the order of a round: those of the host's filesystem where there is one, and the disk's own
    /// barrier where it has one. B and P are neighbours: their ratio is the cost of order.
    pub const ALL: [Mode; 14] = [
        Mode::RawRandom(1),
        Mode::RawRandom(8),
        Mode::RawRandom(32),
        Mode::RawSequential,
        Mode::OwnBarrier,
        Mode::Host(HostCalls::Fdatasync),
        Mode::Host(HostCalls::AppendFsync),
        Mode::Host(HostCalls::FinalFsync),
        Mode::Host(HostCalls::Dsync),
        Mode::Fresh(WeirCalls::Xnf),
        Mode::Fresh(WeirCalls::X),
        Mode::Fresh(WeirCalls::B),
        Mode::Fresh(WeirCalls::P),
        Mode::Steady,
    ];

    /// The name that scripts rely on.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Mode::RawRandom(depth) => format!("raw_random_depth_{depth}"),
            other => other.fixed_name().to_owned(),
        }
    }

    fn fixed_name(self) -> &'static str {
        match self {
            Mode::RawRandom(_) => "raw_random",
            Mode::RawSequential => "raw_sequential_256k",
            Mode::OwnBarrier => "own_barrier",
            Mode::Host(HostCalls::Fdatasync) => "host_fdatasync",
            Mode::Host(HostCalls::AppendFsync) => "host_append_fsync",
            Mode::Host(HostCalls::FinalFsync) => "host_buffered_final_fsync",
            Mode::Host(HostCalls::Dsync) => "host_rwf_dsync",
            Mode::Fresh(WeirCalls::Xnf) => "weir_xnf",
            Mode::Fresh(WeirCalls::X) => "weir_x",
            Mode::Fresh(WeirCalls::B) => "weir_b",
            Mode::Fresh(WeirCalls::P) => "weir_p",
            Mode::Steady => "weir_b_steady_80",
        }
    }

    /// Whether each write is waited for, so that writes in progress are what the disk has to do. The others
    /// wait for queue space only, and the disk sees the commands that the volume makes of them.
    #[must_use]
    pub fn waits(self) -> bool {
        !matches!(self, Mode::OwnBarrier | Mode::Fresh(WeirCalls::B | WeirCalls::P) | Mode::Steady)
    }

    /// What it does, for a table.
    #[must_use]
    pub fn title(self) -> String {
        match self {
            Mode::RawRandom(depth) => format!("raw disk, random 4 KiB, depth {depth}"),
            other => other.fixed_title().to_owned(),
        }
    }

    fn fixed_title(self) -> &'static str {
        match self {
            Mode::RawRandom(_) => "raw disk, random 4 KiB",
            Mode::RawSequential => "raw disk, sequential 256 KiB",
            Mode::OwnBarrier => "raw disk, its own barrier each",
            Mode::Host(HostCalls::Fdatasync) => "host fs, pwrite + fdatasync",
            Mode::Host(HostCalls::AppendFsync) => "host fs, append + fsync",
            Mode::Host(HostCalls::FinalFsync) => "host fs, pwrite, one fsync",
            Mode::Host(HostCalls::Dsync) => "host fs, RWF_DSYNC",
            Mode::Fresh(WeirCalls::Xnf) => "Weir XnF: wait, flush",
            Mode::Fresh(WeirCalls::X) => "Weir X: wait",
            Mode::Fresh(WeirCalls::B) => "Weir B: barrier each",
            Mode::Fresh(WeirCalls::P) => "Weir P: orderless",
            Mode::Steady => "Weir B, steady at 80 %",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_differ() {
        let names: BTreeSet<String> = Mode::ALL.iter().map(|mode| mode.name()).collect();
        assert_eq!(names.len(), Mode::ALL.len());
    }
}
