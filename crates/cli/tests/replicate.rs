//! A volume in an object store: shipped closed and mounted, restored, and what is wrong is named. S3 is that of SeaweedFS.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it waits for what other processes do"
)]

use std::fs::{self, File};
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{XattrFlags, setxattr};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::seaweed::{KEY, SECRET, Seaweed, is_there_weed};
use crate::support::{
    Place, error_of, fails, is_so_within, is_there, mounts, runs, system, text, wait_until, weir, weir_as,
    weir_in, weir_program, works,
};

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

/// A power cut leaves no name of an object whose content is not there.
#[test]
fn an_object_in_a_directory_is_durable_before_it_has_its_name() {
    if !is_there("strace") {
        return;
    }
    let (place, url) = place_with_store();
    let (volume, trace) = (place.volume(), place.path().join("trace"));
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-s", "4096", "-e", "trace=fsync,link,linkat", "-o"]).arg(&trace);
    runs(command.arg(weir_program()).args(["replicate", volume.to_str().unwrap(), &url]));
    let trace = fs::read_to_string(trace).unwrap();
    let mut synced: Vec<&str> = Vec::new();
    let mut named = 0;
    for call in trace.lines() {
        let between = |from: char, to: char| call.split_once(from)?.1.split_once(to).map(|(text, _)| text);
        if call.contains(" fsync(") {
            synced.extend(between('<', '>'));
        } else if let Some(path) = between('"', '"') {
            assert!(synced.contains(&path), "{call}");
            named += 1;
        }
    }
    assert!(named >= 3, "{trace}");
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

/// Moments before the first state are refused, and those behind the newest one are it.
#[test]
fn a_moment_that_is_not_kept_is_refused_and_a_file_that_is_there_is_left_alone() {
    let (place, url) = place_with_store();
    put(&place, "a", b"content");
    let shipped = replicate(&place, &url, &[]);
    let copy = path(&place, "copy.weir");
    let last = format!("position {} of 20", shipped["to"]);
    for at in ["0", "2001-01-01 00:00:00", &(shipped["to"].as_u64().unwrap() + 1).to_string()] {
        fails(
            &["restore", &url, &copy, "--at", at],
            &["cannot be restored, but states from position", &last],
        );
        assert!(!Path::new(&copy).exists(), "what is refused leaves nothing");
    }
    let told = works(&["restore", &url, &copy, "--at", "2400-01-01 00:00:00"]);
    assert!(told.contains(&last) && told.contains("nothing was shipped between"), "{told}");
    assert!(!works(&["restore", &url, &path(&place, "newest.weir")]).contains("nothing was shipped"));
    let before = fs::metadata(&copy).unwrap().len();
    let output = weir(&["restore", &url, &copy]).output().unwrap();
    let error = error_of(&output);
    assert!(output.status.code() == Some(2) && error.contains("name another file"), "{error}");
    assert!(!error.contains("--force"), "{error}");
    assert_eq!(fs::metadata(&copy).unwrap().len(), before);
    let checked = works(&["replicate", "--check", &url]);
    assert!(checked.contains("whole; states from position") && checked.contains(&last), "{checked}");
    let volume = place.volume();
    let shipped = works(&["replicate", volume.to_str().unwrap(), &url]);
    assert!(shipped.contains("the volume up to position") && shipped.contains("calls to the store"));
}

/// What the environment says of the store is looked at before the library is asked, which would panic, or ask the cloud.
#[test]
fn settings_of_the_environment_that_are_wrong_are_named() {
    let place = Place::with_volume("64M");
    let volume = place.volume();
    let refused = |set: &[(&str, &str)], words: &[&str]| {
        let mut command = weir(&["replicate", volume.to_str().unwrap(), "s3://bucket/a"]);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("AWS_")) {
            command.env_remove(name);
        }
        let began = Instant::now();
        is_refused(&command.envs(set.iter().copied()).output().unwrap(), words);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    };
    let keys = [("AWS_ACCESS_KEY_ID", KEY), ("AWS_SECRET_ACCESS_KEY", SECRET)];
    let endpoint = ("AWS_ENDPOINT_URL", "localhost:8333");
    refused(&[keys[0], keys[1], endpoint], &["AWS_ENDPOINT_URL", "http://HOST"]);
    refused(&[], &["no credentials", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_METADATA_ENDPOINT"]);
    refused(&keys[..1], &["AWS_"]);
}

#[test]
fn what_is_wrong_with_a_replica_is_named() {
    let (place, url) = place_with_store();
    let (copy, volume) = (path(&place, "copy.weir"), place.volume());
    let volume = volume.to_str().unwrap();
    fails(&["replicate", volume, "https://host/a"], &["https://host/a", "s3://"]);
    fails(
        &["replicate", volume, "file:///no/such/place"],
        &["/no/such/place", "make or mount the directory"],
    );
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
    assert_eq!(place.status()["sync"], "remote");
    fs::write(mountpoint.join("c"), b"in the store").unwrap();
    runs(Command::new("sync").arg(mountpoint.join("c")));
    // It is in the store when the call returns.
    assert_eq!(restored(&place, &url, "c", &[]), b"in the store");
    let requests = || replication(&place)["requests"].clone();
    wait_until("nothing is on its way", is_up_to_date);
    // What a mount looks at after its start is still asked for.
    wait_until("idle costs no request", || {
        let before = requests();
        std::thread::sleep(Duration::from_secs(6));
        requests() == before
    });
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
    // As if another writer had come: its object is at the next place, unless the mount was first.
    let log = place.path().join("store/log");
    let intrude = || {
        let newest = fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path()).max().unwrap();
        let shipped = replication(&place)["shipped"].as_u64().unwrap();
        let next = log.join(format!("{:020}-{:08}", shipped + 1, 0));
        if !next.exists() {
            fs::copy(newest, next).unwrap();
        }
        fs::write(place.mountpoint().join("b"), b"b").unwrap();
        runs(Command::new("sync").arg(place.mountpoint().join("b")));
    };
    wait_until("it has stopped", || {
        intrude();
        replication(&place)["stopped"] == true
    });
    let status = weir(&["status", place.mountpoint().to_str().unwrap()]).output().unwrap();
    assert_eq!(status.status.code(), Some(1));
    for words in ["STOPPED", "end the mount or server and start it again"] {
        assert!(text(&status.stdout).contains(words), "{}", text(&status.stdout));
    }
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
    runs(&mut weir_in(&seaweed, &["replicate", volume, url]));
    put(&place, "b", b"later");
    runs(&mut weir_in(&seaweed, &["replicate", volume, url]));
    let whole = runs(&mut weir_in(&seaweed, &["replicate", "--check", url]));
    assert!(whole.contains("whole"), "{whole}");
    let copy: PathBuf = place.path().join("copy.weir");
    let copy = copy.to_str().unwrap();
    runs(&mut weir_in(&seaweed, &["restore", url, copy]));
    assert_eq!(runs(&mut weir(&["cat", copy, "/b"])), "later");

    let output = |command: &mut Command| command.output().unwrap();
    let wrong = weir_as(&seaweed, KEY, "wrong-secret", &["replicate", volume, url]).output().unwrap();
    is_refused(&wrong, &["denied access", "AWS_SECRET_ACCESS_KEY"]);
    let wrong = weir_as(&seaweed, "wrong-key", SECRET, &["replicate", volume, url]).output().unwrap();
    is_refused(&wrong, &["denied access"]);
    is_refused(&output(&mut weir_in(&seaweed, &["restore", "s3://test/nothing", "x.weir"])), &["no replica"]);
    is_refused(&output(&mut weir_in(&seaweed, &["restore", "s3://no-such-bucket/a", "x.weir"])), &["bucket"]);
    let mut without_store = weir_in(&seaweed, &["replicate", volume, url, "--patience", "1s"]);
    is_refused(&output(without_store.env("AWS_ENDPOINT_URL", "http://127.0.0.1:9")), &["does not answer"]);
    works(&["volume", "check", volume]);
}

/// A volume to be mounted, and a store that speaks S3.
fn place_with_s3() -> Option<(Place, Seaweed)> {
    if !mounts() || !is_there_weed() {
        return None;
    }
    let place = Place::with_volume("64M");
    let seaweed = Seaweed::start(place.path());
    Some((place, seaweed))
}

/// Mounts the volume with these options, and ships it to this URL, with little patience.
fn mount_shipped(place: &Place, seaweed: &Seaweed, url: &str, options: &[&str]) -> Command {
    let mut command = weir_in(seaweed, &["mount", "--replicate", url, "--patience", "3s"]);
    command.args(options).args([place.volume(), place.mountpoint()]);
    command
}

/// A store that answers nothing, not even that it refuses: `fsync` fails, a mount without that promise goes on, and both end.
#[test]
fn a_store_that_falls_silent_holds_neither_fsync_nor_the_end_of_a_mount() {
    let Some((place, seaweed)) = place_with_s3() else { return };
    let (volume, root, url) = (place.volume(), place.mountpoint(), "s3://test/silent");
    let mount = |options: &[&str]| mount_shipped(&place, &seaweed, url, options);
    runs(&mut mount(&["--sync", "remote"]));
    let synchronised = |name: &str, content: &[u8]| {
        let mut file = File::create(root.join(name))?;
        file.write_all(content)?;
        file.sync_all()
    };
    synchronised("a", &[1; 100_000]).unwrap();
    seaweed.stop();
    let began = Instant::now();
    let failed = synchronised("b", &[2; 100_000]).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(Errno::IO.raw_os_error()), "{failed}");
    assert!(synchronised("c", b"c").is_err(), "nothing more is acknowledged");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(replication(&place)["stopped"], true);
    place.unmount();
    place.check();
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    seaweed.resume();
    // Without the third promise writers wait for the store, but not at the end of the mount.
    runs(&mut mount(&[]));
    synchronised("d", &[4; 100_000]).unwrap();
    wait_until("it is shipped", || replication(&place)["behind"] == false);
    seaweed.stop();
    synchronised("e", &[5; 100_000]).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let pid = Pid::from_raw(place.status()["pid"].as_i64().unwrap() as i32).unwrap();
    fs::write(root.join("f"), vec![6; 8 << 20]).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let has_ended = || !Path::new(&format!("/proc/{}", pid.as_raw_nonzero())).exists();
    assert!(is_so_within(Duration::from_secs(30), has_ended), "the server does not end");
    seaweed.resume();
    place.check();
    assert_eq!(runs(&mut weir(&["cat", volume.to_str().unwrap(), "/f"])).len(), 8 << 20);
    runs(&mut weir_in(&seaweed, &["replicate", volume.to_str().unwrap(), url]));
    let whole = runs(&mut weir_in(&seaweed, &["replicate", "--check", url]));
    assert!(whole.contains("whole"), "{whole}");
}

