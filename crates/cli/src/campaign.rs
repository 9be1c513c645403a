//! `weir crash campaign`: the campaigns of power cuts by which Weir is tested, each a subject and its judges.
//!
//! A campaign has *parts*, one for each storage, engine or mode that it goes through. A part is replayed by the same
//! command with its options and the number of a run. Each campaign has a *control*: a part that must fail, since its storage
//! or its filesystem does not keep what is promised. It shows that the judges can fail.

use std::io::Write as _;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use weir_crash::{
    Campaign, FlashCampaign, FsCampaign, FsGround, Plan, Share, SqliteCampaign, SqliteJournal,
    StreamCampaign, Summary, UpdateCampaign, VolumeCampaign,
};
use weir_flash::Mechanism;
use weir_fs::{Discards, Engine, JournalMode, MountOptions};
use weir_runtime::{Handle, Runtime, Wall, run_on_threads};
use weir_sqlite_vfs::Mode;

use crate::crash::fold_hash;
use crate::error::CliError;
use crate::journal_mode::JournalName;
use crate::{Verdict, print};

/// Grounds that keep barriers.
const BARRIER_GROUNDS: [&str; 7] = [
    "adversary",
    "volume",
    "plp",
    "in-order-writeback",
    "transactional",
    "in-order-recovery",
    "order-preserving-recovery",
];
/// Grounds of engines that need no barriers.
const LEGACY_GROUNDS: [&str; 7] =
    ["legacy", "volume", "emmc", "none", "plp", "in-order-recovery", "order-preserving-recovery"];
/// Grounds that keep the order of receipt.
const PREFIX_GROUNDS: [&str; 3] = ["volume", "prefix", "order-preserving-recovery"];
/// Grounds with packed writes.
const PACKED_GROUNDS: [&str; 5] = ["legacy", "volume", "emmc", "adversary", "prefix"];
/// Grounds of atomic files.
const UPDATE_GROUNDS: [&str; 6] =
    ["adversary", "legacy", "volume", "in-order-recovery", "none", "order-preserving-recovery"];

/// Arguments of `weir crash campaign`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct CampaignArguments {
    /// List the campaigns, and run nothing
    #[arg(long)]
    list: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    subject: Option<Subject>,
}

/// What a campaign tests.
#[derive(Debug, Subcommand)]
enum Subject {
    /// A volume on the worst legacy disk: what is left is a prefix of the requests
    Volume(VolumeArguments),
    /// Streams through the block layer, on a volume: what is left is whole epochs
    Streams(LengthArguments),
    /// Emulated flash devices: their firmware recovers what each barrier mechanism promises
    Flash(FlashArguments),
    /// The filesystem, on each storage: names, sizes and data, with e2fsck and the kernel as judges
    Fs(FsArguments),
    /// SQLite in the filesystem: committed transactions, and `integrity_check`
    Sqlite(SqliteArguments),
    /// Atomic files and units: all files at one commit, every unit whole
    Updates(UpdateArguments),
}

/// Names and titles of all campaigns, for `--list`.
const CAMPAIGNS: [(&str, &str); 6] = [
    ("volume", "a volume on the worst legacy disk"),
    ("streams", "streams through the block layer, on a volume"),
    ("flash", "emulated flash devices and their firmware"),
    ("fs", "the filesystem, on each storage"),
    ("sqlite", "SQLite in the filesystem"),
    ("updates", "atomic files and units"),
];

/// How long a campaign is.
#[derive(Clone, Debug, Args)]
struct LengthArguments {
    /// Distinct crash states to judge, in each part
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    states: u64,
    /// Determines everything
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Replay only the run with this number, and print what it does
    #[arg(long, value_name = "RUN")]
    only: Option<u64>,
    /// Share the runs among so many threads; another number is another campaign
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256), conflicts_with = "only")]
    shards: u64,
    /// Run the control, which must fail, in place of the campaign: exit code 0 if it fails
    #[arg(long)]
    control: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct VolumeArguments {
    #[command(flatten)]
    length: LengthArguments,
    /// Blocks of the disk, for large volumes; 0 for small ones of all kinds
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=4_294_967_294))]
    blocks: u64,
    /// The workloads share blocks, too; only states with a share under way count
    #[arg(long)]
    shares: bool,
}

#[derive(Debug, Args)]
struct FlashArguments {
    #[command(flatten)]
    length: LengthArguments,
    /// One barrier mechanism [default: all]
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(Mechanism::ALL.map(Mechanism::name)))]
    mechanism: Option<String>,
}

