//! The worst disk as a block device: `weir disk` and a loop device, and a filesystem mounted on it, each until dropped.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufReader, Seek as _, SeekFrom, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::Advice;
use rustix::process::{Pid, Signal, kill_process};
use weir_crash::Request;

/// How mkfs.ext4 makes a filesystem with a journal of 4 MiB; nothing is written to it later that no call asks for.
pub const MKFS: [&str; 8] =
    ["-q", "-F", "-b", "4096", "-J", "size=4", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"];
/// Between two looks at what another process does, and looks: 20 s in all.
const PAUSE: Duration = Duration::from_millis(1);
const LOOKS: u32 = 20_000;
/// What writing home takes, amply.
const WRITES_HOME: Duration = Duration::from_millis(50);

/// Runs a program to its end.
///
/// # Errors
/// What it says if it fails.
pub fn run<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> io::Result<String> {
    let output = Command::new(program).args(arguments).output()?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(io::Error::other(format!("{program}: {}", said.trim())))
        }
    }
}

/// Waits until `is` so.
fn wait_until(what: &str, mut is: impl FnMut() -> bool) -> io::Result<()> {
    for _ in 0..LOOKS {
        if is() {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
    Err(io::Error::other(format!("{what}: not within {LOOKS} ms")))
}

/// See the head of this file.
pub struct Disk {
    server: Child,
    mountpoint: PathBuf,
    cuts: PathBuf,
    log: PathBuf,
    cut: u64,
    device: Option<String>,
}

impl Disk {
    /// Serves one of this size below `place`.
    pub fn serve(weir: &Path, place: &Path, size: &str) -> io::Result<Disk> {
        let (mountpoint, cuts, log) = (place.join("disk"), place.join("cuts"), place.join("log"));
        fs::create_dir(&mountpoint)?;
        fs::create_dir(&cuts)?;
        let mut command = Command::new(weir);
        command
            .args(["disk", "--foreground", "--worst", "--size", size, "--cuts"])
            .arg(&cuts)
            .arg("--requests")
            .arg(&log)
            .arg(&mountpoint);
        let server = command.stderr(Stdio::null()).spawn()?;
        let file = mountpoint.join("disk");
        let mut disk = Disk { server, mountpoint, cuts, log, cut: 0, device: None };
        let server = &mut disk.server;
        wait_until("the disk", || file.exists() || !matches!(server.try_wait(), Ok(None)))?;
        let options = ["--find", "--show", "--direct-io=on"].map(OsStr::new);
        disk.device = Some(run("losetup", &[&options[..], &[file.as_os_str()]].concat())?);
        Ok(disk)
    }

    /// Its block device.
    pub fn device(&self) -> &Path {
        Path::new(self.device.as_deref().unwrap_or_default())
    }

    /// All that is on it.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        fs::read(self.device())
    }

    /// Puts these bytes on it, durably.
    pub fn restore(&self, bytes: &[u8]) -> io::Result<()> {
        let mut device = File::options().write(true).open(self.device())?;
        device.write_all(bytes)?;
        device.sync_all()
    }

    /// Has the kernel write home what is dirty in its cache of the device, as it does by itself behind some time; without a flush.
    pub fn write_home(&self) -> io::Result<()> {
        rustix::fs::fadvise(&File::open(self.device())?, 0, None, Advice::DontNeed)?;
        std::thread::sleep(WRITES_HOME);
        Ok(())
    }

    /// How long its log of requests is now, in bytes.
    pub fn log_bytes(&self) -> io::Result<u64> {
        Ok(fs::metadata(&self.log)?.len())
    }

    /// The requests from one place in the log to another, and behind each the place where it ends.
    pub fn log(&self, bytes: Range<u64>) -> io::Result<Vec<(Request, u64)>> {
        let mut log = BufReader::new(File::open(&self.log)?);
        log.seek(SeekFrom::Start(bytes.start))?;
        let (mut requests, mut at) = (Vec::new(), bytes.start);
        while at < bytes.end {
            let Some(request) = Request::read_from(&mut log)? else { break };
            at += request.record_bytes();
            requests.push((request, at));
        }
        Ok(requests)
    }

    /// What a power cut at this moment would leave.
    pub fn cut(&mut self) -> io::Result<Vec<u8>> {
        self.cut += 1;
        let path = self.cuts.join(format!("cut-{}.img", self.cut));
        kill_process(Pid::from_child(&self.server), Signal::USR1)?;
        wait_until("an image", || path.exists())?;
        let image = fs::read(&path)?;
        fs::remove_file(&path)?;
        Ok(image)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // What is not there any more need not be taken away: so nobody looks at errors.
        if let Some(device) = &self.device {
            run("losetup", &["-d", device]).ok();
        }
        run("umount", &[OsStr::new("-l"), self.mountpoint.as_os_str()]).ok();
        let server = &mut self.server;
        if wait_until("its end", || !matches!(server.try_wait(), Ok(None))).is_err() {
            server.kill().ok();
            server.wait().ok();
        }
    }
}

/// The kernel's ext4 on it.
pub struct Mounted<'a> {
    pub at: &'a Path,
}

impl<'a> Mounted<'a> {
    pub fn new(disk: &Disk, options: &str, at: &'a Path) -> io::Result<Mounted<'a>> {
        let arguments = ["-t", "ext4", "-o", options].map(OsStr::new);
        run("mount", &[&arguments[..], &[disk.device().as_os_str(), at.as_os_str()]].concat())?;
        Ok(Mounted { at })
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // Children of other threads hold what is open here until they are programs of their own.
        let unmounted = wait_until("unmounting", || run("umount", &[self.at]).is_ok());
        if unmounted.is_err() {
            run("umount", &[OsStr::new("-l"), self.at.as_os_str()]).ok();
        }
    }
}
