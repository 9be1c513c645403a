//! What a run did to a filesystem, what it was promised, and so what may be found after a power cut. It knows the
//! calls and what they mean, and nothing of journals, epochs or caches.
//!
//! *Operations* are numbered from 1, in the order in which they began. One or more *tasks* do them, one after the
//! other each, and each below a directory of its own: its *part* of the tree. So operations of different tasks
//! commute, and an order between them is only what calls promise. After a cut there is an operation k of each
//! task such that
//!
//! - its part (names, sizes, permissions, attributes) is the one after k, no other: changes of the tree are
//!   atomic, and are lost from the end;
//! - so they are among tasks: with an operation that has changed some part go all operations, of any task, that had
//!   returned before that one began;
//! - k reaches as far as every acknowledged `fsync` and `sync` says, and each page that it covers holds what it
//!   held then, or something newer. A call covers what had returned before it began, no matter which task did it;
//! - what a barrier call covers is there, as far as anything is there that was begun after the call returned;
//! - in journal mode ordered, a page whose place the tree knows holds what was written there when it got it, or
//!   something newer; in mode data, every page holds what it held after k;
//! - nothing else: every page holds what was written there, or zeros; or garbage, where the storage says that a
//!   power cut leaves it, and something was written there that is newer than what the page has to hold at least.
//!
//! A filesystem that rolls forward promises something else of the tree: [`rolled`] has it.

mod judge;
mod rolled;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use weir_fs::{Engine, JournalMode};
use weir_storage::BLOCK_BYTES;

use super::ground::Watch;
use super::tree::{FileId, Kind, Shape, Tree, pages_of};
use super::visible::Visible;
pub(super) use judge::Illegal;
use rolled::FileCall;

/// The number of an operation; 0 stands for the beginning.
pub(super) type Operation = u64;

/// The number of the first file that is made in a round; those below are numbers of inodes that were there.
const FIRST_NEW: FileId = 1 << 20;

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

/// What a synchronisation call covers of one part.
#[derive(Clone, Copy, Debug)]
struct Promise {
    /// The newest operation when the call returned: what began after that comes after, where that is promised.
    returned: Operation,
    part: usize,
    /// The file whose pages it covers; none for all.
    file: Option<FileId>,
    /// The pages reach as far.
    pages: Operation,
    /// The tree reaches as far.
    tree: Operation,
}

/// A synchronisation call that has begun: what it promises when it returns.
pub(super) struct Call {
    operation: Operation,
    promises: Vec<Promise>,
    /// A flush had failed by then.
    late: bool,
}

/// On what guarantees a run is judged.
#[derive(Clone)]
pub(super) struct Guarantees {
    pub(super) mode: JournalMode,
    /// A page that was reserved may show what its blocks held before, as one may that gets its place in mode writeback:
    /// extents count as written before their data is durable.
    pub(super) uncovers: bool,
    /// The storage may fail: order is promised for power cuts only, durability for both (S5).
    pub(super) faulty: bool,
    /// Each part of a page of so many bytes holds what it held at some time.
    pub(super) tear_bytes: usize,
    /// What is being written may become garbage by a power cut, in each such part, until it is durable (S4).
    pub(super) corrupts: bool,
    /// Tells whether a flush has failed, where one may: then nothing is durable any more.
    pub(super) watch: Option<Rc<Watch>>,
    /// It is judged as one that rolls forward.
    pub(super) rolls_forward: Option<InPlace>,
}

/// Whether calls of a filesystem that rolls forward may overwrite pages in place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum InPlace {
    Never,
    FewPages,
}

impl Guarantees {
    /// What an engine promises in a journal mode, on storage that does not fail and tears no block.
    pub(super) fn from_engine(engine: Engine, mode: JournalMode) -> Guarantees {
        let mode = match (engine, mode) {
            // D is not flushed before JC.
            (Engine::AsyncCommit, JournalMode::Ordered) => JournalMode::Writeback,
            // What is not in the log is checked by it.
            (Engine::OptFs, _) => JournalMode::Data,
            (_, mode) => mode,
        };
        // Files that are written where space was only allocated, or zeroed, need this: a commit marks the extent as written, and
        // D is transferred then, but not flushed. So a power cut during the commit may leave the mark without D, and the page
        // shows what its blocks held before. No tree shows the mark, so it may have been made by any later operation.
        let uncovers = engine == Engine::AsyncCommit;
        Guarantees {
            mode,
            uncovers,
            faulty: false,
            tear_bytes: BLOCK_BYTES,
            corrupts: false,
            watch: None,
            rolls_forward: None,
        }
    }
}

