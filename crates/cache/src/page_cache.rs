//! The page cache: how much file data is in memory, over all files, and how much of it is dirty.
//!
//! Pages belong to their files; what is here is the order in which they leave. A page that comes to the front of
//! the queue leaves if no caller has used it since it was queued, and goes to the back otherwise: what was used
//! longest ago leaves first, without anything to keep in order at every use.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};

use event_listener::Event;
use weir_journal::Disk;
use weir_runtime::Instant;
use weir_storage::BLOCK_BYTES;

use crate::file::CachedFile;
use crate::mutants::CacheRules;
use crate::options::CacheOptions;
use crate::pages::Eviction;
use crate::read_failures::ReadFailures;
use crate::writeback::writeback_task;

/// Pages looked at to make room for one, so that no insertion takes long.
const LOOKS: usize = 32;

/// A page in the queue.
struct QueueEntry {
    file: Weak<CachedFile>,
    index: u32,
    stamp: u64,
}

/// The pages of all files.
pub struct PageCache {
    pub(crate) disk: Rc<Disk>,
    pub(crate) failures: ReadFailures,
    pub(crate) rules: CacheRules,
    /// Limits, in pages.
    most: usize,
    dirty_background: usize,
    dirty_most: usize,
    queue: RefCell<VecDeque<QueueEntry>>,
    next_stamp: Cell<u64>,
    pages: Cell<usize>,
    dirty: Cell<usize>,
    /// Files with dirty pages, by when the first of them became dirty. What else has them keeps them in memory.
    dirty_files: RefCell<BTreeMap<(Instant, u32), Weak<CachedFile>>>,
    /// There is something for the writeback task.
    pub(crate) wanted: Event,
    /// Dirty pages were submitted.
    submitted: Event,
}

impl PageCache {
    /// An empty cache, and its writeback task.
    pub fn new(disk: Rc<Disk>, options: CacheOptions) -> Rc<PageCache> {
        let pages = |bytes: u64| usize::try_from(bytes / BLOCK_BYTES as u64).unwrap_or(usize::MAX);
        let most = pages(options.cache_bytes).max(64);
        // Dirty pages cannot leave: half of the cache is for the others.
        let dirty_most = pages(options.dirty_bytes).clamp(1, most / 2);
        let cache = Rc::new(PageCache {
            disk,
            failures: ReadFailures::default(),
            rules: options.rules,
            most,
            dirty_background: pages(options.dirty_background_bytes).min(dirty_most - 1),
            dirty_most,
            queue: RefCell::default(),
            next_stamp: Cell::new(0),
            pages: Cell::new(0),
            dirty: Cell::new(0),
            dirty_files: RefCell::default(),
            wanted: Event::new(),
            submitted: Event::new(),
        });
        drop(cache.disk.handle().spawn_thread("writeback", writeback_task(Rc::downgrade(&cache))));
        cache
    }

    /// Pages that may be in memory.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Pages in memory.
    pub fn pages(&self) -> usize {
        self.pages.get()
    }

    /// Pages that are dirty.
    pub fn dirty(&self) -> usize {
        self.dirty.get()
    }

    /// Counts a new page of a file, and gives its stamp. It may leave others no room.
    pub(crate) fn enter(&self, file: &Rc<CachedFile>, index: u32) -> u64 {
        let stamp = self.next_stamp.replace(self.next_stamp.get() + 1);
        self.queue.borrow_mut().push_back(QueueEntry { file: Rc::downgrade(file), index, stamp });
        self.pages.set(self.pages.get() + 1);
        stamp
    }

    /// Pages have left that were not asked to.
    pub(crate) fn left(&self, pages: usize) {
        self.pages.set(self.pages.get() - pages);
    }

    /// Lets pages go as far as there are too many. No caller may be looking at any.
    pub fn make_room(&self, entered: usize) {
        let mut looks = LOOKS * entered.max(1);
        while self.pages.get() > self.most && looks > 0 {
            looks -= 1;
            let Some(entry) = self.queue.borrow_mut().pop_front() else { return };
            let Some(file) = entry.file.upgrade() else { continue };
            let came_of_it = file.pages.borrow_mut().evict(entry.index, entry.stamp);
            match came_of_it {
                Eviction::Stays => self.queue.borrow_mut().push_back(entry),
                Eviction::Left => self.left(1),
                Eviction::Gone => {}
            }
        }
        // Entries of pages that are gone: forgotten when they are the most.
        let mut queue = self.queue.borrow_mut();
        if queue.len() > 2 * self.pages.get() + self.most.min(1 << 12) {
            queue.retain(|entry| {
                entry
                    .file
                    .upgrade()
                    .is_some_and(|file| file.pages.borrow().has_version(entry.index, entry.stamp))
            });
        }
    }

    /// A clean page of a file has become dirty.
    pub(crate) fn page_dirtied(&self, file: &Rc<CachedFile>) {
        self.dirty.set(self.dirty.get() + 1);
        if file.dirty_since.get().is_none() {
            let now = self.disk.handle().now();
            file.dirty_since.set(Some(now));
            let mut dirty_files = self.dirty_files.borrow_mut();
            dirty_files.insert((now, file.number), Rc::downgrade(file));
            if dirty_files.len() == 1 {
                self.wanted.notify(1);
            }
        }
        if self.dirty.get() == self.dirty_background + 1 {
            self.wanted.notify(1);
        }
    }

