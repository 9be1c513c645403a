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
use crate::options::pick;

/// Names in each directory.
const NAMES: [&[u8]; 5] = [b"a", b"b", b"c", b"log", b"a name that is somewhat longer than the others"];
/// Pages of a file, at most.
const PAGES_MAX: u64 = 12;
const PAGE: u64 = BLOCK_BYTES as u64;

/// A workload that goes on for as long as it is asked to.
pub(super) struct Script {
    handle: Handle,
    fs: Filesystem,
    history: Rc<RefCell<History>>,
    pub(super) random: Random,
    /// The inodes of the model's files.
    inodes: BTreeMap<FileId, InodeNumber>,
    /// Files that are held open after their last name is gone.
    held: Vec<InodeNumber>,
    /// Counts writes: no two write the same.
    written: u64,
    /// What was done, for those who look for the reason of a failure.
    story: Rc<RefCell<Vec<String>>>,
}

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
    /// A script on a filesystem that holds what `history` begins with, by the numbers of its inodes.
    pub(super) fn new(
        handle: &Handle,
        fs: Filesystem,
        history: Rc<RefCell<History>>,
        story: Rc<RefCell<Vec<String>>>,
    ) -> Script {
        let inodes = history.borrow().tree().things.keys().map(|id| (*id, *id)).collect();
        let random = handle.random("script");
        Script {
            handle: handle.clone(),
            fs,
            history,
            random,
            inodes,
            held: Vec::new(),
            written: handle.now().as_nanos(),
            story,
        }
    }

    /// One operation.
    pub(super) async fn step(&mut self) -> Result<(), String> {
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
            _ => {
                let pause = pick(&mut self.random, &[1_000, 50_000, 2_000_000]);
                self.handle.sleep(Duration::from_nanos(self.random.below(pause))).await;
                Ok(())
            }
        }
    }

    /// Unmounts; everything is durable then.
    pub(super) async fn unmount(&mut self) -> Result<(), String> {
        while let Some(inode) = self.held.pop() {
            self.fs.release(inode).await.map_err(|error| format!("release: {error}"))?;
        }
        self.fs.clone().unmount().await.map_err(|error| format!("unmount: {error}"))?;
        self.history.borrow_mut().promise(ROOT_INODE, Reach::Everything, true);
        Ok(())
    }

    /// Some file, directory or link of the tree for which `is` holds.
    fn choose(&mut self, is: impl Fn(&Thing) -> bool) -> Option<FileId> {
        let history = self.history.borrow();
        let found: Vec<FileId> =
            history.tree().things.iter().filter(|(_, thing)| is(thing)).map(|(id, _)| *id).collect();
        drop(history);
        (!found.is_empty()).then(|| found[self.random.below(found.len() as u64) as usize])
    }

    fn file(&mut self) -> Option<FileId> {
        self.choose(|thing| matches!(thing.kind, Kind::File { size } if size <= PAGES_MAX * PAGE))
    }

    fn directory(&mut self) -> FileId {
        self.choose(|thing| matches!(thing.kind, Kind::Directory(_))).unwrap_or(ROOT_INODE)
    }

    /// A name in some directory, and what it stands for.
    fn place(&mut self) -> (FileId, &'static [u8], Option<FileId>) {
        let directory = self.directory();
        let name = pick(&mut self.random, &NAMES);
        let stands_for =
            self.history.borrow().tree().names(directory).and_then(|names| names.get(name).copied());
        (directory, name, stands_for)
    }

    /// Tells what is done next.
    fn tell(&self, what: String) {
        let now = self.history.borrow().now() + 1;
        self.story.borrow_mut().push(format!("{now}: {what}"));
    }

    fn inode(&self, id: FileId) -> Result<InodeNumber, String> {
        self.inodes.get(&id).copied().ok_or_else(|| format!("file {id} has no inode"))
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
            (history.tree().clone(), before)
        };
        self.history.borrow_mut().begin(files, change);
        let outcome = outcome(what, work(&self.fs).await)?;
        if matches!(outcome, Outcome::NoSpace) {
            let history = &mut *self.history.borrow_mut();
            history.begin(&[], |now| *now = tree);
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
        let id = self.history.borrow_mut().new_file();
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
            made = fs.create(at, name, &NewNode::new(kind, permissions)).await?;
            Ok(())
        };
        if let Outcome::NoSpace = self.change("create", &[id, directory], change, work).await? {
            return Ok(None);
        }
        self.inodes.insert(id, made);
        Ok(Some(id))
    }

    async fn symlink(&mut self) -> Result<(), String> {
        let (directory, name, None) = self.place() else { return Ok(()) };
        let id = self.history.borrow_mut().new_file();
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
            self.inodes.insert(id, made);
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
        let names = self.history.borrow().tree().names(id).map(BTreeMap::len);
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
        let moved_is_directory = self.history.borrow().tree().names(id).is_some();
        let fits = {
            let history = self.history.borrow();
            let tree = history.tree();
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
            _ => self.random.below(PAGES_MAX * PAGE),
        };
        let length = match self.random.below(4) {
            0 => 1 + self.random.below(2 * PAGE),
            _ => PAGE * (1 + self.random.below(3)),
        };
        self.write_at(file, offset, length.min((PAGES_MAX * PAGE).saturating_sub(offset))).await
    }

    fn size(&self, file: FileId) -> u64 {
        self.history.borrow().tree().size(file).unwrap_or(0)
    }

    async fn write_at(&mut self, file: FileId, offset: u64, length: u64) -> Result<(), String> {
        if length == 0 {
            return Ok(());
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
        let written = self.fs.write(inode, offset, &bytes).await;
        match written {
            Ok(written) if written == bytes.len() => Ok(()),
            Ok(_) | Err(FsError::NoSpace) => self.look_again(file, before).await,
            Err(error) => Err(format!("write: {error}")),
        }
    }

    /// Begins an operation after which `file` has at least `size` bytes.
    fn grow(&mut self, file: FileId, size: u64) {
        let history = &mut *self.history.borrow_mut();
        let size = history.tree().size(file).unwrap_or(0).max(size);
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
                history.unplace(file, page);
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
            1 => self.random.below(PAGES_MAX) * PAGE,
            _ => self.random.below(PAGES_MAX * PAGE),
        };
        self.tell(format!("truncate {file} to {size}"));
        let before = self.history.borrow().before(file);
        {
            let history = &mut *self.history.borrow_mut();
            history.resize(file, size);
            history.cut(file, size);
        }
        match outcome("truncate", self.fs.truncate(inode, size).await)? {
            Outcome::Done => Ok(()),
            Outcome::NoSpace => self.look_again(file, before).await,
        }
    }

    async fn fallocate(&mut self) -> Result<(), String> {
        let Some(file) = self.file() else { return Ok(()) };
        let inode = self.inode(file)?;
        let from = self.random.below(PAGES_MAX - 1);
        let pages = 1 + self.random.below((PAGES_MAX - from).min(4));
        let (offset, length) = (from * PAGE, pages * PAGE);
        let keep_size = self.random.below(2) == 0;
        let modes =
            [Fallocate::Allocate { keep_size }, Fallocate::PunchHole, Fallocate::ZeroRange { keep_size }];
        let mode = pick(&mut self.random, &modes);
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
        match outcome("fallocate", self.fs.fallocate(inode, mode, offset, length).await)? {
            Outcome::Done => Ok(()),
            Outcome::NoSpace => self.look_again(file, before).await,
        }
    }

    /// What every write-ahead log does: append to the log, order, overwrite elsewhere.
    async fn log_then_overwrite(&mut self) -> Result<(), String> {
        let log =
            self.history.borrow().tree().names(ROOT_INODE).and_then(|names| names.get(&b"log"[..]).copied());
        let log = match log {
            Some(log) => Some(log),
            None => self.make(ROOT_INODE, b"log", false, 0o644).await?,
        };
        let Some(log) = log.filter(|log| self.history.borrow().tree().size(*log).is_some()) else {
            return Ok(());
        };
        let size = self.size(log);
        if size + PAGE <= PAGES_MAX * PAGE {
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
        self.random.below((size / PAGE).clamp(1, PAGES_MAX)) * PAGE
    }

    async fn synchronise(&mut self) -> Result<(), String> {
        let (file, durable) = (self.file(), self.random.below(3) == 0);
        match (self.random.below(12), file) {
            (0, _) => {
                self.tell("sync".to_owned());
                self.history.borrow_mut().begin(&[], |_| {});
                self.fs.sync().await.map_err(|error| format!("sync: {error}"))?;
                self.history.borrow_mut().promise(ROOT_INODE, Reach::Everything, true);
                Ok(())
            }
            (1..6, Some(file)) => self.call(file, Reach::Data, durable).await,
            (_, Some(file)) => self.call(file, Reach::File, durable).await,
            (_, None) => Ok(()),
        }
    }

    async fn call(&mut self, file: FileId, reach: Reach, durable: bool) -> Result<(), String> {
        let inode = self.inode(file)?;
        self.tell(format!("{reach:?} of {file}, durable: {durable}"));
        self.history.borrow_mut().begin(&[], |_| {});
        let done = match (reach, durable) {
            (Reach::Data, true) => self.fs.fdatasync(inode).await,
            (Reach::Data, false) => self.fs.fdatabarrier(inode).await,
            (_, true) => self.fs.fsync(inode).await,
            (_, false) => self.fs.fbarrier(inode).await,
        };
        done.map_err(|error| format!("{reach:?}, durable {durable}: {error}"))?;
        self.history.borrow_mut().promise(file, reach, durable);
        Ok(())
    }
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
    (0..).flat_map(move |word| (crate::content::mix(number, word) | 1).to_le_bytes())
}

/// What is left for files on a filesystem that holds almost nothing else but a file that nobody touches.
const ROOM_BLOCKS: u64 = 72;

/// Takes most of a new filesystem's room away.
pub(super) async fn fill_up(fs: &Filesystem) -> Result<(), FsError> {
    let ballast = fs.create(ROOT_INODE, BALLAST, &NewNode::new(FileType::Regular, 0o400)).await?;
    let room = fs.statfs().await.free_blocks.saturating_sub(ROOM_BLOCKS);
    fs.fallocate(ballast, Fallocate::Allocate { keep_size: false }, 0, room * PAGE).await
}
