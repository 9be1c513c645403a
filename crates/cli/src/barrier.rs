//! `weir barrier`: all that was done below a mount before, by any program, is before all that comes after.

use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use clap::Args;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use weir::weir_order_tree;

use crate::error::CliError;
use crate::status;

/// Arguments of `weir barrier`.
#[derive(Debug, Args)]
pub(crate) struct BarrierArguments {
    /// A directory or file on the mount
    path: PathBuf,
}

/// Runs the command.
pub(crate) fn run(arguments: &BarrierArguments) -> Result<(), CliError> {
    let path = &arguments.path;
    status::ask(path)?;
    let failed =
        |source| CliError::File { doing: "order what is on the mount of", path: path.clone(), source };
    let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let file = file.map_err(|errno| failed(errno.into()))?;
    match weir_order_tree(file.as_raw_fd()) {
        0 => Ok(()),
        _ => Err(match std::io::Error::last_os_error() {
            error if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
                CliError::NoBarrier(path.clone())
            }
            error => failed(error),
        }),
    }
}
