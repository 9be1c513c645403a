//! The subjects of `weir crash campaign`: the arguments of each, its parts, and its control.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use weir_crash::{
    F2fsCampaign, FlashCampaign, FsCampaign, FsGround, Plan, SECTOR_BYTES, Setup, SqliteCampaign,
    SqliteJournal, StreamCampaign, UpdateCampaign, VolumeCampaign, VstCampaign, VstRequest, WorkloadCampaign,
};
use weir_flash::Mechanism;
use weir_fs::{Discards, Engine, JournalMode, MountOptions};
use weir_lfs::{Cleaner, SyncMode};
use weir_sqlite_vfs::Mode;
use weir_workload::{BlockTrace, TraceKind};

use super::Part;
use crate::by_name::by_name;
use crate::error::CliError;
use crate::journal_mode::{self, JournalName};
use crate::plain;

const ADVERSARY: FsGround = FsGround::Adversary { barriers: true };
const LEGACY: FsGround = FsGround::Adversary { barriers: false };
const EMMC: FsGround = FsGround::Emmc { reliable: true };
const NO_BARRIERS: FsGround = FsGround::Flash(Mechanism::None);
const PLP: FsGround = FsGround::Flash(Mechanism::PowerLossProtection);
const IN_ORDER_WRITEBACK: FsGround = FsGround::Flash(Mechanism::InOrderWriteback);
const TRANSACTIONAL: FsGround = FsGround::Flash(Mechanism::TransactionalWriteback);
const IN_ORDER_RECOVERY: FsGround = FsGround::Flash(Mechanism::InOrderRecovery);
const ORDER_PRESERVING: FsGround = FsGround::Flash(Mechanism::OrderPreservingRecovery);

/// Grounds that keep barriers.
const BARRIER_GROUNDS: [FsGround; 7] = [
    ADVERSARY,
    FsGround::Volume,
    PLP,
    IN_ORDER_WRITEBACK,
    TRANSACTIONAL,
    IN_ORDER_RECOVERY,
    ORDER_PRESERVING,
];
/// Grounds of SQLite: one that keeps barriers of each kind.
const SQLITE_GROUNDS: [FsGround; 6] =
    [ADVERSARY, FsGround::Volume, PLP, IN_ORDER_WRITEBACK, TRANSACTIONAL, IN_ORDER_RECOVERY];
/// Grounds of engines that need no barriers.
const LEGACY_GROUNDS: [FsGround; 7] =
    [LEGACY, FsGround::Volume, EMMC, NO_BARRIERS, PLP, IN_ORDER_RECOVERY, ORDER_PRESERVING];
/// Grounds that keep the order of receipt.
const PREFIX_GROUNDS: [FsGround; 3] = [FsGround::Volume, FsGround::PrefixDisk, ORDER_PRESERVING];
/// Grounds with packed writes.
const PACKED_GROUNDS: [FsGround; 5] = [LEGACY, FsGround::Volume, EMMC, ADVERSARY, FsGround::PrefixDisk];
/// Grounds of atomic files.
const UPDATE_GROUNDS: [FsGround; 6] =
    [ADVERSARY, LEGACY, FsGround::Volume, IN_ORDER_RECOVERY, NO_BARRIERS, ORDER_PRESERVING];

/// Grounds of F2FS: with barriers and without. Each can share.
const F2FS_GROUNDS: [FsGround; 5] = [ADVERSARY, LEGACY, FsGround::Volume, IN_ORDER_RECOVERY, NO_BARRIERS];

