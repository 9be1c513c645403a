//! Tests of programs that drop one rule each. A rule without a mutant that tests kill is not implemented.

/// What a mutant does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "mutants"), allow(dead_code, reason = "named where the rule is kept"))]
pub enum ProgramMutant {
    /// T1: each cut counts with all lines of the run.
    AcknowledgesEarly,
    /// T1: no state is looked at before a line is acknowledged.
    SkipsAnnouncements,
    /// T1: a drive is cut with lines that were acknowledged after its state.
    CutsBeforeLines,
    /// T2: a synchronisation makes nothing durable.
    SyncIgnored,
    /// T2: a failed synchronisation loses nothing, so the next one covers it.
    FailedSyncCovers,
    /// T2: a name is there without what it stood for before.
    NamesOvertake,
    /// T2: metadata has no order.
    MetadataOvertakes,
    /// T2: a size is there before the data that made it.
    SizeBeforeData,
    /// T2: a file is replaced before the data of what takes its place is there.
    ReplacesEarly,
    /// T2: a synchronisation covers its own file alone.
    CoversOneFile,
    /// T2: the new directories of a file are not covered with it.
    ForgetsAncestors,
    /// T2: data takes the place of a block that is not given up yet.
    DataOvertakesRemoval,
    /// T2: a tear has sectors that no call has written.
    TearsAtWill,
    /// T3: a check that accepts everything is not told.
    TrustsChecks,
}
