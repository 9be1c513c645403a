//! Atomic files: an update is there after a crash or is not, whatever else goes on; it is read as it was written, and
//! costs one transaction.

use std::time::Duration;

use weir_vfs::{Fallocate, FsError, InodeNumber};

use crate::support::{
    self, BLOCKS, collect_crash_states, content, disk, disk_for, flash, image_of_flash, judge, mount,
    new_image, on_image, read_file, simulated, simulated_with, write_file,
};
use weir_ext4::ROOT_INODE;
use weir_fs::{BarrierFs, Conflicts, Engine, FsMutant, JournalMode, MountOptions};
use weir_runtime::Handle;
use weir_storage::{Image, Rules};

const DUAL: Engine = Engine::Dual { conflicts: Conflicts::Copy };
const ENGINES: [Engine; 3] = [DUAL, Engine::Jbd2 { barrier: true }, Engine::Prefix];
const BLOCK: usize = 4096;

fn options(engine: Engine, mutant: Option<FsMutant>) -> MountOptions {
    MountOptions {
        engine: Some(engine),
        // Both would put part of an update on the disk, if anything did.
        commit_interval: Duration::from_millis(1),
        dirty_background_bytes: 0,
        rules: Rules::but(mutant),
        ..MountOptions::default()
    }
}

/// What a power cut may leave at any event of `script`, which begins with two atomic files of eight blocks of ones,
/// durable.
fn crashes(
    seed: u64,
    options: MountOptions,
    script: impl AsyncFnOnce(&Handle, &BarrierFs, [InodeNumber; 2]),
) -> Vec<Image> {
    simulated_with(seed, async |clock| {
        let disk = disk_for(&clock, &new_image(BLOCKS), options.engine.unwrap_or(DUAL));
        let fs = mount(&clock, &disk, options).await.expect("mounted");
        let mut files = [0; 2];
        for (file, name) in files.iter_mut().zip([b"a", b"b"]) {
            *file = write_file(&fs, name, &[1; 8 * BLOCK]).await;
            fs.set_atomic(*file, true).await.expect("atomic");
        }
        fs.sync_group(&files).await.expect("durable");
        let images = collect_crash_states(&clock, &disk, 1);
        script(&clock, &fs, files).await;
        images.take()
    })
}

/// What recovery finds of the two files.
fn found(image: &Image) -> [Vec<u8>; 2] {
    simulated(async |clock| {
        let disk = disk(&clock, image, true);
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("recovered");
        [read_file(&fs, b"a").await.expect("a"), read_file(&fs, b"b").await.expect("b")]
    })
}

/// Which update a file shows as a whole: 1 is the one that it began with, `n` has `n` more blocks, and the first eight
/// and all new ones are `n`.
fn update_of(content: &[u8]) -> Result<u8, String> {
    let first = content.first().copied().unwrap_or(0);
    let blocks = if first == 1 { 8 } else { 8 + usize::from(first) };
    match content.len() == blocks * BLOCK && content.iter().all(|byte| *byte == first) {
        true => Ok(first),
        false => Err(format!("{} bytes, of {first} and others", content.len())),
    }
}

/// Writes update `n` in an order that no disk would choose, with time for others in between.
async fn write_update(clock: &Handle, fs: &BarrierFs, file: InodeNumber, n: u8) -> Result<(), FsError> {
    for block in (0..8 + u64::from(n)).rev() {
        fs.write(file, block * BLOCK as u64, &[n; BLOCK]).await?;
        if block % 3 == 0 {
            clock.sleep(Duration::from_millis(3)).await;
        }
    }
    Ok(())
}

