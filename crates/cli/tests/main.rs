//! The tests of this crate from outside, as one program.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod absent_features;
mod acls;
mod again;
mod atomic;
mod background;
mod bad_input;
mod coalition;
mod command_line;
mod conformance;
mod crash;
mod devices;
mod direct_writes;
mod disk;
mod documents;
mod ext4_features;
mod figures;
mod full;
mod full_below;
mod generate;
mod growth;
mod held;
mod images;
mod libraries;
mod limits;
mod lost;
mod marks;
mod memory;
mod mkfs;
mod mount;
mod nested;
mod occupied;
mod owners;
mod positions;
mod privileges;
mod programs;
mod promises;
mod readers;
mod repair;
mod signals;
mod sqlite;
mod support;
mod system_mount;
mod tidy;
mod torn_pages;
