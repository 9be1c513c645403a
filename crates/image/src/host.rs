//! Directories of the host, by descriptors.
//!
//! A copy knows directories by number. Each has its parent and its name, and is opened by walking from the top, one
//! descriptor at a time, without following a link (I1). So few descriptors are open, however deep the tree is. What is
//! opened has to be the directory that was found or made there: its device and inode are remembered. The number of an
//! inode is soon used again, so that alone does not tell one that was made from one that took its place: it also has to
//! be the user's, with the permissions it was made with (I2).

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{
    CWD, FileType, Mode, OFlags, RawMode, ResolveFlags, Stat, fchmod, fchown, fstat, mkdirat, openat, openat2,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use weir_storage::Rules;

use crate::mutants::ImageMutant;

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
    /// I2: the permissions of one that this copy fills, and that is the user's.
    filled: Option<RawMode>,
}

/// What makes a file of the host this one: its device and its inode.
type Identity = (u64, u64);

fn identity_of(found: &Stat) -> Identity {
    (found.st_dev, found.st_ino)
}

fn permissions_of(found: &Stat) -> RawMode {
    found.st_mode & 0o7777
}

/// Directories of the host below one, the top.
pub(crate) struct HostTree {
    top: Rc<OwnedFd>,
    path: PathBuf,
    /// The top is the first.
    known: Vec<Known>,
    /// The one that was opened last.
    open: (usize, Rc<OwnedFd>),
    rules: Rules<ImageMutant>,
}

/// The number of the top.
pub(crate) const TOP: usize = 0;

impl HostTree {
    /// The tree below a directory that is there, whose path the user names: links in it are followed.
    pub(crate) fn from_path(path: &Path, rules: Rules<ImageMutant>) -> io::Result<HostTree> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = openat(CWD, path, flags, Mode::empty())?;
        let identity = identity_of(&fstat(&top)?);
        Ok(HostTree::from_top(top, path, identity, None, rules))
    }

    /// The tree below a directory that the user names, and that is made now; none if there is one.
    pub(crate) fn made_at(path: &Path, rules: Rules<ImageMutant>) -> io::Result<Option<HostTree>> {
        let Some(name) = path.file_name() else { return Ok(None) };
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = openat(CWD, above, flags, Mode::empty())?;
        match mkdirat(&above, name, PRIVATE) {
            Err(Errno::EXIST) if path.is_dir() => return Ok(None),
            done => done?,
        }
        let (top, found) = enter(above, name.as_bytes(), Origin::Made, rules)?;
        let filled = Some(permissions_of(&found));
        Ok(Some(HostTree::from_top(top, path, identity_of(&found), filled, rules)))
    }

    fn from_top(
        top: OwnedFd,
        path: &Path,
        identity: Identity,
        filled: Option<RawMode>,
        rules: Rules<ImageMutant>,
    ) -> HostTree {
        let top = Rc::new(top);
        let known = vec![Known { parent: TOP, depth: 0, name: Box::default(), identity, filled }];
        HostTree { open: (TOP, Rc::clone(&top)), top, path: path.to_owned(), known, rules }
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
        self.push(parent, name, found, None)
    }

    fn push(&mut self, parent: usize, name: &[u8], found: &Stat, filled: Option<RawMode>) -> usize {
        let (depth, identity) = (self.known[parent].depth + 1, identity_of(found));
        self.known.push(Known { parent, depth, name: name.into(), identity, filled });
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

    /// Opens a directory: the one that was found or made, which its name may have left. One that is filled has to be
    /// unfinished.
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
        self.check(directory, &fstat(&*at)?)?;
        self.open = (directory, Rc::clone(&at));
        Ok(at)
    }

    /// Whether what was opened is the directory.
    fn check(&self, directory: usize, found: &Stat) -> io::Result<()> {
        let Known { identity, filled, .. } = self.known[directory];
        let is_filled = |permissions| is_users(found) && permissions_of(found) == permissions;
        let follows = self.rules.drops(ImageMutant::FollowsLinks);
        let is_it = identity_of(found) == identity || follows;
        if is_it && (filled.is_none_or(is_filled) || follows || self.rules.drops(ImageMutant::TrustsOwners)) {
            return Ok(());
        }
        Err(swapped())
    }

    /// Opens what has a name in a directory, only to look at it, as `O_PATH` does. A directory is opened once more, as
    /// one: if something is mounted there on demand, then it is now, as it will be when its entries are wanted.
    pub(crate) fn open_entry(&mut self, directory: usize, name: &[u8]) -> io::Result<(OwnedFd, Stat)> {
        let at = self.open(directory)?;
        let file = self.open_below(&*at, name, OFlags::PATH)?;
        let found = fstat(&file)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
            return Ok((file, found));
        }
        let file = self.open_below(&*at, name, OFlags::PATH | OFlags::DIRECTORY)?;
        let found = fstat(&file)?;
        Ok((file, found))
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
        open_beneath(at, name, flags, mode, self.rules)
    }

    /// Makes a directory that only the user can use until it is finished. One that is there is taken, and made so, if it
    /// is the user's, or the superuser copies and it is `owner`'s, who gets it in the end.
    pub(crate) fn make(&mut self, parent: usize, name: &[u8], owner: u32) -> io::Result<usize> {
        let at = self.open(parent)?;
        let origin = match mkdirat(&*at, name, PRIVATE) {
            Err(Errno::EXIST) => Origin::There { owner },
            done => done.map(|()| Origin::Made)?,
        };
        let (_, found) = enter(&*at, name, origin, self.rules)?;
        Ok(self.push(parent, name, &found, Some(permissions_of(&found))))
    }
}

