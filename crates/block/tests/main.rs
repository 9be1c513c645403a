//! The tests of this crate from outside, as one program.

mod crash;
mod plug;
mod rules;
mod scripted;
mod tickets;
