//! The overlay: it passes the conformance suite, and what is below it never changes.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::path::Path;
use std::rc::Rc;

use weir_runtime::{Handle, Runtime, Wall};
use weir_storage::{
    Command, Expectations, Extent, FileDisk, FileDiskOptions, Lba, Overlay, Part, Rejected, Rule, Storage,
    StorageError, Write, conformance, flush, read, write,
};

const BLOCKS: u64 = 2048;

fn over(handle: &Handle, path: &Path, blocks_max: u64) -> Overlay {
    let options = FileDiskOptions { read_only: true, ..FileDiskOptions::default() };
    Overlay::new(handle, FileDisk::open(handle, path, options).unwrap(), blocks_max)
}

fn file(content: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(file.path(), content).unwrap();
    file
}

#[test]
fn it_passes_the_suite_and_the_disk_below_stays_as_it_was() {
    let zeros = vec![0; BLOCKS as usize * 4096];
    let file = file(&zeros);
    let runtime = Runtime::wall(Wall::default()).unwrap();
    let make = async || Rc::new(over(&runtime.handle(), file.path(), BLOCKS)) as Rc<dyn Storage>;
    let report = runtime.block_on(conformance(&runtime.handle(), Expectations::default(), make)).unwrap();
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(report.passed.contains(&Rule::Concurrency), "{report}");
    assert_eq!(std::fs::read(file.path()).unwrap(), zeros);
}

#[test]
fn a_read_finds_what_was_written_among_what_is_below() {
    let below: Vec<u8> = (0..8).flat_map(|block| [block; 4096]).collect();
    let file = file(&below);
    let runtime = Runtime::wall(Wall::default()).unwrap();
    let found = runtime.block_on(async {
        let disk = over(&runtime.handle(), file.path(), 3);
        write(&disk, Part::bytes(Lba(2), &[0x22; 8192])).await.unwrap();
        write(&disk, Part::bytes(Lba(5), &[0x55; 4096])).await.unwrap();
        // Again the same block: that takes no room.
        write(&disk, Part::bytes(Lba(3), &[0x33; 4096])).await.unwrap();
        flush(&disk).await.unwrap();
        // One block too many, of which one has its place already: all or nothing.
        let refused = disk.submit(Command::Write(Write::new(&[Part::bytes(Lba(5), &[0x66; 8192])])));
        assert_eq!(refused.err(), Some(Rejected::Failed(StorageError::NoSpace)));
        assert_eq!(disk.blocks_written(), 3);
        read(&disk, Extent::new(Lba(1), 6)).await.unwrap().to_vec()
    });
    let wanted: Vec<u8> = [1, 0x22, 0x33, 4, 0x55, 6].iter().flat_map(|byte| [*byte; 4096]).collect();
    assert!(found.unwrap() == wanted);
    assert!(std::fs::read(file.path()).unwrap() == below);
}
