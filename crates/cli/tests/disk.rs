//! The kernel's own ext4 on a volume, by way of `weir disk` and a loop device, mounted `nobarrier`: it flushes
//! nothing, and is whole after every crash of the server, since the volume keeps the order in which it was written.
//!
//! A crash of the server leaves what the disk below it has in its cache. A power cut does not, and that is the second
//! test: the same load on a disk that does the worst a disk may, whose power is cut again and again. With a volume
//! between, ext4 is whole each time; without, it is whole only if it flushes.
//!
//! Where FUSE, loop devices or ext4 are not to be had, this says that it was skipped.
//!
//! `WEIR_CUTS` says how many times the server is killed and the power is cut; a few times if it is not set.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "it waits for what other processes do")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{
    Place, by_e2fsck, by_looking, error_of, is_so_within, mounts, run, wait_until, weir, works,
};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use rustix::process::{Pid, Signal, kill_process};

/// How many cuts were asked for.
fn cuts_asked() -> Option<u64> {
    std::env::var("WEIR_CUTS").ok().and_then(|cuts| cuts.parse().ok())
}

/// What `weir disk` serves, as a block device, until dropped.
struct Disk {
    server: Child,
    mountpoint: PathBuf,
    device: Option<String>,
}

impl Disk {
    /// The volume of a place.
    fn new(place: &Place) -> Disk {
        Disk::serve(place.mountpoint(), &["--volume".as_ref(), place.volume().as_os_str()])
    }

    fn serve(mountpoint: PathBuf, what: &[&OsStr]) -> Disk {
        let mut command = weir(&["disk", "--foreground"]);
        let server = command.arg(&mountpoint).args(what).stderr(Stdio::null()).spawn().unwrap();
        let file = mountpoint.join("disk");
        let mut disk = Disk { server, mountpoint, device: None };
        wait_until("the disk is there", || file.exists() || disk.server.try_wait().unwrap().is_some());
        disk.device = loop_device(&file);
        disk
    }

    fn device(&self) -> &OsStr {
        self.device.as_deref().unwrap_or_default().as_ref()
    }
}

/// A loop device on a file.
fn loop_device(file: &Path) -> Option<String> {
    let arguments = ["--find", "--show", "--direct-io=on"].map(OsStr::new);
    let (made, told) = run("losetup", &[&arguments[..], &[file.as_os_str()]].concat());
    made.then(|| told.trim().to_owned())
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(device) = &self.device {
            run("losetup", &["-d".as_ref(), device.as_ref()]);
        }
        run("umount", &["-l".as_ref(), self.mountpoint.as_os_str()]);
        // It ends by itself, unless a process with mounts of its own was started meanwhile, and took copies of these.
        for _ in 0..500 {
            if matches!(self.server.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Makes, renames, links and deletes so many files, and says whether it stops: at the first error, and when it is told.
fn metadata(root: &Path, seed: u64, files: u64, stop: &AtomicBool) -> bool {
    let mut random = Pcg64::seed_from_u64(seed);
    for nth in 0..files {
        let name = |number: u64| root.join(format!("{}/{number}", number % 7));
        let other = random.random_range(0..=nth);
        let done = match random.random_range(0..6) {
            0 => fs::create_dir_all(root.join((nth % 7).to_string())),
            1 => fs::write(name(nth), vec![nth as u8; random.random_range(0..20_000)]),
            // Commits: the journal goes round all the time. It flushes nothing with "nobarrier".
            2 => fs::write(name(nth), [nth as u8; 100]).and_then(|()| File::open(name(nth))?.sync_all()),
            3 => fs::rename(name(other), name(nth)),
            4 => fs::remove_file(name(other)),
            _ => fs::hard_link(name(other), name(nth)),
        };
        // Names that are not there, or are, do not matter.
        let gone = |error: &std::io::Error| !matches!(error.raw_os_error(), Some(2 | 17 | 20));
        if stop.load(Ordering::Relaxed) || done.err().as_ref().is_some_and(gone) {
            return true;
        }
    }
    false
}

#[test]
fn ext4_without_barriers_is_whole_after_a_crash() {
    if !mounts() {
        return;
    }
    let place = Place::new();
    let files = place.path().join("files");
    fs::create_dir(&files).unwrap();
    works(&["volume", "create", place.volume().to_str().unwrap(), "--size", "128M"]);
    {
        let disk = Disk::new(&place);
        if disk.device.is_none() || !run("mkfs.ext4", &["-q".as_ref(), disk.device()]).0 {
            eprintln!("skipped: it takes losetup, a loop device and mkfs.ext4");
            return;
        }
    }
    for cut in 0..cuts_asked().unwrap_or(4) {
        let mut disk = Disk::new(&place);
        let options = ["-t", "ext4", "-o", "nobarrier,commit=1"].map(OsStr::new);
        let (mounted, told) = run("mount", &[&options[..], &[disk.device(), files.as_os_str()]].concat());
        assert!(mounted, "cut {cut}: {told}");
        std::thread::scope(|scope| {
            scope.spawn(|| metadata(&files, cut, u64::MAX, &AtomicBool::new(false)));
            std::thread::sleep(Duration::from_millis(200 + cut * 137 % 2500));
            disk.server.kill().unwrap();
        });
        run("umount", &["-l".as_ref(), files.as_os_str()]);
        drop(disk);
        match judge(Ground::Volume, &place.volume(), place.path()) {
            Ok(files) => eprintln!("cut {cut}: whole, {files} files"),
            Err(damage) => panic!("cut {cut}: {damage}"),
        }
    }
}

/// What is wrong when the kernel has replayed the journal; the files that are there if nothing is.
fn by_kernel(device: &OsStr, files: &Path) -> Result<u64, String> {
    let mounted = Mounted::new("nobarrier", device, files)?;
    let found = readable(files);
    drop(mounted);
    let mounted = Path::new("/sys/fs/ext4").join(Path::new(device).file_name().unwrap_or_default());
    // A test beside this one may have it in a mount namespace of its own, and takes long on a busy machine.
    if !is_so_within(Duration::from_secs(300), || !mounted.exists()) {
        return Err("it stays mounted in another namespace".to_owned());
    }
    by_looking(device)?;
    found
}

/// Reads all files, and counts them. Each holds what its one writer wrote, or zeros where that did not come so far.
fn readable(directory: &Path) -> Result<u64, String> {
    let failed = |error| format!("{}: {error}", directory.display());
    let mut files = 0;
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            files += readable(&path)?;
            continue;
        }
        let mut written = fs::read(&path).map_err(failed)?;
        written.retain(|byte| *byte != 0);
        written.dedup();
        if written.len() > 1 {
            return Err(format!("{} holds {written:?}", path.display()));
        }
        files += 1;
    }
    Ok(files)
}

/// ext4, mounted until dropped.
struct Mounted<'a>(&'a Path);

