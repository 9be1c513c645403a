//! Targets of symbolic links.

use weir_ext4::{Blocks, Kind, symlink};
use weir_format::FileType;
use weir_vfs::{FsError, InodeNumber};

use super::directories::Directories;
use crate::mapping::Tree;

impl Directories {
    /// The target of a symbolic link.
    pub(crate) async fn read_link(&self, inode: InodeNumber) -> Result<Vec<u8>, FsError> {
        let node = self.nodes().get(inode).await?;
        if node.kind() != Some(FileType::Symlink) {
            return Err(FsError::Invalid("only a symbolic link has a target"));
        }
        let inode = *node.inode.borrow();
        if let Some(target) = symlink::short_target(&inode, node.number)? {
            return Ok(target);
        }
        let tree = Tree::from_node(&node);
        let place = tree.place(0).await?;
        tree.read(place, Kind::SymlinkTarget, |block| symlink::long_target(&inode, node.number, block)).await
    }
}
