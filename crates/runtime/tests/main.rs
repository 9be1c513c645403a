//! The tests of this crate from outside, as one program.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cores;
mod ring;
mod semaphore;
mod virtual_time;
mod wall;
