//! How a journal commits.

use std::time::Duration;

use crate::engine::Engine;
use crate::mutants::JournalRules;

/// How a checkpoint brings blocks home (J5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckpointBy {
    /// It writes them a second time.
    #[default]
    Copy,
    /// Their homes are made to read the log's copies, by the share command; what the log holds in another form is written.
    /// [`Journal::open`](crate::Journal::open) refuses a storage without that command.
    Remap,
}

/// Which task empties the log (J5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checkpoints {
    /// A task of its own, which begins when half of the log is in use, and brings home all that it can.
    #[default]
    Background,
    /// The tasks that want room in it, when less than a quarter is free, a transaction at a time: as jbd2 in Linux.
    Foreground {
        /// How often all that is not home is written home beside that, as by the kernel's flusher.
        flusher: Duration,
    },
}

impl Checkpoints {
    /// In the foreground, with the flusher's default in Linux, `vm.dirty_expire_centisecs`: 30 s.
    pub const LINUX: Checkpoints = Checkpoints::Foreground { flusher: Duration::from_secs(30) };
}

/// The options of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalOptions {
    /// Which engine commits.
    pub engine: Engine,
    /// A transaction is committed when it is this old.
    pub commit_interval: Duration,
    /// How a checkpoint brings blocks home.
    pub checkpoint: CheckpointBy,
    /// Which task empties the log.
    pub checkpoints: Checkpoints,
    /// A durable call on a file whose data is in the log commits the running transaction, also if nothing of the file is in it: as
    /// ext4 did in its mode data up to Linux 6.3.
    pub commits_running: bool,
    /// Blocks of the log in use from which on a checkpoint begins; half of the log at most.
    pub checkpoint_blocks: u32,
    /// Blocks of the log that may be in use, which all lie in memory as well; all of the log, if it has fewer.
    pub log_blocks_max: u32,
    /// Where the engine checks data: blocks of files that a transaction has allocated are written in place, and not to the
    /// log (selective data journaling).
    pub selective: bool,
    /// Where the engine waits for notice of what is durable, and the storage gives none: a transaction is flushed when it was
    /// transferred so long ago (J10).
    pub notice: Duration,
    /// The rules that it keeps.
    pub rules: JournalRules,
}

impl JournalOptions {
    /// A journal of this engine which commits after 5 s, uses all of its log, empties half of it in the background by copies, and
    /// keeps all rules.
    #[must_use]
    pub fn new(engine: Engine) -> JournalOptions {
        JournalOptions {
            engine,
            commit_interval: Duration::from_secs(5),
            checkpoint: CheckpointBy::Copy,
            checkpoints: Checkpoints::Background,
            commits_running: false,
            checkpoint_blocks: u32::MAX,
            log_blocks_max: u32::MAX,
            selective: false,
            notice: Duration::from_secs(30),
            rules: JournalRules::all(),
        }
    }
}
