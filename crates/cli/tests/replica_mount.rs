//! A replica that is mounted from its store: it shows what a restore would, fixed, and what cannot be had is an error.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![expect(clippy::print_stdout, reason = "a measurement prints what it found")]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it waits for other processes, and measures them"
)]

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::seaweed::{Seaweed, is_there_weed};
use crate::support::{
    Place, error_of, fails, is_so_within, mounts, noise, runs, text, wait_until, weir, weir_in, works,
};

/// A volume, a directory as its store, and a place to mount the replica on.
struct Replicated {
    place: Place,
    /// Its mountpoint.
    copy: Place,
    url: String,
}

impl Replicated {
    fn new() -> Replicated {
        let place = Place::with_volume("96M");
        let store = place.path().join("store");
        fs::create_dir(&store).unwrap();
        let url = format!("file://{}", store.display());
        Replicated { place, copy: Place::new(), url }
    }

    fn path(&self, name: &str) -> String {
        self.place.path().join(name).to_str().unwrap().to_owned()
    }

    fn put(&self, name: &str, content: &[u8]) {
        fs::write(self.path(name), content).unwrap();
        works(&["put", self.place.volume().to_str().unwrap(), &self.path(name), &format!("/{name}")]);
    }

    fn replicate(&self, more: &[&str]) -> u64 {
        let volume = self.place.volume();
        let arguments = [&["replicate", volume.to_str().unwrap(), &self.url, "--json"], more].concat();
        serde_json::from_str::<Value>(&works(&arguments)).unwrap()["to"].as_u64().unwrap()
    }

    fn mount(&self, more: &[&str]) -> PathBuf {
        let mountpoint = self.copy.mountpoint();
        let arguments = ["mount", &self.url, mountpoint.to_str().unwrap(), "--read-only"];
        works(&[&arguments, more].concat());
        mountpoint
    }

    /// The object of the log that has the most bytes.
    fn largest_object(&self) -> PathBuf {
        let log = self.place.path().join("store/log");
        let objects = fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path());
        objects.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap()
    }
}

/// The kernel keeps nothing of a file that it has read.
fn forget_pages() {
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
}

#[test]
fn a_replica_is_mounted_as_it_was_and_stays_so() {
    if !mounts() {
        return;
    }
    let replicated = Replicated::new();
    let large = noise(1, 6_000_000);
    replicated.put("large", &large);
    replicated.put("small", b"before");
    let first = replicated.replicate(&["--no-compression"]);
    replicated.put("later", &[7; 3_000_000]);
    let second = replicated.replicate(&["--checkpoint", "--keep", "1day"]);
    let mountpoint = replicated.mount(&["--at", &first.to_string()]);
    assert_eq!(fs::read(mountpoint.join("large")).unwrap(), large);
    assert_eq!(fs::read(mountpoint.join("small")).unwrap(), b"before");
    assert!(!mountpoint.join("later").exists());
    replicated.copy.umount();
    let mountpoint = replicated.mount(&[]);
    assert_eq!(fs::read(mountpoint.join("later")).unwrap(), [7; 3_000_000]);
    assert!(fs::write(mountpoint.join("new"), b"x").unwrap_err().to_string().contains("Read-only"));
    let status = replicated.copy.status();
    let replica = &status["replica"];
    assert_eq!(replica["sequence"], second);
    assert!(replica["age_s"].as_u64() < Some(600), "{replica}");
    assert!(replica["requests"]["bytes_read"].as_u64() > Some(4_000), "{replica}");
    let bound = status["memory_bound_bytes"].as_u64().unwrap();
    assert!(status["memory_bytes"].as_u64().unwrap() < bound && bound <= 1 << 30, "{status}");
    // What comes later is not seen here.
    replicated.put("after", b"after");
    replicated.replicate(&[]);
    assert!(!mountpoint.join("after").exists());
    let told = text(&weir(&["status", mountpoint.to_str().unwrap()]).output().unwrap().stdout);
    assert!(
        told.contains("a replica in an object store") && told.contains("nothing newer is shown"),
        "{told}"
    );
    replicated.copy.umount();
    let mountpoint = replicated.mount(&["--memory", "256M"]);
    assert_eq!(fs::read(mountpoint.join("after")).unwrap(), b"after");
    assert_eq!(fs::read(mountpoint.join("large")).unwrap(), large);
    replicated.copy.umount();
}

