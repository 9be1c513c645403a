//! The *root* of a store in a directory: known by its device and inode from the start, so that no object goes into the bare directory
//! that is left below a disk which is not mounted any more. It is held open, so a plain `umount` of that disk is refused meanwhile.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use weir_replica::{Creation, StoreError};

/// A directory of objects.
#[derive(Debug)]
pub(crate) struct Root {
    /// Without symbolic links, as the library has it.
    path: PathBuf,
    held: File,
}

/// What tells a directory from all others: its device and inode.
fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

impl Root {
    /// That of a directory which is there.
    pub(crate) fn open(path: &Path) -> io::Result<Root> {
        let path = path.canonicalize()?;
        fs::read_dir(&path)?;
        let held = File::open(&path)?;
        Ok(Root { path, held })
    }

    /// Fails if the path leads to no directory now, or to another one, as while its disk is not mounted.
    pub(crate) fn require_same(&self) -> Result<(), StoreError> {
        let path = self.path.display();
        let held =
            self.held.metadata().map_err(|error| StoreError::Unreachable(format!("{path}: {error}")))?;
        let text = match self.path.metadata() {
            Ok(found) if identity(&found) == identity(&held) => return Ok(()),
            Ok(_) => format!(
                "{path} is another directory than at the start: was its disk unmounted? Mount it there again; to use this directory, \
                 unmount the volume and mount it anew"
            ),
            Err(error) => {
                format!("{path}: {error}: make it available again: mount its disk, or move it back")
            }
        };
        Err(StoreError::Unreachable(text))
    }

    /// Creates an object. It is durable before it has its name, so that a power cut leaves it whole or not at all, and its name when
    /// this returns. With `replaces`, one that is there is replaced.
    pub(crate) fn create_object(&self, key: &str, bytes: &[u8], replaces: bool) -> io::Result<Creation> {
        self.make_directories(key)?;
        let path = self.path.join(key);
        let staged = stage(&path, bytes)?;
        let named = match replaces {
            true => fs::rename(&staged, &path),
            false => fs::hard_link(&staged, &path),
        };
        let _ = fs::remove_file(&staged);
        let creation = match named {
            Ok(()) => Creation::Created,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Creation::Exists,
            Err(error) => return Err(error),
        };
        self.make_durable(key)?;
        Ok(creation)
    }

    /// Makes the directories of an object, but not the root.
    fn make_directories(&self, key: &str) -> io::Result<()> {
        for (slash, _) in key.match_indices('/') {
            match fs::create_dir(self.path.join(&key[..slash])) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes an object and its name durable.
    fn make_durable(&self, key: &str) -> io::Result<()> {
        let path = self.path.join(key);
        File::open(&path)?.sync_all()?;
        for above in path.ancestors().skip(1).take_while(|above| above.starts_with(&self.path)) {
            File::open(above)?.sync_all()?;
        }
        Ok(())
    }
}

/// Writes the content of an object durably, under a name that the library does not list: the object's, `#` and digits.
fn stage(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let mut staged = path.as_os_str().to_owned();
        staged.push(format!("#{}{:06}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        let staged = PathBuf::from(staged);
        let mut file = match File::options().write(true).create_new(true).open(&staged) {
            // Of a process that had the same number, here or on another machine.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
            opened => opened?,
        };
        match file.write_all(bytes).and_then(|()| file.sync_all()) {
            Ok(()) => return Ok(staged),
            Err(error) => {
                let _ = fs::remove_file(&staged);
                return Err(error);
            }
        }
    }
}