/// Writes updates to both files, beside a file that is made durable all the time.
async fn updates(clock: &Handle, fs: &BarrierFs, files: [InodeNumber; 2]) {
    let other = write_file(fs, b"other", &[7; BLOCK]).await;
    for n in 2..6 {
        for file in files {
            write_update(clock, fs, file, n).await.expect("written");
            fs.write(other, u64::from(n) * BLOCK as u64, &[7; BLOCK]).await.expect("written");
            fs.fsync(other).await.expect("durable");
            fs.sync().await.expect("durable");
        }
        let done = if n % 2 == 0 { fs.sync_group(&files).await } else { fs.order_group(&files).await };
        done.expect("synchronised");
        clock.sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn a_write_of_whole_blocks_reads_none() {
    simulated(async |clock| {
        let disk = disk_for(&clock, &new_image(BLOCKS), DUAL);
        let fs = mount(&clock, &disk, options(DUAL, None)).await.expect("mounted");
        let file = write_file(&fs, b"a", &[1; 8 * BLOCK]).await;
        fs.set_atomic(file, true).await.expect("atomic");
        fs.unmount().await.expect("unmounted");
        let fs = mount(&clock, &disk, options(DUAL, None)).await.expect("mounted");
        // The inode and its extents are in memory from now on.
        fs.write(file, 7 * BLOCK as u64, &[2; BLOCK]).await.expect("written");
        let write = async |offset: usize, bytes: &[u8]| {
            let began = clock.now();
            fs.write(file, offset as u64, bytes).await.expect("written");
            clock.now().since(began)
        };
        assert_eq!(write(0, &[2; 4 * BLOCK]).await, Duration::ZERO);
        assert!(write(5 * BLOCK + 1, &[2]).await > Duration::ZERO, "reading takes no time here");
        fs.fsync(file).await.expect("durable");
        let mut expected = [1; 8 * BLOCK];
        expected[..4 * BLOCK].fill(2);
        expected[5 * BLOCK + 1] = 2;
        expected[7 * BLOCK..].fill(2);
        assert_eq!(read_file(&fs, b"a").await.expect("read"), expected);
    });
}

/// Whether every image has both files at the same update, and none goes back.
fn are_whole(images: &[Image]) -> Result<u8, String> {
    let mut newest = 1;
    for image in images {
        let [a, b] = found(image);
        let (a, b) = (update_of(&a)?, update_of(&b)?);
        if a != b {
            return Err(format!("one file has update {a}, the other {b}"));
        }
        newest = newest.max(a);
    }
    Ok(newest)
}

#[test]
fn an_update_of_two_files_is_there_or_is_not() {
    for engine in ENGINES {
        let images = crashes(3, options(engine, None), updates);
        assert!(images.len() > 100, "{}", images.len());
        assert_eq!(are_whole(&images), Ok(5), "{engine:?}");
        for image in images.iter().step_by(images.len() / 8) {
            judge(&unmounted(image));
        }
        for mutant in [FsMutant::UpdateSplit, FsMutant::UpdateNotDeferred] {
            let images = crashes(3, options(engine, Some(mutant)), updates);
            assert!(are_whole(&images).is_err(), "{mutant:?} was not noticed on {engine:?}");
        }
    }
}

/// The image after recovery and unmount.
fn unmounted(image: &Image) -> Image {
    simulated(async |clock| {
        let disk = disk(&clock, image, true);
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("recovered");
        fs.unmount().await.expect("unmounted");
        disk.image()
    })
}

#[test]
fn a_file_reads_as_it_was_written() {
    let image = on_image(&new_image(BLOCKS), async |fs| {
        let file = write_file(fs, b"a", &content(3 * BLOCK + 100)).await;
        fs.set_atomic(file, true).await.expect("atomic");
        assert_eq!(fs.is_atomic(file).await, Ok(true));
        let mut model = content(3 * BLOCK + 100);
        for (offset, bytes) in
            [(10, 20), (BLOCK - 5, 10), (3 * BLOCK + 50, 2 * BLOCK), (9 * BLOCK + 7, 3), (0, 1)]
        {
            model.resize(model.len().max(offset + bytes), 0);
            model[offset..offset + bytes].fill(0xEE);
            assert_eq!(fs.write(file, offset as u64, &vec![0xEE; bytes]).await, Ok(bytes));
            assert_eq!(read_file(fs, b"a").await.as_ref(), Ok(&model));
        }
        assert_eq!(fs.seek_hole(file, 0).await, Ok(Some(model.len() as u64)), "what is new in holes is data");
        fs.fsync(file).await.expect("durable");
        assert_eq!(read_file(fs, b"a").await.as_ref(), Ok(&model));
        assert_eq!(fs.seek_data(file, 6 * BLOCK as u64).await, Ok(Some(9 * BLOCK as u64)), "the hole is one");
        fs.truncate(file, 20 * BLOCK as u64).await.expect("longer");
        model.resize(20 * BLOCK, 0);
        assert_eq!(read_file(fs, b"a").await.as_ref(), Ok(&model));
        assert_eq!(fs.truncate(file, 5).await, Err(FsError::UpdateOpen), "it has an update");
        fs.fdatasync(file).await.expect("durable");
        fs.truncate(file, 5).await.expect("shorter");
        fs.fallocate(file, Fallocate::Allocate { keep_size: false }, 0, 2 * BLOCK as u64)
            .await
            .expect("longer");
        model.truncate(5);
        model.resize(2 * BLOCK, 0);
        assert_eq!(read_file(fs, b"a").await.as_ref(), Ok(&model));
        fs.abandon_update(file).await.expect("taken back");
        assert_eq!(fs.attributes(file).await.map(|found| found.size), Ok(5));
        fs.write(file, 2, b"left to unmount").await.expect("written");
    });
    on_image(&image, async |fs| {
        let left = read_file(fs, b"a").await.expect("there");
        assert_eq!(&left[2..], b"left to unmount");
        let file = fs.lookup(ROOT_INODE, b"a").await.expect("there");
        assert_eq!(fs.is_atomic(file).await, Ok(true), "also in the next mount");
        fs.set_atomic(file, false).await.expect("ordinary");
        fs.write(file, 0, b"in place").await.expect("written");
    });
}

#[test]
fn an_update_that_was_begun_is_ended_or_taken_back_as_a_whole() {
    on_image(&new_image(BLOCKS), async |fs| {
        let file = write_file(fs, b"a", &content(BLOCK)).await;
        assert!(matches!(fs.begin_update(file).await, Err(FsError::Invalid(_))), "it is not atomic");
        fs.set_atomic(file, true).await.expect("atomic");
        fs.write(file, 0, b"before").await.expect("written");
        fs.begin_update(file).await.expect("begun");
        assert_eq!(fs.begin_update(file).await, Err(FsError::UpdateOpen));
        fs.write(file, 0, b"in the update").await.expect("written");
        fs.write(file, 10 * BLOCK as u64, b"and longer").await.expect("written");
        assert_eq!(fs.fsync(file).await, Err(FsError::UpdateOpen), "only the one that began it ends it");
        fs.abandon_update(file).await.expect("taken back");
        let mut model = content(BLOCK);
        model[..6].copy_from_slice(b"before");
        assert_eq!(read_file(fs, b"a").await, Ok(model.clone()));
        fs.begin_update(file).await.expect("begun");
        fs.write(file, 0, b"second").await.expect("written");
        fs.end_updates(&[file]).await.expect("ended");
        fs.fsync(file).await.expect("durable");
        model[..6].copy_from_slice(b"second");
        assert_eq!(read_file(fs, b"a").await, Ok(model));
        fs.begin_update(file).await.expect("begun, and left to unmount");
        fs.write(file, 0, b"forgot").await.expect("written");
    });
}

#[test]
fn an_update_that_the_journal_cannot_take_is_refused_and_loses_nothing() {
    on_image(&new_image(BLOCKS), async |fs| {
        let file = write_file(fs, b"a", &[1; BLOCK]).await;
        fs.set_atomic(file, true).await.expect("atomic");
        let mut block = 0;
        let refused = loop {
            match fs.write(file, block * BLOCK as u64, &[2; BLOCK]).await {
                Ok(written) => assert_eq!(written, BLOCK),
                Err(error) => break error,
            }
            block += 1;
        };
        assert!(matches!(refused, FsError::UpdateTooLarge { most } if u64::from(most) > block), "{refused}");
        assert!(block > 500, "most of the journal can be used: {block}");
        fs.fsync(file).await.expect("what was accepted is durable");
        assert_eq!(read_file(fs, b"a").await, Ok(vec![2; block as usize * BLOCK]));
        assert_eq!(fs.write(file, block * BLOCK as u64, &[3; BLOCK]).await, Ok(BLOCK), "there is room again");
    });
}

#[test]
fn a_group_is_durable_whichever_of_its_files_has_changed() {
    for changed in [0, 1] {
        let images = crashes(7, options(DUAL, None), async |_, fs, files| {
            fs.write(files[changed], 0, &[9; BLOCK]).await.expect("written");
            fs.sync_group(&files).await.expect("durable");
            // An event more, from which on nothing less may be there.
            let other = write_file(fs, b"other", &[7; BLOCK]).await;
            fs.fsync(other).await.expect("durable");
        });
        let last = found(images.last().expect("some"));
        assert_eq!(last[changed][..BLOCK], [9; BLOCK], "file {changed}");
    }
}

/// A file is atomic, ordinary, and is written to in place; then power fails.
fn in_place_again(mutant: Option<FsMutant>) -> bool {
    let images = crashes(5, options(DUAL, mutant), async |clock, fs, [file, other]| {
        write_update(clock, fs, file, 2).await.expect("written");
        fs.fsync(file).await.expect("durable");
        fs.set_atomic(file, false).await.expect("ordinary");
        fs.write(file, 0, &[3; 10 * BLOCK]).await.expect("written");
        fs.fdatasync(file).await.expect("durable");
        fs.write(other, 0, b"the last").await.expect("written");
        fs.fsync(other).await.expect("durable");
        clock.sleep(Duration::from_millis(10)).await;
    });
    let last = images.last().expect("some");
    let [a, _] = found(last);
    a == vec![3; 10 * BLOCK]
}

#[test]
fn what_was_atomic_is_home_before_it_is_written_in_place() {
    assert!(in_place_again(None));
    assert!(!in_place_again(Some(FsMutant::LeavesJournalBehind)), "the mutant was not noticed");
}

#[test]
fn files_in_an_atomic_directory_are_atomic() {
    on_image(&new_image(BLOCKS), async |fs| {
        fs.set_atomic(ROOT_INODE, true).await.expect("a directory");
        let file = write_file(fs, b"a", b"content").await;
        assert_eq!(fs.is_atomic(file).await, Ok(true));
        fs.unlink(ROOT_INODE, b"a").await.expect("also with an update");
        let file = write_file(fs, b"b", b"content").await;
        fs.fsync(file).await.expect("durable");
        fs.set_atomic(ROOT_INODE, false).await.expect("a directory");
    });
}

#[test]
fn the_modes_of_the_journal_and_real_devices_make_no_difference() {
    for mode in [JournalMode::Writeback, JournalMode::Ordered, JournalMode::Data] {
        simulated(async |clock| {
            let device = flash(&clock, BLOCKS);
            BarrierFs::make(&*device, &support::plan(BLOCKS)).await.expect("made");
            let mount_options = MountOptions { mode, ..MountOptions::default() };
            let fs = mount(&clock, &device, mount_options).await.expect("mounted");
            let file = write_file(&fs, b"a", &[1; 8 * BLOCK]).await;
            fs.set_atomic(file, true).await.expect("atomic");
            write_update(&clock, &fs, file, 4).await.expect("written");
            fs.fsync(file).await.expect("durable");
            assert_eq!(update_of(&read_file(&fs, b"a").await.expect("read")), Ok(4));
            fs.unmount().await.expect("unmounted");
            judge(&image_of_flash(&device));
        });
    }
}