#[derive(Debug, Args)]
struct FsArguments {
    #[command(flatten)]
    length: LengthArguments,
    /// How the journal commits
    #[arg(long, value_name = "NAME", default_value = "dual", value_parser = PossibleValuesParser::new(Engine::ALL.map(Engine::name)))]
    engine: String,
    /// What the journal holds of file data
    #[arg(long, value_enum, default_value_t = JournalName::Ordered)]
    journal: JournalName,
    /// What the filesystem stands on [default: all that the engine is for]
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(FsGround::ALL.map(FsGround::name)))]
    ground: Option<String>,
    /// The journal logs changed bytes, and not whole blocks
    #[arg(long)]
    coalition: bool,
    /// Show one of N states to e2fsck and the kernel; 0 for none
    #[arg(long, value_name = "N", default_value_t = 500)]
    outside: u64,
    /// On the worst disk, one flush fails in every first life
    #[arg(long)]
    flush_faults: bool,
    /// Discard what is freed in every run where the storage can, not in some
    #[arg(long)]
    discard: bool,
    /// The worst disk tears what it writes at multiples of so many bytes
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = PossibleValuesParser::new(["512", "4096"]))]
    tear: String,
}

#[derive(Debug, Args)]
struct SqliteArguments {
    #[command(flatten)]
    length: LengthArguments,
    /// SQLite's journal mode [default: all]
    #[arg(long, value_name = "MODE", value_parser = PossibleValuesParser::new(SqliteJournal::ALL.map(SqliteJournal::name)))]
    journal: Option<String>,
    /// What COMMIT promises; off is SQLite by itself [default: durable and order]
    #[arg(long, value_name = "MODE", value_parser = PossibleValuesParser::new(["durable", "order", "off"]))]
    mode: Option<String>,
    /// What the filesystem stands on [default: all that keep barriers]
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(FsGround::ALL.map(FsGround::name)))]
    ground: Option<String>,
    /// `synchronous = EXTRA`: the deletion of a journal is synchronised, too
    #[arg(long)]
    extra: bool,
    /// The journal's engine is that for prefix devices
    #[arg(long)]
    prefix: bool,
}

#[derive(Debug, Args)]
struct UpdateArguments {
    #[command(flatten)]
    length: LengthArguments,
    /// What the journal holds of file data
    #[arg(long, value_enum, default_value_t = JournalName::Ordered)]
    journal: JournalName,
    /// What the filesystem stands on [default: one of each kind]
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(FsGround::ALL.map(FsGround::name)))]
    ground: Option<String>,
}

/// One part of a campaign: its options as they are typed, and how it is run.
struct Part {
    options: Vec<(&'static str, String)>,
    run: Box<dyn Fn(u64) -> Found>,
}

/// What a part has found.
struct Found {
    totals: Value,
    summary: Summary<()>,
}

impl Part {
    /// Each thread makes the campaign.
    fn new<C>(options: Vec<(&'static str, String)>, make_campaign: impl Fn() -> C + Sync + 'static) -> Part
    where
        C: Campaign + 'static,
        C::Totals: Send,
    {
        let run = move |count| {
            let shares = run_on_threads(count, |index| make_campaign().run_share(Share { index, count }));
            let summary = shares.into_iter().reduce(|mut summary, found| {
                summary.add(found);
                summary
            });
            let Summary { totals, states, failure, trace_hash } = summary.unwrap_or_default();
            let totals = serde_json::to_value(totals).unwrap_or_default();
            Found { totals, summary: Summary { totals: (), states, failure, trace_hash } }
        };
        Part { options, run: Box::new(run) }
    }

    /// Its options, each as its name and its value, without those that are not set.
    fn words(&self) -> Vec<String> {
        let options = self.options.iter().filter(|(_, value)| value != "no");
        let named = options.map(|(name, value)| match value.as_str() {
            "yes" => (*name).to_owned(),
            value => format!("{name} {value}"),
        });
        named.collect()
    }

    fn typed(&self) -> String {
        self.words().iter().map(|word| format!(" --{word}")).collect()
    }
}

/// Runs `weir crash campaign`; damaged if a state is wrong, or if a control passes.
pub(crate) fn run(arguments: &CampaignArguments) -> Result<Verdict, CliError> {
    match &arguments.subject {
        Some(subject) if !arguments.list => subject.run(),
        _ => print_list(arguments.json),
    }
}

fn print_list(is_json: bool) -> Result<Verdict, CliError> {
    if is_json {
        let names: Vec<Value> =
            CAMPAIGNS.iter().map(|(name, title)| json!({ "name": name, "title": title })).collect();
        print(&serde_json::to_string_pretty(&names)?)?;
    } else {
        let lines: Vec<String> = CAMPAIGNS.iter().map(|(name, title)| format!("{name:10}{title}")).collect();
        print(&lines.join("\n"))?;
    }
    Ok(Verdict::Good)
}

impl Subject {
    fn name(&self) -> &'static str {
        match self {
            Subject::Volume(_) => "volume",
            Subject::Streams(_) => "streams",
            Subject::Flash(_) => "flash",
            Subject::Fs(_) => "fs",
            Subject::Sqlite(_) => "sqlite",
            Subject::Updates(_) => "updates",
        }
    }

