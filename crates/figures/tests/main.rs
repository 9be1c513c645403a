//! The tests of this crate from outside, as one program.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod applications;
mod claims;
mod drive;
mod files;
mod inserts;
mod programs;
mod runs;
mod sheets;
