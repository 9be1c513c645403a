//! Results for people: tables, and what they mean in plain words.

mod filesystems;
mod mounts;
mod sqlite;

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use weir_workload::{
    About, CleaningReport, DeviceReport, LossWindowReport, ModeReport, Place, Promise, RATIOS, Ratio,
    ReadsReport, RecoveryTime, Report, Spread, SpreadReport,
};

use crate::size::Size;

pub(crate) use filesystems::filesystems;
pub(crate) use mounts::mounts;
pub(crate) use sqlite::sqlite;

/// The benchmark's result.
pub(crate) fn speed(report: &Report) -> String {
    [
        rates(report),
        latencies(&report.modes) + "\n" + LATENCIES,
        ratios(&RATIOS, report.plan.rounds, &report.spread, "writes/s (share of the bandwidth: in bytes/s)"),
        notes(report),
    ]
    .join("\n\n")
}

fn rates(report: &Report) -> String {
    let mut heads = vec!["mode", "writes/s", "min..max", "MiB/s", "flushes", "amplif.", "CPU us", "depth"];
    if report.device.is_some() {
        heads.push("model");
    }
    let mut table = table(&heads);
    for mode in &report.modes {
        let model = mode.model_iops.map(count);
        table.add_row(rate(mode, report).into_iter().chain(model));
    }
    let model = if report.device.is_some() { MODEL_COLUMN } else { "" };
    aligned(table, 1) + "\n" + COLUMNS + model
}

/// What the columns of [`rates`] hold, as the table's own heads are short.
const COLUMNS: &str = "\
flushes: calls or commands that made data durable, all rounds together. CPU us: processor time of the program per write.
amplif.: bytes to the disk per byte of data. The host's rows count all that was written to the device, and have none
  (\"-\") where others used the machine, whose writes cannot be told from theirs; the other rows count their own commands.
depth: writes in flight on average; in modes that do not wait (B, P, its own barrier) commands at the disk, of which
  an emulated device's queue bounds the number.";

/// And that of the column only emulated devices have.
const MODEL_COLUMN: &str = "
model: writes/s of the device's model alone: one round again in virtual time, where processor and timers cost nothing.";

fn rate(mode: &ModeReport, report: &Report) -> Vec<String> {
    vec![
        mode.title.clone(),
        count(mode.iops),
        report
            .spread
            .iops
            .get(&mode.name)
            .map(|spread| range(report.plan.rounds, spread, count))
            .unwrap_or_default(),
        format!("{:.0}", mode.bytes_per_second / f64::from(1 << 20)),
        count(mode.flushes as f64),
        amplification_cell(mode.write_amplification),
        figure(mode.cpu_us_per_op),
        figure(mode.queue_depth_mean),
    ]
}

fn latencies<'a>(modes: impl IntoIterator<Item = &'a ModeReport>) -> String {
    let mut table = table(&["mode", "mean us", "p50", "p99", "p99.9", "p99.99"]);
    for mode in modes {
        let latency = &mode.latency_us;
        let figures = [latency.mean, latency.p50, latency.p99, latency.p999, latency.p9999].map(figure);
        table.add_row(std::iter::once(mode.title.clone()).chain(figures));
    }
    aligned(table, 1)
}

/// What [`latencies`] holds.
const LATENCIES: &str = "\
From a write's beginning to its answer; in modes that do not wait (B, P, its own barrier), until submitting it returned.";

/// How fast an emulated device is read, and what may lie on it.
pub(crate) fn reads(report: &ReadsReport) -> String {
    let heads =
        ["reads of", "4 KiB random/s", "x device", "256 KiB MiB/s", "x device", "overwritten", "x device"];
    let mut table = table(&heads);
    for rates in &report.rates {
        table.add_row(vec![
            rates.ground.name().to_owned(),
            count(rates.random_iops),
            figure(rates.random_ratio),
            figure(rates.sequential_mib),
            figure(rates.sequential_ratio),
            figure(rates.overwritten_mib),
            figure(rates.overwritten_ratio),
        ]);
    }
    let told = format!(
        "{}, {:.0} MiB, in virtual time. Random: each block once, {} in flight. 256 KiB: one after the other, of what was
written so; overwritten: of what was then written over at random. Trace hash {}.",
        report.device,
        report.span_blocks as f64 / 256.0,
        report.depth,
        report.trace_hash,
    );
    aligned(table, 1) + "\n" + &told
}

/// Smallest and largest of the rounds. One round has no spread.
fn range(rounds: u32, spread: &Spread, written: fn(f64) -> String) -> String {
    if rounds < 2 {
        return "-".to_owned();
    }
    format!("{}..{}", written(spread.min), written(spread.max))
}

