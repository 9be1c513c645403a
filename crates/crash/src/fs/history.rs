//! What a run did to a filesystem, what it was promised, and so what may be found after a power cut. It knows the
//! calls and what they mean, and nothing of journals, epochs or caches.
//!
//! *Operations* are numbered from 1. After a cut there is an operation k such that
//!
//! - the tree (names, sizes, permissions, attributes) is the one after k, no other: changes of the tree are
//!   atomic, and are lost from the end;
//! - k reaches as far as every acknowledged `fsync` and `sync` says, and each page that it covers holds what it
//!   held then, or something newer;
//! - what a barrier call covers is there, as far as anything is there that was done after the call returned;
//! - in journal mode ordered, a page whose place the tree knows holds what was written there when it got it, or
//!   something newer; in mode data, every page holds what it held after k;
//! - nothing else: every page holds what somebody wrote there, or zeros.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weir_fs::JournalMode;
use weir_storage::BLOCK_BYTES;

use super::tree::{FileId, Kind, Shape, Tree, pages_of};
use super::visible::Visible;

/// The number of an operation; 0 stands for the beginning.
pub(super) type Operation = u64;

/// A page of a file.
pub(super) type Page = Rc<[u8; BLOCK_BYTES]>;

/// What a page held from one operation on.
#[derive(Clone)]
struct Version {
    since: Operation,
    bytes: Page,
    placed: Placed,
}

/// Whether a page got its place with a version, or the end of the file cut it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Placed {
    No,
    /// The operation was done in part.
    Perhaps,
    Yes,
}

/// What a synchronisation call covers.
#[derive(Clone, Copy, Debug)]
struct Promise {
    /// The call; of barrier calls, what was done after it comes after.
    call: Operation,
    /// The file whose pages it covers; none for all.
    file: Option<FileId>,
    /// The tree reaches as far.
    tree: Operation,
}

/// The last operations that changed something of a file.
#[derive(Clone, Copy, Default)]
struct Changed {
    /// Anything that the tree shows, names included.
    anything: Operation,
    /// Its size, or where its pages are.
    size: Operation,
}

/// A file before an operation that may fail.
#[derive(Clone, Copy)]
pub(super) struct Before {
    operation: Operation,
    size_bytes: u64,
    changed: Changed,
}

/// How much a synchronisation call covers of the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reach {
    /// What it takes to read the pages: `fdatasync`, `fdatabarrier`.
    Data,
    /// All of the file: `fsync`, `fbarrier`.
    File,
    /// Everything: `sync`.
    Everything,
}

/// Why what was found cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Illegal {
    #[error("no operation leaves such a tree; {0}")]
    Tree(String),
    #[error("the tree is that after operation {at}, but operation {needed} is promised")]
    TreeTooOld { at: Operation, needed: Operation },
    #[error(
        "page {page} of file {file} holds what nobody wrote there, but {whose}; it begins with {begins:x?}"
    )]
    Foreign { file: FileId, page: u32, whose: String, begins: [u8; 16] },
    #[error("page {page} of file {file} is older than operation {needed}, which is promised")]
    PageTooOld { file: FileId, page: u32, needed: Operation },
}

/// What a run did.
pub(super) struct History {
    mode: JournalMode,
    /// Pages reach the disk by calls and commits only, which keep their order, and never by writeback.
    ordered_only: bool,
    tree: Tree,
    /// The tree's shape after each operation.
    shapes: Vec<Rc<Shape>>,
    pages: BTreeMap<(FileId, u32), Vec<Version>>,
    /// Pages that have a place and no content.
    reserved: BTreeSet<(FileId, u32)>,
    changed: BTreeMap<FileId, Changed>,
    durable: Vec<Promise>,
    barriers: Vec<Promise>,
    zeros: Page,
    next_file: FileId,
}

