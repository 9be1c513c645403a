//! The tests of this crate from outside, as one program.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod campaign;
mod drives;
mod states;
mod support {
    pub mod hostile;
}
mod traces;
