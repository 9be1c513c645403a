//! Checkpoints: all of the filesystem as it is between two calls, in the older of the two packs.
//!
//! 1. No call changes anything, and dirty data is submitted: a checkpoint has the data that its nodes lead to. (Linux's F2FS leaves
//!    it dirty, and a power cut shows zeros where a file has grown.)
//! 2. Dirty nodes, the blocks of the two tables, summaries and the pack are laid out, all at once. Calls go on.
//! 3. All of it is submitted but the pack's footer, as one epoch; the footer is an epoch of its own (L1). Where the storage keeps no
//!    order, the footer is written with pre-flush and FUA when the rest is transferred.
//! 4. Segments and numbers of nodes that the checkpoint freed may be used (L2).
//!
//! A caller that only needs order waits for queue space alone, and for the checkpoint before to be transferred.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Deref;
use std::rc::Rc;

use weir_block::{Class, Durable, Run};
use weir_f2fs::{
    Allocation, BlockAddress, CheckpointPack, Log, LogState, NodeId, SEGMENT_ENTRIES_PER_BLOCK,
    SEGMENT_JOURNAL_ENTRIES, SegmentEntry, SegmentJournal, SegmentJournalEntry, SegmentNumber,
    SegmentTableBlock, checkpoint_flags, header_checksum,
};
use weir_journal::SyncedFile;
use weir_runtime::{Permit, Semaphore};
use weir_storage::Ticket;
use weir_vfs::{FsError, ReadOnlyReason};
use zerocopy::{FromZeros, IntoBytes};

use crate::blocks::BlockWrite;
use crate::file::File;
use crate::mounted::Mounted;
use crate::mutants::LfsMutant;
use crate::placement::Marks;
use crate::space::Space;
use crate::under_way::WrittenNodes;

/// Why a checkpoint is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// What comes next is behind it.
    Order,
    /// It is to be durable.
    Durability,
    /// It is to be durable, and nothing comes behind it.
    Unmount,
}

/// The newest checkpoint, and the next.
pub(crate) struct Checkpoints {
    pack: RefCell<CheckpointPack>,
    /// Which of the two packs is written next.
    next: Cell<usize>,
    /// Nodes and checkpoints are submitted by one task at a time: on the disk they are in the order of their places.
    pub(crate) submitting: Semaphore,
    /// The footer of the last one.
    footer: RefCell<Option<Ticket>>,
    written: Cell<u64>,
}

/// A checkpoint that is laid out, and nothing of it is written.
struct LaidOut {
    blocks: Vec<BlockWrite>,
    footer: BlockWrite,
    nodes: WrittenNodes,
    released: BTreeSet<u32>,
    /// Numbers of nodes that it frees.
    freed: usize,
}

impl Checkpoints {
    /// The checkpoint that was read, from pack `index`.
    pub(crate) fn new(pack: CheckpointPack, index: usize) -> Checkpoints {
        Checkpoints {
            pack: RefCell::new(pack),
            next: Cell::new(1 - index.min(1)),
            submitting: Semaphore::new(1),
            footer: RefCell::default(),
            written: Cell::new(0),
        }
    }

    /// Where a log went on at the newest one.
    pub(crate) fn log(&self, log: Log) -> Option<LogState> {
        self.pack.borrow().header.log(log)
    }

    /// Whether a node with this version in its footer is behind the newest one.
    pub(crate) fn is_followed_by(&self, version: u64) -> bool {
        self.pack.borrow().is_followed_by(version)
    }

    /// The footer of the last one, which may be on its way.
    pub(crate) fn footer(&self) -> Option<Ticket> {
        self.footer.borrow().clone()
    }

    /// How many were written since the mount.
    pub(crate) fn written(&self) -> u64 {
        self.written.get()
    }
}

/// What makes a mounted filesystem durable: checkpoints, synchronisation calls, cleaning, roll-forward.
pub(crate) struct Durability<'a>(pub(crate) &'a Mounted);

impl Deref for Durability<'_> {
    type Target = Mounted;

    fn deref(&self) -> &Mounted {
        self.0
    }
}

