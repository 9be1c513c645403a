//! *Promises*: what a filesystem promises to be there after a power cut, as named sets.
//!
//! A call becomes *units*, each of which a cut leaves or takes: a block of data, a size, a name, attributes. A set of promises
//! says which units a synchronisation call makes durable, and which units come not before others.
//! `docs/crash-program.md` has the same as a table, with the sources.
//!
//! All sets have in common, as no filesystem keeps less: of the units on one name, on one block, on the size and the
//! attributes of one file, a later one is not there without the earlier ones, unless the block is torn; a rename within a directory is one unit; the
//! names of a rename between directories are two, and the old one goes not before the new one is there.

/// A set of promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Promises {
    /// What POSIX promises: data is durable when the file was synchronised, a name when its directory was. All else may
    /// be there or not, in any order.
    #[default]
    Posix,
    /// The kernel's ext4, `data=ordered`.
    Ext4Ordered,
    /// The kernel's ext4, `data=writeback`.
    Ext4Writeback,
    /// The kernel's XFS.
    Xfs,
    /// The kernel's Btrfs.
    Btrfs,
}

impl Promises {
    /// All of them.
    pub const ALL: [Promises; 5] =
        [Promises::Posix, Promises::Ext4Ordered, Promises::Ext4Writeback, Promises::Xfs, Promises::Btrfs];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Promises::Posix => "posix",
            Promises::Ext4Ordered => "ext4-ordered",
            Promises::Ext4Writeback => "ext4-writeback",
            Promises::Xfs => "xfs",
            Promises::Btrfs => "btrfs",
        }
    }

    /// The set of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Promises> {
        Promises::ALL.into_iter().find(|promises| promises.name() == name)
    }

    /// Names, attributes, and sizes that are set become durable in the order of the calls, as by a journal. A rename is one
    /// unit then, also between directories, and new data of blocks that were cut off, or made a hole, comes not before that.
    #[must_use]
    pub const fn orders_metadata(self) -> bool {
        !matches!(self, Promises::Posix)
    }

    /// A synchronisation of a file, or of a directory, that has something to make durable makes all earlier metadata durable.
    #[must_use]
    pub const fn sync_covers_metadata(self) -> bool {
        matches!(self, Promises::Ext4Ordered | Promises::Ext4Writeback | Promises::Xfs)
    }

    /// `fsync` of a file makes its names durable, and those of the new directories that it is in.
    #[must_use]
    pub const fn sync_covers_names(self) -> bool {
        matches!(self, Promises::Btrfs)
    }

    /// A size is there not before the data that made the file so long.
    #[must_use]
    pub const fn orders_size_after_data(self) -> bool {
        matches!(self, Promises::Ext4Ordered | Promises::Xfs | Promises::Btrfs)
    }

    /// A rename that replaces a file is there not before the data of what takes its place.
    #[must_use]
    pub const fn orders_replacement_after_data(self) -> bool {
        matches!(self, Promises::Ext4Ordered | Promises::Btrfs)
    }
}
