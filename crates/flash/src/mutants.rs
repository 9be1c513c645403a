//! Firmware that drops one rule each. A rule without a mutant that tests kill is not implemented.

use weir_storage::Rules;

/// The rules that firmware keeps.
pub(crate) type FlashRules = Rules<FlashMutant>;

/// What a mutant does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashMutant {
    /// Barriers are accepted and forgotten (S3).
    BarrierIgnored,
    /// A write of a later epoch takes the place of an earlier version in the cache (S3).
    CoalescesAcrossEpochs,
    /// The cache is written back without regard to epochs (S3, in-order writeback).
    EpochsMixed,
    /// The cache is written back newest first (S3, in-order recovery).
    LogOutOfOrder,
    /// Recovery does not stop at the first gap of the log (S3, in-order recovery).
    GapIgnored,
    /// Recovery keeps units that are not whole (S3, transactional writeback).
    UnitsTornApart,
    /// What the capacitors saved is not restored (S2, power-loss protection).
    DumpForgotten,
    /// Cleaning erases a block when its copies are begun, not when they are committed (S2).
    ErasesTooEarly,
    /// Cleaning erases what recovery would still have to look at (S2, S3).
    ErasesBeforeCheckpoint,
    /// Cleaning takes pages that are not committed yet for garbage (S2).
    CleansUncommitted,
    /// The map takes whichever version of a block comes last; recovery does not look at the sequence in the spare
    /// areas (S2).
    VersionIgnored,
    /// The map takes a copy that cleaning made, though the block was discarded or overwritten since (S7).
    CopyResurrected,
    /// Recovery forgets discards (S7).
    DiscardForgotten,
    /// A discard leaves no version behind: an older one that is committed later brings the block back (S7).
    DiscardUnversioned,
    /// Cleaning takes a slot for garbage when the block that it was written for has left it, though another reads it
    /// (F8).
    SharedErased,
    /// Of the blocks that read what cleaning copies, only the one that it was written for moves (F8).
    NameStaysBehind,
    /// Each pair of a share has a record of its own (F8, S7).
    ShareTorn,
    /// A share is recorded before what was transferred earlier is committed (F8).
    ShareAhead,
    /// Recovery forgets shares (F8).
    ShareForgotten,
    /// Recovery takes the version of a checkpoint's entry from the spare area of its slot, though that was
    /// programmed again since (S3).
    StalePlaceTrusted,
    /// Recovery trusts an increment of which not all pages are programmed (S2).
    TornIncrementTrusted,
    /// Recovery applies the increments behind a checkpoint newest first (S2).
    IncrementsOutOfOrder,
    /// What cleaning moves is not in the log of changes (S2).
    MoveUnlogged,
    /// The device serves writes before the checkpoint that ends recovery is written: what the last cut
    /// discarded becomes valid again (S3).
    RecoveryUnsealed,
    /// Recovery takes torn pages for good ones (S4).
    TornAccepted,
    /// A flush is answered before the cache is written back (S2).
    FlushLies,
    /// A FUA write is answered when it is in the cache (S2).
    FuaLies,
    /// Ordered commands are serviced as simple ones (S1).
    PriorityIgnored,
    /// A version takes the place of one in the cache, and no record says so (order-preserving recovery, S2).
    CoalescingUnrecorded,
    /// A flush is answered before the coalescing records are on flash (order-preserving recovery, S2).
    RecordsLate,
    /// A record names the size of the later request instead of the earlier one's (order-preserving recovery, S4).
    SizeOfLater,
    /// Recovery counts one block for each record, however many it stands for (order-preserving recovery, S2).
    PairForgotten,
    /// Recovery keeps requests of which only a part is on flash (order-preserving recovery, S3).
    IncompleteKept,
    /// Recovery passes over requests of which the flash says nothing (order-preserving recovery, S3).
    RequestGapIgnored,
    /// Recovery stops between two requests that coalesced (order-preserving recovery, S3).
    PairsTornApart,
    /// Algorithm 1 looks at the records in ascending order (order-preserving recovery, S3).
    RecordsUnsorted,
    /// A version takes the place of one that a flush under way waits for (order-preserving recovery, S2).
    CoalescesBehindFlush,
    /// A checkpoint is taken of requests that recovery could still take back (order-preserving recovery, S3).
    CheckpointUnsettled,
    /// Cleaning erases older versions that recovery could still go back to (order-preserving recovery, S3).
    ErasesUnsettled,
    /// A flush settles what was received while it was under way, too (order-preserving recovery, S3).
    SettlesBehindFlush,
    /// A checkpoint is taken while commands go on (order-preserving recovery, S3).
    CheckpointUnquiet,
    /// What several blocks read is settled with the last of them that leaves it, though one that left it before is newer
    /// (order-preserving recovery, S3).
    LastNameSettles,
    /// Recovery takes the seal of the full checkpoint for that of the newest increment (S2).
    OldSealTrusted,
    /// What a command does not change of a logical page is taken from flash, though a newer version is in the cache (F10).
    RestFromFlash,
    /// A part of a logical page is written before a discard of the whole is committed (F10, S7).
    PartUnderDiscard,
    /// Recovery trusts a summary page that is torn, and so finds no page of its erase block (F10).
    TornSummaryTrusted,
    /// The writes of a packed command are taken last first (F11).
    PackedReversed,
    /// The writes of a packed command enter the cache together, and wait for the flash together (F11).
    PackedTogether,
    /// A packed command is answered when its first forced write is on flash (F11).
    PackedAnsweredEarly,
    /// A reliable write is answered when it is in the cache (F12).
    ReliableCached,
    /// A page that holds something reliable is torn as any other (F12).
    ReliableTorn,
    /// A copy that cleaning makes is torn as what the host writes, and read as good (F12).
    CopyGarbled,
    /// A full checkpoint is written over the newest one, not over the older (S2).
    ShadowOverwritten,
}
