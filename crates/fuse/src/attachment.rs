//! How a server has its mount: it has mounted it, or it has taken it over from the server before.
//!
//! A mount may leave its place while it lives: `umount -l` detaches it, and it ends when the last program has closed its files; and a
//! directory above it may be renamed. Another mount may be at its place then, which is not to be unmounted.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use fuser::Session;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use crate::server::Handshake;

/// A mount, which ends when this is dropped.
pub(crate) struct Attachment {
    place: MountPlace,
    /// What has mounted it. Dropped, it would unmount whatever is at the place by then.
    session: Option<ManuallyDrop<Session<Handshake>>>,
    /// It has ended, or nothing more can be done for that.
    has_ended: bool,
}

/// Where a mount was made.
#[derive(Clone)]
struct MountPlace {
    device: Arc<File>,
    mountpoint: PathBuf,
    /// The number of what was mounted there, if it could be read.
    number: Option<(u32, u32)>,
}

/// What became of a mount that was to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MountEnd {
    Unmounted,
    /// It was detached or moved before, and stays as it is.
    Detached,
}

impl Attachment {
    /// A mount that a session has made, by its descriptor of `/dev/fuse`.
    ///
    /// # Errors
    /// What the system says if there is no descriptor left.
    pub(crate) fn from_session(session: Session<Handshake>, mountpoint: &Path) -> io::Result<Attachment> {
        let device = session.as_fd().try_clone_to_owned()?;
        let mut attachment = Attachment::from_device(device, mountpoint);
        attachment.session = Some(ManuallyDrop::new(session));
        Ok(attachment)
    }

    /// A mount that was taken over, by its descriptor of `/dev/fuse`.
    pub(crate) fn from_device(device: OwnedFd, mountpoint: &Path) -> Attachment {
        let (device, mountpoint) = (Arc::new(File::from(device)), mountpoint.to_owned());
        let place = MountPlace { device, mountpoint, number: None };
        Attachment { place, session: None, has_ended: false }
    }

    /// Whether another server has mounted it.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.session.is_none()
    }

    /// The descriptor of `/dev/fuse` that belongs to the mount.
    pub(crate) fn device(&self) -> &Arc<File> {
        &self.place.device
    }

    /// The directory on which it was mounted.
    pub(crate) fn mountpoint(&self) -> &Path {
        &self.place.mountpoint
    }

    /// Sets the number of what is mounted at the place, as [`read_device_number`] has read it.
    pub(crate) fn set_number(&mut self, number: Option<(u32, u32)>) {
        self.place.number = number;
    }

    /// What unmounts, on another thread, even if programs have files open on it.
    pub(crate) fn unmounter(&mut self) -> impl FnOnce() -> io::Result<MountEnd> + Send + use<> {
        self.has_ended = true;
        let place = self.place.clone();
        move || match place.end(UnmountFlags::empty()) {
            Err(_) => place.end(UnmountFlags::DETACH),
            ended => ended,
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if !self.has_ended {
            // No caller is left that could get the error.
            let _ = self.place.end(UnmountFlags::DETACH);
        }
    }
}

impl MountPlace {
    /// Ends the mount, unless the kernel has ended it, or it is not at its place. Users other than the superuser need a helper.
    fn end(&self, flags: UnmountFlags) -> io::Result<MountEnd> {
        let mut ended = [PollFd::new(&self.device, PollFlags::empty())];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut ended, Some(&at_once))? > 0 && ended[0].revents().contains(PollFlags::ERR) {
            return Ok(MountEnd::Unmounted);
        }
        if let (Some(number), Ok(found)) = (self.number, read_device_number(&self.mountpoint))
            && number != found
        {
            return Ok(MountEnd::Detached);
        }
        match unmount(&self.mountpoint, flags) {
            Ok(()) => Ok(MountEnd::Unmounted),
            // Nothing is mounted there.
            Err(Errno::INVAL | Errno::NOENT | Errno::NOTDIR) => Ok(MountEnd::Detached),
            Err(Errno::PERM) => {
                let mut helper = Command::new("fusermount3");
                match helper.args(["-u", "-q", "-z", "--"]).arg(&self.mountpoint).status()?.success() {
                    true => Ok(MountEnd::Unmounted),
                    false => Err(io::ErrorKind::PermissionDenied.into()),
                }
            }
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Reads the number of the device that a directory is on. No request is sent to its server.
pub(crate) fn read_device_number(directory: &Path) -> io::Result<(u32, u32)> {
    let found = statx(CWD, directory, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE)?;
    Ok((found.stx_dev_major, found.stx_dev_minor))
}
