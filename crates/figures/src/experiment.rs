//! An *experiment* is what a series of a figure runs: it says which filesystem it needs, on which of a host's parameters it
//! depends and which metrics it gives, and it runs.

use std::fmt;

use weir_flash::FlashOptions;

use crate::calls::On;
use crate::error::FigureError;
use crate::metric::Metric;
use crate::run::{Outcome, Run};

/// What a series of a figure runs. Two whose `Debug` texts are equal are the same; `Display` is the name in errors, curves
/// and progress. It is only described here: runs of one may be under way on several threads.
pub trait Experiment: fmt::Debug + fmt::Display + Send + Sync {
    /// The metrics that it gives.
    fn metrics(&self) -> Vec<Metric>;

    /// The filesystem that it runs on; none if it runs on a device without a filesystem, or computes something without a device.
    fn filesystem(&self) -> Option<On> {
        None
    }

    /// Whether it keeps order by barriers.
    fn has_barriers(&self) -> bool {
        self.filesystem().is_some_and(On::has_barriers)
    }

    /// Whether each write waits for more than its dispatch, so that fewer of them are run.
    fn waits(&self) -> bool {
        self.filesystem().is_some()
    }

    /// Its name where there is little room, as in the unit `% of NAME` of a series that is shown in per cent of it.
    fn short_name(&self) -> String {
        self.filesystem().map_or_else(|| self.to_string(), |on| on.to_string())
    }

    /// Whether it depends on the host's parameter of this name.
    fn depends_on(&self, parameter: &str) -> bool {
        depends_on(self.filesystem(), parameter)
    }

    /// Runs it, on the device and the host of `run`.
    ///
    /// # Errors
    /// [`FigureError::Order`] if order was not kept; what the block layer, the filesystem or the device answered.
    fn run(&self, run: &Run, seed: u64, options: FlashOptions) -> Result<Outcome, FigureError>;
}

/// Whether what runs on this filesystem, without SQLite, depends on the host's parameter of this name.
pub(crate) fn depends_on(filesystem: Option<On>, parameter: &str) -> bool {
    match parameter {
        "compose_us" => filesystem.is_some(),
        "scan_us" => filesystem == Some(On::OptFs),
        "sqlite_insert_us" | "small_call_us" => false,
        _ => true,
    }
}
