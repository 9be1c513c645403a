//! The tests of this crate from outside, as one program.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bad_input;
mod bench;
mod campaign;
mod checksums;
mod coalition;
mod crash_tests;
mod drive;
mod f2fs;
mod flash;
mod flash_order;
mod fs;
mod kill;
mod logical_pages;
mod moments;
mod mutants;
mod passing;
mod permuter;
mod regressions;
mod remap;
mod replica;
mod sqlite;
mod streams;
mod updates;
mod vst;
mod workload;
mod workload_text;
mod workloads;
