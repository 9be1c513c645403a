//! Files that reports and logs go to.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::error::CliError;

/// Permissions of a new one: its owner's alone, since it may name what is on a mount.
const OWNERS_ALONE: u32 = 0o600;

/// Opens a log to append to.
pub(crate) fn append(path: &Path) -> Result<File, CliError> {
    let log = File::options().create(true).append(true).mode(OWNERS_ALONE).open(path);
    log.map_err(|source| CliError::File { doing: "write the log to", path: path.to_owned(), source })
}

/// Opens a file that is written anew. One that is there already is overwritten only if it begins as such a report does:
/// what was named by mistake may be a volume. A block device never is.
pub(crate) fn create(path: &Path, beginning: &str) -> Result<File, CliError> {
    let failed = |doing| move |source| CliError::File { doing, path: path.to_owned(), source };
    let may_be_written = match path.metadata() {
        Ok(found) if found.file_type().is_block_device() => false,
        Ok(found) if found.is_file() && found.len() > 0 => {
            let mut start = Vec::new();
            let file = File::open(path).map_err(failed("look at"))?;
            file.take(beginning.len() as u64).read_to_end(&mut start).map_err(failed("look at"))?;
            start == beginning.as_bytes()
        }
        // Not there, empty, or where a program takes it up.
        _ => true,
    };
    if !may_be_written {
        return Err(CliError::NotOverwritten { path: path.to_owned() });
    }
    let file = File::options().write(true).create(true).truncate(true).mode(OWNERS_ALONE).open(path);
    file.map_err(failed("create"))
}
