//! The tests of this crate from outside, as one program.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod atomic;
mod cleaning;
mod crashes;
mod failures;
#[path = "../../fs/tests/support/faulty.rs"]
mod faulty;
mod files;
mod histories;
#[path = "../../f2fs/tests/judge/mod.rs"]
mod judge;
mod memory;
mod names;
mod races;
mod rules;
mod support;
