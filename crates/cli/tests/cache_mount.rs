//! A replica that is mounted to be changed: it begins where the lost machine ended, goes on in a file, and the store has all of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it waits for what other processes do"
)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_runtime::{Runtime, Wall};
use weir_storage::{FileDisk, FileDiskOptions, Storage as _};
use weir_volume::{Base, Format, Info, Volume, inspect};

use crate::support::lag::is_up_to_date;
use crate::support::seaweed::{Seaweed, is_there_weed};
use crate::support::{
    Place, Server, error_of, fails, is_so_within, mounts, noise, runs, text, told_by_status, wait_until,
    weir, weir_in, works,
};

/// What files hold, by their names.
type Files = BTreeMap<String, Vec<u8>>;

/// A machine whose volume is shipped to a directory, and one that goes on with what is there.
struct Machines {
    first: Place,
    second: Place,
    url: String,
    files: Files,
}

impl Machines {
    /// The first one has shipped some files, with more arguments, and is lost.
    fn new(more: &[&str]) -> Machines {
        let (machines, mut server) = Machines::with_living(more);
        server.kill();
        drop(server);
        machines.first.umount();
        machines
    }

    /// The first one has shipped some files, and goes on.
    fn with_living(more: &[&str]) -> (Machines, Server) {
        let (first, second) = (Place::with_volume("96M"), Place::new());
        let store = first.path().join("store");
        fs::create_dir(&store).unwrap();
        let url = format!("file://{}", store.display());
        let mut machines = Machines { first, second, url, files: Files::new() };
        let arguments = ["--replicate", &machines.url, "--lag", "100ms"];
        let server = machines.first.serve_as(&[&arguments, more].concat());
        let root = machines.first.mountpoint();
        fs::create_dir(root.join("directory")).unwrap();
        machines.write(&root, "large", noise(1, 6_000_000));
        machines.write(&root, "directory/small", b"small".to_vec());
        machines.write(&root, "gone", noise(2, 700_000));
        wait_until("the store has it", || is_up_to_date(&root));
        (machines, server)
    }

    fn write(&mut self, root: &Path, name: &str, content: Vec<u8>) {
        fs::write(root.join(name), &content).unwrap();
        runs(Command::new("sync").arg(root.join(name)));
        self.files.insert(name.to_owned(), content);
    }

    fn file(&self) -> String {
        self.second.path().join("cache.weir").to_str().unwrap().to_owned()
    }

    fn serve(&self, more: &[&str]) -> Server {
        let file = self.file();
        self.second.serve_source(&self.url, &[&["--cache", &file, "--lag", "100ms"], more].concat(), &[])
    }

    fn mount(&self) -> PathBuf {
        let (file, mountpoint) = (self.file(), self.second.mountpoint());
        works(&["mount", &self.url, mountpoint.to_str().unwrap(), "--cache", &file]);
        mountpoint
    }

    /// All files are there, and no others.
    fn require_files(&self, root: &Path) {
        for (name, content) in &self.files {
            assert!(&fs::read(root.join(name)).unwrap() == content, "{name}");
        }
        let mut names: Vec<String> = fs::read_dir(root)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "lost+found")
            .collect();
        names.sort_unstable();
        let mut expected: Vec<String> =
            self.files.keys().map(|name| name.split('/').next().unwrap().to_owned()).collect();
        expected.dedup();
        assert_eq!(names, expected);
    }

    /// The store restores to all files.
    fn require_restored(&self) {
        let checked = works(&["replicate", "--check", &self.url]);
        assert!(checked.contains("whole"), "{checked}");
        let place = Place::new();
        works(&["restore", &self.url, place.volume().to_str().unwrap()]);
        works(&["volume", "check", place.volume().to_str().unwrap()]);
        self.require_files(&place.mount(&[]));
        place.end();
    }
}

