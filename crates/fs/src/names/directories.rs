//! Directories: what the names in them stand for, and putting names in.

use std::cell::RefCell;
use std::rc::Rc;

use weir_ext4::Feature;
use weir_ext4::{directory::Directory, directory::DirectoryFormat};
use weir_format::{Cookie, DirectoryEntry, Target};
use weir_journal::TxHandle;
use weir_runtime::Permit;
use weir_storage::Rules;
use weir_vfs::{FsError, InodeNumber, NameCache, Timer, check_name_length, is_dots};

use super::blocks::{DirectoryBlocks, Entries};
use super::{LOOKS_MAX, dangling};
use crate::mapping::Tree;
use crate::mutants::FsMutant;
use crate::superblock::MountedSuperblock;
use crate::{inodes::Node, inodes::Nodes, inodes::lock};

/// Names that one call returns, unless more of them share a hash.
const ENTRIES_A_CALL: usize = 1024;

/// All directories.
pub(crate) struct Directories {
    nodes: Rc<Nodes>,
    superblock: Rc<MountedSuperblock>,
    timer: Timer,
    rules: Rules<FsMutant>,
    cache: RefCell<NameCache<Target>>,
}

impl Directories {
    /// Nothing known of any.
    pub(crate) fn new(
        nodes: Rc<Nodes>,
        superblock: Rc<MountedSuperblock>,
        timer: Timer,
        rules: Rules<FsMutant>,
    ) -> Rc<Directories> {
        Rc::new(Directories { nodes, superblock, timer, rules, cache: RefCell::default() })
    }

    /// The inodes that their names stand for.
    pub(super) fn nodes(&self) -> &Rc<Nodes> {
        &self.nodes
    }

    /// What a name in a directory stands for; "." and ".." too.
    pub(crate) async fn lookup(&self, directory: InodeNumber, name: &[u8]) -> Result<InodeNumber, FsError> {
        self.lookup_with(directory, name, |inode| inode).await
    }

    /// The same, with what is done to the inode before its name may go.
    pub(super) async fn lookup_with<T>(
        &self,
        directory: InodeNumber,
        name: &[u8],
        found: impl FnOnce(InodeNumber) -> T,
    ) -> Result<T, FsError> {
        check_name_length(name)?;
        let directory = self.node(directory).await?;
        let _locked = directory.lock_exclusive().await;
        let target = self.find(&directory, name).await?;
        target.map(|target| found(target.inode)).ok_or(FsError::NotFound)
    }

    /// Names of a directory behind `after`, in the order of their cookies.
    pub(crate) async fn read(
        &self,
        directory: InodeNumber,
        after: Cookie,
    ) -> Result<Vec<DirectoryEntry>, FsError> {
        let directory = self.node(directory).await?;
        let _locked = directory.lock_exclusive().await;
        if directory.links() == 0 {
            // It was removed while it was open: not even "." is there.
            return Ok(Vec::new());
        }
        self.within(&directory, None, async |entries| entries.read(after, ENTRIES_A_CALL).await).await
    }

    /// Runs `work` on the entries of a directory, to be changed only with a handle. The caller holds its lock.
    pub(super) async fn within<T>(
        &self,
        directory: &Rc<Node>,
        handle: Option<&TxHandle>,
        work: impl AsyncFnOnce(Entries<'_>) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let generation = directory.inode.borrow().generation.get();
        let mut format = DirectoryFormat::new(&self.superblock.borrow(), directory.number, generation)?;
        format.checks_names = !self.rules.drops(FsMutant::TrustsNames);
        let tree = Tree { node: directory, handle };
        let blocks = DirectoryBlocks { tree: &tree };
        work(Directory::new(&tree, &blocks, format)).await
    }

    /// Whether directories may have more subdirectories than they count.
    pub(super) fn has_uncounted_links(&self) -> bool {
        self.superblock.borrow().features().has(Feature::DIR_NLINK)
    }

    /// What an entry for a node says.
    pub(super) fn entry_of(&self, node: &Node) -> Target {
        let typed = self.superblock.borrow().features().has(Feature::FILETYPE);
        Target { inode: node.number, kind: node.kind().filter(|_| typed) }
    }

    /// The node of a directory.
    pub(super) async fn node(&self, number: u32) -> Result<Rc<Node>, FsError> {
        self.nodes.make_room();
        let node = self.nodes.get(number).await?;
        if node.is_directory() { Ok(node) } else { Err(FsError::NotDirectory) }
    }

    /// What a name stands for. The caller holds the directory's lock.
    pub(super) async fn find(&self, directory: &Rc<Node>, name: &[u8]) -> Result<Option<Target>, FsError> {
        if directory.links() == 0 {
            return Err(FsError::NotFound);
        }
        if let Some(known) = self.cache.borrow_mut().get(directory.number, name) {
            return Ok(known);
        }
        let found = self.within(directory, None, async |entries| entries.lookup(name).await).await?;
        self.remember(directory, name, found);
        Ok(found)
    }

    /// Notes what a name stands for from now on. The caller holds the directory's lock.
    pub(super) fn remember(&self, directory: &Node, name: &[u8], target: Option<Target>) {
        // What "." and ".." stand for costs no search.
        if !is_dots(name) {
            self.cache.borrow_mut().insert(directory.number, name, target);
        }
    }

    /// The node that a name stands for, and the locks of its directory and of it; with `None` only the
    /// directory's, if the name is not there.
    pub(super) async fn find_locked(
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
    pub(super) async fn linked_node(&self, target: Target) -> Result<Option<Rc<Node>>, FsError> {
        match self.nodes.get(target.inode).await {
            Ok(node) => Ok(Some(node)),
            Err(FsError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The content of a directory has changed: its times say so, and its inode goes into the transaction.
    pub(super) async fn changed(&self, handle: &TxHandle, directory: &Rc<Node>) -> Result<(), FsError> {
        directory.stamp(self.timer.now());
        // A directory's data are its names: `fdatasync` commits them (J3).
        directory.last_changes.note_data();
        directory.log(handle).await
    }

    /// Puts a name for a node into a directory, whose inode changes in memory only.
    pub(super) async fn enter(
        &self,
        handle: &TxHandle,
        directory: &Rc<Node>,
        name: &[u8],
        node: &Node,
    ) -> Result<(), FsError> {
        let target = self.entry_of(node);
        node.last_changes.note_name(directory.number);
        self.within(directory, Some(handle), async |entries| entries.insert(name, target).await)
            .await
            .map_err(FsError::full_is_no_space)
    }

    /// Forgets the names of a directory that is gone.
    pub(super) fn forget(&self, directory: &Node) {
        self.cache.borrow_mut().forget(directory.number);
    }
}
