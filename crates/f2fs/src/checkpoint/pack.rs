//! A whole checkpoint pack.

use weir_format::{FormatError, Place};
use zerocopy::IntoBytes;

use super::header::{CheckpointHeader, checkpoint_flags, header_checksum, sum};
use super::{compact, corrupt, orphans};
use crate::block::{BLOCK_BYTES, NodeId, SEGMENT_BLOCKS};
use crate::layout::{CHECKPOINT_CHECKSUM, Layout, TableCopies};
use crate::log::Log;
use crate::summary::{NodeJournal, SegmentJournal, SummaryBlock, SummaryKind};

/// A checkpoint pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointPack {
    /// Counts, logs and flags. Sizes and flags that follow from the other fields are set by [`encode`](Self::encode).
    pub header: CheckpointHeader,
    /// Which copies of segment table blocks are valid.
    pub segment_copies: TableCopies,
    /// Which copies of node address table blocks are valid.
    pub node_copies: TableCopies,
    /// Inodes to be freed by the next mount.
    pub orphans: Vec<NodeId>,
    /// Of the open segments of hot, warm and cold data. The first has the journal of node addresses, the last that of segments.
    pub data_summaries: [Box<SummaryBlock>; 3],
    /// Of the open segments of hot, warm and cold nodes. `None`: they are to be made from the node blocks' footers.
    pub node_summaries: Option<[Box<SummaryBlock>; 3]>,
    /// The checksum of the header that it was read from; 0 where it was not read.
    pub checksum: u32,
}

impl CheckpointPack {
    /// The version that nodes carry which are written behind this checkpoint, so that roll-forward finds them
    /// ([`NodeFooter::version`](crate::NodeFooter::version)).
    pub fn chain_version(&self) -> u64 {
        let version = self.header.version.get();
        match self.header.has(checkpoint_flags::CRC_RECOVERY) {
            true => version | u64::from(self.checksum) << 32,
            false => version,
        }
    }

    /// Whether a node with this version in its footer is behind this checkpoint. Where `fsck.f2fs` has written the checkpoint anew, its
    /// checksum is another than the nodes have.
    pub fn is_followed_by(&self, version: u64) -> bool {
        let differs = version ^ self.chain_version();
        match self.header.has(checkpoint_flags::NO_CRC_RECOVERY) {
            true => differs as u32 == 0,
            false => differs == 0,
        }
    }

    /// Reads the pack that starts at block `start`, of which `bytes` has all blocks or more.
    ///
    /// # Errors
    ///
    /// What is damaged; header and footer that differ, as half a pack has; the name of what is outside the subset.
    pub fn read(bytes: &[u8], start: u32, layout: &Layout) -> Result<Self, FormatError> {
        let header = CheckpointHeader::read(bytes, start, layout)?;
        let (pack_blocks, summary_start) = (header.pack_blocks.get(), header.summary_start.get());
        let blocks = |from: u32, to: u32| {
            let range = from as usize * BLOCK_BYTES..to as usize * BLOCK_BYTES;
            bytes.get(range).ok_or_else(|| corrupt(start, "the pack is cut off"))
        };
        if blocks(pack_blocks - 1, pack_blocks)? != blocks(0, 1)? {
            return Err(corrupt(start, "header and footer differ: the pack was not written to its end"));
        }
        let payload_end = 1 + layout.payload_blocks();
        let (segment_range, node_range) = layout.bitmap_ranges();
        let segment_copies = match segment_range {
            Some(range) => &blocks(0, 1)?[range],
            None => &blocks(1, payload_end)?[..layout.segment_bitmap_bytes() as usize],
        };
        let node_start = pack_blocks - 1 - header.node_summary_blocks();
        let orphans = if header.has(checkpoint_flags::ORPHANS) {
            orphans::read(blocks(payload_end, summary_start)?, start, layout)?
        } else {
            Vec::new()
        };
        let data = blocks(summary_start, node_start)?;
        let data_summaries = if header.is_compact() {
            compact::read(data, &header, start)?
        } else {
            read_summaries(data, start + summary_start, SummaryKind::Data)?
        };
        let node_summaries = match header.node_summary_blocks() {
            0 => None,
            _ => {
                let nodes = blocks(node_start, pack_blocks - 1)?;
                Some(read_summaries(nodes, start + node_start, SummaryKind::Node)?)
            }
        };
        NodeJournal::read(&data_summaries[Log::HotData as usize].journal, layout)?;
        SegmentJournal::read(&data_summaries[Log::ColdData as usize].journal, layout)?;
        Ok(Self {
            header,
            segment_copies: TableCopies(segment_copies.to_vec()),
            node_copies: TableCopies(blocks(0, 1)?[node_range].to_vec()),
            orphans,
            data_summaries,
            node_summaries,
            checksum: header_checksum(bytes),
        })
    }

    /// The newer whole pack of two, and which it is (0 or 1).
    ///
    /// # Errors
    ///
    /// Where one of them is of a kind outside the subset, that; where neither is whole, what is wrong with the first.
    pub fn choose(packs: [Result<Self, FormatError>; 2]) -> Result<(Self, usize), FormatError> {
        match packs {
            // What is not understood may be the newer one.
            [Err(error), _] | [_, Err(error)] if error.is_unsupported() => Err(error),
            [Ok(first), Ok(second)] if second.header.is_newer_than(&first.header) => Ok((second, 1)),
            [Ok(first), _] => Ok((first, 0)),
            [Err(_), Ok(second)] => Ok((second, 1)),
            [Err(error), Err(_)] => Err(error),
        }
    }