#[test]
fn a_replica_goes_on_in_a_file_when_its_machine_is_lost() {
    if !mounts() {
        return;
    }
    let mut machines = Machines::new(&[]);
    let began = Instant::now();
    let mut server = machines.serve(&[]);
    let root = machines.second.mountpoint();
    assert_eq!(fs::read(root.join("directory/small")).unwrap(), b"small");
    let made = fs::metadata(machines.file()).unwrap();
    assert!(
        made.len() > 96 << 20 && made.blocks() * 512 < 16 << 20,
        "{} of {}",
        made.blocks() * 512,
        made.len()
    );
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    machines.require_files(&root);
    let status = machines.second.status();
    assert!(status["replica"]["requests"]["bytes_read"].as_u64() > Some(6_000_000), "{status}");
    // On a busy machine the store may be behind for a moment.
    wait_until("it is healthy", || machines.second.status()["health"]["healthy"] == true);
    let told = text(&weir(&["status", root.to_str().unwrap()]).output().unwrap().stdout);
    assert!(told.contains("a volume on a replica") && told.contains("as of position"), "{told}");
    // A part of a block that only the store has, a file that is gone, and a directory that gets another file.
    let mut large = machines.files.remove("large").unwrap();
    large[3_000_001..3_000_011].copy_from_slice(&[7; 10]);
    let file = fs::File::options().write(true).open(root.join("large")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 10], 3_000_001).unwrap();
    file.sync_all().unwrap();
    drop(file);
    machines.files.insert("large".to_owned(), large);
    fs::remove_file(root.join("gone")).unwrap();
    machines.files.remove("gone");
    machines.write(&root, "directory/second", noise(3, 900_000));
    machines.require_files(&root);
    wait_until("the store has it", || is_up_to_date(&root));
    machines.write(&root, "later", noise(4, 300_000));
    server.kill();
    drop(server);
    machines.second.umount();
    machines.require_files(&machines.mount());
    machines.write(&root, "last", noise(5, 500_000));
    machines.second.umount();
    machines.require_restored();
    // Once more, without the file.
    fs::remove_file(machines.file()).unwrap();
    machines.require_files(&machines.mount());
    machines.second.umount();
    machines.require_restored();
}

#[test]
fn what_does_not_go_with_the_replica_is_refused() {
    if !mounts() {
        return;
    }
    let mut machines = Machines::new(&[]);
    let (url, at, file) = (machines.url.clone(), machines.second.mountpoint(), machines.file());
    let (url, at, file) = (url.as_str(), at.to_str().unwrap(), file.as_str());
    let volume = machines.first.volume();
    let volume = volume.to_str().unwrap();
    fails(&["mount", url, at], &["--read-only", "--cache"]);
    fails(&["mount", volume, at, "--cache", file], &["--cache", "URL"]);
    fails(&["mount", url, at, "--cache", volume], &["was not made on this replica", "newest state"]);
    fails(&["mount", url, at, "--cache", "/no/such/place/a"], &["/no/such/place"]);
    let empty = machines.first.path().join("empty");
    fs::create_dir(&empty).unwrap();
    fails(&["mount", &format!("file://{}", empty.display()), at, "--cache", file], &["no replica"]);
    assert!(!Path::new(file).exists(), "what is refused leaves nothing");
    let wrong = weir(&["mount", url, at, "--cache", file, "--read-only"]).output().unwrap();
    assert!(error_of(&wrong).contains("cannot be used with"), "{}", error_of(&wrong));
    // The volume before is behind from here on, also when it is opened again.
    let root = machines.mount();
    machines.write(&root, "second", b"second".to_vec());
    machines.second.umount();
    fails(&["replicate", volume, url], &["ahead of the volume", "took the replica over"]);
    let mountpoint = machines.first.mountpoint();
    fails(&["mount", volume, mountpoint.to_str().unwrap(), "--replicate", url], &["ahead of the volume"]);
    // The file alone is no volume that can be used.
    let alone = ["--cache", "URL"];
    fails(&["mount", file, at], &alone);
    fails(&["mount", file, at, "--read-only"], &alone);
    fails(&["disk", at, "--volume", file], &alone);
    fails(&["replicate", file, url], &alone);
    fails(&["volume", "repair", file], &alone);
    fails(&["ls", file, "/"], &alone);
    fails(&["snapshot", "create", file, "a"], &alone);
    fails(&["restore", url, file], &["not empty"]);
    assert!(works(&["volume", "check", file]).contains("clean"));
    assert!(
        works(&["volume", "info", file]).contains("base              the state of a replica after request")
    );
    // Another machine takes over: this file is refused.
    fs::rename(file, format!("{file}.old")).unwrap();
    machines.mount();
    machines.second.umount();
    let taken = ["took the replica over", "newest state", "--read-only"];
    fails(&["mount", url, at, "--cache", &format!("{file}.old")], &taken);
    machines.require_files(&machines.mount());
    machines.second.umount();
    machines.require_restored();
}

