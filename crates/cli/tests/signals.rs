//! What each signal does to a server of a mount, and of a disk: it goes on, it ends as by SIGTERM, or it has died of a fault.
//! Nothing that was written is lost by any but the last kind. Where FUSE is not to be had, these tests say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{self, Place, is_mountpoint, mounts, wait_until, weir, works};

/// What becomes of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    GoesOn,
    Ends,
    /// The signals that say that a program has failed itself: it ends at once, as by SIGKILL.
    Dies,
}

use Fate::{Dies, Ends, GoesOn};

/// All signals but SIGKILL and SIGSTOP, which no program has a say in. Of SIGBUS and SIGSEGV the first is taken by the runtime of the
/// language, which looks for a stack that has overflown, and the next would end the program.
const FATES: [(i32, &str, Fate); 29] = [
    (1, "HUP", GoesOn),
    (2, "INT", Ends),
    (3, "QUIT", Ends),
    (4, "ILL", Dies),
    (5, "TRAP", Dies),
    (6, "ABRT", Dies),
    (7, "BUS", GoesOn),
    (8, "FPE", Dies),
    (10, "USR1", GoesOn),
    (11, "SEGV", GoesOn),
    (12, "USR2", GoesOn),
    (13, "PIPE", GoesOn),
    (14, "ALRM", GoesOn),
    (15, "TERM", Ends),
    (16, "STKFLT", GoesOn),
    (17, "CHLD", GoesOn),
    (18, "CONT", GoesOn),
    (20, "TSTP", GoesOn),
    (21, "TTIN", GoesOn),
    (22, "TTOU", GoesOn),
    (23, "URG", GoesOn),
    (24, "XCPU", Ends),
    (25, "XFSZ", GoesOn),
    (26, "VTALRM", GoesOn),
    (27, "PROF", GoesOn),
    (28, "WINCH", GoesOn),
    (29, "IO", GoesOn),
    (30, "PWR", Ends),
    (31, "SYS", Dies),
];

fn kill(signal: i32, process: &str) {
    support::runs(Command::new("kill").args([&format!("-{signal}"), process]));
}

fn log_of(place: &Place) -> PathBuf {
    place.path().join("log")
}

#[test]
fn each_signal_has_its_fate_and_loses_nothing_that_was_written() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    for (number, name, fate) in FATES {
        let root = place.mount(&["--log", log_of(&place).to_str().unwrap()]);
        let process = place.status()["pid"].to_string();
        let file = root.join(format!("file-{name}"));
        fs::write(&file, name).unwrap();
        // A core of what dies is of no use to anybody.
        support::runs(Command::new("prlimit").args(["--core=0", "--pid", &process]));
        kill(number, &process);
        match fate {
            GoesOn => {
                // Answered behind the signal.
                assert_eq!(place.status()["pid"].to_string(), process, "SIG{name}");
                assert_eq!(fs::read_to_string(&file).unwrap(), name, "SIG{name}");
                fs::write(&file, "again").unwrap();
                assert_eq!(fs::read_to_string(&file).unwrap(), "again", "SIG{name}");
                place.umount();
            }
            Ends => wait_until("it is unmounted", || !is_mountpoint(&root)),
            Dies => {
                wait_until("it has died", || fs::read_dir(&root).is_err());
                works(&["umount", root.to_str().unwrap()]);
            }
        }
        wait_until("the volume is free", || {
            weir(&["fsck", place.volume().to_str().unwrap()]).output().unwrap().status.success()
        });
        let expected = if fate == GoesOn { "again" } else { name };
        let left =
            weir(&["cat", place.volume().to_str().unwrap(), &format!("/file-{name}")]).output().unwrap();
        if fate != Dies {
            assert_eq!(support::text(&left.stdout), expected, "SIG{name}: {}", support::error_of(&left));
        }
    }
    place.check();
}

fn mount_with_log(place: &Place, log: &Path) -> String {
    let arguments = ["mount", "--log", log.to_str().unwrap()];
    let (volume, root) = (place.volume(), place.mountpoint());
    let mut command = weir(&[&arguments[..], &[volume.to_str().unwrap(), root.to_str().unwrap()]].concat());
    support::runs(command.env("RUST_LOG", "weir_fuse=trace"));
    place.status()["pid"].to_string()
}

