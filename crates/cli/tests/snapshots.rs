//! Snapshots and clones from the command line, of volumes that are closed and mounted.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::path::PathBuf;

use crate::support::{Place, error_of, fails, mounts, runs, text, weir, works};

/// A volume with a filesystem, and its path as an argument.
fn made() -> (Place, String) {
    let place = Place::with_volume("64M");
    let path = place.volume().to_str().unwrap().to_owned();
    (place, path)
}

fn names(path: &str) -> Vec<String> {
    let list: serde_json::Value =
        serde_json::from_str(&works(&["snapshot", "list", path, "--json"])).unwrap();
    list.as_array().unwrap().iter().map(|branch| branch["name"].as_str().unwrap().to_owned()).collect()
}

/// Mounts a snapshot or a clone, and looks at it.
fn on_branch(place: &Place, name: &str, look: impl FnOnce(PathBuf)) {
    look(place.mount(&["--snapshot", name]));
    place.umount();
}

#[test]
fn a_snapshot_of_a_mount_keeps_what_files_were_and_the_volume_goes_back_to_it() {
    if !mounts() {
        return;
    }
    let (place, volume) = made();
    let root = place.mount(&[]);
    let mountpoint = root.to_str().unwrap();
    fs::write(root.join("kept"), b"before").unwrap();
    works(&["snapshot", "create", mountpoint, "one"]);
    fs::write(root.join("kept"), b"after").unwrap();
    fs::write(root.join("new"), b"new").unwrap();
    works(&["clone", mountpoint, "one", "copy"]);
    assert_eq!(names(mountpoint), ["one", "copy"]);
    fails(&["snapshot", "create", mountpoint, "one"], &["one already"]);
    fails(&["snapshot", "create", mountpoint, "a b"], &["letters, digits"]);
    fails(&["snapshot", "delete", mountpoint, "one"], &["has a clone"]);
    fails(&["snapshot", "delete", mountpoint, "none"], &["no snapshot or clone none"]);
    fails(&["snapshot", "rollback", mountpoint, "one"], &["unmount it"]);
    place.umount();
    on_branch(&place, "one", |root| {
        assert_eq!(fs::read(root.join("kept")).unwrap(), b"before");
        assert!(fs::write(root.join("kept"), b"changed").is_err(), "a snapshot does not change");
    });
    on_branch(&place, "copy", |root| {
        assert!(!root.join("new").exists());
        fs::write(root.join("kept"), b"in the clone").unwrap();
    });
    on_branch(&place, "copy", |root| {
        assert_eq!(fs::read(root.join("kept")).unwrap(), b"in the clone");
    });
    let root = place.mount(&[]);
    assert_eq!(fs::read(root.join("kept")).unwrap(), b"after");
    place.umount();
    works(&["snapshot", "rollback", &volume, "one"]);
    let root = place.mount(&[]);
    assert_eq!(fs::read(root.join("kept")).unwrap(), b"before");
    assert!(!root.join("new").exists());
    place.umount();
    for name in ["copy", "one"] {
        works(&["snapshot", "delete", &volume, name]);
    }
    assert_eq!(names(&volume), [""; 0]);
    place.check();
}

#[test]
fn what_has_no_room_for_a_snapshot_says_so() {
    let (_place, volume) = made();
    fails(&["clone", &volume, "x", "y"], &["no snapshot or clone x"]);
    for name in ["a", "b", "c", "d"] {
        works(&["snapshot", "create", &volume, name]);
    }
    fails(&["snapshot", "create", &volume, "e"], &["slots", "in use"]);
    let place = Place::new();
    let without = place.path().join("without").to_str().unwrap().to_owned();
    works(&["volume", "create", &without, "--size", "16M", "--snapshots", "0"]);
    fails(&["snapshot", "create", &without, "a"], &["without room for snapshots"]);
    let image = place.path().join("image").to_str().unwrap().to_owned();
    works(&["mkfs", &image, "--size", "16M"]);
    fails(&["snapshot", "list", &image], &["no volume"]);
}

