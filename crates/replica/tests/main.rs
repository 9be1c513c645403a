//! The tests of this crate from outside, as one program.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bad_input;
mod based;
mod bounds;
mod connecting;
mod cut_group;
mod mounted;
mod passed_over;
mod refusals;
mod remote;
mod round_trip;
mod world;
mod writers;
