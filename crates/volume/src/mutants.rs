//! Volumes that drop one rule each. A test that passes on a mutant proves nothing about the rule, so for each of
//! them some test must fail.

/// What a mutant does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeMutant {
    /// V1: recovery goes on in the old generation.
    SameGeneration,
    /// V1: recovery goes on from the older checkpoint although the log has seen a newer one.
    CheckpointLossUnnoticed,
    /// V1: check, repair and recovery take a checkpoint for the newest although the log has seen a newer one.
    StaleCheckpointUnnoticed,
    /// V2: recovery does not look behind the cut for what was known durable.
    HoleUnnoticed,
    /// V3: emptied segments are written again although recovery would still replay them.
    ReuseBeforeCheckpoint,
    /// V3: emptied segments are written again although what superseded their blocks is not durable.
    ReuseBeforeFlush,
    /// V3: the checkpoint is written without flushing log and map pages first.
    CheckpointTooEarly,
    /// V3: the cleaner gives a segment up without moving its live blocks.
    CleanerDropsBlocks,
    /// V3: emptied segments are discarded on the disk below although recovery may need them.
    DiscardTooEarly,
    /// V1: what only the checkpoint before the newest still reads is discarded on the disk below.
    DiscardsUnheld,
    /// V4: segments are written that no checkpoint names.
    SegmentUnlisted,
    /// V4: the checkpoint holds the map as it is when each page is written, not as it was at its beginning.
    CheckpointNotFrozen,
    /// V4: a checkpoint that was given up half way is forgotten, and the next one lacks what it had frozen.
    CheckpointAbandoned,
    /// V4: a checkpoint that waited for one that failed is taken all the same.
    CheckpointAfterFailure,
    /// V5: the volume never flushes by itself.
    NoLossBound,
    /// V5: writes are taken without limit while a flush lags.
    NoByteBound,
    /// V5: writes are taken although the oldest volatile one is overdue.
    NoTimeBound,
    /// V6: the cleaner's reserve grows with the volume, beyond what a free-segment list holds.
    ReserveUnbounded,
    /// V6: a checkpoint is written whole, and not only where it holds something.
    CheckpointWhole,
    /// Records are replayed without looking at the checksum of their data.
    DataUnchecked,
    /// Blocks that are read back are not checked.
    ReadUnchecked,
    /// Recovery keeps the whole blocks of a request whose other blocks are lost.
    TornRequest,
    /// S2: a flush answers before the disk below has flushed.
    FlushLies,
    /// S2: a flush answers when the disk below has accepted its flush.
    FlushNotAwaited,
    /// After a failed flush, durability goes on being acknowledged.
    FailureForgotten,
    /// V1: recovery takes records for durable that the disk below may still lose.
    RecoveryUnflushed,
    /// S7: the last write of a packed command is a record of its own.
    PackedTorn,
    /// V7: the pairs of one share lie in two records.
    ShareTorn,
    /// V7: recovery applies the shares of a chunk behind everything else in it: their sources are of a later time.
    ShareLate,
    /// V7: recovery looks up the source of a pair when earlier pairs of the share have changed it.
    PairsInTurn,
    /// V7: a shared block counts as live until one of its names is gone.
    SharedLeftWithFirst,
    /// V7: the names that the map's marks stand for are not listed when the volume is opened.
    NamesForgotten,
    /// V7: cleaning moves a shared block with one of its names, and gives its place up.
    NamesStayBehind,
    /// V7: a checkpoint does not hold the marks of shared blocks.
    MarkNotKept,
    /// V8: an opener takes over what another one has not released, without waiting for an answer.
    ClaimNotAwaited,
    /// V8: an opener does not look whether another one has come before it.
    ClaimNotReread,
    /// V8: an owner goes on without looking at its claim.
    LeaseUnchecked,
    /// V9: closing takes one checkpoint, so that each page of the map is there once.
    ClosedOnce,
    /// V9: repair takes what is whole for what is newest: a page of the map, or a record, that is out of date.
    StaleRepaired,
    /// V9: repair makes up for a page of the map, and drops the log behind the newest checkpoint.
    RepairDropsLog,
}