/// Of a mount that goes on: what a crash would leave, so the journal is replayed, in memory.
#[test]
fn the_replica_of_a_live_mount_is_mounted() {
    if !mounts() {
        return;
    }
    let replicated = Replicated::new();
    let mut server = replicated.place.serve_as(&["--replicate", &replicated.url, "--lag", "100ms"]);
    let root = replicated.place.mountpoint();
    fs::write(root.join("a"), noise(1, 500_000)).unwrap();
    runs(Command::new("sync").arg(root.join("a")));
    let is_shipped = || {
        let found = replicated.place.status()["replication"].clone();
        found["behind"] == false && found["lag_bytes"] == 0 && found["shipped"].as_u64() > Some(0)
    };
    wait_until("the store has it", is_shipped);
    let mountpoint = replicated.mount(&[]);
    assert_eq!(fs::read(mountpoint.join("a")).unwrap(), noise(1, 500_000));
    fs::write(root.join("b"), b"b").unwrap();
    runs(Command::new("sync").arg(root.join("b")));
    wait_until("the store has it", is_shipped);
    assert!(!mountpoint.join("b").exists());
    replicated.copy.umount();
    server.kill();
    drop(server);
    replicated.place.umount();
    assert_eq!(fs::read(replicated.mount(&[]).join("b")).unwrap(), b"b");
    replicated.copy.umount();
    // Nothing was written into the store by that.
    let checked = works(&["replicate", "--check", &replicated.url]);
    assert!(checked.contains("whole"), "{checked}");
}

#[test]
fn what_cannot_be_mounted_is_named() {
    if !mounts() {
        return;
    }
    let replicated = Replicated::new();
    let (mountpoint, url) = (replicated.copy.mountpoint(), replicated.url.as_str());
    let at = mountpoint.to_str().unwrap();
    fails(&["mount", url, at, "--read-only"], &["no replica"]);
    fails(&["mount", "https://host/a", at, "--read-only"], &["https://host/a", "s3://"]);
    fails(
        &["mount", "file:///no/such/place", at, "--read-only"],
        &["/no/such/place", "make or mount the directory"],
    );
    replicated.put("a", &[7; 50_000]);
    let key = replicated.path("key");
    fs::write(&key, "3".repeat(64)).unwrap();
    let last = replicated.replicate(&["--key-file", &key]);
    fails(&["mount", url, at], &["--read-only"]);
    fails(&["mount", url, at, "--read-only"], &["encrypted", "--key-file"]);
    let with_key = |more: &[&str], words: &[&str]| {
        fails(&[&["mount", url, at, "--read-only", "--key-file", &key], more].concat(), words);
    };
    with_key(&["--at", &(last + 5).to_string()], &["cannot be restored"]);
    with_key(&["--at", "2020-01-01 00:00:00"], &["2020-01-01", "cannot be restored"]);
    with_key(&["--snapshot", "one"], &["restore the replica first"]);
    let volume = replicated.place.volume();
    fails(&["mount", volume.to_str().unwrap(), at, "--at", "5"], &["URL"]);
    assert_eq!(fs::read(replicated.mount(&["--key-file", &key]).join("a")).unwrap(), [7; 50_000]);
    replicated.copy.umount();
    // An object that is changed, so that not even the filesystem is found.
    let object = replicated.largest_object();
    let mut bytes = fs::read(&object).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(&object, bytes).unwrap();
    with_key(&[], &[object.file_name().unwrap().to_str().unwrap(), "changed"]);
    // A filesystem with another one's key.
    fs::write(&key, "4".repeat(64)).unwrap();
    with_key(&[], &["cannot be decrypted"]);
}

fn is_io_error(path: &Path) {
    let error = fs::read(path).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()), "{error}");
}

