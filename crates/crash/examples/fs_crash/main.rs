//! A crash campaign on the filesystem: random operations on a small and nearly full one, the power cut at every
//! event of what is below, what is left recovered, read and judged; a sample by e2fsck and the kernel, too.
//!
//! `fs_crash --engine NAME --journal MODE --ground NAME --states N --seed S [--flush-faults] [--discard] [--tear BYTES] [--json] [--only RUN]`

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what it is for")]

mod arguments;

use std::error::Error;
use std::process::ExitCode;

use arguments::{Arguments, name_of};
use serde_json::json;
use weir_crash::{FsCampaign, FsFailure};
use weir_fs::Discards;
use weir_runtime::{Runtime, Wall};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::read(std::env::args_os()).unwrap_or_else(|refused| refused.exit());
    let mode = arguments.journal.mode();
    let clock = Runtime::wall(Wall::default())?.handle();
    let mut documents = Vec::new();
    let mut failed = false;
    for ground in arguments.grounds() {
        let name = ground.name();
        let began = clock.now();
        let engine = arguments.engine.engine();
        let mut campaign = FsCampaign {
            only: arguments.only,
            outside: arguments.outside,
            flush_faults: arguments.flush_faults,
            tear_bytes: arguments.tear,
            ..FsCampaign::new(engine, mode, ground, arguments.states, arguments.seed)
        };
        campaign.options.checkpoint = arguments.journal.checkpoint();
        campaign.options.coalition = arguments.coalition;
        campaign.options.rules = arguments.journal.rules();
        if arguments.discard {
            campaign.options.discard = Discards::On;
        }
        let summary = campaign.go();
        let seconds = clock.now().since(began).as_secs_f64();
        let engine = name_of(arguments.engine);
        let journal = name_of(arguments.journal);
        let mut document = serde_json::to_value(summary.totals)?;
        document["engine"] = json!(engine);
        document["journal"] = json!(journal);
        document["ground"] = json!(name);
        document["seed"] = json!(arguments.seed);
        let beside = arguments.beside();
        if !beside.is_empty() {
            document["options"] = json!(beside.trim());
        }
        document["trace_hash"] = json!(format!("{:016x}", summary.trace_hash));
        document["failures"] = json!(usize::from(summary.failure.is_some()));
        document["states_per_minute"] =
            json!((summary.totals.states_distinct as f64 * 60.0 / seconds.max(1e-9)).round());
        if let Some(failure) = &summary.failure {
            failed = true;
            let replay = arguments.replay(ground, failure.run);
            let FsFailure { life, event, what, story, .. } = failure;
            if arguments.only.is_some() {
                story.iter().for_each(|line| eprintln!("{line}"));
            }
            eprintln!("{name}, life {life}, event {event}: {what}\nreplay: {replay}");
            document["replay"] = json!(replay);
        }
        if !arguments.json {
            let totals = summary.totals;
            eprintln!(
                "{engine}, {journal}, {name}: {} states of {} runs, {} shown to e2fsck, {} to the kernel: {}",
                totals.states_distinct,
                totals.runs,
                totals.states_outside,
                totals.states_kernel,
                if summary.failure.is_some() { "FAILED" } else { "all as promised" }
            );
        }
        documents.push(document);
    }
    if arguments.json {
        let document = if documents.len() == 1 { documents.remove(0) } else { json!(documents) };
        println!("{document:#}");
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
