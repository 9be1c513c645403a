//! The tests of this crate from outside, as one program.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;
mod cleaners;
mod filesystems;
mod reads;
mod rust_page;
mod simulated;
mod support;
