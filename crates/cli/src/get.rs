//! `weir get`: files of an image to the host.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use clap::Args;
use weir_image::GetOptions;

use crate::error::CliError;
use crate::image::{Access, tell_left_out, with_image};

/// Arguments of `weir get`.
#[derive(Debug, Args)]
pub(crate) struct GetArguments {
    /// Copy directories with everything in them
    #[arg(short, long)]
    recursive: bool,
    /// Read what can be read of a damaged volume, as `weir volume repair` would leave it, and change nothing. Blocks that
    /// are lost become holes, and the exit code is 2 then
    #[arg(long)]
    salvage: bool,
    /// The image
    image: PathBuf,
    /// The path in the image of the file or directory to copy
    #[arg(value_name = "SOURCE")]
    path: OsString,
    /// The path to copy it to. A file goes into a directory that is there; so do the entries of a directory. What is
    /// damaged in the image is reported and left out, and the exit code is 2 then
    #[arg(value_name = "TARGET")]
    local: PathBuf,
}

/// Runs the command.
pub(crate) fn run(arguments: &GetArguments) -> Result<(), CliError> {
    let inside = arguments.path.as_bytes();
    let access = if arguments.salvage { Access::Salvage } else { Access::Read };
    with_image(&arguments.image, access, async |image| {
        let options = GetOptions {
            recursive: arguments.recursive,
            salvage: arguments.salvage,
            ..GetOptions::default()
        };
        let mut told = |damage: &weir_image::ImageError| {
            // Where standard error is closed, too, the exit code still says it.
            let _ = writeln!(std::io::stderr(), "weir: {}", image.about(damage));
        };
        let copied = weir_image::get(&*image.filesystem, inside, &arguments.local, &options, &mut told).await;
        let copied = copied.map_err(image.failed())?;
        tell_left_out(copied.left_out, "the host's filesystem, or your permissions, do not allow them");
        match copied.failed {
            0 => Ok(()),
            failed => Err(CliError::Incomplete { failed }),
        }
    })
}
