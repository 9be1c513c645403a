//! Journal coalition on mounts: what the status says of it, who can replay the journal after a crash, and what is left
//! when it was replayed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use crate::support::{Place, error_of, mounts, runs, text, weir, works};

/// Files that the mount makes durable before its server is killed.
const FILES: u8 = 20;

/// It has no option `--version`.
fn has_e2fsck() -> bool {
    let there = Command::new("e2fsck").arg("-V").output().is_ok();
    if !there {
        eprintln!("skipped: this takes e2fsck");
    }
    there
}

/// Mounts what is at the place's path with journal coalition, makes files durable and kills the server.
fn crash(place: &Place, more: &[&str]) {
    let mut server = place.serve_as(&[&["--journal-coalition"], more].concat());
    for nth in 0..FILES {
        let mut file = File::create(place.mountpoint().join(format!("{nth}"))).unwrap();
        file.write_all(&vec![nth; 10_000]).unwrap();
        file.sync_all().unwrap();
    }
    server.kill();
    place.unmount();
}

/// All files are there.
fn is_whole(image: &Path) {
    for nth in 0..FILES {
        let output = weir(&["cat", image.to_str().unwrap(), &format!("/{nth}")]).output().unwrap();
        assert!(output.status.success() && output.stdout == vec![nth; 10_000], "{}", error_of(&output));
    }
}

#[test]
fn others_refuse_the_journal_by_name_until_it_is_replayed() {
    if !mounts() || !has_e2fsck() {
        return;
    }
    for engine in ["jbd2", "dual"] {
        let place = Place::new();
        let image = place.volume();
        let path = image.to_str().unwrap();
        match engine {
            "jbd2" => works(&["mkfs", path, "--size", "64M"]),
            _ => works(&["mkfs", "--volume", path, "--size", "64M"]),
        };
        crash(&place, &["--engine", engine]);
        // Reading replays in memory and changes nothing, so the check still sees what is to be replayed.
        is_whole(&image);
        let checked = works(&["fsck", path]);
        assert!(checked.contains("to replay"), "{checked}");
        if engine == "jbd2" {
            let refused = Command::new("e2fsck").args(["-fy", path]).output().unwrap();
            let said = text(&refused.stdout) + &error_of(&refused);
            assert_eq!(refused.status.code(), Some(8), "{said}");
            assert!(said.contains("FEATURE_I29"), "{said}");
            let mount = Command::new("mount").args(["-o", "loop", path]).arg(place.mountpoint()).output();
            assert!(!mount.unwrap().status.success(), "the kernel cannot replay it");
        }
        let replayed = works(&["fsck", "--replay", path]);
        assert!(!replayed.contains("to replay") && replayed.contains("clean"), "{replayed}");
        if engine == "jbd2" {
            runs(Command::new("e2fsck").args(["-fn", path]));
        }
        is_whole(&image);
    }
}

#[test]
fn a_status_says_what_keeps_homes_whole_and_an_unmount_leaves_plain_ext4() {
    if !mounts() {
        return;
    }
    let place = Place::new();
    let image = place.volume();
    let path = image.to_str().unwrap();
    let line =
        |told: &str| told.lines().find(|line| line.starts_with("journal coalition")).unwrap().to_owned();
    for (volume, says) in
        [(true, "the storage tears no block"), (false, "logged whole after each checkpoint")]
    {
        let _ = fs::remove_file(&image);
        let arguments = ["mkfs", "--size", "64M", path, "--volume"];
        works(if volume { &arguments } else { &arguments[..4] });
        let root = place.mount(&["--journal-coalition"]);
        fs::write(root.join("file"), [1; 10_000]).unwrap();
        let told = line(&works(&["status", root.to_str().unwrap()]));
        assert!(told.contains("on; ") && told.contains(says), "{told}");
        assert!(place.status()["coalition"].as_str().unwrap().contains(says));
        place.umount();
        let root = place.mount(&[]);
        assert!(line(&works(&["status", root.to_str().unwrap()])).ends_with("off"));
        assert!(place.status()["coalition"].is_null());
        place.umount();
        if !volume && has_e2fsck() {
            runs(Command::new("e2fsck").args(["-fn", path]));
        }
    }
}