    fn length(&self) -> &LengthArguments {
        match self {
            Subject::Streams(length) => length,
            Subject::Volume(arguments) => &arguments.length,
            Subject::Flash(arguments) => &arguments.length,
            Subject::Fs(arguments) => &arguments.length,
            Subject::Sqlite(arguments) => &arguments.length,
            Subject::Updates(arguments) => &arguments.length,
        }
    }

    fn parts(&self) -> Result<Vec<Part>, CliError> {
        match self {
            Subject::Volume(arguments) => Ok(vec![arguments.part(false)]),
            Subject::Streams(length) => Ok(vec![streams(length, false)]),
            Subject::Flash(arguments) => Ok(arguments.parts()),
            Subject::Fs(arguments) => arguments.parts(),
            Subject::Sqlite(arguments) => Ok(arguments.parts()),
            Subject::Updates(arguments) => Ok(arguments.parts()),
        }
    }

    /// The part that must fail.
    fn control(&self) -> Part {
        let Plan { states, seed, only } = self.length().plan();
        let claiming = FsGround::Claiming;
        match self {
            Subject::Volume(arguments) => arguments.part(true),
            Subject::Streams(length) => streams(length, true),
            Subject::Flash(_) => {
                let make_campaign = move || FlashCampaign {
                    claims_barriers: true,
                    only,
                    ..FlashCampaign::new(Mechanism::None, states, seed)
                };
                Part::new(
                    vec![("claims", "barriers that the device does not keep".to_owned())],
                    make_campaign,
                )
            }
            Subject::Fs(_) => {
                let campaign = FsCampaign::new(Engine::Prefix, JournalMode::Ordered, claiming, states, seed);
                let campaign = FsCampaign { only, outside: 0, ..campaign };
                Part::new(vec![("claims", "order that the disk does not keep".to_owned())], move || {
                    campaign.clone()
                })
            }
            Subject::Sqlite(_) => {
                let ground = FsGround::Adversary { barriers: false };
                let campaign = SqliteCampaign::new(SqliteJournal::Wal, Mode::Order, ground, states, seed);
                let campaign = SqliteCampaign { ignores_barriers: true, only, ..campaign };
                Part::new(vec![("claims", "barriers that the disk does not keep".to_owned())], move || {
                    campaign.clone()
                })
            }
            Subject::Updates(_) => {
                let options = MountOptions { engine: Some(Engine::Prefix), ..MountOptions::default() };
                let campaign = UpdateCampaign { ground: claiming, states, seed, only, options };
                Part::new(vec![("claims", "order that the disk does not keep".to_owned())], move || {
                    campaign.clone()
                })
            }
        }
    }

    fn run(&self) -> Result<Verdict, CliError> {
        let length = self.length();
        let parts = if length.control { vec![self.control()] } else { self.parts()? };
        let clock = Runtime::wall(Wall::default())?.handle();
        let mut report = Report::default();
        for part in &parts {
            report.add(self, part, &clock)?;
        }
        if length.json {
            print(&serde_json::to_string_pretty(&report.document(self))?)?;
        }
        let is_as_expected = (report.failures > 0) == length.control;
        Ok(if is_as_expected { Verdict::Good } else { Verdict::Damaged })
    }

