//! The subjects of `weir crash campaign`: the arguments of each, its parts, and its control.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use weir_crash::{
    F2fsCampaign, FlashCampaign, FsCampaign, FsGround, MomentCampaign, Plan, ReplicaCampaign, SECTOR_BYTES,
    Setup, SetupError, SqliteCampaign, SqliteJournal, StreamCampaign, UpdateCampaign, UpdatedFs,
    VolumeCampaign, VstCampaign, VstRequest, WorkloadCampaign,
};
use weir_flash::Mechanism;
use weir_fs::{Discards, Engine, JournalMode, MountOptions};
use weir_lfs::{Cleaner, Flushes};
use weir_sqlite_vfs::Mode;
use weir_storage::BLOCK_BYTES;
use weir_workload::{BlockTrace, ServerTrace, TraceKind};

use super::Part;
use crate::by_name::by_name;
use crate::error::CliError;
use crate::journal_mode::{self, JournalName};
use crate::mkfs::FormatName;
use crate::plain;
use crate::size::Size;

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
    Volume(SubjectArguments<VolumeOptions>),
    /// Streams through the block layer, on a volume: what is left is whole epochs
    Streams(SubjectArguments<StreamOptions>),
    /// Emulated flash devices: their firmware recovers what each barrier mechanism promises
    Flash(SubjectArguments<FlashOptions>),
    /// Order-preserving firmware under a trace: what is left is what a golden disk holds (virtual stress testing)
    Vst(SubjectArguments<VstOptions>),
    /// The filesystem, on each storage: names, sizes and data, with e2fsck and the kernel as judges
    Fs(SubjectArguments<FsOptions>),
    /// F2FS, on each storage: names, sizes and data, while segments are cleaned, with fsck.f2fs as a judge
    F2fs(SubjectArguments<F2fsOptions>),
    /// Workloads as `weir crash run` plays them: all short ones, each operation and call by itself
    Workload(SubjectArguments<WorkloadOptions>),
    /// SQLite in the filesystem: committed transactions, and `integrity_check`
    Sqlite(SubjectArguments<SqliteOptions>),
    /// A mount with moments on a volume: what is left is the whole tree as of one moment, which is not too old
    Moment(SubjectArguments<MomentOptions>),
    /// Atomic files and units: all files at one commit, every unit whole
    Updates(SubjectArguments<UpdateOptions>),
    /// A replica in an object store: it restores to a prefix of the requests, whichever machine or request is lost
    Replicate(SubjectArguments<ReplicateOptions>),
}

impl Subject {
    /// Its name, how long its campaign is, and its parts.
    pub(super) fn entry(&self) -> (&'static str, &LengthArguments, &dyn Tested) {
        match self {
            Subject::Volume(arguments) => ("volume", &arguments.length, &arguments.options),
            Subject::Streams(arguments) => ("streams", &arguments.length, &arguments.options),
            Subject::Flash(arguments) => ("flash", &arguments.length, &arguments.options),
            Subject::Vst(arguments) => ("vst", &arguments.length, &arguments.options),
            Subject::Fs(arguments) => ("fs", &arguments.length, &arguments.options),
            Subject::F2fs(arguments) => ("f2fs", &arguments.length, &arguments.options),
            Subject::Workload(arguments) => ("workload", &arguments.length, &arguments.options),
            Subject::Sqlite(arguments) => ("sqlite", &arguments.length, &arguments.options),
            Subject::Moment(arguments) => ("moment", &arguments.length, &arguments.options),
            Subject::Updates(arguments) => ("updates", &arguments.length, &arguments.options),
            Subject::Replicate(arguments) => ("replicate", &arguments.length, &arguments.options),
        }
    }
}

/// What a subject makes of its options.
pub(super) trait Tested {
    /// The parts of its campaign.
    ///
    /// # Errors
    /// [`CliError`] for options that do not fit together.
    fn parts(&self, plan: Plan) -> Result<Vec<Part>, CliError>;