/// What a campaign tests.
#[derive(Debug, Subcommand)]
pub(super) enum Subject {
    /// A volume on the worst legacy disk: what is left is a prefix of the requests
    Volume(VolumeArguments),
    /// Streams through the block layer, on a volume: what is left is whole epochs
    Streams(StreamArguments),
    /// Emulated flash devices: their firmware recovers what each barrier mechanism promises
    Flash(FlashArguments),
    /// Order-preserving firmware under a trace: what is left is what a golden disk holds (virtual stress testing)
    Vst(VstArguments),
    /// The filesystem, on each storage: names, sizes and data, with e2fsck and the kernel as judges
    Fs(FsArguments),
    /// F2FS, on each storage: names, sizes and data, while segments are cleaned, with fsck.f2fs as a judge
    F2fs(F2fsArguments),
    /// Workloads as `weir crash run` plays them: all short ones, each operation and call by itself
    Workload(WorkloadArguments),
    /// SQLite in the filesystem: committed transactions, and `integrity_check`
    Sqlite(SqliteArguments),
    /// Atomic files and units: all files at one commit, every unit whole
    Updates(UpdateArguments),
}

impl Subject {
    /// Its name, how long its campaign is, and its parts.
    pub(super) fn entry(&self) -> (&'static str, &LengthArguments, &dyn Tested) {
        match self {
            Subject::Volume(arguments) => ("volume", &arguments.length, arguments),
            Subject::Streams(arguments) => ("streams", &arguments.length, arguments),
            Subject::Flash(arguments) => ("flash", &arguments.length, arguments),
            Subject::Vst(arguments) => ("vst", &arguments.length, arguments),
            Subject::Fs(arguments) => ("fs", &arguments.length, arguments),
            Subject::F2fs(arguments) => ("f2fs", &arguments.length, arguments),
            Subject::Workload(arguments) => ("workload", &arguments.length, arguments),
            Subject::Sqlite(arguments) => ("sqlite", &arguments.length, arguments),
            Subject::Updates(arguments) => ("updates", &arguments.length, arguments),
        }
    }
}

/// What a subject makes of its arguments.
pub(super) trait Tested {
    /// The parts of its campaign.
    ///
    /// # Errors
    /// [`CliError`] for arguments that do not fit together.
    fn parts(&self) -> Result<Vec<Part>, CliError>;

    /// The part that must fail.
    fn control(&self) -> Part;
}

/// How long a campaign is.
#[derive(Clone, Debug, Args)]
pub(super) struct LengthArguments {
    /// Distinct crash states to judge, in each part
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    states: u64,
    /// Determines everything
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Replay only the run with this number, and print what it does
    #[arg(long, value_name = "RUN")]
    pub(super) only: Option<u64>,
    /// Share the runs among so many threads; another number is another campaign
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256), conflicts_with = "only")]
    pub(super) shards: u64,
    /// Run the control, which must fail, in place of the campaign: exit code 0 if it fails
    #[arg(long)]
    pub(super) control: bool,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct VolumeArguments {
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
pub(super) struct StreamArguments {
    #[command(flatten)]
    length: LengthArguments,
}

#[derive(Debug, Args)]
pub(super) struct FlashArguments {
    #[command(flatten)]
    length: LengthArguments,
    /// One barrier mechanism [default: all]
    #[arg(long, value_name = "NAME", value_parser = by_name(Mechanism::ALL, Mechanism::name))]
    mechanism: Option<Mechanism>,
}

#[derive(Debug, Args)]
pub(super) struct VstArguments {
    #[command(flatten)]
    length: LengthArguments,
    /// Flush after so many writes [default: only where the trace does]
    #[arg(long, value_name = "N")]
    flush_every: Option<u64>,
    /// A block trace: a CSV file of the MSR traces, the text of blkparse, or an iolog of fio [default: random writes]
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct FsArguments {
    #[command(flatten)]
    length: LengthArguments,
    /// How the journal commits
    #[arg(long, value_name = "NAME", default_value = "dual", value_parser = by_name(Engine::ALL, Engine::name))]
    engine: Engine,
    /// What the journal holds of file data
    #[arg(long, value_enum, default_value_t = JournalName::Ordered)]
    journal: JournalName,
    /// What the filesystem stands on [default: all that the engine is for]
    #[arg(long, value_name = "NAME", value_parser = by_name(FsGround::ALL, FsGround::name))]
    ground: Option<FsGround>,
    /// The journal logs changed bytes, and not whole blocks
    #[arg(long)]
    coalition: bool,
    /// Show one of N states to e2fsck and the kernel, where they are available; 0 for none
    #[arg(long, value_name = "N", default_value_t = 500)]
    outside: u64,
    /// On the worst disk, one flush fails in the first round of every run
    #[arg(long)]
    flush_faults: bool,
    /// Discard what is freed in every run where the storage can, not in some
    #[arg(long)]
    discard: bool,
    /// The worst disk tears what it writes at multiples of so many bytes
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = by_name([512, 4096], crate::crash::name_of_tear))]
    tear: u32,
}