fn ratios(ratios: &[Ratio], rounds: u32, found: &SpreadReport, what: &str) -> String {
    let mut table = table(&["ratio", "median", "min..max", "about", "name in --json"]);
    let mut meanings = String::new();
    for ratio in ratios {
        let Some(spread) = found.ratios.get(ratio.name) else { continue };
        let about = if ratio.about == About::Weir { "Weir" } else { "this disk" };
        table.add_row(vec![
            ratio.title.to_owned(),
            figure(spread.median),
            range(rounds, spread, figure),
            about.to_owned(),
            ratio.name.to_owned(),
        ]);
        // Writing to a string cannot fail.
        let _ = write!(meanings, "\n{}: {}.", ratio.title, ratio.meaning);
    }
    aligned(table, 1)
        + &format!(
            "\nA ratio is the first over the second of what it compares, in {what}; above 1\nthe first is faster.\n"
        )
        + &meanings
}

fn notes(report: &Report) -> String {
    let plan = &report.plan;
    let mut lines = vec![
        loss_window(report.loss_window, plan.loss_window_ms, plan.loss_window_bytes),
        "The cost of order, and what cleaning costs in steady state, are about Weir. The ratios to the raw disk and to the host's filesystem hold for this disk and this machine only.".to_owned(),
        rounds(report),
    ];
    if let Some(emulated) = &report.device {
        lines.push(device(emulated));
        lines.push(held_up(report));
    }
    lines.extend(report.disk.as_ref().map(place));
    lines.push(report.machine.line() + ".");
    if report.disk.as_ref().is_some_and(|disk| !disk.direct_io) {
        lines.push("This filesystem refuses direct I/O: the raw modes and Weir go through the page cache, and their figures are those of memory.".to_owned());
    }
    let short: Vec<&str> =
        report.modes.iter().filter(|mode| !mode.quota_reached).map(|mode| mode.title.as_str()).collect();
    if !short.is_empty() {
        lines.push(format!("Out of time before the quota: {}.", short.join("; ")));
    }
    lines.join("\n")
}

fn place(disk: &Place) -> String {
    format!(
        "Measured in {} on {} ({}).",
        disk.directory.display(),
        disk.device.as_deref().unwrap_or("no block device"),
        disk.filesystem.as_deref().unwrap_or("unknown filesystem"),
    )
}

fn device(device: &DeviceReport) -> String {
    let DeviceReport { name, title, mechanism, backing } = device;
    let bytes =
        backing.as_ref().map_or_else(|| "memory".to_owned(), |path| format!("files in {}", path.display()));
    let legacy =
        if *mechanism == "none" { "\nB on the device itself is left out: it keeps no barriers." } else { "" };
    format!(
        "Measured on {name} ({title}), emulated in wall time, its bytes in {bytes}. Barrier mechanism: {mechanism}. The raw modes and each volume have a device of their own.\n\
         The modes of the host's filesystem are left out: there is none on an emulated device.{legacy}",
    )
}

/// Modes that the device's model does faster: there the rate is this machine's and not the device's.
fn held_up(report: &Report) -> String {
    let named = |mode: &ModeReport| {
        let model = mode.model_iops.map_or_else(String::new, count);
        format!("{} ({} of {model})", mode.title, count(mode.iops))
    };
    let modes: Vec<String> = report.modes.iter().filter(|mode| mode.is_held_up()).map(named).collect();
    if modes.is_empty() {
        return "Every mode came within 5 % of the device's model: the rates are the device's.".to_owned();
    }
    format!(
        "Held up by this machine (its processor, its timers, other programs), more than 5 % below the device's model: {}.",
        modes.join("; ")
    )
}

/// The bytes are a hard limit; the time is not, as nobody can tell a disk how long to take.
fn loss_window(seen: LossWindowReport, bound_ms: u64, bound_bytes: u64) -> String {
    let time = if seen.ms_max > bound_ms as f64 {
        format!("time: {bound_ms} ms, EXCEEDED: the disk took longer to flush")
    } else {
        format!("time: {bound_ms} ms, kept")
    };
    format!(
        "loss window: at most {:.1} ms and {} of acknowledged writes were not yet durable at any moment ({time}; bytes: {}, a hard limit).",
        seen.ms_max,
        Size(seen.bytes_max),
        Size(bound_bytes),
    )
}

/// A loss window as a cell, rounded up: whole MiB, below 1 MiB whole KiB.
fn window_cell(seen: Option<LossWindowReport>) -> String {
    seen.map_or_else(none, |LossWindowReport { ms_max, bytes_max }| {
        let unit = if bytes_max < 1 << 20 { 1 << 10 } else { 1 << 20 };
        format!("{ms_max:.0} ms, {}", Size(bytes_max.next_multiple_of(unit)))
    })
}

/// What a call promises, as a cell.
fn promise_cell(promise: Option<Promise>) -> String {
    match promise {
        Some(Promise::Durable) => "durable".to_owned(),
        Some(Promise::Ordered) => "ordered".to_owned(),
        None => none(),
    }
}

