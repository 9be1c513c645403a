//! Mounting again after a killed server: the dead mount goes, and the next mount waits for what the kernel still has on
//! its way. Where FUSE is not to be had, these tests say that they were skipped.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and tells what it measured"
)]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it waits for what other processes do"
)]

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Place, error_of, fails, mounts, weir, works};

/// Rounds of kills; the long run takes 50.
fn rounds() -> u32 {
    std::env::var("WEIR_PROGRAM_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(4)
}

#[test]
fn a_dead_mount_is_taken_away_with_a_program_still_in_it() {
    if !mounts() {
        return;
    }
    for is_used in [true, false] {
        let place = Place::with_volume("64M");
        let mut server = place.serve();
        let root = place.mountpoint();
        let mut file = File::create(root.join("file")).unwrap();
        file.write_all(b"durable").unwrap();
        file.sync_all().unwrap();
        let used = is_used.then_some(file);
        server.kill();
        let (volume, mountpoint) = (place.volume(), root.to_str().unwrap());
        fails(&["mount", volume.to_str().unwrap(), mountpoint], &["server has ended", "weir umount"]);
        let output = weir(&["umount", mountpoint]).output().unwrap();
        let told = error_of(&output);
        assert!(output.status.success(), "{told}");
        assert!(told.contains("had ended without unmounting") && told.contains("Mount it again"), "{told}");
        // Children of other tests have files open here for a moment, too.
        assert!(!is_used || told.contains("programs") || told.contains("Programs"), "{told}");
        place.mount(&[]);
        assert_eq!(fs::read(root.join("file")).unwrap(), b"durable");
        assert!(used.is_none_or(|mut file| file.write_all(b"more").is_err()), "it is on the dead mount");
        place.umount();
        // What is no mount of ours stays.
        fails(&["umount", mountpoint], &["no filesystem of Weir"]);
    }
}

#[test]
fn a_mount_waits_for_an_owner_that_ends_and_names_one_that_does_not() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let file = File::open(place.volume()).unwrap();
    file.lock().unwrap();
    let began = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(700));
            file.unlock().unwrap();
        });
        place.mount(&[]);
    });
    assert!(began.elapsed() >= Duration::from_millis(700));
    place.umount();
    file.lock().unwrap();
    let process = format!("process {} (", std::process::id());
    let (volume, mountpoint) = (place.volume(), place.mountpoint());
    let arguments = ["mount", volume.to_str().unwrap(), mountpoint.to_str().unwrap()];
    fails(&arguments, &["a.weir is in use by", &process, "weir umount"]);
}

/// Writes and synchronises until the mount is gone: how many writes of 4 KiB were acknowledged.
fn write_until(root: &Path, name: u32, is_over: &AtomicBool) -> usize {
    let Ok(mut file) = File::create(root.join(name.to_string())) else { return 0 };
    let mut written = 0;
    while !is_over.load(Ordering::Relaxed) {
        if file.write_all(&[written as u8; 4096]).and_then(|()| file.sync_data()).is_err() {
            break;
        }
        written += 1;
    }
    written
}

#[test]
fn kills_and_mounts_follow_each_other_without_a_pause() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    let (volume, root) = (place.volume(), place.mountpoint());
    let (volume, mountpoint) = (volume.to_str().unwrap(), root.to_str().unwrap());
    let (mut acknowledged, mut slowest) = (0, Duration::ZERO);
    for round in 0..rounds() {
        // The first attempt counts.
        place.mount(&[]);
        let pid = place.status()["pid"].as_i64().unwrap();
        let is_over = AtomicBool::new(false);
        let written: Vec<usize> = thread::scope(|scope| {
            let write = |name| {
                let (root, is_over) = (&root, &is_over);
                scope.spawn(move || write_until(root, name, is_over))
            };
            let writers: Vec<_> = (0..4).map(write).collect();
            thread::sleep(Duration::from_millis(200 + u64::from(round * 37 % 300)));
            let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            is_over.store(true, Ordering::Relaxed);
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        let began = Instant::now();
        let umount = weir(&["umount", mountpoint]).output().unwrap();
        assert!(umount.status.success(), "round {round}: {}", error_of(&umount));
        let mount = weir(&["mount", volume, mountpoint]).output().unwrap();
        assert!(mount.status.success(), "round {round}: {}", error_of(&mount));
        slowest = slowest.max(began.elapsed());
        for (name, written) in (0..).zip(&written) {
            let bytes = fs::read(root.join(format!("{name}"))).unwrap_or_default();
            assert!(
                bytes.len() >= written * 4096,
                "round {round}: {} of {written} writes",
                bytes.len() / 4096
            );
            let right = |(nth, block): (usize, &[u8])| block.iter().all(|byte| *byte == nth as u8);
            assert!(bytes.chunks_exact(4096).take(*written).enumerate().all(right), "round {round}");
        }
        acknowledged += written.iter().sum::<usize>();
        place.umount();
        let check = weir(&["fsck", volume]).output().unwrap();
        assert!(check.status.success(), "round {round}: {}", error_of(&check));
    }
    println!("{} kills, {acknowledged} writes acknowledged, mounted again within {slowest:?}", rounds());
}

/// Kills a server that has written over 720 MiB, and mounts again; the bytes of log that recovery read, and those that it
/// was to read at most.
fn recovered_after_much(place: &Place) -> (u64, u64) {
    let mut server = place.serve();
    let mut file = File::create(place.mountpoint().join("file")).unwrap();
    for round in 0..720_u32 {
        file.write_all(&vec![round as u8; 1 << 20]).unwrap();
        if round % 16 == 15 {
            file.sync_data().unwrap();
        }
    }
    drop(file);
    let target = place.status()["storage"]["recovery"]["target_bytes"].as_u64().unwrap();
    server.kill();
    works(&["umount", place.mountpoint().to_str().unwrap()]);
    let began = Instant::now();
    place.mount(&[]);
    let took = began.elapsed();
    let found = &place.status()["storage"]["recovery"];
    println!(
        "mounted in {took:?}, of which recovery took {} ms: {} bytes of log",
        found["ms"], found["bytes"]
    );
    place.umount();
    (found["bytes"].as_u64().unwrap(), target)
}

#[test]
fn recovery_reads_no_more_log_than_status_says() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("1G");
    for _ in 0..rounds().div_ceil(8) {
        let (bytes, target) = recovered_after_much(&place);
        assert_eq!(target, 450 << 20, "a second at 500 MB/s");
        // What was written while a checkpoint was on its way comes on top.
        assert!(bytes <= target + (128 << 20), "{bytes} bytes of log were read, and {target} are the target");
    }
}
