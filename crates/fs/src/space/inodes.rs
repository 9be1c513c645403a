//! Inodes: choosing a group for a new one, and giving them back.

use std::rc::Rc;

use weir_ext4::{INODE_BYTES, Kind, ROOT_INODE, bitmap, group_flags};
use weir_format::{BLOCK_BYTES, FileType, FormatError, Place, Structure};
use weir_journal::{BufferHead, Role, TxHandle};
use weir_vfs::FsError;

use crate::space::Space;

/// Inodes in a block of an inode table.
const INODES_PER_BLOCK: u32 = (BLOCK_BYTES / INODE_BYTES) as u32;

impl Space {
    /// Allocates an inode: a file's in the group `near`, or behind it; a directory's in the next group that has
    /// no more directories and no less space than the others on average, so that the files of different
    /// directories do not get into each other's way. Its bytes in the table are whatever they were, or zeros.
    /// Costs
    /// [`GROUP_CREDITS`](super::GROUP_CREDITS) and one.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] if all are in use.
    pub(crate) async fn allocate_inode(
        &self,
        handle: &TxHandle,
        near: u32,
        kind: FileType,
    ) -> Result<u32, FsError> {
        let group = self.choose_group(near, kind).ok_or(FsError::NoSpace)?;
        let descriptors = self.descriptor_buffer(group).await?;
        let bits = self.inode_bitmap(group).await?;
        let per_group = self.layout().inodes_per_group();
        // Nothing waits from here on but for another group, so no other task comes between.
        let descriptor = self.descriptor(group);
        if descriptor.has_flag(group_flags::INODES_UNINITIALISED) {
            handle.modify(&bits, 0..BLOCK_BYTES, |bits| self.layout().fresh_inode_bitmap(bits));
        }
        let reserved = if group == 0 { self.first_inode.saturating_sub(1) } else { 0 };
        let Some(index) = bits.read(|bits| bitmap::next_clear(bits, reserved..per_group)) else {
            if descriptor.free_inodes() == 0 {
                // Another call took the last one while its bitmap was read.
                return Box::pin(self.allocate_inode(handle, near, kind)).await;
            }
            let what = "it has fewer free inodes than its descriptor says";
            return Err(FormatError::corrupt(Structure::InodeBitmap, Place::Group(group), what).into());
        };
        self.clear_table(handle, group, index);
        self.mark_inode(handle, group, &descriptors, &bits, index, true, kind == FileType::Directory)?;
        Ok(self.layout().inode_at(group, index))
    }

    /// Gives an inode back; the caller has emptied it. Costs
    /// [`GROUP_CREDITS`](super::GROUP_CREDITS).
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for one that is free already.
    pub(crate) async fn free_inode(
        &self,
        handle: &TxHandle,
        number: u32,
        directory: bool,
    ) -> Result<(), FsError> {
        let (group, index) = self.layout().inode_group(number)?;
        let descriptors = self.descriptor_buffer(group).await?;
        let bits = self.inode_bitmap(group).await?;
        let never = self.descriptor(group).has_flag(group_flags::INODES_UNINITIALISED);
        if never || !bits.read(|bits| bitmap::is_set(bits, index)) {
            let what = "an inode is freed that is free";
            return Err(FormatError::corrupt(Structure::InodeBitmap, Place::Group(group), what).into());
        }
        self.mark_inode(handle, group, &descriptors, &bits, index, false, directory)
    }

    /// Whether the bitmap says that an inode is in use.
    pub(crate) async fn inode_is_used(&self, number: u32) -> Result<bool, FsError> {
        let (group, index) = self.layout().inode_group(number)?;
        if self.descriptor(group).has_flag(group_flags::INODES_UNINITIALISED) {
            return Ok(false);
        }
        Ok(self.inode_bitmap(group).await?.read(|bits| bitmap::is_set(bits, index)))
    }

