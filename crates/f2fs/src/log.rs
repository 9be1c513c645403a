//! The six logs to which new blocks go.

/// A log: new blocks of a kind go to the end of its open segment. Its number is that in the segment table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Log {
    /// Entries of directories.
    HotData = 0,
    /// Data of files.
    WarmData = 1,
    /// Data that hardly changes, and what the cleaner moved.
    ColdData = 2,
    /// Direct nodes of directories.
    HotNode = 3,
    /// Direct nodes of files.
    WarmNode = 4,
    /// Indirect nodes.
    ColdNode = 5,
}

impl Log {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::HotData, Self::WarmData, Self::ColdData, Self::HotNode, Self::WarmNode, Self::ColdNode];

    /// The log with number `index`.
    pub fn from_index(index: usize) -> Option<Self> {
        Self::ALL.get(index).copied()
    }

    /// Whether it holds nodes.
    pub fn is_node(self) -> bool {
        self >= Self::HotNode
    }
}
