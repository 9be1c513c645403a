//! SQLite in process: a VFS whose files are those of a [`Filesystem`](weir_vfs::Filesystem) of Weir. No mount and no
//! kernel are between SQLite and BarrierFS, and the same code runs in virtual time, on emulated devices.
//!
//! [`Vfs::new`] registers it with the SQLite that is linked in, and [`Vfs::open`] opens databases in it. Their syncs
//! become what [`weir_sqlite_syncs`] says, as they do on a mount: the [`Mode`] is chosen when a database is opened,
//! and `PRAGMA weir` tells and changes it.
//!
//! # Which thread runs what
//!
//! SQLite waits for its calls, and the filesystem is asynchronous. So each call of the VFS runs the
//! [`Runtime`](weir_runtime::Runtime) until it is done, and whatever else is ready meanwhile. Two things follow:
//!
//! - Connections are used on the runtime's thread, and not from inside its tasks: a call from there fails with an
//!   I/O error.
//! - Between two calls the runtime stands still, and with it the filesystem's own tasks. A program that is idle for
//!   long lets them run (`runtime.block_on(handle.sleep(..))`): the bounds on what an unflushed write may lose are kept only
//!   while the runtime runs.
//!
//! # Locks
//!
//! A volume is open in one process, which has a lock on it. So locks on databases are kept in memory, between the
//! connections of the process, at SQLite's ordinary levels. The index of a write-ahead log is in memory as well
//! (`-shm` files are not made), shared by the connections, and built anew after a crash.
//!
//! # Atomic databases
//!
//! With `PRAGMA weir_atomic = 1` a database becomes an atomic file, and SQLite writes its transactions without a journal.
//! Those that need one all the same have it: the first one of a database, those that change more than one, that are
//! larger than SQLite's cache, or too large for the filesystem's journal.
//!
//! # Determinism
//!
//! Time, sleep and randomness of the VFS are the runtime's. SQLite's own random numbers, which salt its journals, are
//! seeded once a process by its default VFS: they change what some bytes are, and nothing that happens.
//!
//! | noun | what it is |
//! |---|---|
//! | [`Vfs`] | the VFS, and what opens databases in it |
//! | [`Connection`] | a connection to one |
//! | [`load_extension`] | for databases elsewhere, beside these |
//! | [`Call`], [`Fault`] | calls of SQLite, and what may be made of them: for tests and measurements |

#![allow(unsafe_code, reason = "it is called by SQLite, by pointers, and calls it")]

mod batch;
mod connection;
mod extension;
mod fault;
mod file;
mod home;
mod locks;
mod methods;
mod vfs;

pub use connection::Connection;
pub use extension::load_extension;
pub use fault::{Call, Fault};
pub use rusqlite;
pub use vfs::Vfs;
pub use weir_sqlite_syncs::{Finish, Mode, What};
