//! Who may read what holds the files of users: whoever may read a volume can read every file in it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::support::{Place, error_of, mounts, runs, weir, weir_program, works};

#[track_caller]
fn is_owners_alone(path: &Path) {
    let mode = path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "{}: {mode:o}", path.display());
}

/// Whatever the user's mask lets through.
#[test]
fn what_is_made_is_its_owners_alone() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (made, arguments) in [
        ("image", "mkfs image --size 16M"),
        ("filled", "mkfs filled --size 16M --fill"),
        ("weir", "mkfs --volume weir --size 64M"),
        ("volume", "volume create volume --size 64M"),
        ("trace", "trace --writes 10 trace"),
        ("page", "figures --quick --html page fast18-fig09"),
    ] {
        let script = format!("umask 0; exec \"$0\" {arguments}");
        let mut command = Command::new("sh");
        runs(command.args(["-c", &script, weir_program()]).current_dir(directory.path()));
        is_owners_alone(&directory.path().join(made));
    }
}

/// Where others may write too, they may have put a link to another file there, or a file that they read.
#[test]
fn reports_and_logs_go_to_files_of_the_users_own() {
    let place = Place::with_volume("64M");
    let (report, log) = (place.path().join("report"), place.path().join("log"));
    works(&["trace", "--writes", "10", report.to_str().unwrap()]);
    fs::write(&log, "somebody's log").unwrap();
    let untouched = [fs::read(&report).unwrap(), fs::read(&log).unwrap()];
    let refused = |name: &str, what: &str| {
        let (volume, mountpoint, file) = (place.volume(), place.mountpoint(), place.path().join(name));
        let (volume, mountpoint) = (volume.to_str().unwrap(), mountpoint.to_str().unwrap());
        let file = file.to_str().unwrap();
        for arguments in
            [&["trace", "--writes", "10", file][..], &["mount", volume, mountpoint, "--log", file]]
        {
            let told = weir(arguments).output().unwrap();
            let error = error_of(&told);
            assert!(!told.status.success() && error.contains(what) && error.contains(name), "{error}");
        }
    };
    for (name, target) in [("to report", "report"), ("to log", "log"), ("to nothing", "nothing")] {
        std::os::unix::fs::symlink(target, place.path().join(name)).unwrap();
        refused(name, "no regular file");
    }
    assert!(!place.path().join("nothing").exists());
    runs(Command::new("mkfifo").arg(place.path().join("pipe")));
    refused("pipe", "no regular file");
    // A link that is none to look at. What it leads to has two names then.
    for (name, of) in [("another report", &report), ("another log", &log)] {
        let another = place.path().join(name);
        fs::hard_link(of, &another).unwrap();
        refused(name, "another name");
        fs::remove_file(another).unwrap();
    }
    // What a server in the background has for that is closed once it is mounted, and /dev/null is neither.
    let (volume, mountpoint) = (place.volume(), place.mountpoint());
    let logs = ["mount", volume.to_str().unwrap(), mountpoint.to_str().unwrap(), "--log", "/dev/stderr"];
    for arguments in [&logs[..], &["trace", "--writes", "10", "/dev/null"]] {
        let error = error_of(&weir(arguments).output().unwrap());
        assert!(error.contains("no regular file"), "{error}");
    }
    let theirs = place.path().join("theirs");
    fs::write(&theirs, "").unwrap();
    if std::os::unix::fs::chown(&theirs, Some(65534), None).is_ok() {
        refused("theirs", "another user's file");
        assert_eq!(theirs.metadata().unwrap().len(), 0);
    } else {
        eprintln!("skipped: only the superuser makes files of others");
    }
    assert_eq!([fs::read(&report).unwrap(), fs::read(&log).unwrap()], untouched);
    // One's own is written anew, and keeps what it permits.
    fs::set_permissions(&report, Permissions::from_mode(0o640)).unwrap();
    works(&["trace", "--writes", "10", report.to_str().unwrap()]);
    assert_eq!(fs::read(&report).unwrap(), untouched[0]);
    assert_eq!(report.metadata().unwrap().permissions().mode() & 0o777, 0o640);
}

/// Whoever made the path: what is written there goes where the program writes anyhow.
#[test]
fn reports_go_to_standard_output_and_standard_error() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (report, link) = (directory.path().join("report"), directory.path().join("link"));
    works(&["trace", "--writes", "10", report.to_str().unwrap()]);
    std::os::unix::fs::symlink("/proc/self/fd/2", &link).unwrap();
    let report = fs::read_to_string(&report).unwrap();
    for path in ["/dev/stderr", link.to_str().unwrap()] {
        let output = weir(&["trace", "--writes", "10", path]).output().unwrap();
        assert!(error_of(&output) == report, "{path}");
    }
    let told = works(&["trace", "--writes", "10", "/dev/stdout"]);
    assert!(told.starts_with(&report), "{told}");
    // A file would be cut that others write to; its path is to be had.
    let kept = directory.path().join("kept");
    fs::write(&kept, "what is there").unwrap();
    let file = fs::File::options().append(true).open(&kept).unwrap();
    let mut command = weir(&["trace", "--writes", "10", "/dev/stdout"]);
    assert!(!command.stdout(file).output().unwrap().status.success());
    assert_eq!(fs::read_to_string(&kept).unwrap(), "what is there");
}

/// A file that was made beforehand keeps the permissions that its owner gave it.
#[test]
fn permissions_of_what_is_there_stay() {
    let place = Place::new();
    fs::write(place.volume(), "").unwrap();
    fs::set_permissions(place.volume(), Permissions::from_mode(0o640)).unwrap();
    works(&["mkfs", "--volume", place.volume().to_str().unwrap(), "--size", "64M"]);
    assert_eq!(place.volume().metadata().unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn a_mount_warns_of_readers() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let (volume, mountpoint) = (place.volume(), place.mountpoint());
    let (volume, mountpoint) = (volume.to_str().unwrap(), mountpoint.to_str().unwrap());
    let permit = |mode| fs::set_permissions(place.volume(), Permissions::from_mode(mode)).unwrap();
    for (mode, readers, words) in [
        (0o600, serde_json::json!([]), None),
        (0o640, serde_json::json!(["group"]), Some("its group")),
        (0o644, serde_json::json!(["group", "others"]), Some("its group and everybody")),
    ] {
        permit(mode);
        for read_only in [None, Some("--read-only")] {
            let mounted = weir(&["mount", volume, mountpoint]).args(read_only).output().unwrap();
            assert!(mounted.status.success(), "{}", error_of(&mounted));
            let warned = error_of(&mounted);
            match words {
                None => assert_eq!(warned, ""),
                Some(words) => assert!(warned.contains(words) && warned.contains("chmod"), "{warned}"),
            }
            assert_eq!(place.status()["storage"]["readable_by"], readers);
            let told = works(&["status", mountpoint]);
            assert_eq!(told.contains("chmod"), words.is_some(), "{told}");
            place.umount();
        }
    }
    // What is changed while it is mounted is seen.
    permit(0o600);
    place.mount(&[]);
    permit(0o604);
    assert_eq!(place.status()["storage"]["readable_by"], serde_json::json!(["others"]));
    place.umount();
}
