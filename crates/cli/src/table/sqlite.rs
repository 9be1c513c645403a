//! SQLite in different places, for people.

use weir_bench::{SQLITE_RATIOS, SqlitePlace, SqliteReport, SqliteWayReport};

use super::{Grid, count, figure, page, paragraphs, place, range, window_cell};

/// The result of the benchmark of SQLite.
pub(crate) fn sqlite(report: &SqliteReport) -> String {
    page([rates(report), ratios(report)], &notes(report), &verdict(report), &report.setting.machine)
}

fn rates(report: &SqliteReport) -> String {
    let mut grid = Grid::new(&[
        ("database", 0, DATABASE),
        ("journal", 0, ""),
        ("syncs", 0, ""),
        ("inserts/s", 0, ""),
        ("min..max", 2, ""),
        ("COMMIT", 0, COMMIT),
        ("loss window", 0, ""),
        ("name in --json", 3, ""),
    ])
    .words(3);
    for way in &report.ways {
        grid.row(rate(way, report.setting.plan.rounds));
    }
    grid.text()
}

const DATABASE: &str = "database: where it is. syncs: PRAGMA synchronous (FULL, NORMAL, OFF), or what Weir makes of SQLite's syncs (durable, order).";
const COMMIT: &str = "durable: a transaction is on the medium when COMMIT returns. A crash of the machine may take what is younger than the loss window, of which the largest seen is shown; on a mount, since it began.";

fn rate(way: &SqliteWayReport, rounds: u32) -> Vec<String> {
    let spread = &way.inserts_per_second;
    let database = match way.place {
        SqlitePlace::Host => "host",
        SqlitePlace::Tmpfs => "memory",
        SqlitePlace::Mount => "mount",
        SqlitePlace::InProcess => "in process",
    };
    vec![
        database.to_owned(),
        way.journal.name().to_owned(),
        way.syncs.clone(),
        count(spread.median),
        range(rounds, spread, count),
        if way.durable { "durable" } else { "not durable" }.to_owned(),
        window_cell(way.loss_window),
        way.name.clone(),
    ]
}

fn ratios(report: &SqliteReport) -> String {
    let mut grid =
        Grid::new(&[("ratio", 0, ""), ("median", 0, ""), ("min..max", 0, ""), ("name in --json", 1, "")]);
    let mut meanings = Vec::new();
    for ratio in SQLITE_RATIOS {
        let Some(spread) = report.ratios_spread.get(ratio.name) else { continue };
        let range = range(report.setting.plan.rounds, spread, figure);
        grid.row(vec![ratio.title.to_owned(), figure(spread.median), range, ratio.name.to_owned()]);
        meanings.push(format!("{}: {}.", ratio.title, ratio.meaning));
    }
    let rule = "A ratio compares two rates, in inserts/s. It is the first divided by the second: above 1 the first is faster.";
    grid.text() + "\n" + &paragraphs(&format!("{rule}\n\n{}", meanings.join("\n")))
}

fn notes(report: &SqliteReport) -> String {
    let machine = report.setting.machine.line() + ".";
    place(&report.setting).into_iter().chain([machine]).collect::<Vec<_>>().join("\n")
}

/// What to take home: two sentences.
fn verdict(report: &SqliteReport) -> String {
    let ratio = |name: &str| report.ratios.get(name).copied().map(figure);
    let or_unknown = |name: &str| ratio(name).unwrap_or_else(|| "an unknown share".to_owned());
    let mount = |name: &str, times: &str| {
        ratio(name).map_or_else(String::new, |ratio| format!(", on a mount {ratio}{times}"))
    };
    format!(
        "Durable inserts in process have {} of the host's rate{}.\nInserts that only keep their order have {} times the host's durable rate{}; a crash may take the loss window's.",
        or_unknown("durable_vs_host"),
        mount("durable_mount_vs_host", ""),
        or_unknown("order_in_process_vs_host"),
        mount("order_mount_vs_host", " times"),
    )
}
