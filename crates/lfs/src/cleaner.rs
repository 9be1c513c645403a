//! Cleaning: the blocks in use of a *victim*, a segment of which many are not, go to another place, and the segment is free behind the
//! next checkpoint (L2).
//!
//! - With [`Cleaner::Copy`] their pages are read, and written to the log of cold data.
//! - With [`Cleaner::Share`] the log of cold data gives places, and share commands let them read what the old places read: no page is
//!   transferred. The old places count until the shares are transferred: calls that read go on meanwhile. Shares are orderless, so
//!   they are transferred and flushed before the checkpoint's footer, and before nodes of a synchronisation call that lead to the new
//!   places (L5); the storage keeps a share whole (S7) and a flushed one durable, whether it is a volume or a drive. The commands of a
//!   round need no order among them.
//!
//! A round of cleaning chooses all of its victims, and moves their pages together: reads go side by side, and a share command has as
//! many pages as it takes.
//!
//! Nodes are written again by the checkpoint, to their own logs, with either cleaner: their footers name their successors.
//!
//! Two policies choose victims, as in F2FS. A call that finds few free segments takes the segment with the fewest blocks in use. In the
//! background it is the one with the best ratio of benefit to cost: what is gained, times how long the segment has not changed, by what is
//! read and written.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use futures_util::future::join_all;
use tracing::warn;
use weir_f2fs::{
    BlockAddress, Log, NodeId, SEGMENT_BLOCKS, SegmentEntry, SegmentNumber, Summary, SummaryBlock, first_page,
};
use weir_format::{FormatError, Place, Structure};
use weir_journal::SyncedFile;
use weir_storage::Ticket;
use weir_vfs::FsError;

use crate::checkpoint::Durability;
use crate::cleaner_kind::{Cleaner, CleanerCounts};
use crate::file::{File, Slot};
use crate::mutants::LfsMutant;
use crate::space::Space;
use crate::summaries::read_summary;

/// Who chooses the victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// The fewest blocks in use.
    Greedy,
    /// The best ratio of benefit to cost.
    CostBenefit,
}

/// A page in a victim.
struct VictimPage {
    file: Rc<File>,
    page: u64,
    slot: Slot,
    address: BlockAddress,
}

impl Space {
    /// The victim by a policy, none of the `chosen` ones; `None` if no segment has a free block and one in use, but those of logs.
    pub(crate) fn find_victim(
        &self,
        policy: Policy,
        most: u32,
        chosen: &BTreeSet<SegmentNumber>,
    ) -> Option<SegmentNumber> {
        let now = self.elapsed();
        let cost = |entry: &SegmentEntry| {
            let (valid, age) =
                (u64::from(entry.valid_blocks()), now.saturating_sub(entry.modified.get()) + 1);
            match policy {
                Policy::Greedy => valid * u64::from(u32::MAX),
                // What is gained a block that is read and written: the larger, the earlier.
                Policy::CostBenefit => {
                    let gain =
                        (u64::from(SEGMENT_BLOCKS) - valid).saturating_mul(age).saturating_mul(1 << 16);
                    u64::MAX - gain / (2 * valid).max(1)
                }
            }
        };
        let candidates = (0..self.layout().main_segments()).map(SegmentNumber).filter_map(|segment| {
            let entry = self.entry(segment)?;
            let can_be = !self.is_open(segment) && !chosen.contains(&segment);
            let is_victim = can_be && (1..=most).contains(&entry.valid_blocks());
            is_victim.then(|| (cost(entry), segment))
        });
        candidates.min().map(|(_, segment)| segment)
    }
}

