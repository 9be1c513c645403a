//! BarrierFS beside the host's filesystem, for people.

use weir_workload::{FS_RATIOS, FsReport};

use super::rates::{Rated, rates, rounds_words};
use super::{CPU, count, figure, is_cached, latencies, loss_window, page, place, ratios, window_words};
use crate::size::Size;

/// The result of the benchmark of filesystems.
pub(crate) fn filesystems(report: &FsReport) -> String {
    let latencies = latencies(report.summary.modes.iter().map(|mode| &mode.mode));
    let ratios = ratios(&FS_RATIOS, report.setting.plan.rounds, &report.summary.spread, "calls/s");
    let tables = [rates_table(report), latencies + "\n" + LATENCIES, ratios];
    page(tables, &notes(report), &verdict(report), &report.setting.machine)
}

fn rates_table(report: &FsReport) -> String {
    let modes = report.summary.modes.iter().map(|found| Rated {
        mode: &found.mode,
        promise: found.promise,
        loss_window: found.loss_window,
        last: figure(found.mode.cpu_us_per_op),
    });
    let measured = (report.setting.plan.rounds, &report.summary.spread);
    rates(modes, measured, AMPLIFICATION, ("CPU us", CPU))
}

const AMPLIFICATION: &str = "amplif.: bytes to the disk per byte of data. The host's rows count all that was written to the device, and have none (\"-\") where other programs used the machine; the other rows count the commands of the volume, with its headers and the journal.";

/// What the table of latencies holds.
const LATENCIES: &str = "From the beginning of a write until the call behind it returned.";

fn notes(report: &FsReport) -> String {
    let plan = &report.setting.plan;
    let rounds = rounds_words(plan.rounds);
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
