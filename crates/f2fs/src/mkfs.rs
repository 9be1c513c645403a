//! Making a filesystem: which blocks a new image consists of.

use weir_format::{BLOCK_BYTES, FileTime, FileType, FormatError, Stamp};

use crate::address::{BlockAddress, NodeId, SEGMENT_BLOCKS};
use crate::checkpoint::{Checkpoint, OpenLog};
use crate::dentry::{NameArea, write_dots};
use crate::features::{Feature, Features};
use crate::image::Block;
use crate::inode::{EXTRA_BYTES, Inode};
use crate::layout::Layout;
use crate::node_table::{self, NODES_PER_BLOCK, NodeEntry};
use crate::segment_table::{LogKind, SEGMENTS_PER_BLOCK, SegmentEntry};
use crate::summary::{JournalNode, JournalSegment, Summary, SummaryEntry};
use crate::superblock::Superblock;

/// 64 MiB: below, what cleaning needs leaves no room for files.
const BLOCKS_MIN: u64 = 16_384;
/// 4 TiB: version bitmaps of more do not fit in a checkpoint without payload.
const BLOCKS_MAX: u64 = 1 << 30;
/// Segments of both checkpoint packs.
const CHECKPOINT_SEGMENTS: u32 = 2;
/// Bytes that the version bitmaps of both tables have in a checkpoint.
const VERSION_BYTES: u32 = BLOCK_BYTES as u32 - 192 - 4;
/// Bits of the version bitmap for each segment of a table.
const BITS_PER_SEGMENT: u32 = SEGMENT_BLOCKS;
/// Characters of a label.
const LABEL_MAX: usize = 511;
/// A main area of fewer segments gets its overprovisioning in steps of 5 percent, a larger one in steps of a hundredth.
const SMALL_SEGMENTS: u32 = 256;

/// What a new filesystem is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mkfs {
    /// Size of the image in blocks of 4,096 bytes: 16,384 (64 MiB) to 2^30 (4 TiB). What does not fill a segment is left
    /// out.
    pub blocks: u64,
    /// Names the filesystem, and seeds the checksums of inodes: random bytes.
    pub uuid: [u8; 16],
    /// A name for people, at most 511 characters of UTF-16.
    pub label: String,
    /// When it was made: seconds since 1970.
    pub created: u32,
    /// The owner of the root directory.
    pub uid: u32,
    /// Which group does.
    pub gid: u32,
    /// Whether what is not written reads as zeros, as in a new file: both tables are not cleared then.
    pub zeroed: bool,
    /// Whether inodes have checksums and times of creation, and the superblock a checksum.
    pub checksums: bool,
}

/// A filesystem that is to be made.
pub struct NewImage {
    superblock: Superblock,
    layout: Layout,
    checkpoint: Checkpoint,
    root: Inode,
    zeroed: bool,
}

impl Mkfs {
    /// A filesystem of `blocks` blocks with nothing special about it.
    pub fn new(blocks: u64, uuid: [u8; 16], created: u32) -> Self {
        let label = String::new();
        Self { blocks, uuid, label, created, uid: 0, gid: 0, zeroed: false, checksums: true }
    }

    /// Decides where everything goes.
    ///
    /// # Errors
    /// [`FormatError::Invalid`] for an option out of range.
    pub fn plan(&self) -> Result<NewImage, FormatError> {
        let label: Vec<u16> = self.label.encode_utf16().collect();
        if !(BLOCKS_MIN..=BLOCKS_MAX).contains(&self.blocks) {
            return Err(FormatError::Invalid { what: "a size below 64 MiB or above 4 TiB" });
        }
        if label.len() > LABEL_MAX {
            return Err(FormatError::Invalid { what: "a label of more than 511 characters" });
        }
        let superblock = self.superblock(&label);
        let layout = Layout::new(&superblock);
        let checkpoint = self.checkpoint(&layout);
        let root = self.root(&layout, superblock.features());
        Ok(NewImage { superblock, layout, checkpoint, root, zeroed: self.zeroed })
    }