#[derive(Debug, Args)]
pub(super) struct F2fsArguments {
    #[command(flatten)]
    length: LengthArguments,
    /// How the cleaner moves blocks [default: all ways]
    #[arg(long, value_name = "NAME", value_parser = by_name(Cleaner::ALL, Cleaner::name))]
    cleaner: Option<Cleaner>,
    /// What the filesystem stands on [default: one of each kind]
    #[arg(long, value_name = "NAME", value_parser = by_name(F2FS_GROUNDS, FsGround::name))]
    ground: Option<FsGround>,
    /// Show one of N states to fsck.f2fs, where it is available; 0 for none
    #[arg(long, value_name = "N", default_value_t = 500)]
    outside: u64,
}

#[derive(Debug, Args)]
pub(super) struct WorkloadArguments {
    #[command(flatten)]
    length: LengthArguments,
    /// What the filesystem stands on
    #[arg(long, value_name = "NAME", default_value = "volume", value_parser = by_name(FsGround::ALL, FsGround::name))]
    ground: FsGround,
    /// How the journal commits [default: dual where the ground keeps barriers, jbd2 elsewhere]
    #[arg(long, value_name = "NAME", value_parser = by_name(Engine::ALL, Engine::name))]
    engine: Option<Engine>,
}

#[derive(Debug, Args)]
pub(super) struct SqliteArguments {
    #[command(flatten)]
    length: LengthArguments,
    /// SQLite's journal mode [default: all]
    #[arg(long, value_name = "MODE", value_parser = by_name(SqliteJournal::ALL, SqliteJournal::name))]
    journal: Option<SqliteJournal>,
    /// What COMMIT promises; off is SQLite by itself [default: durable and order]
    #[arg(long, value_name = "MODE", value_parser = by_name(MODES, name_of_mode))]
    mode: Option<Mode>,
    /// What the filesystem stands on [default: all that keep barriers]
    #[arg(long, value_name = "NAME", value_parser = by_name(FsGround::ALL, FsGround::name))]
    ground: Option<FsGround>,
    /// `synchronous = EXTRA`: the deletion of a journal is synchronised, too
    #[arg(long)]
    extra: bool,
    /// The journal's engine is that for prefix devices
    #[arg(long)]
    prefix: bool,
}

#[derive(Debug, Args)]
pub(super) struct UpdateArguments {
    #[command(flatten)]
    length: LengthArguments,
    /// What the journal holds of file data
    #[arg(long, value_enum, default_value_t = JournalName::Ordered)]
    journal: JournalName,
    /// What the filesystem stands on [default: one of each kind]
    #[arg(long, value_name = "NAME", value_parser = by_name(FsGround::ALL, FsGround::name))]
    ground: Option<FsGround>,
}

impl LengthArguments {
    fn plan(&self) -> Plan {
        Plan { states: self.states, seed: self.seed, only: self.only }
    }
}

fn yes(is_set: bool) -> String {
    if is_set { "yes" } else { "no" }.to_owned()
}

/// The one that is asked for, or all.
fn one_or_all<T>(one: Option<T>, all: impl IntoIterator<Item = T>) -> Vec<T> {
    one.map_or_else(|| all.into_iter().collect(), |one| vec![one])
}

