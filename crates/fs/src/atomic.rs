//! *Atomic files* (SHARE paper, section 4: application-level data journaling, SADJ): what is written to one stays out of
//! its home until a synchronisation call, and then all of it, of one file or of a group, is there after a crash or none
//! is.
//!
//! On the disk an atomic file has ext4's flag for data that goes through the journal. Its writes are kept in memory as
//! an [`Update`]; blocks that they need are allocated at once, but unwritten, so that nothing of an update is to be seen
//! on the disk, its new size neither. A synchronisation call puts the whole update into one transaction, by one handle
//! (J8): log copies of the blocks, what becomes written of the extents, and the inode. From there on the data is like
//! that of journal mode data: home by a checkpoint, revoked when it is freed.
//!
//! In the paper the timer, and `fsync` of other files, are kept from committing part of an update by deferring the
//! writes of files that were opened with `O_ATOMIC`. Here it is an attribute of the file, since a mount does not see a
//! flag of `open` that the kernel does not know. An update that the journal cannot take at once is refused at the
//! write that makes it so; nothing is lost by that.
//!
//! A caller may also *begin* an update. Then only [`end`](AtomicFiles::end) puts it into the journal, and
//! [`abandon`](AtomicFiles::abandon) takes it back.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use weir_cache::{BLOCK, index_of, split};
use weir_ext4::inode_flags;
use weir_format::{FileType, Stamp};
use weir_journal::{Role, SyncedFile, TxHandle, Until};
use weir_runtime::Buffer as Memory;
use weir_storage::{BLOCK_BYTES, Rules};
use weir_vfs::{Caller, Fallocate, FsError, Timer};

use crate::changes::Changes;
use crate::inodes::{Node, ToCommit, Update, lock};
use crate::mapping::{MAP_CREDITS, Mapping, Tree, Wanted, place};
use crate::mutants::FsMutant;
use crate::options::MountOptions;
use crate::{files::FileWrite, files::Files, files::Times};

/// Journaled blocks that the commit of an update changes beside what the update counts, for each file: the inode, and
/// of the tree and the bitmaps what a split takes.
const FILE_CREDITS: u32 = MAP_CREDITS + 1;

/// Writes to atomic files, and puts their updates into the journal.
pub(crate) struct AtomicFiles {
    changes: Rc<Changes>,
    files: Rc<Files>,
    mapping: Rc<Mapping>,
    timer: Timer,
    rules: Rules<FsMutant>,
    /// What the updates of all files count together: no more than one transaction takes, so that any group of files can
    /// be synchronised, and memory has a bound.
    staged: Rc<Cell<u32>>,
}

/// Room in the journal that is taken for a change of an update, and given back if the change fails.
struct Room {
    staged: Rc<Cell<u32>>,
    credits: u32,
}

impl Room {
    /// The room is the update's from now on.
    fn into_credits(mut self) -> u32 {
        std::mem::take(&mut self.credits)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.staged.set(self.staged.get() - self.credits);
    }
}

impl AtomicFiles {
    pub(crate) fn new(
        changes: Rc<Changes>,
        files: Rc<Files>,
        mapping: Rc<Mapping>,
        timer: Timer,
        MountOptions { rules, .. }: MountOptions,
    ) -> Rc<AtomicFiles> {
        Rc::new(AtomicFiles { changes, files, mapping, timer, rules, staged: Rc::default() })
    }

    /// Makes a file an atomic one, or an ordinary one again; of a directory, whether files that are made in it are
    /// atomic.
    pub(crate) async fn set(&self, node: &Rc<Node>, atomic: bool) -> Result<(), FsError> {
        if !matches!(node.kind(), Some(FileType::Regular | FileType::Directory)) {
            return Err(FsError::NotPermitted("only files and directories are atomic"));
        }
        self.changes
            .changing(async {
                let _locked = node.lock_exclusive().await;
                if node.hands_down_atomicity() == atomic {
                    return Ok(());
                }
                if node.update_begun.get() {
                    return Err(FsError::UpdateOpen);
                }
                match (node.is_directory(), atomic) {
                    (true, _) => {}
                    (false, true) => self.write_home(node).await?,
                    (false, false) => self.bring_home(node).await?,
                }
                let handle = self.changes.start(1).await?;
                {
                    let mut inode = node.inode.borrow_mut();
                    inode.set_flag(inode_flags::JOURNAL_DATA, atomic);
                    inode.set_time(Stamp::Changed, self.timer.now());
                }
                self.changes.all_or_abort(node.log(&handle)).await
            })
            .await
    }

    /// Dirty pages are on the disk before anything newer of the file is in the journal.
    async fn write_home(&self, node: &Rc<Node>) -> Result<(), FsError> {
        let class = self.changes.journal()?.engine().class_of_calls();
        node.file.submit_dirty(class, class).await?;
        node.file.wait_transferred().await?;
        Ok(node.file.check_written()?)
    }

