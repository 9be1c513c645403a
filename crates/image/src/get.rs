//! Files of an image to the host.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use futures_util::future::LocalBoxFuture;
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, chmod, chownat, fchmod, fstat, linkat,
    makedev, mknodat, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use weir_format::{BLOCK_BYTES, Cookie, FileTime, FileType};
use weir_storage::Rules;
use weir_vfs::{Attributes, FilesystemCalls, FsError, InodeNumber, is_own_attribute};

use crate::error::{ImageError, damaged, in_image, on_host, shown};
use crate::holes::{chunk_of, runs};
use crate::host::{DEPTH_MAX, HostTree, TOP, path_of};
use crate::list::join;
use crate::mutants::ImageMutant;
use crate::xattrs;

/// Bytes of the shortest name in a directory.
const NAME_BYTES_MIN: u64 = 12;
/// A time's nanoseconds at most; an image may have more.
const NANOSECONDS_MAX: u32 = 999_999_999;
/// Set-user-ID and set-group-ID: a process that runs the file has the rights of its owner.
const SET_ID: u16 = 0o6000;

/// How [`get`] copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GetOptions {
    /// Directories are copied, with all that is in them.
    pub recursive: bool,
    /// Of a damaged file all that can be read is copied; the rest becomes holes. Without this, the copy ends at the first
    /// byte that cannot be read.
    pub salvage: bool,
    /// The rules that this copy keeps: all of them.
    pub rules: Rules<ImageMutant>,
}

/// What a copy left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Damaged entries; each was reported.
    pub failed: u64,
    /// Extended attributes that the host did not take.
    pub left_out: u64,
}

/// Copies what is at path `inside` of an image to the path `local` of the host. A file goes into a directory that is
/// there; a directory is merged with it. Damage in the image is `told` and passed by, and what could be read of a
/// damaged file stays, readable only by its owner.
///
/// # Errors
/// [`ImageError::Host`] where the host fails, which ends the copy: directories that are not finished stay as private
/// as they were made. [`ImageError::Directory`] for a directory without `recursive`. [`ImageError::InImage`] if
/// `inside` itself cannot be read, and [`ImageError::Overfull`] for an image that gives more than it can hold (I3).
pub fn get<'a>(
    filesystem: &'a dyn FilesystemCalls,
    inside: &'a [u8],
    local: &'a Path,
    options: &'a GetOptions,
    told: &'a mut dyn FnMut(&ImageError),
) -> LocalBoxFuture<'a, Result<Copied, ImageError>> {
    Box::pin(async move {
        let inode = filesystem.resolve(inside).await.map_err(in_image(inside))?;
        let attributes = filesystem.attributes(inode).await.map_err(in_image(inside))?;
        let is_directory = attributes.kind == FileType::Directory;
        if is_directory && !options.recursive {
            return Err(ImageError::Directory { path: PathBuf::from(shown(inside)) });
        }
        let (top, name) = match () {
            () if is_directory => (local, None),
            () if local.is_dir() => {
                (local, inside.rsplit(|&byte| byte == b'/').find(|name| !name.is_empty()))
            }
            // A slash at the end names a directory, and there is none.
            () if local.as_os_str().as_encoded_bytes().ends_with(b"/") => {
                return Err(on_host("write", local)(Errno::NOTDIR.into()));
            }
            () => {
                let above = local.parent().filter(|above| !above.as_os_str().is_empty());
                (above.unwrap_or(Path::new(".")), local.file_name().map(|name| name.as_encoded_bytes()))
            }
        };
        let rules = options.rules;
        let made = if is_directory { HostTree::made_at(top, rules) } else { Ok(None) };
        let made = made.map_err(on_host("write", top))?;
        // One that is there stays as the user made it.
        let new_top = made.is_some();
        let tree = made.map_or_else(|| HostTree::from_path(top, rules), Ok).map_err(on_host("write", top))?;
        let bytes = filesystem.statfs().await.blocks.saturating_mul(BLOCK_BYTES as u64);
        let mut get = Get {
            filesystem,
            options: *options,
            told,
            inside: inside.to_vec(),
            tree,
            directories: vec![new_top.then_some(attributes)],
            pending: Vec::new(),
            entered: BTreeSet::new(),
            linked: BTreeMap::new(),
            names_left: bytes / NAME_BYTES_MIN,
            bytes_left: bytes,
            copied: Copied::default(),
        };
        if is_directory {
            get.entered.insert(inode);
            get.pending.push((TOP, inode));
            get.everything().await?;
        } else {
            let name = name.ok_or(Errno::INVAL.into()).map_err(on_host("write", local))?;
            get.entry(TOP, name, inside, attributes).await?;
        }
        get.finish().await
    })
}

