//! *Space*: which blocks and inodes of which group are free, on disk and in memory.
//!
//! On disk a bit says that a block is free as soon as the transaction that frees it is in the log. In memory
//! there is a second map for each group that was looked at, 4 KiB large: there a block that was freed stays taken
//! until the commit block is transferred (J7). Nothing is allocated but by that map, so a write to a block that
//! was reused can never persist where the transaction that freed it did not. So many groups have one at a time
//! ([`MountOptions::cache_groups`]), and those besides in which blocks wait for that, whose number the journal bounds.
//!
//! Two parts of the free blocks are kept back. What the superblock reserves is for the superuser ([`Caller`]); a
//! share is for nodes of extent trees, since to write into what was allocated before, or to make a hole, may take an
//! entry more, and so a node more. Where a tree has used up that share, `zeros` does without a node.

mod blocks;
mod discard;
mod freed;
mod group;
mod grow;
mod inodes;
mod set;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use weir_ext4::journal::Sequence;
use weir_ext4::{Descriptor, Kind, Layout, ROOT_INODE, Superblock};
use weir_format::{FormatError, Place, Structure};
use weir_journal::{BufferHead, Buffers, Disk, Reuse, TxHandle};
use weir_storage::Extent;
use weir_vfs::{Caller, FsError};

use crate::caller::ReserveOwners;
use crate::mutants::FsMutant;
use crate::options::MountOptions;
pub use discard::DiscardStats;
use discard::Discarding;
pub(crate) use discard::READY_GROUPS_MAX;
use group::Group;
pub(crate) use grow::GROWTH_CREDITS;

/// Journaled blocks that change in each group that is allocated from, or that something is freed in: a bitmap and
/// its descriptor. A new inode changes its block of the table besides.
pub(crate) const GROUP_CREDITS: u32 = 2;

/// Of so many blocks, one is kept for extent trees at most: small filesystems are for files, too.
const TREE_RESERVE_SHARE: u64 = 50;

/// What blocks are allocated for, and so which of the free ones may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Data, names, attributes: what the caller may have.
    Content,
    /// A node of an extent tree: whatever there is.
    Tree,
}

/// The blocks and inodes of all groups.
pub(crate) struct Space {
    buffers: Rc<Buffers>,
    layout: Cell<Layout>,
    options: MountOptions,
    groups: RefCell<Vec<Group>>,
    /// Groups that have a map of what is taken, in the order in which they are looked at for eviction.
    loaded: RefCell<VecDeque<u32>>,
    /// By the descriptors: what waits for its commit is free there.
    free_blocks: Cell<u64>,
    /// Those that do wait (J7).
    waiting: Cell<u64>,
    free_inodes: Cell<u32>,
    directories: Cell<u32>,
    overhead: Cell<u64>,
    first_inode: u32,
    /// Blocks that are reserved for the superuser, and the other users and groups that may use them.
    for_superuser: Cell<u64>,
    reserve_owners: ReserveOwners,
    /// Blocks that only extent trees may take.
    for_trees: Cell<u64>,
    discarding: Discarding,
    /// Times that blocks could be allocated again.
    given_back: Cell<u64>,
}

