//! Where the files of a database lie: a mount of Weir, or the kernel's ext4 on a loop device; and the worst disk below them.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use rustix::fs::{XattrFlags, setxattr};
use rustix::process::{Pid, Signal, kill_process};

use super::{Outcome, run, system, wait_for};

/// How long programs and the kernel may take to let go of what has crashed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A volume that is mounted, by a server that can be killed; unmounted when dropped.
pub struct WeirMount {
    weir: PathBuf,
    server: Child,
    root: PathBuf,
    /// Kept open, so that the server can say something.
    _told: BufReader<ChildStderr>,
}

impl WeirMount {
    /// Mounts a volume, in a file or on a device. A server that was killed may hold on to it for a moment.
    pub fn new(weir: &Path, volume: &Path, root: &Path, more: &[String]) -> Outcome<WeirMount> {
        WeirMount::new_in(&[], weir, volume, root, more)
    }

    /// The same, with more variables of the environment.
    pub fn new_in(
        environment: &[(&str, String)],
        weir: &Path,
        volume: &Path,
        root: &Path,
        more: &[String],
    ) -> Outcome<WeirMount> {
        fs::create_dir_all(root)?;
        wait_for("the volume is free", PATIENCE, || {
            let mut command = Command::new(weir);
            command.args(["mount", "--foreground"]).arg(volume).arg(root).args(more).env_remove("RUST_LOG");
            command.envs(environment.iter().cloned());
            let mut server = command.stderr(Stdio::piped()).spawn()?;
            let mut messages = BufReader::new(server.stderr.take().ok_or("no standard error")?);
            let mut told = String::new();
            while messages.read_line(&mut told)? > 0 && !told.contains("mounted on") {}
            if told.contains("mounted on") {
                let (weir, root) = (weir.to_owned(), root.to_owned());
                return Ok(Some(WeirMount { weir, server, root, _told: messages }));
            }
            server.wait()?;
            if told.contains("in use") { Ok(None) } else { Err(told.into()) }
        })
    }

    /// Kills the server: what it had in memory is gone. Programs that use the mount meet errors until they end.
    pub fn kill(&mut self) -> Outcome<()> {
        self.server.kill()?;
        self.server.wait()?;
        Ok(())
    }

    /// Unmounts what no program uses any more. A server that lives makes everything durable before.
    pub fn end(mut self) -> Outcome<()> {
        wait_for("no program uses the mount", PATIENCE, || Ok(umount(&self.root).then_some(())))?;
        self.server.wait()?;
        Ok(())
    }

    /// Makes all that was written durable.
    pub fn synchronise(&self) -> Outcome<()> {
        Ok(setxattr(&self.root, "user.weir.status", b"sync", XattrFlags::empty())?)
    }

    /// What the server says of itself.
    pub fn status(&self) -> Outcome<serde_json::Value> {
        let told = run(Command::new(&self.weir).args(["status", "--json"]).arg(&self.root))?;
        Ok(serde_json::from_str(&told)?)
    }
}

impl Drop for WeirMount {
    fn drop(&mut self) {
        let _ = system("umount").arg("-l").arg(&self.root).stderr(Stdio::null()).status();
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn umount(root: &Path) -> bool {
    system("umount").arg(root).output().is_ok_and(|output| output.status.success())
}

/// A file as a block device, until dropped.
pub struct LoopDevice(PathBuf);

impl LoopDevice {
    pub fn new(file: &Path) -> Outcome<LoopDevice> {
        let mut command = system("losetup");
        let told = run(command.args(["--find", "--show", "--direct-io=on"]).arg(file))?;
        Ok(LoopDevice(PathBuf::from(told.trim())))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Bytes written to it, and flushes, since it was made.
    pub fn written(&self) -> Outcome<(u64, u64)> {
        let name = self.0.file_name().ok_or("a device has a name")?;
        counted(&Path::new("/sys/block").join(name).join("stat"))
    }
}

/// Bytes written to a disk, and flushes, by its counters in `/sys`.
pub fn counted(stat: &Path) -> Outcome<(u64, u64)> {
    let told = fs::read_to_string(stat)?;
    let number = |nth: usize| -> Outcome<u64> {
        Ok(told.split_whitespace().nth(nth).ok_or("the kernel counts no flushes")?.parse()?)
    };
    // Sectors of 512 bytes, whatever the disk's own are.
    Ok((number(6)? * 512, number(15)?))
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = system("losetup").arg("-d").arg(&self.0).status();
    }
}

/// The kernel's ext4, as it comes, until dropped.
pub struct Ext4 {
    root: PathBuf,
    device: LoopDevice,
}

impl Ext4 {
    /// Makes a filesystem.
    pub fn format(device: &LoopDevice) -> Outcome<()> {
        let options = ["-q", "-F", "-b", "4096", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"];
        run(system("mkfs.ext4").args(options).arg(device.path())).map(drop)
    }

    pub fn new(device: LoopDevice, root: &Path) -> Outcome<Ext4> {
        fs::create_dir_all(root)?;
        run(system("mount").args(["-t", "ext4"]).arg(device.path()).arg(root))?;
        Ok(Ext4 { root: root.to_owned(), device })
    }

    pub fn device(&self) -> &LoopDevice {
        &self.device
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let unmounted = wait_for("", PATIENCE, || Ok(umount(&self.root).then_some(())));
        if unmounted.is_err() {
            let _ = system("umount").arg("-l").arg(&self.root).status();
        }
    }
}

/// The worst disk that the contract allows, whose power can be cut again and again: `weir disk --worst`.
pub struct WorstDisk {
    server: Child,
    root: PathBuf,
    images: PathBuf,
    cuts: u64,
}

impl WorstDisk {
    /// Serves one of so many MiB below a directory.
    pub fn new(weir: &Path, beside: &Path, mib: u64) -> Outcome<WorstDisk> {
        let [root, images] = ["worst", "images"].map(|name| beside.join(name));
        fs::create_dir_all(&root)?;
        fs::create_dir_all(&images)?;
        let mut command = Command::new(weir);
        command.args(["disk", "--foreground", "--worst", "--size", &format!("{mib}M"), "--cuts"]);
        let server = command.arg(&images).arg(&root).env_remove("RUST_LOG").stderr(Stdio::null()).spawn()?;
        let mut disk = WorstDisk { server, root, images, cuts: 0 };
        let file = disk.file();
        wait_for("the disk is there", PATIENCE, || match disk.server.try_wait()? {
            Some(ended) => Err(format!("the disk is not served: {ended}").into()),
            None => Ok(file.exists().then_some(())),
        })?;
        Ok(disk)
    }

    /// The disk, as a file.
    pub fn file(&self) -> PathBuf {
        self.root.join("disk")
    }

    /// What a power cut at this moment leaves, as an image; the disk goes on.
    pub fn cut(&mut self) -> Outcome<PathBuf> {
        self.cuts += 1;
        let image = self.images.join(format!("cut-{}.img", self.cuts));
        let server = Pid::from_raw(self.server.id().cast_signed()).ok_or("the disk has a server")?;
        kill_process(server, Signal::USR1)?;
        wait_for("the image is there", PATIENCE, || Ok(image.exists().then_some(())))?;
        Ok(image)
    }
}

impl Drop for WorstDisk {
    fn drop(&mut self) {
        let _ = system("umount").arg("-l").arg(&self.root).stderr(Stdio::null()).status();
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
