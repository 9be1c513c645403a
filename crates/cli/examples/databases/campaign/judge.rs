//! What is wrong with the files that a crash has left to a database.

use std::path::Path;

use super::Outcome;
use super::load::{self, TABLES};
use super::server::{Installation, Running};

/// What a crash has left.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Files that hold a page that is none, before the database has recovered, where its tools can tell.
    pub torn: Vec<String>,
    /// The same when it has recovered, and ended.
    pub torn_after: Vec<String>,
    /// Why the database cannot be used: it does not start, or its own checks say so.
    pub unusable: Option<String>,
    /// Clients of which transactions are gone that were acknowledged.
    pub lost: Vec<String>,
    /// Rows that do not hold what the transactions which are there have left.
    pub rows_wrong: u64,
    /// The last transaction of each client that is there.
    pub done: Vec<u64>,
}

impl Verdict {
    /// Whether nothing is wrong. Torn pages are what the second copy mends, so with it they count only behind the
    /// recovery.
    pub fn is_sound(&self, pages_twice: bool) -> bool {
        (pages_twice || self.torn.is_empty())
            && self.torn_after.is_empty()
            && self.unusable.is_none()
            && self.lost.is_empty()
            && self.rows_wrong == 0
    }
}

/// Looks at the files, has the database recover, and compares: a client's transactions have to be there up to one that is no
/// earlier than `least`, and no later than one behind `most`.
pub fn judge(
    installation: &Installation,
    data: &Path,
    seed: u64,
    least: &[u64],
    most: &[u64],
) -> Outcome<Verdict> {
    let torn_pages = |is_recovered| installation.database.torn_pages(data, is_recovered);
    let mut verdict = Verdict { torn: torn_pages(false)?, ..Verdict::default() };
    let looked = installation.start(data).and_then(|server| {
        verdict.done = counts(&server)?;
        installation.database.check_tables(&server)?;
        verdict.rows_wrong = rows_wrong(&server, seed, &verdict.done)?;
        server.stop()
    });
    match looked {
        Ok(()) => verdict.torn_after = torn_pages(true)?,
        Err(error) => verdict.unusable = Some(error.to_string()),
    }
    for (client, done) in verdict.done.iter().enumerate() {
        if !(least[client]..=most[client] + 1).contains(done) {
            let (least, most) = (least[client], most[client]);
            verdict
                .lost
                .push(format!("client {client}: {least} to {most} were acknowledged, {done} is there"));
        }
    }
    Ok(verdict)
}

fn counts(server: &Running<'_>) -> Outcome<Vec<u64>> {
    let told = server.ask("SELECT n FROM t.done ORDER BY client")?;
    let done: Vec<u64> = told.lines().map(str::parse).collect::<Result<_, _>>()?;
    if done.len() as u64 == load::CLIENTS { Ok(done) } else { Err("clients are missing".into()) }
}

fn rows_wrong(server: &Running<'_>, seed: u64, done: &[u64]) -> Outcome<u64> {
    let mut wrong = 0;
    for (nth, table) in TABLES.iter().enumerate() {
        let told = server.ask(&load::question(server.database(), table))?;
        let expected = load::expected(seed, nth, done);
        if told.lines().count() != expected.len() {
            return Err(format!("t.{table} has {} rows", told.lines().count()).into());
        }
        let lines = expected.iter().enumerate().map(|(id, number)| format!("{id}\t{number}\t1"));
        wrong += lines.zip(told.lines()).filter(|(expected, found)| expected != found).count() as u64;
    }
    Ok(wrong)
}
