//! The log of a volume in an object store: shipped in order while the volume is written, restored to any state that is kept.
//!
//! A volume is a log of numbered requests, and every prefix of it is a consistent disk. A *replica* is that log as objects, each
//! made once under a key that says its place, and never changed. So what is there at any moment is a prefix of what the volume's
//! disk has, and sending an object again changes nothing.
//!
//! # Rules
//!
//! - **R1** The log in the store is one chain: an object is made only where none is, behind the one whose hash it carries.
//! - **R2** Only what is durable on the volume's disk is shipped.
//! - **R3** A catch-up group is one step: it counts when its last object is there, and it ends at a request that is no older
//!   than anything that it read; only a volume that has all of that goes on with one that was cut.
//! - **R4** A replica has one writer: a new one takes the next epoch and the next place in the log, and the one before meets it
//!   there and stops, or meets the newer checkpoint with which that place was collected.
//! - **R5** A restored state is one after a request, whole, and everything in it was compared with its checksum.
//! - **R6** A checkpoint is the state after its request, and counts when all its parts are there; the log from an older one on takes
//!   the place of one that cannot be read, if it is whole.
//! - **R7** Collection keeps what a kept state needs.
//! - **R8** The store is no further behind than the bounds say, or writers wait.
//! - **R9** A state that is read block by block stays what it was when it was opened; a block that cannot be had, or is not the one
//!   that the state names, is an error.
//! - **R10** A volume that takes a replica over begins with the newest state that lies before its own fence. Its generation is so
//!   much greater that the volume before is refused for good.
//! - **R11** A volume on a base is opened only with the replica in which its writer made it, and what it does not hold is unchanged
//!   there.
//! - **R12** What waits for the store is acknowledged when that has everything before it, and never where there is none.
//!
//! **What the store may do**: answer late or never, carry a request out and lose the answer, leave objects out of a list that are
//! younger than [`keep`](ReplicaOptions::keep), and refuse for any time. What it has said to have created it keeps, and an object is there whole or not at all.
//!
//! | noun | what it is |
//! |---|---|
//! | [`ObjectStore`] | the contract of a store; [`SimulatedStore`] is the worst that it allows, in virtual time |
//! | [`Uploader`], [`Replication`] | ships the log of an open volume; how far it is |
//! | [`Shipper`] | an uploader, or one that waits for the first answer of its store |
//! | [`RemoteFlush`] | a volume whose flushes wait for the store |
//! | [`Replica`] | a replica that is read: restored to a [`WantedState`], or checked |
//! | [`ReplicaStorage`] | a state of a replica, read block by block |
//! | [`ReplicaBase`] | the newest state of a replica, with which a volume here begins |
//! | [`ReplicaOptions`], [`EncryptionKey`] | how it is written and read |
//!
//! Start reading in `log_object.rs`, then `writer.rs`, `catch_up.rs` and `restore.rs`. Every byte in the store is in
//! `docs/format/replica.md`.

mod access;
mod beginning;
mod catch_up;
mod check;
mod checkpoint;
mod collect;
mod connecting;
mod descriptor;
mod envelope;
mod error;
mod fence;
mod history;
mod kept;
mod kept_state;
mod key;
mod log_object;
mod log_reader;
mod map;

mod mutants;
mod object_source;
mod options;
mod piece_cache;
mod read_ahead;
mod reader;
mod remote_flush;
mod replica_base;
mod replica_storage;
mod restore;
mod simulated_store;
mod state;
mod steady_date;
mod store;
mod upkeep;
mod uploader;
mod writer;

pub use access::Requests;
pub use check::{CheckReport, Fault};
pub use connecting::{Connecting, Shipper};
pub use descriptor::Descriptor;
pub use envelope::{EncryptionKey, OBJECT_BYTES_MAX};
pub use error::{Defect, ReplicaError};
pub use kept_state::{KeptRange, KeptState, WantedState};
pub use key::LogPlace;
#[cfg(feature = "mutants")]
pub use mutants::ReplicaMutant;
pub use options::{ReplicaOptions, ReplicaRules};
pub use reader::Replica;
pub use remote_flush::RemoteFlush;
pub use replica_base::ReplicaBase;
pub use replica_storage::{ReplicaReads, ReplicaStorage};
pub use restore::Restored;
pub use simulated_store::{Objects, SimulatedStore, StoreFaults};
pub use store::{Creation, ObjectStore, Reply, StoreError};
pub use uploader::{Replication, ReplicationStatus, Uploader, WritersReleased};
