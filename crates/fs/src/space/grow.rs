//! Growing: new groups, and more blocks in the last one that there was.

use weir_ext4::{Growth, Kind};
use weir_journal::TxHandle;
use weir_vfs::FsError;

use super::{Space, tree_reserve};
use crate::space::group::Group;

/// Journaled blocks that change of the groups: the bitmap of the last one, its descriptor, and the block of those of the new ones.
pub(crate) const GROWTH_CREDITS: u32 = 3;

impl Space {
    /// Takes over what was added, of which `reserved` blocks are for the superuser in all. Nothing of it is durable, and nothing uses
    /// it, before this handle's transaction. Costs [`GROWTH_CREDITS`].
    pub(crate) async fn grow(
        &self,
        handle: &TxHandle,
        growth: &Growth,
        reserved: u64,
    ) -> Result<(), FsError> {
        let (last, freed) = growth.freed();
        self.load_group(last).await?;
        let (bits, descriptors) = (self.block_bitmap(last).await?, self.descriptor_buffer(last).await?);
        let mut described = Vec::new();
        for (group, descriptor) in growth.described_with_old() {
            let (block, range) = growth.layout.descriptor_place(group)?;
            described.push((self.buffers.get(block, Kind::Descriptors).await?, range, group, descriptor));
        }
        // From here on nothing waits: no call finds a half of it.
        self.layout.set(growth.layout);
        if !freed.is_empty() {
            self.mark(handle, last, &descriptors, &bits, freed.clone(), false)?;
            self.groups.borrow_mut()[last as usize].grow(freed.clone());
        }
        for (buffer, range, group, mut descriptor) in described {
            handle.modify(&buffer, range, |bytes| descriptor.write(bytes, group, &growth.layout));
        }
        self.groups.borrow_mut().extend(growth.descriptors().iter().copied().map(Group::new));
        let in_last = u64::from(freed.end - freed.start);
        self.free_blocks.set(self.free_blocks.get() + growth.free_blocks() - in_last);
        self.free_inodes.set(self.free_inodes.get().saturating_add(growth.inodes()));
        self.overhead.set(self.overhead.get() + growth.overhead_blocks());
        self.for_superuser.set(reserved);
        self.for_trees.set(tree_reserve(&self.options, &growth.layout));
        Ok(())
    }
}
