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
    if path.metadata().is_ok_and(|found| found.file_type().is_block_device()) {
        return Err(CliError::NotOverwritten { path: path.to_owned() });
    }
    if path.metadata().is_ok_and(|found| found.is_file() && found.len() > 0) {
        let mut found = String::new();
        let start = File::open(path).map_err(failed("look at"))?.take(beginning.len() as u64);
        let is_text = { start }.read_to_string(&mut found).is_ok();
        if !is_text || found != beginning {
            return Err(CliError::NotOverwritten { path: path.to_owned() });
        }
    }
    File::create(path).map_err(failed("create"))
}
