//! BarrierFS as a mount: requests of the kernel's FUSE, answered by the filesystem.
//!
//! [`Server::mount`] mounts a [`Filesystem`](weir_vfs::Filesystem) on a directory. The filesystem's own thread reads
//! the kernel's requests and begins to answer each at once. Most are done then; what has to wait becomes a task, and
//! its answer goes back to the kernel when the task is done. So requests wait for the disk side by side, and the queue
//! that programs keep reaches it. No other thread is on the way: to wake one costs more than most requests. FUSE over
//! io_uring gains nothing for one thread, and little that lasts for more ([measured](../../../results/README.md#trips)).
//!
//! [`Server::mount_disk`] mounts a [`Storage`](weir_storage::Storage) as one file, to put a loop device on.
//!
//! # What a mount promises
//!
//! - Order is that of system calls. Without the kernel's writeback cache, a write is with the filesystem when it
//!   returns; dirty pages of a shared mapping are the exception, and `msync` or `fsync` sends them. Until then
//!   `lseek` finds a hole where such a page is (SEEK_DATA), though `read` finds the data.
//! - With it ([`ServerOptions::writeback_cache`]), what a program writes is with the kernel until the file is closed or
//!   synchronised, or the kernel likes. Whatever orders or synchronises a file has its pages handed over first; then
//!   order is that of these calls. What the kernel hands over is of no caller, so anybody may take what is reserved, and
//!   a write that finds no room is told by `close` and `fsync`.
//! - `fsync` is durable, or, where that was asked for ([`SyncMode::Order`]), only orders, or waits for an object store, too
//!   ([`SyncMode::Remote`]).
//! - What a mapping has changed and could not be written back is told by every `msync` and `fsync` of the file until it is
//!   written, cut off, or made a hole; the unmount tells of it until the file is whole or gone.
//! - Who asks counts as the one who takes the space: only the superuser, and whom the superblock names, has what is
//!   reserved. What the kernel writes back of a mapping is of no caller, and may take that, too.
//! - `fbarrier` and `fdatabarrier` are ioctls ([`control`]).
//! - `sync` and `syncfs` are not passed on by the kernel, so they make nothing durable; setting an attribute does
//!   ([`control::SYNC_ALL`]). New files are written within the commit interval of 5 s, overwritten data within 30 s.
//! - An inode lives until the kernel has forgotten it, with or without a name: `O_PATH` descriptors, working directories,
//!   mounts of a file, and calls that have found a name which another one has taken since, all find what they found. So
//!   each answer that tells the kernel of an inode holds it with the filesystem, and FORGET lets it go.
//! - A server can pass its mount to the next one ([`MountState`]). The kernel keeps requests meanwhile, and none fails.
//! - The kernel checks permissions, and no user but the one who mounted may look in, unless that was allowed.
//!
//! # Rules
//!
//! - **K1** What a program has changed of a file and the kernel keeps, by its writeback cache or for a mapping, is with
//!   the filesystem before the file is closed, synchronised, renamed or linked. The kernel hands over at the first two
//!   by itself; at the others the server asks, where it knows that a program has the file open. Without requests for
//!   opens it does not know, and what mappings keep of a file that is renamed or linked stays with the kernel.

#[cfg(feature = "asked")]
mod asked;
mod attachment;
mod busy_cpu;
mod calls;
mod change_event;
mod claims;
mod connection;
pub mod control;
mod convert;
mod copy;
mod directories;
mod disk;
mod errno;
mod files;
mod gate;
mod handover;
mod intake;
mod kernel;
mod lost;
mod mutants;
mod notice_threads;
mod notifier;
mod positions;
mod privileges;
mod protocol;
mod read_ahead;
mod remote_sync;
mod requests;
mod serve;
mod server;
mod sync_modes;
mod tails;
mod updates;
mod volume_call;

#[cfg(feature = "asked")]
pub use asked::Asked;
pub use calls::FileCounts;
pub use control::SyncMode;
pub use disk::DISK_NAME;
pub use handover::{HandoverError, Inherited, MountState};
pub use lost::Lost;
#[cfg(any(feature = "asked", feature = "mutants"))]
pub use mutants::FuseMutant;
pub use remote_sync::RemoteSync;
pub use serve::{Load, REQUEST_BYTES_UNDER_WAY_MAX};
pub use server::{Server, ServerError, ServerOptions, StatusReader, absolute, require_device};
pub use volume_call::{SnapshotCall, VolumeCall};
