//! Files that reports and logs go to.
//!
//! Others may write where such a file lies, and change what its path leads to. So what is looked at is what is written:
//! a regular file of the user's own, with no link as its last step.

use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::error::CliError;

/// Opens a log to append to.
pub(crate) fn append(path: &Path) -> Result<File, CliError> {
    open(path, "write the log to", OFlags::WRONLY | OFlags::APPEND)
}

/// Opens a file that is written anew. One that is there already is overwritten only if it begins as such a report does:
/// what was named by mistake may be a volume.
pub(crate) fn create(path: &Path, beginning: &str) -> Result<File, CliError> {
    let failed = |doing| move |source| CliError::File { doing, path: path.to_owned(), source };
    let file = open(path, "create", OFlags::RDWR)?;
    if file.metadata().map_err(failed("look at"))?.len() > 0 {
        let mut start = vec![0; beginning.len()];
        let is_whole = match file.read_exact_at(&mut start, 0) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => false,
            read => read.map(|()| true).map_err(failed("look at"))?,
        };
        if !is_whole || start != beginning.as_bytes() {
            return Err(CliError::NotOverwritten { path: path.to_owned() });
        }
        file.set_len(0).map_err(failed("create"))?;
    }
    Ok(file)
}

/// Opens a new file, which is its owner's alone, since it may name what is on a mount; or one of the user's own.
fn open(path: &Path, doing: &'static str, access: OFlags) -> Result<File, CliError> {
    let failed = |errno: Errno| CliError::File { doing, path: path.to_owned(), source: errno.into() };
    let access = access | OFlags::CLOEXEC;
    match openat(CWD, path, access | OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR) {
        Err(Errno::EXIST) => {}
        made => return Ok(made.map_err(failed)?.into()),
    }
    // Only to look at it: to a device, a pipe or a link that is nothing.
    let look = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let there: OwnedFd = openat(CWD, path, look, Mode::empty()).map_err(failed)?;
    let found = fstat(&there).map_err(failed)?;
    let refused = |what| Err(CliError::NoReportFile { path: path.to_owned(), what });
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return refused("no regular file");
    }
    if found.st_uid != geteuid().as_raw() {
        return refused("another user's file");
    }
    // The same file, whatever has its name by now.
    let same = format!("/proc/self/fd/{}", there.as_raw_fd());
    Ok(openat(CWD, same, access, Mode::empty()).map_err(failed)?.into())
}
