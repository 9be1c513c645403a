//! BarrierFS beside the host's filesystem, for people.

use weir_workload::{FS_RATIOS, FsModeReport, FsReport};

use super::{
    CPU, Grid, PROMISES, amplification_cell, count, figure, is_cached, latencies, loss_window, page, place,
    promise_cell, range, ratios, window_cell, window_words,
};
use crate::size::Size;

/// The result of the benchmark of filesystems.
pub(crate) fn filesystems(report: &FsReport) -> String {
    let latencies = latencies(report.summary.modes.iter().map(|mode| &mode.mode));
    let ratios = ratios(&FS_RATIOS, report.setting.plan.rounds, &report.summary.spread, "calls/s");
    let tables = [rates(report), latencies + "\n" + LATENCIES, ratios];
    page(tables, &notes(report), &verdict(report), &report.setting.machine)
}

fn rates(report: &FsReport) -> String {
    let mut grid = Grid::new(&[
        ("mode", 0, ""),
        ("calls/s", 0, ""),
        ("min..max", 1, ""),
        ("promises", 0, PROMISES),
        ("loss window", 0, ""),
        ("amplif.", 2, AMPLIFICATION),
        ("CPU us", 3, CPU),
    ]);
    for mode in &report.summary.modes {
        grid.row(rate(mode, report));
    }
    grid.text()
}

const AMPLIFICATION: &str = "amplif.: bytes to the disk per byte of data. The host's rows count all that was written to the device, and have none (\"-\") where other programs used the machine; the other rows count the commands of the volume, with its headers and the journal.";

/// What the table of latencies holds.
const LATENCIES: &str = "From the beginning of a write until the call behind it returned.";

fn rate(report: &FsModeReport, all: &FsReport) -> Vec<String> {
    let mode = &report.mode;
    let spread = all.summary.spread.iops.get(&mode.name);
    vec![
        mode.title.clone(),
        count(mode.iops),
        spread.map(|spread| range(all.setting.plan.rounds, spread, count)).unwrap_or_default(),
        promise_cell(report.promise),
        window_cell(report.loss_window),
        amplification_cell(mode.write_amplification),
        figure(mode.cpu_us_per_op),
    ]
}

fn notes(report: &FsReport) -> String {
    let plan = &report.setting.plan;
    let rounds = match plan.rounds {
        1 => "One round: spread unknown".to_owned(),
        rounds => format!("Median of {rounds} rounds"),
    };
    let mut lines = vec![
        loss_window(report.summary.loss_window, plan.loss_window_ms, plan.loss_window_bytes),
        format!(
            "{rounds}; {:.1} s a turn, the last fsync of ordered modes in it. BarrierFS runs in this process, on a volume in a file of {}; its file has up to {}, and is in the page cache.",
            plan.turn_seconds,
            Size(plan.volume_bytes),
            Size(plan.span_bytes),
        ),
        format!(
            "After each turn the filesystem was unmounted and its image checked (clean), and the file was read back after volume and filesystem were opened again: {} blocks were found right.",
            report.summary.checked_blocks,
        ),
        "The ratios to the host's filesystem hold for this disk and this machine only.".to_owned(),
    ];
    lines.extend(place(&report.setting));
    lines.push(report.setting.machine.line() + ".");
    if is_cached(&report.setting) {
        lines.push("This filesystem refuses direct I/O: the volume goes through the page cache, and its figures are those of memory.".to_owned());
    }
    lines.join("\n")
}

/// What to take home: two sentences.
fn verdict(report: &FsReport) -> String {
    let rate = |name: &str| report.rates.get(name).copied().map_or_else(String::new, count);
    let ratio = |name: &str| report.summary.ratios.get(name).copied().map_or_else(String::new, figure);
    format!(
        "A durable fsync through BarrierFS has {} of the rate of the host's fsync; fbarrier, which only orders, has {} times that rate ({}/s).\nIn that order, a crash may take the last {}.",
        ratio("fsync_vs_host"),
        ratio("fbarrier_vs_host_fsync"),
        rate("fbarrier_per_second"),
        window_words(report.summary.loss_window),
    )
}
