//! Servers that do not answer: a mount whose disk below hangs goes on with what needs no disk, and no command waits for a stopped
//! server without a limit.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Place, error_of, is_so_within, mounts, text, weir, weir_program, works};

/// A server that is stopped; it goes on when this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn server_of(place: &Place) -> Stopped {
        let pid = place.status()["pid"].as_i64().unwrap();
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// Whether a program ends in time; one that waits for a server cannot be killed.
fn ends_within(seconds: u64, command: &mut Command) -> bool {
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    is_so_within(Duration::from_secs(seconds), || child.try_wait().unwrap().is_some())
}

#[test]
fn a_mount_on_a_disk_that_hangs_is_served() {
    if !mounts() {
        return;
    }
    let below = Place::with_volume("256M");
    let root = below.mount(&[]);
    let (inner, mountpoint) = (root.join("inner"), below.path().join("inner"));
    fs::create_dir(&mountpoint).unwrap();
    let (inner, at) = (inner.to_str().unwrap(), mountpoint.to_str().unwrap());
    works(&["mkfs", "--volume", inner, "--size", "64M"]);
    works(&["mount", inner, at]);
    fs::write(mountpoint.join("x"), "1").unwrap();
    let stopped = Stopped::server_of(&below);
    // What the kernel knows of the file below is too old to be used by then.
    let told: Vec<_> = (0..3).map(|_| weir(&["status", at]).output().unwrap()).collect();
    let served = ends_within(5, Command::new("stat").args(["-f", at]));
    drop(stopped);
    works(&["umount", at]);
    below.umount();
    for output in told {
        let line = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{line}{}", error_of(&output));
        assert!(line.contains("the disk below does not answer"), "{line}");
    }
    assert!(served, "the mount was not served");
}

/// A server fails at nothing if its file is cut behind what it reads. `weir status` and `weir umount` report the cut.
#[test]
fn a_file_that_is_cut_while_it_is_mounted_is_reported() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&[]);
    fs::write(root.join("x"), "1").unwrap();
    let volume = fs::File::options().write(true).open(place.volume()).unwrap();
    let size = volume.metadata().unwrap().len();
    volume.set_len(size - (1 << 20)).unwrap();
    let at = root.to_str().unwrap();
    let told = weir(&["status", at]).output().unwrap();
    let ended = weir(&["umount", at]).output().unwrap();
    let mended = format!("truncate -s {size}");
    assert!(told.status.code() == Some(1) && text(&told.stdout).contains(&mended), "{}", text(&told.stdout));
    assert!(ended.status.code() == Some(2) && error_of(&ended).contains(&mended), "{}", error_of(&ended));
    let again = weir(&["mount", place.volume().to_str().unwrap(), at]).output().unwrap();
    assert!(error_of(&again).contains(&mended), "{}", error_of(&again));
    volume.set_len(size).unwrap();
    drop(volume);
    place.mount(&[]);
    assert_eq!(fs::read(root.join("x")).unwrap(), b"1");
    place.umount();
}

#[test]
fn no_command_waits_for_a_stopped_server_without_a_limit() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&[]);
    let at = root.to_str().unwrap();
    let stopped = Stopped::server_of(&place);
    let ended = ["status", "umount"].map(|command| {
        let output = weir(&[command, at, "--timeout", "1"]).output().unwrap();
        (output.status.code(), error_of(&output))
    });
    let piped = "\"$0\" status \"$1\" --timeout 1 2>&1 | cat";
    let piped = ends_within(10, Command::new("sh").args(["-c", piped, weir_program(), at]));
    drop(stopped);
    assert!(Path::new(at).join("lost+found").exists());
    place.umount();
    for (code, error) in ended {
        assert!(code == Some(3) && error.contains("answer"), "{code:?}: {error}");
    }
    assert!(piped, "a pipe behind the command did not end");
}
