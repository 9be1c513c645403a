//! Mounts beside the host's filesystem, for people.

use weir_workload::{MOUNT_RATIOS, MountModeReport, MountReport};

use super::{
    Grid, PROMISES, amplification_cell, count, figure, is_cached, latencies, loss_window, none, page, place,
    promise_cell, range, ratios, window_cell, window_words,
};
use crate::size::Size;

/// The result of the benchmark of mounts.
pub(crate) fn mounts(report: &MountReport) -> String {
    let latencies = latencies(report.summary.modes.iter().map(|mode| &mode.mode));
    let ratios = ratios(&MOUNT_RATIOS, report.setting.plan.rounds, &report.summary.spread, "calls/s");
    page([rates(report), latencies, ratios], &notes(report), &verdict(report), &report.setting.machine)
}

fn rates(report: &MountReport) -> String {
    let mut grid = Grid::new(&[
        ("mode", 0, ""),
        ("calls/s", 0, ""),
        ("min..max", 1, ""),
        ("promises", 0, PROMISES),
        ("loss window", 0, ""),
        ("amplif.", 2, AMPLIFICATION),
        ("requests", 3, REQUESTS),
    ]);
    for mode in &report.summary.modes {
        grid.row(rate(mode, report));
    }
    grid.text()
}

const AMPLIFICATION: &str = "amplif.: bytes to the disk per byte of data. The host's rows count all that was written to the device, and have none (\"-\") where other programs used the machine; the other rows count the commands of the volume.";
const REQUESTS: &str = "requests: the most requests of the kernel that the server was answering at one time.";

fn rate(report: &MountModeReport, all: &MountReport) -> Vec<String> {
    let mode = &report.mode;
    let spread = all.summary.spread.iops.get(&mode.name);
    vec![
        mode.title.clone(),
        count(mode.iops),
        spread.map(|spread| range(all.setting.plan.rounds, spread, count)).unwrap_or_default(),
        promise_cell(report.promise),
        window_cell(report.loss_window),
        amplification_cell(mode.write_amplification),
        report.requests_max.map_or_else(none, |requests| requests.to_string()),
    ]
}

fn notes(report: &MountReport) -> String {
    let plan = &report.setting.plan;
    let rounds = match plan.rounds {
        1 => "One round: spread unknown".to_owned(),
        rounds => format!("Median of {rounds} rounds"),
    };
    let mut lines = vec![
        loss_window(report.summary.loss_window, plan.loss_window_ms, plan.loss_window_bytes),
        format!(
            "{rounds}; {:.1} s a turn, a last fsync of ordered modes in it. Servers run in processes of their own, each on a volume in a file of {}; the file that is written has up to {}.",
            plan.turn_seconds,
            Size(plan.volume_bytes),
            Size(plan.span_bytes),
        ),
        format!(
            "After each turn everything was unmounted and checked (clean), and the file was read back: {} blocks were found right.",
            report.summary.checked_blocks,
        ),
        "The ratios hold for this disk and this machine only.".to_owned(),
    ];
    lines.extend(place(&report.setting));
    lines.push(report.setting.machine.line() + " (while the host's modes had their turns).");
    if report.summary.modes.len() < weir_workload::Mode::MOUNTS.len() {
        lines.push("The kernel's ext4 on a volume was left out: loop devices need the superuser.".to_owned());
    }
    if is_cached(&report.setting) {
        lines.push("This filesystem refuses direct I/O: volumes go through the page cache, and their figures are those of memory.".to_owned());
    }
    lines.join("\n")
}

/// What to take home: two sentences.
fn verdict(report: &MountReport) -> String {
    let ratio = |name: &str| report.summary.ratios.get(name).copied().map_or_else(none, figure);
    format!(
        "Through a mount, a durable write has {} of the rate of the host's filesystem, append + fsync {}; writes that are only ordered have {} times the rate of its fdatasync.\nIn that order, a crash may take the last {}.",
        ratio("durable_vs_host_fdatasync"),
        ratio("append_durable_vs_host_fsync"),
        ratio("ordered_writes_vs_host_fdatasync"),
        window_words(report.summary.loss_window),
    )
}
