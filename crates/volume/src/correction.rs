//! Correction of one inverted bit: the CRC-32C of a structure says which bit it was.
//!
//! The Hamming distance of the CRC-32C is 4 for structures of these sizes, so no two inversions of one bit have the same
//! syndrome, and two inverted bits are not taken for one. Other damage passes for one inverted bit once in 2^17 times
//! for a block: a caller also checks what the structure says. The data of users is never corrected.

use crate::layout::checksum_without;

/// The polynomial of the CRC-32C, reflected.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// What a register becomes with one more byte of zeros.
fn step(mut register: u32) -> u32 {
    for _ in 0..8 {
        register = register >> 1 ^ (POLYNOMIAL & (register & 1).wrapping_neg());
    }
    register
}

/// Makes a structure match the checksum in its four bytes at `field` by the inversion of at most one bit. Whether it
/// matches; if not, it is unchanged.
pub(crate) fn correct_bit(bytes: &mut [u8], field: usize) -> bool {
    let Some(stored) = bytes.get(field..field + 4) else { return false };
    let stored = stored.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
    let computed = checksum_without(bytes, field);
    let syndrome = stored ^ computed;
    if syndrome.count_ones() <= 1 {
        // The bit is in the checksum itself.
        bytes[field..field + 4].copy_from_slice(&computed.to_le_bytes());
        return true;
    }
    // The syndromes of the eight bits of a byte, from the last byte to the first.
    let mut syndromes: [u32; 8] = std::array::from_fn(|bit| step(1 << bit));
    for at in (0..bytes.len()).rev() {
        let is_inside = (field..field + 4).contains(&at);
        if let Some(bit) = syndromes.iter().position(|one| *one == syndrome).filter(|_| !is_inside) {
            bytes[at] ^= 1 << bit;
            return true;
        }
        syndromes = syndromes.map(step);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{checksum_matches, stamp_checksum};

    #[test]
    fn each_single_bit_is_corrected_and_two_are_not() {
        let mut whole: Vec<u8> = (0..4096_u32).map(|i| ((i * i) >> 3) as u8).collect();
        stamp_checksum(&mut whole, 60);
        for bit in (0..whole.len() * 8).step_by(97).chain(60 * 8..64 * 8) {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!checksum_matches(&damaged, 60));
            assert!(correct_bit(&mut damaged, 60) && damaged == whole, "bit {bit}");
            let other = (bit * 31 + 5) % (whole.len() * 8);
            damaged[bit / 8] ^= 1 << (bit % 8);
            damaged[other / 8] ^= 1 << (other % 8);
            let before = damaged.clone();
            assert!(!correct_bit(&mut damaged, 60) && damaged == before, "bits {bit} and {other}");
        }
    }
}
