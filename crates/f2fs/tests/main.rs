//! The tests of this crate from outside, as one program.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod check;
mod checkpoint;
mod files;
mod hostile;
mod image;
mod judge;
mod mkfs;
mod tables;
mod trees;
