//! A volume in an object store: shipped closed and mounted, restored, and what is wrong is named. S3 is that of SeaweedFS.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![expect(clippy::disallowed_methods, reason = "it waits for what other processes do")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;

use crate::support::seaweed::{KEY, SECRET, Seaweed, is_there_weed};
use crate::support::{Place, error_of, fails, mounts, runs, text, wait_until, weir, works};

/// A volume with a filesystem, and an empty directory as a store.
fn place_with_store() -> (Place, String) {
    let place = Place::with_volume("64M");
    let store = place.path().join("store");
    fs::create_dir(&store).unwrap();
    (place, format!("file://{}", store.display()))
}

fn path(place: &Place, name: &str) -> String {
    place.path().join(name).to_str().unwrap().to_owned()
}

/// Puts a file of this content into the volume.
fn put(place: &Place, name: &str, content: &[u8]) {
    fs::write(place.path().join(name), content).unwrap();
    works(&["put", place.volume().to_str().unwrap(), &path(place, name), &format!("/{name}")]);
}

fn replicate(place: &Place, url: &str, more: &[&str]) -> Value {
    let volume = place.volume();
    let arguments = [&["replicate", volume.to_str().unwrap(), url, "--json"], more].concat();
    serde_json::from_str(&works(&arguments)).unwrap()
}

/// What a file holds in a volume that is restored from a store.
fn restored(place: &Place, url: &str, name: &str, more: &[&str]) -> Vec<u8> {
    let copy = path(place, "restored.weir");
    works(&[&["restore", url, &copy], more].concat());
    works(&["volume", "check", &copy]);
    let content = weir(&["cat", &copy, &format!("/{name}")]).output().unwrap();
    fs::remove_file(copy).unwrap();
    assert!(content.status.success(), "{}", error_of(&content));
    content.stdout
}

#[test]
fn a_volume_is_shipped_to_a_directory_and_restored() {
    let (place, url) = place_with_store();
    put(&place, "a", &[1; 300_000]);
    let first = replicate(&place, &url, &[]);
    assert_eq!(first["from"], 0);
    put(&place, "a2", b"later");
    let second = replicate(&place, &url, &[]);
    assert_eq!(second["from"], first["to"]);
    assert!(second["to"].as_u64() > first["to"].as_u64());
    assert_eq!(restored(&place, &url, "a", &[]), [1; 300_000]);
    assert_eq!(restored(&place, &url, "a2", &[]), b"later");
    let before = path(&place, "before.weir");
    works(&["restore", &url, &before, "--at", &first["to"].to_string()]);
    assert!(!weir(&["cat", &before, "/a2"]).output().unwrap().status.success());
    // What is there already is not sent again.
    let third = replicate(&place, &url, &[]);
    assert_eq!((&third["from"], &third["to"]), (&second["to"], &second["to"]));
    assert_eq!(third["requests"]["bytes_created"].as_u64().unwrap() / 1000, 0, "{third}");
    let checked: Value = serde_json::from_str(&works(&["replicate", "--check", &url, "--json"])).unwrap();
    assert_eq!((&checked["last"], checked["faults"].as_array().map(Vec::len)), (&second["to"], Some(0)));
    replicate(&place, &url, &["--checkpoint", "--keep", "1min"]);
    assert_eq!(restored(&place, &url, "a2", &[]), b"later");
}

#[test]
fn what_is_wrong_with_a_replica_is_named() {
    let (place, url) = place_with_store();
    let (copy, volume) = (path(&place, "copy.weir"), place.volume());
    let volume = volume.to_str().unwrap();
    fails(&["replicate", volume, "https://host/a"], &["https://host/a", "s3://"]);
    fails(&["replicate", volume, "file:///no/such/place"], &["/no/such/place", "no such directory"]);
    fails(&["restore", &url, &copy], &["no replica"]);
    put(&place, "a", &[7; 50_000]);
    let key = place.path().join("key");
    fs::write(&key, "3".repeat(64)).unwrap();
    replicate(&place, &url, &["--key-file", key.to_str().unwrap()]);
    fails(&["restore", &url, &copy], &["encrypted", "--key-file"]);
    fs::write(&key, "4".repeat(64)).unwrap();
    fails(&["restore", &url, &copy, "--key-file", key.to_str().unwrap()], &["cannot be decrypted"]);
    fs::write(&key, "short").unwrap();
    fails(&["restore", &url, &copy, "--key-file", key.to_str().unwrap()], &["64 hexadecimal digits"]);
    fs::write(&key, "3".repeat(64)).unwrap();
    assert_eq!(restored(&place, &url, "a", &["--key-file", key.to_str().unwrap()]), [7; 50_000]);
    // Another volume at the same place.
    let other = path(&place, "other.weir");
    works(&["mkfs", "--volume", &other, "--size", "64M"]);
    fails(&["replicate", &other, &url, "--key-file", key.to_str().unwrap()], &["replica of volume"]);
    // An object that is changed.
    let log = place.path().join("store/log");
    let object = fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path()).max().unwrap();
    let mut bytes = fs::read(&object).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(&object, bytes).unwrap();
    let name = object.file_name().unwrap().to_str().unwrap();
    fails(&["restore", &url, &copy, "--key-file", key.to_str().unwrap()], &[name, "damaged"]);
    assert!(!Path::new(&copy).exists(), "what is not whole gets no name");
    let checked =
        weir(&["replicate", "--check", &url, "--key-file", key.to_str().unwrap()]).output().unwrap();
    assert_eq!(checked.status.code(), Some(1));
    assert!(text(&checked.stdout).contains(name), "{}", text(&checked.stdout));
    // The volume here is as it was.
    works(&["volume", "check", volume]);
}