/// What is wrong with a start is found before it takes the replica over.
#[test]
fn a_start_that_is_refused_leaves_the_writer_before_as_it_is() {
    if !mounts() {
        return;
    }
    let (mut machines, server) = Machines::with_living(&[]);
    let (url, at, file) = (machines.url.clone(), machines.second.mountpoint(), machines.file());
    let refused = |more: &[&str], word: &str| {
        let arguments = ["mount", &url, at.to_str().unwrap(), "--cache", &file];
        fails(&[&arguments, more].concat(), &[word]);
        assert!(!Path::new(&file).exists(), "{more:?} left a file");
    };
    refused(&["--cleaner", "copy"], "only F2FS");
    refused(&["--memory", "8M"], "--memory");
    refused(&["--engine", "optfs", "--journal-coalition"], "no journal coalition");
    refused(&["--lag", "1ms"], "--lag");
    fs::write(&file, "something else").unwrap();
    let arguments = ["mount", &url, at.to_str().unwrap(), "--cache", &file];
    fails(&arguments, &[&file]);
    assert_eq!(fs::read(&file).unwrap(), b"something else");
    fs::remove_file(&file).unwrap();
    let root = machines.first.mountpoint();
    machines.write(&root, "after", noise(9, 300_000));
    wait_until("the store has it", || is_up_to_date(&root));
    drop(server);
    machines.require_restored();
}

/// What a server leaves that is killed while it makes the volume, after it has taken the replica over.
#[test]
fn a_volume_that_was_not_made_to_the_end_is_made_anew_in_the_same_file() {
    if !mounts() {
        return;
    }
    let mut machines = Machines::new(&[]);
    let file = machines.file();
    machines.require_files(&machines.mount());
    machines.second.umount();
    let bytes = fs::metadata(&file).unwrap().len();
    leave_unfinished(&file, bytes);
    let begun = fs::read(&file).unwrap();
    let at = machines.second.mountpoint();
    let arguments = ["mount", &machines.url, at.to_str().unwrap(), "--cache", &file];
    fails(
        &[&arguments[..], &["--engine", "optfs", "--journal-coalition"]].concat(),
        &["no journal coalition"],
    );
    // A byte that is not of the volume.
    let mut others = begun.clone();
    others[bytes as usize - 5000] = 1;
    fs::write(&file, &others).unwrap();
    fails(&arguments, &["data of an unknown kind"]);
    assert!(fs::read(&file).unwrap() == others);
    fs::write(&file, &begun).unwrap();
    let root = machines.mount();
    machines.require_files(&root);
    machines.write(&root, "after", noise(9, 300_000));
    machines.second.umount();
    machines.require_files(&machines.mount());
    machines.second.umount();
    machines.require_restored();
}

/// Makes the volume of a file anew, on another state, without what makes it a volume in the end: its superblocks.
fn leave_unfinished(file: &str, bytes: u64) {
    let runtime = Runtime::wall(Wall::default()).unwrap();
    let handle = runtime.handle();
    let open = || FileDisk::open(&handle, Path::new(file), FileDiskOptions::default()).unwrap();
    let made = runtime.block_on(async {
        let Info { volume, logical_blocks, .. } = inspect(&*open()).await.unwrap();
        fs::remove_file(file).unwrap();
        fs::File::create(file).unwrap().set_len(bytes).unwrap();
        let disk = open();
        let format = Format { logical_blocks, ..Format::sized_for(disk.blocks()) };
        let base = Base { sequence: 5, generation: 1, epoch: 2, token: 3 };
        Volume::create_on_base(&handle, &*disk, format, volume, base).await
    });
    made.unwrap().unwrap();
    let file = fs::File::options().write(true).open(file).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 8192], 0).unwrap();
}

/// Of two starts with one file the one that is mounted keeps the replica.
#[test]
fn of_two_starts_at_once_one_is_refused_and_fences_nobody() {
    if !mounts() {
        return;
    }
    let mut machines = Machines::new(&[]);
    let (url, file) = (machines.url.clone(), machines.file());
    let other = machines.second.path().join("other");
    fs::create_dir(&other).unwrap();
    let directories = [machines.second.mountpoint(), other];
    let start = |at: &PathBuf| {
        let mut command = weir(&["mount", &url, at.to_str().unwrap(), "--cache", &file]);
        command.stderr(std::process::Stdio::piped()).spawn().unwrap()
    };
    let starts: Vec<_> = directories.iter().map(start).collect();
    let ended: Vec<_> = starts.into_iter().map(|start| start.wait_with_output().unwrap()).collect();
    let refused = ended.iter().position(|output| !output.status.success()).expect("one is refused");
    assert!(error_of(&ended[refused]).contains("in use by process"), "{}", error_of(&ended[refused]));
    assert!(ended[1 - refused].status.success(), "{}", error_of(&ended[1 - refused]));
    let root = directories[1 - refused].clone();
    machines.write(&root, "after", noise(9, 300_000));
    wait_until("the store has it", || is_up_to_date(&root));
    machines.require_files(&root);
    works(&["umount", root.to_str().unwrap()]);
    machines.require_restored();
}

