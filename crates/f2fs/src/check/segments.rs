//! Each block in use, against the nodes; and the checkpoint's counts of blocks and segments.

use weir_format::Place;

use super::ImageReader;
use super::finding::{Findings, Problem};
use super::tables::Tables;
use crate::block::{NodeId, SEGMENT_BLOCKS, SegmentNumber};
use crate::segment_table::SegmentEntry;
use crate::summary::{SummaryBlock, SummaryKind};

/// Checks all segments, and returns how many blocks are in use.
pub(super) async fn check<R: ImageReader>(
    image: &R,
    tables: &Tables,
    findings: &mut Findings,
) -> Result<u64, R::Error> {
    let (mut blocks, mut free) = (0, 0);
    let mut nodes_of = vec![0_u64; tables.segments.len()];
    for (_, entry) in &tables.nodes {
        let segment = tables.layout.segment_of(entry.address());
        if let Some(count) = segment.and_then(|(segment, _)| nodes_of.get_mut(segment.0 as usize)) {
            *count += 1;
        }
    }
    for ((number, entry), nodes) in (0..).zip(&tables.segments).zip(nodes_of) {
        let segment = SegmentNumber(number);
        blocks += u64::from(entry.valid_blocks());
        if entry.valid_blocks() == 0 {
            free += u64::from(tables.open_log(segment).is_none());
            continue;
        }
        let is_node = entry.log().is_some_and(|log| log.is_node());
        if is_node {
            let stored = u64::from(entry.valid_blocks());
            findings.count("valid blocks", stored, nodes, Place::Segment(number));
        }
        let Some(summary) = tables.summary(image, segment, findings).await? else { continue };
        if (summary.kind() == SummaryKind::Node) != is_node {
            findings.push(Place::Segment(number), Problem::SummaryKind);
        } else if !is_node {
            check_owners(tables, segment, entry, &summary, findings);
        }
    }
    let header = &tables.pack.header;
    findings.count("free segments", u64::from(header.free_segments.get()), free, tables.place);
    Ok(blocks)
}

/// The owners of a data segment's blocks.
fn check_owners(
    tables: &Tables,
    segment: SegmentNumber,
    entry: &SegmentEntry,
    summary: &SummaryBlock,
    findings: &mut Findings,
) {
    let used = (0..SEGMENT_BLOCKS).zip(&summary.entries).filter(|(offset, _)| entry.is_valid(*offset));
    for (offset, summary) in used {
        let owner = NodeId(summary.node.get());
        if tables.node(owner).is_none_or(|entry| entry.version != summary.version) {
            findings.push(Place::Segment(segment.0), Problem::DataOwner { offset, owner });
        }
    }
}
