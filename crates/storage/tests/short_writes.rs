//! Writes of which the kernel takes only a part. A file of its own, since a limit on the size of files is the whole
//! process's.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use weir_runtime::{Runtime, Wall};
use weir_storage::{
    BLOCK_BYTES, Command, FileDisk, FileDiskMutant, FileDiskOptions, Lba, Part, Rules, Storage, Write, flush,
};

const BLOCKS: usize = 32;
/// Where the kernel stops at first.
const LIMIT: usize = 20 * BLOCK_BYTES;

/// Writes 32 blocks of which the kernel takes 20 at first; what is in the file when the write is acknowledged.
fn written(path: &Path, mutant: Option<FileDiskMutant>) -> Vec<u8> {
    let bytes = BLOCKS * BLOCK_BYTES;
    fs::write(path, vec![0; bytes]).unwrap();
    let runtime = Runtime::wall(Wall::default()).unwrap();
    let options = FileDiskOptions { buffered: true, rules: Rules::but(mutant), ..FileDiskOptions::default() };
    let disk = FileDisk::open(&runtime.handle(), path, options).unwrap();
    let old = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: Some(LIMIT as u64), ..old }).unwrap();
    let data = vec![7; bytes];
    let ticket = disk.submit(Command::Write(Write::new(&[Part::bytes(Lba(0), &data)]))).unwrap();
    runtime.handle().ring().unwrap().submit();
    // Another runtime waits, so that no task hears of the write's end before the limit is gone.
    let other = Runtime::wall(Wall::default()).unwrap();
    let wait = |time| other.block_on(other.handle().sleep(time)).unwrap();
    for _ in 0..60_000 {
        if fs::read(path).unwrap()[LIMIT - 1] != 0 {
            break;
        }
        wait(Duration::from_millis(1));
    }
    wait(Duration::from_millis(20));
    let taken = fs::read(path).unwrap();
    setrlimit(Resource::Fsize, old).unwrap();
    assert!(taken[..LIMIT] == data[..LIMIT] && taken[LIMIT..].iter().all(|byte| *byte == 0), "it is short");
    runtime.block_on(async { ticket.transferred().await.unwrap() }).unwrap();
    let acknowledged = fs::read(path).unwrap();
    runtime.block_on(async { flush(&*disk).await.unwrap() }).unwrap();
    acknowledged
}

#[test]
fn a_write_of_which_the_kernel_takes_a_part_goes_on_behind_it() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("disk");
    assert!(written(&path, None) == vec![7; BLOCKS * BLOCK_BYTES]);
    let lost = written(&path, Some(FileDiskMutant::ShortWriteIsWhole));
    assert!(lost != vec![7; BLOCKS * BLOCK_BYTES], "acknowledged, and not written");
}
