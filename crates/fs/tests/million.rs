//! A directory of a million entries is usable. That takes 40 s of processor time, so it is a step of its own in
//! `.ci/run`: `cargo test -p weir-fs --test fs million:: -- --ignored --nocapture`.

use std::time::Duration;

use weir_format::{Cookie, FileType};
use weir_vfs::NewNode;

use crate::support::{self, disk, judge, mount, plan, simulated};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use weir_ext4::{Mkfs, ROOT_INODE};
use weir_fs::MountOptions;
use weir_runtime::Handle;

const ENTRIES: u32 = 1_000_000;
/// 9 GiB: mkfs gives it inodes for so many files.
const BLOCKS: u64 = 9 << 18;

/// Tells how many there were in a second of processor time since `start`, the simulated disk's included, and fails
/// if they are fewer than `least`.
fn tell(what: &str, count: u32, clock: &Handle, start: Duration, least: f64) {
    let rate = f64::from(count) / (clock.cpu_time().total() - start).as_secs_f64();
    eprintln!("{what}: {rate:.0} a second");
    assert!(rate >= least, "{what}: {rate:.0} a second are fewer than {least}");
}

fn name(nth: u32) -> Vec<u8> {
    format!("entry number {nth}").into_bytes()
}

#[test]
#[ignore = "it takes a minute: .ci/run starts it by its name"]
fn a_million_entries_in_one_directory() {
    let left = simulated(async |clock| {
        let options = Mkfs { bytes_per_inode: Some(4096), ..plan(BLOCKS) };
        let disk = disk(&clock, &support::image_of(&options), true);
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
        let new = NewNode::new(FileType::Regular, 0o644);
        let directory = fs.mkdir(ROOT_INODE, b"many", &new).await.expect("made");
        let start = clock.cpu_time().total();
        for nth in 0..ENTRIES {
            fs.create(directory, &name(nth), &new).await.expect("made");
        }
        tell("created", ENTRIES, &clock, start, 10_000.0);
        fs.unmount().await.expect("unmounted");

        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
        let mut random = Pcg64::seed_from_u64(0);
        let start = clock.cpu_time().total();
        for _ in 0..ENTRIES / 10 {
            fs.lookup(directory, &name(random.random_range(0..ENTRIES))).await.expect("there");
        }
        tell("looked up", ENTRIES / 10, &clock, start, 30_000.0);
        let start = clock.cpu_time().total();
        let (mut cookie, mut read) = (Cookie::DOT_DOT, 0);
        loop {
            let entries = fs.read_directory(directory, cookie).await.expect("readable");
            let Some(last) = entries.last() else { break };
            (cookie, read) = (last.cookie, read + entries.len() as u32);
        }
        assert_eq!(read, ENTRIES);
        tell("read", ENTRIES, &clock, start, 500_000.0);
        let start = clock.cpu_time().total();
        for nth in 0..ENTRIES / 10 {
            fs.unlink(directory, &name(nth * 10)).await.expect("removed");
        }
        tell("removed", ENTRIES / 10, &clock, start, 5_000.0);
        fs.unmount().await.expect("unmounted");
        disk.image()
    });
    judge(&left);
}

#[test]
fn more_subdirectories_than_are_counted() {
    let left = simulated(async |clock| {
        let options = Mkfs { bytes_per_inode: Some(4096), ..plan(1 << 17) };
        let disk = disk(&clock, &support::image_of(&options), true);
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
        let new = NewNode::new(FileType::Directory, 0o755);
        let directory = fs.mkdir(ROOT_INODE, b"many", &new).await.expect("made");
        let links = async || fs.attributes(directory).await.expect("there").links;
        for nth in 0..64_998 {
            fs.mkdir(directory, &name(nth), &new).await.expect("made");
        }
        assert_eq!(links().await, 65_000);
        for nth in 64_998..65_100 {
            fs.mkdir(directory, &name(nth), &new).await.expect("made");
            assert_eq!(links().await, 1, "too many to be counted");
        }
        fs.rmdir(directory, &name(7)).await.expect("removed");
        fs.rename((directory, &name(8)), (ROOT_INODE, b"out"), Default::default()).await.expect("moved");
        assert_eq!((links().await, fs.attributes(ROOT_INODE).await.expect("there").links), (1, 5));
        fs.unmount().await.expect("unmounted");
        disk.image()
    });
    judge(&left);
}
