//! *Scratch files*: what a benchmark writes to.
//!
//! They have no name, so they vanish with the process however it ends; `keep` gives them one. All of a
//! scratch file is written before it is measured: blocks that were only reserved are slower to write the
//! first time, and a filesystem may answer reads of them from nowhere.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{FallocateFlags, fallocate, fstat, major, minor, statvfs};
use serde::Serialize;
use weir_runtime::Handle;
use weir_storage::{FileDisk, FileDiskOptions};

use crate::error::BenchError;

/// A file for a benchmark.
#[derive(Debug)]
pub struct Scratch {
    file: File,
    path: PathBuf,
    directory: PathBuf,
}

impl Scratch {
    /// A file of `bytes` bytes in `directory`; called `weir-bench-NAME` if `keep`, without a name otherwise. Only
    /// its owner may read it.
    ///
    /// # Errors
    /// [`BenchError::Kept`] if a file of that name is there, which is not touched; what the kernel refused.
    pub fn create(directory: &Path, name: &str, bytes: u64, keep: bool) -> Result<Scratch, BenchError> {
        let failed = |doing| move |source| refused(doing, directory, source);
        let (file, path) = if keep {
            let path = directory.join(format!("weir-bench-{name}"));
            let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
            let file = file.map_err(|source| match source.kind() {
                io::ErrorKind::AlreadyExists => BenchError::Kept { path: absolute(&path) },
                _ => refused("create a file to keep", directory, source),
            })?;
            (file, path)
        } else {
            let file = tempfile::tempfile_in(directory).map_err(failed("create a file"))?;
            let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
            (file, path)
        };
        reserve(&file, bytes).map_err(failed("reserve space"))?;
        Ok(Scratch { file, path, directory: directory.to_owned() })
    }

    /// The error of writing to the file: it names the directory, since the file may have no name.
    pub(crate) fn write_failed(&self, source: io::Error) -> BenchError {
        refused("write", &self.directory, source)
    }

    /// A path under which the process can open the file once more.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same for other processes of this user, as long as this one lives.
    pub(crate) fn path_for_others(&self) -> PathBuf {
        let own = self.path.strip_prefix("/proc/self");
        own.map_or_else(
            |_| self.path.clone(),
            |fd| Path::new("/proc").join(std::process::id().to_string()).join(fd),
        )
    }

    /// The file, opened by its path as a disk.
    pub(crate) fn disk(&self, handle: &Handle) -> Result<Rc<FileDisk>, BenchError> {
        Ok(FileDisk::open(handle, &self.path, FileDiskOptions::default())?)
    }

    /// The file, opened for buffered reading and writing.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The file alone.
    pub(crate) fn into_file(self) -> File {
        self.file
    }
}

fn refused(doing: &'static str, directory: &Path, source: io::Error) -> BenchError {
    BenchError::File { doing, path: absolute(directory), source }
}

/// `.` says little in an error. Where there is no current directory the path stays what it is.
fn absolute(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // A filesystem that cannot reserve is written in full later anyway.
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(bytes),
        answer => Ok(answer?),
    }
}

/// Where the scratch files lie.
#[derive(Clone, Debug, Serialize)]
pub struct ScratchDirectory {
    /// The directory.
    pub directory: PathBuf,
    /// The filesystem's type, as the kernel calls it.
    pub filesystem: Option<String>,
    /// The block device, as the kernel calls it; none for tmpfs and the like.
    pub device: Option<String>,
    /// Whether direct I/O works there; otherwise the "raw" modes go through the page cache.
    pub direct_io: bool,
    #[serde(skip)]
    stat: Option<PathBuf>,
}

