//! How far a benchmark or a figure is, on standard error.

use std::io::Write as _;

use indicatif::{ProgressBar, ProgressStyle};

use crate::error::CliError;

/// Shows a bar on a terminal, and elsewhere writes a line for each stage.
pub(crate) struct ProgressReporter {
    bar: ProgressBar,
    stage: String,
}

impl ProgressReporter {
    pub(crate) fn new() -> Result<ProgressReporter, CliError> {
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {wide_msg}");
        let bar = ProgressBar::no_length().with_style(style.map_err(std::io::Error::other)?);
        Ok(ProgressReporter { bar, stage: String::new() })
    }

    /// `what` is under way in `stage`; of `total` steps, `done` are over. A line has the `seconds` that have passed, where the
    /// caller reads a clock.
    pub(crate) fn report(
        &mut self,
        (done, total): (u64, u64),
        seconds: Option<u64>,
        stage: String,
        what: &str,
    ) {
        if self.bar.is_hidden() {
            return self.line(seconds, stage);
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
        self.bar.set_message(if what.is_empty() { stage } else { format!("{stage}: {what}") });
        self.bar.tick();
    }

    fn line(&mut self, seconds: Option<u64>, stage: String) {
        if stage != self.stage {
            let seconds = seconds.map_or_else(String::new, |seconds| format!("{seconds} s: "));
            // Where standard error is closed the work continues: its result is the purpose.
            let _ = writeln!(std::io::stderr(), "weir: {seconds}{stage}");
            self.stage = stage;
        }
    }

    /// Takes the bar away.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