/// A directory that lies on another one, as a disk that is mounted there.
struct Bound(PathBuf);

impl Bound {
    fn new(disk: &Path, on: &Path) -> Bound {
        runs(system("mount").arg("--bind").arg(disk).arg(on));
        Bound(on.to_owned())
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = system("umount").arg("-l").arg(&self.0).status();
    }
}

/// A volume to be mounted, and the URL of the directory `store`, on which the directory `disk` is to be bound.
fn place_with_store_on_disk() -> Option<(Place, String)> {
    let (place, url) = mounts().then(place_with_store)?;
    fs::create_dir(place.path().join("disk")).unwrap();
    Some((place, url))
}

/// The disk of a store is unmounted under it: plainly that is refused; lazily, nothing goes into the bare directory, and no `fsync`
/// says that it did.
#[test]
fn a_store_whose_disk_is_unmounted_does_not_answer_and_gets_no_hole() {
    let Some((place, url)) = place_with_store_on_disk() else { return };
    let (store, disk) = (place.path().join("store"), place.path().join("disk"));
    let bound = Bound::new(&disk, &store);
    let root = place.mount(&["--replicate", &url, "--sync", "remote", "--patience", "2s"]);
    let synchronised = |name: &str| {
        fs::write(root.join(name), name)?;
        File::open(root.join(name))?.sync_all()
    };
    synchronised("a").unwrap();
    assert!(!system("umount").arg(&store).status().unwrap().success(), "it is in use");
    drop(bound);
    let failed = synchronised("b").unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(Errno::IO.raw_os_error()), "{failed}");
    assert_eq!(fs::read_dir(&store).unwrap().count(), 0, "nothing is in the bare directory");
    let trouble = replication(&place)["trouble"].to_string();
    assert!(trouble.contains("does not answer") && trouble.contains("another directory"), "{trouble}");
    place.unmount();
    // Without that promise the mount goes on, and its end says what is left.
    let bound = Bound::new(&disk, &store);
    place.mount(&["--replicate", &url, "--patience", "2s"]);
    wait_until("it is shipped", || replication(&place)["lag_bytes"] == 0);
    drop(bound);
    synchronised("c").unwrap();
    wait_until("the store is missed", || !replication(&place)["trouble"].is_null());
    let end = || weir(&["umount", root.to_str().unwrap()]).output().unwrap();
    let mut ended = end();
    while error_of(&ended).contains("have files open") {
        ended = end();
    }
    assert!(ended.status.success() && error_of(&ended).contains("not in the store"), "{}", error_of(&ended));
    let _bound = Bound::new(&disk, &store);
    replicate(&place, &url, &[]);
    assert!(works(&["replicate", "--check", &url]).contains("whole"));
    for name in ["b", "c"] {
        assert_eq!(restored(&place, &url, name, &[]), name.as_bytes());
    }
}

