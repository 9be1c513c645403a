//! The journal: a ring of blocks, the *log*, in which changes to metadata are written as a whole before
//! any of them goes home.
//!
//! A *transaction* in the log is revoke blocks, then descriptor blocks each followed by the copies that it
//! describes (together JD), then one commit block (JC). It counts if, and only if, its commit block is
//! whole. All numbers are big-endian. Block 0 of the journal is its superblock, which says where the oldest
//! transaction that is still needed begins; the log is the blocks from `first` to the end, and goes round.
//!
//! | here | what |
//! |---|---|
//! | [`JournalSuperblock`] | block 0: size, tail, features, identity |
//! | [`BlockType`] | what another block of the journal is, by its header |
//! | [`LogFormat`] | how the other blocks are encoded: width of addresses, checksums |
//! | [`LogRing`], [`Sequence`] | arithmetic that goes round |
//! | [`encode_transaction`], [`encode_commit`] | the writer's side |
//! | [`encode_coalition`] | the same as coalition blocks: changed bytes in place of whole blocks |
//! | [`encode_data_checksums`] | what a transaction says of data that it has written in place |
//! | [`replay`] | recovery: which copies go home after a crash |
//!
//! Crash model: a block of 4,096 bytes is old or new, never mixed; blocks between two barriers persist in
//! any combination. So a commit block whose checksum fails was never committed, and a valid commit block
//! over damaged copies is damage (or storage that lies about barriers), not the end of the log. With asynchronous commits
//! ([`LogFeatures::async_commit`]) no barrier is between the two, and such a commit block is the end of the log.

mod block;
mod coalition;
mod data;
mod encode;
mod mutants;
mod replay;
mod ring;
mod superblock;

pub use block::{BlockType, LogFeatures, LogFormat};
pub use coalition::{Changes, Coalition, encode_coalition};
pub use data::encode_data_checksums;
pub use encode::{LogBlock, encode_commit, encode_transaction};
#[cfg(feature = "mutants")]
pub use mutants::ReplayMutant;
pub use replay::{HomeWrite, LogReader, Replay, replay};
pub use ring::{LogRing, Sequence};
pub use superblock::JournalSuperblock;

/// The first four bytes of every block of the journal that is not a copy. A copy that begins so is *escaped*:
/// its first four bytes are zero in the log, and its tag says so.
const MAGIC: [u8; 4] = 0xC03B_3998_u32.to_be_bytes();
