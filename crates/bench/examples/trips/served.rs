//! A server in a process of its own, and its mount.

use std::error::Error;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::getxattr;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

use crate::answers::{TIME_ATTRIBUTE, answer, request};
use crate::way::Way;
use crate::{device, queues};

pub struct Served {
    server: Child,
    mountpoint: TempDir,
}

impl Served {
    /// Starts a server, and waits until it has mounted.
    pub fn start(way: Way) -> io::Result<Served> {
        let mountpoint = tempfile::tempdir()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("serve").arg(way.title()).arg(mountpoint.path()).stdout(Stdio::piped());
        let mut server = command.spawn()?;
        let output = server.stdout.take();
        let served = Served { server, mountpoint };
        output.map_or(Ok(()), |mut output| output.read_exact(&mut [0]))?;
        Ok(served)
    }

    pub fn path(&self) -> &Path {
        self.mountpoint.path()
    }

    /// The server's processor time so far.
    pub fn time(&self) -> io::Result<Duration> {
        let mut value = [0; 8];
        getxattr(self.path(), TIME_ATTRIBUTE, &mut value)?;
        Ok(Duration::from_nanos(u64::from_ne_bytes(value)))
    }

    /// Unmounts, and waits for the server's end.
    pub fn end(mut self) -> io::Result<()> {
        unmount(self.path(), UnmountFlags::empty())?;
        let ended = self.server.wait()?;
        if ended.success() { Ok(()) } else { Err(io::Error::other("a server has failed")) }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // After `end` there is nothing left to do.
        if matches!(self.server.try_wait(), Ok(None)) {
            let _ = unmount(self.path(), UnmountFlags::DETACH);
            let _ = self.server.kill();
            let _ = self.server.wait();
        }
    }
}

/// Mounts, and serves until it is unmounted.
pub fn serve(way: &str, mountpoint: &Path) -> Result<(), Box<dyn Error>> {
    let way = Way::all().find(|known| known.title() == way).ok_or("there is no such way")?;
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    mount("trips", mountpoint, "fuse", MountFlags::empty(), Some(&*std::ffi::CString::new(options)?))?;
    let mut buffer = vec![0; 1 << 16];
    let length = (&device).read(&mut buffer)?;
    let asked = request(&buffer[..length]).ok_or("the kernel does not begin as it should")?;
    let agreed = answer(asked, way.uses_queues()).ok_or("the kernel does not begin")?;
    device::write(&device, &agreed)?;
    print!(".");
    io::Write::flush(&mut io::stdout())?;
    match way {
        Way::Device { watch, gives_way } => device::serve(device, watch, gives_way),
        Way::OneThread { watch } => Ok(queues::serve_all(device, watch)?),
        Way::ThreadEach { watch } => Ok(queues::serve_each(device, watch)?),
        Way::HandOver { watch } => queues::serve_by_another(device, watch),
    }
}
