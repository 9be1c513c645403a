//! What a mount understands beyond the usual calls: sixteen ioctls, and four extended attributes.
//!
//! | number | name | argument | what it does |
//! |---|---|---|---|
//! | `_IO('W', 1)` | [`FBARRIER`] | | `fbarrier` |
//! | `_IO('W', 2)` | [`FDATABARRIER`] | | `fdatabarrier` |
//! | `_IOW('W', 3, u32)` | [`SET_SYNC`] | 0 durable, 1 order, 2 remote | what `fsync` of the file promises |
//! | `_IO('W', 4)` | [`ORDER_WRITES`] | | `fdatabarrier` follows each write of this open file that does not make it longer |
//! | `_IO('W', 5)` | [`FBARRIER_AFTER_PAGES`] | | `fbarrier`, for a caller that has had the kernel hand over the file's dirty pages |
//! | `_IO('W', 6)` | [`FDATABARRIER_AFTER_PAGES`] | | `fdatabarrier`, the same |
//! | `_IO('W', 7)` | [`BEGIN_UPDATE`] | | an update of an atomic file begins |
//! | `_IO('W', 8)` | [`END_UPDATE`] | | it ends: after a crash all of it is there, or none |
//! | `_IO('W', 9)` | [`ABANDON_UPDATE`] | | it is taken back |
//! | `_IOW('W', 10, ...)` | [`SYNC_GROUP`] | [`SyncGroup`] | `fsync` or `fbarrier` of a group of files, whose updates go together |
//! | `_IO('W', 11)` | [`ORDER_ALL`] | | orders everything on the mount |
//! | `_IOR(0xf5, 12, u32)` | [`F2FS_GET_FEATURES`] | features | [`F2FS_FEATURE_ATOMIC_WRITE`] on F2FS |
//! | `_IO(0xf5, 1)` | [`F2FS_START_ATOMIC_WRITE`] | | on F2FS, as [`BEGIN_UPDATE`] |
//! | `_IO(0xf5, 2)` | [`F2FS_COMMIT_ATOMIC_WRITE`] | | on F2FS, as [`END_UPDATE`] and `fsync` |
//! | `_IO(0xf5, 5)` | [`F2FS_ABORT_ATOMIC_WRITE`] | | on F2FS, as [`ABANDON_UPDATE`] |
//! | `_IOWR('X', 121, [u64; 3])` | [`TRIM`] | start, length and minimum, in bytes | discards what is free there: the kernel's `FITRIM`, as `fstrim` asks for it |
//!
//! The attribute [`SYNC_ATTRIBUTE`], `durable`, `order` or `remote`, says the same as the third, and stays; to set or remove it
//! takes back what the third has said. It is not carried into copies, as no list of attributes shows it. A file's owner
//! and the superuser may set and remove it, and may lower the promise by the third, or have it wait for the store. The attribute [`ATOMIC_ATTRIBUTE`],
//! `1`, makes a file atomic, or a directory one in which files are made so; it is as hidden, and theirs, too. The
//! attribute [`STATUS_ATTRIBUTE`] of every file and directory is the status of
//! the mount, as JSON; no list of attributes shows it. Setting it to [`SYNC_ALL`] makes everything on the mount durable,
//! and fails with EIO if that cannot be done: the kernel does not pass on `sync` and `syncfs`. Any other value is
//! refused. [`VOLUME_ATTRIBUTE`] is set, by the superuser and the user of the server, to change the
//! volume below: its snapshots, its size. A storage that is mounted as one file understands this attribute, and nothing else of these.

