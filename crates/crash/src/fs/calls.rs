//! The calls of one task on a mounted filesystem, each recorded in its history: the model first, then the filesystem, and
//! the model back where there is no space.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use weir_format::FileType;
use weir_storage::BLOCK_BYTES;
use weir_vfs::{
    AttributeChanges, Expect, Fallocate, Filesystem, FsError, InodeNumber, NewNode, Promise, RenameFlags,
    SyncCall,
};

use super::history::{Before, History, Reach};
use super::tree::{FileId, Thing, Tree, pages_of};
use super::visible::ATTRIBUTE;
use crate::content::mix;

/// Bytes of a page.
pub(super) const PAGE: u64 = BLOCK_BYTES as u64;

/// The inodes of the model's files, of all tasks.
pub(super) type Inodes = BTreeMap<FileId, InodeNumber>;

/// How an operation ended that may fail for want of space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done,
    /// The filesystem is full: nothing was done, or a part of a write, an allocation or a change of a file's size.
    NoSpace,
}

/// What a call that may find no space has answered.
pub(super) fn outcome(what: &str, result: Result<(), FsError>) -> Result<Outcome, String> {
    match result {
        Ok(()) => Ok(Outcome::Done),
        Err(FsError::NoSpace) => Ok(Outcome::NoSpace),
        Err(error) => Err(format!("{what}: {error}")),
    }
}

/// See the head of this file.
pub(super) struct Calls {
    pub(super) fs: Filesystem,
    pub(super) history: Rc<RefCell<History>>,
    /// The number of the task, and of the part of the tree that it changes.
    pub(super) part: usize,
    pub(super) inodes: Rc<RefCell<Inodes>>,
    /// Calls that promise durability keep it.
    pub(super) flushes: bool,
    /// Of so many files, one is made without a name and gets it then.
    pub(super) named_later: Option<FileId>,
    /// Counts writes: no two write the same.
    pub(super) written: u64,
    /// The operations so far, for the report of a failure.
    pub(super) story: Rc<RefCell<Vec<String>>>,
}

impl Calls {
    /// The calls of the task `part`, on a filesystem that holds what `history` begins with. What it writes begins with
    /// the number `written`.
    pub(super) fn new(
        fs: Filesystem,
        history: Rc<RefCell<History>>,
        part: usize,
        inodes: Rc<RefCell<Inodes>>,
        story: Rc<RefCell<Vec<String>>>,
        (flushes, written): (bool, u64),
    ) -> Calls {
        // The numbers of the model's first files are those of their inodes.
        inodes.borrow_mut().extend(history.borrow().tree(part).things.keys().map(|id| (*id, *id)));
        Calls { fs, history, part, inodes, flushes, named_later: None, written, story }
    }

    /// Adds an operation to the story of the round.
    pub(super) fn record(&self, what: String) {
        let now = self.history.borrow().now() + 1;
        self.story.borrow_mut().push(format!("task {}, {now}: {what}", self.part));
    }

    pub(super) fn inode(&self, id: FileId) -> Result<InodeNumber, String> {
        self.inodes.borrow().get(&id).copied().ok_or_else(|| format!("file {id} has no inode"))
    }

    pub(super) fn size(&self, file: FileId) -> u64 {
        self.history.borrow().size(file).unwrap_or(0)
    }

    /// All operations that have begun have returned.
    pub(super) fn end(&self) {
        self.history.borrow_mut().end(self.part);
    }

    /// An operation that changes names: the model first, then the filesystem; the model back if there is no space.
    pub(super) async fn change(
        &mut self,
        what: &str,
        files: &[FileId],
        change: impl FnOnce(&mut Tree),
        work: impl AsyncFnOnce(&Filesystem) -> Result<(), FsError>,
    ) -> Result<Outcome, String> {
        self.record(format!("{what} {files:?}"));
        let (tree, before) = {
            let history = self.history.borrow();
            let before: Vec<Before> = files.iter().map(|file| history.before(*file)).collect();
            (history.tree(self.part).clone(), before)
        };
        self.history.borrow_mut().begin(self.part, files, change);
        // Boxed, as futures within futures have a limit.
        let outcome = outcome(what, Box::pin(work(&self.fs)).await)?;
        if matches!(outcome, Outcome::NoSpace) {
            let history = &mut *self.history.borrow_mut();
            history.begin(self.part, &[], |now| *now = tree);
            files.iter().zip(before).for_each(|(file, before)| history.unchanged(*file, before));
        }
        Ok(outcome)
    }

