//! The tests of this crate from outside, as one program.

mod applications;
mod claims;
mod drive;
mod files;
mod inserts;
mod programs;
mod runs;
mod sheets;
