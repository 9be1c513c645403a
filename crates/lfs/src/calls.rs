//! The calls, by their subject.

mod attributes;
mod files;
mod mounted;
mod names;
