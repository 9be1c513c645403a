//! `weir umount`: make everything on a mount durable, end it, and wait until its server has ended.
//!
//! `umount` returns when the kernel has ended the mount, which is before the server has written everything, and an
//! error of the server is lost. This command reports it before anything ends, and the volume is free when it returns.
//!
//! The kernel hands over later what programs wrote through shared mappings. If that failed, the kernel says so once, to
//! the first caller that asks, and also of files that were deleted since. The server knows which files lack data now,
//! and says so as long as they do.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{XattrFlags, fsetxattr, syncfs};
use rustix::io::{Errno, retry_on_intr};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, getuid, pidfd_open};
use weir_fuse::control::{STATUS_ATTRIBUTE, SYNC_ALL};

use crate::error::CliError;
use crate::messages;
use crate::mountpoint::{above, is_mount_of_ours, keeper, owner_if_other, place_of};
use crate::serve_status::socket_of;
use crate::size::Size;
use crate::status::{self, Status};

/// How long a server may take to end before the command names the process that keeps the mount, if there is one.
const PATIENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Space that has to be free below before a mount is ended whose disk ran full: enough to mount it again.
const ROOM_BELOW: Size = Size(16 << 20);

/// Arguments of `weir umount`.
#[derive(Debug, Args)]
pub(crate) struct UmountArguments {
    /// The directory that a filesystem is mounted on
    mountpoint: PathBuf,
    /// How long to wait for the server's first answer; what it has to write then takes its time
    #[arg(long, value_name = "SECONDS", default_value_t = status::ANSWERED_WITHIN, value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
}

/// Runs the command.
pub(crate) fn run(arguments: &UmountArguments) -> Result<(), CliError> {
    let path = &arguments.mountpoint;
    if socket_of(path)?.is_some() {
        let process = status::ask(path)?.pid;
        return Err(CliError::Served { path: path.clone(), process });
    }
    let other = owner_if_other(path);
    if let Some(owner) = other.as_ref().filter(|_| !getuid().is_root()) {
        return Err(not_the_owner(path, owner));
    }
    status::require_answer(path, arguments.timeout)?;
    // Opened while the server surely lives: later its number may be another process's.
    let (server, status) = match (server(path), other) {
        (Err(CliError::ServerEnded(_)), _) => return remove_dead(path),
        // Without --allow-other, FUSE keeps out even the superuser.
        (Err(error), Some(owner)) if error.is_denied() => return Err(not_the_owner(path, &owner)),
        (server, _) => server?,
    };
    if status.replication.is_some() {
        // No writer waits for the store then, such as the kernel when it hands over what it keeps. What fails here fails below, too.
        let _ =
            File::open(path).map(|root| fsetxattr(&root, STATUS_ATTRIBUTE, SYNC_ALL, XattrFlags::empty()));
    }
    match status.is_full_below() {
        true => give_up_the_rest(path, &status)?,
        false => synchronise(path).or_else(|error| match status::ask(path) {
            // It ran full only now.
            Ok(now) if now.is_full_below() => give_up_the_rest(path, &now),
            _ => Err(error),
        })?,
    }
    let device = path.metadata().map(|found| found.dev());
    let now = status.replication.as_ref().and_then(|_| status::ask(path).ok()?.replication);
    let left = now.and_then(|found| found.left_text());
    end(path)?;
    if let Some(left) = left {
        messages::print_message(&format!("{}: {left}", path.display()));
    }
    let mut ended = [PollFd::new(&server, PollFlags::IN)];
    let mut wait = |patience: Option<&Timespec>| {
        retry_on_intr(|| poll(&mut ended, patience)).map_err(failed("wait for the server of", path))
    };
    let ended_in_time = wait(Some(&PATIENCE))? > 0;
    if ended_in_time {
        return require_whole_file(path, &status);
    }
    if let Some(keeper) = device.ok().and_then(keeper) {
        let path = path.display();
        let told = format!(
            "weir: {path} is unmounted here, but process {keeper} sees it in a mount namespace of its own; waiting \
             until that has ended, or `nsenter -t {keeper} -m umount {path}` is run"
        );
        let _ = writeln!(std::io::stderr(), "{told}");
    }
    wait(None)?;
    require_whole_file(path, &status)
}

/// Fails if the file of what was mounted had been cut: no call of the server need have noticed.
fn require_whole_file(path: &Path, status: &Status) -> Result<(), CliError> {
    match status.storage.cut_file_bytes {
        Some(bytes) => {
            Err(CliError::FileCut { path: path.to_owned(), bytes, check: status.storage.check_command() })
        }
        None => Ok(()),
    }
}

fn not_the_owner(path: &Path, owner: &str) -> CliError {
    let (path, owner) = (path.to_owned(), owner.to_owned());
    CliError::OtherOwner { path, owner, doing: "end it", command: "umount" }
}

fn failed(doing: &'static str, path: &Path) -> impl Fn(Errno) -> CliError {
    move |errno| CliError::File { doing, path: path.to_owned(), source: errno.into() }
}

