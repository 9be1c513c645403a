//! The checkpoint: the state of the filesystem that mounting begins with. There are two *packs*, each in a segment of its own, and
//! they are written in turns, so one is whole at any time.
//!
//! | blocks of a pack | what they hold |
//! |---|---|
//! | 1 | header: counts, open logs, version bitmaps of both tables, checksum |
//! | payload | the segment table's version bitmap, where it does not fit in the header |
//! | any | orphans: inodes without a name |
//! | 1 to 3 | summaries of the open data logs, and the journals of both tables |
//! | 3 or none | summaries of the open node logs, if it was unmounted |
//! | 1 | the header again: a pack whose first and last block differ is not whole |

mod header;
mod logs;
mod orphans;

use weir_format::{BLOCK_BYTES, FormatError, Place, Structure};
use zerocopy::IntoBytes;

use crate::address::{NodeId, SEGMENT_BLOCKS};
use crate::crc::{MAGIC, crc32};
use crate::layout::Layout;
use crate::segment_table::LogKind;
use crate::summary::{JournalNode, JournalSegment, Summary};
use header::{Header, SUM_OFFSET, flags};

/// A block of a pack that is written.
type Block = Box<[u8; BLOCK_BYTES]>;

/// An open log: where its next block goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenLog {
    /// Its segment in the main area.
    pub segment: u32,
    /// The next of its blocks; all before it were written by this log, unless it [reuses](Self::reuses).
    pub next_block: u32,
    /// Whether it writes where blocks have become free in a segment that others have written, instead of to a free one.
    pub reuses: bool,
}

/// A checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// One more than that of the checkpoint before.
    pub version: u64,
    /// Blocks that files and nodes may take.
    pub user_blocks: u64,
    /// Blocks that they take.
    pub valid_blocks: u64,
    /// Segments that cleaning keeps free for itself.
    pub reserved_segments: u32,
    /// Segments that files cannot fill, the reserved ones included.
    pub overprovision_segments: u32,
    /// Segments without valid blocks that are no open log's.
    pub free_segments: u32,
    /// The six open logs, by [`LogKind::index`].
    pub logs: [OpenLog; 6],
    /// Nodes, inodes included.
    pub valid_nodes: u32,
    /// Inodes.
    pub valid_inodes: u32,
    /// Where to look first for a number for a new node.
    pub next_free_node: NodeId,
    /// Seconds that the filesystem was mounted in all.
    pub elapsed: u64,
    /// Whether it was unmounted: nothing was written behind it.
    pub unmounted: bool,
    /// Whether another program has found damage, and asks for a check.
    pub needs_check: bool,
    /// Whether all free space was discarded.
    pub trimmed: bool,
    /// Which copy of each block of the segment table is valid.
    pub segment_versions: Vec<u8>,
    /// Which copy of each block of the node table is valid.
    pub node_versions: Vec<u8>,
    /// Inodes without a name, which the next mount deletes.
    pub orphans: Vec<NodeId>,
    /// The summaries of the open data logs, and those of the node logs if it was unmounted.
    pub summaries: Vec<Summary>,
    /// Changes of the node table that are not in it.
    pub journal_nodes: Vec<JournalNode>,
    /// Changes of the segment table that are not in it.
    pub journal_segments: Vec<JournalSegment>,
}

/// How many blocks a pack has, by its first one.
///
/// # Errors
/// [`FormatError::Checksum`] and [`FormatError::Corrupt`] for a block that is no header.
pub fn pack_blocks(first: &[u8], place: u32) -> Result<u32, FormatError> {
    Ok(Header::read(first, place)?.pack_blocks.get())
}

/// The newer of two packs, of which one may be damaged or half written.
///
/// # Errors
/// That of the first, if neither is whole.
pub fn newest(
    first: Result<Checkpoint, FormatError>,
    second: Result<Checkpoint, FormatError>,
) -> Result<(u32, Checkpoint), FormatError> {
    match (first, second) {
        (Ok(one), Ok(other)) if other.version.wrapping_sub(one.version).cast_signed() > 0 => Ok((1, other)),
        (Ok(one), _) => Ok((0, one)),
        (Err(_), Ok(other)) => Ok((1, other)),
        (Err(error), Err(_)) => Err(error),
    }
}

