//! *Calls*: what threads ask of a filesystem again and again.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use weir_fs::{Conflicts, Engine};
use weir_runtime::Random;
use weir_vfs::SyncCall;

/// Threads that each change a file of their own and synchronise it, in a closed loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calls {
    /// On which filesystem.
    pub on: On,
    /// What they change.
    pub change: Change,
    /// How they synchronise it.
    pub call: Call,
    /// How many threads, 1 and more.
    #[serde(default = "one")]
    pub threads: u32,
    /// Cores of the host, if not its profile's.
    #[serde(default)]
    pub cores: Option<u32>,
    /// What else is done on the filesystem; nothing, unless a what-if says so.
    #[serde(default)]
    pub other: Option<OtherProgram>,
    /// How many blocks were overwritten at random before the filesystem was made, in percent of the device's.
    #[serde(default)]
    pub aged_percent: u32,
}

/// Another program on the filesystem, which appends to a file of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OtherProgram {
    /// How long it sleeps between two appends on average, in milliseconds: any time up to the double is as likely.
    pub every_ms: u32,
    /// The fewest and the most blocks of an append: a size is as likely as its double.
    pub blocks: [u32; 2],
    /// How it synchronises them.
    pub call: Call,
}

fn one() -> u32 {
    1
}

/// A filesystem and how it is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum On {
    /// The legacy journal with flush and FUA.
    #[serde(rename = "EXT4")]
    Ext4,
    /// The legacy journal without: `nobarrier`. On a prefix device that keeps order (OPTR paper, no-barrier mode).
    #[serde(rename = "EXT4 without barriers")]
    Ext4Unbarriered,
    /// The legacy journal with checksums in the place of the flush between JD and JC, as the phone of the FAST 2018 paper.
    #[serde(rename = "EXT4 with async commit")]
    Ext4Async,
    /// OptFS: checksums in the place of flushes; `fbarrier` is its `osync`, `fsync` its `dsync`.
    #[serde(rename = "OptFS")]
    OptFs,
    /// Dual-mode journaling as the paper has it, with a list of conflicts and forced commits.
    #[serde(rename = "BarrierFS")]
    BarrierFs,
    /// The same, but the list gives blocks up when they are transferred, durable or not.
    #[serde(rename = "BarrierFS, list until transfer")]
    BarrierFsUntilTransfer,
    /// As the paper has it, but a call that finds nothing dirty puts a bare barrier, and forces no commit.
    #[serde(rename = "BarrierFS, bare barriers")]
    BarrierFsBareBarriers,
    /// Dual-mode journaling that copies where the paper waits, and puts bare barriers where it commits.
    #[serde(rename = "BarrierFS with copies")]
    BarrierFsCopies,
    /// The journal for prefix devices: it waits for every transfer, and a durable call ends with one flush (OPTR paper,
    /// section 4). Other devices refuse it.
    #[serde(rename = "EXT4 for prefix devices")]
    Prefix,
    /// The legacy journal with flush-ahead commit (eMMC paper, section IV.B), for storage with packed writes and FUA.
    #[serde(rename = "EXT4 with flush-ahead commit")]
    FlushAhead,
    /// The legacy journal with journal coalition (eMMC paper, section IV.A).
    #[serde(rename = "EXT4 with journal coalition")]
    Coalition,
    /// With both.
    #[serde(rename = "EXT4 with coalition and flush-ahead")]
    CoalitionFlushAhead,
    /// EXT4 without a journal: a crash may leave anything.
    #[serde(rename = "EXT4 without a journal")]
    Unjournaled,
}

/// What a thread changes before it synchronises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// 4 KiB behind the file's end, which allocates.
    Append,
    /// 4 KiB somewhere in the file.
    Overwrite,
    /// The permissions of one of many files, whose inodes share no block: a transaction of that block alone, and
    /// no two transactions with the same block.
    Permissions,
}

/// How a change is synchronised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Call {
    /// `fsync`: durable.
    #[serde(rename = "fsync")]
    Fsync,
    /// `fdatasync`: durable, without metadata that is not needed to find the data.
    #[serde(rename = "fdatasync")]
    Fdatasync,
    /// `fbarrier`: ordered.
    #[serde(rename = "fbarrier")]
    Fbarrier,
    /// `fdatabarrier`: ordered, without metadata that is not needed to find the data.
    #[serde(rename = "fdatabarrier")]
    Fdatabarrier,
    /// Not at all: the filesystem writes back when it has too much that is dirty.
    #[serde(rename = "none")]
    None,
}

impl OtherProgram {
    /// The blocks of the next append.
    pub(crate) fn draw_blocks(&self, random: &mut Random) -> u64 {
        let [least, most] = self.blocks.map(|blocks| u64::from(blocks.max(1)));
        let doublings = (most / least).max(1).ilog2();
        let low = least << random.below(u64::from(doublings) + 1);
        let high = (2 * low - 1).min(most).max(low);
        low + random.below(high - low + 1)
    }
}

