//! The tests of this crate from outside, as one program.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bounds;
mod nonsense;
mod requests;
mod support;
mod taken_up;