impl Mounted<'_> {
    fn new<'a>(options: &str, device: &OsStr, files: &'a Path) -> Result<Mounted<'a>, String> {
        let arguments = ["-t", "ext4", "-o", options].map(OsStr::new);
        let (mounted, told) = run("mount", &[&arguments[..], &[device, files.as_os_str()]].concat());
        if mounted { Ok(Mounted(files)) } else { Err(told) }
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if !run("umount", &[self.0.as_os_str()]).0 {
            run("umount", &["-l".as_ref(), self.0.as_os_str()]);
        }
    }
}

/// Stops the load when dropped, whatever goes wrong.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let place = Place::new();
    let (mountpoint, nowhere) = (place.mountpoint(), place.path().join("nowhere"));
    let (mountpoint, nowhere) = (mountpoint.to_str().unwrap(), nowhere.to_str().unwrap());
    // What the parser refuses names no place to mount on, so that nothing is served if it does not.
    let cases = [
        ([mountpoint, "--worst", "--size", "65G"], "--size of 64G at most"),
        ([mountpoint, "--worst", "--cuts", nowhere], "write images to"),
        ([nowhere, "--worst", "--device", "ufs20"], "cannot be used with"),
        ([nowhere, "--worst", "--volume", nowhere], "cannot be used with"),
        ([mountpoint, "--stack", nowhere, "--size=1G"], "use --volume PATH"),
        ([mountpoint, "--stack", "volume+", "--size=1G"], "describes no stack"),
        ([mountpoint, "--stack", "volume+no-such-device", "--size=1G"], "no-such-device"),
        ([nowhere, "--stack", "volume+legcy", "--size=1G"], "adversary, legacy or prefix"),
        ([nowhere, "--stack", "volume+legcy", "--size=1G"], "ufs20"),
    ];
    for (arguments, told) in cases {
        let output = weir(&["disk", "--foreground"]).args(arguments).output().unwrap();
        let error = error_of(&output);
        assert!(!output.status.success() && error.contains(told), "{arguments:?}: {error}");
    }
}

/// Where ext4 is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ground {
    /// On the worst disk itself.
    Worst,
    /// On a volume on it.
    Volume,
}

/// What so many power cuts have left.
#[derive(Debug, Default)]
struct Left {
    cuts: u64,
    damages: Vec<String>,
    /// Files in what is whole.
    files: u64,
}

