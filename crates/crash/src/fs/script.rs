//! Random operations on a mounted filesystem, told to its history. Few names, few pages and little space, so that
//! names are given again, pages are overwritten, and blocks are used by one file after the other.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use weir_ext4::{FileType, ROOT_INODE};
use weir_fs::{AttributeChanges, Expect, Fallocate, Filesystem, FsError, InodeNumber, NewNode, RenameFlags};
use weir_runtime::{Handle, Random};
use weir_storage::BLOCK_BYTES;

use super::history::{Before, History, Reach};
use super::tree::{FileId, Kind, Thing, Tree, pages_of};
use super::visible::{ATTRIBUTE, BALLAST};
use crate::content::mix;
use crate::options::pick;

/// Names in each directory.
const NAMES: [&[u8]; 5] = [b"a", b"b", b"c", b"log", b"a name that is somewhat longer than the others"];
const PAGE: u64 = BLOCK_BYTES as u64;
/// Attempts to make something durable when the storage has failed.
const SYNCS_AFTER_FAILURE: u32 = 4;
/// Pages that are written one by one, at most, so that a file has many extents.
const SCATTERED_MAX: u64 = 16;
/// Pages that are allocated in advance before the filesystem is made full, and what is done to them then.
const AHEAD: u64 = 11;
const FULL_OPERATIONS: u32 = 8;

/// Of so many files, one is made without a name and gets it then.
const NAMED_LATER: FileId = 4;

/// Of so many operations, a trim comes before one.
const TRIMS: u64 = 48;

/// What scripts of a run have in common.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    /// Pages of a file, at most.
    pub pages_max: u64,
    /// The storage may fail, and calls with it.
    pub faulty: bool,
    /// Free space is trimmed now and then.
    pub trims: bool,
    /// Calls that promise durability keep it; without flushes they only order.
    pub flushes: bool,
}

/// A workload that goes on for as long as it is asked to.
pub(super) struct Script {
    handle: Handle,
    fs: Filesystem,
    history: Rc<RefCell<History>>,
    /// The number of its task, and of the part of the tree that it changes.
    part: usize,
    pub(super) random: Random,
    inodes: Rc<RefCell<Inodes>>,
    /// Files that are held open after their last name is gone.
    held: Vec<InodeNumber>,
    /// Pages of a file, at most.
    pages_max: u64,
    /// The storage may fail, and calls with it.
    faulty: bool,
    /// Calls that promise durability keep it.
    flushes: bool,
    /// Says when free space is trimmed, where it is.
    trimmer: Option<Random>,
    /// Counts writes: no two write the same.
    written: u64,
    /// Writes into what was allocated, holes and zeros while the filesystem was full.
    pub(super) when_full: u64,
    /// What was done, for those who look for the reason of a failure.
    story: Rc<RefCell<Vec<String>>>,
}

/// The inodes of the model's files, of all tasks.
pub(super) type Inodes = BTreeMap<FileId, InodeNumber>;

/// What may fail for want of space.
enum Outcome {
    Done,
    NoSpace,
}

fn outcome(what: &str, result: Result<(), FsError>) -> Result<Outcome, String> {
    match result {
        Ok(()) => Ok(Outcome::Done),
        Err(FsError::NoSpace) => Ok(Outcome::NoSpace),
        Err(error) => Err(format!("{what}: {error}")),
    }
}

impl Script {
    /// The script of the task `part`, on a filesystem that holds what `history` begins with.
    pub(super) fn new(
        handle: &Handle,
        fs: Filesystem,
        history: Rc<RefCell<History>>,
        part: usize,
        plan: Plan,
        inodes: Rc<RefCell<Inodes>>,
        story: Rc<RefCell<Vec<String>>>,
    ) -> Script {
        // The numbers of the model's first files are those of their inodes.
        inodes.borrow_mut().extend(history.borrow().tree(part).things.keys().map(|id| (*id, *id)));
        let random = handle.random("script");
        Script {
            handle: handle.clone(),
            fs,
            history,
            part,
            random,
            inodes,
            held: Vec::new(),
            pages_max: plan.pages_max,
            faulty: plan.faulty,
            flushes: plan.flushes,
            trimmer: plan.trims.then(|| handle.random("trim")),
            written: mix(handle.now().as_nanos(), part as u64),
            when_full: 0,
            story,
        }
    }

