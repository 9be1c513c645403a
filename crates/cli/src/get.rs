//! `weir get`: files of an image to the host.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::fs::{AtFlags, CWD, Mode, Timespec, Timestamps};
use weir_ext4::FileType;
use weir_fs::{Attributes, Cookie, Device, InodeNumber};
use weir_fuse::control::is_own;

use crate::error::CliError;
use crate::image::{Access, Image, join, with_image};
use crate::put::{CHUNK_BYTES, runs};
use crate::xattrs;

/// Arguments of `weir get`.
#[derive(Debug, Args)]
pub(crate) struct GetArguments {
    /// Copy directories with all that is in them
    #[arg(short, long)]
    recursive: bool,
    /// The image
    image: PathBuf,
    /// What to copy, by its path in the image
    path: OsString,
    /// Where to; a file goes into a directory that is there, a directory is merged with it
    local: PathBuf,
}

/// Runs the command.
pub(crate) fn run(arguments: &GetArguments) -> Result<(), CliError> {
    let inside = arguments.path.as_bytes();
    with_image(&arguments.image, Access::Read, async |image| {
        let inode = image.resolve(inside).await?;
        let attributes = image.filesystem.attributes(inode).await.map_err(image.failed(inside))?;
        let mut local = arguments.local.clone();
        if attributes.kind != FileType::Directory && local.is_dir() {
            let name = inside.rsplit(|&byte| byte == b'/').find(|name| !name.is_empty());
            local.push(OsStr::from_bytes(name.unwrap_or_default()));
        } else if attributes.kind == FileType::Directory && !arguments.recursive {
            return Err(CliError::Directory { path: PathBuf::from(&arguments.path) });
        }
        let mut get = Get {
            image,
            linked: BTreeMap::new(),
            directories: Vec::new(),
            pending: Vec::new(),
            left_out: 0,
            failed: 0,
        };
        get.entry(inside, &local, attributes).await?;
        while let Some((inside, local, directory)) = get.pending.pop() {
            let copied = get.entries(&inside, &local, directory).await;
            get.pass_by(copied)?;
        }
        get.finish()
    })
}

struct Get<'a> {
    image: &'a Image<'a>,
    /// What file an inode with several names has become.
    linked: BTreeMap<InodeNumber, PathBuf>,
    /// Directories that are made; what comes into them changes their times, so those are set at the end.
    directories: Vec<(PathBuf, Attributes)>,
    /// Directories whose entries are still to be copied.
    pending: Vec<(Vec<u8>, PathBuf, InodeNumber)>,
    /// Extended attributes that the host does not take.
    left_out: u64,
    /// Entries that are damaged.
    failed: u64,
}

