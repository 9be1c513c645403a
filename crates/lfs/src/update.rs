//! An *update*: what is written to a file from the time when a caller began it until it is ended or abandoned ([`atomic`](crate::atomic)).

use std::cell::Cell;
use std::rc::Rc;

use weir_cache::StagedPages;

/// Pages that the updates of all files may have together: 16 MiB, so that memory has a bound.
pub(crate) const UPDATE_PAGES_MAX: u32 = 1 << 12;

/// The update of one file.
pub(crate) struct Update {
    pub(crate) staged: StagedPages,
    /// Pages that this update counts, and those of all updates together.
    pages: u32,
    all_pages: Rc<Cell<u32>>,
}

impl Update {
    /// An empty one, of a file of `size` bytes. Its pages count as some of `all_pages` until it is dropped.
    pub(crate) fn new(size: u64, all_pages: &Rc<Cell<u32>>) -> Update {
        Update { staged: StagedPages::new(size), pages: 0, all_pages: Rc::clone(all_pages) }
    }

    /// Pages that it has.
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    /// Counts so many pages more, if there is room for them.
    pub(crate) fn take_room(&mut self, pages: u32) -> bool {
        let all = self.all_pages.get().saturating_add(pages);
        if all > UPDATE_PAGES_MAX {
            return false;
        }
        self.all_pages.set(all);
        self.pages += pages;
        true
    }
}

impl Drop for Update {
    fn drop(&mut self) {
        self.all_pages.set(self.all_pages.get() - self.pages);
    }
}