    /// Dirty pages of a file are so no more.
    pub(crate) fn pages_cleaned(&self, file: &CachedFile, pages: usize) {
        self.dirty.set(self.dirty.get() - pages);
        if let Some(since) = file.dirty_since.get()
            && file.pages.borrow().dirty() == 0
        {
            file.dirty_since.set(None);
            self.dirty_files.borrow_mut().remove(&(since, file.number));
        }
        if pages > 0 {
            self.submitted.notify(usize::MAX);
        }
    }

    /// Waits while there are more dirty pages than there may be. The caller holds no handle.
    pub async fn throttle(&self) {
        while self.dirty.get() >= self.dirty_most {
            let submitted = self.submitted.listen();
            self.wanted.notify(1);
            submitted.await;
        }
    }

    /// Pages that a writer may make dirty before it looks again.
    pub fn allowance(&self) -> usize {
        (self.dirty_most / 2).max(1)
    }

    pub(crate) fn has_too_many_dirty(&self) -> bool {
        self.dirty.get() > self.dirty_background
    }

    /// The file whose pages have been dirty longest, and since when.
    pub(crate) fn oldest_dirty(&self) -> Option<(Instant, Rc<CachedFile>)> {
        let dirty_files = self.dirty_files.borrow();
        dirty_files.iter().find_map(|((since, _), file)| Some((*since, file.upgrade()?)))
    }

    /// No caller has the filesystem any more: nothing more is written back. The storage may be mounted again.
    pub fn abandon(&self) {
        drop(self.dirty_files.take());
        self.wanted.notify(usize::MAX);
    }

    /// All files with dirty pages.
    pub fn dirty_files(&self) -> Vec<Rc<CachedFile>> {
        self.dirty_files.borrow().values().filter_map(Weak::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use weir_journal::JournalRules;
    use weir_runtime::{Buffer as Memory, Runtime, Simulation};

    use super::*;
    use crate::stage::new_cache;

    /// Plays with a cache of 64 pages, of which 10 may be dirty before writeback begins.
    fn play(script: impl AsyncFnOnce(Rc<PageCache>, Rc<CachedFile>)) {
        let runtime = Runtime::simulated(Simulation::default());
        let cache = new_cache(&runtime.handle(), CacheRules::all(), JournalRules::all());
        let file = CachedFile::new(12, &cache, None);
        runtime.block_on(script(cache, file)).expect("no stall");
    }

    fn insert(cache: &PageCache, file: &Rc<CachedFile>, index: u32, dirty: bool) {
        file.insert(index, u64::from(index), Rc::new(Memory::new(BLOCK_BYTES)));
        assert!(!dirty || file.change(index, 0, b"dirty"));
        cache.make_room(1);
    }

    #[test]
    fn what_was_used_longest_ago_leaves_first_and_dirty_pages_stay() {
        play(async |cache, file| {
            insert(&cache, &file, 0, true);
            for index in 1..1000 {
                assert!(file.pages.borrow_mut().read_page(1).is_some() || index == 1, "used all the time");
                insert(&cache, &file, index, false);
                assert!(cache.pages() <= 64);
            }
            let pages = file.pages.borrow();
            assert!(pages.contains(0), "dirty");
            assert!((950..1000).all(|index| pages.contains(index)) && !pages.contains(500));
            assert_eq!(pages.len(), cache.pages());
        });
    }

    #[test]
    fn entries_of_pages_that_are_gone_are_forgotten() {
        play(async |cache, file| {
            for _ in 0..1000 {
                insert(&cache, &file, 3, false);
                file.forget_clean(0..u32::MAX);
            }
            assert_eq!(cache.pages(), 0);
            assert!(cache.queue.borrow().len() < 200);
        });
    }

    #[test]
    fn too_many_dirty_pages_are_written_back_and_old_ones_too() {
        play(async |cache, file| {
            for index in 0..10 {
                insert(&cache, &file, index, true);
            }
            let clock = cache.disk.handle().clone();
            clock.sleep(std::time::Duration::from_secs(1)).await;
            assert_eq!(cache.dirty(), 10, "neither too many nor too old");
            insert(&cache, &file, 10, true);
            clock.sleep(std::time::Duration::from_secs(1)).await;
            assert_eq!((cache.dirty(), cache.oldest_dirty().is_none()), (0, true));
            insert(&cache, &file, 11, true);
            clock.sleep(std::time::Duration::from_secs(31)).await;
            assert_eq!(cache.dirty(), 0);
            assert!(file.is_on_disk());
        });
    }

    #[test]
    fn writers_wait_when_far_too_much_is_dirty() {
        play(async |cache, file| {
            for index in 0..32 {
                insert(&cache, &file, index, true);
            }
            cache.throttle().await;
            assert!(cache.dirty() < 32);
        });
    }
}
