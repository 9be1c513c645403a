//! What opening a volume says of its owner, and of room below it that the volume does not use.

use tracing::Level;
use weir_storage::{FileDisk, Standing, Storage as _};
use weir_volume::Info;

use crate::error::CliError;
use crate::log_line::LogLine;
use crate::size::Size;

/// Whether a volume that is only read may change under the reader: refuses a copy of a volume that a process has open, and
/// says on standard error that another host may have it open.
///
/// # Errors
/// [`CliError::CopyOfOpen`].
pub(crate) fn admit_reader(disk: &FileDisk, info: &Info, after_crash: bool) -> Result<(), CliError> {
    let Some(opener) = &info.opener else { return Ok(()) };
    let path = disk.path();
    match disk.standing(opener) {
        Standing::Running if !after_crash => {
            Err(CliError::CopyOfOpen { path: path.to_owned(), process: opener.process })
        }
        Standing::Unknown => {
            let message = format!(
                "{}: process {} on {} had it open, and did not close it: if it is mounted there, what you read may be \
                 wrong",
                path.display(),
                opener.process,
                opener.host_name()
            );
            LogLine::new(Level::WARN, "open_elsewhere", message)
                .with_path(path)
                .with("host", opener.host_name())
                .print();
            Ok(())
        }
        Standing::Running | Standing::Ended => Ok(()),
    }
}

/// Says on standard error if a file or device is larger than the volume on it.
pub(crate) fn tell_of_unused(disk: &FileDisk, info: &Info) {
    // The file of a mount with `--cache` cannot be resized.
    if disk.blocks() <= info.physical_blocks || info.base.is_some() {
        return;
    }
    let (used, found) = (Size::of_blocks(info.physical_blocks), Size::of_blocks(disk.blocks()));
    let path = disk.path();
    let message = format!(
        "{}: the volume uses {used} of {found}: `weir volume grow` takes the rest in",
        path.display()
    );
    LogLine::new(Level::INFO, "space_unused", message).with_path(path).print();
}
