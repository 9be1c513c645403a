//! Pages of files in memory: brought there, changed, and forgotten.

use std::ops::Range;
use std::rc::Rc;

use weir_format::BLOCK_BYTES;
use weir_runtime::Buffer;
use weir_vfs::FsError;

use crate::file::{File, Slot};
use crate::mapping::page_outside;
use crate::mounted::Mounted;

impl Mounted {
    /// The page of a slot of a file, brought to memory; `None` for one that reads as zeros.
    ///
    /// # Errors
    /// What reading fails by.
    pub(crate) async fn cached_page(
        &self,
        file: &File,
        page: u64,
        slot: &Slot,
    ) -> Result<Option<Rc<Buffer>>, FsError> {
        let index = u32::try_from(page).map_err(|_| FsError::TooLarge)?;
        loop {
            if let Some(content) = file.pages.snapshot(index) {
                return Ok(Some(content));
            }
            // Where it is now: writeback may have moved it, and its content have left memory since.
            let address = file.address(slot);
            if !address.is_block() {
                return Ok(None);
            }
            if self.layout.segment_of(address).is_none() {
                return Err(page_outside(file).into());
            }
            // A read that has ended may have failed, or have brought what counts no more.
            if let Some(ended) = file.pages.read_under_way(index) {
                ended.await;
                continue;
            }
            let place = u64::from(address.0);
            let (content, blocks) = file.pages.begin_read(place, index..index + 1).content().await?;
            if file.address(slot) != address {
                continue;
            }
            file.pages.insert_read(place, blocks, 1, &content);
            return Ok(Some(file.pages.snapshot(index).unwrap_or_else(|| content.into())));
        }
    }

    /// Writes into a page of a file, whose lock the caller has: the page is promised a place, and is dirty from now on.
    ///
    /// # Errors
    /// [`FsError::NoSpace`]; what reading the rest of the page fails by.
    pub(crate) async fn write_page(
        &self,
        file: &Rc<File>,
        page: u64,
        at: usize,
        bytes: &[u8],
    ) -> Result<(), FsError> {
        let index = u32::try_from(page).map_err(|_| FsError::TooLarge)?;
        let known = file.slots.borrow().get(&index).cloned();
        let slot = match known {
            Some(slot) => slot,
            None => self.placement.promise_page(file, page).await?,
        };
        let is_whole = at == 0 && bytes.len() == BLOCK_BYTES;
        let rest = match is_whole || file.pages.contains(index) {
            true => None,
            false => self.cached_page(file, page, &slot).await?,
        };
        self.change_page(file, (index, slot), at, bytes, rest);
        Ok(())
    }

    /// Changes a page of a file that was promised a place in its slot. `rest` is what else the page holds, if it is not in memory. Nothing
    /// waits.
    pub(crate) fn change_page(
        &self,
        file: &File,
        (index, slot): (u32, Slot),
        at: usize,
        bytes: &[u8],
        rest: Option<Rc<Buffer>>,
    ) {
        if !file.pages.contains(index) {
            let content = rest.unwrap_or_else(|| Rc::new(Buffer::new(BLOCK_BYTES)));
            let address = file.address(&slot);
            match address.is_block() {
                true => file.pages.insert(index, address.0.into(), content),
                false => file.pages.insert_new(index, content),
            }
        }
        file.slots.borrow_mut().insert(index, slot);
        let is_changed = file.pages.change(index, at, bytes);
        debug_assert!(is_changed, "a page that is in memory");
        // Behind the change: a clean page may be the one that leaves.
        self.files.cache.make_room(1);
    }

    /// Forgets pages of a file, dirty ones too.
    pub(crate) async fn forget_pages(&self, file: &File, pages: Range<u32>) {
        let turn = file.pages.take_turn().await;
        file.slots.borrow_mut().retain(|index, _| !pages.contains(index));
        file.moved.borrow_mut().retain(|index| !pages.contains(index));
        turn.forget(pages);
    }
}
