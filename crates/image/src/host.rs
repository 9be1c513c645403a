//! Directories of the host, by descriptors.
//!
//! A copy knows directories by number. Each has its parent and its name, and is opened by walking from the top, one
//! descriptor at a time, without following a link (I1). So few descriptors are open, however deep the tree is. What is
//! opened has to be the directory that was found or made there: its device and inode are remembered.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{
    CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fchmod, fchown, fstat, mkdirat, openat, openat2,
};
use rustix::process::geteuid;

/// Directories below each other at most: a path of Linux, which has 4,096 bytes, leads no deeper.
pub const DEPTH_MAX: u32 = 2048;
/// Bytes of a path in one walk: less than the 4,096 of a path of Linux.
const WALK_BYTES_MAX: usize = 3800;
/// A new directory, until it has all that comes into it.
const PRIVATE: Mode = Mode::RWXU;

/// One of the directories.
struct Known {
    parent: usize,
    depth: u32,
    name: Box<[u8]>,
    /// What was found under that name: what has it later may be another one.
    identity: Identity,
}

/// What makes a file of the host this one: its device and its inode.
type Identity = (u64, u64);

fn identity_of(found: &Stat) -> Identity {
    (found.st_dev, found.st_ino)
}

/// Directories of the host below one, the top.
pub(crate) struct HostTree {
    top: Rc<OwnedFd>,
    path: PathBuf,
    /// The top is the first.
    known: Vec<Known>,
    /// The one that was opened last.
    open: (usize, Rc<OwnedFd>),
    follows: bool,
}

/// The number of the top.
pub(crate) const TOP: usize = 0;

impl HostTree {
    /// The tree below a directory whose path the user names: links in it are followed. Only a mutant follows others.
    pub(crate) fn at(path: &Path, follows: bool) -> io::Result<HostTree> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = Rc::new(openat(CWD, path, flags, Mode::empty())?);
        let identity = identity_of(&fstat(&top)?);
        let known = vec![Known { parent: TOP, depth: 0, name: Box::default(), identity }];
        Ok(HostTree { open: (TOP, Rc::clone(&top)), top, path: path.to_owned(), known, follows })
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    pub(crate) fn depth(&self, directory: usize) -> u32 {
        self.known[directory].depth
    }

    /// What the top is.
    pub(crate) fn top(&self) -> Identity {
        self.known[TOP].identity
    }

    /// Notes a directory that was found below another one.
    pub(crate) fn add(&mut self, parent: usize, name: &[u8], found: &Stat) -> usize {
        let (depth, identity) = (self.known[parent].depth + 1, identity_of(found));
        self.known.push(Known { parent, depth, name: name.into(), identity });
        self.known.len() - 1
    }

    /// The names on the way from the top to a directory.
    pub(crate) fn names(&self, mut directory: usize) -> Vec<&[u8]> {
        let mut names = Vec::new();
        while directory != TOP {
            names.push(&*self.known[directory].name);
            directory = self.known[directory].parent;
        }
        names.reverse();
        names
    }

    /// The path of a name in a directory, for people.
    pub(crate) fn path_of(&self, directory: usize, name: &[u8]) -> PathBuf {
        let mut path = self.path.clone();
        path.extend(self.names(directory).into_iter().chain([name]).map(OsStr::from_bytes));
        path
    }

    /// Opens a directory: the one that was found, which its name may have left.
    pub(crate) fn open(&mut self, directory: usize) -> io::Result<Rc<OwnedFd>> {
        if self.open.0 == directory {
            return Ok(Rc::clone(&self.open.1));
        }
        let below_last = directory != TOP && self.known[directory].parent == self.open.0;
        let mut at = Rc::clone(if below_last { &self.open.1 } else { &self.top });
        let names = if below_last { vec![&*self.known[directory].name] } else { self.names(directory) };
        let mut walk: Vec<u8> = Vec::new();
        for name in names {
            if walk.len() + name.len() > WALK_BYTES_MAX {
                at = Rc::new(self.open_below(&*at, &walk, OFlags::RDONLY | OFlags::DIRECTORY)?);
                walk.clear();
            }
            walk.extend(name);
            walk.push(b'/');
        }
        if !walk.is_empty() {
            at = Rc::new(self.open_below(&*at, &walk, OFlags::RDONLY | OFlags::DIRECTORY)?);
        }
        if identity_of(&fstat(&*at)?) != self.known[directory].identity && !self.follows {
            return Err(swapped());
        }
        self.open = (directory, Rc::clone(&at));
        Ok(at)
    }

