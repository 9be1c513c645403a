//! Servers that drop one rule each, for tests that show that the breach is noticed.

/// What a mutant does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "mutants"), allow(dead_code, reason = "named where the rule is kept"))]
pub enum VhostMutant {
    /// N4: a write is answered before the storage has it.
    AnsweredEarly,
    /// N5: what was under way when the last server was killed is not carried out.
    InflightForgotten,
    /// N5: it is carried out in the order of places in the ring.
    InflightByPlace,
}
