//! Pages that get their places when they are submitted, as in a log-structured filesystem.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use weir_block::Class;
use weir_journal::{JournalError, JournalRules, SyncedFile};
use weir_runtime::{Buffer, Runtime, Simulation};
use weir_storage::{BLOCK_BYTES, Extent, Lba, StorageError};

use super::{DirtyPage, PlacePages};
use crate::file::{BLOCK, CachedFile};
use crate::mutants::CacheRules;
use crate::page_cache::PageCache;
use crate::stage::new_cache;

/// The first block of the log.
const LOG: u64 = 100;

/// Appends pages to a log.
struct Appender {
    head: Cell<u64>,
    /// Where each block of the file is.
    map: RefCell<BTreeMap<u32, u64>>,
    /// What it was asked for last.
    asked: RefCell<Vec<DirtyPage>>,
    /// It gives no places, or the first only, in place of all.
    gives: Cell<Gives>,
}

#[derive(Clone, Copy)]
enum Gives {
    All,
    First,
    Nothing,
}

impl PlacePages for Appender {
    fn place_pages(&self, file: u32, pages: &[DirtyPage], _: Class) -> Result<Vec<u64>, StorageError> {
        assert_eq!(file, 12);
        self.asked.replace(pages.to_vec());
        let pages = match self.gives.get() {
            Gives::All => pages,
            Gives::First => &pages[..1],
            Gives::Nothing => return Err(StorageError::NoSpace),
        };
        let first = self.head.replace(self.head.get() + pages.len() as u64);
        let places: Vec<u64> = (first..).take(pages.len()).collect();
        self.map.borrow_mut().extend(pages.iter().map(|page| page.index).zip(places.iter().copied()));
        Ok(places)
    }
}

/// Plays with a file whose pages are appended to a log.
fn play(script: impl AsyncFnOnce(Rc<PageCache>, Rc<CachedFile>, Rc<Appender>)) {
    let runtime = Runtime::simulated(Simulation::default());
    let cache = new_cache(&runtime.handle(), CacheRules::all(), JournalRules::all());
    let placer = Rc::new(Appender {
        head: Cell::new(LOG),
        map: RefCell::default(),
        asked: RefCell::default(),
        gives: Cell::new(Gives::All),
    });
    let file = CachedFile::new(12, &cache, Some(Rc::clone(&placer) as Rc<dyn PlacePages>));
    runtime.block_on(script(cache, file, placer)).expect("no stall");
}

fn page(byte: u8) -> Rc<Buffer> {
    Rc::new(Buffer::copy_of(&[byte; BLOCK_BYTES]))
}

/// Submits what is dirty, and waits until it is transferred: where it was written.
async fn submit(file: &CachedFile) -> Vec<Extent> {
    assert_eq!(file.submit_dirty(Class::Ordered, Class::Ordered).await, Ok(true));
    let extents = file.in_flight.borrow().flights.iter().map(|flight| flight.extent).collect();
    file.wait_transferred().await.expect("transferred");
    file.check_written().expect("written");
    extents
}

/// What the disk has in each block.
async fn bytes_at(cache: &PageCache, blocks: Range<u64>) -> Vec<u8> {
    let content = cache.disk.read(blocks.start, (blocks.end - blocks.start) as u32).await.expect("read");
    content.chunks(BLOCK_BYTES).map(|block| block[0]).collect()
}

#[test]
fn each_version_of_a_page_goes_to_a_new_place_in_the_order_of_indexes() {
    play(async |cache, file, placer| {
        for index in [3, 1, 2] {
            file.insert_new(index, page(index as u8));
            assert_eq!((file.contains(index), file.place(index)), (true, None));
        }
        assert_eq!(cache.dirty(), 3);
        assert_eq!(submit(&file).await, [Extent::new(Lba(LOG), 3)]);
        assert_eq!([1, 2, 3].map(|index| file.place(index)), [Some(LOG), Some(LOG + 1), Some(LOG + 2)]);
        let new = [1, 2, 3].map(|index| DirtyPage { index, place: None });
        assert_eq!(*placer.asked.borrow(), new);

        assert!(file.change(2, 0, &[9; BLOCK_BYTES]));
        assert_eq!(file.place(2), Some(LOG + 1), "not submitted yet");
        assert_eq!(submit(&file).await, [Extent::new(Lba(LOG + 3), 1)]);
        assert_eq!(*placer.asked.borrow(), [DirtyPage { index: 2, place: Some(LOG + 1) }]);
        assert_eq!(file.place(2), Some(LOG + 3));
        assert_eq!(bytes_at(&cache, LOG..LOG + 4).await, [1, 2, 3, 9]);
    });
}