    /// One operation, or a few; whether there may be more.
    pub(super) async fn step(&mut self) -> Result<bool, String> {
        match self.one().await {
            Ok(()) => {
                self.history.borrow_mut().end(self.part);
                Ok(true)
            }
            // What was under way stays so. Whoever says from now on that something is durable has to be right.
            Err(what) if self.faulty => {
                self.tell(format!("fails: {what}"));
                for _ in 0..SYNCS_AFTER_FAILURE {
                    drop(self.synchronise().await);
                }
                Ok(false)
            }
            Err(what) => Err(what),
        }
    }

    async fn one(&mut self) -> Result<(), String> {
        if self.trimmer.as_mut().is_some_and(|random| random.below(TRIMS) == 0) {
            self.tell("trim".to_owned());
            self.fs.trim(0..u64::MAX, 0).await.map_err(|error| format!("trim: {error}"))?;
        }
        match self.random.below(64) {
            0..20 => self.write().await,
            20..24 => self.truncate().await,
            24..27 => self.fallocate().await,
            27..33 => self.create().await,
            33 | 34 => self.link().await,
            35 => self.symlink().await,
            36..39 => self.remove().await,
            39..42 => self.rename().await,
            42 => self.permissions().await,
            43 => self.attribute().await,
            44 => self.release().await,
            45..47 => self.log_then_overwrite().await,
            47..59 => self.synchronise().await,
            59 => self.scatter().await,
            60 => self.preallocate().await,
            61 => self.when_full().await,
            _ => {
                let pause = pick(&mut self.random, &[1_000, 50_000, 2_000_000]);
                self.handle.sleep(Duration::from_nanos(self.random.below(pause))).await;
                Ok(())
            }
        }
    }

    /// Unmounts, when all tasks have ended; everything is durable then. Files that are held open are lost.
    pub(super) async fn unmount(&mut self) -> Result<(), String> {
        let call = self.history.borrow_mut().call(self.part, ROOT_INODE, Reach::Everything);
        self.fs.clone().unmount().await.map_err(|error| format!("unmount: {error}"))?;
        self.history.borrow_mut().promise(call, true);
        Ok(())
    }

    /// Closes what is held open.
    pub(super) async fn release_all(&mut self) -> Result<(), String> {
        while !self.held.is_empty() {
            self.release().await?;
        }
        Ok(())
    }

    /// Some file, directory or link of the tree for which `is` holds.
    fn choose(&mut self, is: impl Fn(&Thing) -> bool) -> Option<FileId> {
        let history = self.history.borrow();
        let found: Vec<FileId> =
            history.tree(self.part).things.iter().filter(|(_, thing)| is(thing)).map(|(id, _)| *id).collect();
        drop(history);
        (!found.is_empty()).then(|| found[self.random.below(found.len() as u64) as usize])
    }

    fn file(&mut self) -> Option<FileId> {
        let most = self.pages_max * PAGE;
        self.choose(|thing| matches!(thing.kind, Kind::File { size } if size <= most))
    }

    fn root(&self) -> FileId {
        self.history.borrow().tree(self.part).root
    }

    fn directory(&mut self) -> FileId {
        let root = self.root();
        self.choose(|thing| matches!(thing.kind, Kind::Directory(_))).unwrap_or(root)
    }

    /// A name in some directory, and what it stands for.
    fn place(&mut self) -> (FileId, &'static [u8], Option<FileId>) {
        let directory = self.directory();
        let name = pick(&mut self.random, &NAMES);
        let stands_for =
            self.history.borrow().tree(self.part).names(directory).and_then(|names| names.get(name).copied());
        (directory, name, stands_for)
    }

    /// Tells what is done next.
    fn tell(&self, what: String) {
        let now = self.history.borrow().now() + 1;
        self.story.borrow_mut().push(format!("task {}, {now}: {what}", self.part));
    }

