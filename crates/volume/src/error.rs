//! Why a volume cannot be made, opened or used.

use thiserror::Error;
use weir_storage::{Lba, Opener, Rejected, StorageError};

/// Why a volume could not be created, opened or checked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum VolumeError {
    /// The storage below refused or failed a command.
    #[error("the disk below: {0}")]
    Disk(#[from] Rejected),
    /// There is something else on the storage.
    #[error("{0} holds data that Weir did not write; nothing was changed")]
    NotEmpty(Lba),
    /// There is a volume on the storage already.
    #[error("a Weir volume exists here already; nothing was changed")]
    VolumeExists,
    /// No superblock was found.
    #[error(
        "this is not a Weir volume: blocks 0 and 1 hold no superblock. If it was a volume, both superblocks are damaged: do not write to it, restore it from a copy"
    )]
    Foreign,
    /// The volume was written by a newer program.
    #[error(
        "the volume has format version {found}, and this program knows versions up to {known}; use a newer program"
    )]
    NewerVersion {
        /// The version on the medium.
        found: u32,
        /// The newest version known here.
        known: u32,
    },
    /// The volume was written by an older program.
    #[error(
        "the volume has format version {found}, and this program reads version {known} only; copy its content with an older program"
    )]
    OlderVersion {
        /// The version on the medium.
        found: u32,
        /// The version known here.
        known: u32,
    },
    /// The volume uses features that this program does not know.
    #[error("the volume uses features {0:#x} that this program does not know; use a newer program")]
    UnknownFeatures(u64),
    /// The storage is smaller than the volume that was made on it.
    #[error(
        "the disk has {found} blocks, and the volume was made with {needed}: it was truncated; restore it from a copy"
    )]
    Truncated {
        /// Blocks that the volume needs.
        needed: u64,
        /// Blocks that are there.
        found: u64,
    },
    /// The storage below takes too little at a time.
    #[error(
        "the disk takes at most {found} blocks in one command, and this volume needs {needed}; use smaller segments"
    )]
    Transfer {
        /// Blocks in the largest chunk.
        needed: u32,
        /// Blocks that the disk takes in one command.
        found: u32,
    },
    /// Addresses of so large a volume leave no room for the mark of a shared block.
    #[error("a volume of {0} blocks cannot take shares, only those of up to 2^31 blocks (8 TiB)")]
    TooLargeToShare(u64),
    /// A structure does not hold together.
    #[error("the volume is damaged: {what} at {at}; restore it from a copy")]
    Damaged {
        /// Which structure, and what is wrong with it.
        what: Damage,
        /// Where it lies on the storage below.
        at: Lba,
    },
    /// An owner on another host, or on this one behind another path, has answered (V8).
    #[error("the volume is open on {}, by process {}: close it there first", .0.host_name(), .0.process)]
    OpenElsewhere(Box<Opener>),
    /// The claim is of a process that has another file open: this is a copy of that, or another path to it (V8).
    #[error(
        "this is a copy of, or another path to, a volume that process {} has open: unmount the volume, then copy it",
        .0.process
    )]
    CopyOfOpen(Box<Opener>),
    /// Two processes open the volume at the same time (V8).
    #[error("another process is opening the volume: try again")]
    OpenedMeanwhile,
    /// The volume holds only what has changed since the state of its base (V12), and that was not given.
    #[error(
        "it holds only what was written to a replica since request {0}: mount it with that, by `weir mount URL DIRECTORY --cache FILE`; \
         if it is damaged, delete it: what was shipped is in the replica"
    )]
    BaseNeeded(u64),
    /// A base was given to a volume that has none, or not one of its size.
    #[error("the volume was not made on this base")]
    OtherBase,
    /// The sizes asked for do not make a volume.
    #[error("cannot create the volume: {0}")]
    Format(#[from] FormatError),
}

/// Why a snapshot or clone could not be made, deleted or used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SnapshotError {
    /// The volume was made without slots.
    #[error(
        "this volume was made without room for snapshots: make one with them, and copy the files into it"
    )]
    NoSlots,
    /// All slots are in use.
    #[error("all slots for snapshots and clones are in use: delete one first")]
    NoneFree,
    /// No branch has this name.
    #[error("there is no snapshot or clone {0}")]
    Unknown(String),
    /// A clone has this name, and a snapshot is wanted.
    #[error("{0} is a clone, and this takes a snapshot")]
    NoSnapshot(String),
    /// What has changed is asked for since a snapshot that is not before the other one.
    #[error("the snapshot {0} is not earlier than the other one")]
    NotEarlier(String),
    /// A branch has this name.
    #[error("there is a snapshot or clone {0} already")]
    Exists(String),
    /// The name is empty, too long, or has other characters.
    #[error(
        "{0:?} is no name: use 1 to 64 letters, digits, dots, hyphens and underscores, a letter, digit or underscore first"
    )]
    Name(String),
    /// It is open as a storage, as by a mount.
    #[error("{0} is in use: unmount it first")]
    InUse(String),
    /// A clone reads what the snapshot has.
    #[error("the snapshot {0} has a clone: delete the clone first")]
    HasClone(String),
    /// The user of the volume has failed, and takes it to no state of which a snapshot could be.
    #[error("what is mounted has failed, and a snapshot would not be of one moment")]
    NoMark,
    /// The volume refused a record, or its disk failed.
    #[error("the volume: {0}")]
    Volume(#[from] Rejected),
}

