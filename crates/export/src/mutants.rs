//! Exports that drop one rule each, for tests that show that the breach is noticed.

/// What a mutant does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "mutants"), allow(dead_code, reason = "named where the rule is kept"))]
pub enum ExportMutant {
    /// N1: a flush is answered before anything is durable.
    FlushEarly,
    /// N1: a write with FUA is answered when it is transferred.
    FuaEarly,
    /// N2: a flush that should order does nothing.
    OrderSkipped,
    /// N7: flushes succeed though answered changes may be lost.
    LossIgnored,
    /// N3: requests are read however many are under way, and carried out with however much data.
    LoadUnbounded,
}
