//! What a volume holds, for a copy elsewhere that is as of an earlier record: which blocks may have changed since. The chunks on
//! the disk say it, since their headers have sequence numbers.

use weir_storage::{Extent, Lba, Storage as _, read};

use crate::chunk::ParsedChunk;
use crate::error::VolumeError;
use crate::layout::ENTRIES_PER_PAGE;
use crate::map::Entry;
use crate::pager::WhenFull;
use crate::volume::Volume;

/// A logical block that is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// Which.
    pub lba: u32,
    /// Content checksum.
    pub checksum: u32,
    /// It may have been written, moved or shared behind the record that the search began with.
    pub is_newer: bool,
}

/// What a page of the map says, for a copy elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LivePage {
    /// The blocks that are mapped, in order.
    pub live: Vec<LiveBlock>,
    /// Of a volume with a base: the blocks that read zeros, in order. What is neither here nor live has not changed since the base.
    pub empty: Option<Vec<u32>>,
    /// The first logical block behind the page; `None` behind the last one.
    pub next: Option<u64>,
}

/// The physical blocks of chunks that are no newer than a record, as ranges in order.
pub struct OldBlocks(Vec<(u32, u32)>);

impl OldBlocks {
    fn holds(&self, block: u32) -> bool {
        let at = self.0.partition_point(|(first, _)| *first <= block);
        at.checked_sub(1).is_some_and(|at| block < self.0[at].1)
    }
}

impl Volume {
    /// Finds the chunks on the disk that hold nothing newer than the record `sequence`: one read for each chunk of segments
    /// that hold anything live. A chunk that cannot be read counts as newer.
    ///
    /// # Errors
    /// What the disk below answered to a flush.
    pub async fn find_old_blocks(&self, sequence: u64) -> Result<OldBlocks, VolumeError> {
        let mut old = Vec::new();
        if sequence == 0 {
            return Ok(OldBlocks(old));
        }
        weir_storage::flush(self).await?;
        let common = self.common();
        for segment in 0..common.geometry.segments {
            let mut offset = 0;
            while offset < common.geometry.segment_blocks
                && self.log().blocks.borrow().segments.live(segment) > 0
            {
                let at = common.geometry.block(segment, offset);
                let Ok(header) = read(&*common.disk, Extent::new(Lba(at), 1)).await else { break };
                let volume = common.geometry.volume;
                let Some(chunk) = ParsedChunk::parse(&header, volume, segment, offset) else { break };
                if chunk.last_sequence() <= sequence {
                    old.push((at as u32, at as u32 + chunk.blocks()));
                }
                offset += chunk.blocks();
            }
        }
        Ok(OldBlocks(old))
    }

    /// Lists what the page of the map says that `from` lies in. Shared blocks count as newer.
    ///
    /// # Errors
    /// What the disk below answered.
    pub async fn list_live(&self, from: u64, old: &OldBlocks) -> Result<LivePage, VolumeError> {
        let per_page = ENTRIES_PER_PAGE as u64;
        let page = from / per_page;
        let (first, end) = (page * per_page, (page + 1) * per_page);
        self.log().pager.load(WhenFull::Wait, |_| vec![page as u32]).await?;
        let blocks = self.log().blocks.borrow();
        let end = end.min(self.blocks());
        let mapped = blocks.map.known_in(first, end).filter(|(_, entry)| entry.is_mapped());
        let live = mapped.map(|(lba, marked)| {
            let Entry { block, checksum } = blocks.entry(lba);
            let is_shared = marked.block != block;
            LiveBlock { lba, checksum, is_newer: is_shared || !old.holds(block) }
        });
        let empty = blocks.map.known_in(first, end).filter(|(_, entry)| *entry == Entry::EMPTY);
        let empty = self.common().geometry.base.map(|_| empty.map(|(lba, _)| lba).collect());
        Ok(LivePage { live: live.collect(), empty, next: (end < self.blocks()).then_some(end) })
    }
}