    /// The first inode behind `last` that the bitmaps say is in use, of those that are for files.
    pub(crate) async fn next_used_inode(&self, last: u32) -> Result<Option<u32>, FsError> {
        let first = match last {
            0..ROOT_INODE => ROOT_INODE,
            last => (last + 1).max(self.first_inode),
        };
        if first > self.layout().inodes() {
            return Ok(None);
        }
        let (mut group, mut index) = self.layout().inode_group(first)?;
        while group < self.layout().groups() {
            let descriptor = self.descriptor(group);
            if !descriptor.has_flag(group_flags::INODES_UNINITIALISED) {
                let bits = self.inode_bitmap(group).await?;
                let rest = index..self.layout().inodes_per_group();
                if let Some(found) = bits.read(|bits| bitmap::next_set(bits, rest)) {
                    return Ok(Some(self.layout().inode_at(group, found)));
                }
            }
            (group, index) = (group + 1, 0);
        }
        Ok(None)
    }

    fn choose_group(&self, near: u32, kind: FileType) -> Option<u32> {
        let groups = self.groups.borrow();
        let count = self.layout().groups();
        let near = near.min(count - 1);
        let order = || (near..count).chain(0..near);
        let has_inodes = |group: &u32| groups[*group as usize].descriptor.free_inodes() > 0;
        let suits = |group: &u32| {
            let descriptor = &groups[*group as usize].descriptor;
            descriptor.free_inodes() > 0
                && descriptor.free_inodes() >= self.free_inodes.get() / count
                && u64::from(descriptor.free_blocks()) >= self.free_blocks.get() / u64::from(count)
                && descriptor.directories() <= self.directories.get() / count
        };
        match kind {
            FileType::Directory => order().find(suits).or_else(|| order().find(has_inodes)),
            _ => order().find(has_inodes),
        }
    }

    /// Fills the blocks of a table that were never used with zeros, up to the one of inode `index`: what is on
    /// disk there may be anything. As inodes are used from the lowest on, that is one block at most.
    fn clear_table(&self, handle: &TxHandle, group: u32, index: u32) {
        let descriptor = self.descriptor(group);
        let used = self.layout().inodes_per_group() - descriptor.unused_inodes();
        for block in used.div_ceil(INODES_PER_BLOCK)..=index / INODES_PER_BLOCK {
            let place = descriptor.inode_table() + u64::from(block);
            let buffer = self.buffers.fresh(place, Role::Metadata(Kind::InodeTable));
            handle.modify(&buffer, 0..BLOCK_BYTES, |bytes| bytes.fill(0));
        }
    }

    #[allow(clippy::too_many_arguments, reason = "one change, in all its places")]
    fn mark_inode(
        &self,
        handle: &TxHandle,
        group: u32,
        descriptors: &Rc<BufferHead>,
        bits: &Rc<BufferHead>,
        index: u32,
        used: bool,
        directory: bool,
    ) -> Result<(), FsError> {
        let byte = index as usize / 8;
        handle.modify(bits, byte..byte + 1, |part| {
            let bit = index % 8..index % 8 + 1;
            if used { bitmap::set(part, bit) } else { bitmap::clear(part, bit) }
        });
        let change = |count: u32, more: bool| if more { count + 1 } else { count.saturating_sub(1) };
        self.free_inodes.set(change(self.free_inodes.get(), !used));
        if directory {
            self.directories.set(change(self.directories.get(), used));
        }
        self.change_descriptor(handle, group, descriptors, |descriptor| {
            descriptor.set_free_inodes(change(descriptor.free_inodes(), !used));
            if directory {
                descriptor.set_directories(change(descriptor.directories(), used));
            }
            if used {
                let behind = self.layout().inodes_per_group() - index - 1;
                descriptor.set_unused_inodes(descriptor.unused_inodes().min(behind));
            }
            descriptor.set_flag(group_flags::INODES_UNINITIALISED, false);
            bits.read(|bits| descriptor.seal_inode_bitmap(bits, &self.layout()));
        })
    }

    /// The bitmap of a group's inodes. Of one that was never written the content is not yet there.
    async fn inode_bitmap(&self, group: u32) -> Result<Rc<BufferHead>, FsError> {
        let descriptor = self.descriptor(group);
        let (block, kind) = (descriptor.inode_bitmap(), Kind::InodeBitmap { group });
        if descriptor.has_flag(group_flags::INODES_UNINITIALISED) {
            return Ok(self.buffers.fresh(block, Role::Metadata(kind)));
        }
        let verify = |bits: &[u8]| self.descriptor(group).verify_inode_bitmap(bits, group, &self.layout());
        Ok(self.buffers.get_verified(block, kind, verify).await?)
    }
}