/// Why a volume could not be grown or shrunk. It has its old size then.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ResizeError {
    /// It has this size.
    #[error("the volume has this size already")]
    Unchanged,
    /// It is to grow, and is larger than what was asked for.
    #[error(
        "the volume is larger than that: {logical} blocks, on {physical} blocks of the disk; to make it smaller, shrink it"
    )]
    Larger {
        /// Its capacity, in blocks.
        logical: u64,
        /// Blocks of the disk that it has.
        physical: u64,
    },
    /// It is to shrink, and is smaller than what was asked for.
    #[error(
        "the volume is smaller than that: {logical} blocks, on {physical} blocks of the disk; to make it larger, grow it"
    )]
    Smaller {
        /// Its capacity, in blocks.
        logical: u64,
        /// Blocks of the disk that it has.
        physical: u64,
    },
    /// The disk is smaller than what was asked for.
    #[error("the disk has {found} blocks, and {needed} were asked for")]
    DiskTooSmall {
        /// Blocks that were asked for.
        needed: u64,
        /// Blocks of the disk.
        found: u64,
    },
    /// The larger map has no room in what is added.
    #[error(
        "the map of a volume of that size has no room in what is added: grow it to {least} blocks at least"
    )]
    TooLittle {
        /// Blocks of the disk that are enough.
        least: u64,
    },
    /// What is to be cut off is in use.
    #[error(
        "block {last} is in use, and the volume would have {blocks}: shrink the filesystem in it and discard what is behind that first"
    )]
    InUse {
        /// The last block that is in use.
        last: Lba,
        /// The capacity that the volume would have.
        blocks: u64,
    },
    /// Snapshots lie at places that depend on the capacity.
    #[error("the volume has snapshots or clones, whose places depend on its size: delete them first")]
    Snapshots,
    /// It is open, and being resized already.
    #[error("the volume is being resized already")]
    UnderWay,
    /// It is open with marks (V13), and closing it would place one.
    #[error("the volume is open with marks, which it cannot keep while it grows: close it first")]
    Marks,
    /// It is open, and an object store has a part of it.
    #[error(
        "the volume is shipped to an object store or was made from one, where it keeps its size: close it first"
    )]
    Shipped,
    /// It was open, and could not be opened again. It may have the new size.
    #[error("{0}")]
    NotReopened(VolumeError),
    /// The volume or its disk.
    #[error("{0}")]
    Volume(#[from] VolumeError),
}

impl From<Rejected> for ResizeError {
    fn from(error: Rejected) -> ResizeError {
        ResizeError::Volume(error.into())
    }
}

impl From<FormatError> for ResizeError {
    fn from(error: FormatError) -> ResizeError {
        ResizeError::Volume(error.into())
    }
}

impl From<SnapshotError> for ResizeError {
    fn from(error: SnapshotError) -> ResizeError {
        match error {
            SnapshotError::Volume(rejected) => ResizeError::Volume(rejected.into()),
            _ => ResizeError::Snapshots,
        }
    }
}

impl From<StorageError> for VolumeError {
    fn from(error: StorageError) -> VolumeError {
        VolumeError::Disk(Rejected::Failed(error))
    }
}

/// What is wrong with a structure on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Damage {
    /// Both superblocks fail their checksum, though one has the magic.
    #[error("the superblock fails its checksum")]
    Superblock,
    /// A superblock field contradicts the others.
    #[error("superblock field `{0}` contradicts the others")]
    Field(&'static str),
    /// Neither checkpoint slot is valid.
    #[error("neither checkpoint is valid")]
    NoCheckpoint,
    /// The log knows a newer checkpoint than the newest that is whole.
    #[error("the newest checkpoint is damaged or out of date")]
    NewestCheckpoint,
    /// A checkpoint field has an impossible value.
    #[error("checkpoint field `{0}` has an impossible value")]
    CheckpointField(&'static str),
    /// A map page fails its checksum or is not the one that belongs there.
    #[error("a map page fails its checksum")]
    MapPage,
    /// The map pages are not those that the checkpoint was written with.
    #[error("a map page is older than its checkpoint")]
    StaleMap,
    /// A map entry points outside the segments.
    #[error("a map entry points outside the segments")]
    MapEntry,
    /// Several logical blocks read a physical block of which not all names are listed (V7).
    #[error("a shared block has names that no map entry lists")]
    Names,
    /// A record that was known durable is missing or fails its checksum (V2).
    #[error("a record that was durable is missing or damaged")]
    LostRecord,
    /// A valid chunk holds a record that cannot be.
    #[error("a record has impossible values")]
    Record,
    /// The table of snapshots and clones is damaged, or contradicts itself.
    #[error("the table of snapshots and clones is damaged or unknown")]
    SnapshotTable,
    /// A data block fails its checksum.
    #[error("a data block fails its checksum")]
    Data,
}

/// Why the sizes asked for do not make a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    /// The segment size is not a power of two in range.
    #[error("a segment has a power of two from 8 to 4096 blocks, not {0}")]
    SegmentBlocks(u32),
    /// The storage is too small.
    #[error("the disk has {found} blocks; the smallest volume with this segment size needs {needed}")]
    TooSmall {
        /// Blocks needed at least.
        needed: u64,
        /// Blocks there are.
        found: u64,
    },
    /// More blocks than 32 bits address.
    #[error("{0} blocks are more than the format can address (2^32 - 1, almost 16 TiB)")]
    TooLarge(u64),
    /// More slots than there may be, or than the format can address.
    #[error(
        "{0} snapshots are more than a volume of this size can have: 32 at most, 16 TiB together with the volume, and none beyond 8 TiB"
    )]
    Slots(u32),
    /// A volume without logical blocks.
    #[error("a volume needs at least one logical block")]
    Empty,
}
