//! Paths: names one after another, from the root.

use std::collections::VecDeque;

use weir_ext4::{Blocks, Kind, ROOT_INODE, symlink};
use weir_format::FileType;
use weir_vfs::{FsError, InodeNumber, Parent};

use super::check_length;
use super::directories::Directories;
use crate::mapping::Tree;

/// Symbolic links followed on the way at most, as Linux has it.
const LINKS_FOLLOWED_MAX: u32 = 40;
/// Bytes in a path at most, as Linux has it.
const PATH_MAX: usize = 4096;

impl Directories {
    /// What a path stands for, from the root. Symbolic links on the way are followed.
    pub(crate) async fn resolve(&self, path: &[u8]) -> Result<InodeNumber, FsError> {
        let mut names = split(path)?;
        let mut directory = ROOT_INODE;
        let mut followed = 0;
        while let Some(name) = names.pop_front() {
            let inode = self.lookup(directory, &name).await?;
            if names.is_empty() || self.kind(inode).await? != FileType::Symlink {
                directory = inode;
                continue;
            }
            followed += 1;
            if followed > LINKS_FOLLOWED_MAX {
                return Err(FsError::LinkLoop);
            }
            let target = self.read_link(inode).await?;
            if target.starts_with(b"/") {
                directory = ROOT_INODE;
            }
            for name in split(&target)?.into_iter().rev() {
                names.push_front(name);
            }
        }
        Ok(directory)
    }

    async fn kind(&self, inode: InodeNumber) -> Result<FileType, FsError> {
        self.nodes().get(inode).await?.kind().ok_or(FsError::NotFound)
    }

    /// The directory of a path's last name, which need not be there, and that name.
    pub(crate) async fn resolve_parent<'a>(&self, path: &'a [u8]) -> Result<Parent<'a>, FsError> {
        let end = path.iter().rposition(|&byte| byte != b'/').ok_or(FsError::Exists)? + 1;
        let start = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        let name = &path[start..end];
        check_length(name)?;
        Ok(Parent { directory: self.resolve(&path[..start]).await?, name })
    }

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

/// The names of a path; a slash at its end stands for ".".
fn split(path: &[u8]) -> Result<VecDeque<Vec<u8>>, FsError> {
    if path.len() > PATH_MAX {
        return Err(FsError::Invalid("a path has 4,096 bytes at most"));
    }
    let names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
    let mut names: VecDeque<_> = names.map(<[u8]>::to_vec).collect();
    if path.ends_with(b"/") {
        names.push_back(b".".to_vec());
    }
    Ok(names)
}
