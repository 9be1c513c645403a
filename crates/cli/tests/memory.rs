//! The memory of a server: under a mixed load it stays within the bound that its status states, and it comes back to the
//! floor stated there when the files are gone. Where FUSE is not to be had, these tests say that they were skipped.

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

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Place, fails, mounts};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

/// The default sizes of a mount's caches: what files may hold of memory.
const CACHE_BYTES: u64 = 256 << 20;
/// The soonest that a server is to be back at its floor.
const SETTLES: Duration = Duration::from_secs(10);
/// Bytes of a large file.
const LARGE: usize = 160 << 20;

/// Seconds of load; the long run takes 3,600.
fn load() -> Duration {
    let seconds = std::env::var("WEIR_MEMORY_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(20))
}

/// Many files of up to 64 KiB in many directories: made, read, synchronised and removed.
fn small_files(root: &Path, seed: u64, is_over: &AtomicBool) {
    let mut random = Pcg64::seed_from_u64(seed);
    let base = root.join(format!("small{seed}"));
    let bytes: Vec<u8> = (0..65_536_u32).map(|i| i as u8).collect();
    let path = |file: u64| base.join((file / 250).to_string()).join(file.to_string());
    for made in 0_u64.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let file = made % 25_000;
        if file.is_multiple_of(250) {
            fs::create_dir_all(path(file).parent().unwrap()).unwrap();
        }
        let length = random.random_range(1..bytes.len()) / random.random_range(1..16);
        let mut new = File::create(path(file)).unwrap();
        new.write_all(&bytes[..length]).unwrap();
        if random.random_ratio(1, 50) {
            new.sync_all().unwrap();
        }
        let other = path(random.random_range(0..=file));
        match random.random_range(0..8) {
            0 => drop(fs::remove_file(other)),
            1..4 => drop(fs::read(other)),
            _ => {}
        }
    }
}

/// Large files, one after the other: written in a row, changed and read at random places, read in a row.
fn large_files(root: &Path, seed: u64, is_over: &AtomicBool) {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut bytes = vec![7; 1 << 20];
    for round in 0.. {
        let path = root.join(format!("large{seed}.{}", round % 3));
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        for _ in 0..LARGE / bytes.len() {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            file.write_all(&bytes).unwrap();
        }
        for _ in 0..2000 {
            let at = random.random_range(0..LARGE / 4096) as u64 * 4096;
            file.write_all_at(&bytes[..4096], at).unwrap();
            file.read_exact_at(&mut bytes[..4096], (at + 12_288) % LARGE as u64).unwrap();
        }
        file.sync_data().unwrap();
        // From the server, not from the kernel's cache.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let mut again = File::open(&path).unwrap();
        while !is_over.load(Ordering::Relaxed) && again.read(&mut bytes).unwrap() > 0 {}
    }
}

/// A number that the status holds.
fn told(place: &Place, name: &str) -> u64 {
    place.status()[name].as_u64().unwrap_or_else(|| panic!("no {name} in the status"))
}

/// Loads the mount until the time is over, and looks at its memory meanwhile; the most that it had, in bytes.
pub fn peak_under_load(place: &Place, bound: u64) -> u64 {
    let (root, is_over, peak) = (place.mountpoint(), AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let (root, is_over, peak) = (&root, &is_over, &peak);
        (0..2).for_each(|seed| drop(scope.spawn(move || small_files(root, seed, is_over))));
        (0..2).for_each(|seed| drop(scope.spawn(move || large_files(root, seed, is_over))));
        let began = Instant::now();
        while began.elapsed() < load() {
            thread::sleep(Duration::from_millis(250));
            peak.fetch_max(told(place, "memory_bytes"), Ordering::Relaxed);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let peak = peak.load(Ordering::Relaxed);
    assert!(peak <= bound, "{peak} bytes of memory, and the bound is {bound}");
    peak
}

#[test]
fn memory_stays_within_its_bound_and_comes_back_to_its_floor() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("4G");
    let root = place.mount(&[]);
    let (bound, floor) = (told(&place, "memory_bound_bytes"), told(&place, "memory_floor_bytes"));
    assert!(floor + CACHE_BYTES < bound, "{floor}, {bound}");
    let at_first = told(&place, "memory_bytes");
    let peak = peak_under_load(&place, bound);
    for entry in fs::read_dir(&root).unwrap() {
        let path = entry.unwrap().path();
        match path.file_name().unwrap() == "lost+found" {
            true => {}
            false if path.is_dir() => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
    }
    thread::sleep(SETTLES);
    let left = told(&place, "memory_bytes");
    println!(
        "{:?} of load: {at_first} bytes of memory at first, {peak} at most with a bound of {bound}, {left} when the \
         files were gone with a floor of {floor}",
        load()
    );
    assert!(left <= floor, "{left} bytes of memory, and the floor is {floor}");
    // What files held is gone, and not only within what the floor leaves open.
    assert!(left + CACHE_BYTES / 2 < peak, "{left} bytes of memory are left of {peak}");
    place.umount();
}

#[test]
fn a_limit_bounds_the_server_under_load() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("2G");
    let (volume, root) = (place.volume(), place.mountpoint());
    let mount = ["mount", volume.to_str().unwrap(), root.to_str().unwrap(), "--memory"];
    fails(&[&mount[..], &["64M"]].concat(), &["--memory 64 MiB is too little", "at least"]);
    place.mount(&["--memory", "192M"]);
    let bound = told(&place, "memory_bound_bytes");
    assert!(bound <= 192 << 20, "{bound}");
    let peak = peak_under_load(&place, bound);
    let status = fs::read_to_string(format!("/proc/{}/status", told(&place, "pid"))).unwrap();
    let highest = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let highest: u64 = highest.trim().trim_end_matches(" kB").parse().unwrap();
    println!("a bound of {bound} bytes: {peak} at most in the status, {highest} KiB by the kernel");
    assert!(highest << 10 <= bound, "{highest} KiB, and the bound is {bound} bytes");
    place.umount();
}
