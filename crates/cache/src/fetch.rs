//! Reading a file's pages: copied from memory, or fetched from the disk.

use std::ops::Range;
use std::rc::Rc;

use event_listener::EventListener;
use weir_journal::JournalError;
use weir_runtime::Buffer as Memory;
use weir_storage::BLOCK_BYTES;

use crate::file::{CachedFile, split};
use crate::mutants::CacheMutant;
use crate::readahead::is_worth_keeping;

impl CachedFile {
    /// Copies pages from a byte on, up to the first that is not in memory: how many bytes.
    pub fn copy(&self, offset: u64, bytes: &mut [u8]) -> usize {
        let mut pages = self.pages.borrow_mut();
        let mut done = 0;
        while done < bytes.len() {
            let (index, at) = split(offset + done as u64);
            let Some(page) = pages.read_page(index) else { break };
            let taken = (BLOCK_BYTES - at).min(bytes.len() - done);
            bytes[done..done + taken].copy_from_slice(&page[at..at + taken]);
            done += taken;
        }
        done
    }

    /// The end of some read, if one is bringing this block.
    pub fn read_under_way(&self, index: u32) -> Option<EventListener> {
        self.pages.borrow().reads.bring(index).then(|| self.read_ended.listen())
    }

    /// The blocks to read for a miss at `index`, of which `wanted` are asked for: none from `end` on, none that is in
    /// memory or on its way there, and no more than a command has.
    pub fn blocks_ahead(&self, index: u32, wanted: u32, end: u32) -> Range<u32> {
        let window = self.readahead.borrow().window(index, wanted);
        let most = self.cache.disk.capabilities().max_transfer_blocks.max(1);
        let end = end.min(index.saturating_add(window.min(most)));
        index..end.min(self.pages.borrow().first_behind(index + 1))
    }

    /// Begins a read of blocks that are at `place` on the disk, as long as the caller's lock says. None of them has a page,
    /// or is on its way.
    pub fn begin_read(self: &Rc<CachedFile>, place: u64, blocks: Range<u32>) -> UnderWay {
        self.pages.borrow_mut().reads.begin(&blocks);
        self.readahead.borrow_mut().begun(blocks.start, blocks.end - blocks.start);
        UnderWay { file: Rc::clone(self), place, blocks }
    }

    /// Puts in what was read of blocks at `place`, of which `wanted` were asked for, unless that was a long read.
    pub fn insert_read(self: &Rc<CachedFile>, place: u64, blocks: Range<u32>, wanted: u32, content: &[u8]) {
        let count = blocks.len();
        if !is_worth_keeping(blocks.end - blocks.start, wanted) {
            return;
        }
        for ((block, bytes), place) in blocks.zip(content.chunks(BLOCK_BYTES)).zip(place..) {
            self.insert(block, place, Rc::new(copy_of(bytes)));
        }
        self.cache.make_room(count);
    }
}

/// A read that is under way, until dropped.
pub struct UnderWay {
    file: Rc<CachedFile>,
    place: u64,
    blocks: Range<u32>,
}

impl UnderWay {
    /// Waits for the disk, and ends it: what was read, and which of its blocks are still what they were when it began.
    pub async fn content(self) -> Result<(Memory, Range<u32>), JournalError> {
        let UnderWay { file, place, blocks } = &self;
        let disk = &file.cache.disk;
        let mut blocks = blocks.clone();
        let mut read = disk.read(*place, blocks.end - blocks.start).await;
        if read.is_err() && blocks.len() > 1 {
            // A block that is damaged fails the command. The first one may be whole.
            blocks.end = blocks.start + 1;
            read = disk.read(*place, 1).await;
        }
        let content = read.inspect_err(|error| {
            let offset = u64::from(blocks.start) * BLOCK_BYTES as u64;
            file.cache.failures.log(file.number, Some(offset), *place, error);
        })?;
        let freed = file.pages.borrow().reads.end_of(&blocks).min(blocks.end);
        let outlives = file.cache.rules.drops(CacheMutant::ReadsOutliveBlocks);
        Ok((content, blocks.start..if outlives { blocks.end } else { freed }))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.file.pages.borrow_mut().reads.end(&self.blocks);
        self.file.read_ended.notify(usize::MAX);
    }
}

fn copy_of(bytes: &[u8]) -> Memory {
    if bytes.len() == BLOCK_BYTES {
        return Memory::copy_of(bytes);
    }
    let mut memory = Memory::new(BLOCK_BYTES);
    memory[..bytes.len()].copy_from_slice(bytes);
    memory
}
