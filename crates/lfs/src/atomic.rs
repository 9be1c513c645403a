//! Atomic writes: what a caller writes to a file between the beginning and the end of an [update](crate::update) is there after a crash as
//! a whole, or not at all.
//!
//! 1. From the beginning on, what is written is staged in memory. Reads find it; the disk and the page cache do not have it.
//! 2. The end promises all pages their places, and puts them into the page cache, the new size with them, in one step: a checkpoint has
//!    all of them or none.
//! 3. The next synchronisation call of the file writes the pages to new places, never over the old ones, and the nodes behind them, of
//!    which only the last has the mark: roll-forward takes all or nothing (L6).
//!
//! Linux's F2FS has this as the ioctls of `START_ATOMIC_WRITE` and `COMMIT_ATOMIC_WRITE`. It writes the pages at the end, and the nodes with one
//! flush; an update of several files it does not have. Here those are written with a checkpoint.

use std::rc::Rc;

use weir_cache::{index_of, split};
use weir_f2fs::inline_flags;
use weir_format::BLOCK_BYTES;
use weir_runtime::{Buffer, Permit};
use weir_vfs::{FsError, InodeNumber};

use crate::changes::CALL_BLOCKS;
use crate::checkpoint::Durability;
use crate::content::{Content, PAGES_AT_ONCE, copy_inline};
use crate::file::{File, Slot};
use crate::update::{UPDATE_PAGES_MAX, Update};

const BLOCK: u64 = BLOCK_BYTES as u64;

