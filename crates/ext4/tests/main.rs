//! The tests of this crate from outside, as one program.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod check;
mod checksums;
mod directory;
mod dirhash;
mod extents;
mod format;
mod grow;
mod hostile;
mod image;
mod journal;
mod judge;
mod memory;
mod mkfs;
mod names;
mod nodes;
