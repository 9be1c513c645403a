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

use weir_cache::{BLOCK, index_of, split};
use weir_f2fs::inline_flags;
use weir_format::BLOCK_BYTES;
use weir_runtime::{Buffer, Permit};
use weir_vfs::{FsError, InodeNumber};

use crate::changes::CALL_BLOCKS;
use crate::checkpoint::Durability;
use crate::content::{Content, copy_inline};
use crate::file::{File, Slot};
use crate::update::{UPDATE_PAGES_MAX, Update};

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
            let is_staged =
                || file.update.borrow().as_ref().is_some_and(|update| update.staged.page(index).is_some());
            if is_partial && !is_staged() {
                rests.push((index, self.content_without_update(file, index).await?));
            }
        }
        let mut update = file.update.borrow_mut();
        let Some(update) = update.as_mut() else { return Err(FsError::UpdateOpen) };
        let new = pages.len() as u32 - update.staged.pages_in(pages).count() as u32;
        if !update.take_room(new) {
            return Err(FsError::UpdateTooLarge { most: UPDATE_PAGES_MAX });
        }
        update.staged.write(offset, bytes, &rests);
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
        let mut files = Vec::new();
        for number in &numbers {
            files.push(self.regular(*number).await?);
        }
        let pages = count_staged(&files)?;
        let lock_all = async {
            let mut locked = Vec::new();
            for file in &files {
                locked.push(file.lock_exclusive().await?);
            }
            Ok(locked)
        };
        // Each page may need two nodes that lead to it.
        let blocks = 3 * pages + CALL_BLOCKS * numbers.len() as u64;
        let end = async |_locked: Vec<Permit>| {
            // A caller that writes beside the end: there is room for what was there before.
            if count_staged(&files)? > pages {
                return Err(FsError::UpdateOpen);
            }
            self.end_locked(&files).await
        };
        Durability(self.0).run_change(blocks, lock_all, end).await
    }

    /// The same for a caller that has the locks, as one change.
    async fn end_locked(&self, files: &[Rc<File>]) -> Result<(), FsError> {
        for file in files {
            self.make_room_for_pages(file).await?;
        }
        let mut turns = Vec::new();
        let mut promised: Vec<Vec<Promised>> = Vec::new();
        for file in files {
            // No synchronisation call writes nodes while some pages are promised.
            turns.push(file.pages.take_turn().await);
            if files.len() > 1 {
                // A chain belongs to one file: roll-forward may find that of one and not that of another.
                file.needs_checkpoint.set(true);
            }
            promised.push(Vec::new());
            let Some(promised_last) = promised.last_mut() else { continue };
            if let Err(error) = self.promise_staged(file, promised_last).await {
                for (file, promised) in files.iter().zip(&promised) {
                    let holes = promised.iter().filter(|promised| promised.was_hole);
                    holes.for_each(|promised| self.placement.free_page(file, &promised.slot));
                }
                return Err(error);
            }
        }
        // From here on nothing waits, and nothing fails.
        for (file, promised) in files.iter().zip(promised) {
            self.apply_update(file, promised);
        }
        Ok(())
    }

    /// Moves the content of a file out of its inode, if the update has more than the inode takes.
    async fn make_room_for_pages(&self, file: &Rc<File>) -> Result<(), FsError> {
        let is_small = match &*file.update.borrow() {
            Some(update) => {
                update.pages() == 0 && update.staged.size() <= file.inode.borrow().inline_area().len() as u64
            }
            None => true,
        };
        if is_small || !file.has_inline(inline_flags::DATA) {
            Ok(())
        } else {
            self.move_content_out(file).await
        }
    }

    /// Promises the staged pages of a file their places, as far as it comes.
    async fn promise_staged(&self, file: &Rc<File>, promised: &mut Vec<Promised>) -> Result<(), FsError> {
        let staged: Vec<u32> = match &*file.update.borrow() {
            Some(update) => update.staged.all().map(|(index, _)| index).collect(),
            None => Vec::new(),
        };
        for index in staged {
            let known = file.slots.borrow().get(&index).cloned();
            let slot = match known {
                Some(slot) => slot,
                None => self.placement.make_slot(file, index.into()).await?,
            };
            let was_hole = self.placement.promise_slot(file, &slot)?;
            promised.push(Promised { slot, was_hole });
        }
        Ok(())
    }

    /// Makes an update part of its file.
    fn apply_update(&self, file: &Rc<File>, promised: Vec<Promised>) {
        let Some(update) = file.update.take() else { return };
        for ((index, content), Promised { slot, .. }) in update.staged.all().zip(promised) {
            self.change_page(file, (index, slot), 0, content, None);
        }
        if update.staged.size() > file.size() {
            file.change(|inode| inode.size = update.staged.size().into());
        }
        file.holds_update.set(true);
        file.stamp(self.timer.now());
    }
}

/// A staged page that has a place, or is promised one.
struct Promised {
    slot: Slot,
    /// Nothing was promised before.
    was_hole: bool,
}

/// Pages that the updates of files have together.
///
/// # Errors
/// [`FsError::Invalid`] if one was not begun.
fn count_staged(files: &[Rc<File>]) -> Result<u64, FsError> {
    let pages = |file: &Rc<File>| file.update.borrow().as_ref().map(|update| u64::from(update.pages()));
    files.iter().map(pages).sum::<Option<u64>>().ok_or(FsError::Invalid("no update was begun"))
}
