//! One owner of a volume: whatever second way leads to it, the second server is refused, and what the first one has
//! acknowledged stays.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Place, error_of, mounts, runs, system, weir, weir_program, works};

/// A loop device over a file; gone when dropped.
struct Loop(PathBuf);

impl Loop {
    fn over(file: &Path, more: &[&str]) -> Loop {
        let mut command = system("losetup");
        let told = runs(command.args(["--find", "--show"]).args(more).arg(file));
        Loop(PathBuf::from(told.trim()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = system("losetup").arg("-d").arg(&self.0).status();
    }
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Writes a file durably.
fn put(root: &Path, name: &str) {
    let mut file = fs::File::create(root.join(name)).unwrap();
    file.write_all(name.as_bytes()).unwrap();
    file.sync_all().unwrap();
}

/// A second mount of `volume` is refused, for a reason that holds one of `words`.
#[track_caller]
fn is_refused(place: &Place, volume: &Path, words: &[&str]) {
    let second = place.path().join("second");
    fs::create_dir_all(&second).unwrap();
    let output = weir(&["mount", path(volume), path(&second)]).output().unwrap();
    let error = error_of(&output);
    let _ = Command::new("umount").arg(&second).output();
    assert!(!output.status.success(), "{}: mounted twice", volume.display());
    assert!(words.iter().any(|word| error.contains(word)), "{}: {error}", volume.display());
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
}

/// The first mount works on, and has all its files after it was unmounted.
fn works_on(place: &Place, files: usize) {
    let root = place.mountpoint();
    (0..files).for_each(|file| put(&root, &format!("f{file}")));
    place.umount();
    place.mount(&[]);
    (0..files).for_each(|file| {
        let name = format!("f{file}");
        assert_eq!(fs::read_to_string(root.join(&name)).unwrap(), name);
    });
    place.umount();
}

#[test]
fn a_volume_that_is_mounted_is_refused_by_every_other_path() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let volume = place.volume();
    let [link, symbolic, bound] =
        ["hard.weir", "soft.weir", "bound.weir"].map(|name| place.path().join(name));
    fs::hard_link(&volume, &link).unwrap();
    std::os::unix::fs::symlink(&volume, &symbolic).unwrap();
    fs::write(&bound, "").unwrap();
    runs(system("mount").arg("--bind").arg(&volume).arg(&bound));
    place.mount(&[]);
    for other in [&volume, &link, &symbolic, &bound] {
        is_refused(&place, other, &["is in use"]);
    }
    let (whole, second) = (Loop::over(&volume, &[]), Loop::over(&volume, &[]));
    is_refused(&place, &whole.0, &["is in use"]);
    let above = Loop::over(&second.0, &[]);
    is_refused(&place, &above.0, &["is in use"]);
    // Of the lowest file a part: no lock is there to be met, but the claim is.
    let size = fs::metadata(&volume).unwrap().len().to_string();
    let part = Loop::over(&volume, &["--sizelimit", &size]);
    is_refused(&place, &part.0, &["that process", "copy"]);
    // Another mount namespace sees the same file.
    let elsewhere = place.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let program = weir_program();
    let arguments = ["--mount", program, "mount", path(&volume), path(&elsewhere)];
    let output = system("unshare").args(arguments).output().unwrap();
    assert!(!output.status.success() && error_of(&output).contains("is in use"), "{}", error_of(&output));
    drop((above, part, whole, second));
    runs(system("umount").arg(&bound));
    works_on(&place, 20);
}

/// The kernel does not lock the file of a loop device, on which it may have something mounted.
#[test]
fn an_image_under_a_loop_device_is_refused_by_every_name() {
    if !mounts() {
        return;
    }
    let place = Place::new();
    let [image, link, symbolic, bound] =
        ["a.img", "hard.img", "soft.img", "bound.img"].map(|name| place.path().join(name));
    works(&["mkfs", path(&image), "--size", "64M"]);
    fs::hard_link(&image, &link).unwrap();
    std::os::unix::fs::symlink(&image, &symbolic).unwrap();
    fs::write(&bound, "").unwrap();
    runs(system("mount").arg("--bind").arg(&image).arg(&bound));
    let device = Loop::over(&image, &[]);
    let before = fs::read(&image).unwrap();
    for name in [&image, &link, &symbolic, &bound] {
        let output = weir(&["put", path(name), "/etc/hostname", "/"]).output().unwrap();
        let error = error_of(&output);
        assert!(error.contains("in use by the kernel") && error.contains(path(&device.0)), "{error}");
        is_refused(&place, name, &["in use by the kernel"]);
    }
    assert!(fs::read(&image).unwrap() == before, "it was written");
    drop(device);
    runs(system("umount").arg(&bound));
    works(&["put", path(&link), "/etc/hostname", "/"]);
}

#[test]
fn two_loop_devices_of_one_file_are_one_volume() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let (one, two) = (Loop::over(&place.volume(), &[]), Loop::over(&place.volume(), &[]));
    let root = place.mountpoint();
    works(&["mount", path(&one.0), path(&root)]);
    put(&root, "f");
    for _ in 0..3 {
        is_refused(&place, &two.0, &["is in use"]);
    }
    // The file itself, which is under a loop device.
    is_refused(&place, &place.volume(), &["in use"]);
    put(&root, "g");
    place.umount();
    drop((one, two));
    place.mount(&[]);
    assert_eq!(fs::read_to_string(root.join("g")).unwrap(), "g");
    place.umount();
}

#[test]
fn a_copy_of_a_mounted_volume_is_refused_by_name() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&[]);
    put(&root, "f");
    let copy = place.path().join("copy.weir");
    fs::copy(place.volume(), &copy).unwrap();
    let words = ["this is a copy of, or another path to, a volume that process"];
    is_refused(&place, &copy, &words);
    let listed = weir(&["ls", path(&copy)]).output().unwrap();
    assert!(error_of(&listed).contains(words[0]), "{}", error_of(&listed));
    // As after a crash: it was idle when it was copied.
    let second = place.path().join("second");
    works(&["mount", "--after-crash", path(&copy), path(&second)]);
    assert_eq!(fs::read_to_string(second.join("f")).unwrap(), "f");
    works(&["umount", path(&second)]);
    // It has an owner of its own since, who has closed it.
    works(&["mount", path(&copy), path(&second)]);
    works(&["umount", path(&second)]);
    // An option is no way around an owner who is there.
    works_on(&place, 3);
    fs::copy(place.volume(), &copy).unwrap();
    works(&["mount", path(&copy), path(&second)]);
    works(&["umount", path(&second)]);
}