impl Call {
    /// What a program calls if nothing else is said.
    pub(crate) fn durable() -> Call {
        Call::Fsync
    }

    /// The filesystem's call, if there is one.
    pub(crate) fn sync_call(self) -> Option<SyncCall> {
        match self {
            Call::Fsync => Some(SyncCall::Fsync),
            Call::Fdatasync => Some(SyncCall::Fdatasync),
            Call::Fbarrier => Some(SyncCall::Fbarrier),
            Call::Fdatabarrier => Some(SyncCall::Fdatabarrier),
            Call::None => None,
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sync_call().map_or("nothing", SyncCall::name))
    }
}

impl On {
    /// The journal's engine.
    pub(crate) fn engine(self) -> Engine {
        match self {
            On::Ext4 | On::Coalition => Engine::Jbd2 { barrier: true },
            On::Ext4Unbarriered => Engine::Jbd2 { barrier: false },
            On::Ext4Async => Engine::AsyncCommit,
            On::OptFs => Engine::OptFs,
            On::BarrierFs | On::BarrierFsBareBarriers => Engine::Dual { conflicts: Conflicts::List },
            On::BarrierFsUntilTransfer => Engine::Dual { conflicts: Conflicts::ListUntilTransfer },
            On::BarrierFsCopies => Engine::Dual { conflicts: Conflicts::Copy },
            On::Prefix => Engine::Prefix,
            On::FlushAhead | On::CoalitionFlushAhead => Engine::FlushAhead,
            On::Unjournaled => Engine::Unjournaled,
        }
    }

    /// How old changes are when they are written without a call: as a commit, or by the kernel's flusher.
    pub(crate) fn commit_interval(self) -> Duration {
        Duration::from_secs(if self == On::Unjournaled { 30 } else { 5 })
    }

    /// Whether its journal logs changed bytes alone.
    pub(crate) fn coalesces(self) -> bool {
        matches!(self, On::Coalition | On::CoalitionFlushAhead)
    }

    /// Whether it keeps order by barriers.
    pub(crate) fn has_barriers(self) -> bool {
        matches!(self.engine(), Engine::Dual { .. })
    }

    /// Whether a call that finds nothing dirty forces a commit (FAST 2018 paper, section 4.3).
    pub(crate) fn forces_commits(self) -> bool {
        matches!(self, On::BarrierFs | On::BarrierFsUntilTransfer)
    }
}

impl fmt::Display for On {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            On::Ext4 => "EXT4",
            On::Ext4Unbarriered => "EXT4 without barriers",
            On::Ext4Async => "EXT4 with async commit",
            On::OptFs => "OptFS",
            On::BarrierFs => "BarrierFS",
            On::BarrierFsUntilTransfer => "BarrierFS, list until transfer",
            On::BarrierFsBareBarriers => "BarrierFS, bare barriers",
            On::BarrierFsCopies => "BarrierFS with copies",
            On::Prefix => "EXT4 for prefix devices",
            On::FlushAhead => "EXT4 with flush-ahead commit",
            On::Coalition => "EXT4 with journal coalition",
            On::CoalitionFlushAhead => "EXT4 with coalition and flush-ahead",
            On::Unjournaled => "EXT4 without a journal",
        })
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let change = match self.change {
            Change::Append => "an append",
            Change::Overwrite => "an overwrite",
            Change::Permissions => "a change of permissions",
        };
        write!(f, "{}, {} after {change}", self.on, self.call)?;
        if self.threads != 1 {
            write!(f, ", {} threads", self.threads)?;
        }
        if self.aged_percent > 0 {
            write!(f, ", {} % of the device overwritten before", self.aged_percent)?;
        }
        let Some(OtherProgram { every_ms, blocks: [least, most], call }) = self.other else { return Ok(()) };
        write!(f, ", another program appends {least} to {most} blocks every {every_ms} ms and calls {call}")
    }
}

#[cfg(test)]
mod tests {
    use weir_runtime::{Runtime, Simulation};

    use super::*;

    #[test]
    fn an_append_of_another_program_has_a_size_within_its_bounds() {
        let mut random = Runtime::simulated(Simulation::default()).handle().random("other program");
        for blocks in [[1, 1], [1, 2047], [640, 640], [3, 20], [5, 4]] {
            let program = OtherProgram { every_ms: 1, blocks, call: Call::None };
            let [least, most] = blocks.map(u64::from);
            let drawn: Vec<u64> = (0..2_000).map(|_| program.draw_blocks(&mut random)).collect();
            assert!(drawn.iter().all(|size| (least..=most.max(least)).contains(size)), "{blocks:?}");
        }
        // As many have 1 as have 1,024 to 2,047.
        let program = OtherProgram { every_ms: 1, blocks: [1, 2047], call: Call::None };
        let drawn: Vec<u64> = (0..11_000).map(|_| program.draw_blocks(&mut random)).collect();
        for class in [1..2, 1024..2048] {
            let count = drawn.iter().filter(|&&size| class.contains(&size)).count();
            assert!((900..1_100).contains(&count), "{class:?}: {count}");
        }
    }
}