/// What SQLite can promise.
const MODES: [Mode; 3] = [Mode::Durable, Mode::Order, Mode::Off];

fn name_of_mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Durable => "durable",
        Mode::Order => "order",
        Mode::Off => "off",
    }
}

impl VolumeArguments {
    fn campaign(&self) -> VolumeCampaign {
        VolumeCampaign {
            disk_blocks: self.blocks,
            shares: self.shares,
            ..VolumeCampaign::new(self.length.plan())
        }
    }
}

impl Tested for VolumeArguments {
    fn parts(&self) -> Result<Vec<Part>, CliError> {
        let mut options = vec![("shares", yes(self.shares))];
        if self.blocks > 0 {
            options.push(("blocks", self.blocks.to_string()));
        }
        let campaign = self.campaign();
        Ok(vec![Part::new(options, move || campaign)])
    }

    fn control(&self) -> Part {
        let campaign = VolumeCampaign { ignores_flushes: true, ..self.campaign() };
        Part::control("flushes that the disk ignores", move || campaign)
    }
}

impl Tested for StreamArguments {
    fn parts(&self) -> Result<Vec<Part>, CliError> {
        let campaign = StreamCampaign { plan: self.length.plan(), ignores_flushes: false };
        Ok(vec![Part::new(Vec::new(), move || campaign)])
    }

    fn control(&self) -> Part {
        let campaign = StreamCampaign { plan: self.length.plan(), ignores_flushes: true };
        Part::control("flushes that the disk ignores", move || campaign)
    }
}

impl Tested for FlashArguments {
    fn parts(&self) -> Result<Vec<Part>, CliError> {
        let plan = self.length.plan();
        let part = |mechanism: Mechanism| {
            let options = vec![("mechanism", mechanism.name().to_owned())];
            Part::new(options, move || FlashCampaign::new(mechanism, plan))
        };
        Ok(one_or_all(self.mechanism, Mechanism::ALL).into_iter().map(part).collect())
    }

    fn control(&self) -> Part {
        let plan = self.length.plan();
        Part::control("barriers that the device does not keep", move || FlashCampaign {
            claims_barriers: true,
            ..FlashCampaign::new(Mechanism::None, plan)
        })
    }
}

impl Tested for VstArguments {
    fn parts(&self) -> Result<Vec<Part>, CliError> {
        let (plan, flush_every) = (self.length.plan(), self.flush_every);
        let trace = self.trace.as_deref().map(read_trace).transpose()?.unwrap_or_default();
        let mut options = Vec::new();
        options.extend(flush_every.map(|writes| ("flush-every", writes.to_string())));
        options.extend(self.trace.as_deref().map(|path| ("trace", plain::word(path))));
        let make_campaign =
            move || VstCampaign { flush_every, trace: trace.clone(), ..VstCampaign::new(plan) };
        Ok(vec![Part::new(options, make_campaign)])
    }

    fn control(&self) -> Part {
        let plan = self.length.plan();
        Part::control("flushes that the device does not get", move || VstCampaign {
            flush_every: Some(20),
            ignores_flushes: true,
            ..VstCampaign::new(plan)
        })
    }
}

/// Requests of a trace that are replayed at most; the rest of the file is not read.
const TRACE_REQUESTS_MAX: usize = 2_000_000;

/// The requests of a trace that change something, and its flushes.
fn read_trace(path: &Path) -> Result<Vec<VstRequest>, CliError> {
    let failed = |source| CliError::File { doing: "read", path: path.to_owned(), source };
    let text = BufReader::new(File::open(path).map_err(failed)?);
    let mut requests = Vec::new();
    for request in BlockTrace::new(text) {
        let request = request.map_err(|source| CliError::Trace { path: path.to_owned(), source })?;
        let sector = request.offset / SECTOR_BYTES as u64;
        let sectors = request.bytes.div_ceil(SECTOR_BYTES as u64);
        if request.preflush {
            requests.push(VstRequest::Flush);
        }
        match request.kind {
            TraceKind::Write => requests.push(VstRequest::Write { sector, sectors }),
            TraceKind::Discard => requests.push(VstRequest::Discard { sector, sectors }),
            TraceKind::Flush => requests.push(VstRequest::Flush),
            TraceKind::Read => {}
        }
        if request.fua {
            requests.push(VstRequest::Flush);
        }
        if requests.len() >= TRACE_REQUESTS_MAX {
            break;
        }
    }
    match requests.iter().any(|request| *request != VstRequest::Flush) {
        true => Ok(requests),
        false => Err(CliError::Usage("the trace changes nothing: name one with writes")),
    }
}