/// Where a directory that is to be filled comes from.
#[derive(Clone, Copy, Debug)]
enum Origin {
    /// It was made just now; what has its name is to be the same still.
    Made,
    /// It was there, and is `owner`'s in the image.
    There { owner: u32 },
}

/// Opens a directory that is to be filled: the user's alone from then on, as far as its filesystem knows permissions.
fn enter(
    at: impl AsFd,
    name: &[u8],
    origin: Origin,
    rules: Rules<ImageMutant>,
) -> io::Result<(OwnedFd, Stat)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let directory = match open_beneath(&at, name, flags, Mode::empty(), rules) {
        Err(error) if [Errno::NOTDIR, Errno::LOOP].contains(&errno_of(&error)) => {
            let what = "something else is where a directory is to be: move it away";
            return Err(io::Error::new(io::ErrorKind::NotADirectory, what));
        }
        opened => opened?,
    };
    let found = fstat(&directory)?;
    if rules.drops(ImageMutant::FollowsLinks) || rules.drops(ImageMutant::TrustsOwners) {
        return Ok((directory, found));
    }
    let user = geteuid();
    let denied = |what| Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    match origin {
        // Another filesystem has been mounted there, which may say of itself what it likes.
        Origin::Made if found.st_dev != fstat(&at)?.st_dev => return Err(swapped()),
        Origin::Made if !is_users(&found) => {
            return denied("what was made here is another user's: copy as the one to whom new files go here");
        }
        Origin::There { owner } if !is_users(&found) => {
            if !user.is_root() || found.st_uid != owner {
                return denied("a directory of another user is where one is to be: move it away");
            }
            fchown(&directory, Some(user), None)?;
        }
        _ => {}
    }
    if found.st_mode & 0o777 != PRIVATE.as_raw_mode() {
        fchmod(&directory, PRIVATE)?;
    }
    // Some filesystems have the same permissions for everything, whatever is asked for.
    let found = fstat(&directory)?;
    if is_users(&found) { Ok((directory, found)) } else { Err(swapped()) }
}

fn is_users(found: &Stat) -> bool {
    found.st_uid == geteuid().as_raw()
}

fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn open_beneath(
    at: impl AsFd,
    name: &[u8],
    flags: OFlags,
    mode: Mode,
    rules: Rules<ImageMutant>,
) -> io::Result<OwnedFd> {
    if rules.drops(ImageMutant::FollowsLinks) {
        return Ok(openat(at, name, flags | OFlags::CLOEXEC, mode)?);
    }
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(openat2(at, name, flags, mode, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)?)
}

/// Another process was faster, or means harm.
pub(crate) fn swapped() -> io::Error {
    io::Error::other("another directory has taken its place meanwhile, or others were let into it")
}

