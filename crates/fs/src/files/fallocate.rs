//! Allocating what is not written yet, and making holes and zeros. Where a hole finds no space for its extent's division,
//! zeros are written ([`mapping`](crate::mapping)).

use std::ops::Range;
use std::rc::Rc;

use weir_cache::{BLOCK, index_of};
use weir_vfs::{Caller, Fallocate, FsError};

use super::truncate::{TRUNCATE_CREDITS, ZEROS};
use super::write::{CHUNK_BLOCKS, CHUNK_JOURNALED, Edges};
use super::{Files, require_regular};
use crate::inodes::Node;
use crate::mapping::{Tree, Wanted, covers};
use crate::mutants::FsMutant;

impl Files {
    /// Allocates, zeroes or frees the blocks of `length` bytes from `offset` on.
    pub(crate) async fn fallocate(
        &self,
        caller: Caller,
        node: &Rc<Node>,
        mode: Fallocate,
        offset: u64,
        length: u64,
    ) -> Result<(), FsError> {
        self.changes
            .changing(async {
                require_regular(node)?;
                if length == 0 {
                    return Err(FsError::Invalid("an empty range"));
                }
                let end = offset.checked_add(length).ok_or(FsError::TooLarge)?;
                self.check_size(end)?;
                let _locked = node.lock_exclusive().await;
                let keeps_content = mode == Fallocate::Allocate { keep_size: true };
                if !keeps_content && node.update.borrow().is_some() {
                    return Err(FsError::UpdateOpen);
                }
                self.allocate_or_free(caller, node, mode, offset..end).await
            })
            .await
    }

    /// The same for a range that is not empty. The caller holds the lock.
    async fn allocate_or_free(
        &self,
        caller: Caller,
        node: &Rc<Node>,
        mode: Fallocate,
        range: Range<u64>,
    ) -> Result<(), FsError> {
        let whole = index_of(range.start.next_multiple_of(BLOCK))..index_of(range.end);
        let touched = index_of(range.start)..index_of(range.end - 1) + 1;
        match mode {
            Fallocate::Allocate { keep_size } => {
                self.allocate_whole(caller, node, touched.clone()).await?;
                match keep_size {
                    true => Ok(()),
                    false => self.map_all(caller, node, touched, Wanted::Mapped, Some(range.end)).await,
                }
            }
            Fallocate::PunchHole => {
                self.zero_ends(node, range).await?;
                self.punch(node, whole).await
            }
            Fallocate::ZeroRange { keep_size } => {
                self.allocate_whole(caller, node, touched.clone()).await?;
                self.zero_ends(node, range.clone()).await?;
                let grow = (!keep_size).then_some(range.end);
                self.map_all(caller, node, whole, Wanted::Zeros, grow).await?;
                // The blocks at both ends have got their zeros, but may be holes.
                self.map_all(caller, node, touched, Wanted::Mapped, grow).await
            }
        }
    }

    /// Gives every block of a range a place, if there is room for all of them. The file does not grow.
    async fn allocate_whole(
        &self,
        caller: Caller,
        node: &Rc<Node>,
        range: Range<u32>,
    ) -> Result<(), FsError> {
        self.changes.with_space(async || self.require_room(caller, node, range.clone()).await).await?;
        self.map_all(caller, node, range, Wanted::Mapped, None).await
    }

    /// Refuses a range that cannot be allocated as a whole, with what of it is mapped: it would take all that is free, and
    /// fail then.
    async fn require_room(&self, caller: Caller, node: &Node, range: Range<u32>) -> Result<(), FsError> {
        let available = node.metadata().space.available_to(caller);
        let mut needed = range.len() as u64;
        let mut at = range.start;
        while needed > available && !self.rules.drops(FsMutant::AllocatesWhatCannotFit) {
            let next = Tree::from_node(node).next(at).await?;
            let next = next.filter(|next| at < range.end && next.logical < range.end);
            let Some(extent) = next else { return Err(FsError::NoSpace) };
            at = at.max(extent.logical);
            let end = extent.end().min(range.end);
            needed -= u64::from(end - at);
            at = end;
        }
        Ok(())
    }

    /// Makes all blocks of a range as they are wanted, and the file as large as `grow` says if it is not. The
    /// caller holds the lock.
    async fn map_all(
        &self,
        caller: Caller,
        node: &Rc<Node>,
        range: Range<u32>,
        wanted: Wanted,
        grow: Option<u64>,
    ) -> Result<(), FsError> {
        let mut at = range.start;
        while at < range.end {
            let done = self
                .changes
                .with_space(async || self.map_step(caller, node, at..range.end, wanted, grow).await)
                .await;
            at = match done {
                Err(FsError::NoSpace) if wanted == Wanted::Zeros => {
                    self.overwrite_first(node, at..range.end).await?
                }
                done => done?,
            };
        }
        if range.is_empty() && grow.is_some() {
            self.map_step(caller, node, range, wanted, grow).await?;
        }
        Ok(())
    }