    /// The command that does a run of a part again.
    fn replay(&self, part: &Part, run: u64) -> String {
        let (name, seed) = (self.name(), self.length().seed);
        if self.length().control {
            return format!("weir crash campaign {name} --control --seed {seed} --only {run}");
        }
        format!("weir crash campaign {name}{} --seed {seed} --only {run}", part.typed())
    }
}

/// What the parts of a campaign have found so far.
#[derive(Default)]
struct Report {
    states: u64,
    failures: u64,
    trace_hash: u64,
    parts: Vec<Value>,
}

impl Report {
    /// Runs a part, and prints what it has found.
    fn add(&mut self, subject: &Subject, part: &Part, clock: &Handle) -> Result<(), CliError> {
        let length = subject.length();
        let title = match &part.words()[..] {
            [] => subject.name().to_owned(),
            words => format!("{}: {}", subject.name(), words.join(", ")),
        };
        let began = clock.now();
        let Found { totals, summary } = (part.run)(length.shards);
        let seconds = clock.now().since(began).as_secs_f64();
        self.states += summary.states;
        self.failures += u64::from(summary.failure.is_some());
        self.trace_hash = fold_hash(self.trace_hash, summary.trace_hash);
        let mut document = totals;
        for (name, value) in &part.options {
            document[*name] = json!(value);
        }
        document["states"] = json!(summary.states);
        document["failures"] = json!(u64::from(summary.failure.is_some()));
        document["trace_hash"] = json!(format!("{:016x}", summary.trace_hash));
        document["states_per_minute"] = json!((summary.states as f64 * 60.0 / seconds.max(1e-9)).round());
        if let Some(failure) = &summary.failure {
            let replay = subject.replay(part, failure.run);
            let mut errors = std::io::stderr();
            // Where standard error is closed, the document and the exit code still say it.
            if length.only.is_some() {
                let _ = failure.story.iter().try_for_each(|line| writeln!(errors, "{line}"));
            }
            let _ = writeln!(
                errors,
                "{title}, run {}, life {}, event {}: {}\nreplay: {replay}",
                failure.run, failure.life, failure.event, failure.what
            );
            document["replay"] = json!(replay);
        }
        if !length.json {
            print(&format!(
                "{title}: {} states of {} runs: {}",
                summary.states,
                document["runs"],
                if summary.failure.is_some() { "FAILED" } else { "all as promised" }
            ))?;
        }
        self.parts.push(document);
        Ok(())
    }

