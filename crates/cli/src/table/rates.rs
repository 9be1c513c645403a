//! The table of rates of a benchmark of filesystems, or of mounts.

use weir_workload::{LossWindowReport, ModeReport, Promise, SpreadReport};

use super::{Grid, PROMISES, amplification_cell, count, promise_cell, range, window_cell};

/// A mode of the benchmark, and what stands in the last column of its row.
pub(super) struct Rated<'a> {
    pub mode: &'a ModeReport,
    pub promise: Option<Promise>,
    pub loss_window: Option<LossWindowReport>,
    pub last: String,
}

/// The table, with what its columns `amplif.` and `last` mean.
pub(super) fn rates<'a>(
    modes: impl Iterator<Item = Rated<'a>>,
    (rounds, spread): (u32, &SpreadReport),
    amplification: &'static str,
    (last, meaning): (&'static str, &'static str),
) -> String {
    let mut grid = Grid::new(&[
        ("mode", 0, ""),
        ("calls/s", 0, ""),
        ("min..max", 1, ""),
        ("promises", 0, PROMISES),
        ("loss window", 0, ""),
        ("amplif.", 2, amplification),
        (last, 3, meaning),
    ]);
    for Rated { mode, promise, loss_window, last } in modes {
        let spread = spread.iops.get(&mode.name);
        grid.row(vec![
            mode.title.clone(),
            count(mode.iops),
            spread.map(|spread| range(rounds, spread, count)).unwrap_or_default(),
            promise_cell(promise),
            window_cell(loss_window),
            amplification_cell(mode.write_amplification),
            last,
        ]);
    }
    grid.text()
}

/// How many rounds the figures are the median of.
pub(super) fn rounds_words(rounds: u32) -> String {
    match rounds {
        1 => "One round: spread unknown".to_owned(),
        rounds => format!("Median of {rounds} rounds"),
    }
}
