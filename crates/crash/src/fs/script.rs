//! Random operations on a mounted filesystem, each recorded in its history. Few names, few pages and little space, so that
//! names are given again, pages are overwritten, and blocks are used by one file after the other.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use weir_format::FileType;
use weir_runtime::{Handle, Random};
use weir_vfs::{AttributeChanges, Fallocate, Filesystem, FilesystemCalls, FsError, InodeNumber, NewNode};

use super::calls::{Calls, Inodes, Outcome, PAGE, outcome};
use super::history::{History, Reach};
use super::tree::{FileId, Kind, Thing};
use super::visible::BALLAST;
use crate::content::mix;
use crate::options::pick;

/// Names in each directory.
const NAMES: [&[u8]; 5] = [b"a", b"b", b"c", b"log", b"a name that is somewhat longer than the others"];
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
    /// Most writes begin at a multiple of so many pages.
    pub stride: u64,
    /// The storage may fail, and calls with it.
    pub faulty: bool,
    /// Free space is trimmed now and then.
    pub trims: bool,
    /// Calls that promise durability keep it; without flushes they only order.
    pub flushes: bool,
    /// The filesystem is made full now and then, when writes into what is allocated need no space.
    pub fills: bool,
    /// Directories are synchronised, too.
    pub syncs_directories: bool,
}

/// An inode that is kept when its last name is gone.
enum Kept {
    Open(InodeNumber),
    Held { file: FileId, inode: InodeNumber, generation: u32 },
}

