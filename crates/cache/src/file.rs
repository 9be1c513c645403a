//! A *cached file*: the pages of one file, and their way to the disk and back. It knows a file's number and its pages'
//! places on the disk, and nothing of what decides them.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use event_listener::Event;
use weir_block::Class;
use weir_journal::{JournalError, Local, OrderedData, Sequence, SyncedFile, TxHandle};
use weir_runtime::{Buffer as Memory, Instant, Semaphore};
use weir_storage::{BLOCK_BYTES, Ticket};

use crate::in_flight::InFlight;
use crate::mutants::CacheMutant;
use crate::page_cache::PageCache;
use crate::pages::Pages;
use crate::place::PlacePages;
use crate::readahead::Readahead;
use crate::units::blocks_to_end;

/// The pages of a file.
pub struct CachedFile {
    pub(crate) number: u32,
    pub(crate) pages: RefCell<Pages>,
    /// When the first of its dirty pages became so.
    pub(crate) dirty_since: Cell<Option<Instant>>,
    /// One permit: for a caller that submits its pages, or forgets some.
    pub(crate) submitting: Semaphore,
    pub(crate) in_flight: RefCell<InFlight>,
    pub(crate) readahead: RefCell<Readahead>,
    /// A read of some of its blocks is under way no more.
    pub(crate) read_ended: Event,
    /// The last transaction that refers to its data (J2).
    attached_in: Cell<Option<Sequence>>,
    /// Dirty pages were dropped: by the transaction that takes their blocks away no call misses them.
    pub(crate) dropped_in: Cell<Option<Sequence>>,
    /// Chooses its pages' places when they are submitted, if they get them then.
    pub(crate) placer: Option<Rc<dyn PlacePages>>,
    pub(crate) cache: Rc<PageCache>,
}

impl CachedFile {
    /// One without pages. Their places are those that they are put in with, or those that `placer` chooses.
    pub fn new(number: u32, cache: &Rc<PageCache>, placer: Option<Rc<dyn PlacePages>>) -> Rc<CachedFile> {
        Rc::new(CachedFile {
            number,
            pages: RefCell::default(),
            dirty_since: Cell::new(None),
            submitting: Semaphore::new(1),
            in_flight: RefCell::default(),
            readahead: RefCell::default(),
            read_ended: Event::new(),
            attached_in: Cell::new(None),
            dropped_in: Cell::new(None),
            placer,
            cache: Rc::clone(cache),
        })
    }

    /// Whether a page is in memory.
    pub fn contains(&self, index: u32) -> bool {
        self.pages.borrow().contains(index)
    }

    /// Where a page is on disk, if it is in memory and has a place.
    pub fn place(&self, index: u32) -> Option<u64> {
        self.pages.borrow().place(index)
    }

    /// The content of a page as of now, if it is in memory.
    pub fn snapshot(&self, index: u32) -> Option<Rc<Memory>> {
        self.pages.borrow().snapshot(index)
    }

    /// Puts a page in, if it is not there. The caller makes room for it then ([`PageCache::make_room`]).
    pub fn insert(self: &Rc<CachedFile>, index: u32, place: u64, content: Rc<Memory>) {
        self.put_in(index, Some(place), content);
    }

    pub(crate) fn put_in(self: &Rc<CachedFile>, index: u32, place: Option<u64>, content: Rc<Memory>) {
        if !self.contains(index) {
            let stamp = self.cache.enter(self, index);
            self.pages.borrow_mut().insert(index, place, content, stamp);
        }
    }

    /// Puts in a page that has no place yet, if none is there: it is dirty. The caller makes room for it then
    /// ([`PageCache::make_room`]). Only for a file whose pages are placed when they are submitted.
    pub fn insert_new(self: &Rc<CachedFile>, index: u32, content: Rc<Memory>) {
        debug_assert!(self.placer.is_some(), "nothing would give it a place");
        self.put_in(index, None, content);
        self.mark_dirty(index);
    }

    /// Changes bytes of a page, which is dirty then: whether it is in memory.
    pub fn change(self: &Rc<CachedFile>, index: u32, at: usize, bytes: &[u8]) -> bool {
        let Some(dirtied) = self.pages.borrow_mut().change(index, at, bytes) else { return false };
        if dirtied {
            self.cache.page_dirtied(self);
        }
        true
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

    /// Changes pages from a byte on, up to the first unit of which one is not in memory: how many bytes.
    pub fn overwrite(self: &Rc<CachedFile>, offset: u64, bytes: &[u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() {
            let (index, at) = split(offset + done as u64);
            let in_unit = blocks_to_end(index) as usize * BLOCK_BYTES - at;
            let end = done + in_unit.min(bytes.len() - done);
            let last = index_of(offset + end as u64 - 1);
            let in_parts = self.cache.rules.drops(CacheMutant::UnitInParts);
            if index < last && !in_parts && !(index..=last).all(|index| self.contains(index)) {
                break;
            }
            while done < end {
                let (index, at) = split(offset + done as u64);
                let taken = (BLOCK_BYTES - at).min(end - done);
                if !self.change(index, at, &bytes[done..done + taken]) {
                    return done;
                }
                done += taken;
            }
        }
        done
    }

    /// Forgets pages that are not dirty, since their content is elsewhere from now on.
    pub fn forget_clean(&self, range: Range<u32>) {
        let (gone, _) = self.pages.borrow_mut().forget(range);
        self.cache.left(gone);
    }

    /// The transaction must not be committed before the dirty pages of now are submitted (J2).
    pub fn attach(self: &Rc<CachedFile>, handle: &TxHandle) {
        let sequence = Some(handle.sequence());
        if self.attached_in.replace(sequence) != sequence {
            handle.attach(Rc::clone(self) as Rc<dyn OrderedData>);
        }
    }
}

impl OrderedData for CachedFile {
    fn id(&self) -> u64 {
        u64::from(self.number)
    }

    fn submit(&self, class: Class) -> Local<'_, Result<Vec<Ticket>, JournalError>> {
        Box::pin(async move {
            self.submit_dirty(class, class).await?;
            let tickets = self.untransferred();
            // What failed before is on the way no more: no commit block may refer to it (J2).
            self.check_written()?;
            Ok(tickets)
        })
    }
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        let pages = self.pages.get_mut().len();
        self.cache.left(pages);
    }
}

/// Bytes in a block, as offsets are counted.
pub const BLOCK: u64 = BLOCK_BYTES as u64;

/// The block that a byte is in, and the byte in it, for offsets of blocks that a file can have.
pub fn split(offset: u64) -> (u32, usize) {
    (index_of(offset), (offset % BLOCK) as usize)
}

/// The block that a byte is in.
pub fn index_of(offset: u64) -> u32 {
    u32::try_from(offset / BLOCK).unwrap_or(u32::MAX)
}
