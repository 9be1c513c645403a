//! How large the areas of a new image are, and what is kept from users. The rules are those of mkfs.f2fs, so that both
//! make the same areas on a device.

use weir_format::FormatError;
use zerocopy::FromZeros;

use super::Mkfs;
use crate::block::{BLOCK_BYTES, NODE_ENTRIES_PER_BLOCK, NodeId, SEGMENT_BLOCKS, SEGMENT_ENTRIES_PER_BLOCK};
use crate::crc::MAGIC;
use crate::superblock::{CHECKPOINT_SEGMENTS, Superblock};

/// Bytes of bitmap that one segment of one copy of a table needs.
const BITMAP_BYTES: u32 = SEGMENT_BLOCKS / 8;
/// Bytes of a checkpoint's header block for bitmaps.
const BITMAPS_MAX: u32 = 4092 - 192;
/// Bytes of bitmap for the segment table of 16 TiB.
const SEGMENT_BITMAP_MAX: u32 = 298 * BITMAP_BYTES;
/// Logs.
const LOGS: u32 = 6;
const TOO_SMALL: FormatError = FormatError::Invalid { what: "a size that leaves the cleaner no reserve" };

/// The superblock of a new image.
pub(super) fn plan_superblock(options: &Mkfs) -> Result<Superblock, FormatError> {
    // The first segment holds the superblocks alone.
    let segments = options.blocks.checked_sub(u64::from(SEGMENT_BLOCKS)).ok_or(TOO_SMALL)?;
    let segments = u32::try_from(segments / u64::from(SEGMENT_BLOCKS)).map_err(|_| TOO_SMALL)?;
    let of_blocks = |blocks: u32| blocks.div_ceil(SEGMENT_BLOCKS);
    let table = of_blocks(segments.div_ceil(SEGMENT_ENTRIES_PER_BLOCK as u32));
    let rest = segments.checked_sub(CHECKPOINT_SEGMENTS + table * 2).ok_or(TOO_SMALL)?;
    let (nodes_max, payload) = plan_bitmaps(table);
    let wanted = (u64::from(rest) * u64::from(SEGMENT_BLOCKS)).div_ceil(NODE_ENTRIES_PER_BLOCK as u64);
    let nodes =
        u32::try_from(wanted.div_ceil(u64::from(SEGMENT_BLOCKS))).map_or(nodes_max, |all| all.min(nodes_max));
    let rest = rest.checked_sub(nodes * 2).ok_or(TOO_SMALL)?;
    let summaries = of_blocks(rest + 1);
    let main = rest.checked_sub(summaries).filter(|main| *main > LOGS).ok_or(TOO_SMALL)?;

    let mut superblock = Superblock::new_zeroed();
    superblock.magic = MAGIC.into();
    superblock.major_version = 1.into();
    superblock.minor_version = 15.into();
    superblock.log_sector_bytes = 9.into();
    superblock.log_sectors_per_block = 3.into();
    superblock.log_block_bytes = BLOCK_BYTES.ilog2().into();
    superblock.log_segment_blocks = SEGMENT_BLOCKS.ilog2().into();
    superblock.segments_per_section = 1.into();
    superblock.sections_per_zone = 1.into();
    superblock.blocks = options.blocks.into();
    superblock.sections = main.into();
    superblock.segments = segments.into();
    superblock.segment0 = SEGMENT_BLOCKS.into();
    superblock.root_inode = NodeId::ROOT.0.into();
    superblock.node_inode = NodeId::NODE_INODE.0.into();
    superblock.meta_inode = NodeId::META_INODE.0.into();
    superblock.uuid = options.uuid;
    superblock
        .label
        .iter_mut()
        .zip(options.label.encode_utf16())
        .for_each(|(slot, unit)| *slot = unit.into());
    superblock.checkpoint_payload = payload.into();
    superblock.version[..4].copy_from_slice(b"weir");
    superblock.init_version[..4].copy_from_slice(b"weir");
    superblock.features = options.features().0.into();
    place_areas(&mut superblock, [CHECKPOINT_SEGMENTS, table * 2, nodes * 2, summaries, main]);
    Ok(superblock)
}

/// The segments that one copy of the node address table may have, and the blocks of a checkpoint's payload, for a
/// segment table with copies of `table` segments: the bitmaps of both have to fit into a block, or the payload has one.
fn plan_bitmaps(table: u32) -> (u32, u32) {
    let bitmap = (table * BITMAP_BYTES).min(SEGMENT_BITMAP_MAX);
    // At least one segment is left for nodes.
    if bitmap > BITMAPS_MAX - BITMAP_BYTES {
        (BITMAPS_MAX / BITMAP_BYTES, bitmap.div_ceil(BLOCK_BYTES as u32))
    } else {
        ((BITMAPS_MAX - bitmap) / BITMAP_BYTES, 0)
    }
}

fn place_areas(superblock: &mut Superblock, segments: [u32; 5]) {
    let counts = [
        &mut superblock.checkpoint_segments,
        &mut superblock.segment_table_segments,
        &mut superblock.node_table_segments,
        &mut superblock.summary_segments,
        &mut superblock.main_segments,
    ];
    counts.into_iter().zip(segments).for_each(|(field, count)| *field = count.into());
    let starts = [
        &mut superblock.checkpoint_start,
        &mut superblock.segment_table_start,
        &mut superblock.node_table_start,
        &mut superblock.summary_start,
        &mut superblock.main_start,
    ];
    let mut start = SEGMENT_BLOCKS;
    for (field, count) in starts.into_iter().zip(segments) {
        *field = start.into();
        start += count * SEGMENT_BLOCKS;
    }
}

/// What is kept from users, in segments of the main area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reserve {
    /// For the cleaner.
    pub reserved: u32,
    /// In all.
    pub overprovision: u32,
}

/// The reserve of a main area of `main` segments, with `ratio` in hundredths of a percent, or that which leaves users the
/// most.
pub(super) fn plan_reserve(main: u32, ratio: Option<u32>) -> Result<Reserve, FormatError> {
    let percent = ratio.map_or_else(|| find_best_percent(main), |ratio| Some(ratio as f32 / 100.0));
    let percent = percent.ok_or(TOO_SMALL)?;
    let reserved = exact_reserve(percent) as u32;
    let rest = main.checked_sub(reserved).ok_or(TOO_SMALL)?;
    let overprovision = reserved + (rest as f32 * percent / 100.0) as u32;
    // Each log opens a segment, and the reserve has to be there in the segments left. Users need one at least.
    if rest < LOGS || main <= overprovision {
        return Err(TOO_SMALL);
    }
    Ok(Reserve { reserved, overprovision })
}

/// The cleaner moves as many segments as it takes to gain a free one, twice, and each log has one open. With fractions.
fn exact_reserve(percent: f32) -> f32 {
    2.0 * (100.0 / percent + 1.0) + LOGS as f32
}

/// The share that leaves users the most. It is found in single precision, and steps are added up, as mkfs.f2fs does: so
/// that where two shares are as good, it is the same one.
fn find_best_percent(main: u32) -> Option<f32> {
    let (mut candidate, end, step) = if main < 256 { (10.0, 95.0, 5.0) } else { (0.01, 10.0, 0.01) };
    let (mut best, mut most) = (None, 0.0);
    while candidate <= end {
        let rest = main as f32 - exact_reserve(candidate);
        let left = rest - rest * candidate / 100.0;
        if left > most {
            (best, most) = (Some(candidate), left);
        }
        candidate += step;
    }
    best
}
