//! Reading files.
//!
//! What is in the page cache is copied without a lock. For what is not, the node's lock is held only while its place is
//! looked up; then the disk is waited for without it, beside other reads and whatever changes the file. What was
//! freed meanwhile is looked up again ([`cache`](crate::cache)). Files that are read from one end to the other are read
//! ahead, further each time.

use std::ops::Range;
use std::rc::Rc;

use weir_ext4::{Extent, FileType};
use weir_journal::Role;
use weir_runtime::Buffer as Memory;
use weir_storage::BLOCK_BYTES;

use crate::cache::{index_of, split};
use crate::error::FsError;
use crate::filesystem::{Filesystem, InodeNumber, Mounted};
use crate::map::place;
use crate::mutants::FsMutant;
use crate::node::Node;
use crate::options::JournalMode;
use crate::tree::covers;

/// Times that a read in a row may find that its first block was freed meanwhile. Then it holds off changes.
const OVERTAKEN_MAX: u32 = 4;

/// Bytes in a block, as offsets are counted.
pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;
/// The largest size of a file, as the kernel's ext4 has it: its last block has the greatest number that an extent can
/// map, as the one behind it is a number of 32 bits, too.
pub(crate) const SIZE_MAX: u64 = u32::MAX as u64 * BLOCK;

/// What came of a miss.
pub(crate) enum Missed {
    /// So many bytes were read.
    Read(usize),
    /// None, as the first block was freed while it was read.
    Overtaken,
    /// None, as the block has come into memory by way of others, or the file has another size now.
    Elsewhere,
}

