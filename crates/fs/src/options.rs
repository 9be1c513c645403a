//! How a filesystem is mounted.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use weir_block::BlockOptions;
use weir_cache::{CacheOptions, CacheRules};
use weir_journal::{CheckpointBy, Checkpoints, Engine, JournalRules};
use weir_storage::{BLOCK_BYTES, Rules, Storage};
use weir_vfs::FsError;

use crate::mutants::FsMutant;

/// What the journal holds of file data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JournalMode {
    /// Nothing, and data has no order with the journal: after a crash a file may show what its blocks held
    /// before.
    Writeback,
    /// Nothing, but data that a transaction refers to is written before its commit block.
    #[default]
    Ordered,
    /// All of it.
    Data,
}

/// No journal mode has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no journal mode is called {0:?}: there are writeback, ordered and data")]
pub struct UnknownJournalMode(pub String);

impl JournalMode {
    /// All of them.
    pub const ALL: [JournalMode; 3] = [JournalMode::Writeback, JournalMode::Ordered, JournalMode::Data];

    /// Its name on a command line and in a status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            JournalMode::Writeback => "writeback",
            JournalMode::Ordered => "ordered",
            JournalMode::Data => "data",
        }
    }
}

impl fmt::Display for JournalMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for JournalMode {
    type Err = UnknownJournalMode;

    fn from_str(name: &str) -> Result<JournalMode, UnknownJournalMode> {
        let found = JournalMode::ALL.into_iter().find(|mode| mode.name() == name);
        found.ok_or_else(|| UnknownJournalMode(name.to_owned()))
    }
}

/// Whether blocks that were freed are discarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discards {
    /// Where it keeps its requests in order of receipt, as a volume does: there a discard is an entry in a log, and
    /// space that is not discarded is never used again. Elsewhere it is a command that may take long: a file on the
    /// host loses its blocks and has to get them back, and a flash drive empties its cache.
    #[default]
    Auto,
    /// Wherever the storage can.
    On,
    /// Never.
    Off,
}

/// Which times of access are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// Those that say whether a file was read since it has changed, and on which day: Linux's `relatime`, and what
    /// ext4 does by default.
    #[default]
    Relative,
    /// None: `noatime`.
    Never,
}

/// The options of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// The journal's engine; `None` for dual-mode on storage with barriers, and the legacy path elsewhere.
    pub engine: Option<Engine>,
    /// What the journal holds of file data.
    pub mode: JournalMode,
    /// How a checkpoint of the journal brings blocks home. By remap, the modes ordered and data are the SHARE paper's SOJ
    /// and SDJ; the storage needs the share command for it.
    pub checkpoint: CheckpointBy,
    /// Which task empties the journal: one in the background, or, as in Linux, those that want room in it.
    pub checkpoints: Checkpoints,
    /// In mode data on the legacy path, `fsync` commits the running transaction also if the file has nothing in it, as Linux does.
    /// Default: no, as then nothing of the file is left to be made durable.
    pub commits_running: bool,
    /// Whether the journal logs the bytes that have changed, and not whole blocks (*journal coalition*, section IV.A of the
    /// paper on eMMC; [`HomeIntegrity`](weir_journal::HomeIntegrity) says what keeps their homes whole). As long as the
    /// filesystem is mounted so, no other program can replay its journal, and the image says so by a feature of its own.
    pub coalition: bool,
    /// With the engine OptFS, where the storage does not tell what is durable: a transaction is flushed when its commit block
    /// was transferred so long ago. Default: 30 s.
    pub durability_notice: Duration,
    /// Blocks of the journal in use from which on a checkpoint begins; half of it at most, which is the default. With less,
    /// recovery replays less, and blocks that change often are written home more often.
    pub checkpoint_blocks: u32,
    /// Blocks of the journal that may be in use, 1,024 at least; each of them takes memory. Default: all.
    pub journal_blocks_max: u32,
    /// On an engine with barriers, a synchronisation call that finds nothing dirty commits the running transaction, be it
    /// empty: JD and JC delimit the epoch (*forced commit*, FAST 2018 paper, section 4.3). Otherwise a bare barrier mark does
    /// that, or a flush. Default: no, as the mark costs no write.
    pub forces_commits: bool,
    /// No changes; a journal that is not empty is refused then.
    pub read_only: bool,
    /// The server before has handed the filesystem over: what has no name stays, until
    /// [`restore_holds`](weir_vfs::HandoverCalls::restore_holds) says what of it is held.
    pub keeps_orphans: bool,
    /// A transaction is committed when it is this old. Default: 5 s, as ext4's `commit`.
    pub commit_interval: Duration,
    /// File data that may be kept in memory, in bytes. Default: 256 MiB.
    pub cache_bytes: u64,
    /// Dirty file data from which on writeback begins, in bytes. Default: 16 MiB.
    pub dirty_background_bytes: u64,
    /// Dirty file data from which on writers wait for writeback, in bytes. Default: 64 MiB.
    pub dirty_bytes: u64,
    /// Metadata blocks that may be kept in memory beside those that the journal needs. Default: 16,384.
    pub cache_metadata_blocks: usize,
    /// Groups of which it is kept in memory which blocks can be allocated, 4 KiB each, beside those in which blocks wait for a
    /// commit. Default: 4,096, which are 512 GiB.
    pub cache_groups: usize,
    /// Inodes that may be kept in memory beside those that are open, dirty, or not committed. Default: 16,384.
    pub cache_inodes: usize,
    /// Blocks that are kept for extent trees, so that an extent can be divided in a full filesystem; at most a
    /// fiftieth of its blocks. Where the trees need more, blocks are
    /// written with zeros, so that no extent has to be divided. Default: 4,096.
    pub tree_reserve_blocks: u64,
    /// Whether blocks are discarded when the transaction that freed them is durable (J7). Default: where that is
    /// cheap.
    pub discard: Discards,
    /// Which times of access that [`accessed`](weir_vfs::FileCalls::accessed) notes are kept.
    pub access_times: AccessTimes,
    /// How long blocks wait for their discard after that, so that many go with one command, and none that are
    /// allocated again soon. Default: 100 ms.
    pub discard_delay: Duration,
    /// Ticks a second of the clock that stamps inodes (J6). Default: 250.
    pub timer_hz: u32,
    /// On a storage with marks: how long after a change a moment is taken at the latest, of which a crash then leaves the whole
    /// tree. Default: never.
    pub moments: Option<Duration>,
    /// The rules that this filesystem keeps: all of them.
    pub rules: Rules<FsMutant>,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            engine: None,
            mode: JournalMode::default(),
            checkpoint: CheckpointBy::default(),
            checkpoints: Checkpoints::default(),
            commits_running: false,
            coalition: false,
            durability_notice: Duration::from_secs(30),
            checkpoint_blocks: u32::MAX,
            journal_blocks_max: u32::MAX,
            forces_commits: false,
            read_only: false,
            keeps_orphans: false,
            commit_interval: Duration::from_secs(5),
            cache_bytes: 256 << 20,
            dirty_background_bytes: 16 << 20,
            dirty_bytes: 64 << 20,
            cache_metadata_blocks: 1 << 14,
            cache_groups: 1 << 12,
            cache_inodes: 1 << 14,
            tree_reserve_blocks: 1 << 12,
            discard: Discards::Auto,
            access_times: AccessTimes::default(),
            discard_delay: Duration::from_millis(100),
            timer_hz: 250,
            moments: None,
            rules: Rules::all(),
        }
    }
}

