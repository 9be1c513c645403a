//! Names: looking them up, and giving, taking and moving them.
//!
//! # Locks
//!
//! Whoever changes names holds the locks of the directories and of the inodes that they stand for, taken in the
//! order of inode numbers, so that no two tasks wait for each other. Which inode a name stands for is known only
//! once the directory was searched, so that comes first, and is repeated under the locks: what has changed in
//! between is looked up again. A rename between two directories holds `renaming` before all of them, so that
//! which directory is above which does not change while somebody asks.
//!
//! # Atomic groups
//!
//! Every operation is one handle, so it is in the log as a whole or not at all (J8). All that may lack space comes
//! first and undoes what it did; what fails by damage in the middle of a change aborts the journal, so that half
//! an operation is never committed.

mod cache;
mod create;
mod directory;
mod link;
mod list;
mod path;
mod remove;
mod rename;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weir_ext4::directory::{NAME_MAX, Target};
use weir_ext4::{Feature, FileType, FormatError, Place, Stamp, Structure};
use weir_journal::{TxHandle, Until};
use weir_runtime::{Permit, Semaphore};

use crate::error::FsError;
use crate::filesystem::Mounted;
use crate::node::Node;

pub(crate) use cache::NAMES_BYTES_MAX;
pub use create::{Device, NewNode};
pub(crate) use create::{SET_GROUP, device_of};
pub use path::Parent;
pub use rename::RenameFlags;

use cache::NameCache;

/// Looks at a name that others give and take meanwhile; far more than any race takes.
const LOOKS_MAX: u32 = 64;
/// Links that an inode can have, as ext4 counts them.
const LINKS_MAX: u16 = 65_000;

/// Blocks that one change of names changes at most: two directories that each gain an index, a level of it and
/// a leaf, and split two nodes, the extent trees above them, four inodes, the orphan list, and bitmap and
/// descriptor of every block and inode that comes or goes.
const CREDITS: u32 = 64;

/// What a mounted filesystem keeps about names.
pub(crate) struct Names {
    cache: RefCell<NameCache>,
    /// One rename between directories at a time.
    renaming: Semaphore,
    /// The generation of the next inode.
    generation: Cell<u32>,
}

impl Names {
    /// Nothing known; the generations of new inodes count from `generation`, a random number.
    pub(crate) fn new(generation: u32) -> Names {
        Names { cache: RefCell::default(), renaming: Semaphore::new(1), generation: Cell::new(generation) }
    }

    fn next_generation(&self) -> u32 {
        self.generation.replace(self.generation.get().wrapping_add(1))
    }
}

/// An entry whose inode was deleted, however often somebody looks.
fn dangling(directory: &Node) -> FsError {
    let place = Place::Inode(directory.number);
    FormatError::corrupt(Structure::Directory, place, "an entry of a deleted inode").into()
}

/// A name as it can be looked up.
fn check_length(name: &[u8]) -> Result<(), FsError> {
    if name.is_empty() || name.len() > NAME_MAX { Err(FsError::NameLength) } else { Ok(()) }
}

/// A name as it can be given and taken: not one of those that every directory has.
fn check_ordinary(name: &[u8]) -> Result<(), FsError> {
    check_length(name)?;
    if name.contains(&0) || name.contains(&b'/') {
        return Err(FsError::Invalid("a name has no zero byte and no slash"));
    }
    if is_dots(name) { Err(FsError::Invalid("\".\" and \"..\" stay what they are")) } else { Ok(()) }
}

fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// Locks nodes in the order of their numbers, each once.
pub(crate) async fn lock(nodes: &[&Rc<Node>]) -> Vec<Permit> {
    let mut sorted = nodes.to_vec();
    sorted.sort_by_key(|node| node.number);
    sorted.dedup_by_key(|node| node.number);
    let mut permits = Vec::with_capacity(sorted.len());
    for node in sorted {
        permits.push(node.alone().await);
    }
    permits
}

impl Mounted {
    /// Runs `work`, and once more if it found no space where a commit or a discard may bring some: blocks that were
    /// freed can be had when their transaction is in the log, and nothing older goes to them any more (J7), and not
    /// while they are being discarded; and blocks that became unwritten take zeros when that is durable.
    pub(crate) async fn with_space<T>(
        &self,
        work: impl AsyncFn() -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let before = self.space.given_back();
        match work().await {
            Err(FsError::NoSpace)
                if self.space.may_have_more(before) || self.zeros_are_too_early()?.is_some() =>
            {
                self.journal()?.give_back().await?;
                if let Some(sequence) = self.zeros_are_too_early()? {
                    self.journal()?.commit(sequence, Until::Durable).await?;
                }
                let _none = self.space.none_discarding().await;
                work().await
            }
            done => done,
        }
    }