/// The first name of a file with several.
struct First {
    directory: usize,
    name: Vec<u8>,
    /// What has to be there still.
    device: u64,
    number: u64,
}

struct Get<'a> {
    filesystem: &'a dyn FilesystemCalls,
    options: GetOptions,
    told: &'a mut dyn FnMut(&ImageError),
    /// The path in the image of the top of the tree.
    inside: Vec<u8>,
    tree: HostTree,
    /// The attributes that each directory of the tree gets at the end: what comes into it would change its times.
    directories: Vec<Option<Attributes>>,
    /// Directories whose entries are still to be copied.
    pending: Vec<(usize, InodeNumber)>,
    /// I3: directories that had their turn.
    entered: BTreeSet<InodeNumber>,
    /// Where inodes with several names have gone.
    linked: BTreeMap<InodeNumber, First>,
    /// I3: names and bytes of content that the image may still give.
    names_left: u64,
    bytes_left: u64,
    copied: Copied,
}

impl Get<'_> {
    /// Copies all directories that are pending, and what is found in them.
    async fn everything(&mut self) -> Result<(), ImageError> {
        while let Some((directory, inode)) = self.pending.pop() {
            let inside = self.inside_of(directory);
            let copied = self.entries(directory, &inside, inode).await;
            self.pass_by(copied)?;
        }
        Ok(())
    }

    /// The path in the image of a directory of the tree.
    fn inside_of(&self, directory: usize) -> Vec<u8> {
        self.tree.names(directory).into_iter().fold(self.inside.clone(), |inside, name| join(&inside, name))
    }

    /// Reports damage in the image and continues with what is whole. An error of the host ends the copy.
    fn pass_by(&mut self, copied: Result<(), ImageError>) -> Result<(), ImageError> {
        let Err(damage @ ImageError::InImage { .. }) = copied else { return copied };
        (self.told)(&damage);
        self.copied.failed += 1;
        Ok(())
    }

    /// Copies the entries of a directory.
    async fn entries(&mut self, directory: usize, inside: &[u8], inode: u32) -> Result<(), ImageError> {
        let mut cookie = Cookie::DOT_DOT;
        loop {
            let entries = self.filesystem.read_directory(inode, cookie).await.map_err(in_image(inside))?;
            let Some(last) = entries.last() else { return Ok(()) };
            cookie = last.cookie;
            for entry in entries {
                let inside = join(inside, &entry.name);
                self.names_left = self.take(self.names_left, 1, &inside)?;
                let copied = self.found(directory, &entry.name, &inside, entry.target.inode).await;
                self.pass_by(copied)?;
            }
        }
    }

    /// What is left when so much is taken (I3).
    fn take(&self, left: u64, taken: u64, inside: &[u8]) -> Result<u64, ImageError> {
        if self.options.rules.drops(ImageMutant::CopiesWithoutEnd) {
            return Ok(left);
        }
        left.checked_sub(taken).ok_or_else(|| ImageError::Overfull { inside: shown(inside) })
    }

    /// Copies what a name in a directory stands for.
    async fn found(
        &mut self,
        directory: usize,
        name: &[u8],
        inside: &[u8],
        inode: InodeNumber,
    ) -> Result<(), ImageError> {
        let attributes = self.filesystem.attributes(inode).await.map_err(in_image(inside))?;
        self.entry(directory, name, inside, attributes).await
    }

    /// Copies one entry; the entries of a directory come later.
    async fn entry(
        &mut self,
        directory: usize,
        name: &[u8],
        inside: &[u8],
        attributes: Attributes,
    ) -> Result<(), ImageError> {
        let local = self.tree.path_of(directory, name);
        let inode = attributes.inode;
        if attributes.kind == FileType::Directory {
            if !self.entered.insert(inode) && !self.options.rules.drops(ImageMutant::EntersAgain) {
                return Err(damaged(inside, inode, "one more name of a directory"));
            }
            if self.tree.depth(directory) >= DEPTH_MAX {
                let deep = FsError::Unsupported("more than 2,048 directories below each other");
                return Err(in_image(inside)(deep));
            }
            let made = self.tree.make(directory, name, attributes.uid).map_err(on_host("write", &local))?;
            self.directories.push(Some(attributes));
            self.pending.push((made, inode));
            return Ok(());
        }
        let target = match attributes.kind {
            FileType::Symlink => self.filesystem.read_link(inode).await.map_err(in_image(inside))?,
            _ => Vec::new(),
        };
        if self.link(directory, name, inode).map_err(on_host("write", &local))? {
            return Ok(());
        }
        let file = match self.make(directory, name, &target, &attributes) {
            Err(error)
                if is_device(attributes.kind) && error.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                return Err(in_image(inside)(FsError::Unsupported(
                    "a device, which only the superuser makes",
                )));
            }
            made => made.map_err(on_host("write", &local))?,
        };
        let found = fstat(&file).map_err(|error| on_host("write", &local)(error.into()))?;
        let (file, lost) = match attributes.kind {
            FileType::Regular => self.content(file, inside, &local, &attributes).await?,
            _ => (file, None),
        };
        self.finish_one(&file, inside, &local, &attributes).await?;
        if attributes.links > 1 {
            let first = First { directory, name: name.to_vec(), device: found.st_dev, number: found.st_ino };
            self.linked.insert(inode, first);
        }
        lost.map_or(Ok(()), |lost| Err(in_image(inside)(lost)))
    }

    /// Takes a name from what is there, and gives it to the inode if that has a file already: whether it has.
    fn link(&mut self, directory: usize, name: &[u8], inode: InodeNumber) -> std::io::Result<bool> {
        let first = self.linked.get(&inode).map(|first| (first.directory, first.name.clone()));
        let from = match first.as_ref() {
            Some((directory, _)) => Some(self.tree.open(*directory)?),
            None => None,
        };
        let at = self.tree.open(directory)?;
        if let (Some(from), Some(first)) = (from, self.linked.get(&inode)) {
            let is_same = |found: Stat| (found.st_dev, found.st_ino) == (first.device, first.number);
            let is_there = statat(&*from, &first.name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(is_same);
            let is_it = statat(&*at, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(is_same);
            if is_it {
                return Ok(true);
            }
            if is_there {
                remove(&*at, name)?;
                linkat(&*from, &first.name, &*at, name, AtFlags::empty())?;
                return Ok(true);
            }
        }
        remove(&*at, name)?;
        Ok(false)
    }

    /// Makes a file that only its owner can use, and opens it.
    fn make(
        &mut self,
        directory: usize,
        name: &[u8],
        target: &[u8],
        attributes: &Attributes,
    ) -> std::io::Result<OwnedFd> {
        let at = self.tree.open(directory)?;
        let mut mode = Mode::RUSR | Mode::WUSR;
        if self.options.rules.drops(ImageMutant::ShowsEarly) {
            mode = Mode::from_raw_mode(attributes.permissions.into());
        }
        match attributes.kind {
            FileType::Regular => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
                return self.tree.open_with(&*at, name, flags, mode);
            }
            FileType::Symlink => symlinkat(target, &*at, name)?,
            kind => {
                let kind = rustix::fs::FileType::from_raw_mode(kind.mode_bits().into());
                let device = makedev(attributes.device.major, attributes.device.minor);
                mknodat(&*at, name, kind, mode, device)?;
            }
        }
        // Where others may write too, they may have been faster with another file.
        let file = self.tree.open_below(&*at, name, OFlags::PATH | OFlags::NOFOLLOW)?;
        let found = fstat(&file)?;
        let kind = rustix::fs::FileType::from_raw_mode(attributes.kind.mode_bits().into());
        if found.st_nlink != 1 || rustix::fs::FileType::from_raw_mode(found.st_mode) != kind {
            return Err(std::io::Error::other("another process has changed it"));
        }
        Ok(file)
    }

    /// Copies the content of a file. Holes are not read and stay holes, and blocks of zeros become some. All blocks that
    /// are mapped count (I3), as they are read or at least looked for, whatever is in them.
    async fn content(
        &mut self,
        file: OwnedFd,
        inside: &[u8],
        local: &Path,
        attributes: &Attributes,
    ) -> Result<(OwnedFd, Option<FsError>), ImageError> {
        let file = File::from(file);
        let mut lost = None;
        let (filesystem, inode) = (self.filesystem, attributes.inode);
        let most = self.bytes_left / BLOCK_BYTES as u64;
        let mapped = filesystem.mapped_blocks(inode, most).await.map_err(in_image(inside))?;
        self.bytes_left = self.take(self.bytes_left, mapped.saturating_mul(BLOCK_BYTES as u64), inside)?;
        let mut bytes = chunk_of(attributes.size.min(mapped.max(1).saturating_mul(BLOCK_BYTES as u64)));
        let (mut offset, mut step) = (0_u64, 0);
        while let Some(data) = filesystem.seek_data(inode, offset).await.map_err(in_image(inside))? {
            offset = data / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
            let Some(end) = filesystem.seek_hole(inode, offset).await.map_err(in_image(inside))? else {
                break;
            };
            while offset < end {
                // Around a block that cannot be read, block by block.
                let most = if step == 0 { bytes.len() } else { step };
                let wanted = usize::try_from(end - offset).unwrap_or(usize::MAX).min(most).min(bytes.len());
                let read = filesystem.read(inode, offset, &mut bytes[..wanted]).await;
                let length = match read {
                    Err(_) if self.options.salvage && wanted > BLOCK_BYTES => {
                        step = BLOCK_BYTES;
                        continue;
                    }
                    Err(cause) if self.options.salvage => {
                        lost.get_or_insert(cause);
                        0
                    }
                    read => read.map_err(in_image(inside))?,
                };
                for (at, run) in runs(&bytes[..length]) {
                    file.write_all_at(run, offset + at as u64).map_err(on_host("write", local))?;
                }
                offset += wanted as u64;
                if offset.is_multiple_of(bytes.len() as u64) {
                    step = 0;
                }
            }
        }
        file.set_len(attributes.size).map_err(on_host("write", local))?;
        Ok((file.into(), lost))
    }

    /// Gives a file all that is not content, in the order of I2.
    async fn finish_one(
        &mut self,
        file: &OwnedFd,
        inside: &[u8],
        local: &Path,
        attributes: &Attributes,
    ) -> Result<(), ImageError> {
        let owned = set_owner(file, attributes).map_err(on_host("write", local))?;
        let inode = attributes.inode;
        let mut names = self.filesystem.extended_attributes(inode).await.map_err(in_image(inside))?;
        names.retain(|name| !is_own_attribute(name));
        for name in names.iter().filter(|name| !xattrs::is_capability(name)) {
            self.extended_attribute(file, name, inside, local, inode).await?;
        }
        if attributes.kind != FileType::Symlink {
            let kept = if owned { attributes.permissions } else { attributes.permissions & !SET_ID };
            let mode = Mode::from_raw_mode(kept.into());
            let done = match fchmod(file, mode) {
                // It is a device, pipe or socket, which is not opened for this.
                Err(Errno::BADF) => chmod(path_of(file), mode),
                done => done,
            };
            done.map_err(|error| on_host("write", local)(error.into()))?;
        }
        for name in names.iter().filter(|name| xattrs::is_capability(name)) {
            self.extended_attribute(file, name, inside, local, inode).await?;
        }
        let time = |time: FileTime| Timespec {
            tv_sec: time.seconds,
            tv_nsec: time.nanoseconds.min(NANOSECONDS_MAX).into(),
        };
        let times = Timestamps {
            last_access: time(attributes.accessed),
            last_modification: time(attributes.modified),
        };
        utimensat(file, "", &times, AtFlags::EMPTY_PATH)
            .map_err(|error| on_host("write", local)(error.into()))
    }

    async fn extended_attribute(
        &mut self,
        file: &OwnedFd,
        name: &[u8],
        inside: &[u8],
        local: &Path,
        inode: InodeNumber,
    ) -> Result<(), ImageError> {
        let value = self.filesystem.extended_attribute(inode, name).await.map_err(in_image(inside))?;
        let taken = xattrs::set(&path_of(file), name, &value).map_err(on_host("write", local))?;
        self.copied.left_out += u64::from(!taken);
        Ok(())
    }

    /// Finishes directories, those below others first: a directory that is finished may be closed to this user.
    async fn finish(mut self) -> Result<Copied, ImageError> {
        for directory in (0..self.tree.len()).rev() {
            let Some(attributes) = self.directories[directory] else { continue };
            let local = self.tree.path_of(directory, b"");
            let open = self.tree.open(directory).map_err(on_host("write", &local))?;
            let inside = self.inside_of(directory);
            let finished = self.finish_one(&open, &inside, &local, &attributes).await;
            self.pass_by(finished)?;
        }
        Ok(self.copied)
    }
}

fn is_device(kind: FileType) -> bool {
    matches!(kind, FileType::CharacterDevice | FileType::BlockDevice)
}

/// Takes a name from what is there, unless that is a directory.
fn remove(at: impl AsFd, name: &[u8]) -> std::io::Result<()> {
    match unlinkat(at, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        done => Ok(done?),
    }
}

/// Only the superuser can give files away; others keep what they copy, which false says. A file that is given away
/// loses its set-user-ID bits and capabilities, so those come later.
fn set_owner(file: &OwnedFd, attributes: &Attributes) -> std::io::Result<bool> {
    // All ones would leave the owner as it is.
    if attributes.uid == u32::MAX || attributes.gid == u32::MAX {
        return Ok(false);
    }
    let (uid, gid) = (Uid::from_raw(attributes.uid), Gid::from_raw(attributes.gid));
    match chownat(file, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH) {
        // The second in a user namespace without that owner.
        Err(Errno::PERM | Errno::INVAL) => Ok(false),
        done => Ok(done.map(|()| true)?),
    }
}