    fn inode(&self, id: FileId) -> Result<InodeNumber, String> {
        self.inodes.borrow().get(&id).copied().ok_or_else(|| format!("file {id} has no inode"))
    }

    /// An operation that changes names: the model first, then the filesystem; the model back if there is no space.
    async fn change(
        &mut self,
        what: &str,
        files: &[FileId],
        change: impl FnOnce(&mut Tree),
        work: impl AsyncFnOnce(&Filesystem) -> Result<(), FsError>,
    ) -> Result<Outcome, String> {
        self.tell(format!("{what} {files:?}"));
        let (tree, before) = {
            let history = self.history.borrow();
            let before: Vec<Before> = files.iter().map(|file| history.before(*file)).collect();
            (history.tree(self.part).clone(), before)
        };
        self.history.borrow_mut().begin(self.part, files, change);
        let outcome = outcome(what, work(&self.fs).await)?;
        if matches!(outcome, Outcome::NoSpace) {
            let history = &mut *self.history.borrow_mut();
            history.begin(self.part, &[], |now| *now = tree);
            files.iter().zip(before).for_each(|(file, before)| history.unchanged(*file, before));
        }
        Ok(outcome)
    }

    async fn create(&mut self) -> Result<(), String> {
        let (directory, name, None) = self.place() else { return Ok(()) };
        let is_directory = self.random.below(4) == 0;
        let permissions = pick(&mut self.random, &[0o644, 0o600]);
        self.make(directory, name, is_directory, permissions).await.map(drop)
    }

    async fn make(
        &mut self,
        directory: FileId,
        name: &[u8],
        is_directory: bool,
        permissions: u16,
    ) -> Result<Option<FileId>, String> {
        let id = self.history.borrow_mut().new_file(self.part);
        let (kind, model) = match is_directory {
            true => (FileType::Directory, Kind::Directory(BTreeMap::new())),
            false => (FileType::Regular, Kind::File { size: 0 }),
        };
        let at = self.inode(directory)?;
        let mut made = 0;
        let change = |tree: &mut Tree| {
            enter(tree, directory, name, id, Thing { kind: model, permissions, attribute: None })
        };
        let work = async |fs: &Filesystem| {
            let new = NewNode::new(kind, permissions);
            made = match kind == FileType::Regular && id.is_multiple_of(NAMED_LATER) {
                true => create_named_later(fs, at, name, &new).await?,
                false => fs.create(at, name, &new).await?,
            };
            Ok(())
        };
        if let Outcome::NoSpace = self.change("create", &[id, directory], change, work).await? {
            return Ok(None);
        }
        self.inodes.borrow_mut().insert(id, made);
        Ok(Some(id))
    }

    async fn symlink(&mut self) -> Result<(), String> {
        let (directory, name, None) = self.place() else { return Ok(()) };
        let id = self.history.borrow_mut().new_file(self.part);
        let target = vec![b'x'; pick(&mut self.random, &[5, 59, 60, 300])];
        let thing =
            Thing { kind: Kind::Symlink { target: target.clone() }, permissions: 0o777, attribute: None };
        let at = self.inode(directory)?;
        let mut made = 0;
        let work = async |fs: &Filesystem| {
            made = fs.symlink(at, name, &target, (0, 0)).await?;
            Ok(())
        };
        let change = |tree: &mut Tree| enter(tree, directory, name, id, thing);
        if let Outcome::Done = self.change("symlink", &[id, directory], change, work).await? {
            self.inodes.borrow_mut().insert(id, made);
        }
        Ok(())
    }

    async fn link(&mut self) -> Result<(), String> {
        let (directory, name, None) = self.place() else { return Ok(()) };
        let Some(file) = self.file() else { return Ok(()) };
        let (at, inode) = (self.inode(directory)?, self.inode(file)?);
        let change = |tree: &mut Tree| {
            if let Some(names) = tree.names_mut(directory) {
                names.insert(name.to_vec(), file);
            }
        };
        self.change("link", &[file, directory], change, async |fs| fs.link(inode, at, name).await)
            .await
            .map(drop)
    }

