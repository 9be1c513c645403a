//! The adversary disk against its judge: the correct disk never leaves an illegal state, each mutant does.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod campaign;
mod faults;
mod mutants;
mod orders;
mod packed;
mod rules;
