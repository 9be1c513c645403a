//! Cleaning: the blocks in use of a *victim*, a segment of which many are not, go to another place, and the segment is free behind the
//! next checkpoint (L2).
//!
//! - With [`Cleaner::Copy`] their pages are read, and written to the log of cold data.
//! - With [`Cleaner::Share`] the log of cold data gives places, and share commands let them read what the old places read: no page is
//!   transferred. Shares are orderless, so they are transferred and flushed before the checkpoint that leads to the new places (L5); the
//!   storage keeps a share whole (S7) and a flushed one durable, whether it is a volume or a drive.
//!
//! Nodes are written again by the checkpoint, to their own logs, with either cleaner: their footers name their successors.
//!
//! Two policies choose victims, as in F2FS. A call that finds few free segments takes the segment with the fewest blocks in use. In the
//! background it is the one with the best ratio of benefit to cost: what is gained, times how long the segment has not changed, by what is
//! read and written.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::str::FromStr;

use weir_f2fs::{
    BlockAddress, Log, NodeId, SEGMENT_BLOCKS, SegmentEntry, SegmentNumber, Summary, SummaryBlock, first_page,
};
use weir_journal::SyncedFile;
use weir_vfs::FsError;

use crate::file::{File, Slot};
use crate::mount::read_summary;
use crate::mounted::Mounted;
use crate::mutants::LfsMutant;
use crate::space::Space;

/// How blocks of victims are moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cleaner {
    /// They are read and written.
    #[default]
    Copy,
    /// They are remapped by the share command, which the storage must have.
    Share,
}

/// A name that no cleaner has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no cleaner is called {0:?}: there are copy and share")]
pub struct UnknownCleaner(pub String);

impl FromStr for Cleaner {
    type Err = UnknownCleaner;

    fn from_str(name: &str) -> Result<Cleaner, UnknownCleaner> {
        let found = Cleaner::ALL.into_iter().find(|cleaner| cleaner.name() == name);
        found.ok_or_else(|| UnknownCleaner(name.to_owned()))
    }
}

impl Cleaner {
    /// All of them.
    pub const ALL: [Cleaner; 2] = [Cleaner::Copy, Cleaner::Share];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Cleaner::Copy => "copy",
            Cleaner::Share => "share",
        }
    }
}

/// Who chooses the victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// The fewest blocks in use.
    Greedy,
    /// The best ratio of benefit to cost.
    CostBenefit,
}

/// What cleaning has done since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanerCounts {
    /// Segments that were cleaned.
    pub segments: u64,
    /// Pages of data that were moved.
    pub pages: u64,
    /// Nodes that were moved.
    pub nodes: u64,
}

/// A page in a victim.
struct VictimPage {
    file: Rc<File>,
    page: u64,
    slot: Slot,
    address: BlockAddress,
}

impl Space {
    /// The victim by a policy; `None` if no segment has a free block and one in use, but those of logs.
    pub(crate) fn find_victim(&self, policy: Policy, most: u32) -> Option<SegmentNumber> {
        let now = self.elapsed();
        let cost = |entry: &SegmentEntry| {
            let (valid, age) = (u64::from(entry.valid_blocks()), now.saturating_sub(entry.modified.get()) + 1);
            match policy {
                Policy::Greedy => valid * u64::from(u32::MAX),
                // What is gained a block that is read and written: the larger, the earlier.
                Policy::CostBenefit => {
                    let gain = (u64::from(SEGMENT_BLOCKS) - valid).saturating_mul(age).saturating_mul(1 << 16);
                    u64::MAX - gain / (2 * valid).max(1)
                }
            }
        };
        let candidates = (0..self.layout().main_segments()).map(SegmentNumber).filter_map(|segment| {
            let entry = self.entry(segment)?;
            let is_victim = (1..=most).contains(&entry.valid_blocks()) && !self.is_open(segment);
            is_victim.then(|| (cost(entry), segment))
        });
        candidates.min().map(|(_, segment)| segment)
    }
}