/// The operations that changed something of a file.
#[derive(Clone, Default)]
struct Changed {
    /// Anything that the tree shows, names included.
    anything: Vec<Operation>,
    /// Its size, or where its pages are.
    size: Vec<Operation>,
}

/// The last of these up to `operation`.
fn last_until(operations: &[Operation], operation: Operation) -> Operation {
    operations.iter().rev().copied().find(|changed| *changed <= operation).unwrap_or(0)
}

/// A file before an operation that may fail.
#[derive(Clone, Copy)]
pub(super) struct Before {
    operation: Operation,
    size_bytes: u64,
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

/// What one task changes: a directory, and all below it.
#[derive(Clone)]
struct Part {
    /// The directory's name; none for the root.
    name: Option<&'static [u8]>,
    tree: Tree,
    /// Its operations, oldest first; the first is the beginning.
    steps: Vec<Step>,
    /// The last that has returned.
    ended: Operation,
    /// The steps of calls that failed: what one of these shows may have been so since its first.
    failed: Vec<Range<usize>>,
}

/// An operation, and what it left.
#[derive(Clone)]
struct Step {
    operation: Operation,
    tree: Rc<Tree>,
    shape: Rc<Shape>,
    /// The step that changed the shape last.
    changed_at: usize,
    /// What had returned when it began, of each task.
    after: Vec<Operation>,
}

/// What a run did.
#[derive(Clone)]
pub(super) struct History {
    guarantees: Guarantees,
    parts: Vec<Part>,
    newest: Operation,
    /// The part that a file is in.
    owners: BTreeMap<FileId, usize>,
    pages: BTreeMap<(FileId, u32), Vec<Version>>,
    /// Pages that have a place and no content.
    reserved: BTreeSet<(FileId, u32)>,
    /// Pages that are zeros and may have a place, in place of a division of their extent or behind an operation that was
    /// done in part, and the newest operation when they became so: what is written there next need not be given a place.
    zeroed: BTreeMap<(FileId, u32), Operation>,
    changed: BTreeMap<FileId, Changed>,
    /// Synchronisation calls, oldest first.
    calls: Vec<FileCall>,
    durable: Vec<Promise>,
    barriers: Vec<Promise>,
    zeros: Page,
    next_file: FileId,
    /// What was promised though it could not be.
    lie: Option<String>,
}

impl History {
    /// A filesystem that holds what was found, with the numbers of its inodes. There is a task for each of the
    /// directories with these names, or one for all.
    pub(super) fn from_visible(
        guarantees: Guarantees,
        found: &Visible,
        names: &[&'static [u8]],
    ) -> Result<History, Illegal> {
        let names = if names.is_empty() { vec![None] } else { names.iter().copied().map(Some).collect() };
        let (mut parts, mut owners) = (Vec::new(), BTreeMap::new());
        for (number, name) in names.iter().enumerate() {
            let tree = part_of(&found.tree, *name)?;
            owners.extend(tree.things.keys().map(|file| (*file, number)));
            let shape = Rc::new(tree.shape());
            let whole = Rc::new(tree.clone());
            let first = Step { operation: 0, tree: whole, shape, changed_at: 0, after: vec![0; names.len()] };
            parts.push(Part { name: *name, tree, steps: vec![first], ended: 0, failed: Vec::new() });
        }
        let version =
            |bytes: &[u8; BLOCK_BYTES]| Version { since: 0, bytes: Rc::new(*bytes), placed: Placed::No };
        let pages = found.pages().map(|(place, bytes)| (place, vec![version(bytes)])).collect();
        Ok(History {
            guarantees,
            parts,
            newest: 0,
            owners,
            pages,
            reserved: BTreeSet::new(),
            zeroed: BTreeMap::new(),
            changed: BTreeMap::new(),
            calls: Vec::new(),
            durable: Vec::new(),
            barriers: Vec::new(),
            zeros: Rc::new([0; BLOCK_BYTES]),
            // The numbers of inodes are given again, those of the model's files are not.
            next_file: FIRST_NEW,
            lie: None,
        })
    }

    /// The newest operation.
    pub(super) fn now(&self) -> Operation {
        self.newest
    }

    /// The part of a task.
    pub(super) fn tree(&self, part: usize) -> &Tree {
        &self.parts[part].tree
    }

    /// The first path of a file in a part.
    pub(super) fn path(&self, part: usize, file: FileId) -> Option<String> {
        let tree = &self.parts[part].tree;
        tree.path(tree.root, file, &mut BTreeSet::new())
    }

    /// Tasks.
    pub(super) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The part that holds a file, or held it.
    fn owner(&self, file: FileId) -> usize {
        self.owners.get(&file).copied().unwrap_or(0)
    }

    /// Begins an operation that changes a part by `change`, and what it shows of `files`.
    pub(super) fn begin(&mut self, part: usize, files: &[FileId], change: impl FnOnce(&mut Tree)) {
        self.newest += 1;
        let after = self.parts.iter().map(|part| part.ended).collect();
        self.parts[part].begin(self.newest, after, change);
        for file in files {
            self.changed.entry(*file).or_default().anything.push(self.newest);
        }
    }

    /// All operations that a task has begun have returned.
    pub(super) fn end(&mut self, part: usize) {
        let part = &mut self.parts[part];
        part.ended = part.last().operation;
    }

    /// A number for a new file of a part.
    pub(super) fn new_file(&mut self, part: usize) -> FileId {
        self.next_file += 1;
        self.owners.insert(self.next_file - 1, part);
        self.next_file - 1
    }

    /// The size of a file; none for what is not one.
    pub(super) fn size(&self, file: FileId) -> Option<u64> {
        self.parts[self.owner(file)].tree.size(file)
    }

    /// Begins an operation after which `file` has `size` bytes, as it may have had before.
    pub(super) fn resize(&mut self, file: FileId, size: u64) {
        let part = self.owner(file);
        if self.size(file) == Some(size) {
            self.begin(part, &[], |_| {});
            return;
        }
        let before = self.size(file).unwrap_or(0);
        self.begin(part, &[file], |tree| {
            tree.things.entry(file).and_modify(|thing| thing.kind = Kind::File { size });
        });
        self.move_place(file);
        let last = pages_of(before).saturating_sub(1);
        if size <= before || before.is_multiple_of(BLOCK_BYTES as u64) {
            return;
        }
        if self.has_place(file, last) {
            // What is behind the end in the last page becomes part of the file, as zeros.
            self.put(file, last, self.page(file, last), Placed::Yes);
        } else {
            if file < FIRST_NEW && !self.pages.contains_key(&(file, last)) {
                // It may have a place, and in it, behind the end, what was written there while a larger size was not
                // committed: in mode writeback that shows until the zeros are on the disk.
                self.zeroed.insert((file, last), self.newest);
                self.put(file, last, Rc::clone(&self.zeros), Placed::Perhaps);
            }
            self.write_again(file, last);
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
        // One of zeros in a file that was there may have a place.
        let known = file >= FIRST_NEW || self.pages.contains_key(&(file, page));
        let known = known && !self.zeroed.contains_key(&(file, page));
        let placed_now = match (placed && (!reserved || self.guarantees.uncovers), known) {
            (false, _) => Placed::No,
            (true, false) => Placed::Perhaps,
            (true, true) => Placed::Yes,
        };
        self.put(file, page, bytes, placed_now);
        if placed && known {
            self.move_place(file);
        }
    }

    /// The operation that is under way on a file makes zeros of some of its pages, as an extent cannot be divided. They
    /// have their place from then on, or keep it. Should it write to them, too, that may be an overwrite already.
    pub(super) fn zeros_written(&mut self, file: FileId, pages: Range<u32>) {
        let (now, ended) = (self.newest, self.parts[self.owner(file)].ended);
        for page in pages {
            self.zeroed.insert((file, page), now);
            let versions = self.pages.get_mut(&(file, page)).into_iter().flatten();
            versions
                .filter(|version| version.since > ended && version.placed == Placed::Yes)
                .for_each(|version| version.placed = Placed::Perhaps);
            // They may be zeros already, on the disk.
            self.write_again(file, page);
        }
    }

    /// A page reads as zeros behind an operation that was done in part. If it had a place before, it may have it still.
    pub(super) fn found_zeros(&mut self, file: FileId, page: u32, before: Before) {
        let mut versions = self.pages.get(&(file, page)).into_iter().flatten();
        let had = versions.rfind(|version| version.since <= before.operation);
        if had.is_some_and(|version| !Rc::ptr_eq(&version.bytes, &self.zeros)) {
            self.zeroed.insert((file, page), self.newest);
        }
        self.unplace(file, page);
    }

    /// An operation has taken the place of pages away, or their content: of those that it found to be zeros, too, but
    /// not of those that it made so.
    pub(super) fn freed(&mut self, file: FileId, pages: Range<u32>, operation: Before) {
        self.zeroed.retain(|(zeroed, page), since| {
            *zeroed != file || !pages.contains(page) || *since > operation.operation
        });
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

    /// The current operation makes a part of a page zeros, which keeps its place.
    pub(super) fn zero_part(&mut self, file: FileId, page: u32, part: Range<usize>) {
        if self.has_place(file, page) {
            let mut bytes = *self.page(file, page);
            bytes[part].fill(0);
            self.put(file, page, Rc::new(bytes), Placed::No);
        }
    }

    fn clear(&mut self, file: FileId, page: u32) {
        if self.has_place(file, page) {
            self.put(file, page, Rc::clone(&self.zeros), Placed::No);
            self.move_place(file);
        }
    }

    /// The current operation gives a page a place, but nothing to read there. It may have had one: what is not
    /// read is not known when a round begins.
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
                return;
            }
        }
        if rest > 0 {
            self.write_again(file, from - 1);
        }
    }

