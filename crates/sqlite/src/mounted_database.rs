//! Where an open file is: its descriptor, which SQLite does not tell, and whether that is on a mount of Weir.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags};

use crate::abi::{File, Vfs};

/// The beginning of an open file of SQLite's VFS for Unix. It is no part of the interface, so what it says is
/// checked.
#[repr(C)]
struct UnixFile {
    base: File,
    vfs: *const Vfs,
    inode: *mut c_void,
    fd: c_int,
}

/// Which file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: (u32, u32),
    inode: u64,
}

/// What of a file the kernel knows without asking its mount, which no program changes but by way of the kernel.
const KNOWN: StatxFlags = StatxFlags::INO.union(StatxFlags::SIZE);
const WITHOUT_ASKING: AtFlags = AtFlags::STATX_DONT_SYNC;

impl Identity {
    fn from_statx(found: &Statx) -> Identity {
        Identity { device: (found.stx_dev_major, found.stx_dev_minor), inode: found.stx_ino }
    }

    /// Of the file that a path leads to.
    pub(crate) fn from_path(path: &CStr) -> Option<Identity> {
        let found =
            rustix::fs::statx(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW | WITHOUT_ASKING, KNOWN)
                .ok()?;
        Some(Identity::from_statx(&found))
    }
}

/// The descriptor of an open file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    pub(crate) fd: RawFd,
    pub(crate) identity: Identity,
    /// Bytes of the file when it was looked at.
    pub(crate) size: i64,
}

impl Descriptor {
    /// Reads the identity and size of an open file.
    pub(crate) fn from_fd(fd: RawFd) -> Option<Descriptor> {
        // SAFETY: it is used for statx only, which refuses a number that is no descriptor.
        let open = unsafe { BorrowedFd::borrow_raw(fd) };
        let found = rustix::fs::statx(open, c"", AtFlags::EMPTY_PATH | WITHOUT_ASKING, KNOWN).ok()?;
        let size = i64::try_from(found.stx_size).ok()?;
        Some(Descriptor { fd, identity: Identity::from_statx(&found), size })
    }

    /// Takes the descriptor out of a file that the VFS `real` has opened by `path`. `None` if it is not certain
    /// that this is the one. No second one is opened: closing it would release all locks that the process has on
    /// the file.
    ///
    /// # Safety
    /// `file` points to as many initialised bytes as `real` says, and `real` is registered.
    pub(crate) unsafe fn from_file(file: *const File, real: *const Vfs, path: &CStr) -> Option<Descriptor> {
        // SAFETY: as the caller promises.
        let bytes = usize::try_from(unsafe { (*real).file_bytes }).ok()?;
        if bytes < size_of::<UnixFile>() {
            return None;
        }
        // SAFETY: there are that many bytes, and every value of them is one of the numbers and pointers read.
        let (vfs, fd) = unsafe { ((*file.cast::<UnixFile>()).vfs, (*file.cast::<UnixFile>()).fd) };
        if vfs != real || fd < 0 {
            return None;
        }
        Descriptor::from_fd(fd).filter(|open| Identity::from_path(path) == Some(open.identity))
    }
}

/// A database on a mount of Weir.
pub(crate) struct MountedDatabase {
    pub(crate) descriptor: Descriptor,
    directory: OwnedFd,
}

impl MountedDatabase {
    /// `None` if the file is not on a mount of Weir, or its directory cannot be synchronised.
    pub(crate) fn open(descriptor: Descriptor, path: &CStr) -> Option<MountedDatabase> {
        if weir::weir_is_mounted(descriptor.fd) != 1 {
            return None;
        }
        let directory = Path::new(OsStr::from_bytes(path.to_bytes())).parent()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(directory, flags, Mode::empty()).ok()?;
        let device = Descriptor::from_fd(directory.as_raw_fd())?.identity.device;
        (device == descriptor.identity.device).then_some(MountedDatabase { descriptor, directory })
    }

    /// Whether no barrier is needed between this and another filesystem to have the two files in order.
    pub(crate) fn is_with(&self, other: Descriptor) -> bool {
        self.descriptor.identity.device == other.identity.device
    }

    /// Makes the names in the directory durable.
    pub(crate) fn synchronise_directory(&self) -> rustix::io::Result<()> {
        rustix::fs::fsync(self.directory.as_fd())
    }
}