/// The process that serves a mount, and its status.
fn server(path: &Path) -> Result<(OwnedFd, Status), CliError> {
    let status = status::ask(path).map_err(|error| match error {
        CliError::File { path, source, .. } => CliError::File { doing: "unmount", path, source },
        other => other,
    });
    let status = status?;
    let pid = Pid::from_raw(status.pid.cast_signed());
    let pid = pid.ok_or_else(|| CliError::NotMounted(path.to_owned()))?;
    let server = pidfd_open(pid, PidfdFlags::empty()).map_err(failed("find the server of", path))?;
    Ok((server, status))
}

/// Where the disk below ran full, what was not durable by then cannot be made so by this server. The mount is needed to copy it, so
/// it stays until there is room for the next one.
fn give_up_the_rest(path: &Path, status: &Status) -> Result<(), CliError> {
    if let Some(free) = status.storage.free_below.map(Size).filter(|free| *free < ROOM_BELOW) {
        return Err(CliError::FullBelow { path: path.to_owned(), free, needed: ROOM_BELOW });
    }
    messages::print_message(&format!(
        "{}: the disk below ran full: what was durable by then is safe, and writes that were not are lost, as in a crash. \
         Mount it again, which recovers the rest.",
        path.display()
    ));
    Ok(())
}

/// Makes everything durable.
fn synchronise(path: &Path) -> Result<(), CliError> {
    let not_durable = |source: std::io::Error| match source.kind() {
        ErrorKind::PermissionDenied => CliError::MayNotSynchronise(path.to_owned()),
        _ => CliError::NotDurable { path: path.to_owned(), source },
    };
    let directory = File::open(path).map_err(not_durable)?;
    // The kernel hands over dirty pages of shared mappings first.
    let handed_over = syncfs(&directory);
    let synchronised = match fsetxattr(&directory, STATUS_ATTRIBUTE, SYNC_ALL, XattrFlags::empty()) {
        // Nothing was written.
        Err(Errno::ROFS) => Ok(()),
        done => done,
    };
    let Err(errno) = synchronised.and(handed_over) else { return Ok(()) };
    let told = status::ask(path).ok();
    let takes_changes = told.as_ref().is_some_and(|status| status.read_only().is_none());
    match told.and_then(|status| status.lost()) {
        Some(lost) if lost.incomplete_files > 0 && takes_changes => Err(CliError::LostPages {
            path: path.to_owned(),
            files: lost.incomplete_files,
            inode: lost.incomplete_inode.unwrap_or_default(),
            source: errno.into(),
        }),
        // The pages are not needed any more: their files were deleted, cut or written again since.
        Some(lost) if synchronised.is_ok() && lost.mapped_writes_failed > 0 => Ok(()),
        _ => Err(not_durable(errno.into())),
    }
}

/// Removes a mount whose server has ended. Nothing of it can be made durable any more. Programs that still use it do
/// not prevent that: the kernel forgets the mount with the last of them.
fn remove_dead(path: &Path) -> Result<(), CliError> {
    let Some(place) = place_of(path).filter(|place| is_mount_of_ours(place)) else {
        return Err(CliError::NotMountpoint { path: path.to_owned(), mountpoint: above(path) });
    };
    let is_busy = match unmount(&place, UnmountFlags::NOFOLLOW) {
        Err(Errno::BUSY) => true,
        // Other users need the helper, which does not say whether programs use it.
        Err(Errno::PERM) => false,
        done => return done.map(|()| tell_of_death(path, false)).map_err(failed("unmount", path)),
    };
    match unmount(&place, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Err(Errno::PERM) => ask_helper(&place, &["-u", "-z"])?,
        done => done.map_err(failed("unmount", path))?,
    }
    tell_of_death(path, is_busy);
    Ok(())
}

fn tell_of_death(path: &Path, is_busy: bool) {
    let users = if is_busy { " Programs that have files open there get errors from them." } else { "" };
    let path = path.display();
    let told = format!(
        "weir: {path}: its server had ended without unmounting, and writes that were not durable then are lost; the dead \
         mount is removed. Mount it again, which recovers the rest.{users}"
    );
    let _ = writeln!(std::io::stderr(), "{told}");
}

/// Unmounts; users other than the superuser need a helper for that, as for mounting.
fn end(path: &Path) -> Result<(), CliError> {
    match unmount(path, UnmountFlags::empty()) {
        Err(Errno::PERM) => {}
        // A server answered, so the mountpoint is above.
        Err(Errno::INVAL) => {
            return Err(CliError::NotMountpoint { path: path.to_owned(), mountpoint: above(path) });
        }
        Err(Errno::BUSY) => return Err(CliError::MountBusy(path.to_owned())),
        done => return done.map_err(failed("unmount", path)),
    }
    ask_helper(path, &["-u"])
}

/// Has the helper of FUSE unmount.
fn ask_helper(path: &Path, options: &[&str]) -> Result<(), CliError> {
    let helper = Command::new("fusermount3").args(options).arg(path).status();
    let helper = helper.map_err(|source| CliError::File {
        doing: "run fusermount3, which users other than root need to unmount (package fuse3)",
        path: path.to_owned(),
        source,
    })?;
    // It has printed the cause to standard error.
    if helper.success() { Ok(()) } else { Err(CliError::Silent) }
}