impl Space {
    /// Reads all descriptors, and starts to discard, if that is wanted. `journal_blocks` count as overhead; below the first inode that
    /// `superblock` names inodes are reserved.
    pub(crate) async fn load(
        disk: &Rc<Disk>,
        buffers: &Rc<Buffers>,
        layout: Layout,
        options: MountOptions,
        journal_blocks: u32,
        superblock: &Superblock,
    ) -> Result<Rc<Space>, FsError> {
        let mut groups = Vec::with_capacity(layout.groups() as usize);
        let (mut free_blocks, mut free_inodes, mut directories) = (0, 0_u32, 0_u32);
        let mut overhead = u64::from(journal_blocks);
        let mut block: Option<Rc<BufferHead>> = None;
        for group in 0..layout.groups() {
            let (at, range) = layout.descriptor_place(group)?;
            let buffer = match block.take().filter(|buffer| buffer.block() == at) {
                Some(buffer) => buffer,
                None => buffers.get(at, Kind::Descriptors).await?,
            };
            let descriptor = buffer.read(|bytes| Descriptor::read(&bytes[range], group, &layout))?;
            block = Some(buffer);
            free_blocks += u64::from(descriptor.free_blocks());
            free_inodes = free_inodes.saturating_add(descriptor.free_inodes());
            directories = directories.saturating_add(descriptor.directories());
            overhead += u64::from(layout.base_blocks(group)) + 2 + u64::from(layout.table_blocks());
            groups.push(Group::new(descriptor));
        }
        let space = Rc::new(Space {
            buffers: Rc::clone(buffers),
            layout: Cell::new(layout),
            options,
            groups: RefCell::new(groups),
            loaded: RefCell::default(),
            free_blocks: Cell::new(free_blocks),
            waiting: Cell::new(0),
            free_inodes: Cell::new(free_inodes),
            directories: Cell::new(directories),
            overhead: Cell::new(overhead.min(layout.blocks())),
            first_inode: superblock.first_inode.get(),
            for_superuser: Cell::new(superblock.reserved_blocks()),
            reserve_owners: ReserveOwners::from_superblock(superblock),
            for_trees: Cell::new(tree_reserve(&options, &layout)),
            discarding: Discarding::default(),
            given_back: Cell::new(0),
        });
        if !options.read_only && options.discard.wanted_on(disk.capabilities()) {
            space.start_discarding(disk);
        }
        Ok(space)
    }

