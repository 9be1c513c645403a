//! `weir mount --moment`: a killed server leaves the whole tree as of one moment. Where FUSE is not to be had, these tests say that
//! they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "it waits for what other processes do")]

use std::fs;
use std::io::{ErrorKind, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::{Place, error_of, is_there, mounts, weir, works};

/// Rounds of kills; the long run takes 50.
fn rounds() -> u64 {
    std::env::var("WEIR_PROGRAM_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(4)
}

/// What step `number` makes of the tree: a new file, the same over an older one in place, and a name that moves. None is
/// synchronised.
fn change_tree(root: &Path, number: u64) -> std::io::Result<()> {
    let content = number.to_string().repeat(2000);
    fs::write(root.join(format!("made-{number}")), &content)?;
    fs::write(root.join("newest"), &content)?;
    fs::write(root.join("new"), &content)?;
    fs::rename(root.join("new"), root.join("renamed"))
}

/// The last step of which something is there. All of each step before it is, and of it what was done first.
fn newest_step(root: &Path, from: u64) -> u64 {
    let read = |name: &str| match fs::read_to_string(root.join(name)) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        found => found.unwrap(),
    };
    let of = |number: u64| number.to_string().repeat(2000);
    let last = (from..).take_while(|number| root.join(format!("made-{number}")).exists()).last();
    let Some(last) = last else { return from };
    for number in from..last {
        assert_eq!(read(&format!("made-{number}")), of(number), "step {number} of {last}");
    }
    assert!(!root.join(format!("made-{}", last + 2)).exists(), "a step behind one that is missing");
    let (made, newest, renamed) = (read(&format!("made-{last}")), read("newest"), read("renamed"));
    // A call of `fs::write` empties a file, or makes it, before it writes.
    let is_done = |found: &str| found == of(last);
    let is_begun = |found: &str| found.is_empty() || is_done(found);
    assert!(is_begun(&made), "step {last}");
    assert!(is_done(&made) || newest == of(last - 1) || last == from, "an overwrite before what was made");
    assert!(newest == of(last - 1) || is_begun(&newest), "step {last}: {newest:.20}");
    assert!(is_done(&newest) || renamed == of(last - 1) || last == from, "a rename before the overwrite");
    assert!(renamed == of(last - 1) || is_done(&renamed) || last == from, "step {last}: {renamed:.20}");
    last
}

#[test]
fn a_killed_server_leaves_the_tree_as_of_one_moment() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    let root = place.mountpoint();
    let mut from = 1;
    for round in 0..rounds() {
        let writeback: &[&str] = if round % 2 == 1 { &["--writeback-cache"] } else { &[] };
        let mut server = place.serve_as(&[&["--moment", "50ms", "--sync", "order"], writeback].concat());
        assert_eq!(place.status()["moment_ms"], 50);
        assert!(place.status()["moment_age_ms"].is_number());
        let done = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut number = from;
                while change_tree(&root, number).is_ok() {
                    done.store(number, Ordering::Relaxed);
                    number += 1;
                }
            });
            thread::sleep(Duration::from_millis(300 + round * 37));
            server.kill();
        });
        works(&["umount", root.to_str().unwrap()]);
        place.mount(&[]);
        let newest = newest_step(&root, from);
        let done = done.into_inner();
        assert!(newest <= done + 1, "{newest} of {done}");
        assert!(newest > from, "round {round}: nothing of {done} steps is there");
        // What is left of the last step is done anew.
        from = newest + 1;
        change_tree(&root, newest).unwrap();
        place.umount();
        place.check();
    }
}

/// Maps two files, changes them, and gives them names: by a rename, and by a link. What it has mapped stays open.
const NAME_MAPPED: &str = r#"
import mmap, os, sys
os.chdir(sys.argv[1])
kept = []
for name, give_name in [("renamed", os.rename), ("linked", os.link)]:
    file = os.open("new-" + name, os.O_RDWR | os.O_CREAT)
    os.truncate(file, 4096)
    mapping = mmap.mmap(file, 4096)
    mapping[:5] = b"hello"
    kept.append(mapping)
    give_name("new-" + name, name)
