//! Blocks: allocating runs of them near a goal, and giving them back.

use std::ops::Range;
use std::rc::Rc;

use weir_cache::units::blocks_to_end;
use weir_ext4::{Kind, bitmap, group_flags};
use weir_format::{BLOCK_BYTES, FormatError, Place, Structure};
use weir_journal::{BufferHead, Role, TxHandle};
use weir_storage::{Extent, Lba};
use weir_vfs::FsError;

use crate::mutants::FsMutant;
use crate::space::group::Wanted;
use crate::space::{Space, Use};

/// A run that continues at the goal is taken if it has that many blocks, even if longer ones are elsewhere.
const WORTH_CONTINUING: u32 = 8;
/// A file whose next block is taken continues in the next free chunk of that many blocks: 2 MiB. So files that
/// grow at the same time do not take every other block from each other.
const CHUNK_BLOCKS: u32 = 512;
/// Groups in which a free chunk is looked for.
const CHUNK_GROUPS: usize = 4;

impl Space {
    /// Allocates 1 to `most` consecutive blocks for a file, from its block `index` on: at `goal` if it is free, else as
    /// near and as many as there are. Fewer than `most` end with a unit of the file, where there is a free run of that
    /// length. A goal that is not the start of a group is where the file has its last block before. Costs
    /// [`GROUP_CREDITS`](super::GROUP_CREDITS).
    ///
    /// # Errors
    /// [`FsError::NoSpace`]; once the freed blocks of the running transaction are in the log there may be some.
    pub(crate) async fn allocate(
        &self,
        handle: &TxHandle,
        goal: u64,
        index: u32,
        most: u32,
    ) -> Result<Extent, FsError> {
        let purpose = Use::Content;
        let unit_end = match self.options.rules.drops(FsMutant::UnitInTwoRuns) {
            true => 1,
            false => blocks_to_end(index),
        };
        let room = u32::try_from(self.room(handle, purpose)).unwrap_or(u32::MAX);
        let most = most.min(room).clamp(1, self.layout().blocks_per_group());
        let (home, from) = self.place_of(goal);
        self.load_group(home).await?;
        let run = self.groups.borrow()[home as usize].run_at(from, most);
        let continues = run.end - run.start >= most.min(WORTH_CONTINUING.max(unit_end));
        if continues
            && let Some(found) = self
                .allocate_in(
                    handle,
                    purpose,
                    home,
                    Wanted { from, least: run.end - run.start, most, aligned: false, unit_end },
                )
                .await?
        {
            return Ok(found);
        }
        if from > 0 {
            let chunk = Wanted { from, least: CHUNK_BLOCKS, most, aligned: true, unit_end };
            for group in self.groups_from(home).take(CHUNK_GROUPS) {
                let wanted = chunk.in_group(group == home);
                if let Some(found) = self.allocate_in(handle, purpose, group, wanted).await? {
                    return Ok(found);
                }
            }
        }
        self.allocate_anywhere(handle, purpose, goal, most, unit_end).await
    }

    /// Allocates one block as near to `goal` as there is one: for what belongs to a file and is not its data.
    /// Costs [`GROUP_CREDITS`](super::GROUP_CREDITS).
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub(crate) async fn allocate_one(
        &self,
        handle: &TxHandle,
        purpose: Use,
        goal: u64,
    ) -> Result<u64, FsError> {
        Ok(self.allocate_anywhere(handle, purpose, goal, 1, 1).await?.start.0)
    }

    /// Allocates the first run of `most` blocks behind `goal`, or if there is none, of fewer: last, of fewer than there
    /// are to the end of a unit.
    async fn allocate_anywhere(
        &self,
        handle: &TxHandle,
        purpose: Use,
        goal: u64,
        most: u32,
        unit_end: u32,
    ) -> Result<Extent, FsError> {
        let (home, from) = self.place_of(goal);
        let mut least = most;
        loop {
            let wanted = Wanted { from, least, most, aligned: false, unit_end };
            for group in self.groups_from(home) {
                let wanted = wanted.in_group(group == home);
                if let Some(found) = self.allocate_in(handle, purpose, group, wanted).await? {
                    return Ok(found);
                }
            }
            if least == 1 {
                return Err(FsError::NoSpace);
            }
            least = match least / 8 {
                shorter if shorter >= unit_end => shorter,
                _ if least > unit_end => unit_end,
                shorter => shorter.max(1),
            };
        }
    }