impl Tested for WorkloadArguments {
    fn parts(&self) -> Result<Vec<Part>, CliError> {
        let (plan, ground) = (self.length.plan(), self.ground);
        let engine = self.engine.unwrap_or(ground.default_engine());
        let options = vec![("ground", ground.name().to_owned()), ("engine", engine.name().to_owned())];
        Ok(vec![Part::new(options, move || generated(plan, ground, engine))])
    }

    fn control(&self) -> Part {
        let (plan, legacy) = (self.length.plan(), FsGround::Adversary { barriers: false });
        let engine = Engine::Jbd2 { barrier: false };
        Part::control("order that the disk does not keep", move || generated(plan, legacy, engine))
    }
}

/// A campaign on the generated workloads.
fn generated(plan: Plan, ground: FsGround, engine: Engine) -> WorkloadCampaign {
    let setup = Setup { seed: plan.seed, ..Setup::new(ground, engine) };
    WorkloadCampaign { plan, setup, workloads: None }
}

impl Tested for FsArguments {
    fn parts(&self) -> Result<Vec<Part>, CliError> {
        let plan = self.length.plan();
        let engine = self.engine;
        let (needs, can_mount): (&'static str, fn(FsGround) -> bool) = match engine {
            Engine::Dual { .. } => ("barriers", FsGround::keeps_barriers),
            Engine::Prefix => ("the order of receipt", |ground| PREFIX_GROUNDS.contains(&ground)),
            Engine::FlushAhead => ("packed writes", |ground| PACKED_GROUNDS.contains(&ground)),
            _ => ("nothing", |_| true),
        };
        let grounds: &[FsGround] = match engine {
            Engine::Dual { .. } => &BARRIER_GROUNDS,
            Engine::Jbd2 { barrier: false } | Engine::Prefix => &PREFIX_GROUNDS,
            Engine::FlushAhead => &PACKED_GROUNDS,
            _ => &LEGACY_GROUNDS,
        };
        let (mode, checkpoint) = self.journal.options();
        let part = |ground: FsGround| {
            let campaign = FsCampaign::new(engine, mode, ground, plan);
            let FsArguments { outside, flush_faults, tear: tear_bytes, .. } = *self;
            let mut campaign = FsCampaign { outside, flush_faults, tear_bytes, ..campaign };
            campaign.options.checkpoint = checkpoint;
            campaign.options.coalition = self.coalition;
            if self.discard {
                campaign.options.discard = Discards::On;
            }
            let options = vec![
                ("engine", engine.name().to_owned()),
                ("journal", journal_mode::name(mode, checkpoint).to_owned()),
                ("ground", ground.name().to_owned()),
                ("coalition", yes(self.coalition)),
                ("flush-faults", yes(self.flush_faults)),
                ("discard", yes(self.discard)),
                ("tear", self.tear.to_string()),
                ("outside", self.outside.to_string()),
            ];
            Part::new(options, move || campaign.clone())
        };
        let grounds = one_or_all(self.ground, grounds.iter().copied());
        match grounds.iter().find(|ground| !can_mount(**ground)) {
            Some(ground) => Err(CliError::EngineNeeds { engine, needs, ground: ground.name() }),
            None => Ok(grounds.into_iter().map(part).collect()),
        }
    }

