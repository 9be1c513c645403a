//! The tests of this crate from outside, as one program.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod backing;
mod conformance;
mod discards;
mod logical_pages;
mod packed;
mod profiles;
mod progress;
mod shares;
mod small;
mod worked_example;
