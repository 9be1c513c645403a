//! The tests of this crate from outside, as one program.

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
