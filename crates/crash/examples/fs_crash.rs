//! A crash campaign on the filesystem: random operations on a small and nearly full one, the power cut at every
//! event of what is below, what is left recovered, read and judged; a sample by e2fsck and the kernel, too.
//!
//! `fs_crash --engine NAME --journal MODE --ground NAME --states N --seed S [--flush-faults] [--discard] [--tear BYTES] [--json] [--only RUN]`

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what it is for")]

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use serde_json::json;
use weir_crash::{FsCampaign, FsFailure, FsGround};
use weir_fs::{Conflicts, Engine, JournalMode};
use weir_runtime::{Runtime, Wall};

/// Cuts the power under a filesystem at every event, and judges what is recovered.
#[derive(Parser)]
struct Arguments {
    /// Who commits.
    #[arg(long, value_enum, default_value_t = EngineName::Dual)]
    engine: EngineName,
    /// What the journal holds of file data.
    #[arg(long, value_enum, default_value_t = Journal::Ordered)]
    journal: Journal,
    /// What is below: adversary (the worst disk, with barriers), legacy (without), volume (on the worst legacy
    /// disk), or an emulated flash device by its barrier mechanism: plp, in-order-writeback, transactional,
    /// in-order-recovery, none. By default all that the engine can stand on.
    #[arg(long)]
    ground: Option<String>,
    /// Distinct states to judge, on each ground.
    #[arg(long, default_value_t = 20_000)]
    states: u64,
    /// Determines everything.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Of this many states, one is shown to e2fsck and the kernel; 0 for none.
    #[arg(long, default_value_t = 500)]
    outside: u64,
    /// On the adversary's disks, one flush fails in every first life.
    #[arg(long)]
    flush_faults: bool,
    /// What is freed is discarded.
    #[arg(long)]
    discard: bool,
    /// The adversary's disks tear what they write at multiples of so many bytes: 512 or 4096.
    #[arg(long, default_value_t = 4096, value_parser = tear_bytes)]
    tear: u32,
    /// Replay only the run with this number, and tell what it does.
    #[arg(long)]
    only: Option<u64>,
    /// One JSON document on standard output, and nothing else.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum EngineName {
    /// Dual-mode journaling, conflicting blocks copied.
    Dual,
    /// Dual-mode journaling with the papers' conflict-page list.
    DualList,
    /// The legacy path: waits, flushes and FUA.
    Jbd2,
    /// The legacy path without any flush: what it leaves is not consistent.
    Nobarrier,
}

#[derive(Clone, Copy, ValueEnum)]
enum Journal {
    /// Nothing; data has no order.
    Writeback,
    /// Nothing; data is there before what refers to it.
    Ordered,
    /// All of it.
    Data,
}

impl Arguments {
    /// The options that change a run and are not always given.
    fn beside(&self) -> String {
        let mut given = String::new();
        if self.flush_faults {
            given += " --flush-faults";
        }
        if self.discard {
            given += " --discard";
        }
        if self.tear != 4096 {
            given += &format!(" --tear {}", self.tear);
        }
        given
    }
}

/// Sizes at which disks tear what they write.
fn tear_bytes(text: &str) -> Result<u32, String> {
    match text {
        "512" => Ok(512),
        "4096" => Ok(4096),
        _ => Err("512 or 4096".to_owned()),
    }
}

impl EngineName {
    fn engine(self) -> Engine {
        match self {
            EngineName::Dual => Engine::Dual { conflicts: Conflicts::Copy },
            EngineName::DualList => Engine::Dual { conflicts: Conflicts::List },
            EngineName::Jbd2 => Engine::Jbd2 { barrier: true },
            EngineName::Nobarrier => Engine::Jbd2 { barrier: false },
        }
    }

    /// The grounds that it can stand on: dual-mode journaling needs barriers.
    fn grounds(self) -> &'static [&'static str] {
        match self {
            EngineName::Dual | EngineName::DualList => {
                &["adversary", "volume", "plp", "in-order-writeback", "transactional", "in-order-recovery"]
            }
            EngineName::Jbd2 | EngineName::Nobarrier => {
                &["legacy", "volume", "none", "plp", "in-order-recovery"]
            }
        }
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::parse();
    let mode = match arguments.journal {
        Journal::Writeback => JournalMode::Writeback,
        Journal::Ordered => JournalMode::Ordered,
        Journal::Data => JournalMode::Data,
    };
    let names = match &arguments.ground {
        Some(name) => vec![name.as_str()],
        None => arguments.engine.grounds().to_vec(),
    };
    let clock = Runtime::wall(Wall::default())?.handle();
    let mut documents = Vec::new();
    let mut failed = false;
    for name in names {
        let ground = FsGround::named(name).ok_or_else(|| format!("no ground is named {name}"))?;
        let began = clock.now();
        let engine = arguments.engine.engine();
        let mut campaign = FsCampaign {
            only: arguments.only,
            outside: arguments.outside,
            flush_faults: arguments.flush_faults,
            tear_bytes: arguments.tear,
            ..FsCampaign::new(engine, mode, ground, arguments.states, arguments.seed)
        };
        campaign.options.discard = arguments.discard;
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
            let seed = arguments.seed;
            let replay = format!(
                "fs_crash --engine {engine} --journal {journal} --ground {name} --seed {seed} --only {}{}",
                failure.run,
                arguments.beside()
            );
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

fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
