//! `weir put`: files of the host into an image.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use weir_ext4::{FileTime, FileType};
use weir_fs::{AttributeChanges, Device, Expect, FsError, InodeNumber, NewNode};
use weir_fuse::control::is_own;

use crate::error::CliError;
use crate::image::{Access, Image, join, with_image};
use crate::xattrs;

/// Bytes that are copied at a time.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;
/// Where zeros become holes.
const BLOCK_BYTES: usize = 4096;

/// Arguments of `weir put`.
#[derive(Debug, Args)]
pub(crate) struct PutArguments {
    /// Copy directories with all that is in them
    #[arg(short, long)]
    recursive: bool,
    /// The image
    image: PathBuf,
    /// What to copy
    local: PathBuf,
    /// Its path in the image; a file goes into a directory that is there, a directory is merged with it
    path: OsString,
}

/// Runs the command.
pub(crate) fn run(arguments: &PutArguments) -> Result<(), CliError> {
    let local = &arguments.local;
    let metadata = std::fs::symlink_metadata(local).map_err(unreadable(local))?;
    if metadata.is_dir() && !arguments.recursive {
        return Err(CliError::Directory { path: local.clone() });
    }
    with_image(&arguments.image, Access::Change, async |image| {
        let mut put =
            Put { image, linked: BTreeMap::new(), directories: Vec::new(), pending: Vec::new(), left_out: 0 };
        put.start(local, &metadata, arguments.path.as_bytes()).await?;
        while let Some((local, inside, directory)) = put.pending.pop() {
            put.entries(&local, &inside, directory).await?;
        }
        put.finish().await
    })
}

struct Put<'a> {
    image: &'a Image<'a>,
    /// What inode a file with several names has become.
    linked: BTreeMap<(u64, u64), InodeNumber>,
    /// Directories that are made; what comes into them changes their times, so those are set at the end.
    directories: Vec<(Vec<u8>, InodeNumber, Metadata)>,
    /// Directories whose entries are still to be copied.
    pending: Vec<(PathBuf, Vec<u8>, InodeNumber)>,
    /// Extended attributes that the filesystem does not keep.
    left_out: u64,
}

impl Put<'_> {
    /// Copies what the command names.
    async fn start(&mut self, local: &Path, metadata: &Metadata, inside: &[u8]) -> Result<(), CliError> {
        let filesystem = &self.image.filesystem;
        let there = match filesystem.resolve(inside).await {
            Ok(inode) => Some(inode),
            Err(FsError::NotFound) => None,
            Err(error) => return Err(self.image.failed(inside)(error)),
        };
        if let Some(inode) = there
            && filesystem.attributes(inode).await.map_err(self.image.failed(inside))?.kind
                == FileType::Directory
        {
            if metadata.is_dir() {
                self.pending.push((local.to_owned(), inside.to_vec(), inode));
                return Ok(());
            }
            let name = local.file_name().unwrap_or_default().as_bytes();
            return self.entry(local, metadata, &join(inside, name), inode, name).await;
        }
        let parent = filesystem.resolve_parent(inside).await.map_err(self.image.failed(inside))?;
        self.entry(local, metadata, inside, parent.directory, parent.name).await
    }

    /// Copies the entries of a directory, in the order of their names.
    async fn entries(&mut self, local: &Path, inside: &[u8], directory: InodeNumber) -> Result<(), CliError> {
        let read = || -> std::io::Result<Vec<OsString>> {
            std::fs::read_dir(local)?.map(|entry| Ok(entry?.file_name())).collect()
        };
        let mut names = read().map_err(unreadable(local))?;
        names.sort();
        for name in names {
            let path = local.join(&name);
            let metadata = std::fs::symlink_metadata(&path).map_err(unreadable(&path))?;
            self.entry(&path, &metadata, &join(inside, name.as_bytes()), directory, name.as_bytes()).await?;
        }
        Ok(())
    }

    /// Copies one entry; the entries of a directory come later.
    async fn entry(
        &mut self,
        local: &Path,
        metadata: &Metadata,
        inside: &[u8],
        directory: InodeNumber,
        name: &[u8],
    ) -> Result<(), CliError> {
        let identity = (metadata.dev(), metadata.ino());
        let shared = metadata.nlink() > 1 && !metadata.is_dir();
        if let Some(&inode) = self.linked.get(&identity).filter(|_| shared) {
            self.make_room(inside, directory, name).await?;
            let linked = self.image.filesystem.link(inode, directory, name).await;
            return linked.map_err(self.image.failed(inside));
        }
        let inode = match kind_of(metadata) {
            FileType::Directory => {
                let inode = self.directory(metadata, inside, directory, name).await?;
                self.extended_attributes(local, inside, inode).await?;
                self.pending.push((local.to_owned(), inside.to_vec(), inode));
                self.directories.push((inside.to_vec(), inode, metadata.clone()));
                return Ok(());
            }
            FileType::Symlink => {
                let target =
                    std::fs::read_link(local).map_err(unreadable(local))?.into_os_string().into_vec();
                self.make_room(inside, directory, name).await?;
                let owner = (metadata.uid(), metadata.gid());
                let made = self.image.filesystem.symlink(directory, name, &target, owner).await;
                made.map_err(self.image.failed(inside))?
            }
            kind => {
                self.make_room(inside, directory, name).await?;
                let new = new_node(kind, metadata);
                let made = self.image.filesystem.create(directory, name, &new).await;
                let inode = made.map_err(self.image.failed(inside))?;
                if kind == FileType::Regular {
                    self.content(local, inside, inode).await?;
                }
                inode
            }
        };
        if shared {
            self.linked.insert(identity, inode);
        }
        self.extended_attributes(local, inside, inode).await?;
        self.set_attributes(inside, inode, metadata).await
    }

    /// The directory of that name, made if it is not there.
    async fn directory(
        &self,
        metadata: &Metadata,
        inside: &[u8],
        parent: InodeNumber,
        name: &[u8],
    ) -> Result<InodeNumber, CliError> {
        let new = new_node(FileType::Directory, metadata);
        let made = match self.image.filesystem.create(parent, name, &new).await {
            Err(FsError::Exists) => self.image.filesystem.lookup(parent, name).await,
            made => made,
        };
        made.map_err(self.image.failed(inside))
    }

    /// Takes a name from what is there, unless that is a directory.
    async fn make_room(&self, inside: &[u8], directory: InodeNumber, name: &[u8]) -> Result<(), CliError> {
        match self.image.filesystem.unlink(directory, name).await {
            Ok(()) | Err(FsError::NotFound) => Ok(()),
            Err(error) => Err(self.image.failed(inside)(error)),
        }
    }

    /// Copies the content of a file; blocks of zeros become holes.
    async fn content(&self, local: &Path, inside: &[u8], inode: InodeNumber) -> Result<(), CliError> {
        let filesystem = &self.image.filesystem;
        let mut file = File::open(local).map_err(unreadable(local))?;
        let mut bytes = vec![0; CHUNK_BYTES];
        let mut offset = 0_u64;
        loop {
            let length = fill(&mut file, &mut bytes).map_err(unreadable(local))?;
            for (nth, block) in runs(&bytes[..length]) {
                write_all(filesystem, inode, offset + nth as u64, block)
                    .await
                    .map_err(self.image.failed(inside))?;
            }
            offset += length as u64;
            if length < bytes.len() {
                break;
            }
        }
        filesystem.truncate(inode, offset).await.map_err(self.image.failed(inside))
    }

    async fn extended_attributes(
        &mut self,
        local: &Path,
        inside: &[u8],
        inode: InodeNumber,
    ) -> Result<(), CliError> {
        let found = xattrs::read(local).map_err(unreadable(local))?;
        // What Weir itself keeps of a file is no part of a copy.
        for (name, value) in found.into_iter().filter(|(name, _)| !is_own(name)) {
            let set =
                self.image.filesystem.set_extended_attribute(inode, &name, &value, Expect::Anything).await;
            match set {
                Err(FsError::Unsupported(_)) => self.left_out += 1,
                done => done.map_err(self.image.failed(inside))?,
            }
        }
        Ok(())
    }

    async fn set_attributes(
        &self,
        inside: &[u8],
        inode: InodeNumber,
        metadata: &Metadata,
    ) -> Result<(), CliError> {
        let changes = AttributeChanges {
            permissions: Some((metadata.mode() & 0o7777) as u16),
            uid: Some(metadata.uid()),
            gid: Some(metadata.gid()),
            size: None,
            accessed: Some(time(metadata.atime(), metadata.atime_nsec())),
            modified: Some(time(metadata.mtime(), metadata.mtime_nsec())),
        };
        self.image.filesystem.set_attributes(inode, &changes).await.map_err(self.image.failed(inside))
    }

    async fn finish(self) -> Result<(), CliError> {
        for (inside, inode, metadata) in &self.directories {
            self.set_attributes(inside, *inode, metadata).await?;
        }
        xattrs::tell_left_out(self.left_out, "BarrierFS keeps user., trusted. and security.");
        Ok(())
    }
}

