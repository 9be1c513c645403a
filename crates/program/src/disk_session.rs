//! *Disk session*: the disk of a recorded run, mounted from the recording mount until the run has ended.
//!
//! All of it is done on other threads: this one answers what the kernel asks of the disk meanwhile.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_fuse::DISK_NAME;
use weir_runtime::Handle;

use crate::disk_ground::DiskGroundError;
use crate::disk_mount::DiskMount;
use crate::run_plan::{RunDisk, RunError};

/// See the head of this file.
pub(crate) struct DiskSession {
    directory: PathBuf,
    mount: Arc<DiskMount>,
}

impl DiskSession {
    /// Makes the filesystem on a new disk of the recording mount, unless that has one from an earlier run, and mounts it in the
    /// scratch directory.
    pub(crate) async fn begin(
        handle: &Handle,
        RunDisk { ground, weir }: &RunDisk,
        (recording, scratch): (&Path, &Path),
        is_new: bool,
    ) -> Result<DiskSession, RunError> {
        let (ground, weir) = (ground.clone(), weir.clone());
        let (disk, directory) = (recording.join(DISK_NAME), scratch.join("filesystem"));
        let begun = handle.blocking(move || {
            if is_new {
                ground.make(&disk, &weir)?;
            }
            fs::create_dir_all(&directory)?;
            let mount = Arc::new(ground.mount(&disk, &directory, &weir)?);
            // Many programs want an empty directory, and ext4 works without this one.
            let _ = fs::remove_dir(directory.join("lost+found"));
            Ok::<_, DiskGroundError>(DiskSession { directory, mount })
        });
        Ok(begun.await??)
    }

    /// Where it is mounted.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes all that is dirty to the disk, and flushes.
    pub(crate) async fn synchronise(&self, handle: &Handle) -> Result<(), RunError> {
        let (mount, directory) = (Arc::clone(&self.mount), self.directory.clone());
        Ok(handle.blocking(move || mount.synchronise(&directory)).await??)
    }

    /// Unmounts, which writes all that is dirty.
    pub(crate) async fn end(self, handle: &Handle) -> Result<(), RunError> {
        let unmounted = handle.blocking(move || match Arc::into_inner(self.mount) {
            Some(mount) => mount.unmount(),
            None => Err(io::ErrorKind::ResourceBusy.into()),
        });
        Ok(unmounted.await??)
    }
}