/// Bytes to the disk per byte of data, as a cell.
fn amplification_cell(factor: Option<f64>) -> String {
    factor.map_or_else(none, |factor| format!("{factor:.2}"))
}

/// The cell of what a row does not have.
fn none() -> String {
    "-".to_owned()
}

fn rounds(report: &Report) -> String {
    let plan = &report.plan;
    let rounds = match plan.rounds {
        1 => "One round: spread unknown".to_owned(),
        rounds => format!("{rounds} rounds"),
    };
    format!(
        "{rounds}; over {}. Every mode writes at least {}, four times what Weir may buffer; the final flush is in the measured time; {} blocks were read back and found right.",
        Size(plan.span_bytes),
        Size(plan.quota_bytes),
        report.checked_blocks,
    )
}

/// What cleaning costs.
pub(crate) fn cleaning(report: &CleaningReport) -> String {
    let mut table = table(&["cleaning", "writes", "utilisation", "write amplification", "moved per write"]);
    for case in &report.cases {
        table.add_row(vec![
            case.policy.replace('_', "-"),
            format!("{:?}", case.distribution).to_lowercase(),
            format!("{} %", case.utilisation_percent),
            format!("{:.2}", case.write_amplification),
            format!("{:.2}", case.moved_per_write),
        ]);
    }
    format!(
        "{}\n\nBlocks to the disk per block written, on a volume of {} that was written over twice before; about Weir, not this disk.",
        aligned(table, 2),
        Size(report.file_bytes),
    )
}

/// How long recovery takes.
pub(crate) fn recovery(report: &RecoveryTime) -> String {
    let spread = Spread::of(report.recovery_ms.iter().copied());
    let times = spread.map_or_else(String::new, |spread| {
        format!("{} ms (min..max {}..{})", figure(spread.median), figure(spread.min), figure(spread.max))
    });
    format!(
        "recovery after {} written since the last checkpoint: {times}\n{} records found in {} of log; {} blocks read back and found right.",
        Size(report.written_bytes),
        report.records,
        Size(report.read_bytes),
        report.checked_blocks,
    )
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header(header.iter().copied().map(Cell::new).collect::<Vec<_>>());
    table
}

/// The table as text, with figures to the right from column `from` on.
fn aligned(mut table: Table, from: usize) -> String {
    for column in table.column_iter_mut().skip(from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

/// A count with a unit: 950, 15.7 K, 1.26 M.
fn count(value: f64) -> String {
    match value {
        value if value >= 999_500.0 => format!("{:.2} M", value / 1e6),
        value if value >= 9_999.5 => format!("{:.1} K", value / 1e3),
        value => format!("{value:.0}"),
    }
}

/// A figure with about three digits.
fn figure(value: f64) -> String {
    match value {
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_their_digits() {
        assert_eq!([count(950.4), count(15_700.0), count(1_260_000.0)], ["950", "15.7 K", "1.26 M"]);
        assert_eq!([figure(0.98), figure(10.24), figure(1234.5)], ["0.98", "10.2", "1234"]);
    }

    #[test]
    fn an_exceeded_loss_window_is_said() {
        let seen = |ms_max| loss_window(LossWindowReport { ms_max, bytes_max: 1 << 20 }, 100, 64 << 20);
        assert!(seen(2651.5).contains("2651.5 ms and 1 MiB"), "{}", seen(2651.5));
        assert!(seen(100.1).contains("100 ms, EXCEEDED: the disk took longer"), "{}", seen(100.1));
        assert!(!seen(100.0).contains("EXCEEDED"), "{}", seen(100.0));
    }

    #[test]
    fn a_small_loss_window_is_not_called_none() {
        let cell = |bytes_max| window_cell(Some(LossWindowReport { ms_max: 79.6, bytes_max }));
        assert_eq!([cell(0), cell(8192)], ["80 ms, 0 B", "80 ms, 8 KiB"]);
        assert_eq!([cell((1 << 20) - 1), cell(1 << 20)], ["80 ms, 1 MiB", "80 ms, 1 MiB"]);
        assert_eq!([cell((63 << 20) + 4096), cell(64 << 20)], ["80 ms, 64 MiB", "80 ms, 64 MiB"]);
        assert_eq!(window_cell(None), "-");
    }

    #[test]
    fn recovery_is_told() {
        let report = RecoveryTime {
            seed: 1,
            written_bytes: 1 << 30,
            records: 262_144,
            read_bytes: 1 << 30,
            recovery_ms: vec![300.0, 100.0, 200.0],
            checked_blocks: 5,
        };
        let text = recovery(&report);
        assert!(text.contains("1 GiB written") && text.contains("200 ms (min..max 100..300)"), "{text}");
    }
}
