//! How the server of a mount is asked to change its volume.

use std::path::Path;

use rustix::fs::{Mode, OFlags, XattrFlags, fsetxattr, open, syncfs};
use rustix::io::Errno;
use weir_fuse::VolumeCall;
use weir_fuse::control::VOLUME_ATTRIBUTE;

use crate::error::CliError;
use crate::status;

/// Asks the server of a mount to change its volume; `explain` says what its answer means.
pub(crate) fn ask_server(
    path: &Path,
    call: &VolumeCall,
    explain: impl Fn(Errno) -> CliError,
) -> Result<(), CliError> {
    status::ask(path)?;
    let ask = || {
        let directory = open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        if matches!(call, VolumeCall::Snapshot(_)) {
            // What the kernel still has of files belongs into the snapshot, too.
            syncfs(&directory)?;
        }
        fsetxattr(&directory, VOLUME_ATTRIBUTE, call.to_value().as_bytes(), XattrFlags::empty())
    };
    ask().map_err(explain)
}
