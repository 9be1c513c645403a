//! Compact summaries: both journals, and only those entries of the open data segments that are in use, one after the
//! other. An entry never crosses the end of a block, and each block but the first starts with entries.

use weir_format::FormatError;
use zerocopy::{FromBytes, IntoBytes};

use super::corrupt;
use super::header::{Allocation, CheckpointHeader};
use crate::block::{BLOCK_BYTES, SEGMENT_BLOCKS};
use crate::log::Log;
use crate::summary::{FOOTER_BYTES, JOURNAL_BYTES, Summary, SummaryBlock, SummaryKind};

/// Blocks that compact summaries take at most: three would be as many as whole ones.
const BLOCKS_MAX: usize = 2;
/// Where the entries of a block end.
const END: usize = BLOCK_BYTES - FOOTER_BYTES;

/// Where each entry is: the log, the index in its segment, the block and the place in it. `None` if they take too many blocks.
fn entry_places(header: &CheckpointHeader) -> Option<Vec<(Log, usize, usize, usize)>> {
    let (mut block, mut offset) = (0, 2 * JOURNAL_BYTES);
    let mut places = Vec::new();
    for log in [Log::HotData, Log::WarmData, Log::ColdData] {
        let state = header.log(log)?;
        let used = match state.allocation {
            Allocation::Append => state.next.min(SEGMENT_BLOCKS),
            Allocation::Reuse => SEGMENT_BLOCKS,
        };
        for index in 0..used as usize {
            if offset + size_of::<Summary>() > END {
                (block, offset) = (block + 1, 0);
            }
            places.push((log, index, block, offset));
            offset += size_of::<Summary>();
        }
    }
    places.last().is_none_or(|(_, _, block, _)| *block < BLOCKS_MAX).then_some(places)
}

/// How many blocks the compact summaries take. `None`: more than are allowed.
pub(super) fn blocks(header: &CheckpointHeader) -> Option<usize> {
    Some(entry_places(header)?.last().map_or(1, |(_, _, block, _)| block + 1))
}

/// Reads the summaries of data logs from the blocks `bytes`.
pub(super) fn read(
    bytes: &[u8],
    header: &CheckpointHeader,
    start: u32,
) -> Result<[Box<SummaryBlock>; 3], FormatError> {
    let short = || corrupt(start, "size of the compact summaries");
    if blocks(header).is_none_or(|blocks| blocks * BLOCK_BYTES != bytes.len()) {
        return Err(short());
    }
    let mut summaries = [0; 3].map(|_| SummaryBlock::new(SummaryKind::Data));
    let (nodes, rest) = bytes.split_first_chunk::<JOURNAL_BYTES>().ok_or_else(short)?;
    summaries[Log::HotData as usize].journal = *nodes;
    summaries[Log::ColdData as usize].journal = *rest.first_chunk().ok_or_else(short)?;
    for (log, index, block, offset) in entry_places(header).ok_or_else(short)? {
        let bytes = bytes.get(block * BLOCK_BYTES + offset..).ok_or_else(short)?;
        let (entry, _) = Summary::read_from_prefix(bytes).map_err(|_| short())?;
        summaries[log as usize].entries[index] = entry;
    }
    Ok(summaries)
}

/// The blocks for the summaries of data logs. `None` if they do not fit into what compact ones may take.
pub(super) fn write(
    summaries: &[Box<SummaryBlock>; 3],
    header: &CheckpointHeader,
) -> Option<Vec<[u8; BLOCK_BYTES]>> {
    let mut out = vec![[0; BLOCK_BYTES]; blocks(header)?];
    out[0][..JOURNAL_BYTES].copy_from_slice(&summaries[Log::HotData as usize].journal);
    out[0][JOURNAL_BYTES..2 * JOURNAL_BYTES].copy_from_slice(&summaries[Log::ColdData as usize].journal);
    for (log, index, block, offset) in entry_places(header)? {
        let entry = &summaries[log as usize].entries[index];
        out[block][offset..offset + size_of::<Summary>()].copy_from_slice(entry.as_bytes());
    }
    Some(out)
}
