//! A database on several grounds in turns: transactions a second, and what reaches the disk for each.

#![expect(clippy::disallowed_types, reason = "it measures other processes")]
#![expect(clippy::disallowed_methods, reason = "it measures other processes")]

mod workloads;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};
use rustix::fs::{major, minor};
use serde::Serialize;

use crate::campaign::database::{DatabaseKind, Setup};
use crate::campaign::ground::{Ext4, LoopDevice, WeirMount, counted};
use crate::campaign::server::Installation;
use crate::campaign::{Outcome, run as run_program, system};

/// What is measured, and how long.
#[derive(Args)]
pub struct Arguments {
    #[arg(long, default_value = "mariadb")]
    pub database: DatabaseKind,
    /// Rounds; in each, every way has a turn
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds that are measured in a turn
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Seconds before that, in which the pool fills
    #[arg(long, default_value_t = 5)]
    warm_up: u32,
    #[arg(long, value_delimiter = ',', default_value = "ext4,mount,atomic,atomic-soj")]
    ways: Vec<Way>,
    /// Of sysbench, or of pgbench, where bulk_load fills its tables
    /// [default: oltp_insert,oltp_write_only; bulk_load,tpcb-like]
    #[arg(long, value_delimiter = ',')]
    workloads: Vec<String>,
    /// Tables of sysbench
    #[arg(long, default_value_t = 8)]
    tables: u32,
    /// Rows of each table; those of pgbench's largest are as many as of all
    #[arg(long, default_value_t = 100_000)]
    rows: u32,
    #[arg(long, default_value_t = 16)]
    threads: u32,
    /// MiB of the database's pages in memory
    #[arg(long, default_value_t = 64)]
    pool: u32,
    /// MiB of the log
    #[arg(long, default_value_t = 96)]
    log: u32,
    /// MiB of each volume, and of the image of ext4
    #[arg(long, default_value_t = 4096)]
    size: u32,
    /// Which keys, of sysbench: uniform, special, pareto
    #[arg(long, default_value = "uniform")]
    keys: String,
    /// Another argument for `weir mkfs`
    #[arg(long)]
    mkfs: Vec<String>,
    /// Another argument for `weir mount`
    #[arg(long)]
    mount: Vec<String>,
}

impl Arguments {
    /// How large pgbench's tables are: in steps of 100,000 rows.
    fn scale(&self) -> u32 {
        (self.tables.saturating_mul(self.rows) / 100_000).max(1)
    }
}

/// Where the database lies, and whether its pages are written twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    /// The host's filesystem, with pages written twice
    Ext4,
    /// The same with pages written once: not safe, and what the second copy costs
    Ext4Single,
    /// ext4 on a loop device in a file, with pages written twice
    Loop,
    /// A mount of a volume, with pages written twice
    Mount,
    /// A mount of a volume, with pages written once, and files that are not atomic
    MountSingle,
    /// A mount of a volume that only orders, with pages written twice
    Order,
    /// The same with pages written once
    OrderSingle,
    /// A mount of a volume, with pages written once, and atomic files
    Atomic,
    /// The same, with the journal mode `soj`: what the journal holds is not written home again
    AtomicSoj,
}

impl Way {
    fn writes_pages_twice(self) -> bool {
        matches!(self, Way::Ext4 | Way::Loop | Way::Mount | Way::Order)
    }

    fn is_atomic(self) -> bool {
        matches!(self, Way::Atomic | Way::AtomicSoj)
    }
}

/// One turn of a way.
#[derive(Clone, Debug, Serialize)]
struct Turn {
    workload: String,
    way: String,
    round: usize,
    transactions: u64,
    transactions_per_second: f64,
    /// 95 % are below (sysbench), or the mean (pgbench).
    latency_ms: Option<f64>,
    /// Written by the way's filesystem to what is below it, for each transaction.
    bytes_per_transaction: f64,
    flushes_per_transaction: f64,
    /// Written to the host's disk, by everybody.
    host_bytes_per_transaction: f64,
    pages_flushed_per_transaction: f64,
    log_bytes_per_transaction: f64,
}