/// Cuts the power under ext4, mounted so, for so many times or until `enough` is left; `None` if this machine lacks
/// something.
fn cut_power(ground: Ground, options: &str, cuts: u64, enough: fn(&Left) -> bool) -> Option<Left> {
    let place = Place::new();
    let [files, images, volume, found] = ["files", "images", "volume", "found"].map(|name| {
        let path = place.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    });
    let arguments = ["--worst", "--size", "128M", "--cuts"].map(OsStr::new);
    let worst = Disk::serve(place.mountpoint(), &[&arguments[..], &[images.as_os_str()]].concat());
    let path = worst.device.as_deref()?;
    let over = (ground == Ground::Volume).then(|| {
        works(&["volume", "create", path]);
        Disk::serve(volume, &["--volume".as_ref(), path.as_ref()])
    });
    let device = over.as_ref().unwrap_or(&worst).device();
    // A small journal, which is checkpointed often.
    let make = ["-q", "-b", "4096", "-J", "size=4", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"];
    if !run("mkfs.ext4", &[&make.map(OsStr::new)[..], &[device]].concat()).0 {
        return None;
    }
    let mounted = Mounted::new(options, device, &files).unwrap();
    let server = Pid::from_raw(worst.server.id().cast_signed()).unwrap();
    let stop = AtomicBool::new(false);
    let left = std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        let load = scope.spawn(|| {
            for round in 0_u64.. {
                let old = files.join((round % 2).to_string());
                if old.exists() && fs::remove_dir_all(&old).is_err() {
                    return;
                }
                if metadata(&old, round, 3000, &stop) {
                    return;
                }
            }
        });
        let mut random = Pcg64::seed_from_u64(cuts);
        let mut left = Left::default();
        for cut in 1..=cuts {
            std::thread::sleep(Duration::from_millis(random.random_range(50..400)));
            assert!(!load.is_finished(), "cut {cut}: the load has met an error");
            kill_process(server, Signal::USR1).unwrap();
            let image = images.join(format!("cut-{cut}.img"));
            wait_until("the image is there", || image.exists());
            match judge(ground, &image, &found) {
                Ok(files) => {
                    eprintln!("{ground:?}, {options}, cut {cut}: whole, {files} files");
                    left.files += files;
                }
                Err(damage) => {
                    eprintln!("{ground:?}, {options}, cut {cut}: damaged");
                    left.damages.push(damage);
                }
            }
            fs::remove_file(image).unwrap();
            left.cuts += 1;
            if enough(&left) {
                break;
            }
        }
        left
    });
    drop((mounted, over));
    Some(left)
}

/// What is wrong with what a crash has left in an image, by e2fsck, on a copy, and by the kernel; the files in it if
/// nothing is.
fn judge(ground: Ground, image: &Path, found: &Path) -> Result<u64, String> {
    let [copy, served, files] = ["copy", "served", "replayed"].map(|name| found.join(name));
    fs::create_dir_all(&served).unwrap();
    fs::create_dir_all(&files).unwrap();
    assert!(run("cp", &[image.as_os_str(), copy.as_os_str()]).0);
    with_device(ground, &copy, &served, by_e2fsck)?;
    with_device(ground, image, &served, |device| by_kernel(device, &files))
}

/// The disk itself, or the volume on it once it has recovered, as a block device.
fn with_device<R>(ground: Ground, image: &Path, served: &Path, look: impl FnOnce(&OsStr) -> R) -> R {
    match ground {
        Ground::Volume => {
            // The volume that it shows a moment of is still open.
            let arguments = ["--after-crash".as_ref(), "--volume".as_ref(), image.as_os_str()];
            let disk = Disk::serve(served.to_owned(), &arguments);
            look(disk.device())
        }
        Ground::Worst => {
            let device = loop_device(image).unwrap();
            let found = look(device.as_ref());
            run("losetup", &["-d".as_ref(), device.as_ref()]);
            found
        }
    }
}

#[test]
fn ext4_without_barriers_is_whole_after_power_cuts_on_a_volume_and_damaged_without() {
    if !mounts() {
        return;
    }
    let asked = cuts_asked();
    // The first damage is enough to show that the judges see some.
    let enough: fn(&Left) -> bool = if asked.is_some() { |_| false } else { |left| !left.damages.is_empty() };
    let Some(without) = cut_power(Ground::Worst, "nobarrier,commit=1", asked.unwrap_or(12), enough) else {
        eprintln!("skipped: it takes losetup, loop devices and mkfs.ext4");
        return;
    };
    let few = asked.unwrap_or(4);
    let volume = cut_power(Ground::Volume, "nobarrier,commit=1", few, |_| false).unwrap();
    let flushed = cut_power(Ground::Worst, "barrier,commit=1", few, |_| false).unwrap();
    for (ground, left) in [("without", &without), ("on a volume", &volume), ("flushed", &flushed)] {
        let Left { cuts, damages, files } = left;
        eprintln!("{ground}: {} of {cuts} power cuts did damage; {files} files in the others", damages.len());
    }
    assert_eq!(volume.damages, Vec::<String>::new(), "on a volume");
    assert_eq!(flushed.damages, Vec::<String>::new(), "flushed");
    assert!(volume.files > 0 && flushed.files > 0, "there was nothing to lose");
    assert!(!without.damages.is_empty(), "the control shows no damage, so the judges may see none");
}
