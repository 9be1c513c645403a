//! Power cuts under any program: what a program does to a directory is recorded, the states that a cut may leave are made from
//! the record, and a check of the program's own says of each whether it is right.
//!
//! # The way of a test
//!
//! 1. [`record_run`] mounts a [`RecordedFilesystem`] by `weir-fuse` and runs the program on it. Each call that changes
//!    something, or makes something durable, is an [`Operation`] of the [`Record`]; so is each acknowledgement ([`ACK_NAME`]). The
//!    kernel keeps nothing back, so their order is that of the calls.
//! 2. [`Units`] are the record in pieces that a cut leaves or takes, under a set of [`Promises`]: which pieces a
//!    synchronisation makes durable, and which come not before others.
//! 3. At each [`Moment`] the [`Candidates`] are states, named by what is missing ([`StateName`]): all when they are few,
//!    otherwise those that experience prefers, then random ones. A seed and a record give the same states.
//! 4. The [`Judge`] writes each different [`Tree`] as a directory and runs the check on it, with what was acknowledged by
//!    then. A failure is made smaller by putting back what can be, and [`explain`] says what it lacks, by the calls.
//!
//! [`ProgramCampaign`] does 2 to 4. A record is kept as a file by [`write_trace`].
//!
//! # Rules
//!
//! - **T1** An acknowledgement is ordered with the calls before and behind it: a state counts with the lines that were
//!   acknowledged when the power was cut, and with no others. Of a tree, the most lines that it can have count, and, right
//!   before a line, just those before that.
//! - **T2** A cut leaves only states that the promises allow: what a synchronisation made durable is there, no unit is there
//!   without those that it needs, and a sector of a torn block is of one version. Which units these are, `docs/crash-program.md`
//!   has as a table. A state is named by its moment and what is missing, and replays.
//! - **T3** A check that fails where nothing is lost is an error, and one that accepts what lost everything is told: it proves
//!   nothing.
//!
//! # Another ground
//!
//! With a [`DiskGround`] the program works on a filesystem of the kernel, which lies by a loop device on a file of the recording
//! mount, or on one of Weir, which lies on that file. The record is that of the disk then: writes of blocks, and flushes, which
//! are the calls `write` and `fsync` of that one file. What POSIX promises of one file is what the worst legal disk promises, so
//! all that follows is the same, but for two things: the judge has the file of a [`Tree`] mounted and runs the check there, and
//! what is missing is told by the blocks, and by whose they are.
//!
//! With a [`Drive`] below that disk, states are not those of the worst legal disk but those that an emulated drive leaves when the
//! same requests are played on it: a choice among the same states, so that all else stays as it is. None is made smaller, as the
//! drive may not leave what is.

mod acks;
mod block_owners;
mod campaign;
mod candidates;
mod cut_point;
mod disk_ground;
mod disk_mount;
mod disk_options;
mod disk_record;
mod disk_session;
mod disk_state;
mod drive;
mod explain;
mod explain_disk;
mod fault;
mod filesystem;
mod findings;
mod judge;
mod mount_points;
mod mutants;
mod operation;
mod paths;
mod plan;
mod promises;
mod record;
mod recorded_tree;
mod rounds;
mod run;
mod run_plan;
mod scratch;
mod shell;
mod shrink;
mod state;
mod stop;
mod timeline;
mod trace;
mod tree;
mod unit;
mod unit_builder;
mod units;
mod workplace;

pub use acks::ACK_NAME;
pub use campaign::ProgramCampaign;
pub use candidates::Candidates;
pub use cut_point::{CutPoint, CutPointError};
pub use disk_ground::{DiskFilesystem, DiskGround, DiskGroundError};
pub use disk_record::DiskRecord;
pub use drive::{Drive, DriveError, LeftByDrive, fit_drive};
pub use explain::{Explanation, counted, explain};
pub use fault::{Fault, FaultError, FaultKind, PathPattern};
pub use filesystem::RecordedFilesystem;
pub use findings::{CampaignFindings, CampaignProgress, REPORTED_MAX, StateFailure};
pub use judge::{Judge, Judgement, Privileges, write_tree};
#[cfg(feature = "mutants")]
pub use mutants::ProgramMutant;
pub use operation::{Call, NewInode, Operation, Place};
pub use plan::{CampaignError, Plan};
pub use promises::Promises;
pub use record::{
    LINE_BYTES_MAX, LINES_BYTES_MAX, OPERATIONS_MAX, Process, Record, RecordError, WrittenData,
};
pub use rounds::{RoundsError, RoundsFindings, run_rounds};
pub use run::{RecordedRun, record_run};
pub use run_plan::{RunBase, RunCut, RunDisk, RunError, RunPlan};
pub use scratch::Scratch;
pub use state::{Moments, StateName, StateNameError};
pub use stop::StopCondition;
pub use timeline::{Fate, TimelineEntry};
pub use trace::{RunTraceError, TRACE_BEGINNING, TraceHeader, read_trace, write_trace};
pub use tree::{BLOCK_BYTES, Content, FILE_BYTES_MAX, FileContent, Name, Node, ROOT, Tree};
pub use unit::{SECTOR_BYTES, Unit, UnitKind, UnitNumber};
pub use units::{Moment, MomentKind, Units};
pub use weir_crash::ends_within;
