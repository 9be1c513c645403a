//! The tests of this crate from outside, as one program.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod accesses;
mod acls;
mod async_commit;
mod atomic;
mod crowd;
mod discards;
mod failures;
mod files;
mod flushes;
mod full;
mod grow;
mod handover;
mod held;
mod million;
mod moments;
mod mount;
mod names;
mod promotion;
mod reads;
mod recovery;
#[path = "../../storage/tests/support/slow.rs"]
mod slow;
mod superblock;
mod support;
mod sync;
mod tails;
mod times;
mod tree;
mod units;
mod unmount;