/// A path that leads to what a descriptor is open for, whatever has its name now: for calls that take no `O_PATH`.
pub(crate) fn path_of(descriptor: impl AsFd) -> String {
    use std::os::fd::AsRawFd as _;
    format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};

    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

    use super::*;

    /// A user that may write beside the target puts a directory of their own where one was made.
    #[test]
    fn a_directory_that_was_swapped_is_not_opened() {
        for (dropped, opened) in [(None, false), (Some(ImageMutant::FollowsLinks), true)] {
            let place = tempfile::tempdir().unwrap();
            let mut tree = HostTree::from_path(place.path(), Rules::but(dropped)).unwrap();
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

    /// It may have the number of the one that was made. So it has to be the user's, and no other user's to use.
    #[test]
    fn a_directory_that_is_filled_is_the_users_alone() {
        let place = tempfile::tempdir().unwrap();
        let mut tree = HostTree::from_path(place.path(), Rules::all()).unwrap();
        let made = tree.make(TOP, b"made", 0).unwrap();
        let path = place.path().join("made");
        let mut is_opened = || {
            tree.open(TOP).unwrap();
            tree.open(made).is_ok()
        };
        assert!(is_opened());
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        assert!(!is_opened());
        fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        assert!(is_opened());
        if chown(&path, Some(4711), None).is_err() {
            eprintln!("skipped: only the superuser makes directories of others");
            return;
        }
        assert!(!is_opened());
    }

    /// Between making and opening it, another user may have put a directory or a link in its place.
    #[test]
    fn what_was_just_made_is_looked_at() {
        let place = tempfile::tempdir().unwrap();
        let at = || File::open(place.path()).unwrap();
        let enter = |name: &str, origin| enter(at(), name.as_bytes(), origin, Rules::all()).map(|_| ());
        fs::create_dir(place.path().join("own")).unwrap();
        enter("own", Origin::Made).unwrap();
        symlink("own", place.path().join("link")).unwrap();
        enter("link", Origin::Made).unwrap_err();
        fs::create_dir(place.path().join("theirs")).unwrap();
        if chown(place.path().join("theirs"), Some(4711), None).is_err() {
            eprintln!("skipped: only the superuser makes directories of others");
            return;
        }
        let told = enter("theirs", Origin::Made).unwrap_err().to_string();
        assert!(told.contains("another user's"), "{told}");
        enter("theirs", Origin::There { owner: 4711 }).unwrap();
        let known = fs::metadata(place.path().join("theirs")).unwrap();
        assert_eq!((known.uid(), known.mode() & 0o7777), (0, 0o700));
    }

    /// A slash behind its name follows a link, if the name is opened as it is.
    #[test]
    fn a_top_is_made_once_and_not_followed() {
        let place = tempfile::tempdir().unwrap();
        for name in ["new", "new with a slash/"] {
            let path = place.path().join(name);
            let tree = HostTree::made_at(&path, Rules::all()).unwrap().unwrap();
            assert_eq!(tree.known[TOP].filled, Some(0o700));
            assert!(HostTree::made_at(&path, Rules::all()).unwrap().is_none());
        }
        symlink("nothing", place.path().join("link")).unwrap();
        assert!(HostTree::made_at(&place.path().join("link"), Rules::all()).is_err());
        assert!(HostTree::made_at(&place.path().join("link/"), Rules::all()).is_err());
        assert!(!place.path().join("nothing").exists());
    }

    /// A filesystem that is mounted while a test runs.
    struct Mounted(PathBuf);

    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = unmount(&self.0, UnmountFlags::DETACH);
        }
    }

    /// The kernel mounts one filesystem within another one when a program goes there, as it does at the places of autofs.
    #[test]
    fn what_is_mounted_on_demand_is_mounted_before_it_is_looked_at() {
        let place = tempfile::tempdir().unwrap();
        let mounted = mount("none", place.path(), "debugfs", MountFlags::empty(), None);
        let _mounted = mounted.is_ok().then(|| Mounted(place.path().to_owned()));
        // To look at it by its path would mount it.
        if !fs::read_dir(place.path()).unwrap().any(|entry| entry.unwrap().file_name() == "tracing") {
            eprintln!("skipped: this takes the superuser, and debugfs");
            return;
        }
        let mut tree = HostTree::from_path(place.path(), Rules::all()).unwrap();
        let (_, found) = tree.open_entry(TOP, b"tracing").unwrap();
        let below = tree.add(TOP, b"tracing", &found);
        let opened = tree.open(below).unwrap();
        assert_eq!(identity_of(&fstat(&*opened).unwrap()), identity_of(&found));
        if found.st_dev == tree.known[TOP].identity.0 {
            eprintln!("skipped: this kernel has nothing to mount there");
        }
    }
}
