//! The tests of this crate from outside, as one program.

mod attacks;
#[path = "../../fs/tests/support/hostile.rs"]
mod hostile;
mod put;
