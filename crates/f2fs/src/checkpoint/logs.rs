//! The summaries of open logs in a pack, in both forms, and the journals among them.

use weir_format::BLOCK_BYTES;
use zerocopy::FromBytes;

use super::header::{Header, flags};
use super::{Block, Checkpoint};
use crate::address::SEGMENT_BLOCKS;
use crate::segment_table::LogKind;
use crate::summary::{
    ENTRY_BYTES, FOOTER_BYTES, JOURNAL_BYTES, JournalNode, JournalSegment, Summary, SummaryEntry, journal_of,
    journal_of_mut, read_journal, write_journal,
};

/// Data logs, and node logs.
const LOGS: usize = 3;
/// Bytes of a block of the compact form that are used.
const COMPACT_BYTES: usize = BLOCK_BYTES - FOOTER_BYTES;

/// What was read.
pub(super) struct Logs {
    pub(super) summaries: Vec<Summary>,
    pub(super) nodes: Vec<JournalNode>,
    pub(super) segments: Vec<JournalSegment>,
}

/// Reads the blocks between orphans and the last header.
pub(super) fn read(header: &Header, blocks: &[&[u8]]) -> Result<Logs, &'static str> {
    let has_nodes = header.has(flags::UNMOUNTED | flags::FAST_BOOT);
    let node_blocks = if has_nodes { LOGS } else { 0 };
    let data_blocks = blocks.len().checked_sub(node_blocks).ok_or("its node logs have no summaries")?;
    let (data, nodes) = blocks.split_at(data_blocks);
    let mut logs = match header.has(flags::COMPACT) {
        true => read_compact(header, data)?,
        false => read_whole(data)?,
    };
    for block in nodes {
        logs.summaries.push(Summary::read(block, 0).map_err(|_| "a summary of an open node log")?);
    }
    let kinds = LogKind::ALL.into_iter().zip(&logs.summaries);
    if kinds.into_iter().any(|(kind, summary)| summary.is_node != kind.is_node()) {
        return Err("a summary of another kind of log");
    }
    Ok(logs)
}

/// Three blocks, a summary each. The first has the journal of the node table, the last that of the segment table.
fn read_whole(blocks: &[&[u8]]) -> Result<Logs, &'static str> {
    let [hot, _, cold] = blocks else { return Err("its data logs have no summaries") };
    let (nodes, segments) = (read_journal(journal_of(hot))?, read_journal(journal_of(cold))?);
    let read = |block: &&[u8]| Summary::read(block, 0).map_err(|_| "a summary of an open data log");
    Ok(Logs { summaries: blocks.iter().map(read).collect::<Result<_, _>>()?, nodes, segments })
}

/// Both journals, and behind them the entries of blocks that were written, of one log after the other. No entry lies in two
/// blocks.
fn read_compact(header: &Header, blocks: &[&[u8]]) -> Result<Logs, &'static str> {
    let short = "its compact summaries are cut off";
    let first = blocks.first().ok_or(short)?;
    let nodes = read_journal(first.get(..JOURNAL_BYTES).ok_or(short)?)?;
    let segments = read_journal(first.get(JOURNAL_BYTES..2 * JOURNAL_BYTES).ok_or(short)?)?;
    let places = (0..blocks.len()).flat_map(|nth| {
        let start = if nth == 0 { 2 * JOURNAL_BYTES } else { 0 };
        (0..(COMPACT_BYTES - start) / ENTRY_BYTES).map(move |at| (nth, start + at * ENTRY_BYTES))
    });
    let mut entries = places.filter_map(|(nth, at)| {
        SummaryEntry::read_from_bytes(blocks.get(nth)?.get(at..at + ENTRY_BYTES)?).ok()
    });
    let mut summaries = Vec::new();
    for log in &header.logs()[..LOGS] {
        let written = if log.reuses { SEGMENT_BLOCKS } else { log.next_block };
        let mut summary = Summary::new(false);
        for place in summary.entries.iter_mut().take(written as usize) {
            *place = entries.next().ok_or(short)?;
        }
        summaries.push(summary);
    }
    Ok(Logs { summaries, nodes, segments })
}

/// The blocks of a checkpoint's summaries, each log whole: those of the node logs only where it is unmounted.
pub(super) fn write(checkpoint: &Checkpoint) -> Vec<Block> {
    let logs = if checkpoint.unmounted { 2 * LOGS } else { LOGS };
    let mut blocks: Vec<Block> = checkpoint.summaries.iter().take(logs).map(Summary::to_block).collect();
    if let Some(hot) = blocks.get_mut(LogKind::HotData.index()) {
        write_journal(journal_of_mut(hot), &checkpoint.journal_nodes);
    }
    if let Some(cold) = blocks.get_mut(LogKind::ColdData.index()) {
        write_journal(journal_of_mut(cold), &checkpoint.journal_segments);
    }
    blocks
}
