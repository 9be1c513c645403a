//! `weir serve --ublk` where the kernel has no ublk, and what is refused before. With one, a guest is
//! [the judge](../../../examples/ublk-guest/README.md).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use crate::support::{Place, error_of, fails, weir, works};

#[test]
fn without_the_module_the_error_says_what_to_load() {
    if Path::new("/dev/ublk-control").exists() {
        return eprintln!("skipped: this kernel has ublk");
    }
    let place = Place::new();
    let volume = place.volume();
    let volume = volume.to_str().unwrap();
    works(&["volume", "create", volume, "--size", "64M"]);
    let words = ["/dev/ublk-control is not there", "modprobe ublk_drv", "Linux 6.5"];
    fails(&["serve", volume, "--ublk", "0", "--foreground"], &words);
    works(&["volume", "check", volume]);
}

#[test]
fn a_server_has_one_protocol_and_a_device_a_number() {
    for (more, word) in [
        (&["--ublk", "0", "--nbd", "unix:s"][..], "cannot be used with"),
        (&["--ublk", "1048576"], "less than 1048576"),
        (&["--ublk", "b"], "write the device's number"),
        (&[], "--ublk"),
    ] {
        let output = weir(&[&["serve", "a.weir"], more].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(error_of(&output).contains(word), "{more:?}: {}", error_of(&output));
    }
    let help = works(&["serve", "--help"]);
    for page in ["docs/nbd.md", "docs/vhost-user.md", "docs/ublk.md", "docs/replicate.md"] {
        assert!(help.contains(page), "{page}: {help}");
    }
    fails(&["status", "/dev/ublkb77"], &["/dev/ublkb77: no `weir serve` listens there"]);
    fails(&["umount", "/dev/ublkb77"], &["/dev/ublkb77: no `weir serve` listens there"]);
}
