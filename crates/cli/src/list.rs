//! `weir ls` and `weir cat`: what is in an image.

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use clap::Args;

use crate::error::CliError;
use crate::image::{Access, with_image};
use crate::plain;

/// Arguments of `weir ls`.
#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// Show type, permissions, links, owner, group, size and time, too
    #[arg(short, long)]
    long: bool,
    /// The image
    image: PathBuf,
    /// A directory or file in the image
    #[arg(default_value = "/")]
    path: OsString,
}

/// Arguments of `weir cat`.
#[derive(Debug, Args)]
pub(crate) struct CatArguments {
    /// The image
    image: PathBuf,
    /// A file in the image
    path: OsString,
}

/// Runs `weir ls`.
pub(crate) fn run(arguments: &ListArguments) -> Result<(), CliError> {
    let inside = arguments.path.as_bytes();
    with_image(&arguments.image, Access::Read, async |image| {
        let lines = weir_image::list(&*image.filesystem, inside, arguments.long).await;
        let mut output = std::io::stdout().lock();
        let is_terminal = output.is_terminal();
        for line in lines.map_err(image.failed())? {
            output.write_all(&if is_terminal { plain::of_line(&line) } else { line })?;
            output.write_all(b"\n")?;
        }
        Ok(output.flush()?)
    })
}

/// Runs `weir cat`.
pub(crate) fn cat(arguments: &CatArguments) -> Result<(), CliError> {
    let inside = arguments.path.as_bytes();
    with_image(&arguments.image, Access::Read, async |image| {
        let mut output = std::io::stdout().lock();
        weir_image::cat(&*image.filesystem, inside, &mut output).await.map_err(image.failed())
    })
}
