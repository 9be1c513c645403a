//! What was acknowledged is there, and what was not is not.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use weir_crash::push_page;
use weir_runtime::{Runtime, Wall};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, Command, Faults, FileDisk, FileDiskOptions, Lba, Part, Rejected,
    Storage, StorageError, Write, WriteFlags, flush,
};
use weir_volume::{Format, Volume, VolumeOptions};

use crate::bench::{FORMAT, disk_with, get, made, open, put, simulate, submit_page};

#[test]
fn what_is_taken_before_or_while_a_volume_closes_is_kept() {
    for seed in 0..10 {
        simulate(seed, async |handle| {
            let options =
                AdversaryOptions { blocks: 4096, latency_ns_max: 100_000, ..AdversaryOptions::default() };
            let disk = AdversaryDisk::new(&handle, options);
            let format = Format { segment_blocks: 32, ..FORMAT };
            Volume::create(&handle, &*disk, format).await.expect("a volume fits");
            let volume = open(&handle, &disk, &VolumeOptions::default()).await.expect("the volume is whole");
            let volume = Rc::new(volume);
            let accepted = Rc::new(Cell::new(0));
            let writer = handle.spawn({
                let (volume, accepted, handle) = (Rc::clone(&volume), Rc::clone(&accepted), handle.clone());
                async move {
                    for stamp in 1.. {
                        match submit_page(&*volume, 1, stamp) {
                            Ok(_) => accepted.set(stamp),
                            Err(Rejected::Busy) => {}
                            Err(error) => return error,
                        }
                        handle.sleep(Duration::from_micros(5)).await;
                    }
                    unreachable!("there are many numbers")
                }
            });
            handle.sleep(Duration::from_micros(900 + 37 * seed)).await;
            volume.close().await.expect("nothing fails");
            assert_eq!(writer.await, Ok(Rejected::Failed(StorageError::Gone)));
            drop(volume);
            let volume = open(&handle, &disk, &VolumeOptions::default()).await.expect("the volume is whole");
            assert!(accepted.get() > 10);
            assert_eq!(get(&volume, 1).await, Ok(Some(accepted.get())), "seed {seed}");
        });
    }
}

#[test]
fn a_preflush_write_answers_when_what_was_before_it_is_durable() {
    simulate(1, async |handle| {
        let disk = made(&handle).await;
        let volume = open(&handle, &disk, &VolumeOptions::default()).await.expect("the volume is whole");
        put(&volume, 1, 7).await.expect("there is room");
        let mut page = Vec::new();
        push_page(&mut page, 2, 8);
        let flags = WriteFlags { preflush: true, ..WriteFlags::default() };
        let parts = [Part::bytes(Lba(2), &page)];
        let write = Command::Write(Write { flags, ..Write::new(&parts) });
        let ticket = volume.submit(write).expect("there is room");
        assert_eq!(ticket.poll_transferred(), None, "nothing can be durable yet");
        ticket.transferred().await.expect("nothing fails");
        for image in disk.crash_states().all() {
            let disk = disk_with(&handle, &image, Faults::default());
            let left = open(&handle, &disk, &VolumeOptions::default()).await.expect("the volume is whole");
            assert_eq!(get(&left, 1).await, Ok(Some(7)));
        }
    });
}

/// Makes a volume in the file at `path`, in a process of its own as it were, and writes its first `blocks`
/// blocks with a flush behind each.
fn make_and_write(path: &Path, blocks: u64, stamp: u64) {
    on_file(path, async |handle, disk| {
        let format = Format { overwrite: true, ..FORMAT };
        Volume::create(&handle, &*disk, format).await.expect("a volume fits");
        let volume = Volume::open(&handle, disk, VolumeOptions::default()).await.expect("it is whole");
        for block in 0..blocks {
            put(&volume, block, stamp + block).await.expect("there is room");
            flush(&volume).await.expect("nothing fails");
        }
    });
}

/// Wall time, always with the same seed: a program that is started again.
fn on_file<T>(path: &Path, work: impl AsyncFnOnce(weir_runtime::Handle, Rc<FileDisk>) -> T) -> T {
    let runtime = Runtime::wall(Wall::default()).expect("an io_uring");
    let handle = runtime.handle();
    let disk = FileDisk::open(&handle, path, FileDiskOptions::default()).expect("a disk");
    runtime.block_on(work(handle, disk)).expect("wall time never stalls")
}

#[test]
fn a_volume_made_anew_finds_nothing_of_the_one_before() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
    let path = scratch.path().join("disk");
    let file = std::fs::File::create(&path).expect("a file");
    file.set_len(crate::bench::BLOCKS * 4096).expect("room");
    make_and_write(&path, 10, 1_000);
    make_and_write(&path, 1, 100);
    let found = on_file(&path, async |handle, disk| {
        let volume = Volume::open(&handle, disk, VolumeOptions::default()).await.expect("it is whole");
        let mut found = Vec::new();
        for block in 0..10 {
            found.push(get(&volume, block).await.expect("nothing fails"));
        }
        found
    });
    let mut expected = vec![Some(0); 10];
    expected[0] = Some(100);
    assert_eq!(found, expected);
}