impl Get<'_> {
    /// Tells of damage in the image and goes on: what is whole is still to be had. Where the host fails, it ends.
    fn pass_by(&mut self, copied: Result<(), CliError>) -> Result<(), CliError> {
        let Err(damage @ CliError::InImage { .. }) = copied else { return copied };
        // Where standard error is gone too, the exit code still tells.
        let _ = writeln!(std::io::stderr(), "weir: {damage}");
        self.failed += 1;
        Ok(())
    }

    /// Copies the entries of a directory.
    async fn entries(&mut self, inside: &[u8], local: &Path, directory: InodeNumber) -> Result<(), CliError> {
        let mut cookie = Cookie::DOT_DOT;
        loop {
            let read = self.image.filesystem.read_directory(directory, cookie).await;
            let entries = read.map_err(self.image.failed(inside))?;
            let Some(last) = entries.last() else { return Ok(()) };
            cookie = last.cookie;
            for entry in entries {
                let inside = join(inside, &entry.name);
                let local = local.join(OsStr::from_bytes(&entry.name));
                let copied = self.found(&inside, &local, entry.target.inode).await;
                self.pass_by(copied)?;
            }
        }
    }

    /// Copies what a name in a directory stands for.
    async fn found(&mut self, inside: &[u8], local: &Path, inode: InodeNumber) -> Result<(), CliError> {
        let found = self.image.filesystem.attributes(inode).await;
        self.entry(inside, local, found.map_err(self.image.failed(inside))?).await
    }

    /// Copies one entry; the entries of a directory come later.
    async fn entry(&mut self, inside: &[u8], local: &Path, attributes: Attributes) -> Result<(), CliError> {
        let inode = attributes.inode;
        if attributes.kind == FileType::Directory {
            match std::fs::create_dir(local) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && local.is_dir() => {}
                done => done.map_err(unwritable(local))?,
            }
            self.pending.push((inside.to_vec(), local.to_owned(), inode));
            self.directories.push((local.to_owned(), attributes));
            return self.extended_attributes(inside, local, inode).await;
        }
        match std::fs::remove_file(local) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(unwritable(local)(error));
            }
            _ => {}
        }
        if let Some(first) = self.linked.get(&inode) {
            return std::fs::hard_link(first, local).map_err(unwritable(local));
        }
        match attributes.kind {
            FileType::Symlink => {
                let target =
                    self.image.filesystem.read_link(inode).await.map_err(self.image.failed(inside))?;
                std::os::unix::fs::symlink(OsStr::from_bytes(&target), local).map_err(unwritable(local))?;
            }
            FileType::Regular => self.content(inside, local, &attributes).await?,
            kind => make_special(local, kind, attributes.device).map_err(unwritable(local))?,
        }
        if attributes.links > 1 {
            self.linked.insert(inode, local.to_owned());
        }
        set_owner(local, &attributes).map_err(unwritable(local))?;
        self.extended_attributes(inside, local, inode).await?;
        set_attributes(local, &attributes).map_err(unwritable(local))
    }

    /// Copies the content of a file; blocks of zeros become holes.
    async fn content(&self, inside: &[u8], local: &Path, attributes: &Attributes) -> Result<(), CliError> {
        let file = File::create_new(local).map_err(unwritable(local))?;
        let mut bytes = vec![0; CHUNK_BYTES];
        let mut offset = 0_u64;
        loop {
            let read = self.image.filesystem.read(attributes.inode, offset, &mut bytes).await;
            let length = read.map_err(self.image.failed(inside))?;
            if length == 0 {
                return file.set_len(attributes.size).map_err(unwritable(local));
            }
            for (at, run) in runs(&bytes[..length]) {
                file.write_all_at(run, offset + at as u64).map_err(unwritable(local))?;
            }
            offset += length as u64;
        }
    }

    async fn extended_attributes(
        &mut self,
        inside: &[u8],
        local: &Path,
        inode: InodeNumber,
    ) -> Result<(), CliError> {
        let filesystem = &self.image.filesystem;
        let names = filesystem.extended_attributes(inode).await.map_err(self.image.failed(inside))?;
        // What Weir itself keeps of a file is no part of a copy.
        for name in names.into_iter().filter(|name| !is_own(name)) {
            let found = filesystem.extended_attribute(inode, &name).await;
            let value = found.map_err(self.image.failed(inside))?;
            let taken = xattrs::set(local, &name, &value).map_err(unwritable(local))?;
            self.left_out += u64::from(!taken);
        }
        Ok(())
    }

    fn finish(self) -> Result<(), CliError> {
        xattrs::tell_left_out(self.left_out, "the host's filesystem, or its rights, do not allow them");
        for (local, attributes) in &self.directories {
            set_owner(local, attributes).map_err(unwritable(local))?;
            set_attributes(local, attributes).map_err(unwritable(local))?;
        }
        if self.failed > 0 {
            return Err(CliError::Incomplete { failed: self.failed });
        }
        Ok(())
    }
}

/// Makes a device, pipe or socket.
fn make_special(local: &Path, kind: FileType, device: Device) -> std::io::Result<()> {
    let kind = rustix::fs::FileType::from_raw_mode(kind.mode_bits().into());
    let device = rustix::fs::makedev(device.major, device.minor);
    Ok(rustix::fs::mknodat(CWD, local, kind, Mode::from_raw_mode(0o600), device)?)
}

/// Only the superuser can give files away; others keep what they copy. A file that is given away loses its
/// capabilities, so extended attributes come later.
fn set_owner(local: &Path, attributes: &Attributes) -> std::io::Result<()> {
    match std::os::unix::fs::lchown(local, Some(attributes.uid), Some(attributes.gid)) {
        Err(error) if error.kind() != std::io::ErrorKind::PermissionDenied => Err(error),
        _ => Ok(()),
    }
}

/// Sets permissions and times.
fn set_attributes(local: &Path, attributes: &Attributes) -> std::io::Result<()> {
    if attributes.kind != FileType::Symlink {
        rustix::fs::chmod(local, Mode::from_raw_mode(attributes.permissions.into()))?;
    }
    let time =
        |time: weir_ext4::FileTime| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    let times =
        Timestamps { last_access: time(attributes.accessed), last_modification: time(attributes.modified) };
    Ok(rustix::fs::utimensat(CWD, local, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn unwritable(path: &Path) -> impl FnOnce(std::io::Error) -> CliError {
    |source| CliError::File { doing: "write", path: path.to_owned(), source }
}