    fn document(&self, subject: &Subject) -> Value {
        json!({
            "campaign": subject.name(),
            "control": subject.length().control,
            "seed": subject.length().seed,
            "states": self.states,
            "failures": self.failures,
            "trace_hash": format!("{:016x}", self.trace_hash),
            "parts": self.parts,
        })
    }
}

impl LengthArguments {
    fn plan(&self) -> Plan {
        Plan { states: self.states, seed: self.seed, only: self.only }
    }
}

fn yes(is_set: bool) -> String {
    if is_set { "yes" } else { "no" }.to_owned()
}

fn grounds_of(named: Option<&String>, all: &[&'static str]) -> Vec<FsGround> {
    let names = named.map_or_else(|| all.to_vec(), |name| vec![name.as_str()]);
    names.into_iter().filter_map(FsGround::from_name).collect()
}

fn streams(length: &LengthArguments, ignores_flushes: bool) -> Part {
    let Plan { states, seed, only } = length.plan();
    Part::new(Vec::new(), move || StreamCampaign { seed, states, only, ignores_flushes })
}

impl VolumeArguments {
    fn part(&self, ignores_flushes: bool) -> Part {
        let Plan { states, seed, only } = self.length.plan();
        let mut options = vec![("shares", yes(self.shares))];
        if self.blocks > 0 {
            options.push(("blocks", self.blocks.to_string()));
        }
        let (disk_blocks, shares) = (self.blocks, self.shares);
        Part::new(options, move || VolumeCampaign {
            seed,
            states,
            only,
            disk_blocks,
            shares,
            ignores_flushes,
        })
    }
}

impl FlashArguments {
    fn parts(&self) -> Vec<Part> {
        let Plan { states, seed, only } = self.length.plan();
        let wanted = |mechanism: &Mechanism| {
            self.mechanism.as_ref().is_none_or(|name| Mechanism::named(name) == Some(*mechanism))
        };
        let part = |mechanism: Mechanism| {
            let make_campaign = move || FlashCampaign { only, ..FlashCampaign::new(mechanism, states, seed) };
            Part::new(vec![("mechanism", mechanism.name().to_owned())], make_campaign)
        };
        Mechanism::ALL.into_iter().filter(wanted).map(part).collect()
    }
}

impl FsArguments {
    fn parts(&self) -> Result<Vec<Part>, CliError> {
        let Plan { states, seed, only } = self.length.plan();
        let engine: Engine = self.engine.parse()?;
        let (needs, can_mount): (&'static str, fn(FsGround) -> bool) = match engine {
            Engine::Dual { .. } => ("barriers", FsGround::keeps_barriers),
            Engine::Prefix => ("the order of receipt", |ground| PREFIX_GROUNDS.contains(&ground.name())),
            Engine::FlushAhead => ("packed writes", |ground| PACKED_GROUNDS.contains(&ground.name())),
            _ => ("nothing", |_| true),
        };
        let grounds: &[&str] = match engine {
            Engine::Dual { .. } => &BARRIER_GROUNDS,
            Engine::Jbd2 { barrier: false } | Engine::Prefix => &PREFIX_GROUNDS,
            Engine::FlushAhead => &PACKED_GROUNDS,
            _ => &LEGACY_GROUNDS,
        };
        let (mode, checkpoint) = self.journal.options();
        let tear_bytes = if self.tear == "512" { 512 } else { 4096 };
        let part = |ground: FsGround| {
            let campaign = FsCampaign::new(engine, mode, ground, states, seed);
            let (outside, flush_faults) = (self.outside, self.flush_faults);
            let mut campaign = FsCampaign { only, outside, flush_faults, tear_bytes, ..campaign };
            campaign.options.checkpoint = checkpoint;
            campaign.options.coalition = self.coalition;
            if self.discard {
                campaign.options.discard = Discards::On;
            }
            let options = vec![
                ("engine", self.engine.clone()),
                ("journal", crate::journal_mode::name(mode, checkpoint).to_owned()),
                ("ground", ground.name().to_owned()),
                ("coalition", yes(self.coalition)),
                ("flush-faults", yes(self.flush_faults)),
                ("discard", yes(self.discard)),
                ("tear", self.tear.clone()),
                ("outside", self.outside.to_string()),
            ];
            Part::new(options, move || campaign.clone())
        };
        let grounds = grounds_of(self.ground.as_ref(), grounds);
        match grounds.iter().find(|ground| !can_mount(**ground)) {
            Some(ground) => {
                let (engine, ground) = (self.engine.clone(), ground.name());
                Err(CliError::EngineNeeds { engine, needs, ground })
            }
            None => Ok(grounds.into_iter().map(part).collect()),
        }
    }
}

impl SqliteArguments {
    fn parts(&self) -> Vec<Part> {
        let Plan { states, seed, only } = self.length.plan();
        let is_wanted =
            |wanted: &Option<String>, name: &str| wanted.as_ref().is_none_or(|wanted| wanted == name);
        let modes = [("durable", Mode::Durable), ("order", Mode::Order), ("off", Mode::Off)];
        let modes = modes.into_iter().filter(|(name, _)| match &self.mode {
            Some(wanted) => wanted == name,
            None => *name != "off",
        });
        let modes: Vec<(&str, Mode)> = modes.collect();
        let engine = self.prefix.then_some(Engine::Prefix);
        let mut parts = Vec::new();
        for journal in
            SqliteJournal::ALL.into_iter().filter(|journal| is_wanted(&self.journal, journal.name()))
        {
            for (mode_name, mode) in &modes {
                for ground in grounds_of(self.ground.as_ref(), &BARRIER_GROUNDS[..6]) {
                    let options = MountOptions { engine, ..MountOptions::default() };
                    let campaign = SqliteCampaign::new(journal, *mode, ground, states, seed);
                    let campaign = SqliteCampaign { only, extra: self.extra, options, ..campaign };
                    let options = vec![
                        ("journal", journal.name().to_owned()),
                        ("mode", (*mode_name).to_owned()),
                        ("ground", ground.name().to_owned()),
                        ("extra", yes(self.extra)),
                        ("prefix", yes(self.prefix)),
                    ];
                    parts.push(Part::new(options, move || campaign.clone()));
                }
            }
        }
        parts
    }
}

impl UpdateArguments {
    fn parts(&self) -> Vec<Part> {
        let Plan { states, seed, only } = self.length.plan();
        let (mode, checkpoint) = self.journal.options();
        let part = |ground: FsGround| {
            let engine = match ground.name() {
                "order-preserving-recovery" | "prefix" => Engine::Prefix,
                _ => ground.default_engine(),
            };
            let options = MountOptions { engine: Some(engine), mode, checkpoint, ..MountOptions::default() };
            let typed = vec![
                ("journal", crate::journal_mode::name(mode, checkpoint).to_owned()),
                ("ground", ground.name().to_owned()),
            ];
            Part::new(typed, move || UpdateCampaign { ground, states, seed, only, options })
        };
        grounds_of(self.ground.as_ref(), &UPDATE_GROUNDS).into_iter().map(part).collect()
    }
}
