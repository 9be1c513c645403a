//! BarrierFS: an ext4 filesystem in user space whose journal orders by barriers instead of waiting (FAST 2018
//! paper, sections 2.3 and 4).
//!
//! On disk it is ext4 with a jbd2 journal, in the subset of docs/format/fs.md: made by [`BarrierFs::make`] or by
//! `mkfs.ext4`, checked by `e2fsck`, mounted by Linux. In memory it is ours. It runs on any
//! [`Storage`](weir_storage::Storage), in virtual time or in real time, on one thread; where the storage keeps no
//! order, the legacy engine waits and flushes instead. It speaks of inode numbers and names, and knows no errno: the
//! doors above do.
//!
//! # The parts
//!
//! [`BarrierFs`] has all calls, by their subject in `calls`: each asks a part. `mounted` puts the parts together, `mount`
//! finds what they begin with on the disk. A part is given at the mount what it needs of those above it in this table;
//! none knows those below.
//!
//! | part | what it knows |
//! |---|---|
//! | `space` | free blocks and inodes; when what was freed may be used again (J7) |
//! | `changes` | whether something can be changed; unmount waits for calls that do, none is committed by half (J8) |
//! | `sync` | what the synchronisation calls write and wait for: one table |
//! | `inodes` | inodes on the disk, and in memory as nodes |
//! | `mapping` | which block of a file is where; the format's algorithms over journaled blocks |
//! | `superblock`, `orphans` | what is there once for all files |
//! | `files` | content: read, written, cut, allocated, made zeros |
//! | `atomic` | atomic files, whose updates go into the journal as a whole |
//! | `attributes`, `accesses` | attributes, extended ones, access control lists; times of access |
//! | `deletion` | inodes without names |
//! | `grow` | more blocks while it is mounted |
//! | `moments` | marks of the storage at which a crash leaves the whole tree (J11) |
//! | `names` | `Directories`, which finds names, and `Namespace`, which gives, takes and moves them |
//!
//! File data in memory, its limits, and its way to the disk and back are [`weir_cache`]'s, and so is what keeps aligned
//! writes whole, with `files` and `space`. Transactions, the cache of journaled blocks and the block layer below are
//! `weir-journal`'s.
//!
//! # The way of a write
//!
//! `files` copies it into pages. Blocks that have no place yet get one first: a handle opens in the running
//! transaction, `space` allocates behind the file's last block, the extent tree and the inode change in their
//! buffers, and the file is attached to the transaction, so that its data goes before the commit block (J2). From
//! then on the pages are dirty; the writeback task sends them without order when they are old or many.
//!
//! # The way of an fsync
//!
//! The caller submits the dirty data of the file. If the inode has changed since its last commit, its transaction is
//! locked: no handle enters it any more. The commit task submits the dirty data of every attached file and the log
//! blocks, which are one epoch with that data, then the commit block as the next, and continues with the next
//! transaction (J1). It waits for none of them. The flush task waits until they are transferred, and flushes once for
//! all callers that want durability; then `fsync` returns. `fbarrier`
//! returned when the commit block was dispatched. Later the checkpoint brings the blocks home and frees their
//! place in the log (J5). If the inode has not changed, data alone is written and flushed (J3).
//!
//! # After a crash
//!
//! The next mount replays the log, makes that durable, and deletes or truncates orphans; all of this can be
//! interrupted and done again. What a call acknowledged as durable is there. What was ordered by barriers is there
//! up to some point, and not beyond it.
//!
//! # Rules
//!
//! They are cited where they are kept.
//!
//! - **J3** The calls for data alone write D with a barrier and no transaction, unless size, blocks or extent states of
//!   the file are not committed or its data is journaled. Once a call has promised order, writeback keeps it.
//! - **J6** Times have the timer's granularity, so a second write within one tick changes no inode.
//! - **J7** Freed blocks are given back as the journal says, and discarded when the newest transaction that freed them is
//!   durable and nothing has allocated them.
//! - **J11** With moments, a crash leaves the whole tree as it was at one moment, with each request whole or not there,
//!   no longer ago than the interval and a transfer, and not before a durable call that has returned. Updates of atomic
//!   files that are not synchronised are in no moment.
//!
//! Rules without a number:
//!
//! - **orphans** An inode without a name is on the list of orphans from the transaction that makes it or takes its last
//!   name, to the one that names it for the first time or deletes it; so a crash leaves none behind.
//! - **holds** An inode that a door has told its client of lives until the client has forgotten it, with or without a
//!   name: a name that is replaced leads each caller to the old or the new inode. What is let go last and has no name
//!   is deleted; a call that reports free space or finds none waits for that.
//! - **handover** What is open or held and has no name when a mount is handed over is as it was in the next mount, once that has
//!   been told of the holds; without that it is deleted, as after a crash.
//! - **errors** A failed write or flush of the journal ends it: no call reports order or durability any more. What
//!   failed is not forgotten when it was reported: no later flush makes up for a failed one, and no later call for a
//!   page that was not written.
//! - **pages** A page is dirty until its content was submitted to the disk, also if it changes while its write waits. Until
//!   then its file stays in memory. A dirty page that is dropped because its block is freed is covered by the
//!   transaction that frees the block: a call for the file waits for that. The page with the end of a file is changed
//!   once by a write across it.
//! - **atomic** What is written to an atomic file between two synchronisation calls goes into one transaction, with
//!   that of its group, its size included; nothing else puts a part of it on the disk, and what is abandoned leaves no
//!   trace. What the log holds of a file is home before the file is written in place again.
//! - **units** An aligned write of up to 16 KiB is old or new after a crash, where the storage keeps requests whole,
//!   the blocks are consecutive on the disk, and all of them or none were written before. Blocks that are allocated
//!   together are consecutive, unless no free run is long enough: such units are counted.
//! - **space** What is allocated can be written, up to the end of the file, and any of it made a hole, however full the
//!   filesystem is: a share of the blocks is kept for extent trees, and beyond that zeros are written where an extent
//!   cannot be divided. What is reserved for the superuser is kept from others, and `statfs` offers neither. What
//!   cannot fit is not allocated in part.
//! - **superblock** A write of the superblock changes one sector of 512 bytes, so that a torn one is whole. If it is
//!   damaged in another way, a copy takes its place; to write, what is left of it has to name the same filesystem.
//! - **tree** After a barrier for all files, what was changed before it, by any caller, is before all that is changed later.
//! - **growth** A filesystem that grows has, after a crash, its old size or the new one, and all that is in it.
//! - **reads** What a read brings counts only for blocks that were not freed while it was under way. It holds no lock
//!   while it waits, and is overtaken only a bounded number of times.
//! - **tails** Behind the end of a file, in its last block, are zeros: made so when it is cut, and looked at before it
//!   grows.
//!
//! J1, J2, J4, J5 and J8 are the journal's, and stated there.
//!
//! docs/RULES.md lists them with the tests. With the feature `mutants`, [`FsMutant`] drops
//! one of them, to prove that tests notice. A write or flush of the journal that fails aborts it: the filesystem is
//! read-only from then on, says why ([`ReadOnlyReason`](weir_vfs::ReadOnlyReason)), and no later call reports durability.

mod accesses;
mod atomic;
mod attributes;
mod caller;
mod calls;
mod changes;
mod deletion;
mod device;
mod files;
mod filesystem;
mod grow;
mod inodes;
mod make;
mod mapping;
mod memory;
mod moments;
mod mount;
mod mounted;
mod mutants;
mod names;
mod options;
mod orphans;
mod recovery;
mod space;
mod superblock;
mod sync;

pub use filesystem::{BarrierFs, Statistics};
pub use memory::MemoryBound;
#[cfg(feature = "mutants")]
pub use mutants::FsMutant;
pub use options::{AccessTimes, Discards, JournalMode, MountOptions, UnknownJournalMode};
pub use space::DiscardStats;
pub use superblock::copy_superblock;
pub use sync::Answered;
#[cfg(feature = "mutants")]
pub use weir_cache::CacheMutant;
pub use weir_journal::{
    CheckpointBy, Checkpoints, CommitTimes, Conflicts, Engine, Facts, HomeIntegrity, JournalStats, Needs,
    OrderBy, Promise, UnknownEngine, Waits,
};
#[cfg(feature = "mutants")]
pub use weir_journal::{JournalMutant, ReplayMutant};
