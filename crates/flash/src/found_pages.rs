//! The pages that recovery finds behind the newest checkpoint, and how far erase blocks are filled.
//!
//! Order-preserving recovery goes along the erase blocks that were filled since ([`crate::stock`]) and reads no other; with
//! the other mechanisms recovery looks at all of them. Of each the last page is read first: where that is a summary page, it
//! lists the others, and where it was programmed before the checkpoint, so were they. Otherwise the pages are read one after
//! the other.

use std::collections::VecDeque;

use crate::checkpoint::Seal;
use crate::geometry::{EraseBlock, Page};
use crate::medium::Tag;
use crate::mutants::{FlashMutant, FlashRules};
use crate::recovery_reads::{PageReads, ReadFor, ReadPage};
use crate::stock::Stock;

/// How far an erase block is filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filled {
    /// Pages that cannot be programmed any more.
    pub(crate) pages: u32,
    /// The sequence number of its last page; 0 where recovery did not look, since the checkpoint covers all of it.
    pub(crate) last_sequence: u64,
}

/// What recovery finds.
#[derive(Debug, Default)]
pub(crate) struct FoundPages {
    /// Readable pages that the checkpoint does not cover, in the order of their sequence numbers.
    pub(crate) pages: Vec<ReadPage>,
    /// By erase block.
    pub(crate) filled: Vec<Filled>,
}

impl FoundPages {
    /// Looks at every erase block.
    pub(crate) fn in_all_blocks(reads: &mut PageReads<'_>, scan_from: u64) -> FoundPages {
        let geometry = reads.geometry();
        let filled = vec![Filled::default(); geometry.blocks() as usize];
        let mut found = FoundPages { pages: Vec::new(), filled };
        for block in (0..geometry.blocks()).map(EraseBlock) {
            found.visit(geometry.page(block, 0), reads, scan_from);
        }
        found.sorted()
    }

    /// Goes along the erase blocks that the seal and the log name, and that pages found there name. What `free` says is
    /// free, and nothing names, is erased; all else is filled.
    pub(crate) fn along(
        reads: &mut PageReads<'_>,
        seal: &Seal,
        free: &Stock,
        rules: FlashRules,
    ) -> FoundPages {
        let geometry = reads.geometry();
        let full = Filled { pages: geometry.pages_per_block, last_sequence: 0 };
        let blocks = (0..geometry.blocks()).map(EraseBlock);
        let filled = blocks.map(|block| if free.is_free(block) { Filled::default() } else { full }).collect();
        let mut found = FoundPages { pages: Vec::new(), filled };
        let opened = reads.openings().iter().map(|opening| geometry.page(opening.block, 0));
        let mut next: VecDeque<Page> = seal.stock.next.iter().copied().chain(opened).collect();
        let mut visited = vec![false; found.filled.len()];
        while let Some(first) = next.pop_front() {
            let block = geometry.block_of(first).0 as usize;
            if visited.get(block) != Some(&false) {
                continue;
            }
            visited[block] = true;
            let known = found.pages.len();
            found.visit(first, reads, seal.scan_from);
            if !rules.drops(FlashMutant::ChainCutShort) {
                let named = found.pages[known..].iter().map(|page| page.spare().next_block);
                let named = named.filter(|block| *block != EraseBlock::NONE);
                next.extend(named.map(|block| geometry.page(block, 0)));
            }
        }
        found.sorted()
    }

    /// Looks at the pages of an erase block from `first` on.
    fn visit(&mut self, first: Page, reads: &mut PageReads<'_>, scan_from: u64) {
        let geometry = reads.geometry();
        let (block, nth_last) = (geometry.block_of(first), geometry.pages_per_block - 1);
        let last = reads.read(geometry.page(block, nth_last), ReadFor::Probe);
        let mut filled = Filled { pages: geometry.pages_per_block, last_sequence: 0 };
        let read = match last.filter(|last| !last.spare().is_torn()) {
            Some(last) if last.spare().tag == Tag::Summary || last.spare().sequence < scan_from => {
                reads.summarised(last)
            }
            _ => {
                let nth_pages = geometry.nth_page(first)..nth_last;
                let mut pages: Vec<ReadPage> =
                    nth_pages.map_while(|nth| reads.read(geometry.page(block, nth), ReadFor::Scan)).collect();
                pages.extend(last);
                filled.pages = geometry.nth_page(first) + pages.len() as u32;
                pages
            }
        };
        for page in read.into_iter().filter(|page| !page.spare().is_torn()) {
            filled.last_sequence = filled.last_sequence.max(page.spare().sequence);
            if page.spare().sequence >= scan_from && page.page() >= first {
                self.pages.push(page);
            }
        }
        self.filled[block.0 as usize] = filled;
    }

    fn sorted(mut self) -> FoundPages {
        self.pages.sort_unstable_by_key(|page| page.spare().sequence);
        self
    }

    /// Behind the sequence numbers of all that was read.
    pub(crate) fn next_sequence(&self) -> u64 {
        let last = self.filled.iter().map(|filled| filled.last_sequence).max();
        last.map_or(0, |last| last + 1)
    }
}