print("named", flush=True)
sys.stdin.read()
"#;

/// K1: a moment that has a file's new name has what was mapped of it before.
#[test]
fn what_was_mapped_is_in_the_moment_that_has_the_name() {
    if !mounts() || !is_there("python3") {
        return;
    }
    for more in [&[][..], &["--writeback-cache"]] {
        let place = Place::with_volume("64M");
        let mut server = place.serve_as(&[&["--moment", "10s"], more].concat());
        let root = place.mountpoint();
        let mut program = Command::new("python3");
        program.args(["-c", NAME_MAPPED]).arg(&root);
        let mut program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        program.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
        // It takes a moment, and does not make the other files' pages come.
        fs::File::create(root.join("other")).unwrap().sync_all().unwrap();
        server.kill();
        program.kill().unwrap();
        program.wait().unwrap();
        place.unmount();
        place.mount(&[]);
        for name in ["renamed", "linked"] {
            assert!(fs::read(root.join(name)).unwrap().starts_with(b"hello"), "{name}, {more:?}");
        }
        place.umount();
    }
}

/// A durable call covers all that was done before it, whatever is killed; so does a snapshot.
#[test]
fn a_durable_call_takes_a_moment() {
    if !mounts() {
        return;
    }
    let place = Place::new();
    works(&["mkfs", "--volume", place.volume().to_str().unwrap(), "--size", "256M", "--snapshots", "4"]);
    let root = place.mountpoint();
    let mut server = place.serve_as(&["--moment", "10s"]);
    for number in 0..20 {
        fs::write(root.join(format!("before-{number}")), "content").unwrap();
    }
    fs::File::open(root.join("before-3")).unwrap().sync_all().unwrap();
    fs::write(root.join("of the snapshot"), "content").unwrap();
    works(&["snapshot", "create", root.to_str().unwrap(), "kept"]);
    fs::write(root.join("after"), "content").unwrap();
    server.kill();
    works(&["umount", root.to_str().unwrap()]);
    place.mount(&[]);
    for number in 0..20 {
        assert_eq!(fs::read_to_string(root.join(format!("before-{number}"))).unwrap(), "content");
    }
    assert_eq!(fs::read_to_string(root.join("of the snapshot")).unwrap(), "content");
    assert!(!root.join("after").exists());
    assert!(works(&["snapshot", "list", root.to_str().unwrap()]).contains("kept"));
    place.umount();
}

#[test]
fn what_cannot_take_moments_says_why() {
    let place = Place::new();
    let (image, volume) = (place.path().join("plain.img"), place.volume());
    let (image, volume) = (image.to_str().unwrap(), volume.to_str().unwrap());
    works(&["mkfs", image, "--size", "64M"]);
    let root = place.mountpoint();
    let root = root.to_str().unwrap();
    let is_refused = |path: &str, more: &[&str], word: &str| {
        let output = weir(&[&["mount", path, root, "--moment", "100ms"], more].concat()).output().unwrap();
        assert!(!output.status.success());
        assert!(error_of(&output).contains(word), "{}", error_of(&output));
    };
    is_refused(image, &[], "needs a volume");
    works(&["mkfs", "--volume", volume, "--size", "64M", "--type", "f2fs"]);
    is_refused(volume, &[], "--moment");
    is_refused(volume, &["--read-only"], "--read-only");
    is_refused(volume, &["--replicate", "file:///tmp/none"], "--replicate");
    for (time, word) in [("1ms", "10ms at least"), ("30m", "1min at most; 30m is 30 minutes")] {
        let output = weir(&["mount", volume, root, "--moment", time]).output().unwrap();
        assert!(output.status.code() == Some(2) && error_of(&output).contains(word), "{}", error_of(&output));
    }
}