impl Durability<'_> {
    /// Writes a checkpoint.
    ///
    /// # Errors
    /// [`FsError::ReadOnly`]; what reading tables and writing fails by, after which nothing can be changed.
    pub(crate) async fn write_checkpoint(&self, purpose: Purpose) -> Result<(), FsError> {
        let alone = self.operations.begin_checkpoint().await;
        self.operations.check_writable()?;
        let written = self.operations.complete(self.write_checkpoint_alone(alone, purpose)).await;
        written.inspect_err(|error| self.operations.stop_after(error))
    }

    /// The same, for a caller that is `alone`: no call changes anything.
    async fn write_checkpoint_alone(&self, alone: Permit, purpose: Purpose) -> Result<(), FsError> {
        let data = self.submit_all_data().await?;
        let _submitting = self.checkpoints.submitting.acquire(1).await;
        // What the one before has written of tables may be on its way until then, and is kept in memory.
        let footer = self.checkpoints.footer.borrow().clone();
        if let Some(before) = footer {
            self.disk.wait_transferred(&[before]).await?;
        }
        let laid_out = self.lay_out(purpose).await?;
        if purpose != Purpose::Unmount {
            drop(alone);
            return self.submit_checkpoint(laid_out, data, purpose).await;
        }
        // No call is answered whose change the last checkpoint does not have.
        self.submit_checkpoint(laid_out, data, purpose).await?;
        self.operations.stop(ReadOnlyReason::Unmounted);
        drop(alone);
        Ok(())
    }

    /// Lets each log append: one that filled gaps of a segment goes on in a free one.
    pub(crate) fn start_appending(&self) -> Result<(), FsError> {
        for log in Log::ALL {
            let state = self.checkpoints.log(log);
            if state.is_none_or(|state| state.allocation == Allocation::Reuse) {
                self.placement.space.borrow_mut().start_segment(log)?;
            }
        }
        Ok(())
    }

    /// Submits all dirty pages, of files and directories. What is on its way. An inode may lead to a page whose write has failed: that
    /// page's old content is what the newest checkpoint has, and nothing else may get its place.
    async fn submit_all_data(&self) -> Result<Vec<Ticket>, FsError> {
        let class = self.class();
        for file in self.files.cache.dirty_files() {
            file.submit_dirty(class, class).await?;
        }
        let files = self.files.all();
        let data = files.iter().flat_map(|file| file.pages.untransferred()).collect();
        files.iter().try_for_each(|file| file.pages.check_written())?;
        Ok(data)
    }

    /// Lays out a checkpoint. What it needs of the tables is read first; then nothing waits.
    async fn lay_out(&self, purpose: Purpose) -> Result<LaidOut, FsError> {
        let placement = &self.placement;
        let files: Vec<_> = self.files.all().into_iter().filter(|file| file.is_dirty()).collect();
        let inodes = placement.nodes.dirty_inodes();
        let nodes: Vec<_> = inodes.iter().flat_map(|inode| placement.nodes.dirty_of(*inode)).collect();
        let numbers = files.iter().map(|file| file.number).chain(nodes.iter().map(|node| node.id));
        let loaded = placement.table.load_blocks(numbers).await?;

        let mut blocks = Vec::new();
        for node in &nodes {
            let is_directory = self.files.find(node.inode).is_some_and(|file| file.is_directory());
            blocks.push(placement.write_node(node, is_directory, Marks::default())?);
        }
        for file in &files {
            blocks.push(placement.write_inode(file, Marks::default())?);
        }
        let mut pack = self.checkpoints.pack.borrow_mut();
        let version = pack.header.version.get().wrapping_add(1);
        pack.header.version = version.into();
        let flags = [(checkpoint_flags::CRC_RECOVERY, true), (checkpoint_flags::COMPACT, false)];
        flags.into_iter().for_each(|(flag, on)| set_flag(&mut pack, flag, on));
        [checkpoint_flags::TRIMMED, checkpoint_flags::NO_CRC_RECOVERY]
            .into_iter()
            .for_each(|flag| set_flag(&mut pack, flag, false));
        pack.orphans = self.orphans();
        blocks.extend(placement.table.fill_pack(&mut pack, &loaded)?);
        let mut space = placement.space.borrow_mut();
        space.set_elapsed(self.elapsed());
        blocks.extend(write_segment_table(&mut space, &mut pack)?);
        space.fill_pack(&mut pack, purpose == Purpose::Unmount)?;
        let compact = pack.fits_compact();
        set_flag(&mut pack, checkpoint_flags::COMPACT, compact);
        let layout = space.layout().clone();
        for (segment, summary) in space.take_summaries() {
            if let Some(place) = layout.summary_block(*segment) {
                blocks.push(BlockWrite::new(place, &summary.to_bytes()));
            }
        }
        let encoded = pack.encode(&layout)?;
        pack.checksum = encoded.first().map_or(0, |header| header_checksum(header));
        placement.chain_version.set(pack.chain_version());
        placement.chain_nodes.set(0);
        let start = layout.pack_start(self.checkpoints.next.get()).0;
        let pack_blocks = (start..).map(BlockAddress).zip(&encoded);
        blocks.extend(pack_blocks.map(|(place, block)| BlockWrite::new(place, block)));
        let footer = blocks.pop().ok_or(FsError::NoSpace)?;
        self.checkpoints.next.set(1 - self.checkpoints.next.get());
        for file in self.files.all() {
            file.is_new.set(false);
            file.needs_checkpoint.set(false);
            file.holds_update.set(false);
            file.lost_names.borrow_mut().clear();
        }
        let (released, freed) = (space.released(), placement.table.freed());
        Ok(LaidOut { blocks, footer, nodes: WrittenNodes { nodes, files }, released, freed })
    }

    /// Submits what is laid out (L1), and waits as far as the storage and the purpose demand.
    async fn submit_checkpoint(
        &self,
        LaidOut { blocks, footer, nodes, released, freed }: LaidOut,
        mut tickets: Vec<Ticket>,
        purpose: Purpose,
    ) -> Result<(), FsError> {
        let ticket = if self.has_barriers() {
            let is_behind = !self.options.rules.drops(LfsMutant::FooterNotBehind);
            let end = if is_behind { Class::Barrier } else { self.class() };
            self.submit_blocks(blocks, end, &mut tickets).await?;
            self.under_way.keep(tickets.clone(), nodes);
            let mut last = Vec::new();
            self.submit_blocks(vec![footer], Class::Barrier, &mut last).await?;
            last.pop()
        } else {
            self.submit_blocks(blocks, Class::Orderless, &mut tickets).await?;
            self.disk.wait_transferred(&tickets).await?;
            let is_flushed = match self.options.rules.drops(LfsMutant::FooterNotFlushed) {
                true => Durable::Nothing,
                false => Durable::WriteAndEarlier,
            };
            Some(self.disk.write_commit(footer.place, &footer.content, is_flushed).await?)
        };
        // Before anything is free: a share command waits for it.
        *self.checkpoints.footer.borrow_mut() = ticket.clone();
        self.placement.space.borrow_mut().take_over_released(&released);
        self.placement.table.take_over_freed(freed);
        self.checkpoints.written.set(self.checkpoints.written.get() + 1);
        if purpose != Purpose::Order && self.has_barriers() {
            tickets.extend(ticket);
            self.disk.wait_transferred(&tickets).await?;
            self.disk.flush().await?;
        }
        Ok(())
    }

    /// Submits blocks in the order of their places; the last one is of class `last`. Waits for queue space only.
    pub(crate) async fn submit_blocks(
        &self,
        mut blocks: Vec<BlockWrite>,
        last: Class,
        tickets: &mut Vec<Ticket>,
    ) -> Result<(), FsError> {
        blocks.sort_by_key(|block| block.place);
        let mut runs: Vec<Run> = Vec::new();
        for BlockWrite { place, content } in blocks {
            Run::push(&mut runs, place, content);
        }
        let count = runs.len();
        for (nth, run) in (1..).zip(&runs) {
            let last = if nth == count { last } else { self.class() };
            self.disk.write(run.start, &run.blocks, self.class(), last, tickets).await?;
        }
        Ok(())
    }

    /// Inodes without a name that are in use: the next mount frees them, if there is a power cut (L7).
    fn orphans(&self) -> Vec<NodeId> {
        let is_listed =
            |file: &&Rc<File>| file.links() == 0 && !self.options.rules.drops(LfsMutant::OrphanKept);
        let unnamed = self.files.all().into_iter().filter(|file| is_listed(&file)).map(|file| file.number);
        let mut orphans = self.kept_orphans.borrow().clone();
        orphans.extend(unnamed);
        orphans.into_iter().collect()
    }
}

