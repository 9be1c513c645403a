//! A journal that orders by barriers (FAST 2018 paper, section 4.2): transactions over blocks of metadata, the engines
//! that commit them, and their checkpoints. In the log it is jbd2's, so Linux and `e2fsck` replay it.
//!
//! It knows blocks, and neither inodes nor pages nor names. What it needs of a filesystem it gets through three
//! interfaces: [`OrderedData`], file data that a commit must not overtake, [`SyncedFile`], a file that is
//! synchronised, and [`Reuse`], which is told when blocks that were freed may be used again.
//!
//! # The parts
//!
//! | part | what it knows |
//! |---|---|
//! | `disk` | the block layer: what was promised of order, and which blocks are written reliably |
//! | `buffer`, `buffers` | journaled blocks in memory, and their cache |
//! | `handle`, `running` | changes that belong together, and the transaction that takes them |
//! | `transaction` | a transaction from when it is locked |
//! | `stage`, `progress`, `durability` | how far transactions have come, and the callers that wait for that |
//! | `engine` | the engines by name, and the facts that others know of them |
//! | `engines` | a file each: how an engine commits, orders a call, makes it durable, and moves the log's tail |
//! | `steps` | the steps of a commit that the engines put together |
//! | `call` | a synchronisation call on a file, as an engine answers it |
//! | `encoding` | how a transaction looks in the log, blocks whole or changes alone, and where that holds its blocks |
//! | `integrity` | what keeps the homes whole of blocks whose changes the log holds |
//! | `commit` | the commit task: a transaction is locked, and the engine commits it |
//! | `commit_times` | how long the steps of commits took |
//! | `flush` | the flush task: in dual mode transactions are retired in order; and made durable for the callers that want it |
//! | `flush_of_call` | the flush that a call has submitted ahead, for the commit to take |
//! | `log` | where the log's blocks are, and what of it is in use |
//! | `unwritten`, `home` | committed blocks that are not home, and how they go there: copied, or remapped |
//! | `checkpoint` | when they go home, and when their place in the log is free again |
//! | `foreground` | the same by the tasks that want room in the log, as in Linux, to be compared with |
//! | `notice` | transactions that no flush has made durable, until there is notice that they are |
//! | `checked` | data in place of which the log holds checksums |
//! | `freed` | when blocks that were freed may be used again |
//! | `signals`, `stop` | what tasks are woken by; why the journal takes no changes |
//! | `journal` | these parts together; its `life` has the beginning, the end, and which handles may enter |
//! | `replay` | what a crash left in the log goes home |
//!
//! # Rules
//!
//! D is the data of a transaction's files, JD its descriptor and log blocks, JC its commit block. J3, of which `disk`
//! keeps the order of writeback, and J6 are the filesystem's (`weir-fs`).
//!
//! - **J1** Two tasks: one dispatches JD and JC as barrier writes and does not wait; one flushes, only for transactions that
//!   a caller wants durable and once for many callers, and retires them in order. On the legacy path and on the engine
//!   flush-ahead the first waits for each JC, which is durable then, and there is no second.
//! - **J2** D of every file in the transaction and JD are one epoch, JC is the next. An ordering call returns when JC is
//!   dispatched, a durable one after one transfer and one flush. On the engine for prefix devices each of D, JD and JC is
//!   submitted when the one before is transferred; an ordering call returns then, a durable one after one flush. On the
//!   engine flush-ahead a flush is submitted behind D (E9), by the call and before the commit begins. A commit takes it if nothing was
//!   written since, and submits another one otherwise. JD and JC are submitted when it is done, as one ordered plug with FUA (E8), and
//!   each call returns when JC is durable. With async commit JD and JC leave together when D is transferred,
//!   and one flush is behind both; a commit block without what it commits ends the log.
//! - **J4** A block that changes while its transaction is committed is copied, or, by the papers' list, the next
//!   transaction waits until the one that holds it is durable, if a caller wants that, and is transferred, if none does. What
//!   is locked never changes.
//! - **J5** A checkpoint needs no flush: home writes go after their JC, the tail moves by a barrier write after them, and
//!   freed log space is written in later epochs. What was freed is revoked, if the log holds it. Only an empty journal is flushed first, and it
//!   has no feature of ours. A checkpoint in the foreground frees the log up to the first transaction that holds a block which
//!   is neither home nor in a later transaction of the log; a commit that moves the tail frees what was home before its flush.
//!   A remap of a home to the log's copy is a home write; a block that the log holds in another form is copied.
//! - **J7** A freed block may take order-preserving data once the JC that freed it is dispatched, other data once that is
//!   transferred. It is discarded when the newest transaction that freed it is durable and nothing has allocated it.
//! - **J8** Metadata changes through a handle. What is changed with one handle is one group, and no commit parts it.
//!   A handle that asks for more than a quarter of the log is alone in its transaction.
//! - **J9** With journal coalition the log holds the bytes that a transaction has changed of a block; all of it if the block
//!   is new, or too much of it has changed. Replay lays them over the home, in the order of the transactions. A power cut
//!   must not damage a home, or the log must hold all of it. Three ways give that: the storage tears no block; or homes are
//!   written by reliable writes; or a block is logged whole when it first changes after a checkpoint. A transaction whose
//!   changes fit one block is that block, JC. Only D comes before it, as an epoch of its own, or waited for. The
//!   superblocks, and the blocks that lead to the log, have no other copy, and are written by reliable writes where there are
//!   any.
//! - **J10** With checksums of data (the engine OptFS) nothing is flushed between D, JD and JC of any transaction. Blocks of
//!   files that a transaction has allocated are written in place, and the log holds their checksums; other blocks of files go
//!   through the log. Recovery takes the longest run of transactions, from the first on, of which every log block and all data
//!   in place is whole. Until there is notice that a transaction is durable, its blocks do not go home, and what it has freed
//!   is not reused. A block whose checksum the log holds is revoked or logged before it changes.
//!
//! A write or flush that fails aborts the journal: it takes nothing more, says why ([`StopReason`]), and no later call
//! reports durability.

mod buffer;
mod buffers;
mod call;
mod checked;
mod checkpoint;
mod commit;
mod commit_times;
mod disk;
mod durability;
mod encoding;
mod engine;
mod engines;
mod error;
mod flush;
mod flush_of_call;
mod foreground;
mod freed;
mod handle;
mod home;
mod integrity;
mod journal;
mod log;
mod mutants;
mod notice;
mod options;
mod progress;
mod ranges;
mod replay;
mod running;
mod signals;
mod stage;
mod steps;
mod stop;
#[cfg(test)]
mod tests;
mod transaction;
mod unwritten;

pub use buffer::{BufferHead, Role};
pub use buffers::Buffers;
pub use call::{Promise, SyncRequest, SyncedFile, SyncedInode};
pub use commit_times::CommitTimes;
pub use disk::Disk;
pub use engine::{Conflicts, Engine, Facts, Needs, OrderBy, UnknownEngine};
pub use error::{JournalError, StopReason};
pub use freed::Reuse;
pub use handle::TxHandle;
pub use integrity::HomeIntegrity;
pub use journal::{Journal, JournalStats, Until};
pub use log::JournalExtent;
#[cfg(feature = "mutants")]
pub use mutants::JournalMutant;
pub use mutants::JournalRules;
pub use options::{CheckpointBy, Checkpoints, JournalOptions};
pub use replay::FoundJournal;
pub use transaction::{Local, OrderedData};
pub use weir_block::Waits;
#[cfg(feature = "mutants")]
pub use weir_ext4::journal::ReplayMutant;
pub use weir_ext4::journal::Sequence;
