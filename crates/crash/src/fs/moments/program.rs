//! A program that changes a directory of its own, and what it notes of each call.

use std::cell::RefCell;
use std::hash::{Hash as _, Hasher as _};
use std::rc::Rc;
use std::time::Duration;

use weir_format::FileType;
use weir_fs::BarrierFs;
use weir_runtime::{Handle, Instant, Random};
use weir_storage::BLOCK_BYTES;
use weir_vfs::{
    AttributeChanges, Expect, Fallocate, FilesystemCalls, FsError, InodeNumber, NewNode, ReadOnlyReason,
    RenameFlags,
};

use super::MomentTotals;
use super::history::History;
use crate::content::{Mixer, mix};
use crate::cuts::Cuts;
use crate::fs::tree::Kind;
use crate::fs::visible::{ATTRIBUTE, Visible};

/// Names that a program uses in each directory.
const NAMES: u64 = 5;
/// No file is made longer.
const BYTES_MAX: u64 = 1 << 17;
/// A usual write has so many bytes at most, and a long one, which waits for writeback in its middle.
const BYTES_USUAL: u64 = 6_000;
const BYTES_LONG: u64 = 60_000;
const PAGE: u64 = BLOCK_BYTES as u64;

/// What a program knows of the run that it is in.
#[derive(Clone)]
pub(super) struct Surroundings {
    pub clock: Handle,
    pub fs: BarrierFs,
    pub history: Rc<RefCell<History>>,
    pub found: Rc<RefCell<Cuts<MomentTotals>>>,
    pub story: Rc<RefCell<Vec<String>>>,
    /// When programs end.
    pub end: Instant,
}

/// See the head of this file.
pub(super) struct Program {
    around: Surroundings,
    number: usize,
    directory: InodeNumber,
    random: Random,
    /// What the directory shows.
    shown: Visible,
    /// Pages of a file that were kept back: where they go.
    late: Vec<(InodeNumber, u64)>,
    writes: u64,
}

/// What is below a directory, and a hash of it with all that counts: names, content, attributes.
pub(super) async fn read_tree(
    fs: &dyn FilesystemCalls,
    directory: InodeNumber,
) -> Result<(Visible, u64), FsError> {
    let visible = Visible::read_below(fs, directory).await?;
    let mut hash = Mixer::default();
    let shape = visible.tree.shape();
    shape.hash(&mut hash);
    for inode in &shape.order {
        visible.bytes(*inode).hash(&mut hash);
        let found = fs.attributes(*inode).await?;
        (found.links, found.uid, found.gid, found.permissions).hash(&mut hash);
        for time in [found.modified, found.changed, found.created] {
            (time.seconds, time.nanoseconds).hash(&mut hash);
        }
    }
    Ok((visible, hash.finish()))
}

impl Program {
    pub(super) fn new(
        around: Surroundings,
        number: usize,
        directory: InodeNumber,
        shown: Visible,
    ) -> Program {
        let random = around.clock.random(&format!("program {number}"));
        Program { around, number, directory, random, shown, late: Vec::new(), writes: 0 }
    }

    /// Makes calls until the round is over, or the mount takes no changes any more.
    pub(super) async fn run(mut self) -> Result<(), String> {
        while self.around.clock.now() < self.around.end && !self.around.found.borrow().is_over() {
            match self.step().await {
                Ok(()) => {}
                Err(FsError::ReadOnly(ReadOnlyReason::Aborted(_))) => break,
                Err(_) if self.around.fs.read_only().is_some() => break,
                Err(FsError::NoSpace) => {
                    self.around.found.borrow_mut().totals.calls_full += 1;
                    self.delete_something().await;
                }
                Err(error) if is_answer(&error) => {}
                Err(error) => return Err(format!("program {}: {error}", self.number)),
            }
            if self.random.below(3) == 0 {
                self.around.clock.sleep(Duration::from_micros(self.random.below(6_000))).await;
            }
        }
        Ok(())
    }