/// Blocks of the journal that a mount with moments uses at least.
const MOMENT_JOURNAL_BLOCKS_MIN: u64 = 1024;

impl MountOptions {
    /// With moments: so little is written between the begin of a moment and its mark that it fits the room that the storage
    /// keeps for that. An eighth of the room is for dirty data, an eighth for a transaction, and a quarter each for the
    /// calls that are under way ([`bytes_under_way_max`](Self::bytes_under_way_max)) and for requests that wait for the storage
    /// ([`queue_requests`](Self::queue_requests)); the rest is for metadata that goes to its place.
    ///
    /// # Errors
    /// [`FsError::NoMarks`].
    pub(crate) fn within_room(self, device: &dyn Storage) -> Result<MountOptions, FsError> {
        if self.moments.is_none() {
            return Ok(self);
        }
        let room = device.marks().ok_or(FsError::NoMarks)?.room();
        let dirty = (room / 8).clamp(BLOCK_BYTES as u64, self.dirty_bytes);
        // A transaction takes a quarter of the journal at most.
        let journal = (room / 2 / BLOCK_BYTES as u64).max(MOMENT_JOURNAL_BLOCKS_MIN);
        Ok(MountOptions {
            dirty_bytes: dirty,
            dirty_background_bytes: (dirty / 2).min(self.dirty_background_bytes),
            journal_blocks_max: self.journal_blocks_max.min(u32::try_from(journal).unwrap_or(u32::MAX)),
            ..self
        })
    }

    /// Bytes that calls write at one time at most; a larger call is alone. None without moments, which have to wait for them.
    pub(crate) fn bytes_under_way_max(&self) -> Option<usize> {
        self.moments.map(|_| usize::try_from(2 * self.dirty_bytes).unwrap_or(usize::MAX))
    }

    /// Requests that the block layer queues at most. With moments these are of as many bytes as calls may write.
    pub(crate) fn queue_requests(&self, device: &dyn Storage) -> usize {
        let most = BlockOptions::default().queue_requests;
        let request_bytes = device.capabilities().max_transfer_blocks.max(1) as usize * BLOCK_BYTES;
        self.bytes_under_way_max().map_or(most, |bytes| (bytes / request_bytes).clamp(1, most))
    }

    /// Ticks a second of the clock that stamps inodes (J6).
    pub(crate) fn ticks_a_second(&self) -> u32 {
        match self.rules.drops(FsMutant::StampsEveryWrite) {
            true => 1_000_000_000,
            false => self.timer_hz,
        }
    }

    /// The rules that the journal keeps.
    #[cfg(feature = "mutants")]
    pub(crate) fn journal_rules(&self) -> JournalRules {
        self.rules.of_part(FsMutant::of_journal)
    }

    /// The rules that the journal keeps: all, outside tests.
    #[cfg(not(feature = "mutants"))]
    pub(crate) const fn journal_rules(&self) -> JournalRules {
        JournalRules::all()
    }

    /// How much the page cache may keep, and the rules that it keeps.
    pub(crate) fn cache_options(&self) -> CacheOptions {
        let MountOptions { cache_bytes, dirty_background_bytes, dirty_bytes, .. } = *self;
        CacheOptions { cache_bytes, dirty_background_bytes, dirty_bytes, rules: self.cache_rules() }
    }

    /// The rules that the page cache keeps.
    #[cfg(feature = "mutants")]
    fn cache_rules(&self) -> CacheRules {
        self.rules.of_part(FsMutant::of_cache)
    }

    /// The rules that the page cache keeps: all, outside tests.
    #[cfg(not(feature = "mutants"))]
    const fn cache_rules(&self) -> CacheRules {
        CacheRules::all()
    }
}
