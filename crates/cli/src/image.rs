//! Images, used without a mount in the kernel.

use std::path::Path;

use weir_fs::{BarrierFs, MountOptions};
use weir_image::ImageError;
use weir_lfs::{F2fs, F2fsOptions};
use weir_runtime::Handle;
use weir_vfs::Filesystem;

use crate::error::CliError;
use crate::stack::Stack;
use crate::{in_wall_time, messages};

/// A filesystem, and its names in messages.
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
    /// What is left of a damaged volume.
    Salvage,
}

/// Runs `work` on the filesystem in an image, and unmounts it.
pub(crate) fn with_image<T>(
    path: &Path,
    access: Access,
    work: impl AsyncFnOnce(&Image<'_>) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let read_only = access != Access::Change;
    in_wall_time(0, async |handle: Handle| {
        // What was passed over is told, such as a damaged copy; without a place to write to, the work is done all the same.
        let _ = messages::send_to(None, false);
        let (stack, filesystem) = match access {
            Access::Salvage => {
                let stack = Stack::salvage(&handle, path).await?;
                let filesystem = filesystem_in_memory(&handle, path, &stack).await?;
                (stack, filesystem)
            }
            Access::Read | Access::Change => {
                let stack = Stack::open(&handle, path, read_only).await?;
                let filesystem = mount(&handle, path, &stack, read_only).await?;
                (stack, filesystem)
            }
        };
        let done = work(&Image { path, filesystem: filesystem.clone() }).await;
        let unmounted = filesystem.unmount().await;
        // The first error is the one to report.
        let value = done?;
        unmounted.map_err(|source| CliError::Image { path: path.to_owned(), source })?;
        stack.close(path).await?;
        Ok(value)
    })
}

/// Mounts what is on a stack, whichever format it has.
async fn mount(handle: &Handle, path: &Path, stack: &Stack, read_only: bool) -> Result<Filesystem, CliError> {
    if F2fs::is_on(&stack.storage()).await {
        let options = F2fsOptions { read_only, ..F2fsOptions::default() };
        return Ok(stack.f2fs(handle, path, options).await?.into());
    }
    let options = MountOptions { read_only, ..MountOptions::default() };
    Ok(stack.filesystem(handle, path, options).await?.into())
}

/// The filesystem of a stack whose changes are kept in memory, what a crash has left of it recovered.
pub(crate) async fn filesystem_in_memory(
    handle: &Handle,
    path: &Path,
    stack: &Stack,
) -> Result<Filesystem, CliError> {
    match mount(handle, path, stack, true).await {
        Err(CliError::NeedsRecovery { .. }) => {
            let recovered = BarrierFs::recover(handle, stack.storage()).await;
            recovered.map_err(|source| CliError::Image { path: path.to_owned(), source })?;
            mount(handle, path, stack, true).await
        }
        mounted => mounted,
    }
}

impl Image<'_> {
    /// An error of a call, with the image that it is about.
    pub(crate) fn failed(&self) -> impl FnOnce(ImageError) -> CliError {
        let path = self.path.to_owned();
        |error| match error {
            ImageError::Host { doing, path, source } => CliError::File { doing, path, source },
            ImageError::Directory { path } => CliError::Directory(path),
            ImageError::Output(source) => CliError::Output(source),
            ImageError::InImage { inside, source } => CliError::InImage { path, inside, source },
            overfull @ ImageError::Overfull { .. } => CliError::Overfull { path, source: overfull },
        }
    }

    /// The error for damage.
    pub(crate) fn about(&self, damage: &ImageError) -> String {
        match damage {
            ImageError::InImage { inside, source } => {
                format!("{inside} in {}: {source}", self.path.display())
            }
            other => other.to_string(),
        }
    }
}

/// Says that attributes were not copied, and why.
pub(crate) fn tell_left_out(count: u64, why: &str) {
    if count > 0 {
        eprintln!("weir: {count} extended attributes were left out: {why}");
    }
}