    /// A page is written again in its place, also if none of its bytes changes: a power cut may corrupt it. So are those with an
    /// old or a new end.
    fn write_again(&mut self, file: FileId, page: u32) {
        if self.guarantees.corrupts {
            self.put(file, page, self.page(file, page), Placed::No);
        }
    }

    /// What to go back to if an operation on a file fails.
    pub(super) fn before(&self, file: FileId) -> Before {
        Before { operation: self.newest, size_bytes: self.size(file).unwrap_or(0) }
    }

    /// What was begun on a file since then was not done, or in part. What it left is known by its content: which
    /// pages got a place, and which lost it, is not.
    pub(super) fn unchanged(&mut self, file: FileId, since: Before) {
        if self.size(file).unwrap_or(0) == since.size_bytes
            && let Some(changed) = self.changed.get_mut(&file)
        {
            changed.anything.retain(|operation| *operation <= since.operation);
            changed.size.retain(|operation| *operation <= since.operation);
        }
        let owner = self.owner(file);
        self.parts[owner].fail(since.operation);
        self.reserved.retain(|(reserved, _)| *reserved != file);
        let versions = self.pages.range_mut((file, 0)..=(file, u32::MAX)).flat_map(|(_, versions)| versions);
        versions
            .filter(|version| version.since > since.operation)
            .for_each(|version| version.placed = Placed::Perhaps);
    }

