//! Files of the host into an image.
//!
//! Others may change the host's files meanwhile. So each is opened without following a link, and its type, its
//! attributes and its content are those of what was opened. A directory is opened again for its entries, and has to be
//! the same one.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use futures_util::future::LocalBoxFuture;
use rustix::fs::{CWD, Dir, Mode, OFlags, SeekFrom, Stat, fstat, major, minor, openat, readlinkat, seek};
use rustix::io::Errno;
use weir_format::{BLOCK_BYTES, FileTime, FileType};
use weir_storage::Rules;
use weir_vfs::{
    AclKind, AttributeChanges, Device, Expect, FilesystemCalls, FsError, InodeNumber, NewNode, RenameFlags,
    is_own_attribute,
};

use crate::error::{ImageError, in_image, on_host};
use crate::holes::{CHUNK_BYTES, runs};
use crate::host::{HostTree, TOP, path_of, swapped};
use crate::list::join;
use crate::xattrs;

/// What the name of a file begins with that is to replace another one, until it is whole.
const UNFINISHED: &str = ".weir-put-";

/// Copies `local`, a file or directory of the host, to the path `inside` of an image. A file goes into a directory
/// that is there; the entries of a directory go into it. Directories are copied only if `recursive`, with all that is
/// in them. A file that is replaced keeps its name and content until the new one is whole, so there has to be room for
/// both. Returns how many extended attributes were left out, as BarrierFS does not keep such ones.
///
/// # Errors
/// [`ImageError::Host`] for what cannot be read, [`ImageError::InImage`] for what cannot be written,
/// [`ImageError::Directory`] for a directory without `recursive`. What was copied until then is there.
pub fn put<'a>(
    filesystem: &'a dyn FilesystemCalls,
    local: &'a Path,
    inside: &'a [u8],
    recursive: bool,
) -> LocalBoxFuture<'a, Result<u64, ImageError>> {
    Box::pin(async move {
        let found = std::fs::symlink_metadata(local).map_err(on_host("read", local))?;
        let is_directory = found.is_dir();
        if is_directory && !recursive {
            return Err(ImageError::Directory { path: local.to_owned() });
        }
        let above = local.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let top = if is_directory { local } else { above };
        let tree = HostTree::from_path(top, Rules::all()).map_err(on_host("read", local))?;
        if is_directory && tree.top() != (found.dev(), found.ino()) {
            return Err(on_host("read", local)(swapped()));
        }
        let mut put = Put {
            filesystem,
            tree,
            linked: BTreeMap::new(),
            directories: Vec::new(),
            pending: Vec::new(),
            left_out: 0,
        };
        put.start(local, is_directory, inside).await?;
        while let Some((directory, inside, inode)) = put.pending.pop() {
            put.entries(directory, &inside, inode).await?;
        }
        put.finish().await
    })
}

struct Put<'a> {
    filesystem: &'a dyn FilesystemCalls,
    tree: HostTree,
    /// What inode a file with several names has become.
    linked: BTreeMap<(u64, u64), InodeNumber>,
    /// Directories that are made; what comes into them changes their times, so those are set at the end.
    directories: Vec<(Vec<u8>, InodeNumber, Stat)>,
    /// Directories whose entries are still to be copied.
    pending: Vec<(usize, Vec<u8>, InodeNumber)>,
    /// Extended attributes that the filesystem does not keep.
    left_out: u64,
}

/// A file of the host that is opened: only to be looked at, as `O_PATH` does.
struct Opened {
    file: OwnedFd,
    found: Stat,
    path: PathBuf,
}

impl Opened {
    fn kind(&self) -> FileType {
        FileType::of_mode(self.found.st_mode as u16).unwrap_or(FileType::Regular)
    }

    /// The same file, to be read.
    fn content(&self) -> Result<File, ImageError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let open = openat(CWD, path_of(&self.file), flags, Mode::empty());
        Ok(open.map_err(|error| on_host("read", &self.path)(error.into()))?.into())
    }
}