    /// Opens what is below a directory, without following a link.
    pub(crate) fn open_below(&self, at: impl AsFd, name: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        let mode = if flags.contains(OFlags::CREATE) { Mode::RUSR | Mode::WUSR } else { Mode::empty() };
        self.open_with(at, name, flags, mode)
    }

    pub(crate) fn open_with(
        &self,
        at: impl AsFd,
        name: &[u8],
        flags: OFlags,
        mode: Mode,
    ) -> io::Result<OwnedFd> {
        if self.follows {
            return Ok(openat(at, name, flags | OFlags::CLOEXEC, mode)?);
        }
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(openat2(at, name, flags, mode, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)?)
    }

    /// Makes a directory that only the user can use until it is finished. One that is there is taken, and made so, if it
    /// is the user's, or the superuser copies and it is `owner`'s, who gets it in the end.
    pub(crate) fn make(&mut self, parent: usize, name: &[u8], owner: u32) -> io::Result<usize> {
        let at = self.open(parent)?;
        let is_there = match mkdirat(&*at, name, PRIVATE) {
            Err(rustix::io::Errno::EXIST) => true,
            done => done.map(|()| false)?,
        };
        let flags = if self.follows { OFlags::PATH } else { OFlags::PATH | OFlags::NOFOLLOW };
        let found = fstat(self.open_below(&*at, name, flags)?)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
            let what = "something else is where a directory is to be: move it away";
            return Err(io::Error::new(io::ErrorKind::NotADirectory, what));
        }
        if is_there && !self.follows {
            let user = geteuid();
            if found.st_uid != user.as_raw() && !(user.is_root() && found.st_uid == owner) {
                let what = "a directory of another user is where one is to be: move it away";
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
            }
            let directory = self.open_below(&*at, name, OFlags::RDONLY | OFlags::DIRECTORY)?;
            if identity_of(&fstat(&directory)?) != identity_of(&found) {
                return Err(swapped());
            }
            fchown(&directory, Some(user), None)?;
            fchmod(&directory, PRIVATE)?;
        }
        Ok(self.add(parent, name, &found))
    }
}

/// Somebody else was faster, or means harm.
pub(crate) fn swapped() -> io::Error {
    io::Error::other("another directory has taken its place meanwhile")
}

/// Makes the directory that the user names, if it is not there: whether it was made.
pub(crate) fn make_top(path: &Path) -> io::Result<bool> {
    match mkdirat(CWD, path, PRIVATE) {
        Err(rustix::io::Errno::EXIST) if path.is_dir() => Ok(false),
        done => Ok(done.map(|()| true)?),
    }
}

/// A path that leads to what a descriptor is open for, whatever has its name now: for calls that take no `O_PATH`.
pub(crate) fn path_of(descriptor: impl AsFd) -> String {
    use std::os::fd::AsRawFd as _;
    format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::fs;

    use super::*;

    /// Whoever may write beside the target puts a directory of his own where one was made.
    #[test]
    fn a_directory_that_was_swapped_is_not_opened() {
        for (follows, opened) in [(false, false), (true, true)] {
            let place = tempfile::tempdir().unwrap();
            let mut tree = HostTree::at(place.path(), follows).unwrap();
            let made = tree.make(TOP, b"made", 0).unwrap();
            let below = tree.make(made, b"below", 0).unwrap();
            tree.open(below).unwrap();
            fs::rename(place.path().join("made"), place.path().join("moved")).unwrap();
            fs::create_dir_all(place.path().join("made/below")).unwrap();
            assert_eq!(tree.open(made).is_ok(), opened);
            // The directory above was swapped, and this one with it.
            tree.open(TOP).unwrap();
            assert_eq!(tree.open(below).is_ok(), opened);
        }
    }
}
