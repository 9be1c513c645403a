//! Results for people: tables, and what they mean in plain words.

mod door_reads;
mod everyday;
mod files;
mod grid;
mod speed;
mod sqlite;
mod summary;
mod text;

use weir_bench::{
    About, CleanerReport, CleanersCase, CleanersReport, CleaningReport, LossWindowReport, Machine,
    ModeReport, Promise, Ratio, ReadsReport, RecoveryTime, Setting, SimulatedReport, Spread, SpreadReport,
};
use weir_volume::LossWindow;

use crate::size::Size;

pub(crate) use door_reads::door_reads;
pub(crate) use everyday::everyday;
pub(crate) use files::{filesystems, mounts};
pub(crate) use grid::Grid;
pub(crate) use speed::speed;
pub(crate) use sqlite::sqlite;
pub(crate) use summary::summary;
pub(crate) use text::paragraphs;

/// A whole result: tables, then sentences. The verdict repeats it if the figures cannot be trusted.
fn page<const N: usize>(tables: [String; N], notes: &str, verdict: &str, machine: &Machine) -> String {
    let busy = "\nOther programs used the machine meanwhile (BUSY): measure again when it is idle.";
    let verdict = verdict.to_owned() + if machine.busy { busy } else { "" };
    let words = [notes, &verdict].map(paragraphs);
    tables.into_iter().chain(words).collect::<Vec<_>>().join("\n\n")
}

/// What columns of several tables hold.
const CPU: &str = "CPU us: processor time of the program per write.";
const PROMISES: &str = "A call comes after each write of 4 KiB. durable: the write is on the medium when the call returns. ordered: it is before all that is written later; a crash may take what is younger than the loss window, of which the largest seen is shown.";

fn latencies<'a>(modes: impl IntoIterator<Item = &'a ModeReport>) -> String {
    let mut grid = Grid::new(&[
        ("mode", 0, ""),
        ("mean us", 0, ""),
        ("p50", 0, ""),
        ("p99", 0, ""),
        ("p99.9", 1, ""),
        ("p99.99", 2, ""),
    ]);
    for mode in modes {
        let latency = &mode.latency_us;
        let figures = [latency.mean, latency.p50, latency.p99, latency.p999, latency.p9999].map(figure);
        grid.row(std::iter::once(mode.title.clone()).chain(figures).collect());
    }
    grid.text()
}

