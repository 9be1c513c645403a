//! How a server has its mount: it has mounted it, or it has taken it over from the server before.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use fuser::Session;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{UnmountFlags, unmount};

use crate::server::Handshake;

/// A mount, which ends when this is dropped.
pub(crate) enum Attachment {
    /// The session has mounted it, and unmounts; its own way to take requests in is not used.
    Mounted(Session<Handshake>),
    TakenOver(TakenOver),
}

impl Attachment {
    /// A mount that was taken over, by its descriptor of `/dev/fuse`.
    pub(crate) fn from_device(device: OwnedFd, mountpoint: &Path) -> Attachment {
        let (device, mountpoint) = (Arc::new(File::from(device)), mountpoint.to_owned());
        Attachment::TakenOver(TakenOver { device, mountpoint })
    }

    /// The descriptor of `/dev/fuse` that belongs to the mount.
    ///
    /// # Errors
    /// What the system says if there is no descriptor left.
    pub(crate) fn device(&self) -> io::Result<Arc<File>> {
        match self {
            Attachment::Mounted(session) => Ok(Arc::new(File::from(session.as_fd().try_clone_to_owned()?))),
            Attachment::TakenOver(taken) => Ok(Arc::clone(&taken.device)),
        }
    }

    /// What unmounts, on another thread.
    pub(crate) fn unmounter(&mut self) -> Box<dyn FnOnce() -> io::Result<()> + Send> {
        match self {
            Attachment::Mounted(session) => {
                let mut session = session.unmount_callable();
                Box::new(move || session.unmount())
            }
            Attachment::TakenOver(taken) => {
                let (device, mountpoint) = (Arc::clone(&taken.device), taken.mountpoint.clone());
                Box::new(move || end_mount(&device, &mountpoint, UnmountFlags::empty()))
            }
        }
    }
}

/// A mount that was taken over.
pub(crate) struct TakenOver {
    device: Arc<File>,
    mountpoint: PathBuf,
}

impl Drop for TakenOver {
    fn drop(&mut self) {
        // No caller is left that could get the error.
        let _ = end_mount(&self.device, &self.mountpoint, UnmountFlags::DETACH);
    }
}

/// Ends a mount, unless the kernel has ended it: then another one may be there. Users other than the superuser need a helper.
fn end_mount(device: &File, mountpoint: &Path, flags: UnmountFlags) -> io::Result<()> {
    let mut ended = [PollFd::new(device, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut ended, Some(&at_once))? > 0 && ended[0].revents().contains(PollFlags::ERR) {
        return Ok(());
    }
    match unmount(mountpoint, flags) {
        Err(rustix::io::Errno::PERM) => {
            let helper =
                Command::new("fusermount3").args(["-u", "-q", "-z", "--"]).arg(mountpoint).status()?;
            if helper.success() { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
        }
        done => Ok(done?),
    }
}
