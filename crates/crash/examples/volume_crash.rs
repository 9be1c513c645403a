//! A crash campaign on the volume: workloads over the worst legal disk, the power cut at every event, what
//! is left recovered and judged.
//!
//! `volume_crash --states N --seed S [--json] [--only RUN] [--blocks N] [--shares]`

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what it is for")]

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use serde_json::{Value, json};
use weir_crash::{Campaign, Summary};
use weir_runtime::{Runtime, Wall};

/// Blocks of the largest disks whose volumes have shares.
const SHARES_MAX: u64 = 1 << 31;

/// Cuts the power of a volume at every event, and judges what recovery makes of it.
#[derive(Parser)]
struct Arguments {
    /// Distinct crash states to judge, with --shares those with a share under way.
    #[arg(long, default_value_t = 100_000)]
    states: u64,
    /// Determines everything.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Replay only the run with this number.
    #[arg(long)]
    only: Option<u64>,
    /// Blocks of the disk, from 65536 to 4294967294, for large volumes; 0 for small ones of all kinds.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=4_294_967_294))]
    blocks: u64,
    /// The workloads share blocks, too.
    #[arg(long)]
    shares: bool,
    /// One JSON document on standard output, everything else on standard error.
    #[arg(long)]
    json: bool,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::parse();
    let clock = Runtime::wall(Wall::default())?.handle();
    let began = clock.now();
    let Arguments { states, seed, only, blocks: disk_blocks, shares, .. } = arguments;
    if shares && disk_blocks > SHARES_MAX {
        return Err(format!("volumes on disks of more than {SHARES_MAX} blocks have no shares").into());
    }
    let campaign = Campaign { seed, states, only, disk_blocks, shares };
    let summary = campaign.go(|run, findings| {
        if arguments.only.is_some() {
            eprintln!("run {run}: {:#?}\n{:#?}", campaign.options(run), findings.totals);
        }
        if let Some(failure) = &findings.failure {
            eprintln!("run {run} failed, {failure}\n{:#?}", campaign.options(run));
            eprintln!("replay: {}", campaign.replay(run));
        }
    });
    let document = document(&arguments, &summary, clock.now().since(began).as_secs_f64());
    if arguments.json {
        println!("{document:#}");
    } else {
        for (name, value) in document.as_object().into_iter().flatten() {
            println!("{name:24} {value}");
        }
    }
    Ok(if summary.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn document(arguments: &Arguments, summary: &Summary, seconds: f64) -> Value {
    let mut document = serde_json::to_value(summary.totals).unwrap_or_default();
    let per_minute = summary.totals.states_distinct as f64 * 60.0 / seconds.max(1e-9);
    document["failures"] = json!(summary.failed.len());
    document["replay"] = json!(summary.failed.iter().map(|failed| &failed.replay).collect::<Vec<_>>());
    document["states_per_minute"] = json!(per_minute.round());
    document["trace_hash"] = json!(format!("{:016x}", summary.trace_hash));
    document["seed"] = json!(arguments.seed);
    document
}