#[test]
fn after_a_kill_the_volume_and_copies_of_it_open_at_once() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let mut server = place.serve();
    put(&place.mountpoint(), "f");
    server.kill();
    runs(system("umount").arg("-l").arg(place.mountpoint()));
    let copy = place.path().join("copy.weir");
    fs::copy(place.volume(), &copy).unwrap();
    let told = works(&["volume", "info", path(&copy)]);
    assert!(told.contains("or it was not closed"), "{told}");
    let second = place.path().join("second");
    fs::create_dir(&second).unwrap();
    works(&["mount", path(&copy), path(&second)]);
    works(&["umount", path(&second)]);
    let told = works(&["volume", "info", path(&copy)]);
    assert!(told.contains("open              no"), "{told}");
    place.mount(&[]);
    works_on(&place, 3);
}

#[test]
fn a_file_that_is_larger_than_its_volume_is_told_of() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let file = fs::File::options().write(true).open(place.volume()).unwrap();
    file.set_len(96 << 20).unwrap();
    drop(file);
    let (volume, root) = (place.volume(), place.mountpoint());
    let output = weir(&["mount", path(&volume), path(&root)]).output().unwrap();
    let told = error_of(&output);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("the volume uses 64 MiB of 96 MiB"), "{told}");
    place.umount();
}
