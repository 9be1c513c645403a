//! What is measured: sysbench on MariaDB, pgbench on PostgreSQL.

use std::process::Command;
use std::time::Instant;

use crate::bench::Arguments;
use crate::campaign::database::DatabaseKind;
use crate::campaign::mariadb::socket;
use crate::campaign::postgresql::as_client;
use crate::campaign::server::Running;
use crate::campaign::{Outcome, run, system};

/// The workload of PostgreSQL that loads tables in bulk: each row counts as a transaction.
const BULK_LOAD: &str = "bulk_load";
/// Rows that pgbench loads for each step of its scale.
const ROWS_PER_SCALE: u32 = 100_000;

/// What a turn of a workload has done.
pub struct Done {
    pub transactions: f64,
    pub seconds: f64,
    /// Of a transaction; of a load in bulk there is none.
    pub latency_ms: Option<f64>,
}

/// The workloads that are measured where none is named.
pub fn default_workloads(kind: DatabaseKind) -> Vec<String> {
    let names = match kind {
        DatabaseKind::Mariadb => ["oltp_insert", "oltp_write_only"],
        DatabaseKind::Postgresql => [BULK_LOAD, "tpcb-like"],
    };
    names.map(str::to_owned).to_vec()
}

/// Makes the tables.
pub fn prepare(server: &Running<'_>, asked: &Arguments) -> Outcome<()> {
    match asked.database {
        DatabaseKind::Mariadb => {
            server.ask("CREATE DATABASE sbtest")?;
            run(sysbench(server, asked, "oltp_write_only", asked.seconds).arg("prepare")).map(drop)
        }
        DatabaseKind::Postgresql => {
            server.ask("CREATE DATABASE bulk")?;
            run(&mut load_in_bulk(server, asked, "postgres")).map(drop)
        }
    }
}

/// Runs a workload for some seconds; a load in bulk has its own end.
pub fn run_workload(server: &Running<'_>, asked: &Arguments, workload: &str, seconds: u32) -> Outcome<Done> {
    let began = Instant::now();
    let (transactions, latency_ms) = match asked.database {
        DatabaseKind::Mariadb => {
            let told = run(sysbench(server, asked, workload, seconds).arg("run"))?;
            let latency = number_behind(&told, "95th percentile:")?;
            (number_behind(&told, "transactions:")?, Some(latency))
        }
        DatabaseKind::Postgresql if workload == BULK_LOAD => {
            run(&mut load_in_bulk(server, asked, "bulk"))?;
            (f64::from(asked.scale() * ROWS_PER_SCALE), None)
        }
        DatabaseKind::Postgresql => {
            let mut command = as_client("pgbench", server.scratch());
            command.args(["--no-vacuum", "--builtin", workload]);
            command.args(["--client", &asked.threads.to_string(), "--time", &seconds.to_string()]);
            let told = run(command.arg("postgres"))?;
            let count = number_behind(&told, "number of transactions actually processed:")?;
            (count, Some(number_behind(&told, "latency average =")?))
        }
    };
    Ok(Done { transactions, seconds: began.elapsed().as_secs_f64(), latency_ms })
}

fn sysbench(server: &Running<'_>, asked: &Arguments, workload: &str, seconds: u32) -> Command {
    let mut command = system("sysbench");
    command.arg(workload).args(["--db-driver=mysql", "--mysql-user=root", "--mysql-db=sbtest"]);
    command
        .arg(format!("--mysql-socket={}", socket(server.scratch()).display()))
        .arg(format!("--tables={}", asked.tables))
        .arg(format!("--table-size={}", asked.rows))
        .arg(format!("--threads={}", asked.threads))
        .arg(format!("--rand-type={}", asked.keys))
        .arg(format!("--time={seconds}"));
    command
}

/// Makes and fills the tables of pgbench, with indexes, from the server's side.
fn load_in_bulk(server: &Running<'_>, asked: &Arguments, database: &str) -> Command {
    let mut command = as_client("pgbench", server.scratch());
    command.args(["--initialize", "--init-steps", "dtgvp", "--quiet"]);
    command.args(["--scale", &asked.scale().to_string()]).arg(database);
    command
}

/// The number that is printed behind some words.
fn number_behind(told: &str, words: &str) -> Outcome<f64> {
    let behind = told.lines().find_map(|line| line.trim().strip_prefix(words)).ok_or(words)?;
    let number = behind.split(|c: char| c.is_whitespace() || c == '/').find(|part| !part.is_empty());
    Ok(number.ok_or(words)?.parse()?)
}
