//! `mount -t weir` and `umount` of the system, by way of the helpers that the program is when it is called so. All of it
//! is in a mount namespace of its own, where `/sbin` holds nothing but the helpers.
//! Where FUSE or `unshare` is not to be had, these tests say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use crate::support::{self, Place, error_of, is_there, mounts, text, weir_program};

/// A volume, and the helpers beside it.
fn place() -> Option<Place> {
    if !mounts() || !is_there("unshare") {
        return None;
    }
    let place = Place::with_volume("64M");
    let helpers = place.path().join("helpers");
    fs::create_dir(&helpers).unwrap();
    for helper in ["mount.weir", "umount.fuse.weir"] {
        symlink(weir_program(), helpers.join(helper)).unwrap();
    }
    fs::write(place.path().join("nothing"), "").unwrap();
    Some(place)
}

/// Runs lines of the shell beside the volume, with the helpers installed.
fn shell(place: &Place, script: &str) -> Output {
    let install = "mount --bind helpers /sbin; export PATH=/usr/bin:/bin; cd \"$PWD\"";
    let script = format!("{install}\n{script}");
    Command::new("unshare")
        .args(["--mount", "sh", "-e", "-c", &script])
        .current_dir(place.path())
        .env("WEIR", weir_program())
        .output()
        .unwrap()
}

#[track_caller]
fn works(place: &Place, script: &str) -> String {
    let output = shell(place, script);
    assert!(output.status.success(), "{script}: {}{}", text(&output.stdout), error_of(&output));
    text(&output.stdout)
}

#[test]
fn the_systems_mount_and_umount_do_what_the_program_does() {
    let Some(place) = place() else { return };
    let told = works(
        &place,
        "mount -t weir a.weir mounted -o sync=order,allow_other,nodev,x-systemd.requires=x.service
         grep \" $PWD/mounted \" /proc/self/mounts
         $WEIR status --json mounted
         echo content > mounted/file
         umount mounted
         # The server has ended: the volume is free, and clean.
         $WEIR fsck a.weir >&2
         mount -t weir -r a.weir mounted
         cat mounted/file
         touch mounted/new 2>&1 && exit 9
         umount mounted",
    );
    let mounted = told.lines().next().unwrap();
    assert!(mounted.contains(" fuse.weir rw,nosuid,nodev") && mounted.contains("allow_other"), "{mounted}");
    assert!(told.contains("order") && told.contains("content\n"), "{told}");
    assert!(told.contains("Read-only"), "{told}");
    place.check();
}

#[test]
fn a_line_of_fstab_mounts_once() {
    let Some(place) = place() else { return };
    works(
        &place,
        "echo \"$PWD/a.weir $PWD/mounted weir defaults,nofail,noexec,_netdev,x-systemd.mount-timeout=infinity 0 0\" > fstab
         mount -T fstab -a
         mount -T fstab -a
         test $(grep -c \" $PWD/mounted \" /proc/self/mounts) = 1
         grep \" $PWD/mounted \" /proc/self/mounts | grep -q noexec
         echo echo no > mounted/program
         chmod +x mounted/program
         mounted/program 2>/dev/null && exit 9
         umount mounted
         $WEIR fsck a.weir >&2",
    );
}

#[test]
fn what_the_helper_does_not_know_it_refuses_by_name() {
    let Some(place) = place() else { return };
    for (options, words) in [
        ("ro,data=journal", "\"data=journal\" is no option"),
        ("suid", "\"suid\" is no option"),
        ("remount,ro", "unmount it"),
        ("sync=never", "never"),
    ] {
        let output = shell(&place, &format!("/sbin/mount.weir a.weir mounted -o {options}"));
        let told = error_of(&output);
        assert!(!output.status.success() && told.contains(words), "{options}: {told}");
        assert!(!support::is_mountpoint(&place.mountpoint()));
    }
    works(&place, "/sbin/mount.weir a.weir mounted -s -n -v -o unknown,rw && umount mounted");
    works(&place, "/sbin/mount.weir a.weir mounted -f -o rw; ! mountpoint -q mounted");
    let output = shell(&place, "mount -t weir none.weir mounted");
    assert!(!output.status.success() && error_of(&output).contains("none.weir"), "{}", error_of(&output));
}

#[test]
fn umount_takes_a_dead_mount_away_and_leaves_one_in_use() {
    let Some(place) = place() else { return };
    works(
        &place,
        "mount -t weir a.weir mounted
         exec 7> mounted/file
         umount mounted 2>busy && exit 9
         grep -q 'have files open' busy
         mountpoint -q mounted
         kill -9 $($WEIR status --json mounted | sed -n 's/.*\"pid\": *\\([0-9]*\\).*/\\1/p')
         sleep 0.2
         umount mounted
         exec 7>&-
         mount -t weir a.weir mounted
         exec 7> mounted/file
         umount -l mounted
         exec 7>&-",
    );
    place.check();
}
