//! Name hashes: the numbers by which a hashed directory orders its names.
//!
//! Three functions exist, each keyed by the superblock's hash seed. The oldest machines fed them
//! characters as signed numbers, others as unsigned ones, and both are on disks today: the
//! superblock says which, and only names with bytes of 128 and above show the difference.
//!
//! The lowest bit of a major hash is always clear. The index uses it to say "this leaf goes on with
//! the hash of the leaf before it", see [`crate::directory`].

use weir_format::FormatError;
use weir_format::name_hash::{Character, START, absorb, tea, unsigned};

/// Which function, and how it reads a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashVersion {
    /// The first function: a short multiplicative one, without a minor hash.
    Legacy,
    /// Three rounds of MD4 over eight words at a time. The default.
    HalfMd4,
    /// Sixteen rounds of the Tiny Encryption Algorithm over four words at a time.
    Tea,
    /// [`HashVersion::Legacy`] with unsigned characters.
    LegacyUnsigned,
    /// [`HashVersion::HalfMd4`] with unsigned characters.
    HalfMd4Unsigned,
    /// [`HashVersion::Tea`] with unsigned characters.
    TeaUnsigned,
}

impl HashVersion {
    /// The version with this number on the disk (superblock or directory root), where
    /// `unsigned_characters` is the superblock's flag for the numbers 0 to 2.
    ///
    /// # Errors
    ///
    /// [`FormatError::Feature`] for a number outside the subset (6 is the keyed hash of
    /// case-folded, encrypted directories).
    pub fn from_disk(number: u8, unsigned_characters: bool) -> Result<Self, FormatError> {
        Ok(match (number, unsigned_characters) {
            (0, false) => Self::Legacy,
            (1, false) => Self::HalfMd4,
            (2, false) => Self::Tea,
            (3, _) | (0, true) => Self::LegacyUnsigned,
            (4, _) | (1, true) => Self::HalfMd4Unsigned,
            (5, _) | (2, true) => Self::TeaUnsigned,
            _ => return Err(FormatError::Feature { name: "directory hash version" }),
        })
    }

    /// The number that a directory's root holds: 0 to 2, for the superblock knows the sign.
    pub fn to_disk(self) -> u8 {
        match self {
            Self::Legacy | Self::LegacyUnsigned => 0,
            Self::HalfMd4 | Self::HalfMd4Unsigned => 1,
            Self::Tea | Self::TeaUnsigned => 2,
        }
    }

    pub(crate) fn is_unsigned(self) -> bool {
        matches!(self, Self::LegacyUnsigned | Self::HalfMd4Unsigned | Self::TeaUnsigned)
    }
}

/// A name's place in a hashed directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NameHash {
    /// What the index is sorted by. Even.
    pub major: u32,
    /// Orders names of one major hash while a directory is read.
    pub minor: u32,
}

/// The largest major hash would say "end of directory" to readers of 31 bits, so it is never used.
const END_OF_DIRECTORY: u32 = 0xffff_fffe;

/// A filesystem's hash function: a version and the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameHasher {
    /// Which function.
    pub version: HashVersion,
    /// The superblock's seed. All zeros means the functions' own start value.
    pub seed: [u32; 4],
}

impl NameHasher {
    /// The hash of `name`.
    pub fn hash(&self, name: &[u8]) -> NameHash {
        let start = match self.seed {
            [0, 0, 0, 0] => START,
            seed => seed,
        };
        let character = if self.version.is_unsigned() { unsigned } else { signed };
        let (major, minor) = match self.version {
            HashVersion::Legacy | HashVersion::LegacyUnsigned => (legacy(name, character), 0),
            HashVersion::HalfMd4 | HashVersion::HalfMd4Unsigned => {
                let state = absorb::<8>(name, character, start, half_md4);
                (state[1], state[2])
            }
            HashVersion::Tea | HashVersion::TeaUnsigned => {
                let state = absorb::<4>(name, character, start, tea);
                (state[0], state[1])
            }
        };
        let even = major & !1;
        NameHash { major: if even == END_OF_DIRECTORY { END_OF_DIRECTORY - 2 } else { even }, minor }
    }
}

fn signed(byte: u8) -> u32 {
    i32::from(byte.cast_signed()).cast_unsigned()
}

fn legacy(name: &[u8], character: Character) -> u32 {
    let (mut last, mut before) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
    for &byte in name {
        let mixed = before.wrapping_add(last ^ character(byte).wrapping_mul(7_152_373));
        before = last;
        last = if mixed & 0x8000_0000 == 0 { mixed } else { mixed.wrapping_sub(0x7fff_ffff) };
    }
    last << 1
}

/// One step of MD4's kind: which word, and how far to rotate.
type Md4Step = (usize, u32);

fn half_md4(state: &mut [u32; 4], input: &[u32; 8]) {
    const FIRST: [Md4Step; 8] = [(0, 3), (1, 7), (2, 11), (3, 19), (4, 3), (5, 7), (6, 11), (7, 19)];
    const SECOND: [Md4Step; 8] = [(1, 3), (3, 5), (5, 9), (7, 13), (0, 3), (2, 5), (4, 9), (6, 13)];
    const THIRD: [Md4Step; 8] = [(3, 3), (7, 9), (2, 11), (6, 15), (1, 3), (5, 9), (0, 11), (4, 15)];
    let mut mixed = *state;
    round(&mut mixed, input, &FIRST, 0, |x, y, z| (x & y) | (!x & z));
    round(&mut mixed, input, &SECOND, 0x5a82_7999, |x, y, z| (x & y) | (x & z) | (y & z));
    round(&mut mixed, input, &THIRD, 0x6ed9_eba1, |x, y, z| x ^ y ^ z);
    for (old, new) in state.iter_mut().zip(mixed) {
        *old = old.wrapping_add(new);
    }
}

/// Eight steps; the word that a step changes goes round backwards: a, d, c, b, a, ...
fn round(
    state: &mut [u32; 4],
    input: &[u32; 8],
    steps: &[Md4Step; 8],
    constant: u32,
    choose: fn(u32, u32, u32) -> u32,
) {
    for (turn, &(word, rotation)) in steps.iter().enumerate() {
        let target = (4 - turn % 4) % 4;
        let others = [1, 2, 3].map(|offset| state[(target + offset) % 4]);
        state[target] = state[target]
            .wrapping_add(choose(others[0], others[1], others[2]))
            .wrapping_add(input[word])
            .wrapping_add(constant)
            .rotate_left(rotation);
    }
}