    async fn remove(&mut self) -> Result<(), String> {
        let (directory, name, Some(id)) = self.place() else { return Ok(()) };
        let at = self.inode(directory)?;
        let change = |tree: &mut Tree| take(tree, directory, name);
        let names = self.history.borrow().tree(self.part).names(id).map(BTreeMap::len);
        match names {
            Some(0) => {
                self.change("rmdir", &[id, directory], change, async |fs| fs.rmdir(at, name).await).await?
            }
            Some(_) => return Ok(()),
            None => {
                let inode = self.inode(id)?;
                if self.random.below(4) == 0 {
                    self.fs.open(inode).await.map_err(|error| format!("open: {error}"))?;
                    self.held.push(inode);
                }
                self.change("unlink", &[id, directory], change, async |fs| fs.unlink(at, name).await).await?
            }
        };
        Ok(())
    }

    async fn release(&mut self) -> Result<(), String> {
        match self.held.pop() {
            Some(inode) => self.fs.release(inode).await.map_err(|error| format!("release: {error}")),
            None => Ok(()),
        }
    }

    async fn rename(&mut self) -> Result<(), String> {
        let (from, old, Some(id)) = self.place() else { return Ok(()) };
        let (to, new, replaced) = self.place();
        let moved_is_directory = self.history.borrow().tree(self.part).names(id).is_some();
        let fits = {
            let history = self.history.borrow();
            let tree = history.tree(self.part);
            let replaced_fits = replaced.is_none_or(|other| match tree.names(other) {
                Some(names) => moved_is_directory && names.is_empty(),
                None => !moved_is_directory,
            });
            replaced_fits && replaced != Some(id) && !is_below(tree, id, to)
        };
        if !fits {
            return Ok(());
        }
        let (source, target) = (self.inode(from)?, self.inode(to)?);
        let change = |tree: &mut Tree| {
            if replaced.is_some() {
                take(tree, to, new);
            }
            if let Some(names) = tree.names_mut(from) {
                names.remove(old);
            }
            if let Some(names) = tree.names_mut(to) {
                names.insert(new.to_vec(), id);
            }
        };
        let work =
            async |fs: &Filesystem| fs.rename((source, old), (target, new), RenameFlags::default()).await;
        let files: Vec<FileId> = [id, from, to].into_iter().chain(replaced).collect();
        self.change("rename", &files, change, work).await.map(drop)
    }

    async fn permissions(&mut self) -> Result<(), String> {
        let Some(file) = self.file() else { return Ok(()) };
        let permissions = self.random.below(0o1000) as u16;
        let inode = self.inode(file)?;
        let change = |tree: &mut Tree| {
            tree.things.entry(file).and_modify(|thing| thing.permissions = permissions);
        };
        let changes = AttributeChanges { permissions: Some(permissions), ..AttributeChanges::default() };
        self.change("permissions", &[file], change, async |fs| fs.set_attributes(inode, &changes).await)
            .await
            .map(drop)
    }

    async fn attribute(&mut self) -> Result<(), String> {
        let Some(file) = self.file() else { return Ok(()) };
        let value = vec![self.random.below(256) as u8; pick(&mut self.random, &[1, 40, 900])];
        let inode = self.inode(file)?;
        let change = |tree: &mut Tree| {
            tree.things.entry(file).and_modify(|thing| thing.attribute = Some(value.clone()));
        };
        let work = async |fs: &Filesystem| {
            fs.set_extended_attribute(inode, ATTRIBUTE, &value, Expect::Anything).await
        };
        self.change("attribute", &[file], change, work).await.map(drop)
    }

    async fn write(&mut self) -> Result<(), String> {
        let Some(file) = self.file() else { return self.create().await };
        let size = self.size(file);
        let offset = match self.random.below(8) {
            0..3 => size,
            3 => size.next_multiple_of(PAGE),
            4..7 if size > 0 => self.random.below(size) / PAGE * PAGE,
            _ => self.random.below(self.pages_max * PAGE),
        };
        let length = match self.random.below(4) {
            0 => 1 + self.random.below(2 * PAGE),
            _ => PAGE * (1 + self.random.below(3)),
        };
        let length = length.min((self.pages_max * PAGE).saturating_sub(offset));
        self.write_at(file, offset, length).await.map(drop)
    }

