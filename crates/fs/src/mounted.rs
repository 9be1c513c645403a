//! A mounted filesystem, put together from its parts.

use std::cell::OnceCell;
use std::rc::Rc;

use weir_block::Class;
use weir_cache::PageCache;
use weir_ext4::Superblock;
use weir_journal::{Disk, Journal, SyncedFile};
use weir_runtime::Semaphore;
use weir_vfs::{FsError, InodeNumber, ReadOnlyReason, Timer};

use crate::accesses::Accesses;
use crate::atomic::AtomicFiles;
use crate::attributes::AttributeStore;
use crate::changes::Changes;
use crate::deletion::Deletion;
use crate::files::Files;
use crate::mapping::Mapping;
use crate::moments::Moments;
use crate::mutants::FsMutant;
use crate::names::{Directories, Namespace};
use crate::options::MountOptions;
use crate::orphans::Orphans;
use crate::superblock::MountedSuperblock;
use crate::sync::Synchronisation;
use crate::{inodes::Metadata, inodes::Node, inodes::Nodes};

/// The parts of a mounted filesystem. Each has what it needs of those above it in this list.
pub(crate) struct Mounted {
    pub(crate) options: MountOptions,
    pub(crate) disk: Rc<Disk>,
    pub(crate) timer: Timer,
    pub(crate) metadata: Rc<Metadata>,
    pub(crate) cache: Rc<PageCache>,
    pub(crate) changes: Rc<Changes>,
    pub(crate) sync: Synchronisation,
    pub(crate) superblock: Rc<MountedSuperblock>,
    pub(crate) nodes: Rc<Nodes>,
    pub(crate) mapping: Rc<Mapping>,
    pub(crate) files: Rc<Files>,
    pub(crate) atomic: Rc<AtomicFiles>,
    pub(crate) attributes: Rc<AttributeStore>,
    pub(crate) accesses: Rc<Accesses>,
    pub(crate) deletion: Rc<Deletion>,
    pub(crate) directories: Rc<Directories>,
    pub(crate) namespace: Namespace,
    /// Held while it grows.
    pub(crate) growing: Semaphore,
    /// Of a mount that takes moments.
    pub(crate) moments: OnceCell<Rc<Moments>>,
}

impl Mounted {
    /// The parts, on what was read of the disk: the superblock, the chain of orphans, and the journal or why there is
    /// none.
    pub(crate) fn new(
        options: MountOptions,
        disk: Rc<Disk>,
        metadata: Metadata,
        superblock: Superblock,
        orphans: Vec<u32>,
        journal: Result<Rc<Journal>, ReadOnlyReason>,
    ) -> Rc<Mounted> {
        let (clock, metadata) = (disk.handle().clone(), Rc::new(metadata));
        let timer = Timer::new(&clock, options.ticks_a_second());
        let cache = PageCache::new(disk.clone(), options.cache_options());
        let changes = Changes::new(journal, metadata.space.clone());
        let superblock = MountedSuperblock::new(metadata.clone(), superblock);
        let nodes = Nodes::new((metadata.clone(), cache.clone(), changes.clone()), options);
        let orphans = Orphans::new(orphans, superblock.clone(), nodes.clone());
        let mapping = Mapping::new((disk.clone(), metadata.clone(), changes.clone()), options);
        let below = (disk.clone(), cache.clone(), changes.clone());
        let files =
            Files::new(below, (nodes.clone(), mapping.clone(), orphans.clone()), timer.clone(), options);
        let atomic =
            AtomicFiles::new(changes.clone(), files.clone(), mapping.clone(), timer.clone(), options);
        let attributes = AttributeStore::new(nodes.clone(), changes.clone(), timer.clone());
        let content = (files.clone(), attributes.clone());
        let deletion = Deletion::new(
            (&clock, timer.clone()),
            changes.clone(),
            (nodes.clone(), orphans.clone()),
            content,
        );
        let weak = Rc::downgrade(&deletion);
        changes.on_missing_space(Box::new(move || {
            let deletion = weak.upgrade();
            Box::pin(async move {
                if let Some(deletion) = deletion {
                    deletion.reclaim().await;
                }
            })
        }));
        let directories = Directories::new(nodes.clone(), superblock.clone(), timer.clone(), options.rules);
        let namespace = Namespace::new(
            (changes.clone(), orphans, attributes.clone()),
            (deletion.clone(), directories.clone()),
            (&clock, timer.clone()),
            options.rules,
        );
        Rc::new(Mounted {
            sync: Synchronisation::new(options),
            accesses: Accesses::new((clock, timer.clone()), (changes.clone(), nodes.clone()), options),
            options,
            disk,
            timer,
            metadata,
            cache,
            changes,
            superblock,
            nodes,
            mapping,
            files,
            atomic,
            attributes,
            deletion,
            directories,
            namespace,
            growing: Semaphore::new(1),
            moments: OnceCell::new(),
        })
    }

    /// The node of an inode that a call reads or changes. Others leave memory, if there are too many.
    pub(crate) async fn node(&self, inode: InodeNumber) -> Result<Rc<Node>, FsError> {
        self.nodes.make_room();
        self.nodes.get(inode).await
    }

    /// Whether writes to a file are deferred until it is synchronised.
    pub(crate) fn defers(&self, node: &Node) -> bool {
        node.is_atomic() && !self.options.rules.drops(FsMutant::UpdateNotDeferred)
    }

    /// The size of a file that has an update, with what that adds.
    pub(crate) async fn size_of_updated(&self, inode: InodeNumber) -> Result<Option<u64>, FsError> {
        let node = self.nodes.get(inode).await?;
        let update = node.update.borrow();
        Ok(update.as_ref().map(|update| update.staged.size()))
    }

    /// Submits all dirty pages in the order of calls: they come before what is submitted later with a barrier. What is on its
    /// way without order joins them (E7).
    ///
    /// # Errors
    /// Those of any write of a page that is in memory still.
    pub(crate) async fn submit_everything(&self) -> Result<(), FsError> {
        if self.options.rules.drops(FsMutant::TreeBarrierForgetsData) {
            return Ok(());
        }
        let class = self.changes.journal()?.engine().class_of_calls();
        self.disk.promise_order();
        for node in self.nodes.all() {
            node.file.submit_dirty(class, class).await?;
            node.file.check_written()?;
        }
        Ok(())
    }

    /// Submits all dirty pages, and waits until all pages on their way are transferred.
    ///
    /// # Errors
    /// Those of any write of a page that is in memory still.
    pub(crate) async fn write_back_everything(&self) -> Result<(), FsError> {
        // A call: what was ordered before it comes first.
        let journal = self.changes.mounted_with();
        let class = journal.map_or(Class::Orderless, |journal| journal.engine().class_of_calls());
        for file in self.cache.dirty_files() {
            file.submit_dirty(class, class).await?;
        }
        for node in self.nodes.all() {
            node.file.wait_transferred().await?;
            node.file.check_written()?;
        }
        Ok(())
    }
}

impl Drop for Mounted {
    /// Dropped without unmount, it is as after a crash, and the next mount recovers.
    fn drop(&mut self) {
        self.cache.abandon();
    }
}
