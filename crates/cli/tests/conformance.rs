//! What others demand of a filesystem, on a mount: pjdfstest, each system call with each of its errors, and fsx, reads,
//! writes, mappings, holes and cuts at random, compared with a copy in memory.
//!
//! Where one of the two or FUSE is missing, this says that it was skipped:
//! `cargo install --locked pjdfstest@0.2.2 fsx@0.3.2`. `WEIR_FSX` says how many operations of fsx each mount gets;
//! 10,000 if it is not set.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::support::{Place, error_of, mounts, runs, text, works};

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/pjdfstest.toml");
const OPERATIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/fsx.toml");

/// It asks the C library how many names a file may have. That looks at the kind of the filesystem, knows nothing of
/// FUSE and says 127, which pjdfstest takes for no answer. [`a_file_has_65000_names`] is the same case.
const NOT_ON_FUSE: &str = "link::link_count_max";

/// Whether this machine mounts, and has the program; says so if not.
fn can_run(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: {program} is not installed; `cargo install --locked {program}` does that");
    }
    found && mounts()
}

/// Runs cases of pjdfstest: those with a word in their names, or all. How each of them ended, and all that was told.
fn cases(place: &Place, config: &Path, word: Option<&str>) -> (BTreeMap<String, String>, String) {
    let root = place.mountpoint();
    // Some cases remount with the system's `mount`. If the package `fuse3` is there, that leaves it to a helper,
    // which knows only how to mount anew; with `-i` it does it itself.
    let programs = place.path().join("programs");
    fs::create_dir_all(&programs).unwrap();
    fs::write(programs.join("mount"), "#!/bin/sh\nexec /bin/mount -i \"$@\"\n").unwrap();
    fs::set_permissions(programs.join("mount"), Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let output = Command::new("pjdfstest")
        .args(["-c".as_ref(), config.as_os_str(), "-p".as_ref(), root.as_os_str()])
        // What lies beneath is another filesystem.
        .args(["-s".as_ref(), place.path().as_os_str()])
        .args(word)
        .current_dir(&root)
        .env("PATH", path)
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    let told = text(&output.stdout) + &error_of(&output);
    let ends = ["ok", "FAILED", "skipped"];
    let case = |line: &str| {
        let (name, end) = line.split_once(' ')?;
        ends.contains(&end.trim()).then(|| (name.to_owned(), end.trim().to_owned()))
    };
    (told.lines().filter_map(case).collect(), told)
}

/// The names of the cases that ended so.
fn ended<'a>(cases: &'a BTreeMap<String, String>, end: &str) -> Vec<&'a str> {
    cases.iter().filter(|(_, ended)| *ended == end).map(|(name, _)| name.as_str()).collect()
}

#[test]
fn every_case_of_pjdfstest_passes() {
    if !can_run("pjdfstest") {
        return;
    }
    for (sync, format) in [("durable", "ext4"), ("order", "ext4"), ("durable", "f2fs")] {
        let place = Place::for_everybody();
        works(&["mkfs", "--volume", "--type", format, place.volume().to_str().unwrap(), "--size", "256M"]);
        let root = place.mount(&["--allow-other", "--sync", sync]);
        fs::set_permissions(&root, Permissions::from_mode(0o777)).unwrap();
        // The cases that remount read-only have a process of their own: some others never close what they opened
        // for writing, and the kernel refuses to remount while that is open, on any filesystem.
        let without = place.path().join("without-remount.toml");
        let config = fs::read_to_string(CASES).unwrap();
        fs::write(&without, config.replace("allow_remount = true", "allow_remount = false")).unwrap();
        let (most, told) = cases(&place, &without, None);
        let (remounting, told_of_them) = cases(&place, CASES.as_ref(), Some("erofs"));
        let told = told + &told_of_them;
        assert_eq!(ended(&most, "FAILED"), [""; 0], "{sync}, {format}: {told}");
        assert_eq!(ended(&remounting, "FAILED"), [""; 0], "{sync}, {format}: {told}");
        let mut skipped = ended(&most, "skipped");
        skipped.retain(|case| *case != NOT_ON_FUSE);
        assert_eq!(skipped, ended(&remounting, "ok"), "{sync}, {format}: {told}");
        assert!(most.len() >= 398, "{sync}, {format}: {told}");
        place.unmount();
        place.check();
    }
}

#[test]
fn a_file_has_65000_names() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    let root = place.mount(&[]);
    let name = |nth: u32| root.join(nth.to_string());
    File::create(name(1)).unwrap();
    for nth in 2..=65_000 {
        fs::hard_link(name(1), name(nth)).unwrap();
    }
    assert_eq!(fs::hard_link(name(1), name(0)).unwrap_err().raw_os_error(), Some(31), "EMLINK");
    fs::remove_file(name(77)).unwrap();
    fs::hard_link(name(1), name(0)).unwrap();
    place.unmount();
    place.check();
}

/// Runs fsx on a volume and on an image, whose journals differ, and on F2FS, with `fsync` promising this.
fn exercise(sync: &str, seed: &str) {
    let operations = std::env::var("WEIR_FSX").unwrap_or_else(|_| "10000".to_owned());
    for kind in [&["--volume"][..], &[], &["--volume", "--type", "f2fs"]] {
        let place = Place::new();
        works(&[&["mkfs", place.volume().to_str().unwrap(), "--size", "64M"], kind].concat());
        let file = place.mount(&["--sync", sync]).join("file");
        let mut fsx = Command::new("fsx");
        fsx.args(["-q", "-f", OPERATIONS, "-N", &operations, "-S", seed, "-P"]).arg(place.path()).arg(&file);
        runs(&mut fsx);
        place.unmount();
        place.check();
    }
}

#[test]
fn fsx_reads_what_it_wrote_durably() {
    if can_run("fsx") {
        exercise("durable", "12");
    }
}

#[test]
fn fsx_reads_what_it_wrote_in_order() {
    if can_run("fsx") {
        exercise("order", "11");
    }
}
