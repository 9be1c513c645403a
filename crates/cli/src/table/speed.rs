//! A disk or an emulated device, raw and through Weir, for people.

use weir_bench::{DeviceReport, ModeReport, RATIOS, Report, Summary};

use super::{
    CPU, Grid, amplification_cell, count, figure, is_cached, latencies, loss_window, page, paragraphs, place,
    range, ratios, window_words,
};
use crate::size::Size;

/// The benchmark's result.
pub(crate) fn speed(report: &Report) -> String {
    let Report { setting, summary, .. } = report;
    let latencies = latencies(&summary.modes) + "\n" + &paragraphs(LATENCIES);
    let of = "writes/s, of the bandwidth in bytes/s";
    let tables = [rates(report), latencies, ratios(&RATIOS, setting.plan.rounds, &summary.spread, of)];
    page(tables, &notes(report), &verdict(report), &setting.machine)
}

fn rates(report: &Report) -> String {
    let mut heads = vec![
        ("mode", 0, ""),
        ("writes/s", 0, ""),
        ("min..max", 1, ""),
        ("MiB/s", 5, ""),
        ("flushes", 4, FLUSHES),
        ("amplif.", 0, AMPLIFICATION),
        ("CPU us", 2, CPU),
        ("depth", 3, DEPTH),
    ];
    if report.device.is_some() {
        heads.push(("model", 0, MODEL));
    }
    let mut grid = Grid::new(&heads);
    for mode in &report.summary.modes {
        grid.row(rate(mode, report));
    }
    grid.text()
}

const FLUSHES: &str = "flushes: calls or commands that made data durable, all rounds together.";
const AMPLIFICATION: &str = "amplif.: bytes to the disk per byte of data. The host's rows count all that was written to the device, and have none (\"-\") where other programs used the machine: their writes cannot be told from the benchmark's. The other rows count their own commands.";
const DEPTH: &str = "depth: writes in flight on average; in modes that do not wait (B, P, its own barrier) commands at the disk, of which an emulated device's queue bounds the number.";
const MODEL: &str = "model: writes/s of the device's model alone: one round again in virtual time, where processor and timers cost nothing.";

fn rate(mode: &ModeReport, report: &Report) -> Vec<String> {
    let spread = report.summary.spread.iops.get(&mode.name);
    vec![
        mode.title.clone(),
        count(mode.iops),
        spread.map(|spread| range(report.setting.plan.rounds, spread, count)).unwrap_or_default(),
        format!("{:.0}", mode.bytes_per_second / f64::from(1 << 20)),
        count(mode.flushes as f64),
        amplification_cell(mode.write_amplification),
        figure(mode.cpu_us_per_op),
        figure(mode.queue_depth_mean),
        mode.model_iops.map_or_else(String::new, count),
    ]
}

/// What [`latencies`] holds.
const LATENCIES: &str = "\
From a write's beginning to its answer; in modes that do not wait (B, P, its own barrier), until submitting it returned.";

fn notes(report: &Report) -> String {
    let plan = &report.setting.plan;
    let mut lines = vec![
        loss_window(report.summary.loss_window, plan.loss_window_ms, plan.loss_window_bytes),
        "The ratio of barriers to no order is about Weir, and so is the cost of cleaning. The ratios to the raw disk and to the host's filesystem hold for this disk and this machine only.".to_owned(),
        rounds(report),
    ];
    if let Some(emulated) = &report.device {
        lines.push(device(emulated));
        lines.push(held_up(report));
    }
    lines.extend(place(&report.setting));
    lines.push(report.setting.machine.line() + ".");
    if is_cached(&report.setting) {
        lines.push("This filesystem refuses direct I/O: the raw modes and Weir go through the page cache, and their figures are those of memory.".to_owned());
    }
    let short = report.summary.modes.iter().filter(|mode| !mode.quota_reached);
    let short: Vec<&str> = short.map(|mode| mode.title.as_str()).collect();
    if !short.is_empty() {
        lines.push(format!("These modes ran out of time and wrote less: {}.", short.join("; ")));
    }
    lines.join("\n")
}

fn rounds(report: &Report) -> String {
    let plan = &report.setting.plan;
    let rounds = match plan.rounds {
        1 => "One round: spread unknown".to_owned(),
        rounds => format!("{rounds} rounds"),
    };
    format!(
        "{rounds}; over {}. Every mode is to write at least {}, four times what Weir may buffer; the final flush is in the measured time; {} blocks were read back and found right.",
        Size(plan.span_bytes),
        Size(plan.quota_bytes),
        report.summary.checked_blocks,
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
    let held_up = report.summary.modes.iter().filter(|mode| mode.is_held_up());
    let modes: Vec<String> = held_up.map(named).collect();
    if modes.is_empty() {
        return "Every mode came within 5 % of the device's model: the rates are the device's.".to_owned();
    }
    format!(
        "Held up by this machine (its processor, its timers, other programs), more than 5 % below the device's model: {}.",
        modes.join("; ")
    )
}

/// What to take home: two sentences.
fn verdict(report: &Report) -> String {
    let Summary { modes, ratios, loss_window, .. } = &report.summary;
    let rate = |name: &str| modes.iter().find(|mode| mode.name == name).map_or(0.0, |mode| mode.iops);
    let ratio = |name: &str| ratios.get(name).copied();
    let mut ordered = count(rate("weir_b"));
    let full = rate("weir_b_steady_80");
    if full > 0.0 {
        ordered += &format!(" ({} where the volume is 80 % full)", count(full));
    }
    let today = match ratio("ordered_vs_host_fdatasync") {
        Some(times) => format!(
            "With fdatasync after each, this disk takes {} writes/s; with a barrier of Weir after each, {ordered}: {} times as many.",
            count(rate("host_fdatasync")),
            figure(times),
        ),
        None => format!("With a barrier of Weir after each write, this device takes {ordered} writes/s."),
    };
    let cost = match ratio("cost_of_order") {
        Some(part) if part < 1.0 => format!("That is {} of the rate without any order.", figure(part)),
        _ if report.setting.machine.busy => "Other programs hide what order costs here.".to_owned(),
        _ => "Order costs nothing that this run could measure.".to_owned(),
    };
    format!("{today}\n{cost} A crash may take the last {}.", window_words(*loss_window))
}