impl Checkpoint {
    /// Reads a whole pack, whose first block is at `place`.
    ///
    /// # Errors
    /// [`FormatError::Checksum`] and [`FormatError::Corrupt`] for damage and half a pack; [`FormatError::Unsupported`] for what
    /// is outside the subset.
    pub fn read(pack: &[u8], place: u32, layout: &Layout) -> Result<Self, FormatError> {
        let corrupt = |what| FormatError::corrupt(Structure::Checkpoint, Place::Block(place.into()), what);
        let blocks: Vec<&[u8]> = pack.chunks_exact(BLOCK_BYTES).collect();
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else {
            return Err(corrupt("a pack without blocks"));
        };
        let header = Header::read(first, place)?;
        let end = Header::read(last, place + blocks.len() as u32 - 1)?;
        if end.version != header.version || header.pack_blocks.get() as usize != blocks.len() {
            return Err(corrupt("its first and last block are of different checkpoints"));
        }
        header.check(layout).map_err(corrupt)?;
        let (segment_versions, node_versions) = header.versions(first, &blocks, layout).map_err(corrupt)?;
        let start = header.summaries_start.get() as usize;
        let orphan_blocks = blocks.get(1 + layout.payload_blocks() as usize..start).unwrap_or_default();
        let orphans = match header.has(flags::ORPHANS) {
            true => orphans::read(orphan_blocks, layout).map_err(corrupt)?,
            false => Vec::new(),
        };
        let behind = blocks.get(start..blocks.len() - 1).ok_or_else(|| corrupt("its summaries"))?;
        let logs = logs::read(&header, behind).map_err(corrupt)?;
        Ok(Self {
            version: header.version.get(),
            user_blocks: header.user_blocks.get(),
            valid_blocks: header.valid_blocks.get(),
            reserved_segments: header.reserved_segments.get(),
            overprovision_segments: header.overprovision_segments.get(),
            free_segments: header.free_segments.get(),
            logs: header.logs(),
            valid_nodes: header.valid_nodes.get(),
            valid_inodes: header.valid_inodes.get(),
            next_free_node: NodeId(header.next_free_node.get()),
            elapsed: header.elapsed.get(),
            unmounted: header.has(flags::UNMOUNTED),
            needs_check: header.has(flags::ERROR | flags::NEEDS_CHECK),
            trimmed: header.has(flags::TRIMMED),
            segment_versions,
            node_versions,
            orphans,
            summaries: logs.summaries,
            journal_nodes: logs.nodes,
            journal_segments: logs.segments,
        })
    }

    /// The blocks of a pack. The first and the last are written when all others are durable: then it is whole or not there.
    ///
    /// # Errors
    /// [`FormatError::Full`] for more orphans than a pack has room for.
    pub fn to_pack(&self, layout: &Layout) -> Result<Vec<Block>, FormatError> {
        let mut middle = self.payload(layout);
        middle.extend(orphans::write(&self.orphans));
        let summaries_start = 1 + middle.len() as u32;
        middle.extend(logs::write(self));
        let pack_blocks = middle.len() as u32 + 2;
        if pack_blocks > SEGMENT_BLOCKS {
            return Err(FormatError::Full {
                what: "a checkpoint takes so many inodes without a name, and not more",
            });
        }
        let header = Header::of_checkpoint(self, pack_blocks, summaries_start);
        let mut first: Block = Box::new([0; BLOCK_BYTES]);
        first[..size_of::<Header>()].copy_from_slice(header.as_bytes());
        let versions = match layout.payload_blocks() {
            0 => [self.segment_versions.as_slice(), &self.node_versions].concat(),
            _ => self.node_versions.clone(),
        };
        let room = &mut first[size_of::<Header>()..SUM_OFFSET];
        let fits = versions.len().min(room.len());
        room[..fits].copy_from_slice(&versions[..fits]);
        let sum = crc32(MAGIC, &[&first[..SUM_OFFSET]]);
        first[SUM_OFFSET..].copy_from_slice(&sum.to_le_bytes());
        let last = first.clone();
        Ok([vec![first], middle, vec![last]].concat())
    }

    fn payload(&self, layout: &Layout) -> Vec<Block> {
        let mut blocks = vec![Box::new([0; BLOCK_BYTES]); layout.payload_blocks() as usize];
        for (block, bytes) in blocks.iter_mut().zip(self.segment_versions.chunks(BLOCK_BYTES)) {
            block[..bytes.len()].copy_from_slice(bytes);
        }
        blocks
    }

    /// The open log of a kind.
    pub fn log(&self, kind: LogKind) -> OpenLog {
        self.logs[kind.index()]
    }
}