    fn control(&self) -> Part {
        let campaign =
            FsCampaign::new(Engine::Prefix, JournalMode::Ordered, FsGround::Claiming, self.length.plan());
        let campaign = FsCampaign { outside: 0, ..campaign };
        Part::control("order that the disk does not keep", move || campaign.clone())
    }
}

impl Tested for F2fsArguments {
    fn parts(&self) -> Result<Vec<Part>, CliError> {
        let (plan, outside) = (self.length.plan(), self.outside);
        let mut parts = Vec::new();
        for cleaner in one_or_all(self.cleaner, Cleaner::ALL) {
            for ground in one_or_all(self.ground, F2FS_GROUNDS) {
                let campaign = F2fsCampaign { outside, ..F2fsCampaign::new(cleaner, ground, plan) };
                let options = vec![
                    ("cleaner", cleaner.name().to_owned()),
                    ("ground", ground.name().to_owned()),
                    ("outside", outside.to_string()),
                ];
                parts.push(Part::new(options, move || campaign.clone()));
            }
        }
        Ok(parts)
    }

    fn control(&self) -> Part {
        let mut campaign = F2fsCampaign::new(self.cleaner.unwrap_or_default(), LEGACY, self.length.plan());
        (campaign.outside, campaign.options.sync) = (0, SyncMode::NoBarrier);
        Part::control("flushes that the filesystem does not send", move || campaign.clone())
    }
}

impl Tested for SqliteArguments {
    fn parts(&self) -> Result<Vec<Part>, CliError> {
        let plan = self.length.plan();
        let engine = self.prefix.then_some(Engine::Prefix);
        let mut parts = Vec::new();
        for journal in one_or_all(self.journal, SqliteJournal::ALL) {
            for mode in one_or_all(self.mode, [Mode::Durable, Mode::Order]) {
                for ground in one_or_all(self.ground, SQLITE_GROUNDS) {
                    let options = MountOptions { engine, ..MountOptions::default() };
                    let campaign = SqliteCampaign::new(journal, mode, ground, plan);
                    let campaign = SqliteCampaign { extra: self.extra, options, ..campaign };
                    let options = vec![
                        ("journal", journal.name().to_owned()),
                        ("mode", name_of_mode(mode).to_owned()),
                        ("ground", ground.name().to_owned()),
                        ("extra", yes(self.extra)),
                        ("prefix", yes(self.prefix)),
                    ];
                    parts.push(Part::new(options, move || campaign.clone()));
                }
            }
        }
        Ok(parts)
    }

    fn control(&self) -> Part {
        let ground = FsGround::Adversary { barriers: false };
        let campaign = SqliteCampaign::new(SqliteJournal::Wal, Mode::Order, ground, self.length.plan());
        let campaign = SqliteCampaign { ignores_barriers: true, ..campaign };
        Part::control("barriers that the disk does not keep", move || campaign.clone())
    }
}

impl Tested for UpdateArguments {
    fn parts(&self) -> Result<Vec<Part>, CliError> {
        let plan = self.length.plan();
        let (mode, checkpoint) = self.journal.options();
        let part = |ground: FsGround| {
            let engine = match ground {
                ORDER_PRESERVING | FsGround::PrefixDisk => Engine::Prefix,
                _ => ground.default_engine(),
            };
            let options = MountOptions { engine: Some(engine), mode, checkpoint, ..MountOptions::default() };
            let typed = vec![
                ("journal", journal_mode::name(mode, checkpoint).to_owned()),
                ("ground", ground.name().to_owned()),
            ];
            Part::new(typed, move || UpdateCampaign { plan, ground, options })
        };
        Ok(one_or_all(self.ground, UPDATE_GROUNDS).into_iter().map(part).collect())
    }

    fn control(&self) -> Part {
        let options = MountOptions { engine: Some(Engine::Prefix), ..MountOptions::default() };
        let campaign = UpdateCampaign { plan: self.length.plan(), ground: FsGround::Claiming, options };
        Part::control("order that the disk does not keep", move || campaign.clone())
    }
}
