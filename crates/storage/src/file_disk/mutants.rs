//! File disks that drop one rule each, so that tests can show that it is noticed.

/// What a mutant does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileDiskMutant {
    /// S2: a caller that asks for a flush while an `fdatasync` is running takes that for its own.
    JoinsFlush,
    /// S2: a write of which the kernel took only a part counts as whole.
    ShortWriteIsWhole,
}
