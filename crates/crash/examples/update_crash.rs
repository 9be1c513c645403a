//! A crash campaign on atomic files and units: the power cut at every event, and whatever is left has to have all
//! atomic files at one commit, and every unit whole.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what it is for")]

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use serde_json::json;
use weir_crash::{FsGround, UpdateCampaign};
use weir_fs::{CheckpointBy, Conflicts, Engine, JournalMode, MountOptions};
use weir_runtime::{Runtime, Wall};

/// Grounds, where none is named; those of flash have drives of both kinds of layout.
const GROUNDS: [&str; 6] =
    ["adversary", "legacy", "volume", "in-order-recovery", "none", "order-preserving-recovery"];

/// Cuts the power under atomic files, and judges what is left
#[derive(Debug, Parser)]
struct Arguments {
    /// Distinct states to judge, on each ground
    #[arg(long, default_value_t = 2_000)]
    states: u64,
    /// The seed; 0x... or decimal
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// ordered, writeback, data, soj or sdj
    #[arg(long, default_value = "ordered")]
    journal: String,
    /// adversary, legacy, prefix, volume, or the name of a barrier mechanism; without it several
    #[arg(long)]
    ground: Option<String>,
    /// Replay only this run
    #[arg(long)]
    only: Option<u64>,
    /// One JSON document on standard output, and nothing else
    #[arg(long)]
    json: bool,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::parse();
    let (mode, checkpoint) = match arguments.journal.as_str() {
        "ordered" => (JournalMode::Ordered, CheckpointBy::Copy),
        "writeback" => (JournalMode::Writeback, CheckpointBy::Copy),
        "data" => (JournalMode::Data, CheckpointBy::Copy),
        "soj" => (JournalMode::Ordered, CheckpointBy::Remap),
        "sdj" => (JournalMode::Data, CheckpointBy::Remap),
        other => return Err(format!("no journal mode is named {other}").into()),
    };
    let grounds = arguments.ground.as_deref().map_or(GROUNDS.to_vec(), |name| vec![name]);
    let clock = Runtime::wall(Wall::default())?.handle();
    let mut documents = Vec::new();
    let mut failed = false;
    for name in grounds {
        let ground = FsGround::named(name).ok_or_else(|| format!("no ground is named {name}"))?;
        let engine = match name {
            "legacy" | "none" => Engine::Jbd2 { barrier: true },
            "order-preserving-recovery" | "prefix" => Engine::Prefix,
            _ => Engine::Dual { conflicts: Conflicts::Copy },
        };
        let options = MountOptions { engine: Some(engine), mode, checkpoint, ..MountOptions::default() };
        let Arguments { states, seed, only, .. } = arguments;
        let began = clock.now();
        let summary = UpdateCampaign { ground, states, seed, only, options }.go();
        let seconds = clock.now().since(began).as_secs_f64();
        let mut document = serde_json::to_value(summary.totals)?;
        document["journal"] = json!(arguments.journal);
        document["ground"] = json!(name);
        document["seed"] = json!(seed);
        document["trace_hash"] = json!(format!("{:016x}", summary.trace_hash));
        document["failures"] = json!(usize::from(summary.failure.is_some()));
        if let Some(failure) = &summary.failure {
            failed = true;
            let replay = format!(
                "update_crash --journal {} --ground {name} --seed {seed} --only {}",
                arguments.journal, failure.run
            );
            eprintln!(
                "{name}, life {}, event {}: {}\nreplay: {replay}",
                failure.life, failure.event, failure.what
            );
            document["replay"] = json!(replay);
        }
        if !arguments.json {
            let totals = summary.totals;
            eprintln!(
                "{}, {name}: {} states of {} runs, {} updates, {seconds:.1} s: {}",
                arguments.journal,
                totals.states_distinct,
                totals.runs,
                totals.updates,
                if summary.failure.is_some() { "FAILED" } else { "all as promised" }
            );
        }
        documents.push(document);
    }
    if arguments.json {
        println!("{:#}", json!(documents));
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