/// As logrotate does it: the file is renamed, and a new one is there, or is not.
#[test]
fn a_hang_up_opens_the_log_anew() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let log = log_of(&place);
    let process = mount_with_log(&place, &log);
    for round in 0..3 {
        let old = place.path().join(format!("log.{round}"));
        fs::rename(&log, &old).unwrap();
        kill(1, &process);
        wait_until("there is a new log", || log.exists());
        let size = fs::metadata(&old).unwrap().len();
        place.status();
        wait_until("it is written to", || fs::metadata(&log).unwrap().len() > 0);
        assert!(size > 0 && fs::metadata(&old).unwrap().len() == size, "the old log is still written to");
    }
    // A directory in its place: the log goes on, and says why.
    let old = place.path().join("log.old");
    fs::rename(&log, &old).unwrap();
    fs::create_dir(&log).unwrap();
    kill(1, &process);
    wait_until("it says so", || fs::read_to_string(&old).unwrap().contains("the log stays in the old file"));
    place.end();
}

/// Its terminal has gone, and so has the person who would end it.
#[test]
fn a_hang_up_ends_a_server_in_the_foreground_without_a_log() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let mut server = place.serve();
    fs::write(place.mountpoint().join("file"), "kept").unwrap();
    kill(1, &server.process().id().to_string());
    assert!(server.wait());
    assert_eq!(works(&["cat", place.volume().to_str().unwrap(), "/file"]), "kept");
    let mut server = place.serve_as(&["--log", log_of(&place).to_str().unwrap()]);
    kill(1, &server.process().id().to_string());
    assert_eq!(fs::read_to_string(place.mountpoint().join("file")).unwrap(), "kept");
    kill(15, &server.process().id().to_string());
    assert!(server.wait());
    place.check();
}

/// The other server there is.
#[test]
fn a_served_disk_has_the_same_fates() {
    if !mounts() {
        return;
    }
    let place = Place::new();
    let root = place.mountpoint();
    let volume = place.volume();
    works(&["volume", "create", volume.to_str().unwrap(), "--size", "64M"]);
    for (number, name, fate) in FATES.into_iter().filter(|(_, _, fate)| *fate != Dies) {
        works(&["disk", root.to_str().unwrap(), "--volume", volume.to_str().unwrap()]);
        let process = place.status()["pid"].to_string();
        kill(number, &process);
        match fate {
            Ends => wait_until("it is unmounted", || !is_mountpoint(&root)),
            _ => {
                assert_eq!(place.status()["pid"].to_string(), process, "SIG{name}");
                place.umount();
            }
        }
        wait_until("the volume is free", || {
            weir(&["volume", "check", volume.to_str().unwrap()]).output().unwrap().status.success()
        });
    }
}

/// Programs go on with a mount that was detached, until a signal ends its server. What they have written is durable
/// then, and what is at the place by then stays.
#[test]
fn a_detached_mount_is_made_durable() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let (root, volume) = (place.mountpoint(), place.volume());
    for (options, has_other) in [(&[][..], false), (&[], true), (&["--writeback-cache"], false)] {
        let mut server = place.serve_as(options);
        let mut file = File::create(root.join("file")).unwrap();
        support::runs(Command::new("umount").arg("-l").arg(&root));
        file.write_all(b"kept").unwrap();
        if has_other {
            support::runs(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&root));
        }
        kill(15, &server.process().id().to_string());
        assert!(server.wait(), "{options:?}");
        assert!(file.write_all(b"late").is_err(), "no server answers");
        assert_eq!(is_mountpoint(&root), has_other);
        if has_other {
            support::runs(Command::new("umount").arg(&root));
        }
        assert_eq!(works(&["cat", volume.to_str().unwrap(), "/file"]), "kept", "{options:?}");
        place.check();
    }
}

#[test]
fn a_detached_disk_is_made_durable() {
    if !mounts() {
        return;
    }
    let place = Place::new();
    let (root, volume) = (place.mountpoint(), place.volume());
    works(&["volume", "create", volume.to_str().unwrap(), "--size", "64M"]);
    let serve = || works(&["disk", root.to_str().unwrap(), "--volume", volume.to_str().unwrap()]);
    serve();
    let process = place.status()["pid"].to_string();
    let disk = File::options().write(true).open(root.join("disk")).unwrap();
    support::runs(Command::new("umount").arg("-l").arg(&root));
    disk.write_all_at(&[7; 4096], 0).unwrap();
    kill(15, &process);
    wait_until("the volume is free", || {
        weir(&["volume", "check", volume.to_str().unwrap()]).output().unwrap().status.success()
    });
    serve();
    let mut found = [0; 4096];
    File::open(root.join("disk")).unwrap().read_exact_at(&mut found, 0).unwrap();
    assert_eq!(found, [7; 4096]);
    place.umount();
}
