//! What becomes of SQLite's syncs: which only order, and where a transaction is made durable. Decisions only; this
//! crate knows neither SQLite's interface nor a file.
//!
//! Two VFS do what it says: the loadable extension on a mount (`weir-sqlite`), and the one in process
//! (`weir-sqlite-vfs`).
//!
//! | noun | what it is |
//! |---|---|
//! | [`Mode`] | what COMMIT promises |
//! | [`What`], [`Sync`], [`at_sync`] | what is synchronised, and what the sync becomes |
//! | [`Batch`] | how far a transaction is that is written without a journal |
//! | [`Pending`], [`Finish`], [`at_commit`], [`leaves_directory`] | what a transaction has only ordered, and what is made durable at its end |
//! | [`WAL_FRAME_HEADER_BYTES, WAL_HEADER_BYTES`] | where the header of a write-ahead log ends |

mod sync;

pub use sync::{
    Batch, Finish, Mode, Pending, Sync, WAL_FRAME_HEADER_BYTES, WAL_HEADER_BYTES, What, at_commit, at_sync,
    leaves_directory,
};
