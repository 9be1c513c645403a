//! `weir put`: files of the host into an image.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use clap::Args;

use crate::error::CliError;
use crate::image::{Access, tell_left_out, with_image};

/// Arguments of `weir put`.
#[derive(Debug, Args)]
pub(crate) struct PutArguments {
    /// Copy directories with everything in them
    #[arg(short, long)]
    recursive: bool,
    /// The image
    image: PathBuf,
    /// The file or directory to copy
    #[arg(value_name = "SOURCE")]
    local: PathBuf,
    /// The path in the image to copy it to. A file goes into a directory that is there; so do the entries of a
    /// directory. A file that is replaced stays until the new one is whole
    #[arg(value_name = "TARGET")]
    path: OsString,
}

/// Runs the command.
pub(crate) fn run(arguments: &PutArguments) -> Result<(), CliError> {
    let local = &arguments.local;
    let metadata = std::fs::symlink_metadata(local).map_err(|source| CliError::File {
        doing: "read",
        path: local.clone(),
        source,
    })?;
    if metadata.is_dir() && !arguments.recursive {
        return Err(CliError::Directory(local.clone()));
    }
    with_image(&arguments.image, Access::Change, async |image| {
        let inside = arguments.path.as_bytes();
        let put = weir_image::put(&*image.filesystem, local, inside, arguments.recursive).await;
        tell_left_out(
            put.map_err(image.failed())?,
            "BarrierFS keeps those that begin with user., trusted. or security., and access control lists",
        );
        Ok(())
    })
}
