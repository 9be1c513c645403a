//! The content of files: read, written, cut, and allocated.

use std::ops::{Deref, Range};
use std::rc::Rc;

use weir_cache::split;
use weir_f2fs::{ADDRESSES_PER_NODE, BlockAddress, FileReader, Inode, NodeId, inline_flags};
use weir_format::{BLOCK_BYTES, FileType};
use weir_runtime::Permit;
use weir_vfs::{Fallocate, FsError, InodeNumber};

use crate::changes::CALL_BLOCKS;
use crate::checkpoint::Durability;
use crate::file::{File, Slot};
use crate::mounted::Mounted;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Pages that are written between two looks at how much is dirty and free.
pub(crate) const PAGES_AT_ONCE: u64 = 512;
/// Pages that are allocated between two such looks: only nodes get dirty.
const ALLOCATED_AT_ONCE: u64 = 1 << 17;

/// The content of the files of a mounted filesystem.
pub(crate) struct Content<'a>(pub(crate) &'a Mounted);

impl Deref for Content<'_> {
    type Target = Mounted;

    fn deref(&self) -> &Mounted {
        self.0
    }
}

impl Content<'_> {
    /// A regular file.
    pub(crate) async fn regular(&self, number: InodeNumber) -> Result<Rc<File>, FsError> {
        let file = self.files.get(NodeId(number)).await?;
        match file.kind() {
            Some(FileType::Regular) => Ok(file),
            Some(FileType::Directory) => Err(FsError::IsDirectory),
            _ => Err(FsError::Invalid("only regular files have content")),
        }
    }

    /// Reads from a file: how many bytes; fewer than asked for at its end. What its update has is laid over the rest.
    pub(crate) async fn read_content(
        &self,
        file: &Rc<File>,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<usize, FsError> {
        // As of now: should the update end meanwhile, its pages would be missed.
        let view = file.update.borrow().as_ref().map(|update| update.staged.view(offset, bytes.len()));
        let Some(view) = view else { return self.read_without_update(file, offset, bytes).await };
        let read = self.read_without_update(file, offset, &mut bytes[..view.length]).await?;
        view.lay_over(bytes, read);
        Ok(view.length)
    }

    async fn read_without_update(
        &self,
        file: &Rc<File>,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<usize, FsError> {
        let mut done = 0;
        loop {
            let left = file.size().saturating_sub(offset + done as u64);
            let end = bytes.len().min(done + usize::try_from(left).unwrap_or(usize::MAX));
            done += file.pages.copy(offset + done as u64, &mut bytes[done..end]);
            if done >= end {
                return Ok(done);
            }
            done += self.read_missing(file, offset + done as u64, &mut bytes[done..end]).await?;
        }
    }

    /// Reads some bytes of a page that is not in memory: how many; none where that has to be looked at again.
    async fn read_missing(&self, file: &Rc<File>, offset: u64, bytes: &mut [u8]) -> Result<usize, FsError> {
        let (index, at) = split(offset);
        let _looking = file.lock_shared().await;
        if file.has_inline(inline_flags::DATA) {
            return Ok(copy_inline(&file.inode.borrow(), offset, bytes));
        }
        if file.pages.contains(index) {
            return Ok(0);
        }
        let taken = (BLOCK_BYTES - at).min(bytes.len());
        let Some(first) = self.slot_of_block(file, index.into()).await? else {
            if file.pages.contains(index) {
                return Ok(0);
            }
            bytes[..taken].fill(0);
            return Ok(taken);
        };
        if let Some(ended) = file.pages.read_under_way(index) {
            ended.await;
            return Ok(0);
        }
        let wanted = (at + bytes.len()).div_ceil(BLOCK_BYTES) as u32;
        let end = u32::try_from(file.size().div_ceil(BLOCK)).unwrap_or(u32::MAX);
        let ahead = file.pages.blocks_ahead(index, wanted, end.max(index + 1));
        let Some((address, blocks)) = self.run_from(file, ahead, first).await? else { return Ok(0) };
        if file.pages.contains(index) || file.pages.read_under_way(index).is_some() {
            return Ok(0);
        }
        let place = u64::from(address.0);
        let (content, blocks) = file.pages.begin_read(place, blocks).content().await?;
        file.pages.insert_read(place, blocks.clone(), wanted, &content);
        let taken = (blocks.len() * BLOCK_BYTES).saturating_sub(at).min(bytes.len());
        bytes[..taken].copy_from_slice(&content[at..at + taken]);
        Ok(taken)
    }

    /// The slot of a page that has a block.
    async fn slot_of_block(&self, file: &File, page: u64) -> Result<Option<Slot>, FsError> {
        let slot = self.placement.find_slot(file, page).await?;
        Ok(slot.filter(|slot| file.address(slot).is_block()))
    }

    /// As many of these pages as lie one behind the other on the disk, the first of them that of the slot `first`, and where. `None` if
    /// one of them was moved while the rest was looked for.
    async fn run_from(
        &self,
        file: &File,
        pages: Range<u32>,
        first: Slot,
    ) -> Result<Option<(BlockAddress, Range<u32>)>, FsError> {
        let start = file.address(&first);
        let is_nth = |(nth, slot): (u32, &Slot)| file.address(slot).0 == start.0.saturating_add(nth);
        let mut slots = vec![first];
        for (nth, page) in (1..).zip(pages.start + 1..pages.end) {
            match self.slot_of_block(file, page.into()).await? {
                Some(slot) if is_nth((nth, &slot)) => slots.push(slot),
                _ => break,
            }
        }
        let end = pages.start + slots.len() as u32;
        Ok((0..).zip(&slots).all(is_nth).then_some((start, pages.start..end)))
    }

    /// Writes to a file: how many bytes, which is fewer than asked for only where the space ends.
    pub(crate) async fn write_content(
        &self,
        number: InodeNumber,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, FsError> {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let some = (PAGES_AT_ONCE * BLOCK - at % BLOCK).min((bytes.len() - done) as u64) as usize;
            match self.write_some(number, at, &bytes[done..done + some]).await {
                Ok(written) => done += written,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    async fn write_some(&self, number: InodeNumber, offset: u64, bytes: &[u8]) -> Result<usize, FsError> {
        let change = async |(file, _locked): (Rc<File>, Permit)| {
            let most = file.size_max().saturating_sub(offset);
            if most == 0 {
                return Err(FsError::TooLarge);
            }
            let bytes = &bytes[..bytes.len().min(usize::try_from(most).unwrap_or(usize::MAX))];
            if file.update.borrow().is_some() {
                self.stage(&file, offset, bytes).await?;
                return Ok(bytes.len());
            }
            let end = offset + bytes.len() as u64;
            if file.has_inline(inline_flags::DATA) {
                if write_inline(&file, offset, bytes) {
                    self.content_changed(&file, end);
                    return Ok(bytes.len());
                }
                self.move_content_out(&file).await?;
            }
            let mut done = 0;
            while done < bytes.len() {
                let at = offset + done as u64;
                let inside = (at % BLOCK) as usize;
                let taken = (BLOCK_BYTES - inside).min(bytes.len() - done);
                let written = self.write_page(&file, at / BLOCK, inside, &bytes[done..done + taken]).await;
                match written {
                    Ok(()) => done += taken,
                    Err(_) if done > 0 => break,
                    Err(error) => return Err(error),
                }
                // With each page: a synchronisation call beside this one makes no page durable that is behind the end.
                self.content_changed(&file, offset + done as u64);
            }
            Ok(done)
        };
        Durability(self.0)
            .run_change(PAGES_AT_ONCE + CALL_BLOCKS, File::lock_found(self.regular(number)), change)
            .await
    }

    /// Content up to `end` was written.
    fn content_changed(&self, file: &File, end: u64) {
        if end > file.size() {
            file.grow(end);
        }
        file.stamp(self.timer.now());
    }

    /// Moves the content of a small file out of its inode. The caller has the file's lock.
    pub(crate) async fn move_content_out(&self, file: &Rc<File>) -> Result<(), FsError> {
        // No synchronisation call writes the inode without the page that the content moves to.
        let _turn = file.pages.take_turn().await;
        let (content, size) = {
            let inode = file.inode.borrow();
            let size = (inode.size.get() as usize).min(inode.inline_area().len());
            (inode.inline_area()[..size].to_vec(), size)
        };
        // A full filesystem leaves the content where it is.
        self.placement.space.borrow().require_room(1)?;
        file.change(|inode| {
            inode.inline_area_mut().fill(0);
            inode.set_inline(inline_flags::DATA, false);
            inode.set_inline(inline_flags::DATA_EXISTS, false);
        });
        if size > 0 { self.write_page(file, 0, 0, &content).await } else { Ok(()) }
    }

    /// Gives a file another size.
    pub(crate) async fn truncate_file(&self, number: InodeNumber, size: u64) -> Result<(), FsError> {
        let change = async |(file, _locked): (Rc<File>, Permit)| {
            if size > file.size_max() {
                return Err(FsError::TooLarge);
            }
            if let Some(update) = &mut *file.update.borrow_mut() {
                let grows = size >= update.staged.size();
                update.staged.grow(size);
                return if grows { Ok(()) } else { Err(FsError::UpdateOpen) };
            }
            let before = file.size();
            if file.has_inline(inline_flags::DATA) {
                let room = file.inode.borrow().inline_area().len() as u64;
                match size <= room {
                    true => file.change(|inode| inode.inline_area_mut()[size as usize..].fill(0)),
                    false => self.move_content_out(&file).await?,
                }
            } else if size < before {
                // What is cut, roll-forward does not know.
                file.needs_checkpoint.set(true);
                self.zero_in_page(&file, size..size.next_multiple_of(BLOCK)).await?;
                let first = u32::try_from(size.div_ceil(BLOCK)).unwrap_or(u32::MAX);
                self.forget_pages(&file, first..u32::MAX).await;
                file.change(|inode| inode.size = size.into());
                let cut = self.placement.truncate_pages(&file, size.div_ceil(BLOCK)).await;
                cut.inspect_err(|error| self.operations.stop_after(error))?;
            }
            file.change(|inode| inode.size = size.into());
            file.stamp(self.timer.now());
            Ok(())
        };
        Durability(self.0).run_change(CALL_BLOCKS, File::lock_found(self.regular(number)), change).await
    }

    /// Makes zeros of a part of a page, if it is not a hole.
    async fn zero_in_page(&self, file: &Rc<File>, range: Range<u64>) -> Result<(), FsError> {
        if range.is_empty() {
            return Ok(());
        }
        let page = range.start / BLOCK;
        let slot = self.placement.find_slot(file, page).await?;
        let has_block = slot.is_some_and(|slot| file.address(&slot).is_block());
        let is_in_memory = u32::try_from(page).is_ok_and(|page| file.pages.contains(page));
        if !has_block && !is_in_memory {
            return Ok(());
        }
        let zeros = vec![0; (range.end - range.start) as usize];
        self.write_page(file, page, (range.start % BLOCK) as usize, &zeros).await
    }

    /// Allocates, or makes zeros of, a range of a file.
    pub(crate) async fn allocate(
        &self,
        number: InodeNumber,
        mode: Fallocate,
        offset: u64,
        length: u64,
    ) -> Result<(), FsError> {
        let end = offset.checked_add(length).filter(|_| length > 0);
        let end = end.ok_or(FsError::Invalid("a range without bytes, or beyond the largest offset"))?;
        let (zeroes, allocates, keep_size) = match mode {
            Fallocate::Allocate { keep_size } => (false, true, keep_size),
            Fallocate::PunchHole => (true, false, true),
            Fallocate::ZeroRange { keep_size } => (true, true, keep_size),
        };
        if zeroes {
            self.change_allocation(number, end, async |file| self.free_range(file, offset..end).await)
                .await?;
        }
        let mut page = offset / BLOCK;
        while allocates && page < end.div_ceil(BLOCK) {
            let pages = page..end.div_ceil(BLOCK).min(page + ALLOCATED_AT_ONCE);
            page = pages.end;
            self.change_allocation(number, end, async |file| self.promise_pages(file, pages).await).await?;
        }
        self.change_allocation(number, end, async |file| {
            if !keep_size && end > file.size() {
                file.change(|inode| inode.size = end.into());
            }
            file.stamp(self.timer.now());
            Ok(())
        })
        .await
    }

    /// Changes what a file has allocated, up to the byte `end`, as one call.
    async fn change_allocation(
        &self,
        number: InodeNumber,
        end: u64,
        change: impl AsyncFnOnce(&Rc<File>) -> Result<(), FsError>,
    ) -> Result<(), FsError> {
        let change = async |(file, _locked): (Rc<File>, Permit)| {
            if end > file.size_max() {
                return Err(FsError::TooLarge);
            }
            if file.update.borrow().is_some() {
                return Err(FsError::UpdateOpen);
            }
            // Roll-forward takes pages that are promised for content.
            file.needs_checkpoint.set(true);
            if file.has_inline(inline_flags::DATA) {
                self.move_content_out(&file).await?;
            }
            change(&file).await
        };
        let nodes = ALLOCATED_AT_ONCE / u64::from(ADDRESSES_PER_NODE);
        Durability(self.0)
            .run_change(nodes + CALL_BLOCKS, File::lock_found(self.regular(number)), change)
            .await
    }

    async fn promise_pages(&self, file: &File, pages: Range<u64>) -> Result<(), FsError> {
        for page in pages {
            self.placement.promise_page(file, page).await?;
        }
        Ok(())
    }

    /// Makes a hole of all whole pages in a range, and zeros of the rest.
    async fn free_range(&self, file: &Rc<File>, range: Range<u64>) -> Result<(), FsError> {
        let whole = range.start.div_ceil(BLOCK)..range.end / BLOCK;
        if whole.start > whole.end {
            return self.zero_in_page(file, range).await;
        }
        self.zero_in_page(file, range.start..whole.start * BLOCK).await?;
        self.zero_in_page(file, whole.end * BLOCK..range.end).await?;
        let index = |page: u64| u32::try_from(page).unwrap_or(u32::MAX);
        self.forget_pages(file, index(whole.start)..index(whole.end)).await;
        self.placement.free_pages(file, whole).await
    }

    /// The first page from `page` on that has content: all of a file that lies in its inode has, and pages in memory.
    async fn next_content(&self, inode: &Inode, page: u64) -> Result<Option<u64>, FsError> {
        match inode.has_inline(inline_flags::DATA) {
            true => Ok((page == 0 && inode.size.get() > 0).then_some(0)),
            false => Ok(self.next_page(inode, page).await?.map(|(page, _)| page)),
        }
    }

    /// The first byte from `offset` on that is not in a hole.
    pub(crate) async fn find_data(&self, number: InodeNumber, offset: u64) -> Result<Option<u64>, FsError> {
        let inode = self.settled_inode(number).await?;
        if offset >= inode.size.get() {
            return Ok(None);
        }
        let page = self.next_content(&inode, offset / BLOCK).await?;
        Ok(page.map(|page| offset.max(page * BLOCK)))
    }

    /// The first byte from `offset` on that is in a hole, or the end.
    pub(crate) async fn find_hole(&self, number: InodeNumber, offset: u64) -> Result<Option<u64>, FsError> {
        let inode = self.settled_inode(number).await?;
        let size = inode.size.get();
        if offset >= size {
            return Ok(None);
        }
        let mut page = offset / BLOCK;
        while self.next_content(&inode, page).await? == Some(page) {
            page += 1;
        }
        Ok(Some(offset.max(page * BLOCK).min(size)))
    }

    /// Pages with content, at most one more than `limit`.
    pub(crate) async fn count_pages(&self, number: InodeNumber, limit: u64) -> Result<u64, FsError> {
        let inode = self.settled_inode(number).await?;
        let (mut count, mut next) = (0, self.next_content(&inode, 0).await?);
        while let Some(page) = next.filter(|_| count <= limit) {
            count += 1;
            next = self.next_content(&inode, page + 1).await?;
        }
        Ok(count)
    }

    /// The inode of a regular file whose dirty pages have their places, so that no hole is taken for content, nor the reverse.
    async fn settled_inode(&self, number: InodeNumber) -> Result<Inode, FsError> {
        let _call = self.operations.begin().await;
        let file = self.regular(number).await?;
        let turn = file.pages.take_turn().await;
        self.operations.complete(turn.submit(self.class(), self.class())).await?;
        let inode = *file.inode.borrow();
        Ok(inode)
    }
}

/// Copies from the content in an inode: how many bytes.
pub(crate) fn copy_inline(inode: &Inode, offset: u64, bytes: &mut [u8]) -> usize {
    let area = inode.inline_area();
    let content = &area[..area.len().min(inode.size.get() as usize)];
    let rest = content.get(offset as usize..).unwrap_or_default();
    let taken = rest.len().min(bytes.len());
    bytes[..taken].copy_from_slice(&rest[..taken]);
    taken
}

/// Writes to the content in an inode; whether it has room.
fn write_inline(file: &File, offset: u64, bytes: &[u8]) -> bool {
    file.change(|inode| {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let room = inode.inline_area_mut().get_mut(start..start.saturating_add(bytes.len()));
        let Some(room) = room else { return false };
        room.copy_from_slice(bytes);
        inode.set_inline(inline_flags::DATA_EXISTS, true);
        true
    })
}