/// All turns of a way, and their medians.
#[derive(Debug, Serialize)]
struct Row {
    workload: String,
    way: String,
    transactions_per_second: f64,
    lowest: f64,
    highest: f64,
    /// Over the first way's in the same round.
    ratio_to_first: f64,
    latency_ms: f64,
    bytes_per_transaction: f64,
    host_bytes_per_transaction: f64,
    flushes_per_transaction: f64,
    pages_flushed_per_transaction: f64,
    log_bytes_per_transaction: f64,
    /// Written for each page that the database has flushed. Ways of other speeds flush others.
    bytes_per_page: f64,
}

/// What is printed.
#[derive(Debug, Serialize)]
struct Report {
    server: String,
    rounds: usize,
    seconds: u32,
    threads: u32,
    tables: u32,
    rows_per_table: u32,
    pool_mib: u32,
    log_mib: u32,
    keys: String,
    /// Processors that were busy with something else before the run.
    load_before: String,
    rows: Vec<Row>,
    turns: Vec<Turn>,
}

/// Measures, and prints.
pub fn run(asked: &Arguments, weir: &Path, on: &Path, json: bool) -> Outcome<()> {
    let beside = tempfile::tempdir_in(on)?;
    // A server may run as another user.
    fs::set_permissions(beside.path(), Permissions::from_mode(0o755))?;
    let workloads = match &asked.workloads {
        named if named.is_empty() => &workloads::default_workloads(asked.database),
        named => named,
    };
    let load_before = fs::read_to_string("/proc/loadavg")?.trim().to_owned();
    let grounds: Vec<Ground> = asked
        .ways
        .iter()
        .map(|way| Ground::new(*way, asked, weir, &beside.path().join(name(*way))))
        .collect::<Outcome<_>>()?;
    let mut turns = Vec::new();
    for round in 0..asked.rounds {
        for workload in workloads {
            for nth in 0..grounds.len() {
                // Each begins a round in its turn.
                let ground = &grounds[(nth + round) % grounds.len()];
                let turn = ground.turn(asked, workload, round)?;
                eprintln!("{turn:?}");
                turns.push(turn);
            }
        }
    }
    let report = Report {
        server: run_program(system(asked.database.programs()[0]).arg("--version"))?.trim().to_owned(),
        rounds: asked.rounds,
        seconds: asked.seconds,
        threads: asked.threads,
        tables: asked.tables,
        rows_per_table: asked.rows,
        pool_mib: asked.pool,
        log_mib: asked.log,
        keys: asked.keys.clone(),
        load_before,
        rows: rows(workloads, &asked.ways, &turns),
        turns,
    };
    if json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.rows.iter().for_each(|row| println!("{row:?}"));
    }
    Ok(())
}

