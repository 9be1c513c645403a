//! The checksum of F2FS: CRC-32 (polynomial 0xEDB88320, reflected) that starts at a seed and is not inverted at the end.

use crc_fast::{CrcAlgorithm, Digest};

/// The seed of checksums of superblocks and checkpoints: the magic number.
pub(crate) const MAGIC: u32 = 0xF2F5_2010;

/// The checksum of `bytes`, continued from `seed`: an earlier checksum, or the magic number.
pub fn crc32(seed: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32IsoHdlc, u64::from(seed));
    digest.update(bytes);
    !(digest.finalize() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, bit by bit.
    fn crc32_by_bits(seed: u32, bytes: &[u8]) -> u32 {
        bytes.iter().fold(seed, |sum, byte| {
            (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xEDB8_8320 * (sum & 1)))
        })
    }

    #[test]
    fn it_is_the_polynomial_division_for_any_seed_and_length() {
        let bytes: Vec<u8> = (0..4096_u32).map(|index| (index / 3 * 31) as u8).collect();
        for seed in [MAGIC, 0, !0, 1] {
            for length in [0, 1, 7, 16, 63, 255, 3068, 4092, 4096] {
                let part = &bytes[..length];
                assert_eq!(crc32(seed, part), crc32_by_bits(seed, part), "{seed:#x}, {length} bytes");
            }
        }
        assert_eq!(crc32(crc32(MAGIC, &bytes[..100]), &bytes[100..]), crc32(MAGIC, &bytes));
    }
}