    /// The part that must fail.
    fn control(&self, plan: Plan) -> Part;
}

/// The arguments of a subject: those that all have, and options of its own, which its control does not take.
#[derive(Debug, Args)]
pub(super) struct SubjectArguments<T: Args> {
    #[command(flatten)]
    length: LengthArguments,
    #[command(flatten)]
    options: T,
}

/// How long a campaign is.
#[derive(Clone, Debug, Args)]
pub(super) struct LengthArguments {
    /// Distinct crash states to judge in each part of the campaign, which is one ground, engine, mechanism or mode that it goes
    /// through; the run that reaches the number is finished
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    states: u64,
    /// Determines everything
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Make only the run with this number, from 0; where it fails, print what it has done until then
    #[arg(long, value_name = "RUN")]
    pub(super) only: Option<u64>,
    /// Divide the runs among so many threads. Each of them ends when it has its part of the states, so with another number
    /// other runs are made, and the counts and the trace hash differ
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256), conflicts_with = "only")]
    pub(super) shards: u64,
    /// Run the control, which must fail, in place of the campaign: exit code 0 if it fails. It takes none of the options that the
    /// subject itself has
    #[arg(long)]
    pub(super) control: bool,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
#[group(conflicts_with = "control")]
pub(super) struct VolumeOptions {
    /// Blocks of the disk, for large volumes; 0 for small ones of all kinds
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse_blocks)]
    blocks: u64,
    /// The workloads share blocks, too; only states with a share under way count
    #[arg(long)]
    shares: bool,
}

#[derive(Debug, Args)]
pub(super) struct StreamOptions {}

#[derive(Debug, Args)]
#[group(conflicts_with = "control")]
pub(super) struct FlashOptions {
    /// One barrier mechanism [default: all]
    #[arg(long, value_name = "NAME", value_parser = by_name(Mechanism::ALL, Mechanism::name))]
    mechanism: Option<Mechanism>,
}

#[derive(Debug, Args)]
#[group(conflicts_with = "control")]
pub(super) struct VstOptions {
    /// Flush after so many writes [default: only where the trace does]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    flush_every: Option<u64>,
    /// A block trace: a CSV file of the MSR traces, the text of blkparse, or an iolog of fio [default: random writes]
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// A server of Microsoft Research Cambridge: a stretch of its trace in each run, generated by its published statistics; may be
    /// given more than once
    #[arg(long, value_name = "NAME", conflicts_with = "trace", value_parser = by_name(ServerTrace::ALL, ServerTrace::name))]
    trace_of: Vec<ServerTrace>,
    /// Cut no power, and write so much in one run: what the trace reads, and the whole device after every 4 GiB, is compared with
    /// the golden disk
    #[arg(long, value_name = "SIZE")]
    without_cuts: Option<Size>,
}

#[derive(Debug, Args)]
#[group(conflicts_with = "control")]
pub(super) struct FsOptions {
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
    /// As ext4 in Linux: the tasks that want room in the journal empty it, and in mode data a durable call commits whatever runs
    #[arg(long)]
    as_linux: bool,
    /// Show one of N states to e2fsck and the kernel, where they are available; 0 for none
    #[arg(long, value_name = "N", default_value_t = 500)]
    outside: u64,
    /// On the worst disk, one flush fails in the first round of every run
    #[arg(long)]
    flush_faults: bool,
    /// Discard what is freed in every run where the storage can, not in some
    #[arg(long)]
    discard: bool,
    /// The worst disk tears what it writes at multiples of so many bytes; 512 on the grounds adversary and legacy alone
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = by_name([512, 4096], crate::crash::name_of_tear))]
    tear: u32,
}