    /// One segment is left before the first area, so that all of them start where segments do.
    fn superblock(&self, label: &[u16]) -> Superblock {
        let segments = (self.blocks / u64::from(SEGMENT_BLOCKS)) as u32 - 1;
        let table = segments.div_ceil(SEGMENTS_PER_BLOCK).div_ceil(SEGMENT_BLOCKS);
        // Twice as many nodes as the bitmap beside that of the segments has room for are never made.
        let room = VERSION_BYTES - table * BITS_PER_SEGMENT / 8;
        let behind_table = (segments - CHECKPOINT_SEGMENTS - 2 * table) * SEGMENT_BLOCKS;
        let nodes = behind_table.div_ceil(NODES_PER_BLOCK).div_ceil(SEGMENT_BLOCKS);
        let nodes = nodes.min(room * 8 / BITS_PER_SEGMENT);
        let behind_nodes = behind_table / SEGMENT_BLOCKS - 2 * nodes;
        let summaries = (behind_nodes + 1).div_ceil(SEGMENT_BLOCKS);
        let main = behind_nodes - summaries;
        let mut superblock = Superblock::new();
        superblock.blocks = (u64::from(segments + 1) * u64::from(SEGMENT_BLOCKS)).into();
        (superblock.segments, superblock.sections) = (segments.into(), main.into());
        let mut start = SEGMENT_BLOCKS;
        superblock.segment0 = start.into();
        for (place, count, segments) in [
            (&mut superblock.checkpoint_start, &mut superblock.checkpoint_segments, CHECKPOINT_SEGMENTS),
            (&mut superblock.segment_table_start, &mut superblock.segment_table_segments, 2 * table),
            (&mut superblock.node_table_start, &mut superblock.node_table_segments, 2 * nodes),
            (&mut superblock.summary_start, &mut superblock.summary_segments, summaries),
            (&mut superblock.main_start, &mut superblock.main_segments, main),
        ] {
            (*place, *count) = (start.into(), segments.into());
            start += segments * SEGMENT_BLOCKS;
        }
        (superblock.node_inode, superblock.meta_inode) = (1.into(), 2.into());
        superblock.root = NodeId::FIRST.0.into();
        superblock.uuid = self.uuid;
        for (place, character) in superblock.label.iter_mut().zip(label) {
            *place = (*character).into();
        }
        let extra =
            [Feature::EXTRA_ATTR, Feature::INODE_CHECKSUM, Feature::INODE_CRTIME, Feature::SB_CHECKSUM];
        let features = extra.into_iter().fold(Features::default(), |all, one| all.with(one, self.checksums));
        superblock.features = features.bits().into();
        superblock
    }

    /// The first checkpoint: a root directory, and six open logs in the first segments.
    fn checkpoint(&self, layout: &Layout) -> Checkpoint {
        let main = layout.main_segments();
        let (reserved, overprovision) = overprovision(main);
        let log = |kind: LogKind| {
            let segment = (kind.index() as u32 + 3) % 6;
            OpenLog { segment, next_block: u32::from(is_first(kind)), reuses: false }
        };
        let logs = LogKind::ALL.map(log);
        let root = NodeId::FIRST;
        let address = layout.block_of(log(LogKind::HotNode).segment, 0);
        let entry = |kind: LogKind| {
            let mut entry = SegmentEntry::new(kind);
            entry.set_valid(0, is_first(kind));
            JournalSegment::new(log(kind).segment, entry)
        };
        let summary = |kind: LogKind| {
            let mut summary = Summary::new(kind.is_node());
            if is_first(kind) {
                summary.entries[0] = SummaryEntry::new(root, 0, 0);
            }
            summary
        };
        Checkpoint {
            version: 1,
            user_blocks: u64::from(main - overprovision) * u64::from(SEGMENT_BLOCKS),
            valid_blocks: 2,
            reserved_segments: reserved,
            overprovision_segments: overprovision,
            free_segments: main - logs.len() as u32,
            logs,
            valid_nodes: 1,
            valid_inodes: 1,
            next_free_node: NodeId(root.0 + 1),
            elapsed: 0,
            unmounted: true,
            needs_check: false,
            trimmed: false,
            segment_versions: vec![0; (layout.segment_table_capacity() / 8) as usize],
            node_versions: vec![0; (layout.node_table_blocks() / 8) as usize],
            orphans: Vec::new(),
            summaries: LogKind::ALL.map(summary).to_vec(),
            journal_nodes: vec![JournalNode::new(root, NodeEntry::new(0, root, address))],
            journal_segments: LogKind::ALL.map(entry).to_vec(),
        }
    }

    fn root(&self, layout: &Layout, features: Features) -> Inode {
        let extra = if features.has(Feature::EXTRA_ATTR) { EXTRA_BYTES } else { 0 };
        let mut root = Inode::new(NodeId::FIRST, FileType::Directory, 0o755, extra);
        (root.uid, root.gid, root.links) = (self.uid.into(), self.gid.into(), 2.into());
        (root.size, root.blocks) = ((BLOCK_BYTES as u64).into(), 2.into());
        (root.depth, root.parent) = (1.into(), NodeId::FIRST.0.into());
        let time = FileTime { seconds: self.created.into(), nanoseconds: 0 };
        for stamp in [Stamp::Accessed, Stamp::Changed, Stamp::Modified, Stamp::Created] {
            root.set_time(stamp, time);
        }
        root.set_address(0, names_address(layout));
        root
    }
}

