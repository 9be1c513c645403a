//! Replicas that drop one rule each. For each of them some test must fail.

/// What a mutant does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaMutant {
    /// R1: a writer sends the next object before the one before it, and goes on when that fails.
    ObjectsOutOfOrder,
    /// R1: a reader does not look whether an object follows the one before it.
    ChainUnchecked,
    /// R3: a catch-up group counts before its last part is there.
    PartialGroupCounts,
    /// R3: a catch-up ends at the record that it began at, although it has read newer blocks.
    CatchUpEndsEarly,
    /// R3: a catch-up ends without the records that were given up while it ran.
    CatchUpGapIgnored,
    /// R3: a catch-up leaves out what is not mapped any more.
    CatchUpForgetsDiscards,
    /// R3: a catch-up takes shares of its time as the log has them.
    CatchUpForgetsShares,
    /// R3: a writer goes on with a group that was cut, whatever the volume has lost of it.
    CutGroupTrusted,
    /// R3: a catch-up that goes on takes what was sent before for what is there now.
    CutGroupUnchanged,
    /// R4: a writer takes an object of another writer for its own.
    FenceIgnored,
    /// R4: a writer begins without an epoch of its own.
    EpochForgotten,
    /// R4: a writer that was away takes a place that was freed meanwhile for its own.
    AbsenceUnchecked,
    /// R4: a writer takes a place over that is free because what was there is collected.
    OutrunIgnored,
    /// R4: a writer goes on behind objects of a machine that was opened later, if that has an older epoch.
    GenerationIgnored,
    /// R5: a restore ends within a request.
    RequestTorn,
    /// R5: what is read is not compared with its checksum.
    ObjectUnchecked,
    /// R5: the shares of a request are carried out in turn.
    SharesInTurn,
    /// R6: a checkpoint keeps blocks that were discarded.
    CheckpointKeepsDiscarded,
    /// R6: a checkpoint takes a part of another map for its own.
    MapPartUnchecked,
    /// R6: a checkpoint counts before all of its parts are there.
    CheckpointTooEarly,
    /// R6: a log that ends before a checkpoint which cannot be read takes its place.
    CheckpointForgotten,
    /// R7: objects that a kept checkpoint names are collected.
    NamedCollected,
    /// R7: all checkpoints but the newest are collected, however young they are.
    KeepIgnored,
    /// R10: a new volume begins in the generation of the replica.
    GenerationKept,
    /// R10: a new volume begins with what was there before its fence.
    StateBeforeFence,
    /// R11: a volume is opened with a replica in which no writer made it.
    BaseUnchecked,
    /// R11: a catch-up discards in the store what a volume on a base does not hold.
    CatchUpDiscardsBase,
    /// R12: what is to be in the store is acknowledged when it is durable here.
    RemoteUnawaited,
    /// R9: a mounted block is not compared with its checksum.
    BlockUnproved,
    /// R9: a mounted block whose object is missing reads zeros.
    MissingReadsZeros,
}
