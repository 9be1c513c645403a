//! The calls of a mounted filesystem, by their subject: what a door needs of it, whatever its format.
//!
//! They return boxed futures. The body of an `async fn` is compiled in each crate that awaits it, so every program would
//! compile the whole filesystem again; a call that boxes its future is compiled with the filesystem, once.

mod attributes;
mod files;
mod handover;
mod mounted;
mod names;
mod sync;

pub use attributes::AttributeCalls;
pub use files::FileCalls;
pub use handover::{HandoverCalls, HandoverRefusal, HeldInode};
pub use mounted::MountedCalls;
pub use names::NameCalls;
pub use sync::SyncCalls;

/// All calls of a mounted filesystem.
pub trait FilesystemCalls:
    AttributeCalls + FileCalls + HandoverCalls + MountedCalls + NameCalls + SyncCalls
{
}

impl<T: AttributeCalls + FileCalls + HandoverCalls + MountedCalls + NameCalls + SyncCalls> FilesystemCalls
    for T
{
}
