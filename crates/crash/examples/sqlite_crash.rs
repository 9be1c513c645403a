//! A crash campaign on SQLite: real SQLite commits transactions on a small filesystem in virtual time, the power is
//! cut at every event of what is below, what is left is recovered, checked by SQLite and compared with what was
//! committed.
//!
//! `sqlite_crash --journal MODE --mode PROMISE --ground NAME --states N --seed S [--json] [--only RUN]`

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what it is for")]

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use serde_json::json;
use weir_crash::{FsGround, SqliteCampaign, SqliteJournal, SqliteSync};
use weir_fs::{Engine, FsMutant, MountOptions};
use weir_runtime::{Runtime, Wall};
use weir_sqlite_vfs::Mode;
use weir_storage::Rules;

/// The grounds of a whole campaign.
const GROUNDS: [&str; 6] =
    ["adversary", "volume", "plp", "in-order-writeback", "transactional", "in-order-recovery"];

/// Cuts the power under SQLite at every event, and judges what is recovered.
#[derive(Parser)]
struct Arguments {
    /// SQLite's journal mode: delete, truncate, persist, wal; or batch_atomic: none [default: all]
    #[arg(long)]
    journal: Option<String>,
    /// What COMMIT promises: durable, order, or off (SQLite by itself) [default: durable and order]
    #[arg(long)]
    mode: Option<String>,
    /// What is below: adversary (the worst disk, with barriers), legacy (without), volume (on the worst legacy
    /// disk), or an emulated flash device by its barrier mechanism: plp, in-order-writeback, transactional,
    /// in-order-recovery, none [default: all with barriers]
    #[arg(long)]
    ground: Option<String>,
    /// Distinct states to judge, on each ground, for each journal mode and promise
    #[arg(long, default_value_t = 2_000)]
    states: u64,
    /// synchronous = EXTRA: the deletion of a journal is synchronised too
    #[arg(long)]
    extra: bool,
    /// The journal's engine for prefix devices (grounds prefix and order-preserving-recovery)
    #[arg(long)]
    prefix: bool,
    /// Determines everything
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Replay only the run with this number
    #[arg(long)]
    only: Option<u64>,
    /// Negative control: the ground says that it keeps barriers, and ignores them
    #[arg(long)]
    deaf: bool,
    /// Negative control: atomic files are written to as others are
    #[arg(long)]
    not_deferred: bool,
    /// Negative control: this sync is never done: journal-content, journal-header, database, journal-end, finish,
    /// log-header, log-frames, checkpoint, batch
    #[arg(long)]
    dropped: Option<String>,
    /// One JSON document on standard output, and nothing else
    #[arg(long)]
    json: bool,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::parse();
    let journals = match &arguments.journal {
        None => SqliteJournal::ALL.to_vec(),
        Some(name) => {
            let known = SqliteJournal::ALL.into_iter().find(|journal| journal.name() == name);
            vec![known.ok_or_else(|| format!("no journal mode is named {name}"))?]
        }
    };
    let modes = match &arguments.mode {
        None => vec![Mode::Durable, Mode::Order],
        Some(name) => {
            vec![Mode::of_name(name.as_bytes()).ok_or_else(|| format!("no mode is named {name}"))?]
        }
    };
    let grounds = match &arguments.ground {
        None => GROUNDS.to_vec(),
        Some(name) => vec![name.as_str()],
    };
    let dropped = match &arguments.dropped {
        None => None,
        Some(name) => {
            let known = SqliteSync::ALL.into_iter().find(|sync| sync.name() == name);
            Some(known.ok_or_else(|| format!("no sync is named {name}"))?)
        }
    };
    let engine = arguments.prefix.then_some(Engine::Prefix);
    let rules = Rules::but(arguments.not_deferred.then_some(FsMutant::UpdateNotDeferred));
    let options = MountOptions { engine, rules, ..MountOptions::default() };
    let clock = Runtime::wall(Wall::default())?.handle();
    let mut documents = Vec::new();
    let mut failed = false;
    for journal in journals {
        for mode in &modes {
            for name in &grounds {
                let ground = FsGround::named(name).ok_or_else(|| format!("no ground is named {name}"))?;
                let campaign = SqliteCampaign {
                    only: arguments.only,
                    ignores_barriers: arguments.deaf,
                    dropped,
                    extra: arguments.extra,
                    options,
                    ..SqliteCampaign::new(journal, *mode, ground, arguments.states, arguments.seed)
                };
                let began = clock.now();
                let summary = campaign.go();
                let seconds = clock.now().since(began).as_secs_f64();
                let (journal, mode) = (journal.name(), mode.name().to_string_lossy());
                let mut document = serde_json::to_value(summary.totals)?;
                document["journal"] = json!(journal);
                document["mode"] = json!(mode);
                document["ground"] = json!(name);
                document["seed"] = json!(arguments.seed);
                document["trace_hash"] = json!(format!("{:016x}", summary.trace_hash));
                document["failures"] = json!(usize::from(summary.failure.is_some()));
                document["states_per_minute"] =
                    json!((summary.totals.states_distinct as f64 * 60.0 / seconds.max(1e-9)).round());
                if let Some(failure) = &summary.failure {
                    failed = true;
                    let replay = format!(
                        "sqlite_crash --journal {journal} --mode {mode} --ground {name} --seed {} --only {}",
                        arguments.seed, failure.run
                    );
                    eprintln!(
                        "{journal}, {mode}, {name}, life {}, event {}: {}\nreplay: {replay}",
                        failure.life, failure.event, failure.what
                    );
                    document["replay"] = json!(replay);
                }
                if !arguments.json {
                    let totals = summary.totals;
                    eprintln!(
                        "{journal}, {mode}, {name}: {} states of {} runs, {} commits, {} lost at most, {:.1} s: {}",
                        totals.states_distinct,
                        totals.runs,
                        totals.commits,
                        totals.lost_max,
                        seconds,
                        if summary.failure.is_some() { "FAILED" } else { "all as promised" }
                    );
                }
                documents.push(document);
            }
        }
    }
    if arguments.json {
        println!("{:#}", json!(documents));
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