    /// Makes a file or a directory; none where there is no space.
    pub(super) async fn make(
        &mut self,
        directory: FileId,
        name: &[u8],
        new: &NewNode,
    ) -> Result<Option<FileId>, String> {
        let id = self.history.borrow_mut().new_file(self.part);
        let is_file = new.kind == FileType::Regular;
        let named_later = is_file && self.named_later.is_some_and(|nth| id.is_multiple_of(nth));
        let thing = Thing::new(new);
        let at = self.inode(directory)?;
        let mut made = 0;
        let change = |tree: &mut Tree| tree.enter(directory, name, id, thing);
        let work = async |fs: &Filesystem| {
            made = match named_later {
                true => create_named_later(fs, at, name, new).await?,
                false => fs.create(at, name, new).await?,
            };
            Ok(())
        };
        if let Outcome::NoSpace = self.change("create", &[id, directory], change, work).await? {
            return Ok(None);
        }
        self.inodes.borrow_mut().insert(id, made);
        Ok(Some(id))
    }

    /// Makes a symbolic link.
    pub(super) async fn symlink(
        &mut self,
        directory: FileId,
        name: &[u8],
        target: Vec<u8>,
    ) -> Result<Outcome, String> {
        let id = self.history.borrow_mut().new_file(self.part);
        let thing = Thing::symlink(&target);
        let at = self.inode(directory)?;
        let mut made = 0;
        let work = async |fs: &Filesystem| {
            made = fs.symlink(at, name, &target, (0, 0)).await?;
            Ok(())
        };
        let change = |tree: &mut Tree| tree.enter(directory, name, id, thing);
        let outcome = self.change("symlink", &[id, directory], change, work).await?;
        if outcome == Outcome::Done {
            self.inodes.borrow_mut().insert(id, made);
        }
        Ok(outcome)
    }

    /// Gives a file another name.
    pub(super) async fn link(
        &mut self,
        file: FileId,
        directory: FileId,
        name: &[u8],
    ) -> Result<Outcome, String> {
        let (at, inode) = (self.inode(directory)?, self.inode(file)?);
        let change = |tree: &mut Tree| tree.link(directory, name, file);
        self.change("link", &[file, directory], change, async |fs| fs.link(inode, at, name).await).await
    }

    /// Removes a name: that of an empty directory, or of something else.
    pub(super) async fn remove(
        &mut self,
        directory: FileId,
        name: &[u8],
        id: FileId,
    ) -> Result<Outcome, String> {
        let at = self.inode(directory)?;
        let is_directory = self.history.borrow().tree(self.part).names(id).is_some();
        let change = |tree: &mut Tree| tree.remove(directory, name);
        let work = async |fs: &Filesystem| match is_directory {
            true => fs.rmdir(at, name).await,
            false => fs.unlink(at, name).await,
        };
        let what = if is_directory { "rmdir" } else { "unlink" };
        self.change(what, &[id, directory], change, work).await
    }

    /// Renames; an entry with the new name is replaced.
    pub(super) async fn rename(
        &mut self,
        (from, old): (FileId, &[u8]),
        (to, new): (FileId, &[u8]),
    ) -> Result<Outcome, String> {
        let (source, target) = (self.inode(from)?, self.inode(to)?);
        let (moved, replaced) = {
            let history = self.history.borrow();
            let tree = history.tree(self.part);
            (tree.lookup(from, old), tree.lookup(to, new))
        };
        let change = |tree: &mut Tree| tree.rename((from, old), (to, new));
        let work =
            async |fs: &Filesystem| fs.rename((source, old), (target, new), RenameFlags::default()).await;
        let files: Vec<FileId> = moved.into_iter().chain([from, to]).chain(replaced).collect();
        self.change("rename", &files, change, work).await
    }

    /// Sets a file's permissions.
    pub(super) async fn set_permissions(
        &mut self,
        file: FileId,
        permissions: u16,
    ) -> Result<Outcome, String> {
        let inode = self.inode(file)?;
        let change = |tree: &mut Tree| {
            tree.things.entry(file).and_modify(|thing| thing.permissions = permissions);
        };
        let changes = AttributeChanges { permissions: Some(permissions), ..AttributeChanges::default() };
        self.change("permissions", &[file], change, async |fs| fs.set_attributes(inode, &changes).await).await
    }

    /// Sets the attribute that runs use, or removes it.
    pub(super) async fn set_attribute(
        &mut self,
        file: FileId,
        value: Option<Vec<u8>>,
    ) -> Result<Outcome, String> {
        let inode = self.inode(file)?;
        let change = |tree: &mut Tree| {
            tree.things.entry(file).and_modify(|thing| thing.attribute.clone_from(&value));
        };
        let work = async |fs: &Filesystem| match &value {
            Some(value) => fs.set_extended_attribute(inode, ATTRIBUTE, value, Expect::Anything).await,
            None => fs.remove_extended_attribute(inode, ATTRIBUTE).await,
        };
        self.change("attribute", &[file], change, work).await
    }

