//! Crash-consistency campaigns: the power is cut at every event, what may be left is enumerated or drawn,
//! recovered, and judged.
//!
//! # Words
//!
//! - A *campaign* is a sequence of numbered runs of one *subject*: a volume, a filesystem, SQLite, and so on.
//! - A *run* is a function of its seed. It consists of rounds.
//! - A *round* lasts from a power-up to the next power cut: a workload is played, and at every event the power is cut on a
//!   copy. The next round begins with a state that one of these cuts has left.
//! - A *cut* leaves one or more *crash states*. Two states are the same if their content and what was promised are.
//! - A *recovery* is what the layers below, the filesystem and the program do with a state before they serve anything. Its own
//!   events are cut, too.
//!
//! # A run on a volume
//!
//! The workload consists of numbered requests to a volume on the
//! [`AdversaryDisk`](weir_storage::AdversaryDisk), in virtual time. At every event of the disk (a command
//! accepted, serviced, or something written back) the power is cut on paper:
//!
//! 1. The *window*, what the disk may still lose, has some number of crash states. If there are few, all
//!    are judged; otherwise some are drawn, with strong biases. An image is judged once for each
//!    promise that it has to keep.
//! 2. Each is recovered in a runtime of its own, and everything is read.
//! 3. The judge, a reference model that knows only what was asked for and what was acknowledged, says
//!    whether that may be: some prefix of the requests, each whole, reaching at least as far as every
//!    acknowledged flush, FUA write and durable ticket; discarded blocks read zero; no data that was never written.
//! 4. For some states the recovery is cut at every event, and so is the recovery of what that leaves; then a second round
//!    writes to the volume and is cut again: what lay behind the first cut may never come back (V1). In some runs the
//!    process ends and the disk keeps its cache.
//!
//! In some runs a second task reads and takes checkpoints while the first one writes: each of its reads has
//! to find a version that was current while it was under way. A write may be refused for want of space only
//! when more would be live than may be. A run that does not end, in time or in commands, has failed.
//!
//! [`run_streams`] does the same through the block layer, and judges epochs. Every run is a function of its seed, from which its
//! options are drawn, too: few or many in each run, and very different ones (swarm testing). For a failure
//! `weir crash campaign` prints the command that replays it. Tests with the volume's mutants show that the judges can find
//! something: each mutant is killed by a test here.
//!
//! | noun | what it is |
//! |---|---|
//! | [`Campaign`], [`Summary`], [`Failure`] | runs of one subject, until enough distinct crash states were judged |
//! | [`VolumeCampaign`] | the subject is a volume on the worst legacy disk |
//! | [`RunOptions`], [`run`] | one run on a volume |
//! | [`StreamOptions`], [`run_streams`] | one run through the block layer |
//! | [`Model`], [`Verdict`] | what may be left, and why something may not |
//! | [`Findings`], [`Totals`], [`RunFailure`] | what such a run has found |
//! | [`FlashCampaign`] | the same for an emulated flash device: its firmware recovers |
//! | [`VstCampaign`] | firmware that preserves order, driven by a trace, against a golden disk |
//! | [`FsCampaign`] | the same for a filesystem, on each of these grounds, with e2fsck and the kernel as judges |
//! | [`Setup`], [`Bench`], [`Session`], [`Cut`] | tests of a user on a filesystem: play, promise, cut the power, recover, judge |
//! | [`Workload`], [`WorkloadCampaign`] | operations as text, and a campaign on them |
//! | [`Permuter`], [`Request`] | CrashMonkey's choice of what is left, from a log of requests |
//! | [`Judges`], [`Judgement`] | what our model, our check, e2fsck and the kernel say of an image, each for itself |
//! | [`SqliteCampaign`] | the same for SQLite in a filesystem: its databases judge themselves, and what was committed is known |
//! | [`MomentCampaign`] | the same for a mount with moments: what is left is the whole tree as of one moment |
//! | [`UpdateCampaign`] | the same for atomic files, which are at one commit all together, and for units |
//! | [`ReplicaCampaign`] | the same for a replica in an object store, while its machines crash |
//! | [`SqliteFaults`] | fault injection: every call of SQLite fails in one repetition |
//! | [`KernelMount`] | an image that the kernel has mounted |
//! | [`push_page`], [`stamp_of`] | pages that name the request that wrote them |
//!
//! `weir crash campaign` runs the campaigns, each with its control. The examples: `kill_loop` kills writers on a real disk;
//! `kernel_table2` runs table 2 of the FAST 2018 paper on the kernel's ext4.

mod bound;
mod campaign;
mod content;
mod cuts;
mod findings;
mod flash;
mod fs;
mod kernel_mount;
mod model;
mod named;
mod options;
mod permuter;
mod player;
mod reader;
mod recovery;
mod replica;
mod request_history;
mod request_log;
mod run;
mod shrink;
mod sqlite;
mod streams;
mod system;
mod updates;
mod volume;
mod vst;
mod window;

pub use campaign::{Campaign, Counts, Failure, Plan, Run, Shard, Summary};
pub use content::{Stamp, mix, push_page, stamp_of};
pub use findings::{Findings, RunFailure, Totals};
pub use flash::{FlashCampaign, FlashTotals};
pub use fs::workload::{
    ATTRIBUTE_BYTES_MAX, Allocation, Bench, ByJudge, CrashMonkeyCheck, Cut, CutName, Defect, FILE_BYTES_MAX,
    Found, FoundKind, Images, Impossible, JudgedBy, Length, Mistake, NoCut, OPERATIONS_MAX, Operation,
    Outcome, ParseError, PathError, PlayError, Session, Setup, SetupError, Shrunk, StateName, SweepResult,
    TEXT_BYTES_MAX, Tally, Workload, WorkloadCampaign, WorkloadFailure, WorkloadPath, WorkloadTotals,
    generate, is_visible, operation_lines,
};
pub use fs::{
    Condition, F2fsCampaign, F2fsTotals, FsCampaign, FsGround, FsTotals, Judgement, Judges, MomentCampaign,
    MomentTotals,
};
pub use kernel_mount::{HelperEnd, KernelMount, KernelMountError, ends_within, run_helper};
pub use model::{Model, Verdict, Why};
pub use options::{EXHAUSTIVE_MAX, Mix, RunOptions};
pub use permuter::{Overlaps, Permutation, Permuter};
pub use replica::{ReplicaCampaign, ReplicaTotals};
pub use request_log::{LoggedStorage, Request};
pub use run::run;
pub use shrink::leave_out;
pub use sqlite::{SqliteCampaign, SqliteFaultTotals, SqliteFaults, SqliteJournal, SqliteSync, SqliteTotals};
pub use streams::{StreamCampaign, StreamOptions, run_streams};
pub use system::system;
pub use updates::{UpdateCampaign, UpdateTotals, UpdatedFs};
pub use volume::VolumeCampaign;
pub use vst::{SECTOR_BYTES, VstCampaign, VstRequest, VstTotals};
