//! *Disk session*: the disk of a recorded run, mounted from the recording mount until the run has ended.
//!
//! All of it is done on other threads: this one answers what the kernel asks of the disk meanwhile.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use weir_crash::KernelMount;
use weir_fuse::DISK_NAME;
use weir_runtime::Handle;

use crate::disk_ground::{DiskGround, DiskGroundError};
use crate::run_plan::RunError;

/// See the head of this file.
pub(crate) struct DiskSession {
    directory: PathBuf,
    mount: KernelMount,
}

impl DiskSession {
    /// Makes the filesystem on a new disk of the recording mount, unless that has one from an earlier run, and mounts it in the
    /// scratch directory.
    pub(crate) async fn begin(
        handle: &Handle,
        ground: &DiskGround,
        (recording, scratch): (&Path, &Path),
        is_new: bool,
    ) -> Result<DiskSession, RunError> {
        let (ground, disk, directory) =
            (ground.clone(), recording.join(DISK_NAME), scratch.join("filesystem"));
        let begun = handle.blocking(move || {
            if is_new {
                ground.make(&disk)?;
            }
            fs::create_dir_all(&directory)?;
            let mount = ground.mount(&disk, &directory)?;
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
        let directory = self.directory.clone();
        let synchronised =
            handle.blocking(move || Ok::<_, io::Error>(rustix::fs::syncfs(File::open(directory)?)?));
        Ok(synchronised.await??)
    }

    /// Unmounts, which writes all that is dirty.
    pub(crate) async fn end(self, handle: &Handle) -> Result<(), RunError> {
        Ok(handle.blocking(move || self.mount.unmount()).await??)
    }
}
