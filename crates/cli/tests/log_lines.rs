//! `--log-format json`: each line that a server writes is an object, and names its event; and a server does not wait for the reader of
//! them. Where FUSE is not to be had, these tests say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![expect(clippy::disallowed_methods, reason = "it reads what another process writes")]

use std::fs::{self, File};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Place, mounts, runs, text, wait_until, weir, works};

/// The lines, each with all that every line has, in the order of their dates.
#[track_caller]
pub fn objects(lines: &str) -> Vec<Value> {
    let objects: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    for object in &objects {
        for field in ["time", "level", "event", "message"] {
            assert!(object[field].as_str().is_some_and(|told| !told.is_empty()), "no {field} in {object}");
        }
        let time = object["time"].as_str().unwrap();
        assert!(humantime::parse_rfc3339(time).is_ok(), "{time}");
    }
    assert!(objects.is_sorted_by_key(|object| object["time"].as_str().unwrap()), "{lines}");
    objects
}

fn events(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(|object| object["event"].as_str().unwrap()).collect()
}

#[test]
fn a_log_tells_of_start_recovery_restart_and_stop() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let log = place.path().join("log");
    let arguments = ["--log", log.to_str().unwrap(), "--log-format", "json"];
    let mut server = place.serve_as(&arguments);
    let kept = place.mountpoint().join("kept");
    fs::write(&kept, "kept").unwrap();
    File::open(&kept).unwrap().sync_all().unwrap();
    server.kill();
    place.unmount();
    let mut server = place.serve_as(&arguments);
    works(&["restart", place.mountpoint().to_str().unwrap()]);
    // Refused, as what is mounted has another place.
    let moved = place.path().join("moved");
    fs::rename(place.volume(), &moved).unwrap();
    let refused = weir(&["restart", place.mountpoint().to_str().unwrap()]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    fs::rename(&moved, place.volume()).unwrap();
    runs(Command::new("kill").arg(server.process().id().to_string()));
    assert!(server.wait());
    let told = objects(&fs::read_to_string(&log).unwrap());
    let expected = [
        "started",
        "volume_recovered",
        "journal_replayed",
        "started",
        "restarted",
        "restart_refused",
        "stopped",
    ];
    assert_eq!(events(&told), expected, "{told:?}");
    let recovered = &told[1];
    assert_eq!((&recovered["level"], &recovered["target"]), (&"WARN".into(), &"weir_volume::volume".into()));
    assert!(recovered["records"].as_u64() > Some(0) && recovered["seconds"].is_f64(), "{recovered}");
    assert!(told[5]["reason"].as_str().unwrap().contains("not at its path"), "{}", told[5]);
    assert_eq!(told[6]["path"], place.mountpoint().to_str().unwrap());
    place.check();
}

#[test]
fn a_server_of_a_volume_and_an_error_are_objects_too() {
    let place = Place::with_volume("64M");
    let (volume, socket) = (place.volume(), place.path().join("socket"));
    let address = format!("unix:{}", socket.display());
    let arguments =
        ["serve", "--foreground", "--log-format", "json", volume.to_str().unwrap(), "--nbd", &address];
    let server = weir(&arguments).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("it serves", || socket.exists());
    let second = weir(&arguments).output().unwrap();
    runs(Command::new("kill").arg(server.id().to_string()));
    let output = server.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(events(&objects(&text(&output.stderr))), ["started", "stopped"]);
    let told = objects(&text(&second.stderr));
    assert_eq!((events(&told), &told[0]["level"]), (vec!["failed"], &"ERROR".into()));
    assert!(told[0]["message"].as_str().unwrap().contains("in use"), "{}", told[0]);
}

/// A line for each request, into a pipe that is not read for a time.
#[test]
fn a_server_whose_messages_nobody_reads_goes_on_and_says_so() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let all = [("RUST_LOG", "weir_fuse=trace".to_owned())];
    let mut server = place.serve_in(&["--log-format", "json"], &all);
    let script = "for file in $(seq 2000); do : >$file; done";
    runs(Command::new("timeout").args(["60", "sh", "-e", "-c", script]).current_dir(place.mountpoint()));
    let mut messages = server.take_messages();
    let reader = std::thread::spawn(move || std::io::read_to_string(&mut messages).unwrap());
    place.umount();
    assert!(server.wait());
    let told = objects(&reader.join().unwrap());
    assert!(events(&told).contains(&"request") && events(&told).ends_with(&["stopped"]), "{:?}", told.last());
    let left_out = told.iter().find(|object| object["event"] == "log_lines_left_out").unwrap();
    assert!(left_out["lines"].as_u64() > Some(1_000), "{left_out}");
    place.check();
}
