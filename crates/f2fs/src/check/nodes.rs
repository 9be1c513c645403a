//! Each node in use, against its block, the segment table and the summaries.

use weir_format::Place;
use zerocopy::little_endian::U32;

use super::ImageReader;
use super::finding::{Findings, Problem};
use super::tables::Tables;
use crate::block::{BlockAddress, NodeId, SegmentNumber};
use crate::image::read_block;
use crate::node::NodeFooter;
use crate::node_table::NodeEntry;
use crate::summary::SummaryBlock;

/// Checks all nodes and orphans, and returns how many inodes there are.
pub(super) async fn check<R: ImageReader>(
    image: &R,
    tables: &Tables,
    findings: &mut Findings,
) -> Result<u32, R::Error> {
    let mut inodes = 0;
    // By address, so that each summary is read once.
    let mut nodes = tables.nodes.clone();
    nodes.sort_by_key(|(_, entry)| entry.address());
    let mut known: Option<(SegmentNumber, Option<Box<SummaryBlock>>)> = None;
    for (node, entry) in nodes {
        inodes += u32::from(node.0 == entry.inode.get());
        let Some((segment, offset)) = place_node(tables, node, &entry, findings) else { continue };
        check_footer(image, node, &entry, findings).await?;
        if known.as_ref().is_none_or(|(known, _)| *known != segment) {
            known = Some((segment, tables.summary(image, segment, findings).await?));
        }
        let summary = known.as_ref().and_then(|(_, summary)| summary.as_ref());
        let owner = summary.and_then(|summary| summary.entries.get(offset as usize));
        if let Some(owner) = owner.map(|owner| NodeId(owner.node.get())).filter(|owner| *owner != node) {
            findings.push(Place::Node(node.0), Problem::NodeOwner { address: entry.address(), owner });
        }
    }
    if tables.node(NodeId::ROOT).is_none() {
        findings.push(Place::Node(NodeId::ROOT.0), Problem::NoRoot);
    }
    for orphan in &tables.pack.orphans {
        if tables.node(*orphan).is_none_or(|entry| entry.inode.get() != orphan.0) {
            findings.push(Place::Node(orphan.0), Problem::Orphan);
        }
    }
    let header = &tables.pack.header;
    let stored = |field: U32| u64::from(field.get());
    findings.count("valid nodes", stored(header.valid_nodes), tables.nodes.len() as u64, tables.place);
    findings.count("valid inodes", stored(header.valid_inodes), u64::from(inodes), tables.place);
    Ok(inodes)
}

/// Where a node is, if it is where a node may be.
fn place_node(
    tables: &Tables,
    node: NodeId,
    entry: &NodeEntry,
    findings: &mut Findings,
) -> Option<(SegmentNumber, u32)> {
    let address = entry.address();
    let mut note = |problem| findings.push(Place::Node(node.0), problem);
    let inode = NodeId(entry.inode.get());
    if tables.node(inode).is_none_or(|entry| entry.inode.get() != inode.0) {
        note(Problem::NoInode(inode));
    }
    if address == BlockAddress::NEW {
        note(Problem::NodeWithoutPlace);
        return None;
    }
    let (segment, offset) = tables.layout.segment_of(address)?;
    let table = tables.segments.get(segment.0 as usize)?;
    if !table.is_valid(offset) {
        note(Problem::NodeInFreeBlock(address));
        return None;
    }
    if !table.log().is_some_and(|log| log.is_node()) {
        note(Problem::NodeInDataSegment(address));
        return None;
    }
    Some((segment, offset))
}

async fn check_footer<R: ImageReader>(
    image: &R,
    node: NodeId,
    entry: &NodeEntry,
    findings: &mut Findings,
) -> Result<(), R::Error> {
    let block = read_block(image, entry.address()).await?;
    let Some(footer) = NodeFooter::of_block(&block[..]) else { return Ok(()) };
    if (footer.node(), footer.inode().0) != (node, entry.inode.get()) {
        let problem =
            Problem::Footer { address: entry.address(), node: footer.node(), inode: footer.inode() };
        findings.push(Place::Node(node.0), problem);
    }
    Ok(())
}
