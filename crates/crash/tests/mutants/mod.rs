//! Negative controls: each test names a volume that breaks one rule, and shows that the breach is noticed
//! and that the volume which keeps the rule passes the same trial.

#![allow(clippy::print_stdout, reason = "counts belong in the log of a test run")]

mod campaign;
mod directed;