impl History {
    /// A filesystem that holds what was found, with the numbers of its inodes.
    pub(super) fn of(mode: JournalMode, ordered_only: bool, found: &Visible) -> History {
        let tree = found.tree.clone();
        let shapes = vec![Rc::new(tree.shape())];
        // The numbers of inodes are given again, those of the model's files are not.
        let next_file = 1 << 20;
        let version =
            |bytes: &[u8; BLOCK_BYTES]| Version { since: 0, bytes: Rc::new(*bytes), placed: Placed::No };
        let pages = found.pages().map(|(place, bytes)| (place, vec![version(bytes)])).collect();
        History {
            mode,
            ordered_only,
            tree,
            shapes,
            pages,
            reserved: BTreeSet::new(),
            changed: BTreeMap::new(),
            durable: Vec::new(),
            barriers: Vec::new(),
            zeros: Rc::new([0; BLOCK_BYTES]),
            next_file,
        }
    }

    /// The newest operation.
    pub(super) fn now(&self) -> Operation {
        self.shapes.len() as Operation - 1
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Begins an operation that changes the tree by `change`, and what it shows of `files`.
    pub(super) fn begin(&mut self, files: &[FileId], change: impl FnOnce(&mut Tree)) -> Operation {
        change(&mut self.tree);
        let shape = self.tree.shape();
        let same = self.shapes.last().filter(|last| ***last == shape && last.order == shape.order);
        let shape = same.map_or_else(|| Rc::new(shape), Rc::clone);
        self.shapes.push(shape);
        let now = self.now();
        for file in files {
            self.changed.entry(*file).or_default().anything = now;
        }
        now
    }

    /// A number for a new file.
    pub(super) fn new_file(&mut self) -> FileId {
        self.next_file += 1;
        self.next_file - 1
    }

    /// Begins an operation after which `file` has `size` bytes, as it may have had before.
    pub(super) fn resize(&mut self, file: FileId, size: u64) {
        if self.tree.size(file) == Some(size) {
            self.begin(&[], |_| {});
            return;
        }
        let before = self.tree.size(file).unwrap_or(0);
        self.begin(&[file], |tree| {
            tree.things.entry(file).and_modify(|thing| thing.kind = Kind::File { size });
        });
        self.move_place(file);
        let last = pages_of(before).saturating_sub(1);
        if size > before && !before.is_multiple_of(BLOCK_BYTES as u64) && self.has_place(file, last) {
            // What is behind the end in the last page becomes part of the file, as zeros.
            self.put(file, last, self.page(file, last), Placed::Yes);
        }
    }

    /// What a page holds now.
    pub(super) fn page(&self, file: FileId, page: u32) -> Page {
        let versions = self.pages.get(&(file, page));
        versions
            .and_then(|versions| versions.last())
            .map_or_else(|| Rc::clone(&self.zeros), |v| Rc::clone(&v.bytes))
    }

    /// Whether something was put into a page since it was last without a place.
    fn has_place(&self, file: FileId, page: u32) -> bool {
        let versions = self.pages.get(&(file, page));
        versions.and_then(|versions| versions.last()).is_some_and(|v| !Rc::ptr_eq(&v.bytes, &self.zeros))
    }

    fn put(&mut self, file: FileId, page: u32, bytes: Page, placed: Placed) {
        let since = self.now();
        self.pages.entry((file, page)).or_default().push(Version { since, bytes, placed });
    }

    /// The current operation puts `bytes` into a page.
    pub(super) fn write(&mut self, file: FileId, page: u32, bytes: Page) {
        let reserved = self.reserved.remove(&(file, page));
        let placed = !self.has_place(file, page);
        self.put(file, page, bytes, if placed && !reserved { Placed::Yes } else { Placed::No });
        if placed {
            self.move_place(file);
        }
    }

    /// The current operation takes a page's place away: it reads as zeros.
    pub(super) fn unplace(&mut self, file: FileId, page: u32) {
        self.reserved.remove(&(file, page));
        self.clear(file, page);
    }

    /// The current operation makes a page zeros, and gives it a place if it has none.
    pub(super) fn zero(&mut self, file: FileId, page: u32) {
        self.clear(file, page);
        self.reserve(file, page);
    }

    fn clear(&mut self, file: FileId, page: u32) {
        if self.has_place(file, page) {
            self.put(file, page, Rc::clone(&self.zeros), Placed::No);
            self.move_place(file);
        }
    }

    /// The current operation gives a page a place, but nothing to read there. It may have had one: what is not
    /// read is not known when a life begins.
    pub(super) fn reserve(&mut self, file: FileId, page: u32) {
        if !self.has_place(file, page) {
            self.reserved.insert((file, page));
        }
    }

    /// The current operation ends `file` at `size`: what was behind reads as zeros should it grow again.
    pub(super) fn cut(&mut self, file: FileId, size: u64) {
        let from = pages_of(size);
        let behind: Vec<u32> =
            self.pages.range((file, from)..=(file, u32::MAX)).map(|((_, page), _)| *page).collect();
        let reserved: Vec<u32> =
            self.reserved.range((file, from)..=(file, u32::MAX)).map(|(_, page)| *page).collect();
        behind.into_iter().chain(reserved).for_each(|page| self.unplace(file, page));
        let rest = (size % BLOCK_BYTES as u64) as usize;
        if rest > 0 && self.has_place(file, from - 1) {
            let mut bytes = *self.page(file, from - 1);
            if bytes[rest..].iter().any(|byte| *byte != 0) {
                bytes[rest..].fill(0);
                self.put(file, from - 1, Rc::new(bytes), Placed::Yes);
            }
        }
    }

    fn changed(&self, file: FileId) -> Changed {
        self.changed.get(&file).copied().unwrap_or_default()
    }

    /// What to go back to if an operation on a file fails.
    pub(super) fn before(&self, file: FileId) -> Before {
        let size_bytes = self.tree.size(file).unwrap_or(0);
        Before { operation: self.now(), size_bytes, changed: self.changed(file) }
    }

    /// What was begun on a file since then was not done, or in part. What it left is known by its content: which
    /// pages got a place, and which lost it, is not.
    pub(super) fn unchanged(&mut self, file: FileId, since: Before) {
        if self.tree.size(file).unwrap_or(0) == since.size_bytes {
            self.changed.insert(file, since.changed);
        }
        self.reserved.retain(|(reserved, _)| *reserved != file);
        let versions = self.pages.range_mut((file, 0)..=(file, u32::MAX)).flat_map(|(_, versions)| versions);
        versions
            .filter(|version| version.since > since.operation)
            .for_each(|version| version.placed = Placed::Perhaps);
    }

    fn move_place(&mut self, file: FileId) {
        let now = self.now();
        self.changed.entry(file).or_default().size = now;
    }

    /// A synchronisation call on `file` has returned.
    pub(super) fn promise(&mut self, file: FileId, reach: Reach, durable: bool) {
        let changed = self.changed(file);
        let (file, tree) = match reach {
            Reach::Data => (Some(file), changed.size),
            Reach::File => (Some(file), changed.anything.max(changed.size)),
            Reach::Everything => (None, self.now()),
        };
        let promise = Promise { call: self.now(), file, tree };
        self.barriers.push(promise);
        if durable {
            self.durable.push(promise);
        }
    }

    /// A number that changes whenever something is promised.
    pub(super) fn promises(&self) -> u64 {
        self.durable.len() as u64
    }

    /// Whether a power cut may have left what was found.
    pub(super) fn judge(&self, found: &Visible) -> Result<(), Illegal> {
        let mut why = None;
        let shape = found.tree.shape();
        // The newest first: what it fails by says most.
        for (k, mine) in self.shapes.iter().enumerate().rev() {
            if **mine != shape {
                continue;
            }
            match self.explains(k as Operation, mine, &shape, found) {
                Ok(()) => return Ok(()),
                Err(illegal) => why = why.or(Some(illegal)),
            }
        }
        let newest = self.shapes.last().map_or_else(String::new, |newest| newest.difference(&shape));
        Err(why.unwrap_or(Illegal::Tree(newest)))
    }

    /// Whether what was found may be left when the tree is that after `k`.
    fn explains(&self, k: Operation, mine: &Shape, theirs: &Shape, found: &Visible) -> Result<(), Illegal> {
        let files = || mine.order.iter().copied().zip(theirs.order.iter().copied());
        let mut seen = self.change_before(k);
        let mut pages = Vec::new();
        for (file, inode) in files() {
            let Some(size) = found.tree.size(inode) else { continue };
            for page in 0..pages_of(size) {
                let look = self.look(file, page, size, found.page(inode, page));
                if self.ordered_only {
                    seen = seen.max(look.as_ref().map_or(0, |look| look.oldest));
                }
                pages.push((file, inode, page, look));
            }
        }
        let promised = |promise: &&Promise| promise.call < seen;
        let promises = || self.barriers.iter().filter(promised).chain(&self.durable);
        if let Some(needed) = promises().map(|promise| promise.tree).max().filter(|needed| *needed > k) {
            return Err(Illegal::TreeTooOld { at: k, needed });
        }
        for (file, inode, page, look) in pages {
            let covers = |promise: &&Promise| promise.file.is_none_or(|covered| covered == file);
            let promised = promises().filter(covers).map(|promise| promise.call).max().unwrap_or(0);
            let needed = match self.mode {
                JournalMode::Writeback => promised,
                JournalMode::Ordered => promised.max(self.placed_before(file, page, k, Placed::Yes)),
                JournalMode::Data => promised.max(k),
            };
            match look {
                // In mode writeback a place may show what it held before, until somebody makes sure.
                _ if self.mode == JournalMode::Writeback
                    && self.placed_before(file, page, k, Placed::Perhaps) > promised => {}
                None => return Err(self.foreign(file, page, found.page(inode, page))),
                Some(look) if look.newest_from(self.version_at(file, page, needed)) => {}
                Some(_) => return Err(Illegal::PageTooOld { file, page, needed }),
            }
        }
        Ok(())
    }

    fn foreign(&self, file: FileId, page: u32, bytes: &[u8]) -> Illegal {
        let written = |versions: &Vec<Version>| {
            versions.iter().find(|version| version.bytes[..] == *bytes).map(|v| v.since)
        };
        let writer = self.pages.iter().find_map(|(place, versions)| Some((place, written(versions)?)));
        let whose = writer.map_or("nobody did elsewhere".to_owned(), |((file, page), operation)| {
            format!("operation {operation} did in page {page} of file {file}")
        });
        let begins = bytes.first_chunk().copied().unwrap_or_default();
        Illegal::Foreign { file, page, whose, begins }
    }

    /// The last operation up to `k` that changed the tree.
    fn change_before(&self, k: Operation) -> Operation {
        let shape = &self.shapes[k as usize];
        (1..=k).rev().find(|k| !Rc::ptr_eq(&self.shapes[*k as usize - 1], shape)).unwrap_or(0)
    }

    /// The version of a page in force after `operation`, as its place in the list; none for the first zeros.
    fn version_at(&self, file: FileId, page: u32, operation: Operation) -> Option<usize> {
        let versions = self.pages.get(&(file, page))?;
        versions.iter().rposition(|version| version.since <= operation)
    }

    /// The last operation up to `k` by which the page got its place, at least as surely as this.
    fn placed_before(&self, file: FileId, page: u32, k: Operation, surely: Placed) -> Operation {
        let versions = self.pages.get(&(file, page)).into_iter().flatten();
        let placed = |version: &&Version| {
            version.since <= k
                && (version.placed == Placed::Yes || (version.placed == surely && surely != Placed::No))
        };
        versions.filter(placed).map(|version| version.since).max().unwrap_or(0)
    }

    /// Which versions of a page, cut at the end of the file, `bytes` are; none if nobody wrote them.
    fn look(&self, file: FileId, page: u32, size: u64, bytes: &[u8]) -> Option<Look> {
        let end = (size - u64::from(page) * BLOCK_BYTES as u64).min(BLOCK_BYTES as u64) as usize;
        let mut look: Option<Look> = None;
        if bytes[..end].iter().all(|byte| *byte == 0) {
            look = Some(Look { oldest: 0, newest: None });
        }
        for (place, version) in self.pages.get(&(file, page)).into_iter().flatten().enumerate() {
            if version.bytes[..end] == bytes[..end] {
                let oldest = look.as_ref().map_or(version.since, |look| look.oldest);
                look = Some(Look { oldest, newest: Some(place) });
            }
        }
        look
    }
}

/// Which versions of a page somebody may be looking at.
struct Look {
    /// The operation of the oldest.
    oldest: Operation,
    /// The newest, as its place in the list; none for the zeros before all.
    newest: Option<usize>,
}

impl Look {
    /// Whether it may be as new as the version at `place`.
    fn newest_from(&self, place: Option<usize>) -> bool {
        self.newest >= place
    }
}
