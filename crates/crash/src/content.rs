//! Pages that name the request that wrote them. The *stamp* of a page names the request that wrote it; no two requests
//! of a run share one, and no page of one block is ever right in another.

use std::hash::Hasher;

use weir_storage::BLOCK_BYTES;

const WORD_BYTES: usize = size_of::<u64>();
/// An odd constant with well spread bits (2^64 divided by the golden ratio).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Names the request that wrote a page; 0 is a page of zeroes: never written, or discarded.
pub type Stamp = u64;

/// A word that depends on both arguments in every bit.
#[must_use]
pub fn mix(a: u64, b: u64) -> u64 {
    let mixed = (a.rotate_left(23) ^ b).wrapping_add(SPREAD).wrapping_mul(SPREAD);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(SPREAD);
    mixed ^ (mixed >> 29)
}

/// Folds what is hashed into a word that [`mix`] makes: equal content, equal hash, in every process.
#[derive(Default)]
pub(crate) struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        let words = bytes.chunks(WORD_BYTES).map(|chunk| {
            let mut word = [0; WORD_BYTES];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        self.0 = words.fold(mix(self.0, bytes.len() as u64), mix);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The words of a page: stamp and address, then words that follow from both, so that a page that is torn or
/// spliced anywhere has no stamp.
fn words(block: u64, stamp: Stamp) -> impl Iterator<Item = u64> {
    let seed = mix(block, stamp);
    let count = (BLOCK_BYTES / WORD_BYTES) as u64;
    (0..count).map(move |i| match i {
        0 => stamp,
        1 => block,
        _ => seed.wrapping_add(i.wrapping_mul(SPREAD)),
    })
}

/// Appends the page that the request `stamp` writes to logical block `block`.
pub fn push_page(bytes: &mut Vec<u8>, block: u64, stamp: Stamp) {
    if stamp == 0 {
        bytes.resize(bytes.len() + BLOCK_BYTES, 0);
    } else {
        bytes.extend(words(block, stamp).flat_map(u64::to_le_bytes));
    }
}

/// Where a stamp has the block that its page was written to, one more than its number, if that is not the block that holds
/// it: a share has put it there.
const ORIGIN_SHIFT: u32 = 40;

/// The stamp of what the request `stamp` wrote to `origin`, where `block` holds it.
fn seen_from(stamp: Stamp, origin: u64, block: u64) -> Stamp {
    if stamp == 0 || origin == block { stamp } else { stamp | (origin + 1) << ORIGIN_SHIFT }
}

/// What a stamp that `block` holds stands for: the request that wrote the page, and where.
pub(crate) fn written_where(stamp: Stamp, block: u64) -> (Stamp, u64) {
    let origin = (stamp >> ORIGIN_SHIFT).checked_sub(1).unwrap_or(block);
    (stamp & ((1 << ORIGIN_SHIFT) - 1), origin)
}

/// The stamp that `to` holds when it reads what `from` does.
pub(crate) fn shared_stamp(stamp: Stamp, from: u64, to: u64) -> Stamp {
    let (stamp, origin) = written_where(stamp, from);
    seen_from(stamp, origin, to)
}

/// What a block holds, be it written there or shared to it; `None` if the page is not whole, or no request wrote it.
pub(crate) fn content_of(page: &[u8], block: u64) -> Option<Stamp> {
    let word = |at: usize| Some(u64::from_le_bytes(page.get(at..at + WORD_BYTES)?.try_into().ok()?));
    let origin = if word(0)? == 0 { block } else { word(WORD_BYTES)? };
    let stamp = stamp_of(page, origin)?;
    (stamp >> ORIGIN_SHIFT == 0 && origin >> (u64::BITS - ORIGIN_SHIFT - 1) == 0)
        .then(|| seen_from(stamp, origin, block))
}

/// The stamp of a page; `None` if the page is not whole, belongs to another block, or no request wrote it.
#[must_use]
pub fn stamp_of(page: &[u8], block: u64) -> Option<Stamp> {
    let found =
        page.chunks_exact(WORD_BYTES).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
    let stamp = found.clone().next()?;
    if stamp == 0 {
        return (page.len() == BLOCK_BYTES && found.clone().all(|word| word == 0)).then_some(0);
    }
    found.eq(words(block, stamp)).then_some(stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_known_whole_and_in_its_place_only() {
        let mut page = Vec::new();
        push_page(&mut page, 7, 3);
        assert_eq!(stamp_of(&page, 7), Some(3));
        assert_eq!(stamp_of(&page, 8), None);
        let mut other = Vec::new();
        push_page(&mut other, 7, 4);
        for tear in (512..BLOCK_BYTES).step_by(512) {
            let torn = [&page[..tear], &other[tear..]].concat();
            assert_eq!(stamp_of(&torn, 7), None, "torn at {tear}");
        }
        let mut zeroes = vec![0; BLOCK_BYTES];
        assert_eq!(stamp_of(&zeroes, 7), Some(0));
        zeroes[4000] = 1;
        assert_eq!(stamp_of(&zeroes, 7), None);
        assert_eq!(stamp_of(&page[..512], 7), None);
    }

    #[test]
    fn a_shared_page_is_known_by_where_it_was_written() {
        let mut page = Vec::new();
        push_page(&mut page, 7, 3);
        assert_eq!(content_of(&page, 7), Some(3));
        let seen = content_of(&page, 9).expect("somebody's");
        assert_eq!((seen, written_where(seen, 9)), (shared_stamp(3, 7, 9), (3, 7)));
        assert_eq!((shared_stamp(seen, 9, 7), shared_stamp(0, 9, 7)), (3, 0), "at home again");
        page[900] ^= 1;
        assert_eq!(content_of(&page, 9), None);
        assert_eq!(content_of(&[0; BLOCK_BYTES], 9), Some(0));
    }
}
