//! Where blocks are free, and where the six logs append: the segment table in memory, and the open segments with their summaries.
//!
//! # When a segment is free
//!
//! Blocks are only ever appended to a segment that had none in use. A segment whose last block is freed is *released*: the newest
//! checkpoint has blocks in it still, and after a power cut that checkpoint is what counts. It becomes free when a newer checkpoint
//! comes before everything that is written next ([`Space::take_over_released`]): after a barrier, or a flush where the storage has
//! none (L2).

mod open_segment;

use std::collections::BTreeSet;

use weir_f2fs::{
    BlockAddress, CheckpointPack, Layout, Log, NodeId, SEGMENT_BLOCKS, SegmentEntry, SegmentNumber, Summary,
    SummaryBlock,
};
use weir_vfs::FsError;

pub(crate) use open_segment::OpenSegment;
use open_segment::kind_of;

use crate::mutants::{LfsMutant, LfsRules};

/// Blocks that a directory takes for one name at most: one of names and three nodes on the way, or its first two of names.
const BLOCKS_OF_NAME: u64 = 4;

/// Where blocks are free, and where the logs append.
pub(crate) struct Space {
    layout: Layout,
    segments: Vec<SegmentEntry>,
    free: BTreeSet<u32>,
    released: BTreeSet<u32>,
    /// Segments whose entries are newer than those in the table on the disk.
    changed: BTreeSet<u32>,
    logs: [OpenSegment; 6],
    /// Summaries of segments that are full, to be written before the next checkpoint.
    summaries: Vec<(SegmentNumber, Box<SummaryBlock>)>,
    /// Those that the last checkpoint has written: they may be on their way.
    written_summaries: Vec<(SegmentNumber, Box<SummaryBlock>)>,
    user_blocks: u64,
    /// Blocks in use and promised ones.
    used_blocks: u64,
    /// Those that the newest checkpoint has, and those promised since.
    used_since_checkpoint: u64,
    /// Seconds that the filesystem was mounted before, and the time of this mount.
    elapsed: u64,
    rules: LfsRules,
}

impl Space {
    /// The space as a checkpoint has it; `segments` are all entries, those of its journal included, and `journaled` says which came
    /// from there. `node_summaries` are those of the open node segments.
    pub(crate) fn from_checkpoint(
        layout: &Layout,
        pack: &CheckpointPack,
        node_summaries: [Box<SummaryBlock>; 3],
        segments: Vec<SegmentEntry>,
        journaled: BTreeSet<u32>,
        rules: LfsRules,
    ) -> Result<Space, FsError> {
        let header = &pack.header;
        let summary = |log: Log| match log.is_node() {
            true => node_summaries[log as usize - 3].clone(),
            false => pack.data_summaries[log as usize].clone(),
        };
        let open = |log: Log| OpenSegment::from_header(header, log, summary(log));
        let [hot, warm, cold, hot_node, warm_node, cold_node] = Log::ALL.map(open);
        let logs = [hot?, warm?, cold?, hot_node?, warm_node?, cold_node?];
        let is_open = |segment: u32| logs.iter().any(|log| log.segment.0 == segment);
        let free = (0..layout.main_segments())
            .filter(|segment| segments[*segment as usize].valid_blocks() == 0 && !is_open(*segment))
            .collect();
        Ok(Space {
            layout: layout.clone(),
            free,
            released: BTreeSet::new(),
            changed: journaled,
            logs,
            summaries: Vec::new(),
            written_summaries: Vec::new(),
            user_blocks: header.user_blocks.get(),
            used_blocks: header.valid_blocks.get(),
            used_since_checkpoint: header.valid_blocks.get(),
            elapsed: header.elapsed.get(),
            segments,
            rules,
        })
    }

    /// Promises blocks to data or nodes that have no place yet.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] where users may not fill so many.
    pub(crate) fn promise(&mut self, blocks: u64) -> Result<(), FsError> {
        self.require_room(blocks)?;
        self.used_blocks += blocks;
        self.used_since_checkpoint += blocks;
        Ok(())
    }

    /// A name was made that roll-forward makes again: the directory may take more blocks there, as names that were removed since the
    /// newest checkpoint are in it still.
    pub(crate) fn expect_name(&mut self) {
        self.used_since_checkpoint += BLOCKS_OF_NAME;
    }

    /// Whether roll-forward finds room for all that was promised since the newest checkpoint: what was freed since may be in use there.
    pub(crate) fn can_roll_forward(&self) -> bool {
        self.used_since_checkpoint <= self.user_blocks
    }

