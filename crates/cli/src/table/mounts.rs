//! Mounts beside the host's filesystem, for people.

use weir_workload::{MOUNT_RATIOS, MountModeReport, MountReport};

use super::{
    aligned, amplification_cell, count, latencies, loss_window, none, place, promise_cell, range, ratios,
    table, window_cell,
};
use crate::size::Size;

/// The result of the benchmark of mounts.
pub(crate) fn mounts(report: &MountReport) -> String {
    let latencies = latencies(report.modes.iter().map(|mode| &mode.mode));
    let ratios = ratios(&MOUNT_RATIOS, report.plan.rounds, &report.spread, "calls/s");
    [rates(report), latencies, ratios, notes(report)].join("\n\n")
}

fn rates(report: &MountReport) -> String {
    let head = ["mode", "calls/s", "min..max", "promises", "loss window", "amplif.", "requests"];
    let mut table = table(&head);
    for mode in &report.modes {
        table.add_row(rate(mode, report));
    }
    aligned(table, 1) + "\n" + COLUMNS
}

/// What the columns of [`rates`] hold, as the table's own heads are short.
const COLUMNS: &str = "\
A call comes after each write of 4 KiB. durable: it is on the medium when the call returns. ordered: it is before all that is
  written later; a crash may take what is younger than the loss window, of which the largest seen is shown.
amplif.: bytes to the disk per byte of data. The host's rows count all that was written to the device, and have none
  (\"-\") where others used the machine; the other rows count the commands of the volume.
requests: of the kernel, which the server was answering at one time at most.";

fn rate(report: &MountModeReport, all: &MountReport) -> Vec<String> {
    let mode = &report.mode;
    let spread = all.spread.iops.get(&mode.name);
    vec![
        mode.title.clone(),
        count(mode.iops),
        spread.map(|spread| range(all.plan.rounds, spread, count)).unwrap_or_default(),
        promise_cell(report.promise),
        window_cell(report.loss_window),
        amplification_cell(mode.write_amplification),
        report.requests_max.map_or_else(none, |requests| requests.to_string()),
    ]
}

fn notes(report: &MountReport) -> String {
    let plan = &report.plan;
    let rounds = match plan.rounds {
        1 => "One round: spread unknown".to_owned(),
        rounds => format!("Median of {rounds} rounds"),
    };
    let mut lines = vec![
        loss_window(report.loss_window, plan.loss_window_ms, plan.loss_window_bytes),
        format!(
            "{rounds}; {:.1} s a turn, a last fsync of ordered modes in it. Servers run in processes of their own, each on a volume in a file of {}; the file that is written has up to {}.",
            plan.turn_seconds,
            Size(plan.volume_bytes),
            Size(plan.span_bytes),
        ),
        format!(
            "After each turn everything was unmounted and checked (clean), and the file was read back: {} blocks were found right.",
            report.checked_blocks,
        ),
        "The ratios hold for this disk and this machine only.".to_owned(),
        place(&report.disk),
        report.machine.line() + " (while the host's modes had their turns).",
    ];
    if report.modes.len() < weir_workload::Mode::MOUNTS.len() {
        lines.push("The kernel's ext4 on a volume was left out: loop devices need the superuser.".to_owned());
    }
    if !report.disk.direct_io {
        lines.push("This filesystem refuses direct I/O: volumes go through the page cache, and their figures are those of memory.".to_owned());
    }
    lines.join("\n")
}