#[test]
fn a_page_that_has_left_is_read_from_its_newest_place() {
    play(async |cache, file, placer| {
        file.insert_new(2, page(1));
        submit(&file).await;
        assert!(file.change(2, 0, &[9; BLOCK_BYTES]));
        // Both versions are on their way.
        assert_eq!(file.submit_dirty(Class::Ordered, Class::Ordered).await, Ok(true));
        for index in 1000..1200 {
            file.insert(index, u64::from(index), page(0));
            cache.make_room(1);
            file.wait_transferred().await.expect("transferred");
        }
        assert!(!file.contains(2));
        let place = placer.map.borrow()[&2];
        let under_way = file.begin_read(place, 2..3);
        let (content, blocks) = under_way.content().await.expect("read");
        file.insert_read(place, blocks, 1, &content);
        let mut byte = [0];
        assert_eq!((file.copy(2 * BLOCK, &mut byte), byte), (1, [9]));
        assert_eq!(file.place(2), Some(LOG + 1));
    });
}

#[test]
fn a_page_that_changes_while_its_write_waits_gets_a_place_of_its_own_again() {
    play(async |cache, file, _| {
        file.insert_new(2, page(1));
        let clock = cache.disk.handle().clone();
        let submitting = Rc::clone(&file);
        let first = clock.spawn(async move { submitting.submit_dirty(Class::Ordered, Class::Ordered).await });
        while file.place(2).is_none() {
            clock.yield_now().await;
        }
        assert!(file.change(2, 0, &[9; BLOCK_BYTES]));
        assert_eq!(first.await.expect("not cancelled"), Ok(true));
        submit(&file).await;
        assert_eq!((cache.dirty(), file.place(2)), (0, Some(LOG + 1)));
        assert_eq!(bytes_at(&cache, LOG + 1..LOG + 2).await, [9]);
    });
}

#[test]
fn a_clean_page_that_is_marked_dirty_is_submitted_again_as_it_is() {
    play(async |cache, file, placer| {
        file.insert(5, 40, page(5));
        assert!(file.mark_dirty(5) && file.mark_dirty(5), "in memory");
        assert!(!file.mark_dirty(6), "not in memory");
        assert_eq!(cache.dirty(), 1);
        assert_eq!(submit(&file).await, [Extent::new(Lba(LOG), 1)]);
        assert_eq!(*placer.asked.borrow(), [DirtyPage { index: 5, place: Some(40) }]);
        assert_eq!((cache.dirty(), bytes_at(&cache, LOG..LOG + 1).await), (0, vec![5]));
    });
}

#[test]
fn a_block_that_was_moved_has_its_new_place_and_no_read_brings_the_old_one() {
    play(async |_, file, placer| {
        file.insert(5, 40, page(5));
        file.set_place(5, 70);
        assert_eq!(file.place(5), Some(70));
        assert!(file.change(5, 0, b"changed"));
        submit(&file).await;
        assert_eq!(*placer.asked.borrow(), [DirtyPage { index: 5, place: Some(70) }]);

        let under_way = file.begin_read(50, 10..14);
        file.set_place(12, 71);
        let (_, blocks) = under_way.content().await.expect("read");
        assert_eq!((blocks, file.contains(12)), (10..12, false), "the block is elsewhere");

        // A block is written to a new place while a read looks at the old one, which another file may have next.
        let under_way = file.begin_read(50, 20..24);
        file.insert_new(21, page(1));
        submit(&file).await;
        let (_, blocks) = under_way.content().await.expect("read");
        assert_eq!(blocks, 20..21);
    });
}

#[test]
fn pages_that_get_no_place_are_not_tried_again_and_not_called_written() {
    for (gives, cause) in [(Gives::Nothing, StorageError::NoSpace), (Gives::First, StorageError::Aborted)] {
        play(async |cache, file, placer| {
            placer.gives.set(gives);
            file.insert_new(1, page(1));
            file.insert_new(2, page(2));
            let failed = Err(JournalError::Storage(cause));
            assert_eq!(file.submit_dirty(Class::Ordered, Class::Ordered).await, failed);
            assert_eq!((cache.dirty(), cache.pages()), (0, 2));
            assert_eq!(file.submit_dirty(Class::Ordered, Class::Ordered).await, Ok(false));
            assert_eq!(file.check_written().map(|()| true), failed);
            // One that is changed later is a page as any other.
            placer.gives.set(Gives::All);
            assert!(file.change(1, 0, b"later"));
            assert_eq!(file.submit_dirty(Class::Ordered, Class::Ordered).await, Ok(true));
            assert!(file.place(1).is_some() && cache.dirty() == 0);
        });
    }
}