    /// That so many blocks could be promised.
    ///
    /// # Errors
    /// As [`promise`](Self::promise).
    pub(crate) fn require_room(&self, blocks: u64) -> Result<(), FsError> {
        match self.used_blocks.saturating_add(blocks) > self.user_blocks {
            true => Err(FsError::NoSpace),
            false => Ok(()),
        }
    }

    /// A promised block is not wanted, or a block has no owner any more: its promise is taken back, and its place is free.
    pub(crate) fn give_back(&mut self, address: BlockAddress) {
        if address == BlockAddress::NULL {
            return;
        }
        self.used_blocks = self.used_blocks.saturating_sub(1);
        self.invalidate(address);
    }

    /// The content of a block has another place now: the block has none in use.
    pub(crate) fn invalidate(&mut self, address: BlockAddress) {
        let Some((segment, offset)) = self.layout.segment_of(address) else { return };
        let modified = self.elapsed.into();
        let entry = &mut self.segments[segment.0 as usize];
        if entry.set_valid(offset, false) {
            entry.modified = modified;
            self.changed.insert(segment.0);
            if entry.valid_blocks() == 0 && !self.is_open(segment) {
                let is_early = self.rules.drops(LfsMutant::SegmentReusedEarly);
                let emptied = if is_early { &mut self.free } else { &mut self.released };
                emptied.insert(segment.0);
            }
        }
    }

    /// Appends a block to a log: its place. `owner` is what the segment's summary says of it.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] if no segment is free, which the cleaner's reserve prevents.
    pub(crate) fn append(&mut self, log: Log, owner: Summary) -> Result<BlockAddress, FsError> {
        let OpenSegment { segment, next, .. } = self.logs[log as usize];
        let address = self.layout.block_of(segment, next).ok_or(FsError::NoSpace)?;
        // The next block of a log always has a place, which node blocks name.
        let successor = match next + 1 == SEGMENT_BLOCKS {
            true => Some(self.find_free_segment(segment).ok_or(FsError::NoSpace)?),
            false => None,
        };
        let open = &mut self.logs[log as usize];
        open.summary.entries[next as usize] = owner;
        open.next += 1;
        self.mark_valid(segment, next, log);
        if let Some(successor) = successor {
            self.open_segment(log, successor);
        }
        Ok(address)
    }

    /// Where the next block of a log goes.
    pub(crate) fn next_of(&self, log: Log) -> BlockAddress {
        let OpenSegment { segment, next, .. } = self.logs[log as usize];
        self.layout.block_of(segment, next).unwrap_or(BlockAddress::NULL)
    }

    /// Keeps free segments from the logs until the next checkpoint: roll-forward needs what lies in them.
    pub(crate) fn withhold(&mut self, segments: &BTreeSet<u32>) {
        for segment in segments {
            if self.free.remove(segment) {
                self.released.insert(*segment);
            }
        }
    }

    /// Marks a block as used where roll-forward found it, and says so in the segment's summary.
    pub(crate) fn mark_recovered(&mut self, segment: SegmentNumber, offset: u32, log: Log) {
        self.mark_valid(segment, offset, log);
    }

    fn mark_valid(&mut self, segment: SegmentNumber, offset: u32, log: Log) {
        let modified = self.elapsed.into();
        let entry = &mut self.segments[segment.0 as usize];
        if entry.valid_blocks() == 0 {
            entry.set_log(log);
        }
        entry.set_valid(offset, true);
        entry.modified = modified;
        self.changed.insert(segment.0);
        self.released.remove(&segment.0);
    }

    /// Lets a log go on in a free segment, whether its own is full or not.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] if there is none.
    pub(crate) fn start_segment(&mut self, log: Log) -> Result<(), FsError> {
        let successor = self.find_free_segment(self.logs[log as usize].segment).ok_or(FsError::NoSpace)?;
        self.open_segment(log, successor);
        Ok(())
    }

    fn open_segment(&mut self, log: Log, successor: u32) {
        self.free.remove(&successor);
        let entry = &mut self.segments[successor as usize];
        entry.set_log(log);
        self.changed.insert(successor);
        let new = OpenSegment::new(SegmentNumber(successor), kind_of(log));
        let full = std::mem::replace(&mut self.logs[log as usize], new);
        if self.segments[full.segment.0 as usize].valid_blocks() == 0 {
            self.released.insert(full.segment.0);
        }
        self.summaries.push((full.segment, full.summary));
    }

    /// The next free segment behind one, so that a log goes over the disk in one direction.
    fn find_free_segment(&self, behind: SegmentNumber) -> Option<u32> {
        self.free.range(behind.0..).next().or_else(|| self.free.iter().next()).copied()
    }

