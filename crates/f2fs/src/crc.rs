//! The checksum of F2FS: a CRC-32 that begins with a seed and is not inverted at its end.

use crc_fast::{CrcAlgorithm, Digest};

/// The number by which a superblock is known; the seed of the checksums of superblocks and checkpoints, too.
pub(crate) const MAGIC: u32 = 0xF2F5_2010;

/// The CRC-32 of `parts` one after the other, from the register value `seed`.
pub(crate) fn crc32(seed: u32, parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32IsoHdlc, u64::from(seed));
    for part in parts {
        digest.update(part);
    }
    !(digest.finalize() as u32)
}
