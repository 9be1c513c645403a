//! The calls of a mounted filesystem, by their subject. Each asks a part.

mod attributes;
mod files;
mod names;
mod sync;