/// Whether a log has the first block of its kind: the root's inode, or its names.
fn is_first(kind: LogKind) -> bool {
    matches!(kind, LogKind::HotNode | LogKind::HotData)
}

/// Where the names of the root directory are.
fn names_address(layout: &Layout) -> BlockAddress {
    layout.block_of(LogKind::HotData.index() as u32 + 3, 0)
}

/// Segments that cleaning keeps for itself, and all that files cannot fill. As `mkfs.f2fs` has it: of all shares, the one that
/// leaves most room; the smaller it is, the more segments cleaning has to empty for a free one.
fn overprovision(main: u32) -> (u32, u32) {
    let main = i64::from(main);
    // In hundredths of a percent.
    let (shares, step) = if main < i64::from(SMALL_SEGMENTS) { (1_000..=9_500, 500) } else { (1..=1_000, 1) };
    let of_share = |share: i64| {
        let reserved = 20_000 / share + 8;
        (reserved, (main - reserved) * share / 10_000)
    };
    let room = |share: &i64| {
        let (reserved, more) = of_share(*share);
        // The least share, among those that leave the same room.
        (main - reserved - more, -share)
    };
    let best = shares.step_by(step).max_by_key(room).unwrap_or(500);
    let (reserved, more) = of_share(best);
    let bound = |count: i64| u32::try_from(count.clamp(0, main - 1)).unwrap_or(0);
    (bound(reserved), bound(reserved + more))
}

impl NewImage {
    /// Its superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Where everything is.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// All blocks to write but the superblocks, each with its number.
    pub fn writes(&self) -> impl Iterator<Item = (u64, Block)> {
        let layout = &self.layout;
        let pack = self.checkpoint.to_pack(layout).unwrap_or_default();
        let pack = pack.into_iter().zip(u64::from(layout.pack_start(0))..).map(|(block, at)| (at, block));
        // What an older filesystem has left there is no checkpoint of this one.
        let no_second = (u64::from(layout.pack_start(1)), Block::new([0; BLOCK_BYTES]));
        self.cleared().chain(self.contents()).chain([no_second]).chain(pack)
    }

    /// Both copies of both tables, as zeros.
    fn cleared(&self) -> impl Iterator<Item = (u64, Block)> {
        let areas = [
            (self.superblock.segment_table_start, self.superblock.segment_table_segments),
            (self.superblock.node_table_start, self.superblock.node_table_segments),
        ];
        let areas = areas.into_iter().filter(|_| !self.zeroed);
        areas.flat_map(|(start, segments)| {
            let start = u64::from(start.get());
            let blocks = start..start + u64::from(segments.get()) * u64::from(SEGMENT_BLOCKS);
            blocks.map(|block| (block, Block::new([0; BLOCK_BYTES])))
        })
    }

    /// The root directory, and the first block of the node table.
    fn contents(&self) -> [(u64, Block); 3] {
        let seed =
            self.superblock.features().has(Feature::INODE_CHECKSUM).then(|| self.superblock.inode_seed());
        let (mut root, mut inode) = (Block::new([0; BLOCK_BYTES]), self.root);
        let address = root_address(&self.layout);
        inode.footer_mut().set_written(self.checkpoint.version, BlockAddress(address.0 + 1));
        inode.write(&mut root, seed);
        let mut names = Block::new([0; BLOCK_BYTES]);
        let written = write_dots(&mut names[..], NameArea::BLOCK, NodeId::FIRST, NodeId::FIRST);
        debug_assert!(written.is_ok(), "an empty block has room for two names");
        // The two numbers below the first stand for tables, and are taken.
        let mut table = Block::new([0; BLOCK_BYTES]);
        for node in [self.superblock.node_inode.get(), self.superblock.meta_inode.get()] {
            let entry = NodeEntry::new(0, NodeId(node), BlockAddress(1));
            node_table::write_entry(&mut table, node as usize, &entry);
        }
        let table_place = self.layout.node_table_block(0, &[]);
        [(address.0.into(), root), (names_address(&self.layout).0.into(), names), (table_place.into(), table)]
    }

    /// The block of the superblock, for block 0 and for block 1: the last to be written.
    pub fn superblock_block(&self) -> Block {
        let mut block = Block::new([0; BLOCK_BYTES]);
        self.superblock.clone().write(&mut block);
        block
    }
}

/// Where the inode of the root directory is.
fn root_address(layout: &Layout) -> BlockAddress {
    layout.block_of(0, 0)
}
