//! `weir serve --vhost-user`: what the command says and does. The requests of guests have their tests in the crate
//! `vhost`, and [a judge](../../../../examples/nbd-guest/README.md) boots one.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::Served;
use crate::support::{Place, fails, text, wait_until, weir, works};

/// Asks for the features of the device.
fn features(stream: &mut UnixStream) -> u64 {
    const GET_FEATURES: u32 = 1;
    const VERSION: u32 = 1;
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let message = [GET_FEATURES.to_ne_bytes(), VERSION.to_ne_bytes(), 0_u32.to_ne_bytes()].concat();
    stream.write_all(&message).unwrap();
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).unwrap();
    u64::from_ne_bytes(reply[12..].try_into().unwrap())
}

#[test]
fn a_volume_is_the_disk_of_a_virtual_machine() {
    const READ_ONLY: u64 = 1 << 5;
    const FLUSH: u64 = 1 << 9;
    const DISCARD: u64 = 1 << 13;
    let mut served = Served::by("--vhost-user", "64M", &["--answer", "disk"]);
    assert_eq!(fs::metadata(served.socket()).unwrap().permissions().mode() & 0o777, 0o600);
    let mut frontend = UnixStream::connect(served.socket()).unwrap();
    assert_eq!(features(&mut frontend) & (READ_ONLY | FLUSH | DISCARD), FLUSH | DISCARD);
    let address = format!("unix:{}", served.socket().display());
    let status =
        || -> serde_json::Value { serde_json::from_str(&works(&["status", &address, "--json"])).unwrap() };
    let told = status();
    assert_eq!((&told["served"]["clients"], &told["served"]["clients_max"]), (&1.into(), &1.into()));
    let grown = works(&["volume", "grow", &address, "--size", "1G"]);
    assert!(grown.contains("a volume of 95"), "{grown}");
    assert!(status()["served"]["bytes"].as_u64().unwrap() > 900 << 20);
    let volume = served.place.volume().to_str().unwrap().to_owned();
    fails(&["volume", "grow", &volume], &["in use", &address]);

    // One that is dropped makes room for the next, also after a kill.
    frontend.write_all(&[0xFF; 64]).unwrap();
    let ended = frontend.read_to_end(&mut Vec::new());
    assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
    served.restart();
    let mut next = UnixStream::connect(served.socket()).unwrap();
    assert_eq!(features(&mut next) & FLUSH, FLUSH);
    drop(next);
    wait_until("it has gone", || status()["served"]["clients"] == 0);
    assert!(served.end());
    assert!(!served.socket().exists());
    works(&["volume", "check", &volume]);
}

#[test]
fn memory_is_not_shared_by_tcp() {
    let place = Place::new();
    let volume = place.volume().to_str().unwrap().to_owned();
    for (more, words) in [
        (&["--vhost-user", "tcp:10809"][..], "memory is shared by a socket of this machine"),
        (&["--vhost-user", "unix:a", "--nbd", "unix:b"], "cannot be used with"),
        (&[], "--vhost-user"),
    ] {
        let ended = weir(&[&["serve", &volume][..], more].concat()).output().unwrap();
        let told = text(&ended.stderr);
        assert!(!ended.status.success() && told.contains(words), "{words}: {told}");
    }
}
