//! Extended attributes of the host's files.

use std::io;
use std::path::Path;

use rustix::buffer::spare_capacity;
use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lsetxattr};
use rustix::io::Errno;

/// The longest list of names, and the longest value, that Linux has (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const LONGEST: usize = 1 << 16;

/// Sets an attribute of a file of the host; false if its filesystem, or the user's rights, do not allow it.
pub(crate) fn set(local: &Path, name: &[u8], value: &[u8]) -> io::Result<bool> {
    match lsetxattr(local, name, value, XattrFlags::empty()) {
        Err(Errno::NOTSUP | Errno::PERM) => Ok(false),
        done => Ok(done.map(|()| true)?),
    }
}

/// Names and values of the attributes of a file of the host.
pub(crate) fn read(local: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = Vec::with_capacity(LONGEST);
    match llistxattr(local, spare_capacity(&mut names)) {
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        done => done?,
    };
    let mut found = Vec::new();
    for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = Vec::with_capacity(LONGEST);
        match lgetxattr(local, name, spare_capacity(&mut value)) {
            // It was removed meanwhile.
            Err(Errno::NODATA) => continue,
            done => done?,
        };
        found.push((name.to_vec(), value));
    }
    Ok(found)
}

/// Says that attributes were not copied, and why.
pub(crate) fn tell_left_out(count: u64, why: &str) {
    if count > 0 {
        eprintln!("weir: {count} extended attributes were left out: {why}");
    }
}