#[test]
fn a_block_that_cannot_be_had_is_an_error_and_the_mount_ends() {
    if !mounts() {
        return;
    }
    let replicated = Replicated::new();
    let large = noise(1, 6_000_000);
    replicated.put("large", &large);
    replicated.replicate(&["--no-compression", "--checkpoint"]);
    let mountpoint = replicated.mount(&[]);
    assert_eq!(replicated.copy.status()["health"]["healthy"], true);
    let object = replicated.largest_object();
    let kept = fs::read(&object).unwrap();
    fs::remove_file(&object).unwrap();
    is_io_error(&mountpoint.join("large"));
    let status = replicated.copy.status();
    let name = object.file_name().unwrap().to_str().unwrap();
    let failure = status["replica"]["failure"].as_str().unwrap().to_owned();
    assert!(failure.contains(name) && failure.contains("missing"), "{failure}");
    assert_eq!(status["health"]["findings"][0]["cause"], "failed_reads");
    let mut changed = kept.clone();
    let at = changed.windows(4096).position(|found| found == &large[4096 * 300..4096 * 301]).unwrap();
    changed[at + 9] ^= 1;
    fs::write(&object, &changed).unwrap();
    let file = fs::File::open(mountpoint.join("large")).unwrap();
    let mut block = [0; 4096];
    file.read_exact_at(&mut block, 4096 * 10).unwrap();
    assert_eq!(block[..], large[4096 * 10..4096 * 11]);
    assert!(file.read_exact_at(&mut block, 4096 * 300).is_err());
    fs::write(&object, &kept).unwrap();
    drop(file);
    forget_pages();
    assert_eq!(fs::read(mountpoint.join("large")).unwrap(), large);
    replicated.copy.umount();
}

/// A store that is gone: readers wait as long as they were told, and an unmount does not.
#[test]
fn a_store_that_is_gone_is_waited_for_and_the_mount_ends_meanwhile() {
    if !mounts() {
        return;
    }
    let replicated = Replicated::new();
    replicated.put("large", &noise(1, 6_000_000));
    replicated.replicate(&["--checkpoint"]);
    let (store, gone) = (replicated.place.path().join("store"), replicated.place.path().join("gone"));
    let large = replicated.mount(&["--patience", "1s"]).join("large");
    fs::rename(&store, &gone).unwrap();
    is_io_error(&large);
    let failure = replicated.copy.status()["replica"]["failure"].as_str().unwrap().to_owned();
    assert!(failure.contains("does not answer"), "{failure}");
    fs::rename(&gone, &store).unwrap();
    assert_eq!(fs::read(&large).unwrap(), noise(1, 6_000_000));
    fs::rename(&store, &gone).unwrap();
    let began = Instant::now();
    replicated.copy.umount();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    fs::rename(&gone, &store).unwrap();
    // A reader that waits longer than anybody wants to.
    let mountpoint = replicated.copy.mountpoint();
    let arguments = [
        "mount",
        "--foreground",
        &replicated.url,
        mountpoint.to_str().unwrap(),
        "--read-only",
        "--patience",
        "10min",
    ];
    let mut server = weir(&arguments).stderr(Stdio::null()).spawn().unwrap();
    wait_until("it is mounted", || mountpoint.join("large").exists());
    fs::rename(&store, &gone).unwrap();
    let mut reader = Command::new("cat").arg(mountpoint.join("large")).stdout(Stdio::null()).spawn().unwrap();
    let is_waiting = || !replicated.copy.status()["replica"]["trouble"].is_null();
    wait_until("the reader waits for the store", is_waiting);
    let busy = weir(&["umount", mountpoint.to_str().unwrap()]).output().unwrap();
    assert!(error_of(&busy).contains("have files open"), "{}", error_of(&busy));
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let ended = is_so_within(Duration::from_secs(20), || server.try_wait().unwrap().is_some());
    let _ = server.kill();
    assert!(ended, "the server waits for the store");
    assert!(!reader.wait().unwrap().success());
}

#[test]
fn a_replica_is_mounted_from_s3() {
    if !mounts() || !is_there_weed() {
        return;
    }
    let place = Place::with_volume("96M");
    let copy = Place::new();
    let mut seaweed = Seaweed::start(place.path());
    let volume = place.volume();
    let volume = volume.to_str().unwrap();
    let files = [("plain", noise(1, 5_000_000)), ("packed", vec![3; 5_000_000])];
    for (name, content) in &files {
        let file = place.path().join(name);
        fs::write(&file, content).unwrap();
        works(&["put", volume, file.to_str().unwrap(), &format!("/{name}")]);
    }
    let url = "s3://test/volumes/a";
    runs(&mut weir_in(&seaweed, &["replicate", volume, url, "--checkpoint"]));
    let mountpoint = copy.mountpoint();
    let at = mountpoint.to_str().unwrap();
    runs(&mut weir_in(&seaweed, &["mount", url, at, "--read-only", "--patience", "2s"]));
    for (name, content) in &files {
        assert_eq!(&fs::read(mountpoint.join(name)).unwrap(), content, "{name}");
    }
    copy.umount();
    runs(&mut weir_in(&seaweed, &["mount", url, at, "--read-only", "--patience", "2s"]));
    let requests = copy.status()["replica"]["requests"]["reads"].as_u64().unwrap();
    assert!(requests < 60, "{requests} requests");
    seaweed.kill();
    is_io_error(&mountpoint.join("plain"));
    copy.umount();
}

