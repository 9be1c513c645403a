//! MariaDB: what a client was told is committed is there, and tables that change together are the same.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::trial::{Trial, is_able, rounds, shell, synchronise};
use crate::support::{runs, text};

/// Clients that commit at the same time.
const CLIENTS: [u32; 2] = [1, 2];

/// The server of MariaDB, whose socket is in a directory of its own: paths of sockets are short.
struct Mariadb {
    sockets: tempfile::TempDir,
}

impl Mariadb {
    /// A line of the shell that starts it on what is mounted below the working directory, and waits until it answers.
    fn starts(&self) -> String {
        let (serve, client) = ("mariadbd --no-defaults --user=root --skip-networking", self.client());
        let sizes = "--innodb-buffer-pool-size=32M --innodb-log-file-size=8M";
        let durable = "--innodb-flush-log-at-trx-commit=1 --log-bin --sync-binlog=1";
        let socket = self.socket();
        format!(
            "{serve} --datadir=$PWD/mounted/db --socket={socket} {sizes} {durable} >log 2>&1 & server=$!; \
             trap 'kill -9 $server 2>/dev/null || true' EXIT; \
             until {client} -e 'SELECT 1' >/dev/null 2>&1; do kill -0 $server; sleep 0.05; done"
        )
    }

    fn socket(&self) -> String {
        self.sockets.path().join("s").display().to_string()
    }

    fn client(&self) -> String {
        format!("mariadb --no-defaults -N --unbuffered -S {}", self.socket())
    }

    /// Has it answer on a mount that nothing disturbs.
    fn asked(&self, beside: &Path, sql: &str) -> String {
        let (starts, client) = (self.starts(), self.client());
        let stop = format!("{client} -e SHUTDOWN; wait $server");
        runs(&mut shell(beside, &format!("{starts}; {client} -e '{sql}'; {stop}")))
    }

    /// Starts it, and clients of it: each has transactions that change two tables, and says on a line of its own what
    /// is committed.
    fn works(&self, beside: &Path, round: u64) -> Command {
        let (starts, client) = (self.starts(), self.client());
        let clients = CLIENTS.map(|number| {
            let row = format!("({round}, {number}, &, REPEAT(\"x\", 300))");
            let transaction =
                format!("BEGIN; INSERT INTO t.a VALUES{row}; INSERT INTO t.b VALUES{row}; COMMIT; SELECT &;");
            format!("seq 100000 | sed 's/.*/{transaction}/' | {client} > told{number} &")
        });
        for number in CLIENTS {
            File::create(beside.join(format!("told{number}"))).unwrap();
        }
        shell(beside, &format!("{starts}; {} wait", clients.join(" ")))
    }
}

/// How many transactions a client was told are committed.
fn told(beside: &Path, number: u32) -> u64 {
    let told = text(&fs::read(beside.join(format!("told{number}"))).unwrap());
    told.lines().filter_map(|line| line.parse().ok()).max().unwrap_or(0)
}

/// Asks whether the tables are sound and the same, and for each client how many rows it has, and the last of them.
fn questions(round: u64) -> String {
    let sound = "CHECK TABLE t.a, t.b EXTENDED;";
    let differ = [("a", "b"), ("b", "a")].map(|(one, other)| {
        format!("SELECT COUNT(*) FROM (SELECT * FROM t.{one} EXCEPT SELECT * FROM t.{other}) AS more;")
    });
    let rows = CLIENTS.map(|number| {
        let of = format!("WHERE round = {round} AND client = {number}");
        format!("SELECT COUNT(*), COALESCE(MAX(n), 0) FROM t.a {of};")
    });
    format!("{sound} {} {}", differ.concat(), rows.concat())
}

#[test]
fn mariadb_keeps_what_it_has_committed() {
    if !is_able("mariadbd") || !is_able("mariadb") {
        return;
    }
    let mariadb = Mariadb { sockets: tempfile::tempdir().unwrap() };
    let mut trial = Trial::new("mariadb", "256M");
    let beside = trial.place.path().to_owned();
    trial.unharmed(|root| {
        let make = "mariadb-install-db --no-defaults --user=root --datadir=$PWD/mounted/db >/dev/null";
        runs(&mut shell(&beside, make));
        let columns = "(round INT, client INT, n INT, x TEXT, PRIMARY KEY(round, client, n)) ENGINE=InnoDB";
        let tables = ["a", "b"].map(|table| format!("CREATE TABLE t.{table}{columns};"));
        mariadb.asked(&beside, &format!("CREATE DATABASE t; {}", tables.concat()));
        synchronise(root);
    });
    for round in 1..=rounds() {
        trial.cut(Duration::from_millis(4000), mariadb.works(&beside, round));
        let found = trial.unharmed(|_| mariadb.asked(&beside, &questions(round)));
        let lines: Vec<_> = found.lines().collect();
        let sound = ["t.a\tcheck\tstatus\tOK", "t.b\tcheck\tstatus\tOK", "0", "0"];
        assert_eq!(lines[..4], sound, "round {round}");
        for (number, counts) in CLIENTS.iter().zip(&lines[4..]) {
            let told = told(&beside, *number);
            trial.acknowledged += told;
            // One more may have been committed of which no client was told.
            let may_be = [told, told + 1].map(|count| format!("{count}\t{count}"));
            assert!(may_be.contains(&(*counts).to_string()), "round {round}: told {told}, found {counts}");
        }
    }
    trial.end();
}
