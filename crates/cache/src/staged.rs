//! *Staged pages*: what was written to a file and is to become part of it as a whole or not at all. The file's own pages, in memory
//! and on the disk, are as they were.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use weir_runtime::Buffer;
use weir_storage::BLOCK_BYTES;

use crate::file::{BLOCK, index_of, split};

/// The staged pages of one file.
pub struct StagedPages {
    /// Pages as they are to be, whole.
    pages: BTreeMap<u32, Rc<Buffer>>,
    /// The size that the file is to have, in bytes.
    size: u64,
}

/// What a read finds in staged pages.
pub struct StagedView {
    offset: u64,
    /// How many bytes there are to be read.
    pub length: usize,
    pages: Vec<(u32, Rc<Buffer>)>,
}

impl StagedPages {
    /// None, of a file of `size` bytes.
    #[must_use]
    pub fn new(size: u64) -> StagedPages {
        StagedPages { pages: BTreeMap::new(), size }
    }

    /// The size that the file is to have, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The file is to have at least so many bytes.
    pub fn grow(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    /// What a page is to be, if it is staged.
    #[must_use]
    pub fn page(&self, index: u32) -> Option<&Rc<Buffer>> {
        self.pages.get(&index)
    }

    /// The staged pages of a range, in order.
    pub fn pages_in(&self, range: Range<u32>) -> impl Iterator<Item = (u32, &Rc<Buffer>)> {
        self.pages.range(range).map(|(index, content)| (*index, content))
    }

    /// All of them, in order.
    pub fn all(&self) -> impl Iterator<Item = (u32, &Rc<Buffer>)> {
        self.pages.iter().map(|(index, content)| (*index, content))
    }

    /// Changes bytes of a page from `at` on. `base` is what it holds, should it not be staged yet; `None` if all of it is replaced, or
    /// the rest is zeros.
    pub fn change(&mut self, index: u32, at: usize, bytes: &[u8], base: Option<Rc<Buffer>>) {
        let base = || base.unwrap_or_else(|| Rc::new(Buffer::new(BLOCK_BYTES)));
        let content = self.pages.entry(index).or_insert_with(base);
        Rc::make_mut(content)[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Writes bytes from `offset` on, behind which the file ends at the earliest. `bases` is what the pages hold that are replaced in part,
    /// those that are staged may be left out.
    pub fn write(&mut self, offset: u64, bytes: &[u8], bases: &[(u32, Rc<Buffer>)]) {
        let mut done = 0;
        while done < bytes.len() {
            let (index, at) = split(offset + done as u64);
            let taken = (BLOCK_BYTES - at).min(bytes.len() - done);
            let base = bases.iter().find(|(base, _)| *base == index).map(|(_, content)| Rc::clone(content));
            self.change(index, at, &bytes[done..done + taken], base);
            done += taken;
        }
        self.grow(offset + bytes.len() as u64);
    }

    /// What a read from `offset` on finds, of `most` bytes.
    #[must_use]
    pub fn view(&self, offset: u64, most: usize) -> StagedView {
        let end = offset.saturating_add(most as u64).min(self.size);
        if offset >= end {
            return StagedView { offset, length: 0, pages: Vec::new() };
        }
        let pages = self.pages_in(index_of(offset)..index_of(end - 1).saturating_add(1));
        let pages = pages.map(|(index, content)| (index, Rc::clone(content))).collect();
        StagedView { offset, length: (end - offset) as usize, pages }
    }
}

impl StagedView {
    /// Lays the staged pages over what was read of the file itself, `read` bytes.
    pub fn lay_over(&self, bytes: &mut [u8], read: usize) {
        let bytes = &mut bytes[..self.length];
        bytes[read.min(self.length)..].fill(0);
        let (offset, end) = (self.offset, self.offset + self.length as u64);
        for (index, content) in &self.pages {
            let start = u64::from(*index) * BLOCK;
            let (from, to) = (start.max(offset), (start + BLOCK).min(end));
            bytes[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&content[(from - start) as usize..(to - start) as usize]);
        }
    }
}