    /// What the journal holds of a file goes home before anything newer is written there in place.
    async fn bring_home(&self, node: &Rc<Node>) -> Result<(), FsError> {
        self.commit_locked(std::slice::from_ref(node)).await?;
        if self.rules.drops(FsMutant::LeavesJournalBehind) {
            return Ok(());
        }
        self.changes.journal()?.bring_home().await?;
        let tree = Tree::from_node(node);
        let mut at = 0;
        while let Some(extent) = tree.next(at).await? {
            let end = extent.physical + u64::from(extent.length);
            node.metadata().buffers.forget_data(extent.physical..end);
            at = extent.end();
        }
        Ok(())
    }

    /// Writes at `offset`, all bytes or none: how many. They are part of the file's update.
    ///
    /// # Errors
    /// [`FsError::UpdateTooLarge`] if the journal could not take the update at once; those of writing to any file.
    pub(crate) async fn write(&self, write: FileWrite<'_>) -> Result<usize, FsError> {
        let bytes = self.files.within_size_max(write.offset, write.bytes)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        match self.changes.changing(self.stage_locked(FileWrite { bytes, ..write })).await? {
            true => Ok(bytes.len()),
            // It has become an ordinary file meanwhile.
            false => self.files.write(write).await,
        }
    }

    /// Locks the file, and adds to the update; false if it is not atomic any more.
    async fn stage_locked(&self, write: FileWrite<'_>) -> Result<bool, FsError> {
        let node = write.node;
        let _locked = node.lock_exclusive().await;
        if !node.is_atomic() {
            return Ok(false);
        }
        self.changes.with_space(async || self.stage(write).await).await?;
        if write.times == Times::Stamped {
            node.stamp(self.timer.now());
        }
        Ok(true)
    }

    /// Adds to the update. The caller holds the lock.
    async fn stage(&self, write: FileWrite<'_>) -> Result<(), FsError> {
        let FileWrite { caller, node, offset, bytes, .. } = write;
        let end = offset + bytes.len() as u64;
        let range = index_of(offset)..index_of(end - 1) + 1;
        let tail = self.tail(node, end).await?;
        let written = self.mapping.is_written(node, range.clone()).await?;
        let cost = node.update.borrow().as_ref().map_or_else(
            || Update::cost_of_first(range.clone(), written) + FILE_CREDITS,
            |update| update.cost_of(range.clone(), written),
        );
        let room = self.take_room(cost + u32::from(tail.is_some()))?;
        if !written {
            self.allocate(caller, node, range.clone()).await?;
        }
        let mut bases = Vec::new();
        // Whole blocks are replaced, whatever they held.
        for (index, partial) in [(range.start, split(offset).1 > 0), (range.end - 1, split(end).1 > 0)] {
            if partial {
                bases.push((index, self.base(node, index).await?));
            }
        }
        // Nothing waits or fails from here on.
        self.update_of(node, end, tail, room, |update| {
            update.staged.write(offset, bytes, &bases);
            if !written {
                update.marks_to(range.end);
            }
        });
        Ok(())
    }

    /// Changes the update of a node, which has `size` bytes at least from then on.
    fn update_of(
        &self,
        node: &Node,
        size: u64,
        tail: Option<(u32, Rc<Memory>)>,
        room: Room,
        change: impl FnOnce(&mut Update),
    ) {
        let old = node.size();
        let mut update = node.update.borrow_mut();
        let update = update.get_or_insert_with(|| Update::new(old, &self.staged));
        if let Some((last, content)) = tail {
            update.staged.change(last, 0, &[], Some(content));
        }
        change(update);
        update.staged.grow(size);
        update.charge(room.into_credits());
    }

    /// Takes room in the journal, or refuses what would make the updates too large for one transaction.
    fn take_room(&self, credits: u32) -> Result<Room, FsError> {
        let most = self.changes.journal()?.most_credits();
        let staged = self.staged.get().saturating_add(credits);
        if staged > most {
            return Err(FsError::UpdateTooLarge { most });
        }
        self.staged.set(staged);
        Ok(Room { staged: Rc::clone(&self.staged), credits })
    }

    /// Gives blocks a place, unwritten: they read as they did, also after a crash.
    async fn allocate(&self, caller: Caller, node: &Rc<Node>, range: Range<u32>) -> Result<(), FsError> {
        let mut at = range.start;
        while at < range.end {
            let handle = self.changes.start_for(caller, MAP_CREDITS).await?;
            let mapped = self.mapping.map(&handle, node, at..range.end, Wanted::Mapped).await;
            // Also after an error: the tree may have grown.
            self.mapping.log_data(node, &handle).await?;
            at = mapped?;
        }
        Ok(())
    }