impl Mounted {
    /// Cleans victims until they have given so many blocks, or none is left: how many were gained. A checkpoint makes their segments free.
    ///
    /// # Errors
    /// [`FsError::Format`] for damage; what reading and writing fails by.
    pub(crate) async fn clean(&self, policy: Policy, blocks: u64) -> Result<u64, FsError> {
        let _alone = self.operations.begin_checkpoint().await;
        self.operations.check_writable()?;
        let mut gained = 0;
        while gained < blocks {
            // What is moved needs room before anything is free.
            let room = self.placement.space.borrow().free_segments().saturating_sub(1) * SEGMENT_BLOCKS / 2;
            let room = u64::from(room).saturating_sub(self.dirty_nodes()) as u32;
            let most = room.min(SEGMENT_BLOCKS - 1);
            let victim = self.placement.space.borrow().find_victim(policy, most);
            let Some(victim) = victim else { break };
            gained += self.clean_segment(victim).await?;
        }
        Ok(gained)
    }

    /// Moves what is in use of a victim: the blocks that were not.
    async fn clean_segment(&self, victim: SegmentNumber) -> Result<u64, FsError> {
        let (entry, known) = {
            let space = self.placement.space.borrow();
            let Some(entry) = space.entry(victim).copied() else { return Ok(0) };
            (entry, space.summary_in_memory(victim).map(|summary| Box::new(*summary)))
        };
        let summary = match known {
            Some(summary) => summary,
            None => read_summary(&self.image, &self.layout, victim).await?,
        };
        let mut counts = self.cleaned.get();
        match entry.log().is_some_and(Log::is_node) {
            true => counts.nodes += self.move_nodes(victim, &entry, &summary).await?,
            false => counts.pages += self.move_pages(victim, &entry, &summary).await?,
        }
        counts.segments += 1;
        self.cleaned.set(counts);
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

    /// Moves the pages of a victim: how many.
    async fn move_pages(
        &self,
        victim: SegmentNumber,
        entry: &SegmentEntry,
        summary: &SummaryBlock,
    ) -> Result<u64, FsError> {
        let mut pages = Vec::new();
        for (address, owner) in self.blocks_in_use(victim, entry, summary) {
            pages.extend(self.find_owner(address, &owner).await?);
        }
        match self.options.cleaner {
            Cleaner::Copy => self.copy_pages(pages).await,
            Cleaner::Share => self.share_pages(pages).await,
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
    async fn find_owner(&self, address: BlockAddress, owner: &Summary) -> Result<Option<VictimPage>, FsError> {
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
            let Some(first) = first_page(node.place, file.inode.borrow().addresses()) else { return Ok(None) };
            (Slot { node: Some(node), word }, first + u64::from(word))
        };
        let is_there = file.address(&slot) == address;
        Ok(is_there.then_some(VictimPage { file, page, slot, address }))
    }

    /// Reads pages, and writes them to the log of cold data.
    async fn copy_pages(&self, pages: Vec<VictimPage>) -> Result<u64, FsError> {
        let mut files: BTreeMap<NodeId, Rc<File>> = BTreeMap::new();
        let mut moved = 0;
        for VictimPage { file, page, slot, address } in pages {
            let Ok(index) = u32::try_from(page) else { continue };
            if self.cached_page(&file, page, address).await?.is_none() {
                continue;
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

    /// Lets new places read what the places of pages read (L5).
    async fn share_pages(&self, pages: Vec<VictimPage>) -> Result<u64, FsError> {
        let mut pairs = Vec::new();
        let mut before = Vec::new();
        for VictimPage { file, page, slot, address } in pages {
            let Ok(index) = u32::try_from(page) else { continue };
            before.extend(file.pages.untransferred());
            // A dirty page is written to another place soon; its old content is wanted until then.
            let new = self.placement.move_page(&file, &slot, Log::ColdData)?;
            file.pages.set_place(index, new.0.into());
            pairs.push((u64::from(address.0), u64::from(new.0)));
        }
        self.disk.wait_transferred(&before).await?;
        let mut tickets = Vec::new();
        self.disk.share(&pairs, &mut tickets).await?;
        if !self.options.rules.drops(LfsMutant::ShareNotAwaited) {
            self.disk.wait_transferred(&tickets).await?;
            self.disk.flush().await?;
        }
        Ok(pairs.len() as u64)
    }
}
