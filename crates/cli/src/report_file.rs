//! Files that reports and logs go to.
//!
//! Others may write where such a file lies, and change what its path leads to. So what is looked at is what is written:
//! a regular file of the user's own, with no link as its last step and no other name.
//!
//! A report may also go to standard output or standard error where that is a pipe or a terminal, by any path, such as
//! /dev/stdout: nothing is opened for that, and it goes where the program writes anyhow.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::geteuid;

use crate::error::CliError;

/// The first descriptor that has no meaning of its own.
const DESCRIPTOR_MIN: i32 = 3;

/// Opens a log to append to: a file only, since a server in the background keeps nothing that its caller has open.
pub(crate) fn append(path: &Path) -> Result<File, CliError> {
    Ok(open(path, "write the log to", OFlags::WRONLY | OFlags::APPEND)?.0)
}

/// Writes a report, which begins with `beginning`, with the checks of [`create`].
pub(crate) fn write(path: &Path, beginning: &str, report: &str) -> Result<(), CliError> {
    let failed = |source| CliError::File { doing: "write", path: path.to_owned(), source };
    create(path, beginning)?.write_all(report.as_bytes()).map_err(failed)
}

/// Makes the checks of [`create`] in advance, and changes nothing.
pub(crate) fn check(path: &Path, beginning: &str) -> Result<(), CliError> {
    if standard(path).is_some() {
        return Ok(());
    }
    match open_replaceable(path, beginning)? {
        (_, true) => std::fs::remove_file(path).map_err(|source| CliError::File {
            doing: "remove",
            path: path.to_owned(),
            source,
        }),
        (_, false) => Ok(()),
    }
}

/// Opens a file that is written anew. One that is there already is overwritten only if it begins as such a report does:
/// what was named by mistake may be a volume. Standard output and standard error are taken where they are no files.
pub(crate) fn create(path: &Path, beginning: &str) -> Result<File, CliError> {
    if let Some(output) = standard(path) {
        return Ok(output);
    }
    let (file, _) = open_replaceable(path, beginning)?;
    let failed = |source| CliError::File { doing: "create", path: path.to_owned(), source };
    file.set_len(0).map_err(failed)?;
    Ok(file)
}

/// Opens a file whose content may be overwritten; and whether it was made.
fn open_replaceable(path: &Path, beginning: &str) -> Result<(File, bool), CliError> {
    let failed = |source| CliError::File { doing: "look at", path: path.to_owned(), source };
    let (file, made) = open(path, "create", OFlags::RDWR)?;
    if file.metadata().map_err(failed)?.len() > 0 {
        let mut start = vec![0; beginning.len()];
        let is_whole = match file.read_exact_at(&mut start, 0) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => false,
            read => read.map(|()| true).map_err(failed)?,
        };
        if !is_whole || start != beginning.as_bytes() {
            return Err(CliError::NotOverwritten(path.to_owned()));
        }
    }
    Ok((file, made))
}

/// Standard output or standard error, if that is what the path leads to, and it is a pipe or a character device.
fn standard(path: &Path) -> Option<File> {
    // Links are followed: the file is opened only to read its attributes.
    let there = fstat(openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?).ok()?;
    if !matches!(FileType::from_raw_mode(there.st_mode), FileType::Fifo | FileType::CharacterDevice) {
        return None;
    }
    let (output, error) = (std::io::stdout(), std::io::stderr());
    let is_there = |own: &BorrowedFd<'_>| {
        fstat(own).is_ok_and(|own| (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino))
    };
    let own = [output.as_fd(), error.as_fd()].into_iter().find(is_there)?;
    Some(fcntl_dupfd_cloexec(own, DESCRIPTOR_MIN).ok()?.into())
}

/// Opens a new file, which is its owner's alone, since it may name what is on a mount; or one of the user's own. Says
/// whether it is new.
fn open(path: &Path, doing: &'static str, access: OFlags) -> Result<(File, bool), CliError> {
    let failed = |errno: Errno| CliError::File { doing, path: path.to_owned(), source: errno.into() };
    let access = access | OFlags::CLOEXEC;
    match openat(CWD, path, access | OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR) {
        Err(Errno::EXIST) => {}
        made => return Ok((made.map_err(failed)?.into(), true)),
    }
    // Only to read its attributes, which does nothing to a device, a pipe or a link.
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
    // A user who may write to this directory can make a link in it to a file elsewhere.
    if found.st_nlink != 1 {
        return refused("a file with another name, too");
    }
    // The same file, whatever has its name by now.
    let same = format!("/proc/self/fd/{}", there.as_raw_fd());
    Ok((openat(CWD, same, access, Mode::empty()).map_err(failed)?.into(), false))
}