use rustix::ioctl::opcode;
use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Orders all that was written to a file and its inode before whatever is written later.
pub const FBARRIER: u32 = opcode::none(b'W', 1);
/// The same of the data, and what is needed to find it.
pub const FDATABARRIER: u32 = opcode::none(b'W', 2);
/// Says what `fsync` of a file promises, as long as a program has it open. The file has to be open for writing; anything but that it is
/// durable is for its owner and the superuser to say, and so is that one need not wait for the store any more, EPERM for others.
/// EOPNOTSUPP to wait for a store where there is none. Without
/// [`ServerOptions::open_requests`](crate::ServerOptions::open_requests) it is what `fsync` promises to the calling process, until that ends,
/// and the caller has to have the right to write the file.
pub const SET_SYNC: u32 = opcode::write::<u32>(b'W', 3);
/// Orders each write from now on, as if [`FDATABARRIER`] followed it, but for those that make the file longer: they are
/// to be ordered by [`FBARRIER`]. So a program that writes in place spares the trip to the server. It holds for the open
/// file, until it is closed; without `open_requests`, for the file, until the process ends that has said so. Where the kernel keeps a
/// writeback cache, it is for files that are open with O_DIRECT, and EOPNOTSUPP for others, whose writes do not come one by one.
pub const ORDER_WRITES: u32 = opcode::none(b'W', 4);
/// What [`FBARRIER`] does, for a caller that has called `sync_file_range` or `msync` before. [`FBARRIER`] itself asks
/// the kernel for dirty pages where it keeps a writeback cache, and the kernel forgets then what it has of the file.
pub const FBARRIER_AFTER_PAGES: u32 = opcode::none(b'W', 5);
/// The same of [`FDATABARRIER`].
pub const FDATABARRIER_AFTER_PAGES: u32 = opcode::none(b'W', 6);
/// Orders everything that was changed on the mount, by any program, before everything that is changed later. It has the kernel
/// hand over what it keeps of files. It may be called on any open file or directory.
pub const ORDER_ALL: u32 = opcode::none(b'W', 11);
/// Discards what is free in a range of the filesystem, in runs of a minimum of bytes. What it gives has the bytes that
/// were discarded in place of the length. For the superuser; `fstrim` asks for it at the mountpoint.
pub const TRIM: u32 = opcode::read_write::<TrimRange>(b'X', 121);
/// Begins an update of an atomic file that is open for writing: from now on only [`END_UPDATE`] puts what is written
/// into the journal. `fsync` of the file fails with EBUSY meanwhile. EINVAL if the file is not atomic; on F2FS it need not be.
pub const BEGIN_UPDATE: u32 = opcode::none(b'W', 7);
/// Ends the update that was begun through the same open file; without `open_requests`, by the same process. It is ordered before
/// what comes later, and durable by the next `fsync`.
pub const END_UPDATE: u32 = opcode::none(b'W', 8);
/// Takes that update back. So does a program that closes the file in the middle of an update; without
/// `open_requests`, a process that ends.
pub const ABANDON_UPDATE: u32 = opcode::none(b'W', 9);
/// What Linux's F2FS can do, by its bits.
pub const F2FS_GET_FEATURES: u32 = opcode::read::<u32>(0xf5, 12);
/// The bit of [`F2FS_GET_FEATURES`] that says that there are atomic writes. SQLite asks for it.
pub const F2FS_FEATURE_ATOMIC_WRITE: u32 = 1 << 2;
/// Begins an update of a file on F2FS, as programs know it from Linux's.
pub const F2FS_START_ATOMIC_WRITE: u32 = opcode::none(0xf5, 1);
/// Ends it, and makes it durable as `fsync` does.
pub const F2FS_COMMIT_ATOMIC_WRITE: u32 = opcode::none(0xf5, 2);
/// Takes it back.
pub const F2FS_ABORT_ATOMIC_WRITE: u32 = opcode::none(0xf5, 5);
/// Makes a group of files durable, or orders them: the updates of atomic files among them are there together after a
/// crash, or none is. The file that it is called on is one of the group; the others must be the caller's own (EPERM).
pub const SYNC_GROUP: u32 = opcode::write::<SyncGroup>(b'W', 10);
/// Whether a file is atomic: `1`.
pub const ATOMIC_ATTRIBUTE: &[u8] = b"user.weir.atomic";
/// The status of the mount.
pub const STATUS_ATTRIBUTE: &[u8] = b"user.weir.status";
/// Set to the value of a [`VolumeCall`](crate::VolumeCall), it changes the volume below.
pub const VOLUME_ATTRIBUTE: &[u8] = b"user.weir.volume";
/// What [`STATUS_ATTRIBUTE`] is set to so that all of the mount becomes durable.
pub const SYNC_ALL: &[u8] = b"sync";
/// What `fsync` of a file promises: `durable`, `order` or `remote`.
pub const SYNC_ATTRIBUTE: &[u8] = b"user.weir.sync";

/// The argument of [`TRIM`], and what it gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct TrimRange {
    /// From which byte of the filesystem on.
    pub start: u64,
    /// How many bytes; of an answer, how many were discarded.
    pub length: u64,
    /// Bytes in a row that are worth a discard, at least.
    pub minimum: u64,
}

/// Files in a group at most, that which the call is made on left out.
pub const GROUP_FILES_MAX: usize = 126;

/// The argument of [`SYNC_GROUP`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct SyncGroup {
    /// 0 durable, 1 order, 2 remote. Where one of the files is [remote](SyncMode::Remote), 0 is as 2.
    pub mode: u32,
    /// How many other files are in the group.
    pub count: u32,
    /// Their inode numbers, as `stat` tells them.
    pub inodes: [u64; GROUP_FILES_MAX],
}

/// What `fsync`, `fdatasync` and their like promise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncMode {
    /// What they always do: when they return, it is durable.
    #[default]
    Durable,
    /// Order only, as the FAST 2018 paper's OD mode: what was written before is not lost without what is written
    /// later being lost, too. Nothing is durable when they return.
    Order,
    /// When they return, it is durable, and in the object store that the volume is shipped to. They fail where there is none, or it
    /// does not answer.
    Remote,
}

impl SyncMode {
    /// Of the attribute's value.
    pub(crate) fn of_name(name: &[u8]) -> Option<SyncMode> {
        match name {
            b"durable" => Some(SyncMode::Durable),
            b"order" => Some(SyncMode::Order),
            b"remote" => Some(SyncMode::Remote),
            _ => None,
        }
    }

    /// The attribute's value.
    pub(crate) fn name(self) -> &'static [u8] {
        match self {
            SyncMode::Durable => b"durable",
            SyncMode::Order => b"order",
            SyncMode::Remote => b"remote",
        }
    }

    /// Of the argument of [`SET_SYNC`].
    pub(crate) fn of_argument(argument: &[u8]) -> Option<SyncMode> {
        match u32::from_ne_bytes(argument.try_into().ok()?) {
            0 => Some(SyncMode::Durable),
            1 => Some(SyncMode::Order),
            2 => Some(SyncMode::Remote),
            _ => None,
        }
    }
}
