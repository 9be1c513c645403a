//! The tests of this crate from outside, as one program.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod base;
mod cleaning;
mod conformance;
mod discard;
mod large;
mod map_limit;
mod marks;
mod owners;
mod reads;
mod recovery;
mod repair;
mod resize;
mod share_limits;
mod shares;
mod simulation;
#[path = "../../storage/tests/support/slow.rs"]
mod slow;
mod snapshots;
mod stale_checkpoint;
mod streams;
#[path = "support/hostile.rs"]
mod support;
mod volume;