    fn size(&self, file: FileId) -> u64 {
        self.history.borrow().size(file).unwrap_or(0)
    }

    async fn write_at(&mut self, file: FileId, offset: u64, length: u64) -> Result<Outcome, String> {
        if length == 0 {
            return Ok(Outcome::Done);
        }
        let inode = self.inode(file)?;
        self.tell(format!("write to {file}, inode {inode}: {length} bytes at {offset}"));
        self.written += 1;
        let bytes: Vec<u8> = stream(self.written).take(length as usize).collect();
        let before = self.history.borrow().before(file);
        // It may take a transaction for each page, where space is scarce.
        for page in offset / PAGE..=(offset + length - 1) / PAGE {
            self.grow(file, (offset + length).min((page + 1) * PAGE));
            let history = &mut *self.history.borrow_mut();
            let mut content = *history.page(file, page as u32);
            let from = offset.max(page * PAGE);
            let to = (offset + length).min((page + 1) * PAGE);
            content[(from - page * PAGE) as usize..(to - page * PAGE) as usize]
                .copy_from_slice(&bytes[(from - offset) as usize..(to - offset) as usize]);
            history.write(file, page as u32, Rc::new(content));
        }
        match self.fs.write(inode, offset, &bytes).await {
            Ok(written) if written == bytes.len() => Ok(Outcome::Done),
            Ok(_) | Err(FsError::NoSpace) => {
                self.look_again(file, before).await?;
                Ok(Outcome::NoSpace)
            }
            Err(error) => Err(format!("write: {error}")),
        }
    }

    /// Writes a page here and there, so that it takes more than one transaction to free them.
    async fn scatter(&mut self) -> Result<(), String> {
        let Some(file) = self.file() else { return Ok(()) };
        let from = self.random.below(self.pages_max / 2);
        let pages = (self.pages_max - from).div_ceil(2).min(SCATTERED_MAX);
        for page in 0..pages {
            self.write_at(file, (from + 2 * page) * PAGE, PAGE).await?;
            self.history.borrow_mut().end(self.part);
        }
        Ok(())
    }

    /// Begins an operation after which `file` has at least `size` bytes.
    fn grow(&mut self, file: FileId, size: u64) {
        let history = &mut *self.history.borrow_mut();
        let size = history.size(file).unwrap_or(0).max(size);
        history.resize(file, size);
    }

    /// An operation was done in part: what the file holds now is what counts.
    async fn look_again(&mut self, file: FileId, before: Before) -> Result<(), String> {
        let inode = self.inode(file)?;
        self.tell(format!("no space for {file}"));
        let failed = |error: FsError| format!("looking again: {error}");
        let size = self.fs.attributes(inode).await.map_err(failed)?.size;
        let mut bytes = vec![0; (pages_of(size) as u64 * PAGE) as usize];
        self.fs.read(inode, 0, &mut bytes[..size as usize]).await.map_err(failed)?;
        let history = &mut *self.history.borrow_mut();
        history.resize(file, size);
        for (page, content) in (0..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
            if content.iter().all(|byte| *byte == 0) {
                history.found_zeros(file, page, before);
            } else if history.page(file, page)[..] != *content {
                history.write(file, page, Rc::new(content.try_into().map_err(|_| "no page")?));
            }
        }
        history.cut(file, size);
        history.unchanged(file, before);
        Ok(())
    }

    async fn truncate(&mut self) -> Result<(), String> {
        let Some(file) = self.file() else { return Ok(()) };
        let inode = self.inode(file)?;
        let size = match self.random.below(3) {
            0 => 0,
            1 => self.random.below(self.pages_max) * PAGE,
            _ => self.random.below(self.pages_max * PAGE),
        };
        self.tell(format!("truncate {file} to {size}"));
        let before = self.history.borrow().before(file);
        {
            let history = &mut *self.history.borrow_mut();
            history.resize(file, size);
            history.cut(file, size);
        }
        match outcome("truncate", self.fs.truncate(inode, size).await)? {
            Outcome::Done => {
                self.history.borrow_mut().freed(file, pages_of(size)..u32::MAX, before);
                Ok(())
            }
            Outcome::NoSpace => self.look_again(file, before).await,
        }
    }