impl Filesystem {
    /// Reads from `offset` on: how many bytes, fewer than asked for only at the end of the file. The time of
    /// access stays: see [`accessed`](Self::accessed).
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::IsDirectory`], [`FsError::Invalid`] for what has no content, and what
    /// the storage fails by.
    pub async fn read(&self, inode: InodeNumber, offset: u64, bytes: &mut [u8]) -> Result<usize, FsError> {
        let fs = &self.0;
        let node = fs.file(inode).await?;
        let (mut done, mut overtaken) = (0, 0);
        loop {
            let left = node.size().saturating_sub(offset + done as u64);
            let end = bytes.len().min(done + usize::try_from(left).unwrap_or(usize::MAX));
            done += node.file.copy(offset + done as u64, &mut bytes[done..end]);
            if done >= end {
                return Ok(done);
            }
            let patient = overtaken < OVERTAKEN_MAX || fs.options.rules.drops(FsMutant::ReadsStarve);
            match fs.read_missing(&node, offset + done as u64, &mut bytes[done..end], patient).await? {
                Missed::Read(read) => {
                    done += read;
                    overtaken = 0;
                }
                Missed::Overtaken => overtaken += 1,
                Missed::Elsewhere => {}
            }
        }
    }

    /// The first byte at or behind `offset` that is not in a hole; `None` if there is none.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn seek_data(&self, inode: InodeNumber, offset: u64) -> Result<Option<u64>, FsError> {
        let fs = &self.0;
        let node = fs.file(inode).await?;
        let _looking = node.beside_others().await;
        let size = node.size();
        let mut at = offset;
        while at < size {
            match fs.tree(&node, None).next(index_of(at)).await? {
                Some(extent) if extent.written => {
                    let start = at.max(u64::from(extent.logical) * BLOCK);
                    return Ok((start < size).then_some(start));
                }
                Some(unwritten) => at = u64::from(unwritten.end()) * BLOCK,
                None => break,
            }
        }
        Ok(None)
    }

    /// The first byte at or behind `offset` that is in a hole, as the end of a file is; `None` if `offset` is
    /// behind that.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn seek_hole(&self, inode: InodeNumber, offset: u64) -> Result<Option<u64>, FsError> {
        let fs = &self.0;
        let node = fs.file(inode).await?;
        let _looking = node.beside_others().await;
        let size = node.size();
        if offset >= size {
            return Ok(None);
        }
        let mut at = offset;
        while at < size {
            match fs.tree(&node, None).find(index_of(at)).await? {
                Some(extent) if extent.written => at = u64::from(extent.end()) * BLOCK,
                _ => break,
            }
        }
        Ok(Some(at.min(size)))
    }

    /// Blocks that the extents of a file map up to its end, written or not. The count ends when it is above `limit`:
    /// extents of a damaged or hostile filesystem map the same blocks again and again, and this takes no more steps
    /// than it counts.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn mapped_blocks(&self, inode: InodeNumber, limit: u64) -> Result<u64, FsError> {
        let fs = &self.0;
        let node = fs.file(inode).await?;
        let _looking = node.beside_others().await;
        let size = node.size();
        let (mut at, mut count) = (0, 0);
        while at < size && count <= limit {
            let Some(extent) = fs.tree(&node, None).next(index_of(at)).await? else { break };
            if u64::from(extent.logical) * BLOCK < size {
                count += u64::from(extent.end() - extent.logical);
            }
            at = u64::from(extent.end()) * BLOCK;
        }
        Ok(count)
    }
}

impl Mounted {
    /// The node of a regular file.
    pub(crate) async fn file(&self, inode: InodeNumber) -> Result<Rc<Node>, FsError> {
        self.nodes.make_room(self);
        let node = self.nodes.get(self, inode).await?;
        let kind = node.inode.borrow().file_type();
        match kind {
            Some(FileType::Regular) => Ok(node),
            Some(FileType::Directory) => Err(FsError::IsDirectory),
            _ => Err(FsError::Invalid("only regular files have content")),
        }
    }

    /// Reads bytes of a file whose first is not in the page cache. A caller that is not `patient` holds the lock all
    /// the time.
    pub(crate) async fn read_missing(
        &self,
        node: &Rc<Node>,
        offset: u64,
        bytes: &mut [u8],
        patient: bool,
    ) -> Result<Missed, FsError> {
        let (index, at) = split(offset);
        let looking = node.beside_others().await;
        let next = self.tree(node, None).next(index).await?;
        // From here to the beginning of the read nothing waits, so nobody comes between.
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
        if let Some(content) = self.journaled(place(&extent, index)) {
            let taken = (BLOCK_BYTES - at).min(bytes.len());
            bytes[..taken].copy_from_slice(&content[at..at + taken]);
            return Ok(Missed::Read(taken));
        }
        if let Some(ended) = node.file.read_under_way(index) {
            drop(looking);
            ended.await;
            return Ok(Missed::Elsewhere);
        }
        let blocks = self.blocks_ahead(node, &extent, index, (at + bytes.len()).div_ceil(BLOCK_BYTES));
        let home = place(&extent, index);
        let under_way = node.file.begin_read(home, blocks);
        let looking = Some(looking).filter(|_| !patient);
        let (content, blocks) = under_way.content().await?;
        drop(looking);
        let read = (blocks.len() * BLOCK_BYTES).saturating_sub(at);
        node.file.insert_read(home, blocks, &content);
        let taken = read.min(bytes.len());
        bytes[..taken].copy_from_slice(&content[at..at + taken]);
        Ok(if taken == 0 { Missed::Overtaken } else { Missed::Read(taken) })
    }

    /// The blocks to read for a miss at `index`, of which `wanted` are asked for: none behind the extent or the file,
    /// and none whose content is in the journal.
    fn blocks_ahead(&self, node: &Node, extent: &Extent, index: u32, wanted: usize) -> Range<u32> {
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let file_end = u32::try_from(node.size().div_ceil(BLOCK)).unwrap_or(u32::MAX);
        let ahead = node.file.blocks_ahead(index, wanted, extent.end().min(file_end.max(index + 1)));
        let journaled = |index: &u32| self.journaled(place(extent, *index)).is_some();
        match self.options.mode {
            JournalMode::Data => index..(index + 1..ahead.end).find(journaled).unwrap_or(ahead.end),
            _ => ahead,
        }
    }

    /// The content of a data block that went through the journal: at home it may be older.
    pub(crate) fn journaled(&self, home: u64) -> Option<Rc<Memory>> {
        if self.options.mode != JournalMode::Data {
            return None;
        }
        let buffer = self.buffers.cached(home)?;
        (buffer.role() == Role::Data).then(|| buffer.snapshot())
    }
}