fn set_flag(pack: &mut CheckpointPack, flag: u32, on: bool) {
    let flags = pack.header.flags.get();
    pack.header.flags = (if on { flags | flag } else { flags & !flag }).into();
}

/// Puts the newest entries of segments into the pack's journal, or all of them into the blocks of the table that are to be written.
fn write_segment_table(space: &mut Space, pack: &mut CheckpointPack) -> Result<Vec<BlockWrite>, FsError> {
    let changed: Vec<u32> = space.changed().iter().copied().collect();
    let mut writes = Vec::new();
    if changed.len() > SEGMENT_JOURNAL_ENTRIES {
        let blocks: BTreeSet<u32> =
            changed.iter().map(|segment| segment / SEGMENT_ENTRIES_PER_BLOCK as u32).collect();
        for index in blocks {
            pack.segment_copies.switch(index);
            let second = pack.segment_copies.is_second(index);
            let Some(place) = space.layout().segment_table_block(index, second) else { continue };
            writes.push(BlockWrite::new(place, segment_table_block(space, index).as_bytes()));
        }
        space.written_to_table(changed);
    }
    let journal: Vec<_> = space
        .changed()
        .iter()
        .filter_map(|segment| {
            let entry = *space.entry(SegmentNumber(*segment))?;
            Some(SegmentJournalEntry { segment: (*segment).into(), entry })
        })
        .collect();
    pack.set_segment_journal(&SegmentJournal::from_entries(&journal)?);
    Ok(writes)
}

/// A block of the segment table, as the segments are.
fn segment_table_block(space: &Space, index: u32) -> SegmentTableBlock {
    let mut block = SegmentTableBlock::new_zeroed();
    let first = index * SEGMENT_ENTRIES_PER_BLOCK as u32;
    for (segment, slot) in (first..).zip(block.entries.iter_mut()) {
        *slot = space.entry(SegmentNumber(segment)).copied().unwrap_or_else(SegmentEntry::new_zeroed);
    }
    block
}
