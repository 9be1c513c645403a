//! What monitors of a mount are told: Prometheus by `--metrics`, and a service manager such as systemd by its socket.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::service_manager::ServiceManager;
use crate::support::{Place, error_of, is_mountpoint, mounts, runs, text, wait_until, weir};

/// Sends this to the socket of the metrics, and returns what is answered.
fn request(socket: &Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    text(&answer)
}

/// The number of a metric, by its name and its label.
fn metric(answer: &str, name: &str) -> f64 {
    let line = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {answer}")).parse().unwrap()
}

#[test]
fn metrics_are_served_beside_a_mount() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let socket = place.path().join("metrics");
    let root = place.mount(&["--metrics", &format!("unix:{}", socket.display())]);
    let get = || request(&socket, b"GET /metrics HTTP/1.1\r\nHost: weir\r\n\r\n");
    let before = get();
    assert!(before.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{before}");
    assert_eq!(metric(&before, "weir_healthy"), 1.0);
    let durable = "weir_sync_calls_total{promise=\"durable\"}";
    let calls = metric(&before, durable);
    let mut file = File::create(root.join("file")).unwrap();
    for _ in 0..3 {
        file.write_all(b"durable").unwrap();
        file.sync_all().unwrap();
    }
    drop(file);
    let after = get();
    assert_eq!(metric(&after, durable), calls + 3.0);
    assert_eq!(metric(&after, "weir_sync_calls_total{promise=\"order\"}"), 0.0);
    assert!(metric(&after, "weir_disk_flushes_total") >= metric(&before, "weir_disk_flushes_total") + 3.0);
    // The same numbers as those of the status.
    assert_eq!(
        metric(&get(), "weir_volume_segments"),
        place.status()["storage"]["segments"].as_f64().unwrap()
    );

    assert!(request(&socket, b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(request(&socket, b"nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
    // One that sends no end, and one that is silent: others are served.
    assert_eq!(request(&socket, &[b'a'; 20_000][..8193]), "");
    let _silent: Vec<_> = (0..3).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    assert_eq!(metric(&get(), "weir_healthy"), 1.0);
    place.umount();
    assert!(!socket.exists());
    place.check();
}

#[test]
fn metrics_that_cannot_be_served_are_an_error_before_it_is_mounted() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!("tcp:{}", taken.local_addr().unwrap().port());
    let (volume, mountpoint) = (place.volume(), place.mountpoint());
    let mount = ["mount", volume.to_str().unwrap(), mountpoint.to_str().unwrap(), "--metrics", &port];
    let output = weir(&mount).output().unwrap();
    assert!(!output.status.success() && error_of(&output).contains("listen on"), "{}", error_of(&output));
    assert!(!is_mountpoint(&mountpoint));
    place.check();
}

#[test]
fn a_service_manager_is_told_of_start_life_and_end() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let manager = ServiceManager::in_directory(place.path(), Duration::from_secs(30));
    let variables = [manager.variable(), ("WATCHDOG_USEC", "60000".to_owned())];
    let mut server = place.serve_in(&[], &variables);
    // It runs while it opens the volume, which takes its time with a slow disk.
    let mut before = Vec::new();
    wait_until("it is ready", || {
        before.push(manager.next_message());
        before.last().is_some_and(|told| told == "READY=1\n")
    });
    assert_eq!(before[0], "WATCHDOG=1\n");
    assert!(is_mountpoint(&place.mountpoint()));
    for _ in 0..5 {
        assert_eq!(manager.next_message(), "WATCHDOG=1\n");
    }
    runs(Command::new("kill").arg(server.process().id().to_string()));
    wait_until("it says that it ends", || manager.next_message() == "STOPPING=1\n");
    assert!(server.wait());
    place.check();
}
