//! Firmware that drops one rule each. A rule without a mutant that tests kill is not implemented.

use weir_storage::Rules;

/// The rules that firmware keeps.
pub(crate) type FlashRules = Rules<FlashMutant>;

/// What a mutant does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashMutant {
    /// F2: barriers are accepted and forgotten.
    BarrierIgnored,
    /// F2: a write of a later epoch takes the place of an earlier version in the cache.
    CoalescesAcrossEpochs,
    /// F2: the cache is written back without regard to epochs.
    EpochsMixed,
    /// F3: recovery does not stop at the first gap of the log.
    GapIgnored,
    /// F3: recovery takes torn pages for good ones.
    TornAccepted,
    /// F3: recovery keeps units that are not whole.
    UnitsTornApart,
    /// S7: recovery forgets discards.
    DiscardForgotten,
    /// S7: recovery forgets shares.
    ShareForgotten,
    /// F4: what the capacitors saved is not restored.
    DumpForgotten,
    /// F5: cleaning erases what recovery would still have to look at.
    ErasesBeforeCheckpoint,
    /// F5: cleaning takes pages that are not committed yet for garbage.
    CleansUncommitted,
    /// F4: the map takes whichever version of a block comes last; recovery does not look at the sequence in the spare
    /// areas.
    VersionIgnored,
    /// F4: the map takes a copy that cleaning made, though the block was discarded or overwritten since.
    CopyResurrected,
    /// F8: cleaning takes a slot for garbage when the block that it was written for has left it, though another reads
    /// it.
    SharedErased,
    /// F8: a share is recorded before what was transferred earlier is committed.
    ShareAhead,
    /// F8: a write to a block that a share names is serviced before the share is committed.
    SharePassed,
    /// F8: a read of a target finds what the map has, though the share that changes it is answered.
    ShareUnseen,
    /// F7: recovery trusts an increment of which not all pages are programmed.
    TornIncrementTrusted,
    /// F7: what cleaning moves is not in the log of changes.
    MoveUnlogged,
    /// F3: order-preserving recovery does not follow the erase blocks that pages name.
    ChainCutShort,
    /// F7: an erase block that no page has named is filled, and the log does not name it either.
    BlockOpenedUnnamed,
    /// F7: recovery takes the free erase blocks from the full checkpoint, though an increment says what became of them.
    StockStale,
    /// F3: the device serves writes before the checkpoint that ends recovery is written: what the last cut discarded
    /// becomes valid again.
    RecoveryUnsealed,
    /// F6: a flush is answered before the cache is written back.
    FlushLies,
    /// F6: a FUA write is answered when it is in the cache.
    FuaLies,
    /// F1: ordered commands are serviced as simple ones.
    PriorityIgnored,
    /// F9: a version takes the place of one in the cache, and no record says so.
    CoalescingUnrecorded,
    /// F9: a flush is answered before the coalescing records are on flash.
    RecordsLate,
    /// F9: recovery keeps requests of which only a part is on flash.
    IncompleteKept,
    /// F9: cleaning erases older versions that recovery could still go back to.
    ErasesUnsettled,
    /// F10: what a command does not change of a logical page is taken from flash, though a newer version is in the
    /// cache.
    RestFromFlash,
    /// F11: the writes of a packed command enter the cache together, and wait for the flash together.
    PackedTogether,
    /// F12: a reliable write is answered when it is in the cache.
    ReliableCached,
    /// F12: a page that holds something reliable is torn as any other.
    ReliableTorn,
}
