//! Files that reports go to.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use crate::error::CliError;

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
    File::create(path).map_err(failed("create"))
}
