//! The tests of this crate from outside, as one program.

mod bench;
mod filesystems;
mod reads;
mod rust_page;
mod simulated;
