//! Times of a file.

/// A time of a file. A format may have room for less: ext4 has for 1901 to 2446.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileTime {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

/// Which of an inode's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stamp {
    /// When it was last read.
    Accessed,
    /// When the inode last changed.
    Changed,
    /// When the content last changed.
    Modified,
    /// When it was made.
    Created,
}