    /// Makes one call, and notes what the directory shows then.
    async fn call(
        &mut self,
        what: &str,
        call: impl Future<Output = Result<(), FsError>>,
    ) -> Result<(), FsError> {
        self.tell(what);
        self.around.history.borrow_mut().begin(self.number, self.around.clock.now());
        let done = call.await;
        let end = self.around.clock.now();
        let (shown, tree) = read_tree(&*self.around.fs, self.directory).await?;
        self.shown = shown;
        if let Err(what) = self.around.history.borrow_mut().end(self.number, tree, end) {
            self.around.found.borrow_mut().fail(what);
        }
        self.around.found.borrow_mut().totals.calls += 1;
        done
    }

    fn tell(&self, what: &str) {
        let now = self.around.clock.now().since(Instant::ZERO);
        self.around.story.borrow_mut().push(format!("{now:?} program {}: {what}", self.number));
    }

    async fn step(&mut self) -> Result<(), FsError> {
        let (directory, name) = self.place();
        let found = self.shown.tree.lookup(directory, &name);
        let kind = found.and_then(|inode| Some(self.shown.tree.things.get(&inode)?.kind.clone()));
        match (found, kind) {
            _ if !self.late.is_empty() && self.random.below(2) == 0 => self.pass_late_page().await,
            _ if self.random.below(14) == 0 => self.synchronise(found).await,
            (Some(inode), Some(Kind::File { size })) => {
                self.change_file((directory, &name), inode, size).await
            }
            (Some(_), Some(Kind::Directory(_))) => self.change_directory((directory, &name)).await,
            (Some(_), _) => self.unlink((directory, &name)).await,
            (None, _) => self.make((directory, &name)).await,
        }
    }

    /// A name, which may stand for something, in its directory or in one below.
    fn place(&mut self) -> (InodeNumber, Vec<u8>) {
        let name = vec![b'a' + self.random.below(NAMES) as u8];
        let directories = self.directories();
        (directories[self.random.below(directories.len() as u64) as usize], name)
    }

    fn directories(&self) -> Vec<InodeNumber> {
        let things = self.shown.tree.things.iter();
        things
            .filter(|(_, thing)| matches!(thing.kind, Kind::Directory(_)))
            .map(|(inode, _)| *inode)
            .collect()
    }

    /// Some file of the directory.
    fn some_file(&mut self) -> Option<InodeNumber> {
        let things = self.shown.tree.things.iter();
        let files: Vec<InodeNumber> = things
            .filter(|(_, thing)| matches!(thing.kind, Kind::File { .. }))
            .map(|(inode, _)| *inode)
            .collect();
        (!files.is_empty()).then(|| files[self.random.below(files.len() as u64) as usize])
    }

    /// Content that no other write has.
    fn content(&mut self, bytes: u64) -> Vec<u8> {
        self.writes += 1;
        let word = mix(self.number as u64, self.writes).to_le_bytes();
        word.iter().copied().cycle().take(bytes as usize).collect()
    }

    /// How much a write writes: mostly little.
    fn length(&mut self) -> u64 {
        let most = if self.random.below(10) == 0 { BYTES_LONG } else { BYTES_USUAL };
        1 + self.random.below(most)
    }

    /// Makes something that has a name that stands for nothing.
    async fn make(&mut self, (directory, name): (InodeNumber, &[u8])) -> Result<(), FsError> {
        let fs = self.around.fs.clone();
        let new = NewNode::new(FileType::Regular, 0o644);
        match self.random.below(9) {
            0 if self.directories().len() < 4 => {
                let new = NewNode::new(FileType::Directory, 0o755);
                self.call("mkdir", async { fs.mkdir(directory, name, &new).await.map(drop) }).await
            }
            1 => {
                let target = self.content(20);
                self.call("symlink", async { fs.symlink(directory, name, &target, (0, 0)).await.map(drop) })
                    .await
            }
            2 => match self.some_file() {
                Some(file) => self.call("link", fs.link(file, directory, name)).await,
                None => Ok(()),
            },
            3 => {
                let file = fs.create_unnamed(directory, &new).await?;
                let content = self.content(3 * PAGE);
                // No other program sees it yet.
                let wrote = fs.write(file, 0, &content).await;
                let named = match wrote {
                    Ok(_) => self.call("name a file", fs.link(file, directory, name)).await,
                    Err(error) => Err(error),
                };
                fs.release(file).await?;
                named
            }
            4 => self.copy((directory, name)).await,
            _ => self.call("create", async { fs.create(directory, name, &new).await.map(drop) }).await,
        }
    }