    pub(super) async fn write_at(
        &mut self,
        file: FileId,
        offset: u64,
        length: u64,
    ) -> Result<Outcome, String> {
        if length == 0 {
            return Ok(Outcome::Done);
        }
        let inode = self.inode(file)?;
        self.record(format!("write to {file}, inode {inode}: {length} bytes at {offset}"));
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
                self.adopt_content(file, before).await?;
                Ok(Outcome::NoSpace)
            }
            Err(error) => Err(format!("write: {error}")),
        }
    }

    /// Begins an operation after which `file` has at least `size` bytes.
    fn grow(&mut self, file: FileId, size: u64) {
        let history = &mut *self.history.borrow_mut();
        let size = history.size(file).unwrap_or(0).max(size);
        history.resize(file, size);
    }

    /// An operation was done in part: the model takes what the file holds now.
    async fn adopt_content(&mut self, file: FileId, before: Before) -> Result<(), String> {
        let inode = self.inode(file)?;
        self.record(format!("no space for {file}"));
        let failed = |error: FsError| format!("reading what is left: {error}");
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

    /// Gives a file a size.
    pub(super) async fn truncate(&mut self, file: FileId, size: u64) -> Result<Outcome, String> {
        let inode = self.inode(file)?;
        self.record(format!("truncate {file} to {size}"));
        let before = self.history.borrow().before(file);
        {
            let history = &mut *self.history.borrow_mut();
            history.resize(file, size);
            history.cut(file, size);
        }
        let outcome = outcome("truncate", self.fs.truncate(inode, size).await)?;
        match outcome {
            Outcome::Done => self.history.borrow_mut().freed(file, pages_of(size)..u32::MAX, before),
            Outcome::NoSpace => self.adopt_content(file, before).await?,
        }
        Ok(outcome)
    }

    /// Allocates, zeroes or frees the blocks of a range of bytes that is not empty.
    pub(super) async fn fallocate(
        &mut self,
        file: FileId,
        mode: Fallocate,
        range: Range<u64>,
    ) -> Result<Outcome, String> {
        let inode = self.inode(file)?;
        let keep_size = matches!(
            mode,
            Fallocate::Allocate { keep_size: true } | Fallocate::ZeroRange { keep_size: true }
        );
        let grows = mode != Fallocate::PunchHole && !keep_size;
        let pages = range.start / PAGE..range.end.div_ceil(PAGE);
        self.record(format!("{mode:?} of {file}: pages {} to {}", pages.start, pages.end));
        let before = self.history.borrow().before(file);
        // It may take a transaction for each page.
        for page in pages.start..pages.end {
            self.grow(file, if grows { ((page + 1) * PAGE).min(range.end) } else { 0 });
            let inside =
                range.start.max(page * PAGE) - page * PAGE..range.end.min((page + 1) * PAGE) - page * PAGE;
            let history = &mut *self.history.borrow_mut();
            let is_whole = inside == (0..PAGE);
            let page = page as u32;
            match mode {
                Fallocate::Allocate { .. } => history.reserve(file, page),
                Fallocate::PunchHole if is_whole => history.unplace(file, page),
                Fallocate::ZeroRange { .. } if is_whole => history.zero(file, page),
                _ => {
                    history.zero_part(file, page, inside.start as usize..inside.end as usize);
                    if mode != Fallocate::PunchHole {
                        history.reserve(file, page);
                    }
                }
            }
        }
        let length = range.end - range.start;
        let outcome = outcome("fallocate", self.fs.fallocate(inode, mode, range.start, length).await)?;
        match (outcome, mode) {
            (Outcome::NoSpace, _) => self.adopt_content(file, before).await?,
            (Outcome::Done, Fallocate::Allocate { .. }) => {}
            (Outcome::Done, _) => {
                let whole = range.start.div_ceil(PAGE) as u32..(range.end / PAGE) as u32;
                self.history.borrow_mut().freed(file, whole, before);
            }
        }
        Ok(outcome)
    }

    /// Makes everything durable.
    pub(super) async fn sync(&mut self) -> Result<(), String> {
        self.record("sync".to_owned());
        let call = self.history.borrow_mut().call(self.part, self.fs.root(), Reach::Everything);
        self.fs.sync().await.map_err(|error| format!("sync: {error}"))?;
        self.history.borrow_mut().promise(call, self.flushes);
        Ok(())
    }

    pub(super) async fn call(&mut self, file: FileId, reach: Reach, durable: bool) -> Result<(), String> {
        let inode = self.inode(file)?;
        self.record(format!("{reach:?} of {file}, durable: {durable}"));
        let call = self.history.borrow_mut().call(self.part, file, reach);
        let promise = if durable { Promise::Durable } else { Promise::Ordered };
        let done = self.fs.synchronise(inode, SyncCall::from_promise(promise, reach == Reach::Data)).await;
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

    /// Unmounts, when all tasks have ended; everything is durable then. Files that are held open are lost.
    pub(super) async fn unmount(&mut self) -> Result<(), String> {
        let call = self.history.borrow_mut().call(self.part, self.fs.root(), Reach::Everything);
        self.fs.unmount().await.map_err(|error| format!("unmount: {error}"))?;
        self.history.borrow_mut().promise(call, true);
        Ok(())
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

/// Bytes that no other write has.
fn stream(number: u64) -> impl Iterator<Item = u8> {
    (0..).flat_map(move |word| (mix(number, word) | 1).to_le_bytes())
}
