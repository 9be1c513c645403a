//! The command line of `fs_crash`: what may be asked for, and what has to be said again to replay a run.

use std::ffi::OsString;

use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, ValueEnum};
use weir_crash::{FsGround, GROUND_NAMES};
use weir_fs::{CheckpointBy, Conflicts, Engine, FsMutant, JournalMode, JournalMutant};
use weir_storage::Rules;

/// States of which one is shown to outside judges, if nothing else is said.
const OUTSIDE: u64 = 500;
/// Bytes at multiples of which disks tear, if nothing else is said.
const TEAR_BYTES: u32 = 4096;

/// Cuts the power under a filesystem at every event, and judges what is recovered.
#[derive(Debug, Parser)]
#[command(name = "fs_crash")]
pub struct Arguments {
    /// Who commits.
    #[arg(long, value_enum, default_value_t = EngineName::Dual)]
    pub engine: EngineName,
    /// What the journal holds of file data.
    #[arg(long, value_enum, default_value_t = Journal::Ordered)]
    pub journal: Journal,
    /// The journal logs changed bytes, and not whole blocks.
    #[arg(long)]
    pub coalition: bool,
    /// What is below: adversary (the worst disk, with barriers), legacy (without), prefix (one that keeps requests in
    /// order of receipt), volume (on the worst legacy disk), emmc (emulated, without barriers: a power cut garbles what
    /// is being written, but for reliable writes), emmc-unreliable (without these), or an emulated flash device by its
    /// barrier mechanism: plp, in-order-writeback, transactional, in-order-recovery, order-preserving-recovery, none. By
    /// default all that the engine is for.
    #[arg(long, value_parser = PossibleValuesParser::new(GROUND_NAMES))]
    pub ground: Option<String>,
    /// Distinct states to judge, on each ground.
    #[arg(long, default_value_t = 20_000)]
    pub states: u64,
    /// Determines everything.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Of this many states, one is shown to e2fsck and the kernel; 0 for none.
    #[arg(long, default_value_t = OUTSIDE)]
    pub outside: u64,
    /// On the adversary's disks, one flush fails in every first life.
    #[arg(long)]
    pub flush_faults: bool,
    /// What is freed is discarded in every run where the storage can, not in some.
    #[arg(long)]
    pub discard: bool,
    /// The adversary's disks tear what they write at multiples of so many bytes: 512 or 4096.
    #[arg(long, default_value_t = TEAR_BYTES, value_parser = tear_bytes)]
    pub tear: u32,
    /// Replay only the run with this number, and tell what it does.
    #[arg(long)]
    pub only: Option<u64>,
    /// One JSON document on standard output, and nothing else.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum EngineName {
    /// Dual-mode journaling, conflicting blocks copied.
    Dual,
    /// Dual-mode journaling with the papers' conflict-page list.
    DualList,
    /// The legacy path: waits, flushes and FUA.
    Jbd2,
    /// The legacy path without any flush, judged for order only: what it leaves is consistent on a volume and on a
    /// prefix device, and not elsewhere.
    Jbd2Nobarrier,
    /// The legacy path with checksums in the place of the flush between JD and JC.
    AsyncCommit,
    /// OptFS: checksums of log and data in the place of every flush.
    #[value(name = "optfs")]
    OptFs,
    /// Transfer waits, and one flush for durability: for a volume and prefix devices.
    Prefix,
    /// Flush-ahead commit: for a volume, and for disks, which get packed writes and FUA.
    FlushAhead,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Journal {
    /// Nothing; data has no order.
    Writeback,
    /// Nothing; data is there before what refers to it.
    Ordered,
    /// All of it.
    Data,
    /// As ordered; checkpoints remap (SHARE paper). The grounds get the share command.
    Soj,
    /// As data; checkpoints remap (SHARE paper).
    Sdj,
    /// The negative control: the paper's SOJ, whose pairs outlive what was revoked.
    SojPaper,
}

impl Arguments {
    /// Reads a command line.
    ///
    /// # Errors
    /// What is wrong with it, and `--help`.
    pub fn read(
        line: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Arguments, clap::Error> {
        let arguments = Arguments::try_parse_from(line)?;
        let refused = arguments.grounds().into_iter().find(|&ground| !arguments.engine.can_stand_on(ground));
        let Some(ground) = refused else { return Ok(arguments) };
        let (engine, ground) = (name_of(arguments.engine), ground.name());
        let needs = match arguments.engine {
            EngineName::Prefix => "the order of receipt, which is not kept by",
            EngineName::FlushAhead => "packed writes, which are not there on",
            _ => "barriers, which are not kept by",
        };
        let why = format!("engine {engine} needs {needs} {ground}: take --engine jbd2, or another ground");
        Err(Arguments::command().error(ErrorKind::ArgumentConflict, why))
    }

    /// Where to run.
    pub fn grounds(&self) -> Vec<FsGround> {
        let names = match &self.ground {
            Some(name) => &[name.as_str()][..],
            None => self.engine.grounds(),
        };
        names.iter().copied().filter_map(FsGround::named).collect()
    }

    /// The command that runs this run again, alone.
    pub fn replay(&self, ground: FsGround, run: u64) -> String {
        format!(
            "cargo run --release -p weir-crash --example fs_crash -- --engine {} --journal {} --ground {} --seed {} --only {run}{}",
            name_of(self.engine),
            name_of(self.journal),
            ground.name(),
            self.seed,
            self.beside(),
        )
    }

    /// The options that change a run and are not always given.
    pub fn beside(&self) -> String {
        let mut given = String::new();
        if self.coalition {
            given += " --coalition";
        }
        if self.flush_faults {
            given += " --flush-faults";
        }
        if self.discard {
            given += " --discard";
        }
        if self.tear != TEAR_BYTES {
            given += &format!(" --tear {}", self.tear);
        }
        if self.outside != OUTSIDE {
            given += &format!(" --outside {}", self.outside);
        }
        given
    }
}

impl Journal {
    pub fn mode(self) -> JournalMode {
        match self {
            Journal::Writeback => JournalMode::Writeback,
            Journal::Ordered | Journal::Soj | Journal::SojPaper => JournalMode::Ordered,
            Journal::Data | Journal::Sdj => JournalMode::Data,
        }
    }

