//! The root directory of a new image: an inode, and a block with the names `.` and `..`.

use weir_format::{FileTime, FileType, FormatError, Stamp};

use super::Mkfs;
use crate::block::{BLOCK_BYTES, BlockAddress, NodeId};
use crate::dentry::{NameArea, write_dots};
use crate::image::Block;
use crate::inode::{EXTRA_BYTES, Inode};

/// The block of the root inode, which will be at `node`, with its names at `names`. `seed` is that of checksums of inodes, if they have
/// some.
pub(super) fn encode_root_inode(
    options: &Mkfs,
    node: BlockAddress,
    names: BlockAddress,
    seed: Option<u32>,
) -> Block {
    let extra = if options.extra_attributes { EXTRA_BYTES } else { 0 };
    let mut root = Inode::new(NodeId::ROOT, FileType::Directory, options.permissions, extra);
    (root.uid, root.gid, root.links) = (options.uid.into(), options.gid.into(), 2.into());
    // The inode's own block is counted, too; the hash table of names has one level.
    (root.size, root.blocks, root.depth) = ((BLOCK_BYTES as u64).into(), 2.into(), 1.into());
    let time = FileTime { seconds: options.created.cast_signed(), nanoseconds: 0 };
    for stamp in [Stamp::Accessed, Stamp::Changed, Stamp::Modified, Stamp::Created] {
        root.set_time(stamp, time);
    }
    root.set_address(0, names);
    root.footer_mut().set_written(options.version, BlockAddress(node.0 + 1));
    let mut block = Block::new([0; BLOCK_BYTES]);
    root.write(&mut block, seed);
    block
}

/// The block of the root's names.
///
/// # Errors
/// None: an empty block has room for two names.
pub(super) fn encode_root_names() -> Result<Block, FormatError> {
    let mut block = Block::new([0; BLOCK_BYTES]);
    write_dots(&mut block[..], NameArea::BLOCK, NodeId::ROOT, NodeId::ROOT)?;
    Ok(block)
}