/// The same on S3, in whose store nothing of a directory helps.
#[test]
fn a_replica_on_s3_goes_on_in_a_file() {
    if !mounts() || !is_there_weed() {
        return;
    }
    let (first, second, store) = (Place::with_volume("96M"), Place::new(), Place::new());
    let seaweed = Seaweed::start(store.path());
    let url = "s3://test/a";
    let content = [noise(1, 3_000_000), noise(2, 400_000)];
    let write = |root: &Path, name: &str, bytes: &[u8]| {
        fs::write(root.join(name), bytes).unwrap();
        runs(Command::new("sync").arg(root.join(name)));
        wait_until("the store has it", || is_up_to_date(root));
    };
    let mut server = first.serve_in(&["--replicate", url, "--lag", "100ms"], &seaweed.environment());
    write(&first.mountpoint(), "first", &content[0]);
    server.kill();
    drop(server);
    first.umount();
    let file = second.path().join("cache.weir");
    let cache = ["--cache", file.to_str().unwrap(), "--lag", "100ms"];
    let mut server = second.serve_source(url, &cache, &seaweed.environment());
    let root = second.mountpoint();
    assert!(fs::read(root.join("first")).unwrap() == content[0]);
    write(&root, "second", &content[1]);
    server.kill();
    drop(server);
    second.umount();
    // The writer before is fenced, and the store has what both have written.
    let (volume, at) = (first.volume(), first.mountpoint());
    let fenced = ["mount", volume.to_str().unwrap(), at.to_str().unwrap(), "--replicate", url];
    let fenced = weir_in(&seaweed, &fenced).output().unwrap();
    assert!(error_of(&fenced).contains("ahead of the volume"), "{}", error_of(&fenced));
    let copy = store.path().join("copy.weir").to_str().unwrap().to_owned();
    runs(&mut weir_in(&seaweed, &["restore", url, &copy]));
    for (name, expected) in [("/first", &content[0]), ("/second", &content[1])] {
        assert!(weir(&["cat", &copy, name]).output().unwrap().stdout == *expected, "{name}");
    }
}

/// A store that is away: what the file has is served, the rest waits, and the mount ends all the same.
#[test]
fn a_store_that_is_away_is_waited_for_and_the_mount_ends_meanwhile() {
    if !mounts() {
        return;
    }
    // Read by ranges, so that not all is in memory when it is mounted.
    let mut machines = Machines::new(&["--no-compression"]);
    let (store, away) = (machines.first.path().join("store"), machines.first.path().join("away"));
    let mut server = machines.serve(&["--patience", "2s", "--never-wait"]);
    let root = machines.second.mountpoint();
    machines.write(&root, "here", noise(6, 400_000));
    wait_until("the store has it", || is_up_to_date(&root));
    fs::rename(&store, &away).unwrap();
    machines.write(&root, "here", noise(7, 500_000));
    let gone = root.join("gone");
    let reader = std::thread::spawn(move || fs::read(gone));
    let mountpoint = machines.second.mountpoint();
    let is_waiting = || {
        let told = told_by_status(&["--json", mountpoint.to_str().unwrap()]);
        !serde_json::from_str::<Value>(&told).unwrap()["replica"]["trouble"].is_null()
    };
    wait_until("the reader waits for the store", &is_waiting);
    assert_eq!(fs::read(root.join("here")).unwrap(), noise(7, 500_000));
    std::thread::sleep(Duration::from_secs(4));
    assert!(!reader.is_finished(), "it waits longer than --patience");
    fs::rename(&away, &store).unwrap();
    assert!(reader.join().unwrap().unwrap() == noise(2, 700_000));
    // A signal ends it, although a program waits and not everything is shipped.
    fs::rename(&store, &away).unwrap();
    machines.write(&root, "here", noise(8, 500_000));
    let large = root.join("large");
    let reader = std::thread::spawn(move || fs::read(large));
    wait_until("the reader waits for the store", &is_waiting);
    let pid = rustix::process::Pid::from_child(server.process());
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(is_so_within(Duration::from_secs(30), || server.has_ended()), "the server waits for the store");
    assert!(reader.join().unwrap().is_err());
    fs::rename(&away, &store).unwrap();
    // What was not shipped is caught up.
    machines.require_files(&machines.mount());
    machines.second.umount();
    machines.require_restored();
}
