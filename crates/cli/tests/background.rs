//! What a server in the background keeps of the process that started it: nothing; and what it says in its log.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::support::{self, Place, mounts, runs, text, wait_until, weir, weir_program, works};

/// A command line of the shell, in a directory, with the program as `$WEIR`.
fn shell(directory: &Path, script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-e", "-c", script]).current_dir(directory).env("WEIR", weir_program());
    command
}

fn pid(place: &Place) -> String {
    place.status()["pid"].to_string()
}

/// What the descriptors of a process are of, but for those of the server's own.
fn descriptors(pid: &str) -> Vec<(String, String)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let mut found: Vec<_> = entries
        .map(|entry| entry.unwrap())
        .map(|entry| (text(entry.file_name().as_encoded_bytes()), fs::read_link(entry.path()).unwrap()))
        .map(|(number, of)| (number, of.to_string_lossy().into_owned()))
        .collect();
    found.sort();
    found
}

#[test]
fn a_lock_of_the_caller_is_let_go_with_the_caller() {
    if !mounts() || Command::new("flock").arg("--version").output().is_err() {
        return;
    }
    let place = Place::with_volume("64M");
    let script = "exec 7>pipe 9>lock; flock -n 9; $WEIR mount a.weir mounted";
    runs(&mut shell(place.path(), script));
    assert!(!place.status()["pid"].is_null());
    // The shell is gone, and a server would be the only one to hold it.
    runs(&mut shell(place.path(), "flock -n lock true"));
    let kept = descriptors(&pid(&place));
    assert!(kept.iter().all(|(_, of)| !of.ends_with("/lock") && !of.ends_with("/pipe")), "{kept:?}");
    for number in ["0", "1", "2"] {
        let of = kept.iter().find(|(kept, _)| kept == number).map(|(_, of)| of.as_str());
        assert_eq!(of, Some("/dev/null"), "descriptor {number}");
    }
    place.umount();
    place.check();
}

/// Also where everything was named by relative paths, and is needed later.
#[test]
fn the_directory_of_the_caller_is_let_go() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    runs(&mut shell(place.path(), "$WEIR mount a.weir mounted --log log.txt"));
    assert_eq!(fs::read_link(format!("/proc/{}/cwd", pid(&place))).unwrap(), Path::new("/"));
    fs::write(place.mountpoint().join("file"), "still here").unwrap();
    assert_eq!(place.path().join("log.txt").metadata().unwrap().permissions().mode() & 0o777, 0o600);
    // By a signal, the server itself unmounts what was named relative to a directory that it is not in.
    runs(Command::new("kill").arg(pid(&place)));
    wait_until("it is unmounted", || !support::is_mountpoint(&place.mountpoint()));
    place.check();
    let volume = place.volume();
    assert_eq!(works(&["cat", volume.to_str().unwrap(), "file"]), "still here");
}

#[test]
fn a_disk_lets_go_too() {
    if !mounts() {
        return;
    }
    let place = Place::new();
    fs::create_dir(place.path().join("cuts")).unwrap();
    let script = "exec 9>lock; $WEIR disk mounted --worst --size 16M --cuts cuts 2>/dev/null";
    runs(&mut shell(place.path(), script));
    let pid = pid(&place);
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), Path::new("/"));
    let kept = descriptors(&pid);
    assert!(kept.iter().all(|(_, of)| !of.ends_with("/lock")), "{kept:?}");
    runs(Command::new("kill").args(["-USR1", &pid]));
    let cut = place.path().join("cuts/cut-1.img");
    wait_until("the image is there", || cut.exists());
    assert_eq!(cut.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    place.umount();
}

/// A server in the foreground is its caller's own process, and stays where it is.
#[test]
fn a_server_in_the_foreground_keeps_its_directory() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let mut server =
        weir(&["mount", "--foreground", "a.weir", "mounted"]).current_dir(place.path()).spawn().unwrap();
    wait_until("it is mounted", || support::is_mountpoint(&place.mountpoint()));
    let directory = fs::read_link(format!("/proc/{}/cwd", server.id())).unwrap();
    assert_eq!(directory, place.path().canonicalize().unwrap());
    place.umount();
    assert!(server.wait().unwrap().success());
}

/// Mounts with this `RUST_LOG`, makes a file durable, and unmounts; what the log says of it.
fn log_of(place: &Place, asked: Option<&str>) -> String {
    let log = place.path().join("log");
    let _ = fs::remove_file(&log);
    let (volume, mountpoint) = (place.volume(), place.mountpoint());
    let mut mount = weir(&["mount", volume.to_str().unwrap(), mountpoint.to_str().unwrap()]);
    runs(mount.arg("--log").arg(&log).envs(asked.map(|asked| ("RUST_LOG", asked))));
    let mut file = File::create(mountpoint.join("file")).unwrap();
    file.write_all(b"durable").unwrap();
    file.sync_all().unwrap();
    drop(file);
    place.umount();
    fs::read_to_string(log).unwrap()
}

#[test]
fn the_log_says_what_is_asked_for() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    for asked in [None, Some("info"), Some("weir_volume=debug,no such thing=?")] {
        let log = log_of(&place, asked);
        assert!(!log.contains("commit transaction="), "{asked:?}: {log}");
    }
    let log = log_of(&place, Some("weir_fs=info,weir_journal=debug"));
    let commits: Vec<_> = log.lines().filter(|line| line.contains("commit transaction=")).collect();
    assert!(!commits.is_empty() && commits.iter().all(|line| line.contains("engine=dual")), "{log}");
    for words in [" INFO weir_fs::mount: mounted blocks=", "acknowledged as durable", "unmounted commits="] {
        assert!(log.contains(words), "no {words:?}: {log}");
    }
    assert!(!log.contains("weir_volume"), "{log}");
    // Each line bears a date, and all were written in this order.
    let dates: Vec<_> = log.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert!(dates.iter().all(|date| date.starts_with("20") && date.ends_with('Z')), "{log}");
    assert!(dates.is_sorted(), "{log}");
}

#[test]
fn the_log_warns_of_a_server_that_was_killed() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let mut server = place.serve();
    fs::write(place.mountpoint().join("lost"), "by the kill").unwrap();
    File::open(place.mountpoint().join("lost")).unwrap().sync_all().unwrap();
    server.kill();
    place.unmount();
    let log = log_of(&place, None);
    for (crate_name, words) in
        [("weir_volume", "its log was replayed"), ("weir_journal", "its journal is replayed")]
    {
        assert_eq!(log.lines().filter(|line| line.contains(words)).count(), 1, "{log}");
        assert!(log.contains(&format!(" WARN {crate_name}::")), "{log}");
    }
}
