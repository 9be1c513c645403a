//! The tests of this crate from outside, as one program.

mod remote_files;
mod requests;
#[path = "support/requests.rs"]
mod support;