    /// How checkpoints bring blocks home.
    pub fn checkpoint(self) -> CheckpointBy {
        match self {
            Journal::Writeback | Journal::Ordered | Journal::Data => CheckpointBy::Copy,
            Journal::Soj | Journal::Sdj | Journal::SojPaper => CheckpointBy::Remap,
        }
    }

    /// The rules that the filesystem keeps.
    pub fn rules(self) -> Rules<FsMutant> {
        let paper = FsMutant::Journal(JournalMutant::PairsOutliveRevokes);
        Rules::but(matches!(self, Journal::SojPaper).then_some(paper))
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
    pub fn engine(self) -> Engine {
        match self {
            EngineName::Dual => Engine::Dual { conflicts: Conflicts::Copy },
            EngineName::DualList => Engine::Dual { conflicts: Conflicts::List },
            EngineName::Jbd2 => Engine::Jbd2 { barrier: true },
            EngineName::Jbd2Nobarrier => Engine::Jbd2 { barrier: false },
            EngineName::AsyncCommit => Engine::AsyncCommit,
            EngineName::OptFs => Engine::OptFs,
            EngineName::Prefix => Engine::Prefix,
            EngineName::FlushAhead => Engine::FlushAhead,
        }
    }

    /// Whether it can be mounted there: dual-mode journaling needs barriers, the engine for prefix devices one of them, and
    /// flush-ahead commit packed writes.
    fn can_stand_on(self, ground: FsGround) -> bool {
        match self {
            EngineName::Dual | EngineName::DualList => ground.keeps_barriers(),
            EngineName::Jbd2 | EngineName::Jbd2Nobarrier | EngineName::AsyncCommit | EngineName::OptFs => {
                true
            }
            EngineName::Prefix => {
                matches!(ground.name(), "prefix" | "volume" | "order-preserving-recovery")
            }
            EngineName::FlushAhead => {
                matches!(ground.name(), "adversary" | "legacy" | "prefix" | "volume" | "emmc")
            }
        }
    }

    /// The grounds of a whole campaign.
    fn grounds(self) -> &'static [&'static str] {
        match self {
            EngineName::Dual | EngineName::DualList => &[
                "adversary",
                "volume",
                "plp",
                "in-order-writeback",
                "transactional",
                "in-order-recovery",
                "order-preserving-recovery",
            ],
            EngineName::Jbd2 | EngineName::AsyncCommit | EngineName::OptFs => {
                &["legacy", "volume", "emmc", "none", "plp", "in-order-recovery", "order-preserving-recovery"]
            }
            EngineName::Jbd2Nobarrier | EngineName::Prefix => {
                &["volume", "prefix", "order-preserving-recovery"]
            }
            EngineName::FlushAhead => &["legacy", "volume", "emmc", "adversary", "prefix"],
        }
    }
}

/// A value as it is typed.
pub fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