async fn write_all(
    filesystem: &weir_fs::Filesystem,
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

/// Reads until the bytes are full or the file ends; how many there are.
fn fill(file: &mut File, bytes: &mut [u8]) -> std::io::Result<usize> {
    let mut length = 0;
    while length < bytes.len() {
        match file.read(&mut bytes[length..])? {
            0 => break,
            more => length += more,
        }
    }
    Ok(length)
}

/// The parts of the bytes between blocks of zeros, with their offsets.
pub(crate) fn runs(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let is_zero = |at: usize| bytes[at..bytes.len().min(at + BLOCK_BYTES)].iter().all(|&byte| byte == 0);
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() && is_zero(at) {
            at += BLOCK_BYTES;
        }
        let start = at;
        while at < bytes.len() && !is_zero(at) {
            at += BLOCK_BYTES;
        }
        let end = at.min(bytes.len());
        (start < end).then(|| (start, &bytes[start..end]))
    })
}

fn new_node(kind: FileType, metadata: &Metadata) -> NewNode {
    let device = metadata.rdev();
    NewNode {
        kind,
        permissions: (metadata.mode() & 0o7777) as u16,
        uid: metadata.uid(),
        gid: metadata.gid(),
        device: Device { major: rustix::fs::major(device), minor: rustix::fs::minor(device) },
    }
}

fn kind_of(metadata: &Metadata) -> FileType {
    FileType::of_mode(metadata.mode() as u16).unwrap_or(FileType::Regular)
}

fn time(seconds: i64, nanoseconds: i64) -> FileTime {
    FileTime { seconds, nanoseconds: nanoseconds as u32 }
}

fn unreadable(path: &Path) -> impl FnOnce(std::io::Error) -> CliError {
    |source| CliError::File { doing: "read", path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_become_holes() {
        let mut bytes = vec![0; 5 * BLOCK_BYTES + 10];
        assert_eq!(runs(&bytes).count(), 0);
        bytes[BLOCK_BYTES] = 1;
        bytes[3 * BLOCK_BYTES - 1] = 1;
        bytes[5 * BLOCK_BYTES + 9] = 1;
        let found: Vec<_> = runs(&bytes).map(|(at, run)| (at, run.len())).collect();
        assert_eq!(found, [(BLOCK_BYTES, 2 * BLOCK_BYTES), (5 * BLOCK_BYTES, 10)]);
        assert_eq!(runs(&[]).count(), 0);
    }
}
