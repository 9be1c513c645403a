//! Reading files.
//!
//! What is in the page cache is copied without a lock. What is not is read with the node's lock held, so that
//! nobody changes the map or the blocks meanwhile. Files that are read from one end to the other are read ahead,
//! further each time.

use std::rc::Rc;

use weir_ext4::{Extent, FileType};
use weir_runtime::Buffer as Memory;
use weir_storage::BLOCK_BYTES;

use crate::buffer::Role;
use crate::error::FsError;
use crate::filesystem::{Filesystem, InodeNumber, Mounted};
use crate::map::place;
use crate::node::Node;
use crate::options::JournalMode;
use crate::tree::covers;

/// Blocks that are read ahead at least and at most: 16 KiB to 512 KiB.
const AHEAD_MIN: u32 = 4;
const AHEAD_MAX: u32 = 128;

/// Bytes in a block, as offsets are counted.
pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;
/// The largest size of a file, as the kernel's ext4 has it: its last block has the greatest number that an extent can
/// map, as the one behind it is a number of 32 bits, too.
pub(crate) const SIZE_MAX: u64 = u32::MAX as u64 * BLOCK;

/// How a file is being read.
#[derive(Clone, Copy, Default)]
pub(crate) struct Readahead {
    /// The block that comes next if it is read in order.
    next: u32,
    /// Blocks that were read for it last.
    window: u32,
}

impl Readahead {
    /// Blocks to read for a miss at `index`, of which `wanted` were asked for.
    fn window(self, index: u32, wanted: u32) -> u32 {
        let ahead = if index == self.next { (2 * self.window).clamp(AHEAD_MIN, AHEAD_MAX) } else { 0 };
        ahead.max(wanted)
    }
}

