//! Mounts beside the host's filesystem, for people.

use weir_workload::{MOUNT_RATIOS, MountReport};

use super::rates::{Rated, rates, rounds_words};
use super::{figure, is_cached, latencies, loss_window, none, page, place, ratios, window_words};
use crate::size::Size;

/// The result of the benchmark of mounts.
pub(crate) fn mounts(report: &MountReport) -> String {
    let latencies = latencies(report.summary.modes.iter().map(|mode| &mode.mode));
    let ratios = ratios(&MOUNT_RATIOS, report.setting.plan.rounds, &report.summary.spread, "calls/s");
    page([rates_table(report), latencies, ratios], &notes(report), &verdict(report), &report.setting.machine)
}

fn rates_table(report: &MountReport) -> String {
    let modes = report.summary.modes.iter().map(|found| Rated {
        mode: &found.mode,
        promise: found.promise,
        loss_window: found.loss_window,
        last: found.requests_max.map_or_else(none, |requests| requests.to_string()),
    });
    let measured = (report.setting.plan.rounds, &report.summary.spread);
    rates(modes, measured, AMPLIFICATION, ("requests", REQUESTS))
}

const AMPLIFICATION: &str = "amplif.: bytes to the disk per byte of data. The host's rows count all that was written to the device, and have none (\"-\") where other programs used the machine; the other rows count the commands of the volume.";
const REQUESTS: &str = "requests: the most requests of the kernel that the server was answering at one time.";

fn notes(report: &MountReport) -> String {
    let plan = &report.setting.plan;
    let rounds = rounds_words(plan.rounds);
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