    async fn fallocate(&mut self) -> Result<(), String> {
        let Some(file) = self.file() else { return Ok(()) };
        let from = self.random.below(self.pages_max - 1);
        let pages = 1 + self.random.below((self.pages_max - from).min(4));
        let keep_size = self.random.below(2) == 0;
        let modes =
            [Fallocate::Allocate { keep_size }, Fallocate::PunchHole, Fallocate::ZeroRange { keep_size }];
        let mode = pick(&mut self.random, &modes);
        self.fallocate_at(file, mode, from, pages).await.map(drop)
    }

    /// What many a database does: makes sure of space first, and of the size later.
    async fn preallocate(&mut self) -> Result<(), String> {
        let Some(file) = self.file() else { return Ok(()) };
        let from = self.size(file).div_ceil(PAGE);
        let pages = (1 + self.random.below(4)).min(self.pages_max - from);
        if pages == 0 {
            return Ok(());
        }
        let durable = self.random.below(2) == 0;
        self.fallocate_at(file, Fallocate::Allocate { keep_size: true }, from, pages).await?;
        self.call(file, Reach::File, durable).await?;
        self.fallocate_at(file, Fallocate::Allocate { keep_size: false }, from, pages).await?;
        self.call(file, Reach::Data, durable).await
    }

    /// What a full filesystem has to take all the same: writes into what was allocated before, and holes. All other
    /// space goes to the ballast meanwhile, behind its end.
    async fn when_full(&mut self) -> Result<(), String> {
        let Some(file) = self.file() else { return Ok(()) };
        self.empty_ballast().await?;
        let from = self.random.below(self.pages_max - AHEAD + 1);
        let allocate = Fallocate::Allocate { keep_size: false };
        let Outcome::Done = self.fallocate_at(file, allocate, from, AHEAD).await? else { return Ok(()) };
        self.history.borrow_mut().end(self.part);
        let mut mapped: BTreeSet<u64> = (from..from + AHEAD).collect();
        self.fill_ballast().await?;
        for _ in 0..FULL_OPERATIONS {
            let page = from + self.random.below(AHEAD);
            let done = match self.random.below(8) {
                0 => {
                    mapped.remove(&page);
                    let done = self.fallocate_at(file, Fallocate::PunchHole, page, 1).await?;
                    if let Outcome::NoSpace = done {
                        return Err("a hole found no space".to_owned());
                    }
                    done
                }
                1 => self.fallocate_at(file, Fallocate::ZeroRange { keep_size: true }, page, 1).await?,
                _ => self.write_at(file, page * PAGE, PAGE).await?,
            };
            self.history.borrow_mut().end(self.part);
            match done {
                Outcome::Done => self.when_full += 1,
                Outcome::NoSpace if mapped.contains(&page) => {
                    return Err(format!("page {page} of {file} is allocated, and found no space"));
                }
                Outcome::NoSpace => {}
            }
            match self.random.below(6) {
                0 => self.call(file, Reach::Data, false).await?,
                1 => self.call(file, Reach::File, true).await?,
                _ => {}
            }
        }
        self.empty_ballast().await
    }

    /// Gives the ballast all space that there is, behind its end.
    async fn fill_ballast(&mut self) -> Result<(), String> {
        let (ballast, size) = self.ballast().await?;
        self.tell("no space from here on".to_owned());
        let keep = Fallocate::Allocate { keep_size: true };
        outcome("filling", self.fs.fallocate(ballast, keep, size, 2 * ROOM_BLOCKS * PAGE).await).map(drop)
    }

    /// Takes it back.
    pub(super) async fn empty_ballast(&mut self) -> Result<(), String> {
        let (ballast, size) = self.ballast().await?;
        self.fs.truncate(ballast, size).await.map_err(|error| format!("emptying: {error}"))
    }

