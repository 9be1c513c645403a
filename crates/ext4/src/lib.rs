//! The on-disk format: ext4 with a jbd2 journal, in a documented subset (docs/format/fs.md).
//!
//! Codecs over bytes, and algorithms over a small trait, [`Blocks`]. No input or output, no policy: what is
//! cached, journaled or written when is somebody else's business.

mod blocks;
mod checksum;
mod dirhash;
mod error;

pub use blocks::{BLOCK_BYTES, Blocks, Kind};
pub use checksum::Checksums;
pub use dirhash::{HashVersion, NameHash, NameHasher};
pub use error::{FormatError, Place, Structure};
