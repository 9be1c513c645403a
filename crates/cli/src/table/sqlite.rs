//! SQLite in different places, for people.

use weir_workload::{SQLITE_RATIOS, SqliteReport, SqliteWayReport};

use super::{aligned, count, figure, place, range, table, window_cell};

/// The result of the benchmark of SQLite.
pub(crate) fn sqlite(report: &SqliteReport) -> String {
    [rates(report), ratios(report), notes(report)].join("\n\n")
}

fn rates(report: &SqliteReport) -> String {
    let mut table = table(&["way", "inserts/s", "min..max", "COMMIT", "loss window"]);
    for way in &report.ways {
        table.add_row(rate(way, report.plan.rounds));
    }
    aligned(table, 1) + "\n" + COLUMNS
}

/// What the columns of [`rates`] hold, as the table's own heads are short.
const COLUMNS: &str = "\
way: where the database is, the journal mode, and synchronous; or what Weir makes of SQLite's syncs.
durable: it is on the medium when COMMIT returns. A crash of the machine may take what is younger than the loss window, of
  which the largest seen is shown; on a mount, since it began.";

fn rate(way: &SqliteWayReport, rounds: u32) -> Vec<String> {
    let spread = &way.inserts_per_second;
    let commit = if way.durable { "durable" } else { "not durable" };
    vec![
        way.name.clone(),
        count(spread.median),
        range(rounds, spread, count),
        commit.to_owned(),
        window_cell(way.loss_window),
    ]
}

fn ratios(report: &SqliteReport) -> String {
    let mut table = table(&["ratio", "median", "min..max"]);
    let mut meanings = String::new();
    for ratio in SQLITE_RATIOS {
        let Some(spread) = report.ratios_spread.get(ratio.name) else { continue };
        let (median, range) = (figure(spread.median), range(report.plan.rounds, spread, figure));
        table.add_row([ratio.name.to_owned(), median, range]);
        meanings += &format!("\n{}: {}.", ratio.name, ratio.meaning);
    }
    aligned(table, 1) + &meanings
}

fn notes(report: &SqliteReport) -> String {
    format!("{}\n{}", place(&report.disk), report.machine.line())
}
