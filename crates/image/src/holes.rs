//! Zeros that become holes.

/// Bytes that are copied at a time.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;
/// Where zeros become holes.
const BLOCK_BYTES: usize = 4096;

/// Memory to copy a file of this size by: no more than it takes, as most files are small.
pub(crate) fn chunk_of(size: u64) -> Vec<u8> {
    vec![0; usize::try_from(size).unwrap_or(usize::MAX).clamp(1, CHUNK_BYTES)]
}

/// The parts of the bytes between blocks of zeros, with their offsets.
pub(crate) fn runs(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let is_zero = |at: usize| bytes[at..bytes.len().min(at + BLOCK_BYTES)].iter().all(|&byte| byte == 0);
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() && is_zero(at) {
            at += BLOCK_BYTES;
        }
        let start = at;
        while at < bytes.len() && !is_zero(at) {
            at += BLOCK_BYTES;
        }
        let end = at.min(bytes.len());
        (start < end).then(|| (start, &bytes[start..end]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_become_holes() {
        let mut bytes = vec![0; 5 * BLOCK_BYTES + 10];
        assert_eq!(runs(&bytes).count(), 0);
        bytes[BLOCK_BYTES] = 1;
        bytes[3 * BLOCK_BYTES - 1] = 1;
        bytes[5 * BLOCK_BYTES + 9] = 1;
        let found: Vec<_> = runs(&bytes).map(|(at, run)| (at, run.len())).collect();
        assert_eq!(found, [(BLOCK_BYTES, 2 * BLOCK_BYTES), (5 * BLOCK_BYTES, 10)]);
        assert_eq!(runs(&[]).count(), 0);
    }
}
