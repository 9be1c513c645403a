//! Tests of a user: a workload on a device by name, power cuts at chosen events, and judges.
//!
//! A [`Setup`] says where and how, a [`Bench`] holds a new filesystem there, and each [`Session`] plays on a copy of it. What
//! is done by [`Session::perform`] the model follows; a test that calls the filesystem directly states the promises itself. A
//! [`Cut`] is a state that a power cut may leave: it can be recovered and read, judged, or given to other judges.
//! [`Bench::sweep`] does that with a whole [`Workload`], at every event; [`Bench::crash_tests`] with so many states, which four
//! judges call clean, fixed or failed, and [`Bench::permuted_tests`] with those that CrashMonkey would leave.
//!
//! States are recovered once: what was found is remembered by the hash of what was left, for all plays on a bench. So
//! workloads that begin alike share most of what they cost.

mod campaign;
mod crash_tests;
mod crashmonkey_check;
mod cut;
mod found;
mod generator;
mod judge;
mod operation;
mod parse;
mod perform;
mod permuted_tests;
mod report;
mod second_recovery;
mod session;
mod setup;
mod shrink;
mod sweep;

pub use super::calls::Outcome;
pub use campaign::WorkloadCampaign;
pub use crash_tests::{ByJudge, Tally};
pub use crashmonkey_check::CrashMonkeyCheck;
pub use cut::{Cut, CutName, NoCut, StateName};
pub use found::{Found, FoundKind};
pub use generator::{Length, generate};
pub use judge::{Defect, Images, JudgedBy};
pub use operation::{
    ATTRIBUTE_BYTES_MAX, Allocation, FILE_BYTES_MAX, Operation, PathError, WorkloadPath, is_visible,
};
pub use parse::{Mistake, OPERATIONS_MAX, ParseError, TEXT_BYTES_MAX, Workload, operation_lines};
pub use perform::{Impossible, PlayError};
pub use session::Session;
pub use setup::{Bench, Setup, SetupError};
pub use shrink::Shrunk;
pub use sweep::{SweepResult, WorkloadFailure, WorkloadTotals};