    /// Aborts the journal if a change fails in its middle, so that half of it is never committed (J8).
    pub(crate) async fn all_or_abort<T>(
        &self,
        change: impl Future<Output = Result<T, FsError>>,
    ) -> Result<T, FsError> {
        let done = change.await;
        if let (Err(error), Ok(journal)) = (&done, self.journal()) {
            journal.abort(error.stop_reason());
        }
        done
    }

    /// Whether directories may have more subdirectories than they count.
    fn has_uncounted_links(&self) -> bool {
        self.superblock.borrow().features().has(Feature::DIR_NLINK)
    }

    /// What an entry for a node says.
    fn entry_of(&self, node: &Node) -> Target {
        let typed = self.superblock.borrow().features().has(Feature::FILETYPE);
        Target { inode: node.number, kind: node.kind().filter(|_| typed) }
    }

    /// The node of a directory.
    async fn directory_node(&self, number: u32) -> Result<Rc<Node>, FsError> {
        self.nodes.make_room(self);
        let node = self.nodes.get(self, number).await?;
        if node.is_directory() { Ok(node) } else { Err(FsError::NotDirectory) }
    }

    /// What a name stands for. The caller holds the directory's lock.
    async fn find(&self, directory: &Rc<Node>, name: &[u8]) -> Result<Option<Target>, FsError> {
        if directory.links() == 0 {
            return Err(FsError::NotFound);
        }
        if let Some(known) = self.names.cache.borrow_mut().get(directory.number, name) {
            return Ok(known);
        }
        let found = self.in_directory(directory, None, async |entries| entries.lookup(name).await).await?;
        self.remember(directory, name, found);
        Ok(found)
    }

    /// Notes what a name stands for from now on. The caller holds the directory's lock.
    fn remember(&self, directory: &Node, name: &[u8], target: Option<Target>) {
        // What "." and ".." stand for costs no search.
        if !is_dots(name) {
            self.names.cache.borrow_mut().insert(directory.number, name, target);
        }
    }

    /// The node that a name stands for, and the locks of its directory and of it; with `None` only the
    /// directory's, if the name is not there.
    async fn find_locked(
        &self,
        directory: &Rc<Node>,
        name: &[u8],
    ) -> Result<(Option<Rc<Node>>, Vec<Permit>), FsError> {
        for _ in 0..LOOKS_MAX {
            let alone = lock(&[directory]).await;
            let Some(target) = self.find(directory, name).await? else { return Ok((None, alone)) };
            drop(alone);
            let Some(node) = self.linked_node(target).await? else { continue };
            let locks = lock(&[directory, &node]).await;
            if self.find(directory, name).await?.map(|target| target.inode) == Some(node.number) {
                return Ok((Some(node), locks));
            }
        }
        Err(dangling(directory))
    }

    /// The node that an entry points to; `None` if it has been deleted since the entry was read.
    async fn linked_node(&self, target: Target) -> Result<Option<Rc<Node>>, FsError> {
        match self.nodes.get(self, target.inode).await {
            Ok(node) => Ok(Some(node)),
            Err(FsError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The content of a directory has changed: its times say so, and its inode goes into the transaction.
    async fn directory_changed(&self, handle: &TxHandle, directory: &Rc<Node>) -> Result<(), FsError> {
        let now = self.now();
        {
            let mut inode = directory.inode.borrow_mut();
            inode.set_time(Stamp::Modified, now);
            inode.set_time(Stamp::Changed, now);
        }
        // A directory's data are its names: `fdatasync` commits them (J3).
        directory.data_has_changed();
        directory.log(self, handle).await
    }
}

impl Node {
    pub(crate) fn links(&self) -> u16 {
        self.inode.borrow().links.get()
    }

    pub(crate) fn kind(&self) -> Option<FileType> {
        self.inode.borrow().file_type()
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind() == Some(FileType::Directory)
    }

    /// Gives the inode a time of change and another number of links.
    fn set_links(&self, links: u16, now: weir_ext4::FileTime) {
        let mut inode = self.inode.borrow_mut();
        inode.links = links.into();
        inode.set_time(Stamp::Changed, now);
    }

    /// Whether a subdirectory more can be counted: hashed directories of more than 65,000 links count as having
    /// one (`dir_nlink`).
    fn takes_subdirectory(&self, uncounted: bool) -> bool {
        let indexed = self.inode.borrow().has_flag(weir_ext4::inode_flags::INDEXED);
        self.links() < LINKS_MAX || (uncounted && indexed)
    }

    /// Counts the ".." of a subdirectory more.
    fn add_subdirectory(&self) {
        let mut inode = self.inode.borrow_mut();
        let links = inode.links.get();
        inode.links = if links == 1 || links >= LINKS_MAX { 1 } else { links + 1 }.into();
    }

    /// Counts the ".." of a subdirectory less. One that is not counted any more says 1, and goes on to.
    fn remove_subdirectory(&self) {
        let mut inode = self.inode.borrow_mut();
        let links = inode.links.get();
        inode.links = if links > 2 { links - 1 } else { links }.into();
    }
}