impl ScratchDirectory {
    /// Looks at `directory`.
    ///
    /// # Errors
    /// If there is none, or it cannot be looked at.
    pub fn look(directory: &Path) -> Result<ScratchDirectory, BenchError> {
        let failed = |source| refused("look", directory, source);
        let opened = File::open(directory).map_err(failed)?;
        let device = fstat(&opened).map_err(|errno| failed(errno.into()))?.st_dev;
        if !opened.metadata().map_err(failed)?.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        let number = format!("{}:{}", major(device), minor(device));
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mount = mounts.lines().find_map(|line| mounted(line, &number));
        let (filesystem, device) = mount.unzip();
        let stat = PathBuf::from(format!("/sys/dev/block/{number}/stat"));
        let known = stat.exists();
        Ok(ScratchDirectory {
            directory: std::fs::canonicalize(directory).map_err(failed)?,
            filesystem,
            device: device.filter(|_| known),
            direct_io: false,
            stat: known.then_some(stat),
        })
    }

    /// Bytes free for this user.
    #[must_use]
    pub fn free_bytes(&self) -> Option<u64> {
        let stat = statvfs(&self.directory).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Bytes that were written to the device since boot, by anybody; none where the kernel does not count.
    #[must_use]
    pub fn written_bytes(&self) -> Option<u64> {
        written(&std::fs::read_to_string(self.stat.as_ref()?).ok()?)
    }
}

/// Filesystem type and device of the mount with this device number (proc_pid_mountinfo(5)).
fn mounted(line: &str, number: &str) -> Option<(String, String)> {
    let (left, right) = line.split_once(" - ")?;
    if left.split(' ').nth(2)? != number {
        return None;
    }
    let mut right = right.split(' ');
    Some((right.next()?.to_owned(), right.next()?.to_owned()))
}

/// The seventh field counts sectors of 512 bytes written (Linux, Documentation/block/stat.rst).
fn written(stat: &str) -> Option<u64> {
    let sectors: u64 = stat.split_whitespace().nth(6)?.parse().ok()?;
    Some(sectors * 512)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn an_unnamed_file_leaves_nothing_behind_and_can_be_opened_again() {
        let directory = tempfile::tempdir().unwrap();
        let scratch = Scratch::create(directory.path(), "x", 8192, false).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        assert_eq!(File::open(scratch.path()).unwrap().metadata().unwrap().len(), 8192);
    }

    #[test]
    fn a_kept_file_stays_and_is_never_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        drop(Scratch::create(directory.path(), "x", 8192, true).unwrap());
        let kept = directory.path().join("weir-bench-x").metadata().unwrap();
        assert_eq!(kept.permissions().mode() & 0o777, 0o600, "it holds what the benchmark's files hold");
        let again = Scratch::create(directory.path(), "x", 4096, true);
        let error = again.unwrap_err();
        assert!(matches!(&error, BenchError::Kept { path } if path.ends_with("weir-bench-x")), "{error}");
        assert!(error.to_string().contains("delete"), "{error}");
    }

    #[test]
    fn an_error_names_the_directory_and_the_way_out() {
        let directory = tempfile::tempdir().unwrap();
        let scratch = Scratch::create(directory.path(), "x", 8192, false).unwrap();
        let found = scratch.write_failed(io::ErrorKind::StorageFull.into()).to_string();
        let name = std::fs::canonicalize(directory.path()).unwrap();
        assert!(found.contains(&*name.to_string_lossy()) && found.contains("--on"), "{found}");
        let missing = ScratchDirectory::look(Path::new("not/here")).unwrap_err().to_string();
        let here = std::env::current_dir().unwrap();
        assert!(missing.contains(&*here.to_string_lossy()), "{missing}");
    }

    #[test]
    fn kernel_tables_are_read() {
        let line = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard";
        assert_eq!(mounted(line, "254:0"), Some(("ext4".to_owned(), "/dev/vda".to_owned())));
        assert_eq!(mounted(line, "254:1"), None);
        assert_eq!(written("  27736 5359 2492986 5665 37709 8878 16 3085 0 4452"), Some(8192));
        assert_eq!(written("1 2"), None);
    }

    #[test]
    fn a_place_that_is_not_there_is_an_error() {
        assert!(matches!(ScratchDirectory::look(Path::new("/nowhere/at/all")), Err(BenchError::File { .. })));
    }
}