#[derive(Debug, Args)]
#[group(conflicts_with = "control")]
pub(super) struct F2fsOptions {
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
#[group(conflicts_with = "control")]
pub(super) struct WorkloadOptions {
    /// What the filesystem stands on
    #[arg(long, value_name = "NAME", default_value = "volume", value_parser = by_name(FsGround::ALL, FsGround::name))]
    ground: FsGround,
    /// How the journal commits [default: dual where the ground keeps barriers, jbd2 elsewhere]
    #[arg(long, value_name = "NAME", value_parser = by_name(Engine::ALL, Engine::name))]
    engine: Option<Engine>,
}

#[derive(Debug, Args)]
#[group(conflicts_with = "control")]
pub(super) struct SqliteOptions {
    /// SQLite's journal mode [default: all]
    #[arg(long, value_name = "MODE", alias = "journal", value_parser = by_name(SqliteJournal::ALL, SqliteJournal::name))]
    sqlite_journal: Option<SqliteJournal>,
    /// What COMMIT promises; off is SQLite by itself [default: durable and order]
    #[arg(long, value_name = "MODE", value_parser = by_name(MODES, name_of_mode))]
    mode: Option<Mode>,
    /// What the filesystem stands on [default: all that keep barriers]
    #[arg(long, value_name = "NAME", value_parser = by_name(FsGround::ALL, FsGround::name))]
    ground: Option<FsGround>,
    /// `synchronous = EXTRA`: the deletion of a journal is synchronised, too
    #[arg(long)]
    extra: bool,
    /// The journal's engine is that for prefix devices, and the grounds are those that keep the order of receipt
    #[arg(long)]
    prefix: bool,
}

#[derive(Debug, Args)]
#[group(conflicts_with = "control")]
pub(super) struct UpdateOptions {
    /// Whose updates: atomic files of ext4, or the atomic writes of f2fs
    #[arg(long = "type", value_enum, default_value_t = FormatName::Ext4)]
    fs_type: FormatName,
    /// What the journal holds of file data: of ext4 only [default: ordered]
    #[arg(long, value_enum)]
    journal: Option<JournalName>,
    /// What the filesystem stands on [default: one of each kind]
    #[arg(long, value_name = "NAME", value_parser = by_name(FsGround::ALL, FsGround::name))]
    ground: Option<FsGround>,
}

impl LengthArguments {
    pub(super) fn plan(&self) -> Plan {
        Plan { states: self.states, seed: self.seed, only: self.only }
    }
}

/// Parses the blocks of a disk, or 0.
fn parse_blocks(text: &str) -> Result<u64, String> {
    let (least, most) = (VolumeCampaign::DISK_BLOCKS_MIN, VolumeCampaign::DISK_BLOCKS_MAX);
    let blocks = text.parse().ok().filter(|blocks| *blocks == 0 || (least..=most).contains(blocks));
    blocks.ok_or_else(|| format!("a large volume takes {least} to {most} blocks: use so many, or 0"))
}

fn yes(is_set: bool) -> String {
    if is_set { "yes" } else { "no" }.to_owned()
}

/// Refuses a ground that does not keep what the engine needs; `instead` says how to have another engine.
fn require_ground(engine: Engine, ground: FsGround, instead: &'static str) -> Result<(), CliError> {
    let (needs, keeps) = match engine {
        Engine::Dual { .. } => ("barriers", ground.keeps_barriers()),
        Engine::Prefix => ("the order of receipt", PREFIX_GROUNDS.contains(&ground)),
        Engine::FlushAhead => {
            ("packed writes", PACKED_GROUNDS.contains(&ground) || matches!(ground, FsGround::Emmc { .. }))
        }
        _ => return Ok(()),
    };
    match keeps {
        true => Ok(()),
        false => Err(CliError::EngineNeeds { engine, needs, ground: ground.name(), instead }),
    }
}

/// What has another engine where the subject has an option for it.
const OTHER_ENGINE: &str = "take --engine jbd2";

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

impl Tested for VolumeOptions {
    fn parts(&self, plan: Plan) -> Result<Vec<Part>, CliError> {
        let mut options = vec![("shares", yes(self.shares))];
        if self.blocks > 0 {
            options.push(("blocks", self.blocks.to_string()));
        }
        let (disk_blocks, shares) = (self.blocks, self.shares);
        let campaign = VolumeCampaign { disk_blocks, shares, ..VolumeCampaign::new(plan) };
        Ok(vec![Part::new(options, move || campaign)])
    }