    async fn ballast(&self) -> Result<(InodeNumber, u64), String> {
        let failed = |error: FsError| format!("the ballast: {error}");
        let ballast = self.fs.lookup(ROOT_INODE, BALLAST).await.map_err(failed)?;
        Ok((ballast, self.fs.attributes(ballast).await.map_err(failed)?.size))
    }

    async fn fallocate_at(
        &mut self,
        file: FileId,
        mode: Fallocate,
        from: u64,
        pages: u64,
    ) -> Result<Outcome, String> {
        let inode = self.inode(file)?;
        let (offset, length) = (from * PAGE, pages * PAGE);
        let keep_size = matches!(
            mode,
            Fallocate::Allocate { keep_size: true } | Fallocate::ZeroRange { keep_size: true }
        );
        let grows = mode != Fallocate::PunchHole && !keep_size;
        self.tell(format!("{mode:?} of {file}: pages {from} to {}", from + pages));
        let before = self.history.borrow().before(file);
        // It may take a transaction for each page.
        for page in from as u32..(from + pages) as u32 {
            self.grow(file, if grows { (u64::from(page) + 1) * PAGE } else { 0 });
            let history = &mut *self.history.borrow_mut();
            match mode {
                Fallocate::Allocate { .. } => history.reserve(file, page),
                Fallocate::PunchHole => history.unplace(file, page),
                Fallocate::ZeroRange { .. } => history.zero(file, page),
            }
        }
        let outcome = outcome("fallocate", self.fs.fallocate(inode, mode, offset, length).await)?;
        match (&outcome, mode) {
            (Outcome::NoSpace, _) => self.look_again(file, before).await?,
            (Outcome::Done, Fallocate::Allocate { .. }) => {}
            (Outcome::Done, _) => {
                self.history.borrow_mut().freed(file, from as u32..(from + pages) as u32, before);
            }
        }
        Ok(outcome)
    }

    /// What every write-ahead log does: append to the log, order, overwrite elsewhere.
    async fn log_then_overwrite(&mut self) -> Result<(), String> {
        let root = self.root();
        let find = |history: &History| history.tree(self.part).names(root)?.get(&b"log"[..]).copied();
        let log = find(&self.history.borrow());
        let log = match log {
            Some(log) => Some(log),
            None => self.make(root, b"log", false, 0o644).await?,
        };
        let Some(log) = log.filter(|log| self.history.borrow().size(*log).is_some()) else {
            return Ok(());
        };
        let size = self.size(log);
        if size + PAGE <= self.pages_max * PAGE {
            self.write_at(log, size, PAGE).await?;
        } else {
            let page = self.random_page(size);
            self.write_at(log, page, PAGE).await?;
        }
        self.call(log, Reach::Data, false).await?;
        let Some(file) = self.file() else { return Ok(()) };
        let page = self.random_page(self.size(file));
        self.write_at(file, page, PAGE).await?;
        if self.random.below(2) == 0 { self.call(file, Reach::Data, false).await } else { Ok(()) }
    }

    fn random_page(&mut self, size: u64) -> u64 {
        self.random.below((size / PAGE).clamp(1, self.pages_max)) * PAGE
    }

    async fn synchronise(&mut self) -> Result<(), String> {
        let others = self.history.borrow().parts() > 1 && self.random.below(3) == 0;
        let file = if others { self.others_file() } else { self.file() };
        let durable = self.random.below(3) == 0;
        match (self.random.below(12), file) {
            (0, _) => {
                self.tell("sync".to_owned());
                let call = self.history.borrow_mut().call(self.part, ROOT_INODE, Reach::Everything);
                self.fs.sync().await.map_err(|error| format!("sync: {error}"))?;
                self.history.borrow_mut().promise(call, self.flushes);
                Ok(())
            }
            (1..6, Some(file)) => self.call(file, Reach::Data, durable).await,
            (_, Some(file)) => self.call(file, Reach::File, durable).await,
            (_, None) => Ok(()),
        }
    }

