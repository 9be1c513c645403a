//! What can be done with the space of a file.

/// What [`fallocate`](crate::FileCalls::fallocate) does to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallocate {
    /// Holes get blocks that read as zeros; what is written stays.
    Allocate {
        /// The file does not grow, even if the range ends behind it.
        keep_size: bool,
    },
    /// All of it reads as zeros; whole blocks are freed, and the file keeps its size.
    PunchHole,
    /// All of it reads as zeros, and has blocks.
    ZeroRange {
        /// The file does not grow, even if the range ends behind it.
        keep_size: bool,
    },
}