    /// Free blocks, with those that wait for the commit of what freed them.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.free_blocks.get()
    }

    /// Where what is on the disk.
    pub(crate) fn layout(&self) -> Layout {
        self.layout.get()
    }

    /// Whether a file can have this number: neither is it one of the format itself, nor behind the last.
    pub(crate) fn is_file_number(&self, number: u32) -> bool {
        number == ROOT_INODE || (self.first_inode..=self.layout().inodes()).contains(&number)
    }

    /// Whether a caller may take what the superuser has reserved.
    pub(crate) fn has_reserve(&self, caller: Caller) -> bool {
        self.reserve_owners.include(caller)
    }

    /// Free blocks that a plain user's files may have.
    pub(crate) fn available_blocks(&self) -> u64 {
        self.available_with(false)
    }

    /// Free blocks that the files of a caller may have.
    pub(crate) fn available_to(&self, caller: Caller) -> u64 {
        self.available_with(self.has_reserve(caller))
    }

    fn available_with(&self, reserve: bool) -> u64 {
        let kept =
            if reserve { self.for_trees.get() } else { self.for_trees.get() + self.for_superuser.get() };
        self.free_blocks.get().saturating_sub(kept)
    }

    /// Free blocks that may be taken now: not those that wait for a commit (J7), nor those that are being
    /// discarded, so that what is kept back is there whenever it is needed.
    fn room(&self, handle: &TxHandle, purpose: Use) -> u64 {
        let superuser = handle.has_reserve() || self.options.rules.drops(FsMutant::SuperuserReserveIgnored);
        let kept = match purpose {
            Use::Tree => 0,
            Use::Content if self.options.rules.drops(FsMutant::NoTreeReserve) => 0,
            Use::Content if superuser => self.for_trees.get(),
            Use::Content => self.for_trees.get() + self.for_superuser.get(),
        };
        let unusable = self.waiting.get() + self.discarding.under_way();
        self.free_blocks.get().saturating_sub(unusable).saturating_sub(kept)
    }

    /// How often blocks could be allocated again, since the mount.
    pub(crate) fn given_back(&self) -> u64 {
        self.given_back.get()
    }

    /// Whether some of them do wait.
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting.get() > 0
    }

    /// Free inodes.
    pub(crate) fn free_inodes(&self) -> u32 {
        self.free_inodes.get()
    }

    /// Blocks that the format takes: superblocks, descriptors, bitmaps, inode tables, the journal.
    pub(crate) fn overhead_blocks(&self) -> u64 {
        self.overhead.get()
    }

    /// Where an inode is: the block of its table, and the bytes in it.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for a number that no inode has, or one that was never used.
    pub(crate) fn inode_place(&self, number: u32) -> Result<(u64, Range<usize>), FormatError> {
        let (group, index) = self.layout().inode_group(number)?;
        let descriptor = self.descriptor(group);
        if index >= self.layout().inodes_per_group() - descriptor.unused_inodes() {
            let place = Place::Inode(number);
            return Err(FormatError::corrupt(Structure::Inode, place, "it was never used"));
        }
        Ok(self.layout().inode_place(&descriptor, index))
    }

    fn descriptor(&self, group: u32) -> Descriptor {
        self.groups.borrow()[group as usize].descriptor
    }

    /// The block that holds the descriptor of a group.
    async fn descriptor_buffer(&self, group: u32) -> Result<Rc<BufferHead>, FsError> {
        let (block, _) = self.layout().descriptor_place(group)?;
        Ok(self.buffers.get(block, Kind::Descriptors).await?)
    }

    /// Changes the descriptor of a group, in memory and in its block.
    fn change_descriptor(
        &self,
        handle: &TxHandle,
        group: u32,
        buffer: &Rc<BufferHead>,
        change: impl FnOnce(&mut Descriptor),
    ) -> Result<(), FsError> {
        let (_, range) = self.layout().descriptor_place(group)?;
        let mut groups = self.groups.borrow_mut();
        let descriptor = &mut groups[group as usize].descriptor;
        change(descriptor);
        handle.modify(buffer, range, |bytes| descriptor.write(bytes, group, &self.layout()));
        Ok(())
    }

    /// Lets blocks be allocated from now on.
    fn release(&self, extent: Extent) {
        self.given_back.set(self.given_back.get() + 1);
        for (group, bits) in self.parts(extent) {
            self.groups.borrow_mut()[group as usize].release(bits);
        }
    }

    /// The parts of an extent in each group: the group, and the bits in its bitmap.
    fn parts(&self, extent: Extent) -> impl Iterator<Item = (u32, Range<u32>)> + '_ {
        let (start, end) = (extent.start.0, extent.end().0.min(self.layout().blocks()));
        let (first, last) = (self.layout().group_of(start), self.layout().group_of(end.saturating_sub(1)));
        let groups = first.zip(last).map_or(0..0, |(first, last)| first..last + 1);
        groups.map(move |group| {
            let base = self.layout().first_block(group);
            let bit = |block: u64| block.saturating_sub(base).min(u64::from(self.layout().blocks_in(group)));
            (group, bit(start) as u32..bit(end) as u32)
        })
    }
}

/// Blocks that only extent trees may take.
fn tree_reserve(options: &MountOptions, layout: &Layout) -> u64 {
    options.tree_reserve_blocks.min(layout.blocks() / TREE_RESERVE_SHARE)
}

impl Reuse for Space {
    fn may_be_reused(&self, freed: &[Extent], transferred: Sequence) {
        for extent in freed {
            self.waiting.set(self.waiting.get() - u64::from(extent.blocks));
            self.release(*extent);
            for (group, run) in self.parts(*extent) {
                self.discarding.freed.borrow_mut().add_run(group, run, transferred);
            }
        }
        if self.options.rules.drops(FsMutant::DiscardsEarly) {
            self.are_durable(transferred);
        }
    }

    fn are_durable(&self, to: Sequence) {
        let ready = self.discarding.freed.borrow_mut().durable(to);
        if ready {
            self.discarding.are_ready();
        }
    }

    fn awaiting_durability(&self) -> u64 {
        self.discarding.freed.borrow().awaited()
    }
}