    /// Some file of another task, who may be doing anything to it.
    fn others_file(&mut self) -> Option<FileId> {
        let history = self.history.borrow();
        let others = (0..history.parts()).filter(|part| *part != self.part);
        let things = others.flat_map(|part| &history.tree(part).things);
        let is_file = |thing: &Thing| matches!(thing.kind, Kind::File { .. });
        // One that is being created has no number yet.
        let inodes = self.inodes.borrow();
        let files: Vec<FileId> = things
            .filter(|(id, thing)| is_file(thing) && inodes.contains_key(id))
            .map(|(id, _)| *id)
            .collect();
        drop(history);
        (!files.is_empty()).then(|| files[self.random.below(files.len() as u64) as usize])
    }

    async fn call(&mut self, file: FileId, reach: Reach, durable: bool) -> Result<(), String> {
        let inode = self.inode(file)?;
        self.tell(format!("{reach:?} of {file}, durable: {durable}"));
        let call = self.history.borrow_mut().call(self.part, file, reach);
        let done = match (reach, durable) {
            (Reach::Data, true) => self.fs.fdatasync(inode).await,
            (Reach::Data, false) => self.fs.fdatabarrier(inode).await,
            (_, true) => self.fs.fsync(inode).await,
            (_, false) => self.fs.fbarrier(inode).await,
        };
        let others = !self.history.borrow().tree(self.part).things.contains_key(&file);
        match done {
            // Its owner has removed it meanwhile.
            Err(FsError::NotFound) if others => Ok(()),
            Err(error) => Err(format!("{reach:?}, durable {durable}: {error}")),
            Ok(()) => {
                self.history.borrow_mut().promise(call, durable && self.flushes);
                Ok(())
            }
        }
    }
}

/// Makes a file without a name, and gives it its first: a power cut between the two leaves nothing of it.
async fn create_named_later(
    fs: &Filesystem,
    directory: InodeNumber,
    name: &[u8],
    new: &NewNode,
) -> Result<InodeNumber, FsError> {
    let made = fs.create_unnamed(directory, new).await?;
    let linked = fs.link(made, directory, name).await;
    fs.release(made).await?;
    linked.map(|()| made)
}

/// A new name for something new.
fn enter(tree: &mut Tree, directory: FileId, name: &[u8], id: FileId, thing: Thing) {
    tree.things.insert(id, thing);
    if let Some(names) = tree.names_mut(directory) {
        names.insert(name.to_vec(), id);
    }
}

/// Takes a name away, and what it stood for if that was its last.
fn take(tree: &mut Tree, directory: FileId, name: &[u8]) {
    let Some(id) = tree.names_mut(directory).and_then(|names| names.remove(name)) else { return };
    if tree.names(id).is_some() || tree.links(id) == 0 {
        tree.things.remove(&id);
    }
}

/// Whether `below` is `directory`, or somewhere in it.
fn is_below(tree: &Tree, directory: FileId, below: FileId) -> bool {
    let mut seen = BTreeSet::from([directory]);
    let mut look = vec![directory];
    while let Some(next) = look.pop() {
        look.extend(
            tree.names(next).into_iter().flat_map(|names| names.values()).filter(|id| seen.insert(**id)),
        );
    }
    seen.contains(&below)
}

/// Bytes that nobody else writes.
fn stream(number: u64) -> impl Iterator<Item = u8> {
    (0..).flat_map(move |word| (mix(number, word) | 1).to_le_bytes())
}

/// What is left for files on a filesystem that holds almost nothing else but a file that nobody touches.
const ROOM_BLOCKS: u64 = 72;

/// Takes most of a new filesystem's room away.
pub(super) async fn fill_up(fs: &Filesystem) -> Result<(), FsError> {
    let ballast = fs.create(ROOT_INODE, BALLAST, &NewNode::new(FileType::Regular, 0o400)).await?;
    let room = fs.statfs().await.available_blocks.saturating_sub(ROOM_BLOCKS);
    fs.fallocate(ballast, Fallocate::Allocate { keep_size: false }, 0, room * PAGE).await
}