impl Content<'_> {
    /// Begins an update of a file.
    ///
    /// # Errors
    /// [`FsError::UpdateOpen`] if one was begun; [`FsError::ReadOnly`].
    pub(crate) async fn begin_update(&self, number: InodeNumber) -> Result<(), FsError> {
        let (file, _locked) = File::lock_found(self.regular(number)).await?;
        self.operations.check_writable()?;
        let mut update = file.update.borrow_mut();
        if update.is_some() {
            return Err(FsError::UpdateOpen);
        }
        *update = Some(Update::new(file.size(), &self.update_pages));
        Ok(())
    }

    /// Takes an update back.
    ///
    /// # Errors
    /// [`FsError::NotFound`]; what reading the inode fails by.
    pub(crate) async fn abandon_update(&self, number: InodeNumber) -> Result<(), FsError> {
        let (file, _locked) = File::lock_found(self.regular(number)).await?;
        file.update.take();
        Ok(())
    }

    /// Adds to the update of a file, whose lock the caller has.
    ///
    /// # Errors
    /// [`FsError::UpdateTooLarge`]; what reading the rest of a page fails by.
    pub(crate) async fn stage(&self, file: &Rc<File>, offset: u64, bytes: &[u8]) -> Result<(), FsError> {
        let end = offset + bytes.len() as u64;
        let pages = index_of(offset)..index_of(end - 1) + 1;
        let mut rests = Vec::new();
        for (index, is_partial) in [(pages.start, split(offset).1 > 0), (pages.end - 1, split(end).1 > 0)] {
            if is_partial {
                rests.push((index, self.content_without_update(file, index).await?));
            }
        }
        let mut update = file.update.borrow_mut();
        let Some(update) = update.as_mut() else { return Err(FsError::Invalid("no update was begun")) };
        let new = pages.len() as u32 - update.staged.pages_in(pages).count() as u32;
        if !update.take_room(new) {
            return Err(FsError::UpdateTooLarge { most: UPDATE_PAGES_MAX });
        }
        let mut done = 0;
        while done < bytes.len() {
            let (index, at) = split(offset + done as u64);
            let taken = (BLOCK_BYTES - at).min(bytes.len() - done);
            let rest = rests.iter().find(|(rest, _)| *rest == index).map(|(_, content)| Rc::clone(content));
            update.staged.change(index, at, &bytes[done..done + taken], rest);
            done += taken;
        }
        update.staged.grow(end);
        Ok(())
    }

    /// What a page of a file holds without its update, with zeros behind the end.
    async fn content_without_update(&self, file: &Rc<File>, index: u32) -> Result<Rc<Buffer>, FsError> {
        let (start, size) = (u64::from(index) * BLOCK, file.size());
        if file.has_inline(inline_flags::DATA) {
            let mut content = Buffer::new(BLOCK_BYTES);
            copy_inline(&file.inode.borrow(), start, &mut content);
            return Ok(Rc::new(content));
        }
        let slot = if start < size { self.placement.find_slot(file, index.into()).await? } else { None };
        let content = match slot {
            Some(slot) => self.cached_page(file, index.into(), &slot).await?,
            None => None,
        };
        let mut content = content.unwrap_or_else(|| Rc::new(Buffer::new(BLOCK_BYTES)));
        if start < size && size < start + BLOCK {
            Rc::make_mut(&mut content)[(size - start) as usize..].fill(0);
        }
        Ok(content)
    }

    /// Ends the updates of files: what they have is part of the files from now on, and after a crash all of it is or nothing.
    ///
    /// # Errors
    /// [`FsError::Invalid`] if one was not begun; [`FsError::NoSpace`]: the updates are as they were; those of any change.
    pub(crate) async fn end_updates(&self, numbers: &[InodeNumber]) -> Result<(), FsError> {
        let mut numbers = numbers.to_vec();
        numbers.sort_unstable();
        numbers.dedup();
        let mut pages = 0;
        for number in &numbers {
            let file = self.regular(*number).await?;
            let update = file.update.borrow();
            pages += u64::from(update.as_ref().ok_or(NOT_BEGUN)?.pages());
        }
        let lock_all = async {
            let mut locked: Vec<(Rc<File>, Permit)> = Vec::new();
            for number in &numbers {
                locked.push(File::lock_found(self.regular(*number)).await?);
            }
            Ok(locked)
        };
        // Each page may need a node that leads to it.
        let blocks = 2 * pages + CALL_BLOCKS * numbers.len() as u64;
        let end = async |locked: Vec<(Rc<File>, Permit)>| {
            if blocks > PAGES_AT_ONCE && Durability(self.0).has_few_segments(0) {
                return Err(FsError::NoSpace);
            }
            let files: Vec<&Rc<File>> = locked.iter().map(|(file, _)| file).collect();
            self.end_locked(&files).await
        };
        Durability(self.0).run_change(blocks, lock_all, end).await
    }

    /// The same for a caller that has the locks, as one change.
    async fn end_locked(&self, files: &[&Rc<File>]) -> Result<(), FsError> {
        if files.iter().any(|file| file.update.borrow().is_none()) {
            return Err(NOT_BEGUN);
        }
        for file in files {
            if file.has_inline(inline_flags::DATA) {
                self.move_content_out(file).await?;
            }
        }
        let mut turns = Vec::new();
        let mut places = Vec::new();
        for file in files {
            // No synchronisation call writes nodes while some pages are promised.
            turns.push(file.pages.take_turn().await);
            if files.len() > 1 {
                // A chain belongs to one file: roll-forward may find that of one and not that of another.
                file.needs_checkpoint.set(true);
            }
            places.push(self.promise_staged(file).await?);
        }
        // From here on nothing waits, and nothing fails.
        for (file, slots) in files.iter().zip(places) {
            self.apply_update(file, slots);
        }
        Ok(())
    }

    /// Promises the staged pages of a file their places.
    async fn promise_staged(&self, file: &Rc<File>) -> Result<Vec<Slot>, FsError> {
        let staged: Vec<u32> = match &*file.update.borrow() {
            Some(update) => update.staged.all().map(|(index, _)| index).collect(),
            None => Vec::new(),
        };
        let mut slots = Vec::with_capacity(staged.len());
        for index in staged {
            let known = file.slots.borrow().get(&index).cloned();
            let slot = match known {
                Some(slot) => Ok(slot),
                None => self.placement.promise_page(file, index.into()).await,
            };
            // Roll-forward takes pages that are promised for content.
            slots.push(slot.inspect_err(|_| file.needs_checkpoint.set(true))?);
        }
        Ok(slots)
    }

    /// Makes an update part of its file.
    fn apply_update(&self, file: &Rc<File>, slots: Vec<Slot>) {
        let Some(update) = file.update.take() else { return };
        for ((index, content), slot) in update.staged.all().zip(slots) {
            self.change_page(file, (index, slot), 0, content, None);
        }
        if update.staged.size() > file.size() {
            file.change(|inode| inode.size = update.staged.size().into());
        }
        file.holds_update.set(true);
        file.stamp(self.timer.now());
    }
}

const NOT_BEGUN: FsError = FsError::Invalid("no update was begun");
