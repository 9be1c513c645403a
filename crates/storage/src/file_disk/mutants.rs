//! Mutants: file disks that break one rule each, so that tests can show that breaking it is noticed.

#[cfg(feature = "mutants")]
use super::FileDiskOptions;

/// A rule that a mutant file disk drops. [`FileDiskOptions`](super::FileDiskOptions) takes one under the feature
/// `mutants`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "mutants"), allow(dead_code, reason = "named where the rule is kept"))]
pub enum FileDiskMutant {
    /// S2: a caller that asks for a flush while an `fdatasync` is running takes that for its own.
    JoinsFlush,
    /// S2: a write of which the kernel took only a part counts as whole.
    ShortWriteIsWhole,
}

/// Which rule is dropped: none, outside tests.
#[derive(Clone, Copy, Default)]
pub(super) struct Mutants {
    #[cfg(feature = "mutants")]
    dropped: Option<FileDiskMutant>,
}

impl Mutants {
    #[cfg(feature = "mutants")]
    pub(super) fn of(options: &FileDiskOptions) -> Mutants {
        Mutants { dropped: options.mutant }
    }

    #[cfg(not(feature = "mutants"))]
    pub(super) fn of(_: &super::FileDiskOptions) -> Mutants {
        Mutants::default()
    }

    /// Whether the disk drops the rule that `mutant` names.
    #[cfg(feature = "mutants")]
    pub(super) fn has(self, mutant: FileDiskMutant) -> bool {
        self.dropped == Some(mutant)
    }

    #[cfg(not(feature = "mutants"))]
    pub(super) const fn has(self, _: FileDiskMutant) -> bool {
        false
    }
}
