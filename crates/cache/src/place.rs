//! The *places* of pages on the disk. A filesystem that writes in place gives a page its place when the page is put in. In a
//! log-structured one a page has none, or an old one, until it is submitted: the filesystem's [`PlacePages`] chooses it
//! then, anew for each version that is written.

use std::rc::Rc;

use weir_block::Class;
use weir_runtime::Buffer as Memory;
use weir_storage::StorageError;

use crate::file::CachedFile;

/// A dirty page that is about to be submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirtyPage {
    /// Which block of the file it is.
    pub index: u32,
    /// Where the disk has the version before it: a block of the disk; `None` if it has none.
    pub place: Option<u64>,
}

/// Chooses the places of dirty pages when they are submitted: a log-structured filesystem writes each version of a page to a
/// new place.
pub trait PlacePages {
    /// Places for these dirty pages of a file, one for each, which come in the order of their indexes. They are submitted with
    /// `class`.
    ///
    /// It is called by the caller that has the file's turn to submit, and returns before any other task runs: what it records
    /// in memory agrees with what the cache has. Space has to be there: whoever makes a page dirty has reserved it.
    ///
    /// # Errors
    /// It counts as a failed write of all of them: they stay in memory as long as there is room, and no call calls the file
    /// durable any more.
    fn place_pages(&self, file: u32, pages: &[DirtyPage], class: Class) -> Result<Vec<u64>, StorageError>;
}

impl CachedFile {
    /// Puts in a page that has no place yet, if none is there: it is dirty. The caller makes room for it then
    /// ([`PageCache::make_room`](crate::PageCache::make_room)). Only for a file whose pages are placed when they are submitted.
    pub fn insert_new(self: &Rc<CachedFile>, index: u32, content: Rc<Memory>) {
        debug_assert!(self.placer.is_some(), "nothing would give it a place");
        self.put_in(index, None, content);
        self.mark_dirty(index);
    }

    /// Makes a page dirty as it is, so that it is submitted again: whether it is in memory.
    pub fn mark_dirty(self: &Rc<CachedFile>, index: u32) -> bool {
        let Some(was_clean) = self.pages.borrow_mut().mark_dirty(index) else { return false };
        if was_clean {
            self.cache.page_dirtied(self);
        }
        true
    }

    /// A block of the file is at `place` from now on, with the content that it had, whether its page is in memory or not. No
    /// write of the page may wait to be submitted. What reads that are under way bring of it counts no more.
    pub fn set_place(&self, index: u32, place: u64) {
        self.pages.borrow_mut().set_place(index, place);
    }

    /// Gives the dirty pages their places, if the filesystem chooses them now.
    pub(crate) fn place_dirty(&self, class: Class) -> Result<(), StorageError> {
        let Some(placer) = &self.placer else { return Ok(()) };
        let pages = self.pages.borrow().dirty_pages();
        if pages.is_empty() {
            return Ok(());
        }
        let places = placer.place_pages(self.number, &pages, class)?;
        if places.len() != pages.len() {
            return Err(StorageError::Aborted);
        }
        let mut in_memory = self.pages.borrow_mut();
        for (page, place) in pages.iter().zip(places) {
            in_memory.set_place(page.index, place);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
