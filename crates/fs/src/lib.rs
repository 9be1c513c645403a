//! BarrierFS: an ext4 filesystem in user space whose journal orders by barriers instead of waiting (FAST 2018
//! paper, sections 2.3 and 4).
//!
//! On disk it is ext4 with a jbd2 journal, in the subset of docs/format/fs.md: made by [`Filesystem::make`] or by
//! `mkfs.ext4`, checked by `e2fsck`, mounted by Linux. In memory it is ours. It runs on any
//! [`Storage`](weir_storage::Storage), in virtual time or in real time, on one thread; where the storage keeps no
//! order, the legacy engine waits and flushes instead. It speaks of inode numbers and names, and knows no errno: the
//! doors above do.
//!
//! # The calls
//!
//! [`Filesystem`] has them all, in the files by their subject: `mount` (and `make`, `recovery`, `orphans`),
//! `names` (and `names/`: create, link, remove, rename, list), `attributes`, `xattrs`, `acls`, `read`, `write`,
//! `truncate`, `fallocate`, `sync`. What `fsync`, `fdatasync`, `fbarrier` and `fdatabarrier` write and wait for
//! is one table, in `sync`.
//!
//! # The parts
//!
//! | part | what it knows |
//! |---|---|
//! | `node`, `nodes` | inodes in memory, and their cache |
//! | `pages`, `cache`, `submit`, `writeback` | file data in memory, its limits, and its way to the disk |
//! | `map`, `tree` | which block of a file is where; the format's algorithms over journaled blocks |
//! | `operations` | calls that change something: unmount waits for them, none is committed by half (J8) |
//! | `space` | free blocks and inodes; when what was freed may be used again (J7) |
//! | `journal` | transactions, and the two engines that commit them; knows neither inodes nor pages |
//! | `buffer`, `buffers` | journaled blocks in memory, and their cache |
//! | `disk` | the block layer, shared flushes, and a count of what was waited for |
//!
//! # The way of a write
//!
//! `write` copies into pages. Blocks that have no place yet get one first: a handle opens in the running
//! transaction, `space` allocates behind the file's last block, the extent tree and the inode change in their
//! buffers, and the file is attached to the transaction, so that its data goes before the commit block (J2). From
//! then on the pages are dirty; the writeback task sends them without order when they are old or many.
//!
//! # The way of an fsync
//!
//! The caller submits the dirty data of the file. If the inode has changed since its last commit, its transaction is
//! locked: no handle enters it any more. The commit task submits the dirty data of every attached file and the log
//! blocks, which are one epoch with that data, then the commit block as the next, and goes on with the next
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
//! They are cited where they are kept. D is the data of a transaction's files, JD its descriptor and log blocks, JC
//! its commit block.
//!
//! - **J1** Two tasks: one dispatches JD and JC as barrier writes and goes on; one flushes, only for transactions that
//!   a caller wants durable and once for many callers, and retires them in order.
//! - **J2** D of every file in the transaction and JD are one epoch, JC is the next. An ordering call returns when JC is
//!   dispatched, a durable one after one transfer and one flush.
//! - **J3** The calls for data alone write D with a barrier and no transaction, unless size, blocks or extent states of
//!   the file are not committed or its data is journaled. Once a call has promised order, writeback keeps it.
//! - **J4** A block that changes while its transaction is committed is copied, or, by the papers' list, the next
//!   transaction waits for the transfer. What is locked never changes.
//! - **J5** A checkpoint needs no flush: home writes go after their JC, the tail moves by a barrier write after them, and
//!   freed log space is written in later epochs. What was freed is revoked. Only an empty journal is flushed first.
//! - **J6** Times have the timer's granularity, so a second write within one tick changes no inode.
//! - **J7** A freed block may take order-preserving data once the JC that freed it is dispatched, other data once that is
//!   transferred. It is discarded when the newest transaction that freed it is durable and nothing has allocated it.
//! - **J8** Metadata changes through a handle. What is changed with one handle is one group, and no commit parts it.
//!
//! docs/RULES.md has these and the rules without a number, with the tests. With the feature `mutants`, [`FsMutant`] drops
//! one of them, to prove that tests notice. A write or flush of the journal that fails aborts it: the filesystem is
//! read-only from then on, says why ([`ReadOnlyReason`]), and no later call reports durability.

mod access;
mod acls;
mod attributes;
mod buffer;
mod buffers;
mod cache;
mod caller;
mod disk;
mod error;
mod fallocate;
mod filesystem;
mod journal;
mod make;
mod map;
mod memory;
mod mount;
mod mutants;
mod names;
mod node;
mod nodes;
mod operations;
mod options;
mod orphans;
mod pages;
mod read;
mod readahead;
mod reads;
mod recovery;
mod space;
mod submit;
mod sync;
mod tree;
mod trim;
mod truncate;
mod write;
mod writeback;
mod xattrs;
mod zeros;

pub use acls::AclKind;
pub use attributes::{AttributeChanges, Attributes};
pub use caller::Caller;
pub use disk::Waits;
pub use error::{FsError, ReadOnlyReason};
pub use fallocate::Fallocate;
pub use filesystem::{Answered, Filesystem, InodeNumber, Statfs, Statistics};
pub use journal::JournalStats;
pub use memory::MemoryBound;
pub use mutants::FsMutant;
pub use names::{Device, NewNode, Parent, RenameFlags};
pub use options::{AccessTimes, Conflicts, Discards, Engine, HostCosts, JournalMode, MountOptions};
pub use space::DiscardStats;
pub use weir_ext4::directory::{Cookie, DirectoryEntry};
pub use xattrs::{Expect, is_own_attribute};
