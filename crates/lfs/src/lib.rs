//! F2FS, the log-structured filesystem for flash, behind the calls that every filesystem has. It is read so far: an image as its
//! newest checkpoint has it. A call that changes something is refused.
//!
//! What `fsync` has written behind the newest checkpoint of an image that was not unmounted is not rolled forward:
//! [`F2fs::mount`] refuses such an image.

mod calls;
mod filesystem;

pub use filesystem::F2fs;