    /// Copies a file, as `cp` does.
    async fn copy(&mut self, (directory, name): (InodeNumber, &[u8])) -> Result<(), FsError> {
        let Some(from) = self.some_file() else { return Ok(()) };
        let content = self.shown.bytes(from).unwrap_or_default().to_vec();
        let (fs, new) = (self.around.fs.clone(), NewNode::new(FileType::Regular, 0o600));
        self.call("create a copy", async { fs.create(directory, name, &new).await.map(drop) }).await?;
        let to = fs.lookup(directory, name).await?;
        for (piece, bytes) in content.chunks(16 * BLOCK_BYTES).enumerate() {
            let at = (piece * 16 * BLOCK_BYTES) as u64;
            self.call("write a copy", async { fs.write(to, at, bytes).await.map(drop) }).await?;
        }
        Ok(())
    }

    async fn change_file(
        &mut self,
        (directory, name): (InodeNumber, &[u8]),
        file: InodeNumber,
        size: u64,
    ) -> Result<(), FsError> {
        let fs = self.around.fs.clone();
        let length = self.length();
        match self.random.below(20) {
            0..4 if size < BYTES_MAX / 4 => {
                let content = self.content(length);
                self.call("append", async { fs.write(file, size, &content).await.map(drop) }).await
            }
            0..7 => {
                let (content, at) = (self.content(length), self.random.below(size + 1));
                self.call("overwrite", async { fs.write(file, at, &content).await.map(drop) }).await
            }
            7 => {
                // Behind a hole: such a file takes long to be deleted.
                let (content, at) = (self.content(100), self.random.below(BYTES_MAX / PAGE) * PAGE);
                self.call("write far behind", async { fs.write(file, at, &content).await.map(drop) }).await
            }
            8 => {
                let size = self.random.below(size * 5 / 4 + 2);
                self.call("truncate", fs.truncate(file, size)).await
            }
            9 => {
                let (at, length) = (self.random.below(size + 1), length.max(PAGE));
                let mode = match self.random.below(3) {
                    0 => Fallocate::PunchHole,
                    1 => Fallocate::Allocate { keep_size: self.random.below(2) == 0 },
                    _ => Fallocate::ZeroRange { keep_size: true },
                };
                self.call("allocate or punch", fs.fallocate(file, mode, at, length)).await
            }
            10 => {
                let permissions = Some(0o600 | self.random.below(0o100) as u16);
                let changes = AttributeChanges { permissions, ..AttributeChanges::default() };
                self.call("chmod", fs.set_attributes(file, &changes)).await
            }
            11 => {
                let bytes = 1 + self.random.below(400);
                let value = self.content(bytes);
                let set = fs.set_extended_attribute(file, ATTRIBUTE, &value, Expect::Anything);
                self.call("set an attribute", set).await
            }
            12 => {
                // Reading changes no more than the time of access, which is no part of a moment.
                fs.accessed(file).await.map(drop)
            }
            13 => {
                let from = self.random.below(size / PAGE + 1);
                self.late = (from..from + 1 + self.random.below(8)).map(|page| (file, page * PAGE)).collect();
                Ok(())
            }
            14..17 => {
                let to = self.place();
                self.rename((directory, name), (to.0, &to.1)).await
            }
            17 => self.save((directory, name)).await,
            _ => self.unlink((directory, name)).await,
        }
    }

