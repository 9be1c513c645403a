//! Disks that drop one rule each, so that tests can show that it is noticed. S5 has no mutant here: it is a rule of
//! the block layer.

/// What a mutant does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageMutant {
    /// S1: ordered priority is ignored.
    OrderedIgnored,
    /// S2: a flush completes without making anything durable.
    FlushLies,
    /// S2: an FUA write completes before it is durable.
    FuaLies,
    /// S2: a pre-flush is skipped.
    PreflushSkipped,
    /// S3: barriers are ignored.
    EpochsMixed,
    /// S3: a prefix device keeps requests behind lost ones.
    PrefixHoles,
    /// S3: a prefix device keeps parts of requests, an atomic write is torn.
    RequestTorn,
    /// S4: a tear unit is torn inside.
    UnitTorn,
    /// S4: the flag `reliable` is ignored.
    ReliableIgnored,
    /// S6: the payload is what the caller's page holds at the transfer: the bytes of its next write.
    PayloadLate,
    /// S7: the pairs of a share persist one by one.
    ShareTorn,
    /// S7: a write of a packed command may persist before an earlier one with FUA does.
    PackedTogether,
}
