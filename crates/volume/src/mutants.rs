//! Volumes that drop one rule each. A test that passes on a mutant proves nothing about the rule, so for each of
//! them some test must fail.

/// What a mutant does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeMutant {
    /// V1: recovery goes on in the old generation.
    SameGeneration,
    /// V1: check, repair and recovery take a checkpoint for the newest although the log has seen a newer one.
    StaleCheckpointUnnoticed,
    /// V2: recovery does not look behind the cut for what was known durable.
    HoleUnnoticed,
    /// V3: emptied segments are written again, or discarded, although what superseded their blocks is not durable.
    ReuseBeforeFlush,
    /// V3: the checkpoint is written without flushing log and map pages first.
    CheckpointTooEarly,
    /// V1: what only the checkpoint before the newest still reads is discarded on the disk below.
    DiscardsUnheld,
    /// V4: segments are written in another order than the checkpoint lists them.
    SegmentsOutOfOrder,
    /// V4: a checkpoint that was given up half way is forgotten, and the next one lacks what it had frozen.
    CheckpointAbandoned,
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
    /// S1: a write overtakes a read of the same block that waits for a page of the map.
    WriteOvertakesRead,
    /// V6: a page of the map is evicted while it is on its way to the disk.
    PageEvictedEarly,
    /// checks: a page of the map that is loaded again is not compared with what was written.
    PageUnchecked,
    /// S3: records are replayed without looking at the checksum of their data.
    DataUnchecked,
    /// checks: blocks that are read back are not checked.
    ReadUnchecked,
    /// S2: a flush answers before the disk below has flushed.
    FlushLies,
    /// S2: a flush answers when the disk below has accepted its flush.
    FlushNotAwaited,
    /// S5: after a failed flush, durability goes on being acknowledged.
    FailureForgotten,
    /// V1: recovery takes records for durable that the disk below may still lose.
    RecoveryUnflushed,
    /// V7: recovery looks up the source of a pair when earlier pairs of the share have changed it.
    PairsInTurn,
    /// V7: the shared flags of map entries are lost when the volume is opened.
    SharedFlagsForgotten,
    /// R8: no writer waits for a tap, however much it holds.
    TapUnbounded,
    /// R8: no writer waits for a tap, however old is what it holds.
    TapNeverOverdue,
    /// R2: a tap hands chunks out that are not durable.
    TapsVolatile,
    /// V8: an opener takes over what another one has not released, without waiting for an answer.
    ClaimNotAwaited,
    /// V8: an opener does not look whether another one has come before it.
    ClaimNotReread,
    /// V8: an owner goes on without looking at its claim.
    LeaseUnchecked,
    /// V10: a write changes a block that the newest snapshot reads.
    SnapshotUnpreserved,
    /// V10: a snapshot reads what was written to a block that was unmapped when it was made.
    HolesUnpreserved,
    /// V10: a snapshot that is deleted takes along what the one before it reads.
    SnapshotNotInherited,
    /// V12: a block that was discarded reads what the base has.
    DiscardUncoversBase,
    /// V12: a share reads zeros where its source is in the base.
    ShareUncopied,
    /// V12: a volume is opened without its base, and reads zeros for it.
    BaseLeftOut,
    /// V13: recovery takes the records behind the newest mark.
    MarksIgnored,
    /// V13: what a record supersedes is written again before a mark behind that record is durable.
    ReuseBeforeMark,
    /// V13: a checkpoint begins behind records that no mark covers.
    CheckpointUnmarked,
    /// V13: a snapshot is of records that no mark covers.
    SnapshotUnmarked,
    /// V9: closing takes one checkpoint, so that each page of the map is there once.
    ClosedOnce,
    /// V9: repair takes what is whole for what is newest: a page of the map, or a record, that is out of date.
    StaleRepaired,
    /// N4: a volume that answers from the disk answers when a change has its place in the log.
    AnswersFromMemory,
    /// V11: the superblock that counts names checkpoints and map pages that the disk below may still lose.
    ResizedTooEarly,
    /// V11: a copy of the superblock that an interrupted resize has left stays, while the volume changes.
    SuperblocksDiffer,
    /// V11: commands are taken while an open volume grows.
    GrownUnheld,
}