fn name(way: Way) -> String {
    way.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn rows(workloads: &[String], ways: &[Way], turns: &[Turn]) -> Vec<Row> {
    let mut rows = Vec::new();
    for workload in workloads {
        let of = |way: Way| {
            let name = name(way);
            turns.iter().filter(move |turn| turn.workload == *workload && turn.way == name)
        };
        for way in ways {
            let values = |value: fn(&Turn) -> f64| of(*way).map(value).collect::<Vec<_>>();
            let speeds = values(|turn| turn.transactions_per_second);
            let ratios = ways.first().map(|first| {
                let pairs = of(*way).zip(of(*first));
                pairs.map(|(own, other)| own.transactions_per_second / other.transactions_per_second)
            });
            rows.push(Row {
                workload: workload.clone(),
                way: name(*way),
                lowest: speeds.iter().copied().fold(f64::INFINITY, f64::min),
                highest: speeds.iter().copied().fold(0.0, f64::max),
                transactions_per_second: median(speeds),
                ratio_to_first: median(ratios.into_iter().flatten().collect()),
                latency_ms: median(values(|turn| turn.latency_ms.unwrap_or(f64::NAN))),
                bytes_per_transaction: median(values(|turn| turn.bytes_per_transaction)),
                host_bytes_per_transaction: median(values(|turn| turn.host_bytes_per_transaction)),
                flushes_per_transaction: median(values(|turn| turn.flushes_per_transaction)),
                pages_flushed_per_transaction: median(values(|turn| turn.pages_flushed_per_transaction)),
                log_bytes_per_transaction: median(values(|turn| turn.log_bytes_per_transaction)),
                bytes_per_page: median(values(|turn| {
                    turn.bytes_per_transaction / turn.pages_flushed_per_transaction
                })),
            });
        }
    }
    rows
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A database on its ground, whose server runs only in its turns.
struct Ground {
    way: Way,
    installation: Installation,
    data: PathBuf,
    /// The counters of the host's disk.
    host: PathBuf,
    below: Below,
}

enum Below {
    Host,
    Loop(Ext4),
    Weir(WeirMount),
}

impl Ground {
    fn new(way: Way, asked: &Arguments, weir: &Path, place: &Path) -> Outcome<Ground> {
        let pages_twice = way.writes_pages_twice();
        let setup = Setup { pages_twice, pool_mib: asked.pool, log_mib: asked.log };
        let installation = Installation::new(asked.database.set_up(setup))?;
        let (root, image) = (place.join("root"), place.join("image"));
        fs::create_dir_all(&root)?;
        let below = match way {
            Way::Ext4 | Way::Ext4Single => Below::Host,
            Way::Loop => {
                File::create_new(&image)?.set_len(u64::from(asked.size) << 20)?;
                let device = LoopDevice::new(&image)?;
                Ext4::format(&device)?;
                Below::Loop(Ext4::new(device, &root)?)
            }
            Way::Mount | Way::MountSingle | Way::Order | Way::OrderSingle | Way::Atomic | Way::AtomicSoj => {
                let mut mkfs = Command::new(weir);
                mkfs.args(["mkfs", "--volume"]).arg(&image).args(["--size", &format!("{}M", asked.size)]);
                run_program(mkfs.args(&asked.mkfs))?;
                let own: &[&str] = match way {
                    Way::AtomicSoj => &["--journal", "soj"],
                    Way::Order | Way::OrderSingle => &["--sync", "order"],
                    _ => &[],
                };
                let own = own.iter().chain(asked.database.mount_options()).map(|option| (*option).to_owned());
                let options: Vec<String> = asked.mount.iter().cloned().chain(own).collect();
                Below::Weir(WeirMount::new(weir, &image, &root, &options)?)
            }
        };
        let disk = fs::metadata(place)?.dev();
        let host = PathBuf::from(format!("/sys/dev/block/{}:{}/stat", major(disk), minor(disk)));
        let ground = Ground { way, installation, data: root.join("db"), host, below };
        ground.prepare(asked)?;
        Ok(ground)
    }

    fn prepare(&self, asked: &Arguments) -> Outcome<()> {
        self.installation.install(&self.data)?;
        let server = self.installation.start(&self.data)?;
        workloads::prepare(&server, asked)?;
        server.stop()?;
        if self.way.is_atomic() { self.installation.database.make_atomic(&self.data) } else { Ok(()) }
    }

    /// Bytes that were written to what is below the database's filesystem, and flushes.
    fn written(&self) -> Outcome<(u64, u64)> {
        match &self.below {
            Below::Host => counted(&self.host),
            Below::Loop(ext4) => ext4.device().written(),
            Below::Weir(mounted) => {
                let status = mounted.status()?;
                let of = |name: &str| status["storage"][name].as_u64().ok_or("the status is not a volume's");
                Ok((of("disk_blocks")? * 4096, of("flushes")?))
            }
        }
    }

    fn turn(&self, asked: &Arguments, workload: &str, round: usize) -> Outcome<Turn> {
        let (server, database) = (self.installation.start(&self.data)?, &self.installation.database);
        workloads::run_workload(&server, asked, workload, asked.warm_up)?;
        let count = || -> Outcome<[u64; 5]> {
            let ((bytes, flushes), (host_bytes, _)) = (self.written()?, counted(&self.host)?);
            Ok([bytes, flushes, host_bytes, database.pages_written(&server)?, database.log_bytes(&server)?])
        };
        let before = count()?;
        let done = workloads::run_workload(&server, asked, workload, asked.seconds)?;
        let after = count()?;
        server.stop()?;
        let each = |nth: usize| (after[nth] - before[nth]) as f64 / done.transactions;
        Ok(Turn {
            workload: workload.to_owned(),
            way: name(self.way),
            round,
            transactions: done.transactions as u64,
            transactions_per_second: done.transactions / done.seconds,
            latency_ms: done.latency_ms,
            bytes_per_transaction: each(0),
            flushes_per_transaction: each(1),
            host_bytes_per_transaction: each(2),
            pages_flushed_per_transaction: each(3),
            log_bytes_per_transaction: each(4),
        })
    }
}
