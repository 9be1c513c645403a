//! Crash-consistency campaigns: the power is cut at every event, what may be left is enumerated or drawn,
//! recovered, and judged.
mod campaign;
mod content;
mod findings;
mod model;
mod notes;
mod options;
mod player;
mod recovery;
mod run;
mod streams;
mod window;

pub use campaign::{Campaign, Failed, Summary};
pub use content::{Stamp, push_page, stamp_of};
pub use findings::{Failure, Findings, Totals};
pub use model::{Model, Verdict, Why};
pub use options::{EXHAUSTIVE_MAX, Mix, RunOptions};
pub use run::run;
pub use streams::{StreamOptions, run_streams};
