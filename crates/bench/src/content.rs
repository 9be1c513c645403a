//! What is written: incompressible pages, each of which says which write it is.
//!
//! A *page* is one block of data: random bytes from a small pool, under a *stamp* that names the block, the
//! run and the version, with a check word over them. So a page read back proves which write it comes from,
//! a page of another place or an older version is found out, and preparing one costs the same few
//! nanoseconds in every mode.

use rand::Rng as _;
use weir_runtime::Random;
use weir_storage::BLOCK_BYTES;

/// Pages in the pool: 256 KiB, which stays in the processor's cache as the data of a program does that has
/// just made it.
const POOL_PAGES: usize = 64;

/// Bytes at the head of a page that hold the stamp; the rest is the pool's.
const STAMP_BYTES: usize = 32;

/// Which write a page comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// The block it was written to.
    pub block: u64,
    /// The run that wrote it.
    pub run: u32,
    /// Counts the writes of the run's lane, from 1.
    pub version: u32,
}

/// The pool of random pages, and the seed of the check words.
#[derive(Clone, Debug)]
pub struct Pages {
    pool: Vec<u8>,
    seed: u64,
}

impl Pages {
    /// A pool filled from `random`.
    #[must_use]
    pub fn new(random: &mut Random) -> Pages {
        let mut pool = vec![0; POOL_PAGES * BLOCK_BYTES];
        random.fill_bytes(&mut pool);
        Pages { pool, seed: random.next_u64() }
    }

    /// The page of `stamp`, prepared in place in the pool.
    #[inline]
    pub fn page(&mut self, stamp: Stamp) -> &[u8] {
        let place = stamp.version as usize % POOL_PAGES;
        let page = &mut self.pool[place * BLOCK_BYTES..][..BLOCK_BYTES];
        page[..STAMP_BYTES].copy_from_slice(&head(self.seed, stamp, place));
        page
    }

    /// Fills `page` with random content; [`Pages::stamp`] makes it a page.
    ///
    /// A buffer that the kernel may still read is filled once and stamped anew for each write.
    pub fn fill(&self, page: &mut [u8], place: usize) {
        page.copy_from_slice(self.body(place % POOL_PAGES));
    }

    /// Stamps a page that was filled from `place`.
    #[inline]
    pub fn stamp(&self, page: &mut [u8], place: usize, stamp: Stamp) {
        page[..STAMP_BYTES].copy_from_slice(&head(self.seed, stamp, place % POOL_PAGES));
    }

    /// Whether `page` is exactly the page of `stamp`.
    #[must_use]
    pub fn is(&self, page: &[u8], stamp: Stamp) -> bool {
        let Some(&place) = page.get(PLACE_AT) else { return false };
        page.len() == BLOCK_BYTES
            && usize::from(place) < POOL_PAGES
            && page[..STAMP_BYTES] == head(self.seed, stamp, usize::from(place))
            && page[STAMP_BYTES..] == self.body(usize::from(place))[STAMP_BYTES..]
    }

    fn body(&self, place: usize) -> &[u8] {
        &self.pool[place * BLOCK_BYTES..][..BLOCK_BYTES]
    }
}

/// Where in the stamp the page's place in the pool is.
const PLACE_AT: usize = 16;

fn head(seed: u64, stamp: Stamp, place: usize) -> [u8; STAMP_BYTES] {
    let words = [stamp.block, u64::from(stamp.run) << 32 | u64::from(stamp.version), place as u64];
    let check = words
        .iter()
        .fold(seed, |hash, word| (hash.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut bytes = [0; STAMP_BYTES];
    for (slot, word) in bytes.chunks_exact_mut(8).zip([words[0], words[1], words[2], check]) {
        slot.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use weir_runtime::{Runtime, Simulation};

    use super::*;

    fn pages() -> Pages {
        Pages::new(&mut Runtime::simulated(Simulation::default()).handle().random("pages"))
    }

    #[test]
    fn a_page_is_its_own_stamp_and_no_other() {
        let mut pages = pages();
        let stamp = Stamp { block: 5, run: 2, version: 70 };
        let page = pages.page(stamp).to_vec();
        assert!(pages.is(&page, stamp));
        assert!(!pages.is(&page, Stamp { block: 6, ..stamp }));
        assert!(!pages.is(&page, Stamp { run: 3, ..stamp }));
        assert!(!pages.is(&page, Stamp { version: 69, ..stamp }));
        assert!(!pages.is(&[0; BLOCK_BYTES], stamp));
        assert!(!pages.is(&page[..100], stamp));
    }

    #[test]
    fn every_damaged_byte_is_found() {
        let mut pages = pages();
        let stamp = Stamp { block: 1, run: 1, version: 1 };
        let page = pages.page(stamp).to_vec();
        for at in 0..BLOCK_BYTES {
            let mut damaged = page.clone();
            damaged[at] ^= 1;
            assert!(!pages.is(&damaged, stamp), "byte {at}");
        }
    }

    #[test]
    fn a_filled_and_stamped_page_is_the_same_kind_of_page() {
        let pages = pages();
        let mut page = vec![0; BLOCK_BYTES];
        pages.fill(&mut page, 65);
        let stamp = Stamp { block: 9, run: 1, version: 4 };
        pages.stamp(&mut page, 65, stamp);
        assert!(pages.is(&page, stamp));
    }

    #[test]
    fn pages_are_incompressible_and_differ() {
        let mut pages = pages();
        let first = pages.page(Stamp { block: 0, run: 1, version: 1 }).to_vec();
        let second = pages.page(Stamp { block: 0, run: 1, version: 2 }).to_vec();
        assert_ne!(first[STAMP_BYTES..], second[STAMP_BYTES..]);
        let mut counts = [0_u32; 256];
        first.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
        // 16 of each on average; a compressible page has favourites.
        assert!(counts.iter().all(|&count| count < 50));
    }
}
