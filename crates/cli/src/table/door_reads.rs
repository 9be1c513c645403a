//! Reads through the doors and on the host's filesystem, for people.

use weir_bench::{DoorRates, DoorReadsReport};

use super::{Grid, figure, page, place, range};

/// The result of the benchmark of reads.
pub(crate) fn door_reads(report: &DoorReadsReport) -> String {
    let machine = report.setting.machine.line() + ".";
    let notes = place(&report.setting).into_iter().chain([machine]).collect::<Vec<_>>().join("\n");
    page([rates(report)], &notes, VERDICT, &report.setting.machine)
}

const RATIO: &str = "/ host: the door's rate divided by the host's, the median of the rounds: 1 where both are as fast, less where the door is slower.";
const VERDICT: &str = "Random reads are of 4 KiB, past the kernel's cache. mount is a file on a mount of Weir, disk the one file of weir disk.";

fn rates(report: &DoorReadsReport) -> String {
    let mut grid = Grid::new(&[
        ("reads", 0, ""),
        ("host", 0, ""),
        ("mount", 0, ""),
        ("/ host", 0, RATIO),
        ("min..max", 1, ""),
        ("disk", 0, ""),
        ("/ host", 0, ""),
        ("min..max", 2, ""),
    ]);
    for rates in &report.rates {
        grid.row(row(report.setting.plan.rounds, rates));
    }
    grid.text()
}

fn row(rounds: u32, rates: &DoorRates) -> Vec<String> {
    let none = || "-".to_owned();
    let rate = |place| rates.rates.get(place).map_or_else(none, |spread| format!("{:.0}", spread.median));
    let door = |door| match rates.ratios.get(door) {
        Some(spread) => [rate(door), figure(spread.median), range(rounds, spread, figure)],
        None => [rate(door), none(), none()],
    };
    [rates.title.clone(), rate("host")].into_iter().chain(door("mount")).chain(door("disk")).collect()
}
