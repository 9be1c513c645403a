//! Filesystems that drop one rule each. A rule without a mutant that tests kill is not implemented.

#[cfg(feature = "mutants")]
use weir_cache::CacheMutant;
#[cfg(feature = "mutants")]
use weir_journal::JournalMutant;

/// What a mutant does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "mutants"), allow(dead_code, reason = "named where the rule is kept"))]
pub enum FsMutant {
    /// The journal drops one of its rules.
    #[cfg(feature = "mutants")]
    Journal(JournalMutant),
    /// The page cache drops one of its rules.
    #[cfg(feature = "mutants")]
    Cache(CacheMutant),
    /// J2: a truncation forgets dirty pages that a transaction on its way maps.
    TruncateForgetsCommitting,
    /// J3: `fdatabarrier` of an inode with uncommitted size or allocation writes data only.
    DataBarrierForgetsMetadata,
    /// J3: nothing dirty, no forced commit where the mount asks for one.
    NothingForced,
    /// J3: a hole that is made is no change of what has to be found.
    HolesUnnoticed,
    /// J3: an inode that comes back into memory has no transaction to wait for.
    ReloadForgetsTransaction,
    /// J3: a file whose data is journaled is flushed, though its transaction is durable.
    FlushesJournaled,
    /// J5 (d): the blocks of directories are not revoked.
    NoDirectoryRevoke,
    /// J5 (e): a superblock keeps what it says of a log of ours when the log is empty, or has no such feature any more.
    FeaturesStay,
    /// J6: every write stamps its inode anew, timer or not.
    StampsEveryWrite,
    /// J7: a freed block is reused at once.
    ReusesFreed,
    /// J7: a freed block is discarded when its transaction is transferred, durable or not.
    DiscardsEarly,
    /// J7: a freed block is discarded though it was allocated again.
    DiscardsReused,
    /// J7: a block that is allocated and freed again is discarded when the transaction is durable that freed it first.
    DiscardsFreedTwice,
    /// J7: blocks that are being discarded can be allocated.
    TrimTakesNothing,
    /// J7: the bitmap of a group is read again though blocks of it wait for a commit.
    EvictsHeld,
    /// J7: a trim discards what a transaction has freed that is not durable.
    TrimsUndurable,
    /// J11: calls change the tree while a moment is taken.
    MomentUnheld,
    /// J11: a moment does not commit the running transaction.
    MomentUncommitted,
    /// J11: a moment does not write dirty data.
    MomentUnwritten,
    /// J11: a moment is taken after twice the interval.
    MomentLate,
    /// J11: a durable call takes a moment, and does not wait for its mark.
    MomentUnawaited,
    /// J11: a durable call shares a moment that began before it.
    MomentShared,
    /// J11: no moment is taken before a mount is ended, though any mark counts from then on.
    MomentNotLast,
    /// atomic: the updates of a group of atomic files go by a transaction each.
    UpdateSplit,
    /// atomic: the size of an atomic file, and what it writes, do not wait for a synchronisation call.
    UpdateNotDeferred,
    /// atomic: a file that is atomic no more leaves its blocks in the log.
    LeavesJournalBehind,
    /// Units: a run of blocks ends in the middle of one, though there are longer runs.
    UnitInTwoRuns,
    /// space: operations that look for space once more take turns, each with its locks.
    RetriesTakeTurns,
    /// handover: what is held and has no name is deleted when the mount is handed over.
    HandoverDeletesHeld,
    /// Space: data takes the blocks that are kept for extent trees.
    NoTreeReserve,
    /// Space: where an extent finds no block to be divided, nothing is written with zeros in its place.
    NoZeroing,
    /// J2: what is marked as written with zeros is marked, and not written.
    ZerosForgotten,
    /// J2: the zeros of what is marked as written may come behind the commit block: no call waits for them.
    ZerosNotAwaited,
    /// J2, journal mode data: what became unwritten is overwritten with zeros before that is durable.
    ZerosTooEarly,
    /// Orphans: a file that is made without a name is not on their list.
    UnnamedIsNoOrphan,
    /// Orphans: a truncation that is done takes a file without a name from their list.
    CutIsNoOrphan,
    /// Orphans: an inode that loses its last name while it is held is not on their list.
    HeldIsNoOrphan,
    /// holds: an inode that is held is deleted with its last name.
    FreedWhileHeld,
    /// Pages: a write across the end of a file changes the page with the end in two steps, and others find it between.
    EndInTwoSteps,
    /// Space: what cannot fit is allocated as far as there is space, and fails then.
    AllocatesWhatCannotFit,
    /// Space: a plain user takes the blocks that are reserved for the superuser.
    SuperuserReserveIgnored,
    /// pages: dirty pages are dropped with their blocks, and `fsync` does not wait for the transaction that does so.
    DropsPagesSilently,
    /// tails: a truncation leaves what it cuts off in the last block.
    TailStays,
    /// tails: a file grows over what is behind its end in the last block, and shows it.
    BehindEndTrusted,
    /// reads: a read that is overtaken by changes never holds them off.
    ReadsStarve,
    /// pages: a node leaves memory with pages that the disk has not.
    ForgetsDirtyNodes,
    /// superblock: a superblock is written with a new checksum, which is in another sector than what changes.
    TearsSuperblock,
    /// superblock: a damaged superblock is not made up for by a copy.
    TrustsNoCopy,
    /// tree: a barrier for all files commits, and leaves the data of files where it is.
    TreeBarrierForgetsData,
    /// growth: the log is replayed up to the end that the filesystem had before it grew.
    ReplayEndsAtOldSize,
    /// growth: what describes new groups is written behind the transaction by which they belong to the filesystem.
    GroupsDescribedLate,
    /// I1: names are read as they are, those too that no path can have.
    TrustsNames,
}

#[cfg(feature = "mutants")]
impl FsMutant {
    /// The rule of the journal, if it is one.
    pub(crate) fn of_journal(self) -> Option<JournalMutant> {
        match self {
            FsMutant::Journal(mutant) => Some(mutant),
            _ => None,
        }
    }

    /// The rule of the page cache, if it is one.
    pub(crate) fn of_cache(self) -> Option<CacheMutant> {
        match self {
            FsMutant::Cache(mutant) => Some(mutant),
            _ => None,
        }
    }
}
