//! Reading files.
//!
//! What is in the page cache is copied without a lock. For what is not, the node's lock is held only while its place is
//! looked up; then the disk is waited for without it, beside other reads and whatever changes the file. What was
//! freed meanwhile is looked up again ([`weir_cache`]). Files that are read from one end to the other are read
//! ahead, further each time.

use std::ops::Range;
use std::rc::Rc;

use weir_cache::{BLOCK, split};
use weir_ext4::Extent;
use weir_storage::BLOCK_BYTES;
use weir_vfs::FsError;

use super::{Files, require_regular};
use crate::inodes::Node;
use crate::mapping::{Tree, covers, place};
use crate::mutants::FsMutant;

/// Times that a read in a row may find that its first block was freed meanwhile. Then it holds off changes.
const OVERTAKEN_MAX: u32 = 4;

/// What came of a miss.
pub(super) enum Missed {
    /// So many bytes were read.
    Read(usize),
    /// None, as the first block was freed while it was read.
    Overtaken,
    /// None, as the block has come into memory by way of others, or the file has another size now.
    Elsewhere,
}

impl Files {
    /// Reads from `offset` on: how many bytes, fewer than asked for only at the end of the file.
    pub(crate) async fn read(
        &self,
        node: &Rc<Node>,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<usize, FsError> {
        require_regular(node)?;
        let (mut done, mut overtaken) = (0, 0);
        loop {
            let left = node.size().saturating_sub(offset + done as u64);
            let end = bytes.len().min(done + usize::try_from(left).unwrap_or(usize::MAX));
            done += node.file.copy(offset + done as u64, &mut bytes[done..end]);
            if done >= end {
                return Ok(done);
            }
            let patient = overtaken < OVERTAKEN_MAX || self.rules.drops(FsMutant::ReadsStarve);
            match self.read_missing(node, offset + done as u64, &mut bytes[done..end], patient).await? {
                Missed::Read(read) => {
                    done += read;
                    overtaken = 0;
                }
                Missed::Overtaken => overtaken += 1,
                Missed::Elsewhere => {}
            }
        }
    }

    /// Reads bytes of a file whose first is not in the page cache. A caller that is not `patient` holds the lock all
    /// the time.
    pub(super) async fn read_missing(
        &self,
        node: &Rc<Node>,
        offset: u64,
        bytes: &mut [u8],
        patient: bool,
    ) -> Result<Missed, FsError> {
        let (index, at) = split(offset);
        let looking = node.beside_others().await;
        let next = Tree::from_node(node).next(index).await?;
        // From here to the beginning of the read nothing waits, so no other task comes between.
        if offset + bytes.len() as u64 > node.size() || node.file.contains(index) {
            return Ok(Missed::Elsewhere);
        }
        let found = next.filter(|extent| covers(extent, index));
        let Some(extent) = found.filter(|extent| extent.written) else {
            let end = match found {
                Some(unwritten) => unwritten.end(),
                None => next.map_or(u32::MAX, |next| next.logical),
            };
            let zeros = u64::from(end - index) * BLOCK - at as u64;
            let zeros = bytes.len().min(usize::try_from(zeros).unwrap_or(usize::MAX));
            bytes[..zeros].fill(0);
            return Ok(Missed::Read(zeros));
        };
        node.extent.set(Some(extent));
        if let Some(content) = self.journaled(node, place(&extent, index)) {
            let taken = (BLOCK_BYTES - at).min(bytes.len());
            bytes[..taken].copy_from_slice(&content[at..at + taken]);
            return Ok(Missed::Read(taken));
        }
        if let Some(ended) = node.file.read_under_way(index) {
            drop(looking);
            ended.await;
            return Ok(Missed::Elsewhere);
        }
        let wanted = u32::try_from((at + bytes.len()).div_ceil(BLOCK_BYTES)).unwrap_or(u32::MAX);
        let blocks = self.blocks_ahead(node, &extent, index, wanted);
        let home = place(&extent, index);
        let under_way = node.file.begin_read(home, blocks);
        let looking = Some(looking).filter(|_| !patient);
        let (content, blocks) = under_way.content().await?;
        drop(looking);
        let read = (blocks.len() * BLOCK_BYTES).saturating_sub(at);
        node.file.insert_read(home, blocks, wanted, &content);
        let taken = read.min(bytes.len());
        bytes[..taken].copy_from_slice(&content[at..at + taken]);
        Ok(if taken == 0 { Missed::Overtaken } else { Missed::Read(taken) })
    }

    /// The blocks to read for a miss at `index`, of which `wanted` are asked for: none behind the extent or the file,
    /// and none whose content is in the journal.
    fn blocks_ahead(&self, node: &Node, extent: &Extent, index: u32, wanted: u32) -> Range<u32> {
        let file_end = u32::try_from(node.size().div_ceil(BLOCK)).unwrap_or(u32::MAX);
        let ahead = node.file.blocks_ahead(index, wanted, extent.end().min(file_end.max(index + 1)));
        let journaled = |index: &u32| self.journaled(node, place(extent, *index)).is_some();
        match node.is_journaled(self.mode) {
            true => index..(index + 1..ahead.end).find(journaled).unwrap_or(ahead.end),
            false => ahead,
        }
    }
}
