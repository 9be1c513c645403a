//! Recoveries that drop one rule each. A rule without a mutant that tests kill is not implemented.

/// What a mutant does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "mutants"), allow(dead_code, reason = "named where the rule is kept"))]
pub enum ReplayMutant {
    /// J2: with asynchronous commits, a commit block over a missing block is damage.
    RefusesTornCommit,
    /// J2: a commit block counts, whatever is missing of what it commits.
    TrustsCommitBlock,
    /// J2: with asynchronous commits, the commit block of the torn transaction counts as one of a later transaction.
    TakesOwnCommitForLater,
    /// J2: nothing looks for a later transaction behind the end of the log.
    TrustsEnd,
    /// J10: recovery goes on behind a transaction that is not whole.
    ReplaysPastHole,
}