/// `fsync` of one file waits for the store, and fails while that does not answer; the others are durable here.
#[test]
fn fsync_of_one_file_waits_for_the_store() {
    let Some((place, url)) = place_with_store_on_disk() else { return };
    let (store, disk) = (place.path().join("store"), place.path().join("disk"));
    let bound = Bound::new(&disk, &store);
    let root = place.mount(&["--replicate", &url, "--never-wait", "--lag", "1h", "--patience", "2s"]);
    let set = |name: &str, mode: &str| {
        setxattr(root.join(name), "user.weir.sync", mode.as_bytes(), XattrFlags::empty())
    };
    let synchronised = |name: &str, content: &str| {
        fs::write(root.join(name), content)?;
        File::open(root.join(name))?.sync_all()
    };
    synchronised("remote", "first").unwrap();
    set("remote", "remote").unwrap();
    synchronised("remote", "second").unwrap();
    assert_eq!(restored(&place, &url, "remote", &[]), b"second");
    let told = works(&["status", root.to_str().unwrap()]);
    assert!(told.contains("durability; also in the store for 1 file"), "{told}");
    drop(bound);
    let failed = synchronised("remote", "third").unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(Errno::IO.raw_os_error()), "{failed}");
    synchronised("durable", "here").unwrap();
    let bound = Bound::new(&disk, &store);
    wait_until("the store answers again", || synchronised("remote", "fourth").is_ok());
    assert_eq!(restored(&place, &url, "remote", &[]), b"fourth");
    assert_eq!(restored(&place, &url, "durable", &[]), b"here");
    place.umount();
    drop(bound);
    // Without a store it fails, and says so.
    place.mount(&[]);
    assert!(synchronised("remote", "fifth").is_err());
    synchronised("durable", "there").unwrap();
    assert_eq!(set("durable", "remote"), Err(Errno::OPNOTSUPP));
    wait_until("all are counted", || place.status()["remote_files"] == 1);
    assert_eq!(place.status()["health"]["findings"][0]["cause"], "no_store");
    set("remote", "durable").unwrap();
    synchronised("remote", "sixth").unwrap();
    assert_eq!(place.status()["health"]["healthy"], true);
    place.umount();
}

