//! Filesystems that drop one rule each. A rule without a mutant that tests kill is not implemented.

/// What a mutant does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "mutants"), allow(dead_code, reason = "named where the rule is kept"))]
pub enum FsMutant {
    /// J1: the flush task acknowledges durability without a flush.
    FlushForgotten,
    /// J1: a transaction is retired when its commit block is dispatched.
    RetiresAtDispatch,
    /// J1: a flush counts as done when the device has accepted it.
    FlushNotAwaited,
    /// J1: a caller that comes while a flush is in flight takes that for its own.
    JoinsFlush,
    /// J1: `sync` takes for durable what was transferred while its flush was under way.
    SyncCoversLater,
    /// J2: JD is not closed by a barrier: JC belongs to its epoch.
    CommitInEpochOfLog,
    /// J2: the data of attached inodes is written without order.
    DataOutsideEpoch,
    /// J2: only the data of the inode that asked goes before the commit.
    OthersDataForgotten,
    /// J2: a truncation forgets dirty pages that a transaction on its way maps.
    TruncateForgetsCommitting,
    /// J2: the legacy path takes the flush before a commit block that is under way for one of later data.
    TrustsEarlierFlush,
    /// J3: `fdatabarrier` of an inode with uncommitted size or allocation writes data only.
    DataBarrierForgetsMetadata,
    /// J3: nothing dirty, no barrier mark.
    NoBareBarrier,
    /// J3: a commit that is faster than the data of the file makes a barrier behind the data needless.
    TrustsFasterCommit,
    /// J3: a hole that is made is no change of what has to be found.
    HolesUnnoticed,
    /// J3: an inode that comes back into memory has no transaction to wait for.
    ReloadForgetsTransaction,
    /// E7: what is on its way without order joins the epoch only where the file has no dirty pages.
    PromotesOnlyIfClean,
    /// E7: of a run that took several writes, only the first joins the epoch.
    PromotesFirstWriteOnly,
    /// J4: a log block is not a copy: it shows what was changed after the transaction was locked.
    LogBlockNotCopied,
    /// J4: the conflict-page list is not waited for.
    ConflictsIgnored,
    /// J5 (a): a home write carries what is not committed yet.
    CheckpointsUncommitted,
    /// J5 (b): the log's tail moves before the home writes are transferred.
    TailBeforeHome,
    /// J5 (c): the tail update is not a barrier, so freed log space is overwritten in the same epoch.
    TailWithoutBarrier,
    /// J5 (c): log space counts as free before the tail update is written.
    FreesLogEarly,
    /// J5 (c): a transaction is written though the log has two blocks too few for it.
    FillsLogOver,
    /// J5 (d): nothing is revoked.
    NoRevoke,
    /// J5 (d): the blocks of directories are not revoked.
    NoDirectoryRevoke,
    /// J5 (e): unmount calls the journal empty without a flush.
    EmptyWithoutFlush,
    /// J5 (e): recovery calls the log empty when the first of its writes are home.
    ReplaysInPart,
    /// J6: every write stamps its inode anew, timer or not.
    StampsEveryWrite,
    /// J7: a freed block is reused at once.
    ReusesFreed,
    /// J7: a freed block is reused while an older home write to it may still be submitted.
    ReusesBeforeHomeWrites,
    /// J7: a freed block is discarded when its transaction is transferred, durable or not.
    DiscardsEarly,
    /// J7: a freed block is discarded though somebody has allocated it again.
    DiscardsReused,
    /// J7: a block that is allocated and freed again is discarded when the transaction is durable that freed it first.
    DiscardsFreedTwice,
    /// J7: what the storage makes durable by itself counts for nothing.
    DurabilityUnnoticed,
    /// J7: blocks that are being discarded can be allocated.
    TrimTakesNothing,
    /// J7: a trim discards what a transaction has freed that is not durable.
    TrimsUndurable,
    /// Operations that look for space once more take turns, each with its locks.
    RetriesTakeTurns,
    /// J8: an atomic group is split between two transactions.
    GroupSplit,
    /// Space: data takes the blocks that are kept for extent trees.
    NoTreeReserve,
    /// Space: where an extent finds no block to be divided, nothing is written with zeros in its place.
    NoZeroing,
    /// J2: what is marked as written with zeros is marked, and not written.
    ZerosForgotten,
    /// J2: the zeros of what is marked as written may come behind the commit block: nobody waits for them.
    ZerosNotAwaited,
    /// J3: writeback has no order, also behind a call that promised some.
    WritebackOvertakes,
    /// J3: writeback decides whether it keeps order before it has its turn.
    WritebackDecidesEarly,
    /// J2, journal mode data: what became unwritten is overwritten with zeros before that is durable.
    ZerosTooEarly,
    /// Orphans: a file that is made without a name is not on their list.
    UnnamedIsNoOrphan,
    /// Orphans: a truncation that is done takes a file without a name from their list.
    CutIsNoOrphan,
    /// Pages: a write across the end of a file changes the page with the end in two steps, and others find it between.
    EndInTwoSteps,
    /// Space: what cannot fit is allocated as far as there is space, and fails then.
    AllocatesWhatCannotFit,
    /// Space: a plain user takes the blocks that are reserved for the superuser.
    SuperuserReserveIgnored,
    /// A failed write or flush of the journal aborts nothing.
    ErrorIgnored,
    /// A failed write of a page is told once, and forgotten.
    WriteErrorForgotten,
    /// A page that is changed while its write waits for queue space counts as clean.
    CleansChangedPages,
    /// Dirty pages are dropped with their blocks, and `fsync` does not wait for the transaction that does so.
    DropsPagesSilently,
    /// What a read brings counts, also of blocks that were freed while it was under way.
    ReadsOutliveBlocks,
    /// A truncation leaves what it cuts off in the last block.
    TailStays,
    /// A file grows over what is behind its end in the last block, and shows it.
    BehindEndTrusted,
    /// A read that is overtaken by changes never holds them off.
    ReadsStarve,
    /// A node leaves memory with pages that the disk has not.
    ForgetsDirtyNodes,
    /// A superblock is written with a new checksum, which is in another sector than what changes.
    TearsSuperblock,
    /// A damaged superblock is not made up for by a copy.
    TrustsNoCopy,
    /// Names are read as they are, those too that no path can have.
    TrustsNames,
}