    /// The same for as much as one handle may do: how far it went.
    async fn map_step(
        &self,
        caller: Caller,
        node: &Rc<Node>,
        range: Range<u32>,
        wanted: Wanted,
        grow: Option<u64>,
    ) -> Result<u32, FsError> {
        let grows = grow.is_some_and(|to| to > node.size());
        let behind = if grows { self.behind_end(node).await? } else { None };
        let handle = self.changes.start_for(caller, TRUNCATE_CREDITS).await?;
        let end = range.end;
        let reached = self.mapping.map(&handle, node, range, wanted).await;
        if let Ok(reached) = reached {
            if let Some((behind, edges)) = behind {
                self.zero_part(node, &handle, behind, &edges).await?;
            }
            // What is not done yet is no part of the file.
            let size = if reached >= end { grow } else { grow.map(|to| to.min(u64::from(reached) * BLOCK)) };
            if let Some(size) = size.filter(|size| *size > node.size()) {
                node.inode.borrow_mut().set_size(size);
                node.last_changes.note_data();
            }
            node.stamp(self.timer.now());
        }
        self.mapping.log_data(node, &handle).await?;
        reached
    }

    /// Frees all blocks of a range; those that it cannot, since their extent finds no block to be divided, it fills
    /// with zeros.
    async fn punch(&self, node: &Rc<Node>, range: Range<u32>) -> Result<(), FsError> {
        loop {
            match self.changes.with_space(async || self.punch_step(node, range.clone()).await).await {
                Err(FsError::NoSpace) if !self.rules.drops(FsMutant::NoZeroing) => {
                    return self.overwrite_with_zeros(node, range).await;
                }
                Ok(false) => {}
                done => return done.map(drop),
            }
        }
    }

    /// The same for the last blocks of the range, as many as one handle may free: whether that was all.
    async fn punch_step(&self, node: &Rc<Node>, range: Range<u32>) -> Result<bool, FsError> {
        let handle = self.changes.start(TRUNCATE_CREDITS).await?;
        let done = match range.is_empty() {
            true => Ok(true),
            false => self.mapping.unmap(&handle, node, range).await,
        };
        node.stamp(self.timer.now());
        // Also after an error: there may have been no room to cut an extent in two, behind which others are gone.
        self.mapping.log_data(node, &handle).await?;
        done
    }

    /// Fills with zeros what a range has of its first and last block, where it has not all of them.
    async fn zero_ends(&self, node: &Rc<Node>, range: Range<u64>) -> Result<(), FsError> {
        let end = range.end.min(node.size());
        let (first, last) = (range.start.next_multiple_of(BLOCK), end / BLOCK * BLOCK);
        let head = range.start..end.min(first);
        // What is behind the end of the file is zeros already, so its last block may be whole.
        let tail = last.max(range.start).max(head.end)..end;
        for part in [head, tail] {
            if part.is_empty() {
                continue;
            }
            let edges = self.edges(node, &part).await?;
            let handle = self.changes.start(TRUNCATE_CREDITS).await?;
            self.zero_part(node, &handle, part, &edges).await?;
            node.stamp(self.timer.now());
            self.mapping.log_data(node, &handle).await?;
        }
        Ok(())
    }

    /// Overwrites with zeros what of a range is written. The caller holds the lock, and no handle.
    async fn overwrite_with_zeros(&self, node: &Rc<Node>, range: Range<u32>) -> Result<(), FsError> {
        let mut at = range.start;
        while let Some(extent) = Tree::from_node(node).next(at).await? {
            at = at.max(extent.logical);
            if at >= range.end {
                break;
            }
            let end = extent.end().min(range.end);
            at = if extent.written { self.overwrite_some(node, at..end).await? } else { end };
        }
        Ok(())
    }

    /// The same for the extent that a range begins in: its end.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] if that is not written.
    async fn overwrite_first(&self, node: &Rc<Node>, range: Range<u32>) -> Result<u32, FsError> {
        let found = Tree::from_node(node).next(range.start).await?;
        match found.filter(|extent| extent.written && covers(extent, range.start)) {
            Some(extent) if !self.rules.drops(FsMutant::NoZeroing) => {
                let end = extent.end().min(range.end);
                self.overwrite_with_zeros(node, range.start..end).await?;
                Ok(end)
            }
            _ => Err(FsError::NoSpace),
        }
    }

    /// Overwrites as much of a range, which is mapped and written, as one handle may: how far it went.
    async fn overwrite_some(&self, node: &Rc<Node>, range: Range<u32>) -> Result<u32, FsError> {
        self.cache.throttle().await;
        let journaled = node.is_journaled(self.mode);
        let most = if journaled { CHUNK_JOURNALED } else { CHUNK_BLOCKS.min(self.cache.allowance()) } as u32;
        let end = range.end.min(range.start.saturating_add(most));
        let credits = TRUNCATE_CREDITS + if journaled { end - range.start } else { 0 };
        let handle = self.changes.start(credits).await?;
        self.mapping.zeroed.report(node.number, range.start..end);
        self.changes
            .all_or_abort(async {
                for index in range.start..end {
                    let offset = u64::from(index) * BLOCK;
                    self.put_bytes(node, Some(&handle), offset, &ZEROS, &Edges::default()).await?;
                }
                node.stamp(self.timer.now());
                self.mapping.log_data(node, &handle).await
            })
            .await?;
        Ok(end)
    }
}
