//! *Scratch*: a directory for states and mounts, which is removed when it is dropped, and with it no file of what is mounted there.

use std::io;
use std::path::Path;

use tempfile::TempDir;

use crate::mount_points::remove_directory;

/// See the head of this file.
#[derive(Debug)]
pub struct Scratch(TempDir);

impl Scratch {
    /// A new one in a directory.
    ///
    /// # Errors
    /// What making a directory fails by.
    pub fn new_in(parent: &Path) -> io::Result<Scratch> {
        let mut made = tempfile::Builder::new().prefix("weir-crash-").tempdir_in(parent)?;
        // It is removed below, or stays.
        made.disable_cleanup(true);
        Ok(Scratch(made))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A drop returns no error.
        let _ = remove_directory(self.path());
    }
}