impl Filesystem {
    /// Reads from `offset` on: how many bytes, fewer than asked for only at the end of the file. The time of
    /// access is not kept.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::IsDirectory`], [`FsError::Invalid`] for what has no content, and what
    /// the storage fails by.
    pub async fn read(&self, inode: InodeNumber, offset: u64, bytes: &mut [u8]) -> Result<usize, FsError> {
        let fs = &self.0;
        let node = fs.file(inode).await?;
        let mut done = 0;
        loop {
            let left = node.size().saturating_sub(offset + done as u64);
            let end = bytes.len().min(done + usize::try_from(left).unwrap_or(usize::MAX));
            done += fs.copy_cached(&node, offset + done as u64, &mut bytes[done..end]);
            if done >= end {
                return Ok(done);
            }
            let _locked = node.lock.acquire(1).await;
            if offset + (done as u64) < node.size() {
                done += fs.read_missing(&node, offset + done as u64, &mut bytes[done..end]).await?;
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
        let _locked = node.lock.acquire(1).await;
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
        let _locked = node.lock.acquire(1).await;
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

    /// Copies what is in the page cache, up to the first page that is not: how many bytes.
    fn copy_cached(&self, node: &Node, offset: u64, bytes: &mut [u8]) -> usize {
        let mut pages = node.pages.borrow_mut();
        let mut done = 0;
        while done < bytes.len() {
            let (index, at) = split(offset + done as u64);
            let Some(page) = pages.look(index) else { break };
            let taken = (BLOCK_BYTES - at).min(bytes.len() - done);
            bytes[done..done + taken].copy_from_slice(&page[at..at + taken]);
            done += taken;
        }
        done
    }

    /// Reads bytes whose first is not in the page cache: how many. The caller holds the lock.
    async fn read_missing(&self, node: &Rc<Node>, offset: u64, bytes: &mut [u8]) -> Result<usize, FsError> {
        let (index, at) = split(offset);
        let next = self.tree(node, None).next(index).await?;
        match next.filter(|extent| covers(extent, index)) {
            Some(extent) if extent.written => {
                node.extent.set(Some(extent));
                self.read_extent(node, &extent, offset, bytes).await
            }
            state => {
                let end = match state {
                    Some(unwritten) => unwritten.end(),
                    None => next.map_or(u32::MAX, |next| next.logical),
                };
                let zeros = u64::from(end - index) * BLOCK - at as u64;
                let zeros = bytes.len().min(usize::try_from(zeros).unwrap_or(usize::MAX));
                bytes[..zeros].fill(0);
                Ok(zeros)
            }
        }
    }

    async fn read_extent(
        &self,
        node: &Rc<Node>,
        extent: &Extent,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<usize, FsError> {
        let (index, at) = split(offset);
        if let Some(content) = self.journaled(place(extent, index)) {
            let taken = (BLOCK_BYTES - at).min(bytes.len());
            bytes[..taken].copy_from_slice(&content[at..at + taken]);
            return Ok(taken);
        }
        let content = self.read_ahead(node, extent, index, (at + bytes.len()).div_ceil(BLOCK_BYTES)).await?;
        let taken = (content.len() - at).min(bytes.len());
        bytes[..taken].copy_from_slice(&content[at..at + taken]);
        Ok(taken)
    }

    /// Reads `wanted` blocks of a file from `index` on, or as many as the extent and a command have, and some
    /// more. All go into the page cache.
    async fn read_ahead(
        &self,
        node: &Rc<Node>,
        extent: &Extent,
        index: u32,
        wanted: usize,
    ) -> Result<Memory, FsError> {
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let window = node.readahead.get().window(index, wanted);
        let file_end = u32::try_from(node.size().div_ceil(BLOCK)).unwrap_or(u32::MAX);
        let most = self.disk.capabilities.max_transfer_blocks.max(1);
        let end = extent.end().min(file_end.max(index + 1)).min(index.saturating_add(window.min(most)));
        let until = self.first_present(node, extent, index + 1..end);
        let content = self.disk.read(place(extent, index), until - index).await?;
        node.readahead.set(Readahead { next: until, window: until - index });
        for (block, bytes) in (index..until).zip(content.chunks(BLOCK_BYTES)) {
            self.insert_page(node, block, place(extent, block), Rc::new(copy_of(bytes)));
        }
        self.cache.make_room((until - index) as usize);
        Ok(content)
    }

    /// The first block of a range that is in memory already; its end if none is.
    fn first_present(&self, node: &Node, extent: &Extent, range: std::ops::Range<u32>) -> u32 {
        let pages = node.pages.borrow();
        let end = range.end;
        let journaled = |index| self.journaled(place(extent, index)).is_some();
        range.into_iter().find(|index| pages.contains(*index) || journaled(*index)).unwrap_or(end)
    }

    /// The content of a data block that went through the journal: at home it may be older.
    pub(crate) fn journaled(&self, home: u64) -> Option<Rc<Memory>> {
        if self.options.mode != JournalMode::Data {
            return None;
        }
        let buffer = self.buffers.cached(home)?;
        (buffer.role() == Role::Data).then(|| buffer.snapshot())
    }

    /// Puts a page into the cache, if it is not there.
    pub(crate) fn insert_page(&self, node: &Rc<Node>, index: u32, home: u64, content: Rc<Memory>) {
        if !node.pages.borrow().contains(index) {
            let stamp = self.cache.enter(node, index);
            node.pages.borrow_mut().insert(index, home, content, stamp);
        }
    }
}

/// The block that a byte is in, and the byte in it. Offsets up to [`SIZE_MAX`] fit.
pub(crate) fn split(offset: u64) -> (u32, usize) {
    (index_of(offset), (offset % BLOCK) as usize)
}

pub(crate) fn index_of(offset: u64) -> u32 {
    u32::try_from(offset / BLOCK).unwrap_or(u32::MAX)
}

fn copy_of(bytes: &[u8]) -> Memory {
    let mut memory = Memory::new(BLOCK_BYTES);
    memory[..bytes.len()].copy_from_slice(bytes);
    memory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_in_order_is_read_ahead_and_nobody_else() {
        let fresh = Readahead::default();
        assert_eq!(fresh.window(0, 1), AHEAD_MIN);
        assert_eq!(fresh.window(7, 1), 1);
        let going = Readahead { next: 64, window: 32 };
        assert_eq!(going.window(64, 1), 64);
        assert_eq!(going.window(64, 1000), 1000);
        assert_eq!(going.window(63, 2), 2);
        assert_eq!(Readahead { next: 64, window: 1000 }.window(64, 1), AHEAD_MAX);
    }
}