    /// What a block holds without the update, with zeros behind the end of the file. What a power cut has left there is
    /// no content.
    async fn base(&self, node: &Rc<Node>, index: u32) -> Result<Rc<Memory>, FsError> {
        let (start, size) = (u64::from(index) * BLOCK, node.size());
        let home = if start < size { self.mapping.home(node, index).await? } else { None };
        let Some(home) = home else { return Ok(Rc::new(Memory::new(BLOCK_BYTES))) };
        let mut content = self.files.content(node, index, home).await?;
        if size < start + BLOCK {
            Rc::make_mut(&mut content)[(size - start) as usize..].fill(0);
        }
        Ok(content)
    }

    /// Where the file becomes longer, its last block, which goes into the update if it is not whole: behind the end on the
    /// disk may be what a power cut has left. The caller holds the lock.
    async fn tail(&self, node: &Rc<Node>, size: u64) -> Result<Option<(u32, Rc<Memory>)>, FsError> {
        let old = node.size();
        let (last, at) = split(old);
        let staged = node.update.borrow().as_ref().is_some_and(|update| update.staged.page(last).is_some());
        if size <= old || at == 0 || staged || self.mapping.home(node, last).await?.is_none() {
            return Ok(None);
        }
        Ok(Some((last, self.base(node, last).await?)))
    }

    /// The file is to have at least `size` bytes; false if it is not atomic any more.
    async fn grow(&self, node: &Rc<Node>, size: u64) -> Result<bool, FsError> {
        let _locked = node.lock_exclusive().await;
        if !node.is_atomic() {
            return Ok(false);
        }
        let tail = self.tail(node, size).await?;
        let first = if node.update.borrow().is_none() { FILE_CREDITS } else { 0 };
        let room = self.take_room(first + u32::from(tail.is_some()))?;
        self.update_of(node, size, tail, room, |_| {});
        node.stamp(self.timer.now());
        Ok(true)
    }

    /// Sets the size of a file. One that grows is part of the update.
    ///
    /// # Errors
    /// [`FsError::UpdateOpen`] for a file that has an update and is to become shorter; those of any file.
    pub(crate) async fn truncate(&self, node: &Rc<Node>, size: u64) -> Result<(), FsError> {
        self.files.check_size(size)?;
        if size > node.size_with_update() {
            return match self.changes.changing(self.grow(node, size)).await? {
                true => Ok(()),
                false => self.files.truncate(node, size).await,
            };
        }
        if node.update.borrow().is_none() {
            return self.files.truncate(node, size).await;
        }
        if size == node.size_with_update() { Ok(()) } else { Err(FsError::UpdateOpen) }
    }

    /// Allocates, zeroes or frees blocks. What makes the file longer is part of the update.
    ///
    /// # Errors
    /// [`FsError::UpdateOpen`] for zeros and holes in a file that has an update; those of any file.
    pub(crate) async fn fallocate(
        &self,
        caller: Caller,
        node: &Rc<Node>,
        mode: Fallocate,
        range: Range<u64>,
    ) -> Result<(), FsError> {
        let (offset, length) = (range.start, range.end - range.start);
        if mode == (Fallocate::Allocate { keep_size: false }) {
            let mode = Fallocate::Allocate { keep_size: true };
            self.files.fallocate(caller, node, mode, offset, length).await?;
            return if range.end > node.size_with_update() {
                self.truncate(node, range.end).await
            } else {
                Ok(())
            };
        }
        self.files.fallocate(caller, node, mode, offset, length).await
    }

