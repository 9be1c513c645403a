//! Paths: names one after another, from the root.

use std::collections::VecDeque;

use futures_util::future::LocalBoxFuture;
use weir_format::FileType;

use crate::attributes::InodeNumber;
use crate::calls::FilesystemCalls;
use crate::error::FsError;
use crate::names::Parent;

/// Symbolic links followed on the way at most, as Linux has it.
const LINKS_FOLLOWED_MAX: u32 = 40;
/// Bytes in a path at most, as Linux has it.
const PATH_MAX: usize = 4096;
/// Bytes in a name at most.
pub const NAME_BYTES_MAX: usize = 255;

impl dyn FilesystemCalls + '_ {
    /// What a path stands for, from the root. Symbolic links on the way are followed; one at the end is the
    /// answer itself, unless a slash follows.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotDirectory`], [`FsError::NameLength`], [`FsError::LinkLoop`] after
    /// 40 symbolic links, [`FsError::Invalid`] for a path of more than 4,096 bytes, and what reading may fail
    /// by.
    pub fn resolve<'a>(&'a self, path: &'a [u8]) -> LocalBoxFuture<'a, Result<InodeNumber, FsError>> {
        Box::pin(async move {
            let mut names = split(path)?;
            let mut directory = self.root();
            let mut followed = 0;
            while let Some(name) = names.pop_front() {
                let inode = self.lookup(directory, &name).await?;
                if names.is_empty() || self.attributes(inode).await?.kind != FileType::Symlink {
                    directory = inode;
                    continue;
                }
                followed += 1;
                if followed > LINKS_FOLLOWED_MAX {
                    return Err(FsError::LinkLoop);
                }
                let target = self.read_link(inode).await?;
                if target.starts_with(b"/") {
                    directory = self.root();
                }
                for name in split(&target)?.into_iter().rev() {
                    names.push_front(name);
                }
            }
            Ok(directory)
        })
    }

    /// The directory of a path's last name, which need not be there, and that name.
    ///
    /// # Errors
    /// As `resolve` for what is before the last name; [`FsError::Exists`] for a path without
    /// names, which is the root.
    pub fn resolve_parent<'a>(&'a self, path: &'a [u8]) -> LocalBoxFuture<'a, Result<Parent<'a>, FsError>> {
        Box::pin(async move {
            let end = path.iter().rposition(|&byte| byte != b'/').ok_or(FsError::Exists)? + 1;
            let start = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
            let name = &path[start..end];
            check_name_length(name)?;
            Ok(Parent { directory: self.resolve(&path[..start]).await?, name })
        })
    }
}

/// A name as it can be looked up.
///
/// # Errors
/// [`FsError::NameLength`] for one that is empty or too long.
pub fn check_name_length(name: &[u8]) -> Result<(), FsError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX { Err(FsError::NameLength) } else { Ok(()) }
}

/// That a name can be given and taken: it is not one of those that every directory has.
///
/// # Errors
/// [`FsError::NameLength`]; [`FsError::Invalid`] for a name with a zero byte or a slash, and for `.` and `..`.
pub fn check_ordinary_name(name: &[u8]) -> Result<(), FsError> {
    check_name_length(name)?;
    if name.contains(&0) || name.contains(&b'/') {
        return Err(FsError::Invalid("a name has no zero byte and no slash"));
    }
    if is_dots(name) { Err(FsError::Invalid("\".\" and \"..\" stay what they are")) } else { Ok(()) }
}

/// Whether a name is one of the two that every directory has.
#[must_use]
pub fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
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
