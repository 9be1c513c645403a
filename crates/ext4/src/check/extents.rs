//! The extents of an inode, one after the other, with what is wrong between them.

use weir_format::{FormatError, ImageReader, Place, Structure};

use super::overlay::Overlay;
use crate::blocks::Kind;
use crate::checksum::Checksums;
use crate::extent::Extent;
use crate::extent::node::{BLOCK_ENTRIES, Node, ROOT_ENTRIES};
use crate::inode::Inode;

/// The file block that no file has.
const END: u32 = u32::MAX;

/// A node may have room for this many entries less than fit: some writers leave their room to a checksum.
const MISSING_MAX: usize = 2;

/// An item that the walk visits.
pub(super) enum WalkItem {
    /// A node in a block of its own. The walk descends into it unless the caller skips it.
    Node(u64),
    /// Blocks of the file.
    Extent(Extent),
    /// A part of the tree that cannot be read; the walk goes on behind it.
    Damage(FormatError),
}

/// A node on the way.
struct Level {
    bytes: Vec<u8>,
    place: Place,
    depth: u16,
    count: usize,
    at: usize,
    /// Where the next node begins.
    end: u32,
}

/// A walk through an extent tree. It ends: on each level, nodes begin with ever larger file blocks, and each
/// begins where its parent says.
pub(super) struct ExtentWalk {
    kind: Kind,
    checksums: Checksums,
    limit: u64,
    levels: Vec<Level>,
    next: Option<(u64, u32, u32, u16)>,
    damage: Option<FormatError>,
}

impl ExtentWalk {
    /// A walk through the tree in an inode, in a filesystem of `limit` blocks.
    pub(super) fn new(number: u32, inode: &Inode, checksums: Checksums, limit: u64) -> Self {
        let kind = Kind::Extents { inode: number, generation: inode.generation.get() };
        let mut walk = Self { kind, checksums, limit, levels: Vec::new(), next: None, damage: None };
        walk.damage = walk.enter(inode.block_area.to_vec(), Place::Inode(number), END, None).err();
        walk
    }

    fn enter(
        &mut self,
        bytes: Vec<u8>,
        place: Place,
        end: u32,
        expected: Option<(u32, u16)>,
    ) -> Result<(), FormatError> {
        let node = Node::read(&bytes, place)?;
        node.check(self.limit)?;
        if node.max + MISSING_MAX < if expected.is_some() { BLOCK_ENTRIES } else { ROOT_ENTRIES } {
            return Err(node.corrupt("number of entries that fit"));
        }
        if let Some((key, depth)) = expected {
            if node.depth != depth {
                return Err(node.corrupt("depth"));
            }
            if node.key(0) != key {
                return Err(node.corrupt("first file block"));
            }
            let last = node.count - 1;
            let behind = if depth == 0 { node.extent(last).end() } else { node.key(last).saturating_add(1) };
            if behind > end {
                return Err(node.corrupt("entries beyond its part of the file"));
            }
        }
        let (depth, count) = (node.depth, node.count);
        self.levels.push(Level { bytes, place, depth, count, at: 0, end });
        Ok(())
    }

    /// Does not go into the node that came last.
    pub(super) fn leave_out(&mut self) {
        self.next = None;
    }

    /// The next step; `None` at the end.
    pub(super) async fn next<R: ImageReader>(
        &mut self,
        image: &Overlay<'_, R>,
    ) -> Result<Option<WalkItem>, R::Error> {
        if let Some((block, key, end, depth)) = self.next.take() {
            let bytes = image.block(block).await?;
            let read = self
                .checksums
                .verify(self.kind, block, &bytes[..])
                .and_then(|()| self.enter(bytes.to_vec(), Place::Block(block), end, Some((key, depth))));
            self.damage = read.err();
        }
        if let Some(error) = self.damage.take() {
            return Ok(Some(WalkItem::Damage(error)));
        }
        Ok(self.step())
    }

    fn step(&mut self) -> Option<WalkItem> {
        loop {
            let level = self.levels.last_mut()?;
            if level.at == level.count {
                self.levels.pop();
                continue;
            }
            let at = level.at;
            level.at += 1;
            // Its header was read before; the bytes are the same.
            let Ok(node) = Node::read(&level.bytes, level.place) else { continue };
            if node.depth == 0 {
                return Some(WalkItem::Extent(node.extent(at)));
            }
            let end = if at + 1 < level.count { node.key(at + 1) } else { level.end };
            let child = node.child(at);
            self.next = Some((child, node.key(at), end, level.depth - 1));
            return Some(WalkItem::Node(child));
        }
    }
}

/// The place of every block of a file without holes, in order; where there is a hole or damage, what is wrong.
/// No more than the filesystem has, whatever the tree says.
pub(super) async fn places<R: ImageReader>(
    image: &Overlay<'_, R>,
    mut walk: ExtentWalk,
    number: u32,
) -> Result<Result<Vec<u64>, FormatError>, R::Error> {
    let mut places: Vec<u64> = Vec::new();
    while let Some(step) = walk.next(image).await? {
        match step {
            WalkItem::Node(_) => {}
            WalkItem::Damage(error) => return Ok(Err(error)),
            WalkItem::Extent(extent) => {
                let corrupt = |what| FormatError::corrupt(Structure::Inode, Place::Inode(number), what);
                if extent.logical as usize != places.len() {
                    return Ok(Err(corrupt("a hole in its blocks")));
                }
                if u64::from(extent.end()) > walk.limit {
                    return Ok(Err(corrupt("more blocks than the filesystem")));
                }
                places.extend((0..u64::from(extent.length)).map(|at| extent.physical + at));
            }
        }
    }
    Ok(Ok(places))
}