    /// Whether a log appends to a segment.
    pub(crate) fn is_open(&self, segment: SegmentNumber) -> bool {
        self.logs.iter().any(|log| log.segment == segment)
    }

    /// A checkpoint without the blocks of released segments comes before what is written next: they are free (L2).
    pub(crate) fn take_over_released(&mut self, released: &BTreeSet<u32>) {
        for segment in released {
            if self.released.remove(segment) {
                self.free.insert(*segment);
            }
        }
    }

    /// Segments that the next checkpoint makes free.
    pub(crate) fn released(&self) -> BTreeSet<u32> {
        self.released.clone()
    }

    /// Summaries that are to be written before the next checkpoint, which writes them now.
    pub(crate) fn take_summaries(&mut self) -> &[(SegmentNumber, Box<SummaryBlock>)] {
        self.written_summaries = std::mem::take(&mut self.summaries);
        &self.written_summaries
    }

    /// Segments whose entries are newer than those in the table on the disk.
    pub(crate) fn changed(&self) -> &BTreeSet<u32> {
        &self.changed
    }

    /// The table on the disk has the newest entries of these segments.
    pub(crate) fn written_to_table(&mut self, segments: impl IntoIterator<Item = u32>) {
        segments.into_iter().for_each(|segment| _ = self.changed.remove(&segment));
    }

    /// The entry of a segment; `None` outside the main area.
    pub(crate) fn entry(&self, segment: SegmentNumber) -> Option<&SegmentEntry> {
        self.segments.get(segment.0 as usize)
    }

    /// The summary of a segment, as far as memory has it: of an open one, or of one whose summary is not written yet.
    pub(crate) fn summary_in_memory(&self, segment: SegmentNumber) -> Option<&SummaryBlock> {
        let open = self.logs.iter().find(|log| log.segment == segment).map(|log| &*log.summary);
        open.or_else(|| {
            let all = self.written_summaries.iter().chain(&self.summaries);
            let waiting = all.rev().find(|(full, _)| *full == segment);
            waiting.map(|(_, summary)| &**summary)
        })
    }

    /// Puts another summary of a segment beside those that wait to be written, or into the open segment.
    pub(crate) fn set_summary(&mut self, segment: SegmentNumber, summary: Box<SummaryBlock>) {
        if let Some(open) = self.logs.iter_mut().find(|log| log.segment == segment) {
            open.summary = summary;
            return;
        }
        self.summaries.retain(|(full, _)| *full != segment);
        self.summaries.push((segment, summary));
    }

    /// Puts the counts and the logs into the header of a checkpoint, and the summaries of open segments into its pack.
    pub(crate) fn fill_pack(&mut self, pack: &mut CheckpointPack, with_nodes: bool) -> Result<(), FsError> {
        self.used_since_checkpoint = self.used_blocks;
        let header = &mut pack.header;
        header.valid_blocks = self.used_blocks.into();
        header.free_segments = ((self.free.len() + self.released.len()) as u32).into();
        header.elapsed = self.elapsed.into();
        for log in Log::ALL {
            header.set_log(log, self.logs[log as usize].state())?;
        }
        let mut summaries = self.logs.iter().map(|log| log.summary.clone());
        for slot in &mut pack.data_summaries {
            let journal = slot.journal;
            if let Some(summary) = summaries.next() {
                *slot = summary;
            }
            slot.journal = journal;
        }
        let nodes: Vec<_> = summaries.collect();
        pack.node_summaries = if with_nodes { nodes.try_into().ok() } else { None };
        Ok(())
    }

    /// Free segments, without those that the next checkpoint makes free.
    pub(crate) fn free_segments(&self) -> u32 {
        self.free.len() as u32
    }

    /// Blocks that users may fill, and those of them in use.
    pub(crate) fn user_blocks(&self) -> (u64, u64) {
        (self.user_blocks, self.used_blocks)
    }

    /// Where segments and blocks are.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Seconds that the filesystem has been mounted, over all mounts, at the last checkpoint.
    pub(crate) fn elapsed(&self) -> u64 {
        self.elapsed
    }

    /// Sets them.
    pub(crate) fn set_elapsed(&mut self, seconds: u64) {
        self.elapsed = seconds;
    }
}

/// What the summary of a segment says of a block of a node.
pub(crate) fn summary_of_node(node: NodeId, version: u8) -> Summary {
    Summary { node: node.0.into(), version, offset: 0.into() }
}

/// What the summary of a segment says of a block of data, whose address is word `word` of a node.
pub(crate) fn summary_of_data(node: NodeId, version: u8, word: u32) -> Summary {
    Summary { node: node.0.into(), version, offset: (word as u16).into() }
}
