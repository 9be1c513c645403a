//! The kernel's own ext4 on a volume, by way of `weir disk` and a loop device, mounted `nobarrier`: it flushes
//! nothing, and is whole after every crash of the server, since the volume keeps the order in which it was written.
//! Where FUSE, loop devices or ext4 are not to be had, this says that it was skipped.
//!
//! `WEIR_CUTS` says how many times the server is killed; 4 if it is not set.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use support::{Place, mounts, wait_until, weir, works};

/// Runs a program of the system; its output, and whether it ended well.
fn run(program: &str, arguments: &[&OsStr]) -> (bool, String) {
    let path = "/usr/sbin:/sbin:/usr/bin:/bin";
    match Command::new(program).args(arguments).env("PATH", path).output() {
        Ok(output) => {
            let told = [output.stdout, output.stderr].concat();
            (output.status.success(), String::from_utf8_lossy(&told).into_owned())
        }
        Err(error) => (false, format!("{program}: {error}")),
    }
}

/// A volume as a block device, until dropped.
struct Disk {
    server: Child,
    mountpoint: PathBuf,
    device: Option<String>,
}

impl Disk {
    fn new(place: &Place) -> Disk {
        let (volume, mountpoint) = (place.volume(), place.mountpoint());
        let arguments = ["disk", mountpoint.to_str().unwrap(), "--volume", volume.to_str().unwrap()];
        let server = weir(&arguments).arg("--foreground").stderr(Stdio::null()).spawn().unwrap();
        let file = mountpoint.join("disk");
        let mut disk = Disk { server, mountpoint, device: None };
        wait_until("the disk is there", || file.exists() || disk.server.try_wait().unwrap().is_some());
        let arguments = ["--find", "--show", "--direct-io=on"].map(OsStr::new);
        let (made, told) = run("losetup", &[&arguments[..], &[file.as_os_str()]].concat());
        disk.device = made.then(|| told.trim().to_owned());
        disk
    }

    fn device(&self) -> &OsStr {
        self.device.as_deref().unwrap_or_default().as_ref()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(device) = &self.device {
            run("losetup", &["-d".as_ref(), device.as_ref()]);
        }
        run("umount", &["-l".as_ref(), self.mountpoint.as_os_str()]);
        let _ = self.server.wait();
    }
}

/// Makes, renames, links and deletes files without end; stops at the first error.
fn metadata(root: &Path, seed: u64) {
    let mut random = Pcg64::seed_from_u64(seed);
    for nth in 0_u64.. {
        let name = |number: u64| root.join(format!("{}/{number}", number % 7));
        let other = random.random_range(0..=nth);
        let done = match random.random_range(0..6) {
            0 => fs::create_dir_all(root.join((nth % 7).to_string())),
            1 | 2 => fs::write(name(nth), vec![nth as u8; random.random_range(0..20_000)]),
            3 => fs::rename(name(other), name(nth)),
            4 => fs::remove_file(name(other)),
            _ => fs::hard_link(name(other), name(nth)),
        };
        // Names that are not there, or are, do not matter.
        let gone = |error: &std::io::Error| !matches!(error.raw_os_error(), Some(2 | 17 | 20));
        if done.err().as_ref().is_some_and(gone) {
            return;
        }
    }
}

#[test]
fn ext4_without_barriers_is_whole_after_a_crash() {
    if !mounts() {
        return;
    }
    let place = Place::new();
    let files = place.path().join("files");
    fs::create_dir(&files).unwrap();
    works(&["volume", "create", place.volume().to_str().unwrap(), "--size", "256M"]);
    {
        let disk = Disk::new(&place);
        if disk.device.is_none() || !run("mkfs.ext4", &["-q".as_ref(), disk.device()]).0 {
            eprintln!("skipped: it takes losetup, a loop device and mkfs.ext4");
            return;
        }
    }
    let cuts = std::env::var("WEIR_CUTS").ok().and_then(|cuts| cuts.parse().ok()).unwrap_or(4);

    for cut in 0..cuts {
        let mut disk = Disk::new(&place);
        let options = ["-t", "ext4", "-o", "nobarrier,commit=1"].map(OsStr::new);
        let (mounted, told) = run("mount", &[&options[..], &[disk.device(), files.as_os_str()]].concat());
        assert!(mounted, "cut {cut}: {told}");
        std::thread::scope(|scope| {
            scope.spawn(|| metadata(&files, cut));
            std::thread::sleep(Duration::from_millis(200 + cut * 137 % 2500));
            disk.server.kill().unwrap();
        });
        run("umount", &["-l".as_ref(), files.as_os_str()]);
        drop(disk);
        judge(cut, &place, &files);
    }
}

/// e2fsck replays the journal and finds nothing else, and the kernel mounts it.
fn judge(cut: u64, place: &Place, files: &Path) {
    let disk = Disk::new(place);
    let replay = ["-fy", "-E", "journal_only"].map(OsStr::new);
    run("e2fsck", &[&replay[..], &[disk.device()]].concat());
    let (clean, told) = run("e2fsck", &["-fn".as_ref(), disk.device()]);
    assert!(clean, "cut {cut}: {told}");
    let (mounted, told) = run("mount", &["-t".as_ref(), "ext4".as_ref(), disk.device(), files.as_os_str()]);
    assert!(mounted, "cut {cut}: {told}");
    assert!(run("umount", &[files.as_os_str()]).0);
}
