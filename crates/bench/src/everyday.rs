//! *Everyday* work: what people do with a tree of files, on the host's filesystem and on a mount in turns, by the programs that they use.

mod bench;
mod job;
mod plan;
mod report;
mod requests;
mod tree;

pub use bench::everyday;
pub use job::Job;
pub use plan::EverydayPlan;
pub use report::{EverydayReport, JobReport};