    fn move_place(&mut self, file: FileId) {
        self.changed.entry(file).or_default().size.push(self.newest);
    }

    /// A task begins a synchronisation call, on a file where it is one on a file. It covers what has returned.
    pub(super) fn call(&mut self, part: usize, file: FileId, reach: Reach) -> Call {
        self.end(part);
        self.begin(part, &[], |_| {});
        self.end(part);
        let nothing = Changed::default();
        let changed = self.changed.get(&file).unwrap_or(&nothing);
        let one = |part: usize, file, tree: &[&Vec<Operation>]| {
            let pages = self.parts[part].ended;
            let tree = tree.iter().map(|operations| last_until(operations, pages)).max().unwrap_or(pages);
            Promise { returned: 0, part, file, pages, tree }
        };
        let owner = self.owner(file);
        let promises = match reach {
            Reach::Data => vec![one(owner, Some(file), &[&changed.size])],
            Reach::File => vec![one(owner, Some(file), &[&changed.size, &changed.anything])],
            Reach::Everything => (0..self.parts.len()).map(|part| one(part, None, &[])).collect(),
        };
        let covered = (reach != Reach::Everything).then_some(file);
        let operation = self.newest;
        self.calls.push(FileCall { operation, file: covered, durable: false });
        let late = self.guarantees.watch.as_ref().is_some_and(|watch| watch.has_failed());
        Call { operation, promises, late }
    }