    fn control(&self, plan: Plan) -> Part {
        let campaign = VolumeCampaign { ignores_flushes: true, ..VolumeCampaign::new(plan) };
        Part::control("flushes that the disk ignores", move || campaign)
    }
}

impl Tested for StreamOptions {
    fn parts(&self, plan: Plan) -> Result<Vec<Part>, CliError> {
        let campaign = StreamCampaign { plan, ignores_flushes: false };
        Ok(vec![Part::new(Vec::new(), move || campaign)])
    }

    fn control(&self, plan: Plan) -> Part {
        let campaign = StreamCampaign { plan, ignores_flushes: true };
        Part::control("flushes that the disk ignores", move || campaign)
    }
}

impl Tested for FlashOptions {
    fn parts(&self, plan: Plan) -> Result<Vec<Part>, CliError> {
        let part = |mechanism: Mechanism| {
            let options = vec![("mechanism", mechanism.name().to_owned())];
            Part::new(options, move || FlashCampaign::new(mechanism, plan))
        };
        Ok(one_or_all(self.mechanism, Mechanism::ALL).into_iter().map(part).collect())
    }

    fn control(&self, plan: Plan) -> Part {
        Part::control("barriers that the device does not keep", move || FlashCampaign {
            claims_barriers: true,
            ..FlashCampaign::new(Mechanism::None, plan)
        })
    }
}

impl Tested for VstOptions {
    fn parts(&self, plan: Plan) -> Result<Vec<Part>, CliError> {
        let flush_every = self.flush_every;
        let trace = self.trace.as_deref().map(read_trace).transpose()?.unwrap_or_default();
        let uncut_bytes = self.without_cuts.map(|Size(bytes)| bytes);
        let mut options = Vec::new();
        options.extend(flush_every.map(|writes| ("flush-every", writes.to_string())));
        options.extend(self.trace.as_deref().map(|path| ("trace", plain::word(path))));
        options.extend(uncut_bytes.map(|bytes| ("without-cuts", bytes.to_string())));
        let part = |server: Option<ServerTrace>| {
            let named = server.map(|server| ("trace-of", server.name().to_owned()));
            let options = options.iter().cloned().chain(named).collect();
            let trace = trace.clone();
            Part::new(options, move || {
                let trace = trace.clone();
                VstCampaign { flush_every, trace, server, uncut_bytes, ..VstCampaign::new(plan) }
            })
        };
        match self.trace_of.as_slice() {
            [] => Ok(vec![part(None)]),
            servers => Ok(servers.iter().map(|server| part(Some(*server))).collect()),
        }
    }