#[test]
fn a_snapshot_is_sent_and_received_whole_and_as_what_has_changed() {
    let (place, volume) = made();
    let file = place.path().join("file");
    let stream = |name: &str, from: &[&str]| {
        let path = place.path().join(format!("{name}.stream"));
        runs(weir(&[&["send", &volume, name], from].concat()).stdout(File::create(&path).unwrap()));
        path
    };
    let put = |content: &[u8]| {
        fs::write(&file, content).unwrap();
        works(&["put", &volume, file.to_str().unwrap(), "/"]);
    };
    works(&["snapshot", "create", &volume, "empty"]);
    let whole = stream("empty", &[]);
    put(b"content");
    works(&["snapshot", "create", &volume, "full"]);
    let later = stream("full", &["--from", "empty"]);
    let other = place.path().join("other").to_str().unwrap().to_owned();
    works(&["volume", "create", &other, "--size", "64M"]);
    let receive =
        |stream: &PathBuf| weir(&["receive", &other]).stdin(File::open(stream).unwrap()).output().unwrap();
    let early = receive(&later);
    assert!(!early.status.success() && error_of(&early).contains("no snapshot or clone empty"));
    for stream in [&whole, &later] {
        let output = receive(stream);
        assert!(output.status.success(), "{}", error_of(&output));
    }
    assert_eq!(works(&["cat", &other, "/file"]), "content");
    assert_eq!(names(&other), ["empty", "full"]);
    works(&["fsck", &other]);
    let cut = place.path().join("cut");
    fs::write(&cut, &fs::read(&later).unwrap()[..5000]).unwrap();
    let third = place.path().join("third").to_str().unwrap().to_owned();
    works(&["volume", "create", &third, "--size", "64M"]);
    let output = weir(&["receive", &third]).stdin(File::open(&cut).unwrap()).output().unwrap();
    assert!(!output.status.success());
    assert_eq!(names(&third), [""; 0]);
}

#[test]
fn a_repair_gives_snapshots_up_whose_table_is_damaged_where_it_is_told_to() {
    let (_place, volume) = made();
    works(&["snapshot", "create", &volume, "one"]);
    let mut bytes = fs::read(&volume).unwrap();
    for table in bytes.chunks_mut(4096).filter(|block| block.starts_with(b"WEIR-SNP")) {
        table[100] ^= 8;
    }
    fs::write(&volume, bytes).unwrap();
    fails(&["snapshot", "list", &volume], &["table of snapshots"]);
    let repair = |options: &[&str]| weir(&["volume", "repair", &volume]).args(options).output().unwrap();
    let refused = repair(&["--write"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stdout).contains("`--write --drop-snapshots`"), "{refused:?}");
    let repaired = repair(&["--write", "--drop-snapshots"]);
    assert_eq!(repaired.status.code(), Some(1), "something is lost: {repaired:?}");
    assert!(text(&repaired.stdout).contains("given up"), "{repaired:?}");
    assert!(names(&volume).is_empty());
    works(&["fsck", &volume]);
}

/// Both ends of a pipe say that the other one has gone.
#[test]
fn a_pipe_between_send_and_receive_that_breaks_is_named() {
    let (place, volume) = made();
    let file = place.path().join("file");
    fs::write(&file, vec![7; 4 << 20]).unwrap();
    works(&["put", &volume, file.to_str().unwrap(), "/"]);
    works(&["snapshot", "create", &volume, "a"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = weir(&["send", &volume, "a"]).stdout(writer).output().unwrap();
    let error = error_of(&output);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("takes the stream has ended"), "{error}");
    let other = place.path().join("other").to_str().unwrap().to_owned();
    works(&["volume", "create", &other, "--size", "64M"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(writer);
    let output = weir(&["receive", &other]).stdin(reader).output().unwrap();
    let error = error_of(&output);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("the stream is empty") && error.contains("nothing has changed"), "{error}");
}
