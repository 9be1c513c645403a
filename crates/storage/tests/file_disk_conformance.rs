//! The conformance suite on file disks: direct and buffered, on a disk filesystem, on tmpfs, on a block
//! device, and through a ring that is too small for the queue.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use crate::host::{self, LoopDevice};
use weir_runtime::{Runtime, Wall};
use weir_storage::{Expectations, FileDisk, FileDiskOptions, Report, Rule, Storage, conformance};

const BYTES: u64 = 2048 * 4096;

/// Runs the suite on fresh files in a new directory under `parent`.
fn on_files(parent: &Path, wall: Wall, options: &FileDiskOptions, direct: bool) -> Report {
    let runtime = Runtime::wall(wall).unwrap();
    let directory = tempfile::tempdir_in(parent).unwrap();
    let made = Cell::new(0);
    let make = async || {
        made.set(made.get() + 1);
        let path = directory.path().join(made.get().to_string());
        let disk = FileDisk::create(&runtime.handle(), &path, BYTES, options.clone()).unwrap();
        assert_eq!(disk.direct(), direct);
        assert_eq!(disk.capabilities().fua, direct);
        disk as Rc<dyn Storage>
    };
    let report = runtime.block_on(conformance(&runtime.handle(), Expectations::default(), make)).unwrap();
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(report.passed.contains(&Rule::Discard), "{report}");
    assert_eq!(report.passed.contains(&Rule::Fua), direct, "{report}");
    report
}

fn real() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

#[test]
fn direct_on_a_disk_filesystem() {
    on_files(real(), Wall::default(), &FileDiskOptions::default(), true);
}

#[test]
fn buffered_on_a_disk_filesystem() {
    let options = FileDiskOptions { buffered: true, ..FileDiskOptions::default() };
    on_files(real(), Wall::default(), &options, false);
}

#[test]
fn tmpfs_falls_back_to_buffered() {
    on_files(Path::new("/dev/shm"), Wall::default(), &FileDiskOptions::default(), false);
}

#[test]
fn every_queue_depth() {
    for queue_depth in [1, 2, 1024] {
        let options = FileDiskOptions { queue_depth, ..FileDiskOptions::default() };
        on_files(Path::new("/dev/shm"), Wall::default(), &options, false);
    }
}

#[test]
fn a_ring_smaller_than_the_queue() {
    for ring_entries in [1, 4] {
        let wall = Wall { ring_entries, ..Wall::default() };
        on_files(Path::new("/dev/shm"), wall, &FileDiskOptions::default(), false);
    }
}

#[test]
fn a_block_device() {
    let directory = tempfile::tempdir_in(real()).unwrap();
    let image = directory.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(BYTES).unwrap();
    let device = match LoopDevice::attach(&image) {
        Ok(device) => device,
        Err(reason) => return host::skip(&reason),
    };
    let runtime = Runtime::wall(Wall::default()).unwrap();
    let make = async || {
        let disk = host::open_soon(&runtime.handle(), device.path(), &FileDiskOptions::default()).await;
        disk as Rc<dyn Storage>
    };
    let expectations = Expectations { fresh_reads_zero: false, ..Expectations::default() };
    let report = runtime.block_on(conformance(&runtime.handle(), expectations, make)).unwrap();
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(report.passed.contains(&Rule::Fua) && report.passed.contains(&Rule::Concurrency), "{report}");
}