/// A workload that goes on for as long as it is asked to.
pub(super) struct Script {
    handle: Handle,
    calls: Calls,
    pub(super) random: Random,
    /// What is kept after its last name is gone.
    kept: Vec<Kept>,
    /// Says what is held, and used then.
    holder: Random,
    /// Pages of a file, at most.
    pages_max: u64,
    stride: u64,
    fills: bool,
    syncs_directories: bool,
    /// The storage may fail, and calls with it.
    faulty: bool,
    /// Says when free space is trimmed, where it is.
    trimmer: Option<Random>,
    /// Writes into what was allocated, holes and zeros while the filesystem was full.
    pub(super) when_full: u64,
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
        let random = handle.random("script");
        let written = mix(handle.now().as_nanos(), part as u64);
        let mut calls = Calls::new(fs, history, part, inodes, story, (plan.flushes, written));
        calls.named_later = Some(NAMED_LATER);
        Script {
            handle: handle.clone(),
            calls,
            random,
            kept: Vec::new(),
            holder: handle.random("hold"),
            pages_max: plan.pages_max,
            stride: plan.stride,
            fills: plan.fills,
            syncs_directories: plan.syncs_directories,
            faulty: plan.faulty,
            trimmer: plan.trims.then(|| handle.random("trim")),
            when_full: 0,
        }
    }

    /// One operation, or a few; whether there may be more.
    pub(super) async fn step(&mut self) -> Result<bool, String> {
        match self.play_operation().await {
            Ok(()) => {
                self.calls.end();
                Ok(true)
            }
            // What was under way stays so. A call that returns durable from now on has to be right.
            Err(what) if self.faulty => {
                self.calls.record(format!("fails: {what}"));
                for _ in 0..SYNCS_AFTER_FAILURE {
                    drop(self.synchronise().await);
                }
                Ok(false)
            }
            Err(what) => Err(what),
        }
    }

    async fn play_operation(&mut self) -> Result<(), String> {
        if self.trimmer.as_mut().is_some_and(|random| random.below(TRIMS) == 0) {
            self.calls.record("trim".to_owned());
            self.calls.fs.trim(0..u64::MAX, 0).await.map_err(|error| format!("trim: {error}"))?;
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
            61 if self.fills => self.when_full().await,
            _ => {
                let pause = pick(&mut self.random, &[1_000, 50_000, 2_000_000]);
                self.handle.sleep(Duration::from_nanos(self.random.below(pause))).await;
                Ok(())
            }
        }
    }

    /// Unmounts, when all tasks have ended; everything is durable then. What is open or held without a name is lost.
    pub(super) async fn unmount(&mut self) -> Result<(), String> {
        self.calls.unmount().await
    }

    /// Closes what is open, and lets go what is held.
    pub(super) async fn release_all(&mut self) -> Result<(), String> {
        while !self.kept.is_empty() {
            self.release().await?;
        }
        Ok(())
    }

    /// Some file, directory or link of the tree for which `is` holds.
    fn choose(&mut self, is: impl Fn(&Thing) -> bool) -> Option<FileId> {
        let history = self.calls.history.borrow();
        let found: Vec<FileId> = history
            .tree(self.calls.part)
            .things
            .iter()
            .filter(|(_, thing)| is(thing))
            .map(|(id, _)| *id)
            .collect();
        drop(history);
        (!found.is_empty()).then(|| found[self.random.below(found.len() as u64) as usize])
    }

    fn file(&mut self) -> Option<FileId> {
        let most = self.pages_max * PAGE;
        self.choose(|thing| matches!(thing.kind, Kind::File { size } if size <= most))
    }

    fn root(&self) -> FileId {
        self.calls.history.borrow().tree(self.calls.part).root
    }

    fn directory(&mut self) -> FileId {
        let root = self.root();
        self.choose(|thing| matches!(thing.kind, Kind::Directory(_))).unwrap_or(root)
    }

    /// A name in some directory, and what it stands for.
    fn place(&mut self) -> (FileId, &'static [u8], Option<FileId>) {
        let directory = self.directory();
        let name = pick(&mut self.random, &NAMES);
        let id = self.calls.history.borrow().tree(self.calls.part).lookup(directory, name);
        (directory, name, id)
    }

    async fn create(&mut self) -> Result<(), String> {
        let (directory, name, None) = self.place() else { return Ok(()) };
        let kind = if self.random.below(4) == 0 { FileType::Directory } else { FileType::Regular };
        let permissions = pick(&mut self.random, &[0o644, 0o600]);
        self.calls.make(directory, name, &NewNode::new(kind, permissions)).await.map(drop)
    }

    async fn symlink(&mut self) -> Result<(), String> {
        let (directory, name, None) = self.place() else { return Ok(()) };
        let target = vec![b'x'; pick(&mut self.random, &[5, 59, 60, 300])];
        self.calls.symlink(directory, name, target).await.map(drop)
    }

    async fn link(&mut self) -> Result<(), String> {
        let (directory, name, None) = self.place() else { return Ok(()) };
        let Some(file) = self.file() else { return Ok(()) };
        self.calls.link(file, directory, name).await.map(drop)
    }

    async fn remove(&mut self) -> Result<(), String> {
        let (directory, name, Some(id)) = self.place() else { return Ok(()) };
        let names = self.calls.history.borrow().tree(self.calls.part).names(id).map(BTreeMap::len);
        match names {
            Some(0) => {
                self.hold_sometimes(id).await?;
                self.calls.remove(directory, name, id).await.map(drop)
            }
            Some(_) => Ok(()),
            None => {
                let inode = self.calls.inode(id)?;
                if self.random.below(4) == 0 {
                    self.calls.fs.open(inode).await.map_err(|error| format!("open: {error}"))?;
                    self.kept.push(Kept::Open(inode));
                }
                self.hold_sometimes(id).await?;
                self.calls.remove(directory, name, id).await.map(drop)
            }
        }
    }

    async fn release(&mut self) -> Result<(), String> {
        match self.kept.pop() {
            Some(Kept::Open(inode)) => {
                self.calls.fs.release(inode).await.map_err(|error| format!("release: {error}"))
            }
            Some(Kept::Held { file, inode, generation }) => {
                self.use_held(file, inode, generation).await?;
                self.calls.fs.let_go(inode, 1);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Holds, now and then, what is about to lose a name.
    async fn hold_sometimes(&mut self, id: FileId) -> Result<(), String> {
        if self.holder.below(3) > 0 {
            return Ok(());
        }
        let failed = |error: FsError| format!("hold: {error}");
        let hold = self.calls.fs.hold(self.calls.inode(id)?).await.map_err(failed)?;
        let generation = self.calls.fs.attributes(hold.inode()).await.map_err(failed)?.generation;
        self.calls.record(format!("{id} is held, inode {}", hold.inode()));
        self.kept.push(Kept::Held { file: id, inode: hold.keep(), generation });
        Ok(())
    }

    /// Looks at an inode that is held, and changes it if it has no name. A power cut may show what is written in place with a
    /// name that the file has lost, if the transaction that takes the name is not committed yet.
    async fn use_held(&mut self, file: FileId, inode: InodeNumber, generation: u32) -> Result<(), String> {
        let fs = self.calls.fs.clone();
        let found = fs.attributes(inode).await.map_err(|error| format!("inode {inode} is held: {error}"))?;
        if found.generation != generation {
            return Err(format!("inode {inode} is held, and another file's"));
        }
        if found.links > 0 {
            return Ok(());
        }
        self.calls.record(format!("inode {inode} is changed without a name"));
        let changes = AttributeChanges { permissions: Some(0o600), ..AttributeChanges::default() };
        outcome("held", fs.set_attributes(inode, &changes).await)?;
        if found.kind == FileType::Regular {
            let page = self.holder.below(self.pages_max);
            let bytes = [7; PAGE as usize];
            {
                let history = &mut *self.calls.history.borrow_mut();
                history.begin(self.calls.part, &[], |_| {});
                history.write(file, page as u32, Rc::new(bytes));
            }
            let written = fs.write(inode, page * PAGE, &bytes).await;
            outcome("write", written.map(drop))?;
        }
        Ok(())
    }

    async fn rename(&mut self) -> Result<(), String> {
        let (from, old, Some(_)) = self.place() else { return Ok(()) };
        let (to, new, _) = self.place();
        let (fits, replaced) = {
            let history = self.calls.history.borrow();
            let tree = history.tree(self.calls.part);
            (tree.can_rename((from, old), (to, new)), tree.lookup(to, new))
        };
        if !fits {
            return Ok(());
        }
        if let Some(replaced) = replaced {
            self.hold_sometimes(replaced).await?;
        }
        self.calls.rename((from, old), (to, new)).await.map(drop)
    }

    async fn permissions(&mut self) -> Result<(), String> {
        let Some(file) = self.file() else { return Ok(()) };
        let permissions = self.random.below(0o1000) as u16;
        self.calls.set_permissions(file, permissions).await.map(drop)
    }

    async fn attribute(&mut self) -> Result<(), String> {
        let Some(file) = self.file() else { return Ok(()) };
        let value = vec![self.random.below(256) as u8; pick(&mut self.random, &[1, 40, 900])];
        self.calls.set_attribute(file, Some(value)).await.map(drop)
    }

    async fn write(&mut self) -> Result<(), String> {
        let Some(file) = self.file() else { return self.create().await };
        let size = self.calls.size(file);
        let offset = match self.random.below(8) {
            0..3 => size,
            3 => size.next_multiple_of(PAGE),
            4..7 if size > 0 => {
                let offset = self.random.below(size);
                self.start_of_stride(offset)
            }
            _ => {
                let offset = self.random.below(self.pages_max * PAGE);
                self.start_of_stride(offset) + offset % PAGE
            }
        };
        let length = match self.random.below(4) {
            0 => 1 + self.random.below(2 * PAGE),
            _ => PAGE * (1 + self.random.below(3)),
        };
        let length = length.min((self.pages_max * PAGE).saturating_sub(offset));
        self.calls.write_at(file, offset, length).await.map(drop)
    }

    fn start_of_stride(&self, offset: u64) -> u64 {
        offset / (self.stride * PAGE) * (self.stride * PAGE)
    }

    /// Writes a page here and there, so that it takes more than one transaction to free them.
    async fn scatter(&mut self) -> Result<(), String> {
        let Some(file) = self.file() else { return Ok(()) };
        let from = self.random.below(self.pages_max / 2);
        let pages = (self.pages_max - from).div_ceil(2).min(SCATTERED_MAX);
        for page in 0..pages {
            self.calls.write_at(file, (from + 2 * page) * PAGE, PAGE).await?;
            self.calls.end();
        }
        Ok(())
    }

    async fn truncate(&mut self) -> Result<(), String> {
        let Some(file) = self.file() else { return Ok(()) };
        let size = match self.random.below(3) {
            0 => 0,
            1 => self.random.below(self.pages_max) * PAGE,
            _ => self.random.below(self.pages_max * PAGE),
        };
        self.calls.truncate(file, size).await.map(drop)
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
        let from = self.calls.size(file).div_ceil(PAGE);
        let pages = (1 + self.random.below(4)).min(self.pages_max - from);
        if pages == 0 {
            return Ok(());
        }
        let durable = self.random.below(2) == 0;
        self.fallocate_at(file, Fallocate::Allocate { keep_size: true }, from, pages).await?;
        self.calls.call(file, Reach::File, durable).await?;
        self.fallocate_at(file, Fallocate::Allocate { keep_size: false }, from, pages).await?;
        self.calls.call(file, Reach::Data, durable).await
    }

    /// What a full filesystem has to take all the same: writes into what was allocated before, and holes. All other
    /// space goes to the ballast meanwhile, behind its end.
    async fn when_full(&mut self) -> Result<(), String> {
        let Some(file) = self.file() else { return Ok(()) };
        self.empty_ballast().await?;
        let from = self.random.below(self.pages_max - AHEAD + 1);
        let allocate = Fallocate::Allocate { keep_size: false };
        let Outcome::Done = self.fallocate_at(file, allocate, from, AHEAD).await? else { return Ok(()) };
        self.calls.end();
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
                _ => self.calls.write_at(file, page * PAGE, PAGE).await?,
            };
            self.calls.end();
            match done {
                Outcome::Done => self.when_full += 1,
                Outcome::NoSpace if mapped.contains(&page) => {
                    return Err(format!("page {page} of {file} is allocated, and found no space"));
                }
                Outcome::NoSpace => {}
            }
            match self.random.below(6) {
                0 => self.calls.call(file, Reach::Data, false).await?,
                1 => self.calls.call(file, Reach::File, true).await?,
                _ => {}
            }
        }
        self.empty_ballast().await
    }

    /// Gives the ballast all space that there is, behind its end.
    async fn fill_ballast(&mut self) -> Result<(), String> {
        let (ballast, size) = self.ballast().await?;
        self.calls.record("no space from here on".to_owned());
        let keep = Fallocate::Allocate { keep_size: true };
        outcome("filling", self.calls.fs.fallocate(ballast, keep, size, 2 * ROOM_BLOCKS * PAGE).await)
            .map(drop)
    }

    /// Takes it back.
    pub(super) async fn empty_ballast(&mut self) -> Result<(), String> {
        let (ballast, size) = self.ballast().await?;
        self.calls.fs.truncate(ballast, size).await.map_err(|error| format!("emptying: {error}"))
    }

    async fn ballast(&self) -> Result<(InodeNumber, u64), String> {
        let failed = |error: FsError| format!("the ballast: {error}");
        let ballast = self.calls.fs.lookup(self.calls.fs.root(), BALLAST).await.map_err(failed)?;
        Ok((ballast, self.calls.fs.attributes(ballast).await.map_err(failed)?.size))
    }

    async fn fallocate_at(
        &mut self,
        file: FileId,
        mode: Fallocate,
        from: u64,
        pages: u64,
    ) -> Result<Outcome, String> {
        self.calls.fallocate(file, mode, from * PAGE..(from + pages) * PAGE).await
    }

    /// What every write-ahead log does: append to the log, order, overwrite elsewhere.
    async fn log_then_overwrite(&mut self) -> Result<(), String> {
        let root = self.root();
        let log = self.calls.history.borrow().tree(self.calls.part).lookup(root, b"log");
        let log = match log {
            Some(log) => Some(log),
            None => self.calls.make(root, b"log", &NewNode::new(FileType::Regular, 0o644)).await?,
        };
        let Some(log) = log.filter(|log| self.calls.history.borrow().size(*log).is_some()) else {
            return Ok(());
        };
        let size = self.calls.size(log);
        if size + PAGE <= self.pages_max * PAGE {
            self.calls.write_at(log, size, PAGE).await?;
        } else {
            let page = self.random_page(size);
            self.calls.write_at(log, page, PAGE).await?;
        }
        self.calls.call(log, Reach::Data, false).await?;
        let Some(file) = self.file() else { return Ok(()) };
        let page = self.random_page(self.calls.size(file));
        self.calls.write_at(file, page, PAGE).await?;
        if self.random.below(2) == 0 { self.calls.call(file, Reach::Data, false).await } else { Ok(()) }
    }

    fn random_page(&mut self, size: u64) -> u64 {
        self.random.below((size / PAGE).clamp(1, self.pages_max)) * PAGE
    }

    async fn synchronise(&mut self) -> Result<(), String> {
        let others = self.calls.history.borrow().parts() > 1 && self.random.below(3) == 0;
        let file = if others { self.others_file() } else { self.file() };
        let file = match self.syncs_directories && self.holder.below(6) == 0 {
            true => Some(self.directory()),
            false => file,
        };
        let durable = self.random.below(3) == 0;
        match (self.random.below(12), file) {
            (0, _) => self.calls.sync().await,
            (1..6, Some(file)) => self.calls.call(file, Reach::Data, durable).await,
            (_, Some(file)) => self.calls.call(file, Reach::File, durable).await,
            (_, None) => Ok(()),
        }
    }

    /// Some file of another task, which may be doing anything to it.
    fn others_file(&mut self) -> Option<FileId> {
        let history = self.calls.history.borrow();
        let others = (0..history.parts()).filter(|part| *part != self.calls.part);
        let things = others.flat_map(|part| &history.tree(part).things);
        let is_file = |thing: &Thing| matches!(thing.kind, Kind::File { .. });
        // One that is being created has no number yet.
        let inodes = self.calls.inodes.borrow();
        let files: Vec<FileId> = things
            .filter(|(id, thing)| is_file(thing) && inodes.contains_key(id))
            .map(|(id, _)| *id)
            .collect();
        drop(history);
        (!files.is_empty()).then(|| files[self.random.below(files.len() as u64) as usize])
    }
}

/// What is left for files on a filesystem that holds almost nothing else but a file that is never changed.
const ROOM_BLOCKS: u64 = 72;

/// Takes most of a new filesystem's room away.
pub(super) async fn fill_up(fs: &dyn FilesystemCalls) -> Result<(), FsError> {
    let ballast = fs.create(fs.root(), BALLAST, &NewNode::new(FileType::Regular, 0o400)).await?;
    let room = fs.statfs().await.available_blocks.saturating_sub(ROOM_BLOCKS);
    fs.fallocate(ballast, Fallocate::Allocate { keep_size: false }, 0, room * PAGE).await
}
