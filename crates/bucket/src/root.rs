//! The *root* of a store in a directory: known by its device and inode from the start, so that no object goes into the bare directory
//! that is left below a disk which is not mounted any more. It is held open, so a plain `umount` of that disk is refused meanwhile.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use weir_replica::StoreError;

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
        std::fs::read_dir(&path)?;
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

    /// Makes a new file and its name durable, which `object_store` leaves to the system.
    pub(crate) fn make_durable(&self, key: &str) -> io::Result<()> {
        let path = self.path.join(key);
        File::open(&path)?.sync_all()?;
        for above in path.ancestors().skip(1).take_while(|above| above.starts_with(&self.path)) {
            File::open(above)?.sync_all()?;
        }
        Ok(())
    }
}
