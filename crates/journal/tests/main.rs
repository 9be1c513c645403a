//! The tests of this crate from outside, as one program.

mod coalition;
mod large;
mod remap;
mod volume;