    /// The group of a goal, and the bit in it; the first of all for one beyond the end.
    pub(super) fn place_of(&self, goal: u64) -> (u32, u32) {
        let Some(group) = self.layout().group_of(goal) else { return (0, 0) };
        (group, (goal - self.layout().first_block(group)) as u32)
    }

    /// All groups, from one on and round.
    fn groups_from(&self, first: u32) -> impl Iterator<Item = u32> + use<> {
        (first..self.layout().groups()).chain(0..first)
    }

    /// Allocates blocks of one group, if there is such a run.
    async fn allocate_in(
        &self,
        handle: &TxHandle,
        purpose: Use,
        group: u32,
        mut wanted: Wanted,
    ) -> Result<Option<Extent>, FsError> {
        if self.groups.borrow()[group as usize].longest() < wanted.least {
            return Ok(None);
        }
        let descriptors = self.descriptor_buffer(group).await?;
        let bits = self.block_bitmap(group).await?;
        // Last, as another task that waits may evict it.
        self.load_group(group).await?;
        // Nothing waits from here on, so no other task comes between.
        let room = self.room(handle, purpose);
        if room < u64::from(wanted.least) {
            return Ok(None);
        }
        wanted.most = u32::try_from(room).unwrap_or(u32::MAX).min(wanted.most);
        let found = self.groups.borrow_mut()[group as usize].find(wanted);
        let Some(run) = found.map(|run| wanted.cut(run)) else { return Ok(None) };
        self.mark(handle, group, &descriptors, &bits, run.clone(), true)?;
        self.groups.borrow_mut()[group as usize].take_run(run.clone());
        if !self.options.rules.drops(FsMutant::DiscardsReused)
            && !self.options.rules.drops(FsMutant::DiscardsFreedTwice)
        {
            self.discarding.freed.borrow_mut().allocated(group, &run);
        }
        let start = self.layout().first_block(group) + u64::from(run.start);
        Ok(Some(Extent::new(Lba(start), run.end - run.start)))
    }

    /// Frees blocks. They are not allocated again before this transaction's commit block is transferred (J7).
    /// Costs [`GROUP_CREDITS`](super::GROUP_CREDITS) for each group that the extent touches.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for blocks that are free, that belong to the format, or that do not exist.
    pub(crate) async fn free(&self, handle: &TxHandle, extent: Extent) -> Result<(), FsError> {
        if extent.end().0 > self.layout().blocks() {
            let place = Place::Block(extent.start.0);
            let what = "beyond the filesystem";
            return Err(FormatError::corrupt(Structure::BlockBitmap, place, what).into());
        }
        for (group, run) in self.parts(extent) {
            let descriptors = self.descriptor_buffer(group).await?;
            let bits = self.block_bitmap(group).await?;
            self.load_group(group).await?;
            let corrupt = |what| FormatError::corrupt(Structure::BlockBitmap, Place::Group(group), what);
            if bits.read(|bits| bitmap::count_clear(bits, run.clone())) > 0 {
                return Err(corrupt("a block is freed that is free").into());
            }
            let overlaps = |own: &Range<u32>| own.start < run.end && run.start < own.end;
            if self.own_metadata(group).iter().any(overlaps) {
                return Err(corrupt("a block is freed that belongs to the format").into());
            }
            self.mark(handle, group, &descriptors, &bits, run.clone(), false)?;
            if self.options.rules.drops(FsMutant::ReusesFreed) {
                self.groups.borrow_mut()[group as usize].release(run);
            } else {
                self.groups.borrow_mut()[group as usize].hold_freed(&run);
                let start = self.layout().first_block(group) + u64::from(run.start);
                self.waiting.set(self.waiting.get() + u64::from(run.end - run.start));
                handle.free(Extent::new(Lba(start), run.end - run.start));
            }
        }
        Ok(())
    }

    /// Marks blocks used or free in the bitmap, and counts them in the descriptor.
    pub(super) fn mark(
        &self,
        handle: &TxHandle,
        group: u32,
        descriptors: &Rc<BufferHead>,
        bits: &Rc<BufferHead>,
        run: Range<u32>,
        used: bool,
    ) -> Result<(), FsError> {
        let count = run.end - run.start;
        let descriptor = self.descriptor(group);
        if descriptor.has_flag(group_flags::BLOCKS_UNINITIALISED) {
            handle.modify(bits, 0..BLOCK_BYTES, |bits| {
                self.layout().fresh_block_bitmap(group, &descriptor, bits);
            });
        }
        let bytes = run.start as usize / 8..run.end.div_ceil(8) as usize;
        handle.modify(bits, bytes.clone(), |part| {
            let base = bytes.start as u32 * 8;
            let run = run.start - base..run.end - base;
            if used { bitmap::set(part, run) } else { bitmap::clear(part, run) }
        });
        let free = self.free_blocks.get();
        let (in_group, in_all) = match used {
            true => (descriptor.free_blocks().saturating_sub(count), free.saturating_sub(u64::from(count))),
            false => (descriptor.free_blocks() + count, free + u64::from(count)),
        };
        self.free_blocks.set(in_all);
        self.change_descriptor(handle, group, descriptors, |descriptor| {
            descriptor.set_free_blocks(in_group);
            descriptor.set_flag(group_flags::BLOCKS_UNINITIALISED, false);
            bits.read(|bits| descriptor.seal_block_bitmap(bits, &self.layout()));
        })
    }

