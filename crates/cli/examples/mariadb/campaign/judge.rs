//! What is wrong with the files that a crash has left to MariaDB.

use std::path::Path;

use super::load::{self, TABLES};
use super::server::{Mariadb, Running, page_files};
use super::{Outcome, system};

/// What a crash has left.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Files of InnoDB that hold a page that is none, before MariaDB has recovered.
    pub torn: Vec<String>,
    /// The same when it has recovered, and ended.
    pub torn_after: Vec<String>,
    /// Why the database cannot be used: it does not start, or `CHECK TABLE` says so.
    pub unusable: Option<String>,
    /// Clients of which transactions are gone that were acknowledged.
    pub lost: Vec<String>,
    /// Rows that do not hold what the transactions which are there have left.
    pub rows_wrong: u64,
    /// The last transaction of each client that is there.
    pub done: Vec<u64>,
}

impl Verdict {
    /// Whether nothing is wrong. Torn pages are what the doublewrite buffer mends, so with it they count only behind the
    /// recovery.
    pub fn is_sound(&self, doublewrite: bool) -> bool {
        (doublewrite || self.torn.is_empty())
            && self.torn_after.is_empty()
            && self.unusable.is_none()
            && self.lost.is_empty()
            && self.rows_wrong == 0
    }
}

/// Looks at the files, has MariaDB recover, and compares: a client's transactions have to be there up to one that is no
/// earlier than `least`, and no later than one behind `most`.
pub fn judge(mariadb: &Mariadb, data: &Path, seed: u64, least: &[u64], most: &[u64]) -> Outcome<Verdict> {
    let mut verdict = Verdict { torn: torn(data)?, ..Verdict::default() };
    let looked = mariadb.start(data).and_then(|server| {
        verdict.done = counts(&server)?;
        sound(&server)?;
        verdict.rows_wrong = rows_wrong(&server, seed, &verdict.done)?;
        server.stop()
    });
    match looked {
        Ok(()) => verdict.torn_after = torn(data)?,
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

/// Files with a page whose checksum is wrong. The server is not running.
fn torn(data: &Path) -> Outcome<Vec<String>> {
    let mut found = Vec::new();
    for path in page_files(data)? {
        let name = path.strip_prefix(data).unwrap_or(&path).display().to_string();
        // In the space of the system, pages 64 to 191 are the doublewrite buffer: it may be torn.
        let parts: &[&str] =
            if name == "ibdata1" { &["--end-page=63", "--start-page=192"] } else { &["--start-page=0"] };
        for part in parts {
            let output = system("innochecksum").arg(part).arg(&path).output()?;
            if !output.status.success() {
                let told = String::from_utf8_lossy(&output.stderr).into_owned();
                let first = told.lines().find(|line| line.contains("Fail")).unwrap_or(&told);
                found.push(format!("{name}: {first}"));
                break;
            }
        }
    }
    Ok(found)
}

fn counts(server: &Running) -> Outcome<Vec<u64>> {
    let told = server.ask("SELECT n FROM t.done ORDER BY client")?;
    let done: Vec<u64> = told.lines().map(str::parse).collect::<Result<_, _>>()?;
    if done.len() as u64 == load::CLIENTS { Ok(done) } else { Err("clients are missing".into()) }
}

fn sound(server: &Running) -> Outcome<()> {
    let told = server.ask("CHECK TABLE t.done, t.a, t.b EXTENDED")?;
    let found = told.lines().filter(|line| line.ends_with("status\tOK")).count();
    if found == 3 && told.lines().count() == 3 { Ok(()) } else { Err(told.into()) }
}

fn rows_wrong(server: &Running, seed: u64, done: &[u64]) -> Outcome<u64> {
    let mut wrong = 0;
    for (nth, table) in TABLES.iter().enumerate() {
        let told = server.ask(&load::question(table))?;
        let expected = load::expected(seed, nth, done);
        if told.lines().count() != expected.len() {
            return Err(format!("t.{table} has {} rows", told.lines().count()).into());
        }
        let lines = expected.iter().enumerate().map(|(id, number)| format!("{id}\t{number}\t1"));
        wrong += lines.zip(told.lines()).filter(|(expected, found)| expected != found).count() as u64;
    }
    Ok(wrong)
}
