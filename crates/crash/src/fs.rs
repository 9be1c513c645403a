//! Power cuts under a filesystem. In each round of a run scripts of random operations are played on a small and nearly full
//! filesystem, one or several at once, and at every event of the storage below the power is cut, on copies: what is left is
//! recovered by the layers below (firmware, volume), mounted, read, and judged by the [`history`] of the run. The next round
//! begins with what one of the cuts has left; its recovery is cut, too, and must find the same every time. What is
//! read before any cut is judged as well, when all is quiet. On a sample of the states the format's own check is
//! asked whether what was recovered is whole; on a smaller one outside judges are: e2fsck, and the kernel.
//!
//! Runs differ, each drawn by its seed: one task or up to three, each in a directory of its own, where they sync
//! each other's files; caches that hold everything or next to nothing, so that inodes are read again; files so
//! scattered that it takes several transactions to free them; writeback early or never; blocks kept for extent trees or
//! none, so that extents in a full filesystem are divided, or zeros written. On the adversary's
//! disks, in some first rounds one write fails: then order is not promised any more (S5), but what is called
//! durable has to be, before and after.
//!
//! By option, a flush fails instead. From then on nothing may be called durable, and the filesystem has to become
//! read-only. On the legacy path what was called durable before stays so. Dual-mode journaling moves the log's tail by
//! order alone (J5), and a flush that fails may take with it what order alone protects: there nothing is judged after
//! it that a power cut leaves.
//!
//! By option, the adversary's disks tear blocks: each sector of 512 bytes is old or new. What is in the log makes up for
//! that, a superblock changes in one sector only, and every sector of a file's page is judged as pages are else. The outside judges see only what was recovered,
//! since they may make of a torn commit block what they like. The ground `emmc` does worse to what is being written: it
//! may become garbage, sector by sector, but for reliable writes.

mod calls;
mod f2fs;
pub(crate) mod ground;
mod history;
mod judges;
mod moments;
mod outside;
mod run;
mod script;
mod tree;
mod visible;
pub(crate) mod workload;

use std::rc::Rc;

use weir_fs::{Checkpoints, Engine, JournalMode, MountOptions};
use weir_storage::BLOCK_BYTES;

use crate::campaign::{Campaign, Plan, Run, counts};
pub(crate) use f2fs::F2FS_BLOCKS;
pub use f2fs::{F2fsCampaign, F2fsTotals};
pub use ground::FsGround;
pub use judges::{Condition, Judgement, Judges};
pub use moments::{MomentCampaign, MomentTotals};
use run::{FsRun, Images};

/// A campaign on one engine, one journal mode and one ground.
#[derive(Clone)]
pub struct FsCampaign {
    /// How long it is.
    pub plan: Plan,
    /// Who commits.
    pub engine: Engine,
    /// What the journal holds of file data.
    pub mode: JournalMode,
    /// File data is judged by what this mode promises; if none, by what engine and mode do.
    pub judged_as: Option<JournalMode>,
    /// What the filesystem stands on.
    pub ground: FsGround,
    /// Of this many states, one is shown to the outside judges; 0 for none.
    pub outside: u64,
    /// In every first round on an adversary's disk, one flush fails (instead of one write in some).
    pub flush_faults: bool,
    /// An adversary's disk, as a ground of its own, may tear what it writes at multiples of so many bytes: 512 or 4,096.
    pub tear_bytes: u32,
    /// How the filesystem behaves beside: for mutants, and for discards. With the default discards, some runs are as
    /// they are by default, and some discard wherever the storage can; free space is trimmed now and then.
    pub options: MountOptions,
}

counts! {
    /// What a campaign did.
    pub struct FsTotals of rounds {
        /// Operations.
        pub operations: u64,
        /// Different states that were left by a cut during recovery.
        pub states_recovery: u64,
        /// Of all states, shown to e2fsck.
        pub states_outside: u64,
        /// Of these, shown to the kernel, too.
        pub states_kernel: u64,
        /// Different states that were refused, as a write of the log had failed.
        pub states_refused: u64,
        /// Transactions committed.
        pub commits: u64,
        /// Times that the log's tail moved.
        pub checkpoints: u64,
        /// Writes into what was allocated, holes and zeros while the filesystem was full.
        pub operations_full: u64,
        /// Blocks of zeros that were written as an extent could not be divided.
        pub blocks_zeroed: u64,
    }
}

impl FsCampaign {
    /// A campaign on a filesystem without bugs, one of 500 states shown to outside judges where
    /// they are installed.
    #[must_use]
    pub fn new(engine: Engine, mode: JournalMode, ground: FsGround, plan: Plan) -> FsCampaign {
        FsCampaign {
            plan,
            engine,
            mode,
            judged_as: None,
            ground,
            outside: 500,
            flush_faults: false,
            tear_bytes: BLOCK_BYTES as u32,
            options: MountOptions::default(),
        }
    }

    /// The same with a journal as ext4 in Linux has it: the tasks that want room in it empty it, and in mode data a durable call
    /// commits whatever runs. How often the flusher writes home is drawn for each run.
    #[must_use]
    pub fn as_linux(mut self) -> FsCampaign {
        (self.options.checkpoints, self.options.commits_running) = (Checkpoints::LINUX, true);
        self
    }
}

impl Campaign for FsCampaign {
    type Totals = FsTotals;
    /// And the states of which one is shown to outside judges, if these are installed.
    type Beginning = (Rc<Images>, u64);

    fn plan(&self) -> Plan {
        self.plan
    }

    fn prepare(&self) -> Result<(Rc<Images>, u64), String> {
        let outside = if outside::is_there() { self.outside } else { 0 };
        Ok((Images::new()?, outside))
    }

    fn play_run(&self, (images, outside): &(Rc<Images>, u64), _number: u64, seed: u64) -> Run<FsTotals> {
        FsRun::play(&FsCampaign { outside: *outside, ..self.clone() }, images, seed)
    }
}
