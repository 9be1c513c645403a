//! A crash campaign on emulated flash: workloads on small devices, the power cut at every event, what is left
//! recovered by the firmware and judged.
//!
//! `flash_crash --mechanism NAME --states N --seed S [--json] [--only RUN]`

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what it is for")]

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use serde_json::{Value, json};
use weir_crash::FlashCampaign;
use weir_flash::Mechanism;
use weir_runtime::{Runtime, Wall};

/// Cuts the power of an emulated flash device at every event, and judges what its firmware recovers.
#[derive(Parser)]
struct Arguments {
    /// The barrier mechanism: none, plp, in-order-writeback, transactional, in-order-recovery,
    /// order-preserving-recovery; or all.
    #[arg(long, default_value = "all")]
    mechanism: String,
    /// Distinct states of the flash to judge, for each mechanism.
    #[arg(long, default_value_t = 100_000)]
    states: u64,
    /// Determines everything.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Replay only the run with this number.
    #[arg(long)]
    only: Option<u64>,
    /// One JSON document on standard output, instead of a line for each mechanism.
    #[arg(long)]
    json: bool,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::parse();
    let mechanisms: Vec<Mechanism> = match arguments.mechanism.as_str() {
        "all" => Mechanism::ALL.to_vec(),
        name => vec![Mechanism::named(name).ok_or_else(|| unknown(name))?],
    };
    let clock = Runtime::wall(Wall::default())?.handle();
    let mut documents = Vec::new();
    let mut failed = false;
    for mechanism in mechanisms {
        let began = clock.now();
        let campaign = FlashCampaign {
            only: arguments.only,
            ..FlashCampaign::new(mechanism, arguments.states, arguments.seed)
        };
        let summary = campaign.go();
        let mut document = serde_json::to_value(summary.totals)?;
        document["mechanism"] = json!(mechanism.name());
        document["seed"] = json!(arguments.seed);
        document["trace_hash"] = json!(format!("{:016x}", summary.trace_hash));
        document["failures"] = json!(usize::from(summary.failure.is_some()));
        let seconds = clock.now().since(began).as_secs_f64();
        document["states_per_minute"] =
            json!((summary.totals.states_distinct as f64 * 60.0 / seconds.max(1e-9)).round());
        if let Some(failure) = &summary.failure {
            failed = true;
            eprintln!("{}: {failure:?}", mechanism.name());
            let (name, run) = (mechanism.name(), failure.run);
            let replay = format!("flash_crash --mechanism {name} --seed {} --only {run}", arguments.seed);
            eprintln!("replay: {replay}");
            document["replay"] = json!(replay);
        }
        if !arguments.json {
            println!("{}", line(&document));
        }
        documents.push(document);
    }
    if !arguments.json {
        return Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    let document = if documents.len() == 1 { documents.remove(0) } else { json!(documents) };
    println!("{document:#}");
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn unknown(name: &str) -> String {
    let known = Mechanism::ALL.map(Mechanism::name).join(", ");
    format!("no mechanism is named {name}; there are {known}, and all")
}

/// One mechanism's result, for people.
fn line(document: &Value) -> String {
    let [name, hash] = ["mechanism", "trace_hash"].map(|key| document[key].as_str().unwrap_or_default());
    let counts = ["states_distinct", "states_cleaning", "states_recovery", "failures", "states_per_minute"];
    let [states, cleaning, recovery, failures, a_minute] =
        counts.map(|key| document[key].as_f64().unwrap_or(0.0));
    format!(
        "{name}: {states} distinct states, {cleaning} with cleaning, {recovery} left by a cut during recovery; \
         failures: {failures}; {a_minute} states a minute; trace hash {hash}"
    )
}