impl Put<'_> {
    /// Copies what the caller names.
    async fn start(&mut self, local: &Path, is_directory: bool, inside: &[u8]) -> Result<(), ImageError> {
        let filesystem = self.filesystem;
        let there = match filesystem.resolve(inside).await {
            Ok(inode) => Some(inode),
            Err(FsError::NotFound) => None,
            Err(error) => return Err(in_image(inside)(error)),
        };
        let into = match there {
            Some(inode) => {
                let kind = filesystem.attributes(inode).await.map_err(in_image(inside))?.kind;
                (kind == FileType::Directory).then_some(inode)
            }
            None => None,
        };
        let name = local.file_name().unwrap_or_default().as_bytes();
        match into {
            Some(inode) if is_directory => {
                self.pending.push((TOP, inside.to_vec(), inode));
                Ok(())
            }
            Some(inode) => {
                let opened = self.open(TOP, name)?;
                self.entry(&opened, TOP, name, &join(inside, name), (inode, name)).await
            }
            None => {
                let parent = filesystem.resolve_parent(inside).await.map_err(in_image(inside))?;
                let to = (parent.directory, parent.name);
                if is_directory {
                    let top = self.tree.open(TOP).and_then(|top| Ok((top.try_clone()?, fstat(&*top)?)));
                    let (file, found) = top.map_err(on_host("read", local))?;
                    let opened = Opened { file, found, path: local.to_owned() };
                    return self.directory(&opened, TOP, inside, to).await;
                }
                // A slash at the end names a directory, and there is none.
                if inside.ends_with(b"/") {
                    return Err(in_image(inside)(FsError::NotDirectory));
                }
                let opened = self.open(TOP, name)?;
                self.entry(&opened, TOP, name, inside, to).await
            }
        }
    }

    /// Opens a name in a directory of the host.
    fn open(&mut self, directory: usize, name: &[u8]) -> Result<Opened, ImageError> {
        let path = self.tree.path_of(directory, name);
        let (file, found) = self.tree.open_entry(directory, name).map_err(on_host("read", &path))?;
        Ok(Opened { file, found, path })
    }

    /// Copies the entries of a directory, in the order of their names.
    async fn entries(
        &mut self,
        directory: usize,
        inside: &[u8],
        inode: InodeNumber,
    ) -> Result<(), ImageError> {
        let local = self.tree.path_of(directory, b"");
        let mut names = self.names(directory).map_err(on_host("read", &local))?;
        names.sort();
        for name in names {
            let opened = self.open(directory, &name)?;
            self.entry(&opened, directory, &name, &join(inside, &name), (inode, &name)).await?;
        }
        Ok(())
    }

    fn names(&mut self, directory: usize) -> std::io::Result<Vec<Vec<u8>>> {
        let open = self.tree.open(directory)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&*open)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Copies one entry to a name in a directory of the image; the entries of a directory come later.
    async fn entry(
        &mut self,
        opened: &Opened,
        directory: usize,
        name: &[u8],
        inside: &[u8],
        to: (InodeNumber, &[u8]),
    ) -> Result<(), ImageError> {
        let found = &opened.found;
        if opened.kind() == FileType::Directory {
            let below = self.tree.add(directory, name, found);
            return self.directory(opened, below, inside, to).await;
        }
        let identity = (found.st_dev, found.st_ino);
        let shared = found.st_nlink > 1;
        let filesystem = self.filesystem;
        if let Some(&inode) = self.linked.get(&identity).filter(|_| shared) {
            if filesystem.lookup(to.0, to.1).await == Ok(inode) {
                return Ok(());
            }
            let link = async |name: &[u8]| filesystem.link(inode, to.0, name).await.map(|()| inode);
            let (_, name) = self.make(inside, to, link).await?;
            return self.settle(inside, to, &name, Ok(())).await;
        }
        let (inode, name) = match opened.kind() {
            FileType::Symlink => {
                let target = readlinkat(&opened.file, "", Vec::new())
                    .map_err(|error| on_host("read", &opened.path)(error.into()))?;
                let owner = (found.st_uid, found.st_gid);
                let link = async |name: &[u8]| filesystem.symlink(to.0, name, target.as_bytes(), owner).await;
                self.make(inside, to, link).await?
            }
            kind => {
                let new = new_node(kind, found);
                self.make(inside, to, async |name: &[u8]| filesystem.create(to.0, name, &new).await).await?
            }
        };
        let completed = self.complete(opened, inside, inode).await;
        self.settle(inside, to, &name, completed).await?;
        if shared {
            self.linked.insert(identity, inode);
        }
        Ok(())
    }

    /// Gives what was made its content and attributes.
    async fn complete(
        &mut self,
        opened: &Opened,
        inside: &[u8],
        inode: InodeNumber,
    ) -> Result<(), ImageError> {
        if opened.kind() == FileType::Regular {
            self.content(opened, inside, inode).await?;
        }
        self.extended_attributes(opened, inside, inode).await?;
        self.set_attributes(inside, inode, &opened.found).await
    }

    /// Makes a directory if it is not there; its entries come later.
    async fn directory(
        &mut self,
        opened: &Opened,
        directory: usize,
        inside: &[u8],
        to: (InodeNumber, &[u8]),
    ) -> Result<(), ImageError> {
        let new = new_node(FileType::Directory, &opened.found);
        let made = match self.filesystem.create(to.0, to.1, &new).await {
            Err(FsError::Exists) => self.filesystem.lookup(to.0, to.1).await,
            made => made,
        };
        let inode = made.map_err(in_image(inside))?;
        if self.filesystem.attributes(inode).await.map_err(in_image(inside))?.kind != FileType::Directory {
            return Err(in_image(inside)(FsError::NotDirectory));
        }
        self.extended_attributes(opened, inside, inode).await?;
        self.pending.push((directory, inside.to_vec(), inode));
        self.directories.push((inside.to_vec(), inode, opened.found));
        Ok(())
    }

    /// Makes something under a name that is free. Where the name wanted is taken by anything but a directory, that is
    /// another one beside it, until [`Put::settle`]. Returns the name, too.
    async fn make(
        &self,
        inside: &[u8],
        to: (InodeNumber, &[u8]),
        make: impl AsyncFn(&[u8]) -> Result<InodeNumber, FsError>,
    ) -> Result<(InodeNumber, Vec<u8>), ImageError> {
        let taken = match self.filesystem.lookup(to.0, to.1).await {
            Ok(inode) => self.filesystem.attributes(inode).await.map(|found| Some(found.kind)),
            Err(FsError::NotFound) => Ok(None),
            Err(error) => Err(error),
        };
        match taken.map_err(in_image(inside))? {
            None => {
                let made = make(to.1).await.map_err(in_image(inside))?;
                return Ok((made, to.1.to_vec()));
            }
            Some(FileType::Directory) => return Err(in_image(inside)(FsError::IsDirectory)),
            Some(_) => {}
        }
        let mut number = 0_u64;
        loop {
            let name = format!("{UNFINISHED}{number}").into_bytes();
            match make(&name).await {
                // A copy that ended with a crash has left it, or it is a file of that name.
                Err(FsError::Exists) => number += 1,
                made => return Ok((made.map_err(in_image(inside))?, name)),
            }
        }
    }

    /// Gives what was made the name that is wanted, in place of what has it, if it is whole. Otherwise it keeps neither
    /// a name nor space, and the error tells why.
    async fn settle(
        &self,
        inside: &[u8],
        to: (InodeNumber, &[u8]),
        name: &[u8],
        completed: Result<(), ImageError>,
    ) -> Result<(), ImageError> {
        let settled = match completed {
            Ok(()) if name != to.1 => {
                let renamed = self.filesystem.rename((to.0, name), to, RenameFlags::default()).await;
                renamed.map_err(in_image(inside))
            }
            completed => completed,
        };
        if settled.is_err() {
            let _ = self.filesystem.unlink(to.0, name).await;
        }
        settled
    }

    /// Copies the content of a file; holes stay holes, and blocks of zeros become some.
    async fn content(&self, opened: &Opened, inside: &[u8], inode: InodeNumber) -> Result<(), ImageError> {
        let file = opened.content()?;
        let mut bytes = vec![0; CHUNK_BYTES];
        let mut offset = 0_u64;
        'file: loop {
            let data = next_data(&file, offset).map_err(on_host("read", &opened.path))?;
            offset = data.start;
            while offset < data.end {
                let wanted = usize::try_from(data.end - offset).unwrap_or(usize::MAX).min(CHUNK_BYTES);
                let length = fill(&file, offset, &mut bytes[..wanted]);
                let length = length.map_err(on_host("read", &opened.path))?;
                for (nth, block) in runs(&bytes[..length]) {
                    write_all(self.filesystem, inode, offset + nth as u64, block)
                        .await
                        .map_err(in_image(inside))?;
                }
                offset += length as u64;
                if length < wanted {
                    break 'file;
                }
            }
        }
        self.filesystem.truncate(inode, offset).await.map_err(in_image(inside))
    }

    async fn extended_attributes(
        &mut self,
        opened: &Opened,
        inside: &[u8],
        inode: InodeNumber,
    ) -> Result<(), ImageError> {
        let attributes = xattrs::read(&path_of(&opened.file)).map_err(on_host("read", &opened.path))?;
        // What it was made in has given it lists, perhaps, and it is to have its own only.
        for kind in [AclKind::Access, AclKind::Default] {
            if attributes.iter().all(|(name, _)| name != kind.attribute()) {
                match self.filesystem.set_acl(inode, kind, None, false).await {
                    Err(FsError::NoAttribute | FsError::Unsupported(_)) => {}
                    done => done.map_err(in_image(inside))?,
                }
            }
        }
        for (name, value) in attributes.into_iter().filter(|(name, _)| !is_own_attribute(name)) {
            match self.filesystem.set_extended_attribute(inode, &name, &value, Expect::Anything).await {
                Err(FsError::Unsupported(_)) => self.left_out += 1,
                done => done.map_err(in_image(inside))?,
            }
        }
        Ok(())
    }

    async fn set_attributes(
        &self,
        inside: &[u8],
        inode: InodeNumber,
        found: &Stat,
    ) -> Result<(), ImageError> {
        let changes = AttributeChanges {
            permissions: Some((found.st_mode & 0o7777) as u16),
            uid: Some(found.st_uid),
            gid: Some(found.st_gid),
            size: None,
            accessed: Some(time(found.st_atime, found.st_atime_nsec)),
            modified: Some(time(found.st_mtime, found.st_mtime_nsec)),
            changed: None,
        };
        self.filesystem.set_attributes(inode, &changes).await.map_err(in_image(inside))
    }

    async fn finish(self) -> Result<u64, ImageError> {
        for (inside, inode, found) in &self.directories {
            self.set_attributes(inside, *inode, found).await?;
        }
        Ok(self.left_out)
    }
}