/// How fast an emulated device is read, and what may lie on it.
pub(crate) fn reads(report: &ReadsReport) -> String {
    let mut grid = Grid::new(&[
        ("reads of", 0, ""),
        ("random/s", 0, ""),
        ("share", 0, ""),
        ("MiB/s", 0, ""),
        ("share", 0, ""),
        ("rewritten", 0, ""),
        ("share", 0, ""),
    ]);
    for rates in &report.rates {
        grid.row(vec![
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
        "{}, {:.0} MiB, in virtual time. random/s: each block of 4 KiB once, {} in flight. MiB/s: reads of 256 KiB, one after the other, of data written in that order; rewritten: the same after random overwrites. share: of the device's own rate. Trace hash {}.",
        report.device,
        report.span_blocks as f64 / 256.0,
        report.depth,
        report.trace_hash,
    );
    grid.text() + "\n" + &paragraphs(&told)
}

/// How fast a device was simulated, and what it did.
pub(crate) fn simulated(report: &SimulatedReport) -> String {
    let gib = |blocks: u64| blocks as f64 / f64::from(1 << 18);
    let erased = match report.erases {
        0 => "the device never had to clean".to_owned(),
        erases => format!("{erases} erase blocks erased"),
    };
    format!(
        "{}, {:.1} GiB{}: {} random writes of 4 KiB over {:.1} GiB, {} in flight\n\
         simulated     {:.2} s of the device's time, {:.0} writes a second\n\
         took          {:.2} s, {:.0} writes simulated a second\n\
         memory        {:.0} MiB at most\n\
         amplification {:.2}, {erased}\n\
         trace hash    {}",
        report.device,
        gib(report.device_blocks),
        if report.preconditioned { ", full" } else { "" },
        report.writes,
        gib(report.span_blocks),
        report.depth,
        report.simulated_seconds,
        report.simulated_iops,
        report.wall_seconds,
        report.simulated_per_second,
        report.peak_rss_bytes as f64 / 1_048_576.0,
        report.write_amplification,
        report.trace_hash,
    )
}

/// Smallest and largest of the rounds. One round has no spread.
fn range(rounds: u32, spread: &Spread, written: fn(f64) -> String) -> String {
    if rounds < 2 {
        return "-".to_owned();
    }
    format!("{}..{}", written(spread.min), written(spread.max))
}

fn ratios(ratios: &[Ratio], rounds: u32, found: &SpreadReport, what: &str) -> String {
    let found = |ratio: &Ratio| found.ratios.get(ratio.name).copied();
    let told: Vec<(&Ratio, Spread)> =
        ratios.iter().filter_map(|ratio| Some((ratio, found(ratio)?))).collect();
    let mut grid = Grid::new(&[
        ("ratio", 0, ""),
        ("median", 0, ""),
        ("min..max", 0, ""),
        ("about", 1, ""),
        ("name in --json", 2, ""),
    ]);
    for (ratio, spread) in &told {
        let about = if ratio.about == About::Weir { "Weir" } else { "this disk" };
        grid.row(vec![
            ratio.title.to_owned(),
            figure(spread.median),
            range(rounds, spread, figure),
            about.to_owned(),
            ratio.name.to_owned(),
        ]);
    }
    let meanings: Vec<String> =
        told.iter().map(|(ratio, _)| format!("{}: {}.", ratio.title, ratio.meaning)).collect();
    let rule = format!(
        "A ratio compares two rates, in {what}. It is the first divided by the second: above 1 the first is faster."
    );
    grid.text() + "\n" + &paragraphs(&format!("{rule}\n\n{}", meanings.join("\n")))
}

/// Where the files were; nothing of an emulated device.
fn place<P>(setting: &Setting<P>) -> Option<String> {
    let disk = setting.disk.as_ref()?;
    Some(format!(
        "Measured in {} on {} ({}).",
        disk.directory.display(),
        disk.device.as_deref().unwrap_or("no block device"),
        disk.filesystem.as_deref().unwrap_or("unknown filesystem"),
    ))
}

/// Whether the files were in the page cache.
fn is_cached<P>(setting: &Setting<P>) -> bool {
    setting.disk.as_ref().is_some_and(|disk| !disk.direct_io)
}

/// The bytes are a hard limit; the time is not, as a disk takes as long as it takes.
fn loss_window(seen: LossWindowReport, bound_ms: u64, bound_bytes: u64) -> String {
    let time = if seen.ms_max > bound_ms as f64 {
        format!("time: {bound_ms} ms, EXCEEDED: the disk took longer to flush")
    } else {
        format!("time: {bound_ms} ms, kept")
    };
    let usual = LossWindow::default().bytes;
    let volume = match bound_bytes < usual {
        true => format!(" of this run's small volume; a mount has {}", Size(usual)),
        false => String::new(),
    };
    format!(
        "loss window: at most {:.1} ms and {} of acknowledged writes were not yet durable at any moment ({time}; bytes: {}, a hard limit{volume}).",
        seen.ms_max,
        Size(seen.bytes_max),
        Size(bound_bytes),
    )
}

/// A loss window in a sentence, rounded up to whole milliseconds and KiB.
fn window_words(seen: LossWindowReport) -> String {
    format!("{:.0} ms and {} of writes", seen.ms_max.ceil(), Size(seen.bytes_max.next_multiple_of(1 << 10)))
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
    promise.map_or_else(none, |promise| promise.name().to_owned())
}

/// Bytes to the disk per byte of data, as a cell.
fn amplification_cell(factor: Option<f64>) -> String {
    factor.map_or_else(none, |factor| format!("{factor:.2}"))
}

/// The cell of what a row does not have.
fn none() -> String {
    "-".to_owned()
}

/// What cleaning costs.
pub(crate) fn cleaning(report: &CleaningReport) -> String {
    let mut grid = Grid::new(&[
        ("cleaning", 0, ""),
        ("writes", 0, ""),
        ("utilisation", 0, ""),
        ("write amplification", 0, ""),
        ("moved per write", 0, ""),
        ("stall p99, us", 1, ""),
        ("max, us", 1, ""),
        ("read p99, us", 1, ""),
    ])
    .words(2);
    for case in &report.cases {
        grid.row(vec![
            case.policy.replace('_', "-"),
            format!("{:?}", case.distribution).to_lowercase(),
            format!("{} %", case.utilisation_percent),
            format!("{:.2}", case.write_amplification),
            format!("{:.2}", case.moved_per_write),
            format!("{:.0}", case.stall_p99_us),
            format!("{:.0}", case.stall_max_us),
            format!("{:.0}", case.read_p99_us),
        ]);
    }
    let told = format!(
        "Blocks to the disk per block written, on a volume of {} that was written over twice before; about Weir, not this disk. The times are about both: stall is what a write waits of a writer that never pauses, and a read is one block beside it.",
        Size(report.file_bytes),
    );
    grid.text() + "\n\n" + &paragraphs(&told)
}

/// What F2FS's cleaners cost.
pub(crate) fn cleaners(report: &CleanersReport) -> String {
    let plan = &report.setting.plan;
    let mut grid = Grid::new(&[
        ("writes for one fsync", 0, ""),
        ("copy, writes/s", 0, ""),
        ("share, writes/s", 0, ""),
        ("share / copy", 0, ""),
        ("min..max", 1, ""),
        ("moved", 2, "moved: pages that cleaning moved for each write, by copies and by shares."),
        ("amplif.", 3, "amplif.: blocks to the disk for each write, with copies and with shares."),
    ])
    .words(0);
    for case in &report.cases {
        let CleanersCase { fsync_every, copy, share, share_over_copy } = case;
        let both = |of: fn(&CleanerReport) -> f64| format!("{:.2}, {:.2}", of(copy), of(share));
        grid.row(vec![
            fsync_every.to_string(),
            count(copy.writes_per_second.median),
            count(share.writes_per_second.median),
            figure(share_over_copy.median),
            range(plan.rounds, share_over_copy, figure),
            both(|cleaner| cleaner.moved_pages_per_write),
            both(|cleaner| cleaner.write_amplification),
        ]);
    }
    let told = format!(
        "4 KiB at random in 80 % of a file that fills half of an F2FS of {}, on a volume in a file of {}; for this disk and this machine only.\nAfter each turn the image was checked (clean), and the file was read back: {} blocks were found right.\n{}.",
        Size(plan.filesystem_bytes),
        Size(plan.volume_bytes),
        report.checked_blocks,
        report.setting.machine.line(),
    );
    grid.text() + "\n\n" + &paragraphs(&told)
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
    fn a_busy_machine_is_told_in_the_verdict() {
        let idle = Machine {
            cores: 2,
            kernel: String::new(),
            other_cores: 0.0,
            steal: 0.0,
            busy: false,
            awake: false,
        };
        let told = |machine| page(["table".to_owned()], "notes", "verdict", machine);
        assert!(told(&idle).ends_with("verdict"));
        let busy = told(&Machine { busy: true, ..idle.clone() });
        assert!(busy.contains("verdict\nOther programs used the machine"), "{busy}");
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
