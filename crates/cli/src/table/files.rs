//! BarrierFS and F2FS, or mounts, beside the host's filesystem, for people.

use weir_bench::{FS_RATIOS, FileReport, MOUNT_RATIOS, Mode, Ratio};

use super::{
    CPU, Grid, PROMISES, amplification_cell, count, figure, is_cached, latencies, loss_window, none, page,
    place, promise_cell, range, ratios, window_cell, window_words,
};
use crate::size::Size;

/// What the column of amplification holds, with what the rows beside the host's count.
macro_rules! amplification {
    ($commands:literal) => {
        concat!(
            "amplif.: bytes to the disk per byte of data. The host's rows count all that was written to the device, and have none (\"-\") where other programs used the machine; the other rows count the commands of the volume",
            $commands
        )
    };
}

/// What is said of one of the two benchmarks.
struct Words {
    ratios: &'static [Ratio],
    amplification: &'static str,
    /// The last column, and what it means.
    last: (&'static str, &'static str),
    /// What the table of latencies holds, where that is not plain.
    latencies: &'static str,
    /// How a turn is measured.
    turn: &'static str,
    /// What was done after a turn.
    checked: &'static str,
    ratios_hold: &'static str,
    machine: &'static str,
    /// What goes through the page cache if direct I/O is refused.
    cached: &'static str,
}

const IN_PROCESS: Words = Words {
    ratios: &FS_RATIOS,
    amplification: amplification!(", with its headers and what the filesystem writes beside the data."),
    last: ("CPU us", CPU),
    latencies: "\nFrom the beginning of a write until the call behind it returned.",
    turn: "the last fsync of ordered modes in it. BarrierFS and F2FS run in this process, on a volume in a file of {volume}; their file has up to {span}, and is in the page cache.",
    checked: "the filesystem was unmounted and its image checked (clean), and the file was read back after volume and filesystem were opened again",
    ratios_hold: "The ratios to the host's filesystem hold for this disk and this machine only.",
    machine: ".",
    cached: "the volume goes through the page cache, and its figures are those of memory.",
};

const ON_MOUNTS: Words = Words {
    ratios: &MOUNT_RATIOS,
    amplification: amplification!("."),
    last: (
        "requests",
        "requests: the most requests of the kernel that the server was answering at one time.",
    ),
    latencies: "",
    turn: "a last fsync of ordered modes in it. Servers run in processes of their own, each on a volume in a file of {volume}; the file that is written has up to {span}.",
    checked: "everything was unmounted and checked (clean), and the file was read back",
    ratios_hold: "The ratios hold for this disk and this machine only.",
    machine: " (while the host's modes had their turns).",
    cached: "volumes go through the page cache, and their figures are those of memory.",
};

/// The result of the benchmark of filesystems.
pub(crate) fn filesystems(report: &FileReport) -> String {
    let rate = |name: &str| report.rates.get(name).copied().map_or_else(String::new, count);
    let ratio = |name: &str| report.summary.ratios.get(name).copied().map_or_else(String::new, figure);
    let verdict = format!(
        "A durable fsync through BarrierFS has {} of the rate of the host's fsync; fbarrier, which only orders, has {} times that rate ({}/s).",
        ratio("fsync_vs_host"),
        ratio("fbarrier_vs_host_fsync"),
        rate("fbarrier_per_second"),
    );
    files(report, &IN_PROCESS, &verdict)
}

/// The result of the benchmark of mounts.
pub(crate) fn mounts(report: &FileReport) -> String {
    let ratio = |name: &str| report.summary.ratios.get(name).copied().map_or_else(none, figure);
    let verdict = format!(
        "Through a mount, a durable write has {} of the rate of the host's filesystem, append + fsync {}; writes that are only ordered have {} times the rate of its fdatasync.",
        ratio("durable_vs_host_fdatasync"),
        ratio("append_durable_vs_host_fsync"),
        ratio("ordered_writes_vs_host_fdatasync"),
    );
    files(report, &ON_MOUNTS, &verdict)
}

fn files(report: &FileReport, words: &Words, verdict: &str) -> String {
    let latencies = latencies(report.summary.modes.iter().map(|mode| &mode.mode)) + words.latencies;
    let ratios = ratios(words.ratios, report.setting.plan.rounds, &report.summary.spread, "calls/s");
    let window = window_words(report.summary.loss_window);
    let verdict = format!("{verdict}\nIn that order, a crash may take the last {window}.");
    page([rates(report, words), latencies, ratios], &notes(report, words), &verdict, &report.setting.machine)
}

fn rates(report: &FileReport, words: &Words) -> String {
    let mut grid = Grid::new(&[
        ("mode", 0, ""),
        ("calls/s", 0, ""),
        ("min..max", 1, ""),
        ("promises", 0, PROMISES),
        ("loss window", 0, ""),
        ("amplif.", 2, words.amplification),
        (words.last.0, 3, words.last.1),
    ]);
    for found in &report.summary.modes {
        let mode = &found.mode;
        let spread = report.summary.spread.iops.get(&mode.name);
        grid.row(vec![
            mode.title.clone(),
            count(mode.iops),
            spread.map(|spread| range(report.setting.plan.rounds, spread, count)).unwrap_or_default(),
            promise_cell(found.promise),
            window_cell(found.loss_window),
            amplification_cell(mode.write_amplification),
            match found.server {
                Some(server) => server.requests_max.map_or_else(none, |requests| requests.to_string()),
                None => figure(mode.cpu_us_per_op),
            },
        ]);
    }
    grid.text()
}

fn notes(report: &FileReport, words: &Words) -> String {
    let plan = &report.setting.plan;
    let rounds = match plan.rounds {
        1 => "One round: spread unknown".to_owned(),
        rounds => format!("Median of {rounds} rounds"),
    };
    let sizes = [("{volume}", plan.volume_bytes), ("{span}", plan.span_bytes)];
    let turn = sizes
        .into_iter()
        .fold(words.turn.to_owned(), |words, (size, bytes)| words.replace(size, &Size(bytes).to_string()));
    let mut lines = vec![
        loss_window(report.summary.loss_window, plan.loss_window_ms, plan.loss_window_bytes),
        format!("{rounds}; {:.1} s a turn, {turn}", plan.turn_seconds),
        format!(
            "After each turn {}: {} blocks were found right.",
            words.checked, report.summary.checked_blocks
        ),
        words.ratios_hold.to_owned(),
    ];
    lines.extend(place(&report.setting));
    lines.push(report.setting.machine.line() + words.machine);
    let modes = &report.summary.modes;
    if modes.iter().any(|mode| mode.server.is_some()) && modes.len() < Mode::MOUNTS.len() {
        lines.push("The kernel's ext4 on a volume was left out: loop devices need the superuser.".to_owned());
    }
    if is_cached(&report.setting) {
        lines.push(format!("This filesystem refuses direct I/O: {}", words.cached));
    }
    lines.join("\n")
}
