//! The ways of writing that a benchmark puts side by side.

use weir_fs::Engine;
use weir_vfs::{Promise, SyncCall};

use crate::caller::WeirCalls;
use crate::filesystem::{FsKind, FsMode, FsWrite};
use crate::host::HostCalls;
use crate::mounts::MountCalls;

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
    /// Through a filesystem of Weir, on a volume made for the turn.
    Filesystem(FsMode),
    /// Through a server, on a volume made for the turn.
    Mount(MountCalls),
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

    /// The modes of the benchmark of filesystems, in the order of a round. The two whose ratio is the answer are
    /// neighbours; those that write much come last, as many a disk is slower for a while after that.
    pub const FILESYSTEMS: [Mode; 22] = [
        Mode::Host(HostCalls::Fdatasync),
        Mode::Host(HostCalls::AppendFdatasync),
        Mode::Host(HostCalls::AppendFsync),
        Mode::barrier_fs(FsWrite::Append, SyncCall::Fsync),
        Mode::f2fs(FsWrite::Append, SyncCall::Fsync),
        Mode::barrier_fs(FsWrite::Append, SyncCall::Fdatasync),
        Mode::f2fs(FsWrite::Append, SyncCall::Fdatasync),
        Mode::coalition(Engine::DUAL, SyncCall::Fsync),
        Mode::append(Engine::JBD2, SyncCall::Fsync),
        Mode::coalition(Engine::JBD2, SyncCall::Fsync),
        Mode::append(Engine::FlushAhead, SyncCall::Fsync),
        Mode::coalition(Engine::FlushAhead, SyncCall::Fsync),
        Mode::barrier_fs(FsWrite::Append, SyncCall::Fbarrier),
        Mode::f2fs(FsWrite::Append, SyncCall::Fbarrier),
        Mode::coalition(Engine::DUAL, SyncCall::Fbarrier),
        Mode::barrier_fs(FsWrite::Append, SyncCall::Fdatabarrier),
        Mode::f2fs(FsWrite::Append, SyncCall::Fdatabarrier),
        Mode::through(FsKind::F2fs { nobarrier: true }, FsWrite::Append, SyncCall::Fsync),
        Mode::barrier_fs(FsWrite::Overwrite, SyncCall::Fdatabarrier),
        Mode::f2fs(FsWrite::Overwrite, SyncCall::Fdatabarrier),
        Mode::barrier_fs(FsWrite::Update, SyncCall::Fsync),
        Mode::f2fs(FsWrite::Update, SyncCall::Fsync),
    ];

    /// The modes of the benchmark of mounts, in the order of a round: those whose ratios are told are neighbours.
    pub const MOUNTS: [Mode; 12] = [
        Mode::Host(HostCalls::Fdatasync),
        Mode::Mount(MountCalls::OverwriteBarrier),
        Mode::Mount(MountCalls::OverwriteOrdered),
        Mode::Mount(MountCalls::OverwriteFdatasync),
        Mode::Mount(MountCalls::Deep(32)),
        Mode::Mount(MountCalls::DeepDurable(32)),
        Mode::Host(HostCalls::AppendFsync),
        Mode::Mount(MountCalls::AppendFsync),
        Mode::Mount(MountCalls::CoalitionAppendFsync),
        Mode::Mount(MountCalls::AppendFbarrier),
        Mode::Mount(MountCalls::CoalitionAppendFbarrier),
        Mode::Mount(MountCalls::KernelAppendFsync),
    ];

    const fn through(kind: FsKind, write: FsWrite, call: SyncCall) -> Mode {
        Mode::Filesystem(FsMode { kind, write, call })
    }

    /// F2FS.
    pub(crate) const fn f2fs(write: FsWrite, call: SyncCall) -> Mode {
        Mode::through(FsKind::F2FS, write, call)
    }

    /// BarrierFS with dual-mode journaling.
    pub(crate) const fn barrier_fs(write: FsWrite, call: SyncCall) -> Mode {
        Mode::through(FsKind::BARRIER_FS, write, call)
    }

    /// Appends with one of its engines.
    pub(crate) const fn append(engine: Engine, call: SyncCall) -> Mode {
        Mode::through(FsKind::BarrierFs { engine, coalition: false }, FsWrite::Append, call)
    }

    /// The same, with journal coalition.
    pub(crate) const fn coalition(engine: Engine, call: SyncCall) -> Mode {
        Mode::through(FsKind::BarrierFs { engine, coalition: true }, FsWrite::Append, call)
    }

    /// The name that scripts rely on.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Mode::RawRandom(depth) => format!("raw_random_depth_{depth}"),
            Mode::Filesystem(mode) => mode.name(),
            Mode::Mount(calls) => calls.name(),
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
            Mode::Host(HostCalls::AppendFdatasync) => "host_append_fdatasync",
            Mode::Host(HostCalls::FinalFsync) => "host_buffered_final_fsync",
            Mode::Host(HostCalls::Dsync) => "host_rwf_dsync",
            Mode::Fresh(WeirCalls::Xnf) => "weir_xnf",
            Mode::Fresh(WeirCalls::X) => "weir_x",
            Mode::Fresh(WeirCalls::B) => "weir_b",
            Mode::Fresh(WeirCalls::P) => "weir_p",
            Mode::Steady => "weir_b_steady_80",
            Mode::Filesystem(_) => "filesystem",
            Mode::Mount(_) => "mount",
        }
    }

    /// Whether each write is waited for, so that writes in progress are what the disk has to do. The others
    /// wait for queue space only, and the disk sees the commands that the volume makes of them.
    #[must_use]
    pub fn waits(self) -> bool {
        match self {
            Mode::OwnBarrier | Mode::Fresh(WeirCalls::B | WeirCalls::P) | Mode::Steady => false,
            Mode::Filesystem(mode) => mode.call.promise() == Promise::Durable,
            _ => true,
        }
    }

    /// What a call promises when it returns; none for modes that make nothing durable before their end, and put
    /// nothing in order.
    #[must_use]
    pub fn promise(self) -> Option<Promise> {
        match self {
            Mode::Host(HostCalls::FinalFsync) => None,
            Mode::Host(_) | Mode::Fresh(WeirCalls::Xnf) => Some(Promise::Durable),
            Mode::OwnBarrier | Mode::Fresh(WeirCalls::B) | Mode::Steady => Some(Promise::Ordered),
            Mode::Filesystem(mode) => Some(mode.promise()),
            Mode::Mount(calls) => calls.promise(),
            _ => None,
        }
    }

    /// What it does, for a table.
    #[must_use]
    pub fn title(self) -> String {
        match self {
            Mode::RawRandom(depth) => format!("raw disk, random 4 KiB, depth {depth}"),
            Mode::Filesystem(mode) => mode.title(),
            Mode::Mount(calls) => calls.title(),
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
            Mode::Host(HostCalls::AppendFdatasync) => "host fs, append + fdatasync",
            Mode::Host(HostCalls::FinalFsync) => "host fs, pwrite, one fsync",
            Mode::Host(HostCalls::Dsync) => "host fs, RWF_DSYNC",
            Mode::Fresh(WeirCalls::Xnf) => "Weir XnF: wait, flush",
            Mode::Fresh(WeirCalls::X) => "Weir X: wait",
            Mode::Fresh(WeirCalls::B) => "Weir B: barrier each",
            Mode::Fresh(WeirCalls::P) => "Weir P: orderless",
            Mode::Steady => "Weir B, steady at 80 %",
            Mode::Filesystem(_) => "filesystem",
            Mode::Mount(_) => "mount",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_differ() {
        let modes: BTreeSet<Mode> =
            Mode::ALL.into_iter().chain(Mode::FILESYSTEMS).chain(Mode::MOUNTS).collect();
        let names: BTreeSet<String> = modes.iter().map(|mode| mode.name()).collect();
        // Two of the host's are in all three benchmarks.
        let all = Mode::ALL.len() + Mode::FILESYSTEMS.len() + Mode::MOUNTS.len();
        assert_eq!((modes.len(), names.len()), (all - 4, modes.len()));
    }
}
