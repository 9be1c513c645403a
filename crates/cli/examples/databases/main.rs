//! MariaDB and PostgreSQL with pages that are written once or twice, on the host's ext4 and on mounts: how fast they are, what they
//! write, and what crashes leave of them. It takes the superuser, and the server of the database; `bench` takes `sysbench` or
//! `pgbench`, too.
//!
//! ```sh
//! cargo build --release -p weir-cli --bin weir --example databases
//! target/release/examples/databases bench --on DIRECTORY --json
//! target/release/examples/databases kill --database postgresql --rounds 50
//! target/release/examples/databases kill --database postgresql --rounds 50 --victim store    # ships to SeaweedFS
//! target/release/examples/databases cut --atomic --rounds 50
//! target/release/examples/databases cut --ext4 --rounds 50
//! ```
//!
//! The last one is the control: with pages that are written once on the kernel's ext4, power cuts of the worst disk tear them.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what it is for")]

mod bench;
mod campaign;
mod support;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use campaign::database::DatabaseKind;
use campaign::judge::Verdict;
use campaign::replicated::Victim;
use campaign::rounds::{Campaign, Crash};
use campaign::{Outcome, is_there};

/// MariaDB and PostgreSQL with pages that are written once or twice.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: What,
    /// The program [default: the one that was built beside this]
    #[arg(long, global = true)]
    weir: Option<PathBuf>,
    /// A directory on the disk; what is made there is removed
    #[arg(long, global = true, default_value = ".")]
    on: PathBuf,
    /// Print one JSON object
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum What {
    /// Measures transactions a second, and bytes to the disk for each
    Bench(bench::Arguments),
    /// Kills the server of the mount under load
    Kill {
        /// Ship the volume to SeaweedFS (weed), kill this, and look at what the store restores to, too
        #[arg(long)]
        victim: Option<Victim>,
        #[command(flatten)]
        crashes: Crashes,
    },
    /// Cuts the power of the worst disk below the mount
    Cut {
        /// The kernel's ext4 instead of a mount of Weir
        #[arg(long)]
        ext4: bool,
        /// End at the first damage
        #[arg(long)]
        until_damage: bool,
        #[command(flatten)]
        crashes: Crashes,
    },
}

/// What both campaigns are told.
#[derive(Args)]
struct Crashes {
    #[arg(long, default_value = "mariadb")]
    database: DatabaseKind,
    /// How many crashes
    #[arg(long, default_value_t = 50)]
    rounds: u64,
    /// Decides the moments, and what is written
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write each page twice: MariaDB's doublewrite buffer, PostgreSQL's full pages in its log
    #[arg(long)]
    pages_twice: bool,
    /// Make the files of MariaDB that hold pages atomic
    #[arg(long)]
    atomic: bool,
    /// Another argument for `weir mount`, such as --mount=--writeback-cache
    #[arg(long)]
    mount: Vec<String>,
}

fn main() -> Outcome<()> {
    let arguments = Arguments::parse();
    let (database, load) = match &arguments.command {
        What::Bench(asked) => (asked.database, Some(asked.database.load_program())),
        What::Kill { crashes, .. } | What::Cut { crashes, .. } => (crashes.database, None),
    };
    if let Some(missing) = database.programs().iter().chain(&load).find(|program| !is_there(program)) {
        return Err(format!("this takes {missing}: install it, and try again").into());
    }
    let weir = arguments.weir.map_or_else(beside_this, Ok)?;
    let (on, json) = (arguments.on.canonicalize()?, arguments.json);
    let (crash, until_damage, victim, crashes) = match arguments.command {
        What::Bench(asked) => return bench::run(&asked, &weir, &on, json),
        What::Kill { victim, crashes } => (Crash::Kill, false, victim, crashes),
        What::Cut { ext4, until_damage, crashes } => {
            (if ext4 { Crash::PowerUnderExt4 } else { Crash::Power }, until_damage, None, crashes)
        }
    };
    let Crashes { database, rounds, seed, pages_twice, atomic, mount } = crashes;
    let campaign = Campaign {
        weir,
        on,
        database,
        crash,
        rounds,
        seed,
        pages_twice,
        atomic,
        mount,
        until_damage,
        victim,
    };
    let totals = campaign.run(&mut |crash, verdict| eprintln!("{}", line(crash, verdict, pages_twice)))?;
    if json {
        println!("{}", serde_json::to_string(&totals)?);
    } else {
        println!("{totals:#?}");
    }
    // The control is there to be damaged.
    let is_control = crash == Crash::PowerUnderExt4 && !pages_twice;
    match (totals.damaged, is_control) {
        (0, true) => Err("the control shows no damage, so the judge may see none".into()),
        (1.., false) => Err(format!("{} of {} crashes did damage", totals.damaged, totals.rounds).into()),
        _ => Ok(()),
    }
}

fn line(crash: u64, verdict: &Verdict, pages_twice: bool) -> String {
    let sound = if verdict.is_sound(pages_twice) { "sound" } else { "damaged" };
    let (torn, done) = (verdict.torn.len(), verdict.done.iter().sum::<u64>());
    format!("crash {crash}: {sound}, {torn} files torn before recovery, {done} transactions are there")
}

/// The program that cargo builds into the directory above that of its examples.
fn beside_this() -> Outcome<PathBuf> {
    let this = std::env::current_exe()?;
    let program = this.ancestors().nth(2).map(|above| above.join("weir"));
    let program = program.filter(|program| program.exists());
    Ok(program.ok_or("there is no `weir` beside this: build it, or name it by --weir")?)
}
