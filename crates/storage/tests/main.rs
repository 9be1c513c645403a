//! The tests of this crate from outside, as one program.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod adversary;
mod conformance;
mod conformance_adversary;
mod faulty;
mod file_disk;
mod file_disk_conformance;
mod host;
mod overlay;
