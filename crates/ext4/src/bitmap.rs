//! Bitmaps: bit `n` is bit `n % 8` of byte `n / 8`, and is set when block or inode `n` of its group is in
//! use. Bits that stand for nothing are set, so that no search finds them free.
//!
//! Positions beyond the bitmap's bytes count as in use, so a damaged length can waste space but never lead
//! out of the bytes.

use std::ops::Range;

/// Whether `bit` is set.
pub fn is_set(bits: &[u8], bit: u32) -> bool {
    bits.get(bit as usize / 8).is_none_or(|byte| byte >> (bit % 8) & 1 != 0)
}

/// Sets all bits in `range`.
pub fn set(bits: &mut [u8], range: Range<u32>) {
    for_bytes(bits, range, |byte, mask| *byte |= mask);
}

/// Clears all bits in `range`.
pub fn clear(bits: &mut [u8], range: Range<u32>) {
    for_bytes(bits, range, |byte, mask| *byte &= !mask);
}

/// How many bits in `range` are clear.
pub fn count_clear(bits: &[u8], range: Range<u32>) -> u32 {
    let end = range.end.min(length(bits));
    let mut at = range.start;
    let mut clear = 0;
    while at < end {
        let (word, bits_left) = word_at(bits, at);
        let taken = bits_left.min(end - at);
        clear += (!word & low_bits(taken)).count_ones();
        at += taken;
    }
    clear
}

/// The first clear bit in `range`.
pub fn next_clear(bits: &[u8], range: Range<u32>) -> Option<u32> {
    next(bits, range.start..range.end.min(length(bits)), |word| !word)
}

/// The first set bit in `range`.
pub fn next_set(bits: &[u8], range: Range<u32>) -> Option<u32> {
    let inside = range.start..range.end.min(length(bits));
    let beyond = range.start.max(length(bits));
    next(bits, inside, |word| word).or((beyond < range.end).then_some(beyond))
}

/// The first run of clear bits in `range`, of at most `at_most` bits.
pub fn next_run(bits: &[u8], range: Range<u32>, at_most: u32) -> Option<Range<u32>> {
    let start = next_clear(bits, range.clone())?;
    let end = start.saturating_add(at_most).min(range.end);
    Some(start..next_set(bits, start..end).unwrap_or(end))
}

fn next(bits: &[u8], range: Range<u32>, wanted: impl Fn(u64) -> u64) -> Option<u32> {
    let mut at = range.start;
    while at < range.end {
        let (word, bits_left) = word_at(bits, at);
        let found = wanted(word) & low_bits(bits_left);
        if found != 0 {
            let bit = at + found.trailing_zeros();
            return (bit < range.end).then_some(bit);
        }
        at += bits_left;
    }
    None
}

/// The bits from `at` to the end of its aligned 64-bit word, and how many they are.
fn word_at(bits: &[u8], at: u32) -> (u64, u32) {
    let bytes = &bits[at as usize / 64 * 8..];
    let mut word = [0xFF; 8];
    let length = bytes.len().min(8);
    word[..length].copy_from_slice(&bytes[..length]);
    (u64::from_le_bytes(word) >> (at % 64), 64 - at % 64)
}

/// How many bits there are.
fn length(bits: &[u8]) -> u32 {
    u32::try_from(bits.len()).map_or(u32::MAX, |bytes| bytes.saturating_mul(8))
}

fn low_bits(count: u32) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

fn for_bytes(bits: &mut [u8], range: Range<u32>, change: impl Fn(&mut u8, u8)) {
    let last = range.end.min(length(bits));
    let mut at = range.start;
    while at < last {
        let end = (at / 8 * 8 + 8).min(last);
        let mask = (0xFF_u32 << (at % 8)) & (0xFF >> (7 - (end - 1) % 8));
        change(&mut bits[at as usize / 8], mask as u8);
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every range of a bitmap of 21 bytes, against one boolean a bit.
    #[test]
    fn ranges_agree_with_booleans() {
        let bytes: Vec<u8> = (0..21).map(|at| [0, 0xFF, 0xA5, 0xF0][at % 4]).collect();
        let model: Vec<bool> = (0..168).map(|bit| is_set(&bytes, bit)).collect();
        for start in 0..168_usize {
            for end in start..168 {
                let range = start as u32..end as u32;
                let clear = model[start..end].iter().filter(|set| !**set).count();
                assert_eq!(count_clear(&bytes, range.clone()) as usize, clear, "{range:?}");
                let first = |wanted| (start..end).find(|bit| model[*bit] == wanted).map(|bit| bit as u32);
                assert_eq!(next_clear(&bytes, range.clone()), first(false), "{range:?}");
                assert_eq!(next_set(&bytes, range.clone()), first(true), "{range:?}");
                let (mut filled, mut emptied) = (bytes.clone(), bytes.clone());
                set(&mut filled, range.clone());
                clear_and_check(&mut emptied, range.clone(), &model);
                assert_eq!(count_clear(&filled, range.clone()), 0);
                let outside = |bits: &[u8]| {
                    (0..168)
                        .filter(|bit| !range.contains(bit))
                        .all(|bit| is_set(bits, bit) == model[bit as usize])
                };
                assert!(outside(&filled) && outside(&emptied), "{range:?}");
            }
        }
    }

    fn clear_and_check(bits: &mut [u8], range: Range<u32>, model: &[bool]) {
        clear(bits, range.clone());
        assert_eq!(count_clear(bits, range.clone()), range.len() as u32, "{:?}", &model[..3]);
    }

    #[test]
    fn runs_are_found_and_cut() {
        let bits = [0b1100_0011, 0xFF, 0, 0];
        assert_eq!(next_run(&bits, 0..32, 99), Some(2..6));
        assert_eq!(next_run(&bits, 0..32, 3), Some(2..5));
        assert_eq!(next_run(&bits, 6..32, 99), Some(16..32));
        assert_eq!(next_run(&bits, 6..16, 99), None);
    }

    #[test]
    fn beyond_the_bytes_everything_is_in_use() {
        let mut bits = [0; 2];
        assert!(is_set(&bits, 16));
        assert_eq!(next_clear(&bits, 16..u32::MAX), None);
        assert_eq!(next_set(&bits, 3..u32::MAX), Some(16));
        assert_eq!(next_set(&bits, 40..41), Some(40));
        assert_eq!(count_clear(&bits, 0..100), 16);
        set(&mut bits, 10..100);
        clear(&mut bits, 90..u32::MAX - 7);
        assert_eq!(bits, [0, 0xFC]);
    }
}
