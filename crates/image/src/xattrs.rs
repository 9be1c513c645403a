//! Extended attributes of the host's files.

use std::io;

use rustix::buffer::spare_capacity;
use rustix::fs::{XattrFlags, getxattr, listxattr, setxattr};
use rustix::io::Errno;

/// The longest list of names, and the longest value, that Linux has (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const LONGEST: usize = 1 << 16;

/// Whether an attribute gives rights to a process that runs the file. Such attributes are set last (I2).
pub(crate) fn is_capability(name: &[u8]) -> bool {
    name == b"security.capability"
}

/// Sets an attribute of what `path` leads to; false if its filesystem, or the user's rights, do not allow it, or if
/// the kernel takes no such name or value.
pub(crate) fn set(path: &str, name: &[u8], value: &[u8]) -> io::Result<bool> {
    match setxattr(path, name, value, XattrFlags::empty()) {
        Err(Errno::NOTSUP | Errno::PERM | Errno::INVAL | Errno::RANGE | Errno::TOOBIG) => Ok(false),
        done => Ok(done.map(|()| true)?),
    }
}

/// Names and values of the attributes of what `path` leads to.
pub(crate) fn read(path: &str) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = Vec::with_capacity(LONGEST);
    match listxattr(path, spare_capacity(&mut names)) {
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        done => done?,
    };
    let mut found = Vec::new();
    for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = Vec::with_capacity(LONGEST);
        match getxattr(path, name, spare_capacity(&mut value)) {
            // It was removed meanwhile.
            Err(Errno::NODATA) => continue,
            done => done?,
        };
        found.push((name.to_vec(), value));
    }
    Ok(found)
}
