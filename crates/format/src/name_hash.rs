//! Hashing of names with block functions: what both formats' directories have of it.

/// How a character becomes a number: formats differ for bytes of 128 and above.
pub type Character = fn(u8) -> u32;

/// What the functions begin with where a filesystem has no seed of its own: MD4's constants.
pub const START: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// Characters as unsigned numbers.
pub fn unsigned(byte: u8) -> u32 {
    u32::from(byte)
}

/// Feeds `name` to `transform`, `WORDS` words at a time.
pub fn absorb<const WORDS: usize>(
    name: &[u8],
    character: Character,
    mut state: [u32; 4],
    transform: fn(&mut [u32; 4], &[u32; WORDS]),
) -> [u32; 4] {
    for at in (0..name.len()).step_by(WORDS * 4) {
        transform(&mut state, &words(&name[at..], character));
    }
    state
}

/// The next `WORDS` words of a name: four characters each, first character highest; what the name
/// does not fill is the number of bytes that were left, in every byte.
fn words<const WORDS: usize>(rest: &[u8], character: Character) -> [u32; WORDS] {
    // A name has at most 255 bytes, so one byte holds the length.
    let padding = u32::from_ne_bytes([rest.len() as u8; 4]);
    let mut words = [padding; WORDS];
    for (word, bytes) in words.iter_mut().zip(rest.chunks(4)) {
        for &byte in bytes {
            *word = (*word << 8).wrapping_add(character(byte));
        }
    }
    words
}

/// Sixteen rounds of the Tiny Encryption Algorithm over four words.
pub fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    const DELTA: u32 = 0x9e37_79b9;
    let half = |value: u32, sum: u32, low: u32, high: u32| {
        (value << 4).wrapping_add(low) ^ value.wrapping_add(sum) ^ (value >> 5).wrapping_add(high)
    };
    let (mut left, mut right, mut sum) = (state[0], state[1], 0_u32);
    for _ in 0..16 {
        sum = sum.wrapping_add(DELTA);
        left = left.wrapping_add(half(right, sum, key[0], key[1]));
        right = right.wrapping_add(half(left, sum, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(left);
    state[1] = state[1].wrapping_add(right);
}