/// With writers that never wait a mount begins without its store, says so, and ships when it answers; any other one names that option.
#[test]
fn a_mount_whose_store_is_silent_at_the_start_begins_if_writers_never_wait() {
    let Some((place, seaweed)) = place_with_s3() else { return };
    let (root, url) = (place.mountpoint(), "s3://test/later");
    let mount = |options: &[&str]| mount_shipped(&place, &seaweed, url, options);
    seaweed.stop();
    is_refused(&mount(&[]).output().unwrap(), &["does not answer", "--never-wait"]);
    let begun = mount(&["--never-wait"]).output().unwrap();
    assert!(
        begun.status.success() && error_of(&begun).contains("is served without the store"),
        "{}",
        error_of(&begun)
    );
    fs::write(root.join("a"), [1; 100_000]).unwrap();
    File::open(root.join("a")).unwrap().sync_all().unwrap();
    setxattr(root.join("a"), "user.weir.sync", b"remote", XattrFlags::empty()).unwrap();
    assert!(File::open(root.join("a")).unwrap().sync_all().is_err(), "it is not there");
    wait_until("it is overdue", || replication(&place)["overdue"] == true);
    wait_until("it says why", || replication(&place)["trouble"].to_string().contains("does not answer"));
    assert_eq!(place.status()["health"]["findings"][0]["cause"], "replication_behind");
    seaweed.resume();
    wait_until("it is shipped", || File::open(root.join("a")).unwrap().sync_all().is_ok());
    assert_eq!(replication(&place)["trouble"], Value::Null);
    place.umount();
    let whole = runs(&mut weir_in(&seaweed, &["replicate", "--check", url]));
    assert!(whole.contains("whole"), "{whole}");
}

/// A service manager kills a server that does not end in time.
#[test]
fn a_start_that_waits_for_its_store_ends_when_it_is_told() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let store = TcpListener::bind("127.0.0.1:0").unwrap();
    let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b"), ("AWS_REGION", "c")];
    let socket = format!("unix:{}", path(&place, "socket"));
    let (volume, root) = (place.volume(), place.mountpoint());
    let (volume, root) = (volume.to_str().unwrap(), root.to_str().unwrap());
    for start in [["mount", volume, root, "--foreground"], ["serve", volume, "--foreground", "--nbd"]] {
        let mut command = weir(&start);
        command.args((start[0] == "serve").then_some(&socket)).args(["--replicate", "s3://test/silent"]);
        command.args(["--patience", "10min"]).envs(keys).stderr(Stdio::piped());
        command.env("AWS_ENDPOINT_URL", format!("http://{}", store.local_addr().unwrap()));
        let server = command.spawn().unwrap();
        // It has sent a request.
        let connection = store.accept().unwrap();
        let began = Instant::now();
        kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
        let ended = server.wait_with_output().unwrap();
        let told = error_of(&ended);
        assert!(ended.status.success() && told.contains("ended by a signal before"), "{told}");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        drop(connection);
        works(&["volume", "check", volume]);
    }
}
