//! A ledger in SQLite, in WAL mode, a commit every few milliseconds: on a mount that is shipped, and on the host with Litestream. All
//! is killed at once, and the store restored: how much of what was acknowledged is missing, how long that takes, and what the store has.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;

use crate::seaweed::{BUCKET, Seaweed};
use crate::speed::restore;
use crate::{Ground, Outcome, bytes_in_store, run, told};

/// Litestream's configuration, in the directory that it works in.
const CONFIG: &str = "litestream.yml";

/// How a ledger begins. Checkpoints are Litestream's.
const BEGIN: &str = "\
.bail on
.timeout 5000
PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=100000;
CREATE TABLE IF NOT EXISTS t(a, b);
";

/// What is measured.
#[derive(Args)]
pub struct Arguments {
    /// Milliseconds from one commit to the next
    #[arg(long, default_value_t = 5)]
    every: u64,
    /// Seconds of a turn
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    /// Rounds of two turns
    #[arg(long, default_value_t = 3)]
    rounds: u64,
}

/// What a turn has shown.
#[derive(Default)]
struct Turns {
    /// Milliseconds from the oldest acknowledged commit that is missing to the kill.
    lost_ms: Vec<f64>,
    restore_s: Vec<f64>,
    mib: Vec<f64>,
}

impl Turns {
    fn tell(self, name: &str) {
        let Turns { lost_ms, restore_s, mib } = self;
        let (lost, seconds, mib) = (told(lost_ms, 0), told(restore_s, 2), told(mib, 2));
        println!("{name:12} lost at a kill {lost} ms, restored in {seconds} s, {mib} MiB in the store");
    }
}

/// Has both work in turns.
fn run_turns(asked: &Arguments, ground: &Ground, seaweed: &Seaweed) -> Outcome<[Turns; 2]> {
    let this = std::env::current_exe()?;
    let [mut shipped, mut litestream] = <[Turns; 2]>::default();
    for round in 0..asked.rounds {
        let url = format!("s3://{BUCKET}/weir-{round}");
        ground.format(256)?;
        ground.mount(seaweed, &["--replicate", &url])?;
        let server = status_pid(ground)?;
        let acknowledged = commit(&ground.root().join("db"), asked)?;
        let killed = Instant::now();
        run(Command::new("kill").args(["-9", &server.to_string()]))?;
        let _ = Command::new("umount").arg("-l").arg(ground.root()).status();
        let copy = ground.path.join("restored");
        shipped.restore_s.push(restore(ground, seaweed, &url, &copy)?);
        let found = count_in_volume(ground, &copy)?;
        shipped.lost_ms.push(lost(&acknowledged, found, killed));
        shipped.mib.push(bytes_in_store(seaweed, &this, &url)?.0 as f64 / 1048576.0);
        fs::remove_file(copy)?;

        let url = format!("s3://{BUCKET}/litestream-{round}");
        let database = ground.path.join(format!("host-{round}.db"));
        let mut process = replicate_by_litestream(ground, seaweed, &database, &url)?;
        let acknowledged = commit(&database, asked)?;
        let killed = Instant::now();
        process.kill()?;
        process.wait()?;
        let copy = ground.path.join("restored.db");
        let began = Instant::now();
        let mut command = of_litestream(ground, seaweed);
        run(command.args(["restore", "-config", CONFIG, "-o"]).args([&copy, &database]))?;
        litestream.restore_s.push(began.elapsed().as_secs_f64());
        litestream.lost_ms.push(lost(&acknowledged, count(&copy)?, killed));
        litestream.mib.push(bytes_in_store(seaweed, &this, &url)?.0 as f64 / 1048576.0);
        fs::remove_file(copy)?;
    }
    Ok([shipped, litestream])
}

/// Measures, and prints a line for each.
pub fn measure(asked: &Arguments, ground: &Ground) -> Outcome<()> {
    let seaweed = Seaweed::start(&ground.path);
    let [shipped, litestream] = run_turns(asked, ground, &seaweed)?;
    shipped.tell("weir");
    litestream.tell("litestream");
    Ok(())
}

/// The time from the first acknowledged commit that is not there to the kill, in milliseconds.
fn lost(acknowledged: &[Instant], found: usize, killed: Instant) -> f64 {
    acknowledged.get(found).map_or(0.0, |first| killed.duration_since(*first).as_secs_f64() * 1e3)
}

/// Commits for a while: when each was acknowledged.
fn commit(database: &Path, asked: &Arguments) -> Outcome<Vec<Instant>> {
    let mut shell =
        Command::new("sqlite3").arg(database).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = shell.stdin.take().ok_or("no input")?;
    let mut output = BufReader::new(shell.stdout.take().ok_or("no output")?).lines();
    writeln!(input, "{BEGIN}SELECT 'ready';")?;
    while output.next().ok_or("the shell has ended")?? != "ready" {}
    let mut acknowledged = Vec::new();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(asked.seconds) {
        writeln!(input, "INSERT INTO t VALUES({}, randomblob(700)); SELECT 'done';", acknowledged.len())?;
        output.next().ok_or("the shell has ended")??;
        acknowledged.push(Instant::now());
        let due = Duration::from_millis(asked.every) * acknowledged.len() as u32;
        std::thread::sleep(due.saturating_sub(began.elapsed()));
    }
    // As it is: it does not close the database in good order.
    shell.kill()?;
    shell.wait()?;
    Ok(acknowledged)
}

/// How many commits a database has, which is whole.
fn count(database: &Path) -> Outcome<usize> {
    let told =
        run(Command::new("sqlite3").arg(database).arg("PRAGMA integrity_check; SELECT count(*) FROM t;"))?;
    let (sound, count) = told.trim().split_once('\n').ok_or("no answer")?;
    if sound == "ok" { Ok(count.parse()?) } else { Err(told.into()) }
}

fn count_in_volume(ground: &Ground, volume: &Path) -> Outcome<usize> {
    run(Command::new(&ground.weir).arg("mount").arg(volume).arg(ground.root()))?;
    let found = count(&ground.root().join("db"));
    ground.umount()?;
    found
}

fn status_pid(ground: &Ground) -> Outcome<u64> {
    // It fails while the store is behind, as it is at first.
    let output = Command::new(&ground.weir).args(["status", "--json"]).arg(ground.root()).output()?;
    let status: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    Ok(status["pid"].as_u64().ok_or("no process")?)
}

fn of_litestream(ground: &Ground, seaweed: &Seaweed) -> Command {
    let mut command = Command::new("litestream");
    // It takes no plain endpoint together with certificates of its own.
    command.env_remove("AWS_CA_BUNDLE").envs(seaweed.environment()).current_dir(&ground.path);
    command
}

/// Has Litestream replicate a database as it does by default: a sync a second.
fn replicate_by_litestream(ground: &Ground, seaweed: &Seaweed, database: &Path, url: &str) -> Outcome<Child> {
    let prefix = url.rsplit('/').next().ok_or("no prefix")?;
    let endpoint = &seaweed.environment()[3].1;
    let config = ground.path.join(CONFIG);
    fs::write(
        &config,
        format!(
            "dbs:\n  - path: {}\n    replica:\n      type: s3\n      bucket: {BUCKET}\n      path: {prefix}\n      endpoint: \
             {endpoint}\n      region: us-east-1\n      force-path-style: true\n",
            database.display()
        ),
    )?;
    let log = File::create(ground.path.join("litestream.log"))?;
    let mut command = of_litestream(ground, seaweed);
    Ok(command.args(["replicate", "-config"]).arg(config).stdout(log.try_clone()?).stderr(log).spawn()?)
}