fn replication(place: &Place) -> Value {
    place.status()["replication"].clone()
}

#[test]
fn a_mount_ships_while_it_serves_and_after_it_was_killed() {
    if !mounts() {
        return;
    }
    let (place, url) = place_with_store();
    let mut server = place.serve_as(&["--replicate", &url, "--lag", "200ms"]);
    fs::write(place.mountpoint().join("a"), [5; 200_000]).unwrap();
    runs(Command::new("sync").arg(place.mountpoint().join("a")));
    let is_up_to_date = || {
        let found = replication(&place);
        found["behind"] == false && found["lag_bytes"] == 0 && found["shipped"].as_u64() > Some(0)
    };
    wait_until("the store has it", is_up_to_date);
    assert_eq!(restored(&place, &url, "a", &[]), [5; 200_000]);
    fs::write(place.mountpoint().join("b"), [6; 100_000]).unwrap();
    server.kill();
    drop(server);
    place.umount();
    let mountpoint = place.mount(&["--replicate", &url, "--sync", "remote"]);
    fs::write(mountpoint.join("c"), b"in the store").unwrap();
    runs(Command::new("sync").arg(mountpoint.join("c")));
    // It is in the store when the call returns.
    assert_eq!(restored(&place, &url, "c", &[]), b"in the store");
    let requests = || replication(&place)["requests"].clone();
    wait_until("nothing is on its way", is_up_to_date);
    std::thread::sleep(Duration::from_secs(7));
    let before = requests();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(requests(), before, "idle costs no request");
    place.umount();
    assert_eq!(restored(&place, &url, "a", &[]), [5; 200_000]);
    place.check();
}

/// A second mount of a copy of the volume takes the place of the first one, which stops and says so.
#[test]
fn a_mount_whose_replica_was_taken_over_says_so_and_goes_on() {
    if !mounts() {
        return;
    }
    let (place, url) = place_with_store();
    let _server = place.serve_as(&["--replicate", &url, "--lag", "100ms"]);
    fs::write(place.mountpoint().join("a"), b"a").unwrap();
    runs(Command::new("sync").arg(place.mountpoint().join("a")));
    wait_until("it is shipped", || replication(&place)["behind"] == false);
    // As if another writer had come: its object is at the next place.
    let log = place.path().join("store/log");
    let newest = fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path()).max().unwrap();
    let shipped = replication(&place)["shipped"].as_u64().unwrap();
    fs::copy(newest, log.join(format!("{:020}-{:08}", shipped + 1, 0))).unwrap();
    fs::write(place.mountpoint().join("b"), b"b").unwrap();
    runs(Command::new("sync").arg(place.mountpoint().join("b")));
    wait_until("it has stopped", || replication(&place)["stopped"] == true);
    let status = weir(&["status", place.mountpoint().to_str().unwrap()]).output().unwrap();
    assert_eq!(status.status.code(), Some(1));
    assert!(text(&status.stdout).contains("STOPPED"), "{}", text(&status.stdout));
    assert_eq!(fs::read(place.mountpoint().join("b")).unwrap(), b"b");
}

/// The command fails, names the cause, and tells no secret.
#[track_caller]
fn is_refused(output: &Output, words: &[&str]) {
    let error = error_of(output);
    assert_eq!(output.status.code(), Some(2), "{error}");
    for word in words {
        assert!(error.contains(word), "no {word:?} in {error}");
    }
    for secret in [KEY, SECRET, "wrong-secret", "wrong-key"] {
        assert!(!error.contains(secret), "{error}");
    }
}

#[test]
fn a_volume_is_shipped_to_s3_and_restored() {
    if !is_there_weed() {
        return;
    }
    let place = Place::with_volume("64M");
    let seaweed = Seaweed::start(place.path());
    let volume = place.volume();
    let volume = volume.to_str().unwrap();
    put(&place, "a", &[9; 400_000]);
    let url = "s3://test/volumes/a";
    runs(&mut seaweed.weir(&["replicate", volume, url]));
    put(&place, "b", b"later");
    runs(&mut seaweed.weir(&["replicate", volume, url]));
    let whole = runs(&mut seaweed.weir(&["replicate", "--check", url]));
    assert!(whole.contains("whole"), "{whole}");
    let copy: PathBuf = place.path().join("copy.weir");
    let copy = copy.to_str().unwrap();
    runs(&mut seaweed.weir(&["restore", url, copy]));
    assert_eq!(runs(&mut weir(&["cat", copy, "/b"])), "later");

    let output = |command: &mut Command| command.output().unwrap();
    let wrong = seaweed.weir_as(KEY, "wrong-secret", &["replicate", volume, url]).output().unwrap();
    is_refused(&wrong, &["denied access", "AWS_SECRET_ACCESS_KEY"]);
    let wrong = seaweed.weir_as("wrong-key", SECRET, &["replicate", volume, url]).output().unwrap();
    is_refused(&wrong, &["denied access"]);
    is_refused(&output(&mut seaweed.weir(&["restore", "s3://test/nothing", "x.weir"])), &["no replica"]);
    is_refused(&output(&mut seaweed.weir(&["restore", "s3://no-such-bucket/a", "x.weir"])), &["bucket"]);
    let mut without_store = seaweed.weir(&["replicate", volume, url, "--patience", "1s"]);
    is_refused(&output(without_store.env("AWS_ENDPOINT_URL", "http://127.0.0.1:9")), &["does not answer"]);
    works(&["volume", "check", volume]);
}