    /// Reads from `offset` on, as [`Files::read`] does, with what the update changes.
    pub(crate) async fn read(
        &self,
        node: &Rc<Node>,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<usize, FsError> {
        // As of now: should the update be committed meanwhile, what it changes would be missed.
        let view = node.update.borrow().as_ref().map(|update| update.staged.view(offset, bytes.len()));
        let Some(view) = view else { return self.files.read(node, offset, bytes).await };
        let read = self.files.read(node, offset, &mut bytes[..view.length]).await?;
        view.lay_over(bytes, read);
        Ok(view.length)
    }

    /// Puts the updates of files into the running transaction, together. Those that have none do not count.
    ///
    /// # Errors
    /// [`FsError::UpdateOpen`] if one of them was begun; what changing any file may fail by.
    pub(crate) async fn commit(&self, nodes: &[Rc<Node>]) -> Result<(), FsError> {
        if nodes.iter().all(|node| node.update.borrow().is_none() && !node.update_begun.get()) {
            return Ok(());
        }
        let commit = async {
            let _locked = lock(&nodes.iter().collect::<Vec<_>>()).await;
            if nodes.iter().any(|node| node.update_begun.get()) {
                return Err(FsError::UpdateOpen);
            }
            self.commit_locked(nodes).await
        };
        self.changes.changing(commit).await
    }

    /// A file is open no more: its update goes into the journal, or is taken back if it was begun.
    pub(crate) async fn settle(&self, node: &Rc<Node>) -> Result<(), FsError> {
        if node.update_begun.get() {
            let _locked = node.lock_exclusive().await;
            self.abandon(node);
        }
        // What has no name any more is deleted.
        if node.links() == 0 {
            let _locked = node.lock_exclusive().await;
            node.update.take();
        }
        self.commit(std::slice::from_ref(node)).await
    }

    /// The same at the end of a mount, for all that are left, begun or not: those are abandoned.
    pub(crate) async fn commit_rest(&self, nodes: &[Rc<Node>]) -> Result<(), FsError> {
        for node in nodes.iter().filter(|node| node.update.borrow().is_some()) {
            if node.update_begun.get() {
                self.abandon(node);
            }
            if node.links() == 0 {
                node.update.take();
            }
            let one = std::slice::from_ref(node);
            self.changes.undivided(self.commit_locked(one)).await?;
        }
        Ok(())
    }

    /// The same for callers that hold the locks.
    async fn commit_locked(&self, nodes: &[Rc<Node>]) -> Result<(), FsError> {
        let mut updates = Vec::new();
        for node in nodes {
            let update = node.update.borrow().as_ref().map(Update::to_commit);
            // One that appears twice in a group goes once.
            let known = updates.iter().any(|(known, _): &(&Rc<Node>, ToCommit)| known.number == node.number);
            updates.extend(update.filter(|_| !known).map(|update| (node, update)));
        }
        let credits: u32 = updates.iter().map(|(_, update)| update.credits).sum();
        if updates.is_empty() {
            return Ok(());
        }
        // As `with_space` has it: no error may come once the handle is open.
        if let Some(sequence) = self.changes.zeros_are_too_early()? {
            self.changes.journal()?.commit(sequence, Until::Durable).await?;
        }
        let splits = self.rules.drops(FsMutant::UpdateSplit);
        for group in updates.chunks(if splits { 1 } else { updates.len() }) {
            let handle = self.changes.start(credits).await?;
            let put_all = async {
                for (node, update) in group {
                    self.put_update(node, &handle, update).await?;
                }
                Ok(())
            };
            self.changes.all_or_abort(put_all).await?;
            drop(handle);
            if splits {
                self.changes.journal()?.commit_all().await?;
            }
        }
        for (node, _) in updates {
            node.update.take();
        }
        Ok(())
    }

    /// Puts one update into a transaction.
    async fn put_update(&self, node: &Rc<Node>, handle: &TxHandle, update: &ToCommit) -> Result<(), FsError> {
        let size = update.size.max(node.size());
        // First: where an extent cannot be divided, zeros are written up to the end of the file.
        node.inode.borrow_mut().set_size(size);
        node.last_changes.note_data();
        for run in &update.runs {
            let mut at = run.start;
            while at < run.end {
                at = self.mapping.map(handle, node, at..run.end, Wanted::Written).await?;
            }
        }
        for (index, content) in &update.blocks {
            let Some(extent) = Tree::from_node(node).find(*index).await? else {
                return Err(FsError::Invalid("a block that is not mapped"));
            };
            let buffer = node.metadata().buffers.fresh(place(&extent, *index), Role::Data);
            handle.replace(&buffer, Rc::clone(content));
            node.file.forget_clean(*index..*index + 1);
        }
        self.mapping.log_data(node, handle).await
    }

    /// Begins an update. What was written before is put into the journal first, as an update of its own.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for a file that is not atomic, [`FsError::UpdateOpen`] for one that has begun one.
    pub(crate) async fn begin_update(&self, node: &Rc<Node>) -> Result<(), FsError> {
        if !node.is_atomic() {
            return Err(FsError::Invalid("the file is not atomic: set its attribute user.weir.atomic to 1"));
        }
        self.commit(std::slice::from_ref(node)).await?;
        if node.update_begun.replace(true) { Err(FsError::UpdateOpen) } else { Ok(()) }
    }

    /// Ends updates that were begun, and puts them into the running transaction, together.
    pub(crate) async fn end_updates(&self, nodes: &[Rc<Node>]) -> Result<(), FsError> {
        if nodes.iter().any(|node| !node.update_begun.get()) {
            return Err(FsError::Invalid("no update was begun"));
        }
        let end = async {
            let _locked = lock(&nodes.iter().collect::<Vec<_>>()).await;
            self.commit_locked(nodes).await?;
            nodes.iter().for_each(|node| node.update_begun.set(false));
            Ok(())
        };
        self.changes.changing(end).await
    }

    /// Takes back what was written since the update was begun, or since the file was synchronised.
    pub(crate) fn abandon(&self, node: &Node) {
        node.update.take();
        node.update_begun.set(false);
    }
}