    fn control(&self, plan: Plan) -> Part {
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

impl Tested for WorkloadOptions {
    fn parts(&self, plan: Plan) -> Result<Vec<Part>, CliError> {
        let ground = self.ground;
        let engine = self.engine.unwrap_or(ground.default_engine());
        require_ground(engine, ground, OTHER_ENGINE)?;
        let options = vec![("ground", ground.name().to_owned()), ("engine", engine.name().to_owned())];
        Ok(vec![Part::new(options, move || generated(plan, ground, engine))])
    }

    fn control(&self, plan: Plan) -> Part {
        let legacy = FsGround::Adversary { barriers: false };
        let engine = Engine::Jbd2 { barrier: false };
        Part::control("order that the disk does not keep", move || generated(plan, legacy, engine))
    }
}

/// A campaign on the generated workloads.
fn generated(plan: Plan, ground: FsGround, engine: Engine) -> WorkloadCampaign {
    let setup = Setup { seed: plan.seed, ..Setup::new(ground, engine) };
    WorkloadCampaign { plan, setup, workloads: None }
}

impl Tested for FsOptions {
    fn parts(&self, plan: Plan) -> Result<Vec<Part>, CliError> {
        let engine = self.engine;
        let grounds: &[FsGround] = match engine {
            Engine::Dual { .. } => &BARRIER_GROUNDS,
            Engine::Jbd2 { barrier: false } | Engine::Prefix => &PREFIX_GROUNDS,
            Engine::FlushAhead => &PACKED_GROUNDS,
            _ => &LEGACY_GROUNDS,
        };
        let (mode, checkpoint) = self.journal.options();
        let part = |ground: FsGround| {
            let campaign = FsCampaign::new(engine, mode, ground, plan);
            let FsOptions { outside, flush_faults, tear: tear_bytes, .. } = *self;
            let mut campaign = FsCampaign { outside, flush_faults, tear_bytes, ..campaign };
            campaign.options.checkpoint = checkpoint;
            campaign.options.coalition = self.coalition;
            if self.as_linux {
                campaign = campaign.as_linux();
            }
            if self.discard {
                campaign.options.discard = Discards::On;
            }
            let options = vec![
                ("engine", engine.name().to_owned()),
                ("journal", journal_mode::name(mode, checkpoint).to_owned()),
                ("ground", ground.name().to_owned()),
                ("coalition", yes(self.coalition)),
                ("as-linux", yes(self.as_linux)),
                ("flush-faults", yes(self.flush_faults)),
                ("discard", yes(self.discard)),
                ("tear", self.tear.to_string()),
                ("outside", self.outside.to_string()),
            ];
            Part::new(options, move || campaign.clone())
        };
        if self.coalition && engine.facts().log.data_checksums {
            return Err(CliError::Usage("the engine optfs logs whole blocks: leave out --coalition"));
        }
        let grounds = one_or_all(self.ground, grounds.iter().copied());
        grounds.iter().try_for_each(|ground| require_ground(engine, *ground, OTHER_ENGINE))?;
        let tears = |ground: &FsGround| self.tear == BLOCK_BYTES as u32 || ground.can_tear();
        let torn: Vec<FsGround> = grounds.iter().copied().filter(tears).collect();
        match (&torn[..], &grounds[..]) {
            ([], [ground, ..]) => Err(SetupError::Tear { ground: ground.name(), bytes: self.tear }.into()),
            _ => Ok(torn.into_iter().map(part).collect()),
        }
    }

    fn control(&self, plan: Plan) -> Part {
        let campaign = FsCampaign::new(Engine::Prefix, JournalMode::Ordered, FsGround::Claiming, plan);
        let campaign = FsCampaign { outside: 0, ..campaign };
        Part::control("order that the disk does not keep", move || campaign.clone())
    }
}

impl Tested for F2fsOptions {
    fn parts(&self, plan: Plan) -> Result<Vec<Part>, CliError> {
        let outside = self.outside;
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

    fn control(&self, plan: Plan) -> Part {
        let mut campaign = F2fsCampaign::new(Cleaner::Copy, LEGACY, plan);
        (campaign.outside, campaign.options.flushes) = (0, Flushes::Never);
        Part::control("flushes that the filesystem does not send", move || campaign.clone())
    }
}

impl Tested for SqliteOptions {
    fn parts(&self, plan: Plan) -> Result<Vec<Part>, CliError> {
        let engine = self.prefix.then_some(Engine::Prefix);
        let grounds: &[FsGround] = if self.prefix { &PREFIX_GROUNDS } else { &SQLITE_GROUNDS };
        let grounds = one_or_all(self.ground, grounds.iter().copied());
        if let Some(engine) = engine {
            let instead = "leave out --prefix";
            grounds.iter().try_for_each(|ground| require_ground(engine, *ground, instead))?;
        }
        let mut parts = Vec::new();
        for journal in one_or_all(self.sqlite_journal, SqliteJournal::ALL) {
            for mode in one_or_all(self.mode, [Mode::Durable, Mode::Order]) {
                for ground in grounds.iter().copied() {
                    let options = MountOptions { engine, ..MountOptions::default() };
                    let campaign = SqliteCampaign::new(journal, mode, ground, plan);
                    let campaign = SqliteCampaign { extra: self.extra, options, ..campaign };
                    let options = vec![
                        ("sqlite-journal", journal.name().to_owned()),
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

    fn control(&self, plan: Plan) -> Part {
        let ground = FsGround::Adversary { barriers: false };
        let campaign = SqliteCampaign::new(SqliteJournal::Wal, Mode::Order, ground, plan);
        let campaign = SqliteCampaign { ignores_barriers: true, ..campaign };
        Part::control("barriers that the disk does not keep", move || campaign.clone())
    }
}

impl Tested for UpdateOptions {
    fn parts(&self, plan: Plan) -> Result<Vec<Part>, CliError> {
        if self.fs_type == FormatName::F2fs {
            return self.f2fs_parts(plan);
        }
        let (mode, checkpoint) = self.journal.unwrap_or(JournalName::Ordered).options();
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
            let filesystem = UpdatedFs::BarrierFs(options);
            Part::new(typed, move || UpdateCampaign { plan, ground, filesystem })
        };
        Ok(one_or_all(self.ground, UPDATE_GROUNDS).into_iter().map(part).collect())
    }

    fn control(&self, plan: Plan) -> Part {
        let options = MountOptions { engine: Some(Engine::Prefix), ..MountOptions::default() };
        let filesystem = UpdatedFs::BarrierFs(options);
        let campaign = UpdateCampaign { plan, ground: FsGround::Claiming, filesystem };
        Part::control("order that the disk does not keep", move || campaign.clone())
    }
}

impl UpdateOptions {
    fn f2fs_parts(&self, plan: Plan) -> Result<Vec<Part>, CliError> {
        if self.journal.is_some() {
            return Err(CliError::Usage("--journal is for ext4: F2FS has no journal"));
        }
        let part = |ground: FsGround| {
            let typed = vec![("type", "f2fs".to_owned()), ("ground", ground.name().to_owned())];
            let filesystem = UpdatedFs::F2fs(weir_lfs::F2fsOptions::default());
            Part::new(typed, move || UpdateCampaign { plan, ground, filesystem })
        };
        Ok(one_or_all(self.ground, F2FS_GROUNDS).into_iter().map(part).collect())
    }
}

/// Options of the campaign on moments: none.
#[derive(Debug, Args)]
pub(super) struct MomentOptions {}

impl Tested for MomentOptions {
    fn parts(&self, plan: Plan) -> Result<Vec<Part>, CliError> {
        Ok(vec![Part::new(Vec::new(), move || MomentCampaign::new(plan))])
    }

    fn control(&self, plan: Plan) -> Part {
        let make_campaign = move || MomentCampaign { moments: false, ..MomentCampaign::new(plan) };
        Part::control("moments that are not taken", make_campaign)
    }
}

/// Options of the campaign on replicas: none.
#[derive(Debug, Args)]
pub(super) struct ReplicateOptions {}

impl Tested for ReplicateOptions {
    fn parts(&self, plan: Plan) -> Result<Vec<Part>, CliError> {
        Ok(vec![Part::new(Vec::new(), move || ReplicaCampaign::new(plan))])
    }

    fn control(&self, plan: Plan) -> Part {
        let campaign = ReplicaCampaign { replaces_objects: true, ..ReplicaCampaign::new(plan) };
        Part::control("objects that the store replaces", move || campaign)
    }
}
