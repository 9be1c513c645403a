//! F2FS, the log-structured filesystem for flash, behind the calls that every filesystem has. On the disk it is F2FS, in the subset of
//! [`weir_f2fs`]; what is written, and in which order, is here.
//!
//! # The parts
//!
//! - `space`, `node_table`: which blocks are free, where the six logs append, where nodes are.
//! - `nodes`, `file`, `files`, `pages`: nodes, inodes and pages in memory.
//! - `placement`, `mapping`: new places of blocks, and the way from a page to its address.
//! - `directory`, `namespace`, `content`, `attributes`, `deletion`: what calls do; `atomic`, `update`: writes that belong together.
//! - `cleaner`, `changes`: how segments become free, and what a call waits for before it changes something.
//! - `sync`, `checkpoint`, `recovery`: what synchronisation calls write and wait for, checkpoints, roll-forward.
//! - `operations`, `mount`: what holds calls and checkpoints apart, and the beginning and the end.
//!
//! # Rules
//!
//! - **L1** The footer of a checkpoint becomes durable only after all that the checkpoint points to.
//! - **L2** A segment is overwritten only after a checkpoint that refers to no block of it, and the number of a deleted node is used again
//!   only after a checkpoint that lacks the node.
//! - **L3** A node that roll-forward may take becomes durable only after the pages that it points to. The benchmark's comparators
//!   [`Flushes::Once`] and [`Flushes::Never`] do not keep this.
//! - **L4** Roll-forward follows one chain of nodes; each mount writes a checkpoint, and begins a new chain after it.
//! - **L5** What a share command has moved becomes durable before any node that roll-forward may take, and before any footer of a
//!   checkpoint, that points to it.
//! - **L6** Roll-forward restores all of a synchronisation call, with the name of a new file, or nothing of it, save of pages that the call
//!   overwrites in place: of these a power cut may leave some. Of an update it restores all or nothing.
//! - **L7** A checkpoint lists inodes without a name that are in use, and the mount after a power cut deletes them.
//! - **L8** The summary of a segment names, for each block, the node that points to it and the index of the address in that node.
//!
//! # Failures
//!
//! A change has steps. After an error behind the first of them, and after a call whose future is dropped there, memory has half of the change:
//! nothing can be changed from then on, and the disk keeps what the newest checkpoint and the chain behind it have. Without barriers no
//! node and no checkpoint is written behind a write that has failed. With barriers what comes behind it may be there already (S5): then
//! what that write had is lost, and each later call says that it failed.

mod atomic;
mod attributes;
mod blocks;
mod calls;
mod changes;
mod checkpoint;
mod cleaner;
mod cleaner_kind;
mod content;
mod deletion;
mod directory;
mod file;
mod files;
mod filesystem;
mod mapping;
mod mount;
mod mounted;
mod mutants;
mod namespace;
mod node_table;
mod nodes;
mod operations;
mod options;
mod pages;
mod placement;
mod recovery;
mod space;
mod summaries;
mod sync;
mod under_way;
mod update;

pub use cleaner_kind::{Cleaner, CleanerCounts, UnknownCleaner};
pub use filesystem::{F2fs, Statistics};
#[cfg(feature = "mutants")]
pub use mutants::LfsMutant;
pub use mutants::LfsRules;
pub use options::{F2fsOptions, Flushes};
