//! Mounts that drop one rule each, for tests that show that the breach is noticed.

/// What a mutant does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "mutants"), allow(dead_code, reason = "named where the rule is kept"))]
pub enum FuseMutant {
    /// K1: a file gets another name while the kernel keeps pages of it.
    NamedBeforePages,
}