    /// The newest entries of the node address table.
    ///
    /// # Errors
    ///
    /// As [`NodeJournal::read`]: none of a pack that was read.
    pub fn node_journal(&self, layout: &Layout) -> Result<NodeJournal, FormatError> {
        NodeJournal::read(&self.data_summaries[Log::HotData as usize].journal, layout)
    }

    /// Changes the newest entries of the node address table.
    pub fn set_node_journal(&mut self, journal: &NodeJournal) {
        self.data_summaries[Log::HotData as usize].journal = journal.to_bytes();
    }

    /// The newest entries of the segment table.
    ///
    /// # Errors
    ///
    /// As [`SegmentJournal::read`]: none of a pack that was read.
    pub fn segment_journal(&self, layout: &Layout) -> Result<SegmentJournal, FormatError> {
        SegmentJournal::read(&self.data_summaries[Log::ColdData as usize].journal, layout)
    }

    /// Changes the newest entries of the segment table.
    pub fn set_segment_journal(&mut self, journal: &SegmentJournal) {
        self.data_summaries[Log::ColdData as usize].journal = journal.to_bytes();
    }

    /// Whether the summaries of data logs are few enough for compact ones.
    pub fn fits_compact(&self) -> bool {
        compact::blocks(&self.header).is_some()
    }

    /// The blocks of the pack. Compact summaries are written where the header has
    /// [`COMPACT`](checkpoint_flags::COMPACT), those of nodes where the pack has them, and without
    /// [`FASTBOOT`](checkpoint_flags::FASTBOOT) that makes it the pack of an unmount.
    ///
    /// # Errors
    ///
    /// [`FormatError::Full`] where orphans or compact summaries do not fit, [`FormatError::Invalid`] where a bitmap
    /// has another size than the layout says.
    pub fn encode(&self, layout: &Layout) -> Result<Vec<[u8; BLOCK_BYTES]>, FormatError> {
        let sizes = (self.segment_copies.0.len(), self.node_copies.0.len());
        if sizes != (layout.segment_bitmap_bytes() as usize, layout.node_bitmap_bytes() as usize) {
            return Err(FormatError::Invalid {
                what: "a bitmap of table copies of another size than the layout's",
            });
        }
        let orphans = orphans::write(&self.orphans);
        let data: Vec<_> = if self.header.is_compact() {
            let full = FormatError::Full { what: "compact summaries take two blocks at most" };
            compact::write(&self.data_summaries, &self.header).ok_or(full)?
        } else {
            self.data_summaries.iter().map(|summary| summary.to_bytes()).collect()
        };
        let nodes = self.node_summaries.iter().flatten().map(|summary| summary.to_bytes());
        let summary_start = 1 + layout.payload_blocks() as usize + orphans.len();
        let total = summary_start + data.len() + nodes.clone().count() + 1;
        if total > SEGMENT_BLOCKS as usize {
            return Err(FormatError::Full {
                what: "a checkpoint pack has 512 blocks at most: too many orphans",
            });
        }
        let header = self.encode_header(layout, total as u32, summary_start as u32);
        let mut blocks = vec![header];
        if layout.payload_blocks() > 0 {
            let mut payload = self.segment_copies.0.clone();
            payload.resize(layout.payload_blocks() as usize * BLOCK_BYTES, 0);
            blocks.extend(payload.as_chunks().0);
        }
        blocks.extend(orphans);
        blocks.extend(data);
        blocks.extend(nodes);
        blocks.push(header);
        Ok(blocks)
    }

    fn encode_header(&self, layout: &Layout, pack_blocks: u32, summary_start: u32) -> [u8; BLOCK_BYTES] {
        let mut header = self.header;
        let mut flags = header.flags.get() & !(checkpoint_flags::NAT_BITS | checkpoint_flags::ORPHANS);
        if !self.orphans.is_empty() {
            flags |= checkpoint_flags::ORPHANS;
        }
        match self.node_summaries {
            None => flags &= !(checkpoint_flags::UMOUNT | checkpoint_flags::FASTBOOT),
            Some(_) if flags & checkpoint_flags::FASTBOOT == 0 => flags |= checkpoint_flags::UMOUNT,
            Some(_) => {}
        }
        header.flags = flags.into();
        header.pack_blocks = pack_blocks.into();
        header.summary_start = summary_start.into();
        header.segment_bitmap_bytes = layout.segment_bitmap_bytes().into();
        header.node_bitmap_bytes = layout.node_bitmap_bytes().into();
        header.checksum_offset = (CHECKPOINT_CHECKSUM as u32).into();
        let mut block = [0; BLOCK_BYTES];
        block[..size_of::<CheckpointHeader>()].copy_from_slice(header.as_bytes());
        let (segment_range, node_range) = layout.bitmap_ranges();
        if let Some(range) = segment_range {
            block[range].copy_from_slice(&self.segment_copies.0);
        }
        block[node_range].copy_from_slice(&self.node_copies.0);
        let sum = sum(&block);
        block[CHECKPOINT_CHECKSUM..].copy_from_slice(&sum.to_le_bytes());
        block
    }
}

/// Three whole summaries, the first of which is in block `first`.
fn read_summaries(
    bytes: &[u8],
    first: u32,
    kind: SummaryKind,
) -> Result<[Box<SummaryBlock>; 3], FormatError> {
    let read = |index: u32| {
        let place = Place::Block(u64::from(first + index));
        let block = bytes.get(index as usize * BLOCK_BYTES..).unwrap_or_default();
        let summary = SummaryBlock::read(block, place)?;
        if summary.kind() == kind {
            Ok(summary)
        } else {
            Err(corrupt(first + index, "a summary of data where one of nodes belongs, or the reverse"))
        }
    };
    Ok([read(0)?, read(1)?, read(2)?])
}