impl Durability<'_> {
    /// Cleans victims until they have given so many blocks, or none is left: how many were gained. A checkpoint makes their segments free.
    ///
    /// # Errors
    /// What writing fails by. A segment that cannot be read is left out.
    pub(crate) async fn clean(&self, policy: Policy, blocks: u64) -> Result<u64, FsError> {
        let _alone = self.operations.begin_checkpoint().await;
        self.operations.check_writable()?;
        let (mut gained, mut chosen, mut pages) = (0, self.damaged.borrow().clone(), Vec::new());
        while gained < blocks {
            // What is moved needs room before anything is free.
            let room = self.placement.space.borrow().free_segments().saturating_sub(1) * SEGMENT_BLOCKS / 2;
            let room = u64::from(room).saturating_sub(self.dirty_nodes() + pages.len() as u64) as u32;
            let most = room.min(SEGMENT_BLOCKS - 1);
            let victim = self.placement.space.borrow().find_victim(policy, most, &chosen);
            let Some(victim) = victim else { break };
            chosen.insert(victim);
            let before = pages.len();
            match self.take_victim(victim, &mut pages).await {
                Ok(blocks) => gained += blocks,
                Err(error) => {
                    pages.truncate(before);
                    self.leave_out(victim, &error);
                }
            }
        }
        let moved = match self.options.cleaner {
            Cleaner::Copy => self.operations.complete(self.copy_pages(pages)).await?,
            Cleaner::Share => self.operations.complete(self.share_pages(pages)).await?,
        };
        self.count_cleaned(|counts| counts.pages += moved);
        Ok(gained)
    }

    /// A victim cannot be read: its blocks stay where they are, and it is no victim again in this mount.
    fn leave_out(&self, victim: SegmentNumber, error: &FsError) {
        warn!(name: "segment_not_cleaned", segment = victim.0, %error, "a segment cannot be cleaned");
        self.damaged.borrow_mut().insert(victim);
    }

    fn count_cleaned(&self, count: impl FnOnce(&mut CleanerCounts)) {
        let mut counts = self.cleaned.get();
        count(&mut counts);
        self.cleaned.set(counts);
    }

    /// Marks the nodes of a victim, and adds its pages to those that are moved: the blocks of it that are not in use.
    async fn take_victim(&self, victim: SegmentNumber, pages: &mut Vec<VictimPage>) -> Result<u64, FsError> {
        let (entry, known) = {
            let space = self.placement.space.borrow();
            let Some(entry) = space.entry(victim).copied() else { return Ok(0) };
            (entry, space.summary_in_memory(victim).map(|summary| Box::new(*summary)))
        };
        let summary = match known {
            Some(summary) => summary,
            None => read_summary(&self.image, &self.layout, victim).await?,
        };
        if entry.log().is_some_and(Log::is_node) {
            let nodes = self.move_nodes(victim, &entry, &summary).await?;
            self.count_cleaned(|counts| counts.nodes += nodes);
        } else {
            for (address, owner) in self.blocks_in_use(victim, &entry, &summary) {
                match self.find_owner(address, &owner).await? {
                    Some(page) => pages.push(page),
                    None => self.check_is_free(address)?,
                }
            }
        }
        self.count_cleaned(|counts| counts.segments += 1);
        Ok(u64::from(SEGMENT_BLOCKS - entry.valid_blocks()))
    }

    /// Marks the nodes of a victim, so that the next checkpoint writes them elsewhere: how many.
    async fn move_nodes(
        &self,
        victim: SegmentNumber,
        entry: &SegmentEntry,
        summary: &SummaryBlock,
    ) -> Result<u64, FsError> {
        let mut moved = 0;
        for (address, owner) in self.blocks_in_use(victim, entry, summary) {
            let id = NodeId(owner.node.get());
            let found = self.placement.table.entry(id).await?;
            if found.address() != address {
                self.check_is_free(address)?;
                continue;
            }
            if found.inode.get() == id.0 {
                if let Some(file) = self.files.load(id).await? {
                    file.change(|_| ());
                }
            } else {
                let node = self.placement.nodes.load(id, NodeId(found.inode.get())).await?;
                self.placement.nodes.mark_dirty(&node);
            }
            moved += 1;
        }
        Ok(moved)
    }

    /// That a block which belongs to nothing is not in use any more: its segment would never become free.
    fn check_is_free(&self, address: BlockAddress) -> Result<(), FormatError> {
        let space = self.placement.space.borrow();
        let is_in_use = self
            .layout
            .segment_of(address)
            .and_then(|(segment, offset)| Some(space.entry(segment)?.is_valid(offset)));
        match is_in_use {
            Some(true) => {
                let (structure, place) = (Structure::SegmentTable, Place::Block(address.0.into()));
                Err(FormatError::corrupt(structure, place, "a block in use that belongs to nothing"))
            }
            _ => Ok(()),
        }
    }

    fn blocks_in_use(
        &self,
        victim: SegmentNumber,
        entry: &SegmentEntry,
        summary: &SummaryBlock,
    ) -> Vec<(BlockAddress, Summary)> {
        let in_use = (0..SEGMENT_BLOCKS).filter(|offset| entry.is_valid(*offset));
        let block = |offset: u32| {
            Some((self.layout.block_of(victim, offset)?, *summary.entries.get(offset as usize)?))
        };
        in_use.filter_map(block).collect()
    }

    /// The page that a block holds, if its summary is right.
    async fn find_owner(
        &self,
        address: BlockAddress,
        owner: &Summary,
    ) -> Result<Option<VictimPage>, FsError> {
        let id = NodeId(owner.node.get());
        let entry = self.placement.table.entry(id).await?;
        if entry.version != owner.version || entry.address() == BlockAddress::NULL {
            return Ok(None);
        }
        let inode = NodeId(entry.inode.get());
        let Some(file) = self.files.load(inode).await? else { return Ok(None) };
        let word = u32::from(owner.offset.get());
        let (slot, page) = if id == inode {
            (Slot { node: None, word }, u64::from(word))
        } else {
            let node = self.placement.nodes.load(id, inode).await?;
            let Some(first) = first_page(node.place, file.inode.borrow().addresses()) else {
                return Ok(None);
            };
            (Slot { node: Some(node), word }, first + u64::from(word))
        };
        let is_there = file.address(&slot) == address;
        Ok(is_there.then_some(VictimPage { file, page, slot, address }))
    }

    /// Reads pages, all at a time, and writes them to the log of cold data: how many.
    async fn copy_pages(&self, pages: Vec<VictimPage>) -> Result<u64, FsError> {
        let reads = pages.iter().map(|victim| self.cached_page(&victim.file, victim.page, &victim.slot));
        let contents = join_all(reads).await;
        let mut files: BTreeMap<NodeId, Rc<File>> = BTreeMap::new();
        let mut moved = 0;
        for (VictimPage { file, page, slot, address }, content) in pages.into_iter().zip(contents) {
            let content = match content {
                Ok(content) => content,
                Err(error) => {
                    let segment = self.layout.segment_of(address);
                    segment.into_iter().for_each(|(segment, _)| self.leave_out(segment, &error));
                    continue;
                }
            };
            let (Ok(index), Some(content)) = (u32::try_from(page), content) else { continue };
            // Writeback had a newer version of the page, and has put it elsewhere while the old one was read.
            if file.address(&slot) != address {
                continue;
            }
            if !file.pages.contains(index) {
                // What was read after it took its room.
                file.pages.insert(index, address.0.into(), content);
            }
            file.slots.borrow_mut().entry(index).or_insert(slot);
            file.moved.borrow_mut().insert(index);
            file.pages.mark_dirty(index);
            files.insert(file.number, file);
            moved += 1;
        }
        for file in files.values() {
            file.pages.submit_dirty(self.class(), self.class()).await?;
        }
        Ok(moved)
    }

    /// Lets new places read what the places of pages read, and the pages be there (L5): how many.
    async fn share_pages(&self, pages: Vec<VictimPage>) -> Result<u64, FsError> {
        let mut places = Vec::new();
        let done = self.share_places(&pages, &mut places).await;
        let mut moved = 0;
        for (VictimPage { file, page, slot, address }, new) in pages.into_iter().zip(places) {
            // A page that was written meanwhile is elsewhere. One that is dirty is written soon; its old content is wanted until then.
            match u32::try_from(page) {
                Ok(index) if done.is_ok() && file.address(&slot) == address => {
                    self.placement.lead_to(&file, &slot, new);
                    file.pages.set_place(index, new.0.into());
                    moved += 1;
                }
                _ => self.placement.space.borrow_mut().invalidate(new),
            }
        }
        done.map(|()| moved)
    }

    /// Takes `places` for pages, and lets them read what the places of the pages read; that is durable before a node leads there.
    async fn share_places(
        &self,
        pages: &[VictimPage],
        places: &mut Vec<BlockAddress>,
    ) -> Result<(), FsError> {
        if pages.is_empty() {
            return Ok(());
        }
        let files: BTreeMap<NodeId, &File> =
            pages.iter().map(|victim| (victim.file.number, &*victim.file)).collect();
        // A page that has its place may wait to be submitted: then its place reads what was there before.
        for file in files.values() {
            drop(file.pages.take_turn().await);
        }
        let mut before: Vec<Ticket> = files.values().flat_map(|file| file.pages.untransferred()).collect();
        // Shares have no order: one could overtake the checkpoint that has freed its target (L2).
        before.extend(self.checkpoints.footer());
        self.disk.wait_transferred(&before).await?;
        let mut pairs = Vec::new();
        for victim in pages {
            let new = self.placement.reserve_page(&victim.file, &victim.slot, Log::ColdData)?;
            places.push(new);
            pairs.push((u64::from(victim.address.0), u64::from(new.0)));
        }
        let mut tickets = Vec::new();
        self.disk.share(&pairs, &mut tickets).await?;
        if self.options.rules.drops(LfsMutant::ShareNotAwaited) {
            return Ok(());
        }
        self.disk.wait_transferred(&tickets).await?;
        // Without barriers, every node that leads there is written behind a flush.
        if self.has_barriers() {
            self.disk.flush().await?;
        }
        Ok(())
    }
}
