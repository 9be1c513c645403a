//! Filesystem images, used without a mount in the kernel.

use std::path::Path;

use weir_fs::{Filesystem, FsError, InodeNumber};
use weir_runtime::Handle;

use crate::error::CliError;
use crate::in_wall_time;
use crate::stack::Stack;

/// A filesystem, and the names to tell of it.
#[derive(Clone)]
pub(crate) struct Image<'a> {
    path: &'a Path,
    pub(crate) filesystem: Filesystem,
}

/// What a command does with an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Change,
}

/// Runs `work` on the filesystem in an image, and unmounts it.
pub(crate) fn with_image<T>(
    path: &Path,
    access: Access,
    work: impl AsyncFnOnce(&Image<'_>) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let read_only = access == Access::Read;
    in_wall_time(0, async |handle: Handle| {
        let stack = Stack::open(&handle, path, read_only).await?;
        let filesystem = stack.filesystem(&handle, path, read_only).await?;
        let done = work(&Image { path, filesystem: filesystem.clone() }).await;
        let unmounted = filesystem.unmount().await;
        // What went wrong first is what to tell.
        let value = done?;
        unmounted.map_err(|source| CliError::Image { path: path.to_owned(), source })?;
        stack.close(path).await?;
        Ok(value)
    })
}

impl Image<'_> {
    /// An error about a path in the image.
    pub(crate) fn failed(&self, inside: &[u8]) -> impl FnOnce(FsError) -> CliError {
        let path = self.path.to_owned();
        let inside = String::from_utf8_lossy(inside).into_owned();
        |source| CliError::InImage { path, inside, source }
    }

    /// What a path in the image stands for, links at its end not followed.
    pub(crate) async fn resolve(&self, inside: &[u8]) -> Result<InodeNumber, CliError> {
        self.filesystem.resolve(inside).await.map_err(self.failed(inside))
    }
}

/// A path in an image with another name behind it.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name].concat()
}
