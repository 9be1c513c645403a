//! The hash table of a directory: levels of buckets, of which each level has twice as many as the one before. A name can be in one
//! bucket of each level; new levels are added as the directory grows.

/// Levels that a directory has at most.
pub const LEVELS_MAX: u32 = 63;
/// The level from which on the number of buckets stays the same, and buckets are larger.
const WIDE_LEVEL: u32 = LEVELS_MAX / 2;
/// Blocks of a bucket, below that level and from it on.
const NARROW_BLOCKS: u64 = 2;
const WIDE_BLOCKS: u64 = 4;

/// Buckets of a level, in a directory whose first level counts as `base`.
fn buckets(level: u32, base: u8) -> u64 {
    1 << (level + u32::from(base)).min(WIDE_LEVEL - 1)
}

fn bucket_blocks(level: u32) -> u64 {
    if level < WIDE_LEVEL { NARROW_BLOCKS } else { WIDE_BLOCKS }
}

/// The blocks of the directory where a name of this hash can be on a level.
pub fn blocks_of(level: u32, base: u8, hash: u32) -> std::ops::Range<u64> {
    let before: u64 = (0..level).map(|level| buckets(level, base) * bucket_blocks(level)).sum();
    let start = before + u64::from(hash) % buckets(level, base) * bucket_blocks(level);
    start..start + bucket_blocks(level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_follow_one_another() {
        assert_eq!(blocks_of(0, 0, 77), 0..2);
        assert_eq!(blocks_of(1, 0, 0), 2..4);
        assert_eq!(blocks_of(1, 0, 1), 4..6);
        assert_eq!(blocks_of(2, 0, 3), 12..14);
        assert_eq!(blocks_of(0, 2, 3), 6..8);
        assert_eq!(blocks_of(1, 2, 0), 8..10);
        assert!(blocks_of(LEVELS_MAX, 255, u32::MAX).end < 1 << 40, "no overflow");
    }
}
