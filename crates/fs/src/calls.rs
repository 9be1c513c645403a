//! The calls of a mounted filesystem, by their subject. Each asks a part.
//!
//! They return boxed futures. The body of an `async fn` is compiled in each crate that awaits it, so every program would
//! compile the whole filesystem again; a call that boxes its future is compiled with this crate, once.

mod attributes;
mod files;
mod names;
mod sync;
