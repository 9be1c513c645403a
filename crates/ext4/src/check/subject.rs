//! The subject of a check: an image, and the findings about it as a whole.

use weir_format::ImageReader;

use super::extents::ExtentWalk;
use super::overlay::Overlay;
use crate::descriptor::Descriptor;
use crate::inode::Inode;
use crate::layout::Layout;
use crate::superblock::Superblock;

/// A filesystem that is being checked.
pub(super) struct Subject<'a, R> {
    pub image: &'a Overlay<'a, R>,
    pub superblock: Superblock,
    pub layout: Layout,
    /// `None` for a descriptor that is damaged.
    pub descriptors: Vec<Option<Descriptor>>,
    /// The journal was not empty: totals in the superblock are as old as the last clean unmount.
    pub replayed: bool,
    /// The block of the copy of the superblock that stands for a damaged one. Its group is another, and its totals
    /// are old.
    pub copy: Option<u64>,
}

impl<R: ImageReader> Subject<'_, R> {
    /// An inode by its number; `None` if there is none such or it cannot be read.
    pub(super) async fn read_inode(&self, number: u32) -> Result<Option<Inode>, R::Error> {
        let Ok((group, index)) = self.layout.inode_group(number) else { return Ok(None) };
        let Some(descriptor) = self.descriptors.get(group as usize).copied().flatten() else {
            return Ok(None);
        };
        let (block, range) = self.layout.inode_place(&descriptor, index);
        let bytes = self.image.block(block).await?;
        Ok(Inode::read(&bytes[range], number, &self.layout.checksums()).ok())
    }

    /// A walk through the extents of an inode.
    pub(super) fn extents(&self, number: u32, inode: &Inode) -> ExtentWalk {
        ExtentWalk::new(number, inode, self.layout.checksums(), self.layout.blocks())
    }
}