    /// A synchronisation call has returned.
    pub(super) fn promise(&mut self, call: Call, durable: bool) {
        if durable && call.late {
            let newest = self.newest;
            self.lie
                .get_or_insert_with(|| format!("operation {newest} is called durable after a failed flush"));
        }
        if let Some(made) = self.calls.iter_mut().rfind(|made| made.operation == call.operation) {
            made.durable |= durable;
        }
        for promise in call.promises {
            let promise = Promise { returned: self.newest, ..promise };
            if !self.guarantees.faulty {
                self.barriers.push(promise);
            }
            if durable {
                self.durable.push(promise);
            }
        }
    }

    /// What was promised though it could not be.
    pub(super) fn lie(&self) -> Option<&str> {
        self.lie.as_deref()
    }

    /// Whether what is read while no operation is under way is what was written.
    pub(super) fn judge_now(&mut self, found: &Visible) -> Result<(), Illegal> {
        let promises = self.durable.len();
        let all = self.call(0, self.parts[0].tree.root, Reach::Everything);
        self.durable.extend(all.promises);
        if let Some(made) = self.calls.last_mut() {
            made.durable = true;
        }
        let judged = self.judge(found);
        self.calls.pop();
        self.durable.truncate(promises);
        judged
    }

    /// Whether writes may have failed.
    pub(super) fn may_fail(&self) -> bool {
        self.guarantees.faulty
    }

    /// A number that changes whenever something is promised.
    pub(super) fn promises(&self) -> u64 {
        self.durable.len() as u64
    }
}

impl Part {
    fn last(&self) -> &Step {
        // There is the beginning, always.
        &self.steps[self.steps.len() - 1]
    }

    /// All that it has done after this operation was a call that failed.
    fn fail(&mut self, since: Operation) {
        let failed = self.until(since) + 1..self.steps.len();
        if !failed.is_empty() && self.failed.last() != Some(&failed) {
            self.failed.push(failed);
        }
    }

    /// The last step up to an operation.
    fn until(&self, operation: Operation) -> usize {
        self.steps.partition_point(|step| step.operation <= operation).saturating_sub(1)
    }

    /// The step by which what a step shows may have been so.
    fn began(&self, step: usize) -> &Step {
        let failed = self.failed.iter().find(|failed| failed.contains(&step));
        &self.steps[failed.map_or(step, |failed| failed.start)]
    }

    fn begin(&mut self, operation: Operation, after: Vec<Operation>, change: impl FnOnce(&mut Tree)) {
        change(&mut self.tree);
        let shape = self.tree.shape();
        let last = self.last();
        let same = *last.shape == shape && last.shape.order == shape.order;
        let (tree, shape, changed_at) = match same {
            true => (Rc::clone(&last.tree), Rc::clone(&last.shape), last.changed_at),
            false => (Rc::new(self.tree.clone()), Rc::new(shape), self.steps.len()),
        };
        self.steps.push(Step { operation, tree, shape, changed_at, after });
    }
}

/// A part of a tree: the directory of that name in its root, or all. There is nothing beside parts.
fn part_of(tree: &Tree, name: Option<&[u8]>) -> Result<Tree, Illegal> {
    let Some(name) = name else { return Ok(tree.clone()) };
    let directory = tree.names(tree.root).and_then(|names| names.get(name).copied());
    match directory.filter(|directory| tree.names(*directory).is_some()) {
        Some(directory) => Ok(tree.below(directory)),
        None => Err(Illegal::Tree(format!("the directory {} is gone", name.escape_ascii()))),
    }
}
