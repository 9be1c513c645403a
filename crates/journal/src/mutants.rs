//! Journals that drop one rule each. A rule without a mutant that tests kill is not implemented.

#[cfg(feature = "mutants")]
use weir_ext4::journal::ReplayMutant;
use weir_storage::Rules;

/// The rules that a journal keeps.
pub type JournalRules = Rules<JournalMutant>;

/// What a mutant does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "mutants"), allow(dead_code, reason = "named where the rule is kept"))]
pub enum JournalMutant {
    /// Recovery drops one of its rules.
    #[cfg(feature = "mutants")]
    Replay(ReplayMutant),
    /// J1: the flush task acknowledges durability without a flush.
    FlushForgotten,
    /// J1: a transaction is retired when its commit block is dispatched.
    RetiresAtDispatch,
    /// J1: a flush counts as done when the device has accepted it.
    FlushNotAwaited,
    /// J1: `sync` takes for durable what was transferred while its flush was under way.
    SyncCoversLater,
    /// J2: JD is not closed by a barrier: JC belongs to its epoch.
    CommitInEpochOfLog,
    /// J2, J9: JC alone is not kept behind D by a barrier.
    DataInEpochOfCommit,
    /// J2: where a transfer keeps order, nothing waits for that of D and of JD.
    TransferNotAwaited,
    /// J2: where the flush goes ahead, that of a commit is not behind D.
    FlushBeforeData,
    /// J2: where the flush goes ahead, a commit takes that of a call, whatever was written since.
    TrustsFlushOfCall,
    /// J2: where the flush goes ahead, JD and JC do not wait for it.
    CommitBeforeFlush,
    /// J2: with async commit, no flush is behind JC.
    CommitNotFlushed,
    /// J2: the legacy path takes the flush before a commit block that is under way for one of later data.
    TrustsEarlierFlush,
    /// J3: nothing dirty, no bare barrier.
    NoBareBarrier,
    /// J3: a commit that is faster than the data of the file makes a barrier behind the data needless.
    TrustsFasterCommit,
    /// J3: on the engine for prefix devices, a call that orders does not wait until the data is transferred.
    FenceNotAwaited,
    /// J2: the data of attached inodes is written without order.
    DataOutsideEpoch,
    /// J2: only the data of the inode that asked goes before the commit.
    OthersDataForgotten,
    /// J4: a log block is not a copy: it shows what was changed after the transaction was locked.
    LogBlockNotCopied,
    /// J4: the conflict-page list is not waited for.
    ConflictsIgnored,
    /// J4: by the list, a transaction that is wanted durable gives its blocks up when it is transferred.
    ReleasesAtTransfer,
    /// J5 (a): a home write carries what is not committed yet.
    CheckpointsUncommitted,
    /// J5 (b): the log's tail moves before the home writes are transferred.
    TailBeforeHome,
    /// J5 (c): the tail update is not a barrier, so freed log space is overwritten in the same epoch.
    TailWithoutBarrier,
    /// J5 (c): log space counts as free before the tail update is written.
    FreesLogEarly,
    /// J5 (c): a transaction is written though the log has too few blocks for it.
    FillsLogOver,
    /// J5 (a): a block that the log holds escaped is remapped.
    RemapsEscaped,
    /// J5 (a): of a block that is committed again, the older copy goes home by remap.
    PairsOutOfDate,
    /// J5 (d): what was revoked is remapped all the same: a pair leaves the SHARE paper's tree at a checkpoint, and not before.
    PairsOutliveRevokes,
    /// J5 (b), (c): nothing keeps the tail behind the home writes on the medium, neither a barrier nor a flush.
    TailBeforeDurable,
    /// J5 (f): a transaction leaves the log though a block of it is neither home nor in the log again.
    OldestFreedEarly,
    /// J5 (f): a commit moves the tail behind homes that are transferred after its flush has begun.
    TailCoversLater,
    /// J9: one of the byte ranges that have changed in a block is not logged.
    RangeForgotten,
    /// J9: of a block that is new, what is not zero is logged.
    NewBlockMerged,
    /// J9: recovery takes zeros for the bytes that the log does not hold.
    HomeNotRead,
    /// J9: homes are not written by reliable writes, where only these keep them whole.
    HomesUnreliable,
    /// J9: superblocks, and what leads to the log, are not written by reliable writes, where a power cut could corrupt them.
    SuperblocksUnreliable,
    /// J9: a checkpoint covers what was composed when it began, and lets later transactions rely on a copy that leaves the log
    /// with it.
    CheckpointCoversMore,
    /// J9: the log holds a block's changes alone, where it has to hold all of it after each checkpoint.
    ChangesLoggedFirst,
    /// J10: the log holds no checksums of data in place.
    DataUnchecked,
    /// J10: what a transaction holds goes home before there is notice that it is durable.
    CheckpointsUnnoticed,
    /// J10: what a transaction has freed is reused before there is notice that it is durable.
    ReusesUnnoticed,
    /// J10: data whose checksum the log holds is freed without being revoked.
    CheckedNotRevoked,
    /// J5 (d): a block is not pinned once it is home, though the log holds it: a caller that frees it revokes nothing.
    HomesUnpinned,
    /// J5 (d): nothing is revoked.
    NoRevoke,
    /// J5 (e): unmount calls the journal empty without a flush.
    EmptyWithoutFlush,
    /// J5 (e): an empty journal keeps the features that its log had beyond those of jbd2.
    FeaturesStay,
    /// J5 (e): recovery calls the log empty when the first of its writes are home.
    ReplaysInPart,
    /// J7: a freed block is reused while an older home write to it may still be submitted.
    ReusesBeforeHomeWrites,
    /// J7: what the storage makes durable by itself counts for nothing.
    DurabilityUnnoticed,
    /// J8: handles enter the running transaction while one waits that has to be alone in it.
    LargeStarved,
    /// J8: an atomic group is split between two transactions.
    GroupSplit,
    /// J3: writeback has no order, also behind a call that promised some.
    WritebackOvertakes,
    /// errors: a failed write or flush of the journal aborts nothing.
    ErrorIgnored,
}
