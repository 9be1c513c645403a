//! Servers that drop one rule each, for tests that show that the breach is noticed.

/// What a mutant does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "mutants"), allow(dead_code, reason = "named where the rule is kept"))]
pub enum UblkMutant {
    /// N6: a device of another volume is taken up or removed.
    ForeignTakenUp,
    /// N6: a device is made so that the kernel fails what a killed server had not answered.
    UnansweredFail,
}