async fn write_all(
    filesystem: &dyn FilesystemCalls,
    inode: InodeNumber,
    mut offset: u64,
    mut bytes: &[u8],
) -> Result<(), FsError> {
    while !bytes.is_empty() {
        let written = filesystem.write(inode, offset, bytes).await?;
        offset += written as u64;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// Where a file has its next bytes that are in no hole, from `offset` or the beginning of a block behind it. Where there
/// are none, that is from its end on: reading tells whether it ends there, as a file may grow, and one that the kernel
/// makes up says that it has no bytes. Where holes cannot be asked for, everything is to be read.
fn next_data(file: &File, offset: u64) -> std::io::Result<Range<u64>> {
    let data = match seek(file, SeekFrom::Data(offset)) {
        Ok(data) => data.max(offset),
        Err(Errno::NXIO) => return Ok(offset.max(file.metadata()?.len())..u64::MAX),
        Err(_) => return Ok(offset..u64::MAX),
    };
    let end = seek(file, SeekFrom::Hole(data)).ok().filter(|&end| end > data);
    Ok(offset.max(data / BLOCK_BYTES as u64 * BLOCK_BYTES as u64)..end.unwrap_or(u64::MAX))
}

/// Reads from `offset` on until the bytes are full or the file ends; how many there are.
fn fill(file: &File, offset: u64, bytes: &mut [u8]) -> std::io::Result<usize> {
    let mut length = 0;
    while length < bytes.len() {
        match file.read_at(&mut bytes[length..], offset + length as u64)? {
            0 => break,
            more => length += more,
        }
    }
    Ok(length)
}

fn new_node(kind: FileType, found: &Stat) -> NewNode {
    NewNode {
        kind,
        permissions: (found.st_mode & 0o7777) as u16,
        umask: 0,
        uid: found.st_uid,
        gid: found.st_gid,
        device: Device { major: major(found.st_rdev), minor: minor(found.st_rdev) },
    }
}

fn time(seconds: i64, nanoseconds: u64) -> FileTime {
    FileTime { seconds, nanoseconds: nanoseconds as u32 }
}
