//! Who may read what holds the files of users: whoever may read a volume can read every file in it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod support;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use support::{Place, error_of, mounts, runs, weir, works};

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
        runs(command.args(["-c", &script, env!("CARGO_BIN_EXE_weir")]).current_dir(directory.path()));
        is_owners_alone(&directory.path().join(made));
    }
}

/// The file of who made it beforehand is theirs to permit.
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
