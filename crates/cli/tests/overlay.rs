//! An overlay whose upper directory is on a mount does what an overlay on the kernel's ext4 does: the cases of
//! `overlay/cases.sh` print the same on both, and leave the same in the upper directory.
//!
//! Where FUSE, overlays, or loop mounts are not to be had, these tests say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::support::kernel_mount::KernelMount;
use crate::support::overlay::{Overlay, has_overlays};
use crate::support::{Place, error_of, is_there, mounts, runs, system, text, works};

/// The lines before each case: the lower layer, the mount, and functions.
const HEAD: &str = include_str!("overlay/head.sh");
/// Cases, each below a line with `##` and its name.
const CASES: &str = include_str!("overlay/cases.sh");

struct Case {
    name: &'static str,
    /// Options of the overlay.
    options: &'static str,
    lines: &'static str,
}

impl Case {
    /// Runs it with its layers below `root`, where it is the case of this number: what it prints. `lower` is made if it is
    /// missing.
    fn run(&self, lower: &Path, root: &Path, nth: usize) -> String {
        let layers = root.join(format!("case{nth}"));
        let lines = format!("{HEAD}{}", self.lines);
        // A mount namespace of its own, so that nothing stays mounted.
        let mut shell = system("unshare");
        shell.args(["-m", "bash", "-c", &lines, "bash"]).args([lower, &layers]).arg(self.options);
        let output = shell.output().unwrap();
        // What is not to be had is an error of the head, which ends with this code.
        assert_ne!(output.status.code(), Some(99), "{}: {}", self.name, error_of(&output));
        fs::remove_dir_all(&layers).unwrap();
        text(&output.stdout) + &error_of(&output)
    }
}

fn cases() -> impl Iterator<Item = Case> {
    CASES.split("\n## ").skip(1).map(|block| {
        let (name, lines) = block.split_once('\n').unwrap();
        let options = lines.strip_prefix("# options: ").and_then(|lines| lines.lines().next());
        Case { name, options: options.unwrap_or_default(), lines }
    })
}

/// What stands in one of two texts only, as lines.
fn difference(expected: &str, found: &str) -> String {
    let lines = |sign: char, of: &str, other: &str| {
        let other: Vec<_> = other.lines().collect();
        of.lines()
            .filter(|line| !other.contains(line))
            .map(|line| format!("{sign}{line}\n"))
            .collect::<String>()
    };
    lines('-', expected, found) + &lines('+', found, expected)
}

/// Where the lower layer is, which no case changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lower {
    OnHost,
    /// On the upper layer's filesystem, which has no file handles: see `--no-file-handles`.
    Beside,
}

impl Lower {
    /// An overlay finds the other names of a file of the lower layer by file handles.
    fn has(self, case: &Case) -> bool {
        self == Lower::OnHost || !case.options.contains("index=on")
    }

    fn path(self, root: &Path, place: &Path, name: &str) -> PathBuf {
        if self == Lower::Beside { root.join("lower") } else { place.join(name) }
    }
}

/// Runs the cases on a mount with these arguments and on ext4.
fn compare_with_ext4(arguments: &[&str], layer: Lower) {
    let programs = ["python3", "setfacl", "setfattr"];
    if !mounts() || !has_overlays() || !programs.into_iter().all(is_there) {
        return;
    }
    // Other users act in it.
    let place = Place::for_everybody();
    let image = place.path().join("ext4");
    fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
    runs(system("mkfs.ext4").args(["-q", "-b", "4096"]).arg(&image));
    let Some(ext4) = KernelMount::new(&image, &place.path().join("beside")) else { return };
    works(&["mkfs", "--volume", place.volume().to_str().unwrap(), "--size", "256M"]);
    let root = place.mount(&[&["--allow-other"], arguments].concat());
    let lower = layer.path(&root, place.path(), "lower");
    let beside = layer.path(ext4.root(), place.path(), "lower-beside");
    let both = |case: &Case, nth| {
        let [found, expected] = [case.run(&lower, &root, nth), case.run(&beside, ext4.root(), nth)];
        [found.replace(path_text(&root), ""), expected.replace(path_text(ext4.root()), "")]
    };
    let cases: Vec<_> = cases().filter(|case| layer.has(case)).collect();
    assert!(cases.len() >= 60, "{} cases", cases.len());
    let mut differences = String::new();
    for (nth, case) in cases.iter().enumerate() {
        let [found, expected] = both(case, nth);
        if found != expected {
            write!(differences, "{} ({}):\n{}", case.name, case.options, difference(&expected, &found))
                .unwrap();
        }
    }
    assert!(differences.is_empty(), "{differences}");
    let [found, expected] = both(&cases[0], cases.len());
    assert_eq!(found, expected, "the lower layers have changed");
    drop(ext4);
    place.end();
}

fn path_text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn an_overlay_does_the_same_on_a_mount_and_on_ext4() {
    compare_with_ext4(&[], Lower::OnHost);
}

#[test]
fn an_overlay_does_the_same_with_the_writeback_cache_and_both_layers_on_the_mount() {
    compare_with_ext4(&["--writeback-cache", "--no-file-handles"], Lower::Beside);
}

/// An overlay keeps of a file that was copied up which one of the lower layer it was, by a file handle. The kernel's FUSE finds
/// that once its cache is cold, and then takes it for gone. Without file handles the overlay does without.
#[test]
fn copied_files_are_found_with_a_cold_cache() {
    if !mounts() || !has_overlays() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&["--no-file-handles"]);
    let (lower, merged) = (root.join("lower"), place.path().join("merged"));
    fs::create_dir(&lower).unwrap();
    let names = ["file", "other", "third"];
    for name in names {
        fs::write(lower.join(name), "content").unwrap();
    }
    let mount = || Overlay::new(&lower, &root, &merged).unwrap();
    let overlay = mount();
    for name in names {
        fs::File::options().append(true).open(merged.join(name)).unwrap().write_all(b" and more").unwrap();
    }
    overlay.end();
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    let overlay = mount();
    for name in names.repeat(3) {
        assert_eq!(fs::read_to_string(merged.join(name)).unwrap(), "content and more", "{name}");
    }
    overlay.end();
    place.end();
}