    /// The bitmap of a group's blocks. Of one that was never written the content is not yet there.
    pub(super) async fn block_bitmap(&self, group: u32) -> Result<Rc<BufferHead>, FsError> {
        let descriptor = self.descriptor(group);
        let (block, kind) = (descriptor.block_bitmap(), Kind::BlockBitmap { group });
        if descriptor.has_flag(group_flags::BLOCKS_UNINITIALISED) {
            return Ok(self.buffers.fresh(block, Role::Metadata(kind)));
        }
        let verify = |bits: &[u8]| self.descriptor(group).verify_block_bitmap(bits, group, &self.layout());
        Ok(self.buffers.get_verified(block, kind, verify).await?)
    }

    /// Makes sure that it is known which blocks of a group can be allocated: until the caller waits the next time.
    pub(super) async fn load_group(&self, group: u32) -> Result<(), FsError> {
        if self.groups.borrow()[group as usize].is_loaded() {
            return Ok(());
        }
        let bits = self.block_bitmap(group).await?;
        let mut groups = self.groups.borrow_mut();
        let known = &mut groups[group as usize];
        if known.is_loaded() {
            return Ok(());
        }
        let mut content = [0; BLOCK_BYTES];
        if known.descriptor.has_flag(group_flags::BLOCKS_UNINITIALISED) {
            self.layout().fresh_block_bitmap(group, &known.descriptor, &mut content);
        } else {
            bits.read(|bits| content.copy_from_slice(bits));
            // What is beyond the group's end is no file's, whatever the bits say.
            bitmap::set(&mut content, self.layout().blocks_in(group)..BLOCK_BYTES as u32 * 8);
        }
        let free = known.descriptor.free_blocks();
        drop(groups);
        let corrupt = |what| FormatError::corrupt(Structure::BlockBitmap, Place::Group(group), what);
        if bitmap::count_clear(&content, 0..BLOCK_BYTES as u32 * 8) != free {
            return Err(corrupt("it has another number of free blocks than its descriptor says").into());
        }
        if self.own_metadata(group).into_iter().any(|own| bitmap::count_clear(&content, own) > 0) {
            return Err(corrupt("a block that belongs to the format is free").into());
        }
        self.groups.borrow_mut()[group as usize].load(&content);
        self.evict_groups();
        self.loaded.borrow_mut().push_back(group);
        Ok(())
    }

    /// Evicts groups until another one has its place.
    fn evict_groups(&self) {
        let (mut loaded, mut groups) = (self.loaded.borrow_mut(), self.groups.borrow_mut());
        let most = self.options.cache_groups.max(1);
        for _ in 0..loaded.len() {
            if loaded.len() < most {
                return;
            }
            let Some(oldest) = loaded.pop_front() else { return };
            if !groups[oldest as usize].evict(self.options.rules) {
                loaded.push_back(oldest);
            }
        }
    }

    /// The bits of a group that the format's own blocks take, as far as the descriptors of its flexible group
    /// say.
    fn own_metadata(&self, group: u32) -> Vec<Range<u32>> {
        let (first, length) = (self.layout().first_block(group), u64::from(self.layout().blocks_in(group)));
        let bit = |block: u64| block.saturating_sub(first).min(length) as u32;
        let mut own: Vec<Range<u32>> = std::iter::once(0..self.layout().base_blocks(group)).collect();
        for member in self.layout().flex_members(group) {
            let descriptor = self.descriptor(member);
            let table = u64::from(self.layout().table_blocks());
            let places = [
                (descriptor.block_bitmap(), 1),
                (descriptor.inode_bitmap(), 1),
                (descriptor.inode_table(), table),
            ];
            own.extend(places.map(|(start, count)| bit(start)..bit(start + count)));
        }
        own.retain(|range| !range.is_empty());
        own
    }
}
