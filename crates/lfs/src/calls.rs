//! The calls that every filesystem has.

mod attributes;
mod files;
mod mounted;
mod names;