/// Bytes of each file that is read for the measurement.
const MEASURED: usize = 256 << 20;

/// How fast the files of a mount are read in sequence (MB/s) and at random (reads a second), each from a mount that is new.
fn measure_reads(mount: impl Fn() -> PathBuf, end: impl Fn()) {
    for name in ["plain", "packed"] {
        let file = mount().join(name);
        forget_pages();
        let began = Instant::now();
        let mut reader = fs::File::open(&file).unwrap();
        let bytes = std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
        let sequential = bytes as f64 / 1e6 / began.elapsed().as_secs_f64();
        drop(reader);
        end();
        let file = mount().join(name);
        forget_pages();
        let reader = fs::File::open(&file).unwrap();
        rustix::fs::fadvise(&reader, 0, None, rustix::fs::Advice::Random).unwrap();
        let (mut block, mut at, reads) = ([0; 4096], 7_u64, 500);
        let began = Instant::now();
        for _ in 0..reads {
            at = (at * 1_103_515_245 + 12_345) % (MEASURED as u64 / 4096);
            reader.read_exact_at(&mut block, at * 4096).unwrap();
        }
        let random = f64::from(reads) / began.elapsed().as_secs_f64();
        println!("{name}: {sequential:.0} MB/s in sequence, {random:.0} reads of 4 KiB a second at random");
        drop(reader);
        end();
    }
}

/// A measurement, not a test: the first read of a sparse volume of 1 TiB, and reads beside those of a restored volume.
#[test]
#[ignore = "it measures"]
fn measure() {
    let large = Replicated::new();
    let volume = large.place.volume();
    fs::File::create(&volume).unwrap().set_len(1 << 40).unwrap();
    works(&["mkfs", "--volume", "--force", volume.to_str().unwrap()]);
    large.put("a", &noise(1, 4096));
    large.replicate(&["--checkpoint"]);
    for _ in 0..5 {
        forget_pages();
        let began = Instant::now();
        assert_eq!(fs::read(large.mount(&[]).join("a")).unwrap(), noise(1, 4096));
        let took = began.elapsed();
        let status = large.copy.status();
        println!("1 TiB, mount and first read: {took:?}, {} bytes", status["memory_bytes"]);
        large.copy.umount();
    }
    let place = Replicated { place: Place::with_volume("1G"), ..Replicated::new() };
    let store = place.place.path().join("store");
    fs::create_dir(&store).unwrap();
    let place = Replicated { url: format!("file://{}", store.display()), ..place };
    place.put("plain", &noise(1, MEASURED));
    // Half of each block is noise.
    let mut halves = noise(1, MEASURED);
    halves.chunks_exact_mut(4096).for_each(|block| block[..2048].fill(0));
    place.put("packed", &halves);
    place.replicate(&["--checkpoint"]);
    println!("of a directory");
    measure_reads(|| place.mount(&[]), || place.copy.umount());
    let restored = Place::new();
    works(&["restore", &place.url, restored.volume().to_str().unwrap()]);
    println!("restored");
    measure_reads(|| restored.mount(&["--read-only"]), || restored.umount());
    if !is_there_weed() {
        return;
    }
    let seaweed = Seaweed::start(restored.path());
    let volume = place.place.volume();
    runs(&mut weir_in(&seaweed, &["replicate", volume.to_str().unwrap(), "s3://test/a", "--checkpoint"]));
    let at = place.copy.mountpoint();
    println!("of SeaweedFS");
    let mount = || {
        runs(&mut weir_in(&seaweed, &["mount", "s3://test/a", at.to_str().unwrap(), "--read-only"]));
        at.clone()
    };
    measure_reads(mount, || place.copy.umount());
}
