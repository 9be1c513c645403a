//! Mutants: block layers that drop one rule each. A rule is kept only if a test kills its mutant.

/// What a mutant does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockMutant {
    /// E1: a closed queue lets requests of the next epoch in.
    EpochsMixed,
    /// E2: requests leave in issue order, whatever the elevator says.
    ElevatorIgnored,
    /// E3: orderless requests enter only when nothing order-preserving waits, however long that takes.
    OrderlessStarved,
    /// E3: reads wait for a closed queue like writes.
    ReadHeldBack,
    /// E4: the barrier flag stays on the request that brought it.
    FlagStays,
    /// E4: a merged request is order-preserving only if its first part is.
    MergeDropsOrder,
    /// E4: requests of different streams are merged.
    MergeCrossesStreams,
    /// E5: the next epoch waits until the last one is transferred.
    WaitsForTransfer,
    /// E5: order-preserving requests pass a refused one.
    RefusedOvertaken,
    /// E5: barrier writes go with simple priority.
    SimplePriority,
    /// E5: without ordered service, the barrier does not wait for its epoch's transfer.
    BarrierRunsAhead,
    /// E6: a barrier under legacy dispatch does not flush.
    FlushForgotten,
    /// E7: orderless writes stay orderless.
    NoPromotion,
    /// E8: the writes of a plug leave in reverse order.
    PlugReordered,
    /// E8: writes become one across a bare barrier.
    PlugBarrierForgotten,
    /// E8: the next command of a divided plug does not wait for the one before.
    PlugRunsAhead,
    /// E9: a flush behind writes leaves before they are transferred.
    FlushOvertakes,
    /// S5: a stream goes on after a failed order-preserving write.
    FailureIgnored,
    /// S5: a flush is acknowledged although one before it failed.
    FlushLies,
    /// S6: overlapping requests pass each other.
    OverlapsReordered,
}