    /// Saves a file as editors and package managers do: a new one, and a rename over the old one.
    async fn save(&mut self, (directory, name): (InodeNumber, &[u8])) -> Result<(), FsError> {
        let fs = self.around.fs.clone();
        let (length, new) = (self.length(), NewNode::new(FileType::Regular, 0o644));
        let content = self.content(length);
        self.call("create new", async { fs.create(directory, b"new", &new).await.map(drop) }).await?;
        let file = fs.lookup(directory, b"new").await?;
        self.call("write new", async { fs.write(file, 0, &content).await.map(drop) }).await?;
        if self.random.below(3) == 0 {
            self.synchronise(Some(file)).await?;
        }
        self.rename((directory, b"new"), (directory, name)).await
    }

    /// Passes a page on that was kept back: to a file that may be gone by now.
    async fn pass_late_page(&mut self) -> Result<(), FsError> {
        let Some((file, at)) = self.late.pop() else { return Ok(()) };
        if self.shown.tree.size(file).is_none() {
            return Ok(());
        }
        let (fs, content) = (self.around.fs.clone(), self.content(PAGE));
        self.around.found.borrow_mut().totals.late_pages += 1;
        self.call("pass a page on", async { fs.write_back(file, at, &content).await.map(drop) }).await
    }

    async fn change_directory(&mut self, (directory, name): (InodeNumber, &[u8])) -> Result<(), FsError> {
        let fs = self.around.fs.clone();
        match self.random.below(3) {
            0 => {
                let to = self.place();
                self.rename((directory, name), (to.0, &to.1)).await
            }
            _ => self.call("rmdir", fs.rmdir(directory, name)).await,
        }
    }

    async fn rename(&mut self, from: (InodeNumber, &[u8]), to: (InodeNumber, &[u8])) -> Result<(), FsError> {
        let exchange = self.random.below(6) == 0;
        let flags = RenameFlags { no_replace: false, exchange, whiteout: false };
        let fs = self.around.fs.clone();
        self.call("rename", fs.rename(from, to, flags)).await
    }

    async fn unlink(&mut self, (directory, name): (InodeNumber, &[u8])) -> Result<(), FsError> {
        let fs = self.around.fs.clone();
        self.call("unlink", fs.unlink(directory, name)).await
    }

    /// A synchronisation call, of its file or of all.
    async fn synchronise(&mut self, file: Option<InodeNumber>) -> Result<(), FsError> {
        let (fs, from) = (self.around.fs.clone(), self.around.clock.now());
        let file = file.unwrap_or(self.directory);
        self.around.found.borrow_mut().totals.syncs += 1;
        self.tell("synchronise");
        match self.random.below(6) {
            0 => fs.sync().await?,
            1 => fs.fdatasync(file).await?,
            4 => {
                let group = [file, self.some_file().unwrap_or(file)];
                fs.sync_group(&group[..1 + usize::from(group[0] != group[1])]).await?;
            }
            2 => return fs.fbarrier(file).await,
            3 => return fs.fdatabarrier(file).await,
            _ => fs.fsync(file).await?,
        }
        self.around.history.borrow_mut().note_durable(from);
        Ok(())
    }

    /// Makes room.
    async fn delete_something(&mut self) {
        let (directory, name) = self.place();
        if let Some(Kind::File { .. }) = self
            .shown
            .tree
            .lookup(directory, &name)
            .and_then(|inode| Some(&self.shown.tree.things.get(&inode)?.kind))
        {
            // What it fails by, the next call says again.
            let _ = self.unlink((directory, &name)).await;
        }
    }
}

/// Whether a call may be answered so: programs ask for what cannot be.
fn is_answer(error: &FsError) -> bool {
    matches!(
        error,
        FsError::NotFound
            | FsError::Exists
            | FsError::NotDirectory
            | FsError::IsDirectory
            | FsError::NotEmpty
            | FsError::NotPermitted(_)
            | FsError::Invalid(_)
    )
}
