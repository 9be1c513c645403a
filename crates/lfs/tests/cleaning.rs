//! Cleaning: by copying, and by the share command; a filesystem that is nearly full, and one that is full.

use std::rc::Rc;

use weir_f2fs::NodeId;
use weir_lfs::{Cleaner, F2fs, F2fsOptions, Statistics};
use weir_storage::Storage;
use weir_vfs::FsError;

use crate::support::{PAGE, mounted, page, play, regular, unmount_and_judge};

const ROOT: u32 = NodeId::ROOT.0;
/// Blocks of the disk: 96 MiB.
const BLOCKS: u64 = 24_576;

fn options(cleaner: Cleaner) -> F2fsOptions {
    F2fsOptions { cleaner, in_place_pages: 0, ..F2fsOptions::default() }
}

/// Fills a part of the filesystem with one file, and overwrites pages of it at random, with `fsync` at an interval.
fn overwrite(mount: F2fsOptions, hundredths: u64, interval: u64) {
    play(1, async |clock| {
        let (disk, fs) = mounted(&clock, BLOCKS, mount).await;
        let mut random = clock.random("pages");
        let file = fs.create(ROOT, b"file", &regular()).await.unwrap();
        let pages = fs.statfs().await.available_blocks * hundredths / 100;
        let mut versions = vec![0_u64; pages as usize];
        for place in 0..pages {
            fs.write(file, place * PAGE as u64, &page(place, 0)).await.unwrap();
        }
        for nth in 0..3 * pages {
            let place = random.below(pages);
            versions[place as usize] += 1;
            fs.write(file, place * PAGE as u64, &page(place, versions[place as usize])).await.unwrap();
            if nth % interval == 0 {
                fs.fdatasync(file).await.unwrap();
            }
        }
        let Statistics { cleaned: counts, checkpoints, .. } = fs.statistics();
        assert!(counts.segments > 20 && counts.pages > 100, "{counts:?}");
        if hundredths <= 70 {
            // Each round gains several segments: a call that finds few free ones is rare.
            assert!(checkpoints < counts.segments, "{checkpoints} checkpoints, {counts:?}");
        }
        unmount_and_judge(&disk, fs).await;
        let fs = F2fs::mount(&clock, Rc::clone(&disk) as Rc<dyn Storage>, mount).await.unwrap();
        let mut bytes = vec![0; PAGE];
        for (place, version) in (0..).zip(&versions) {
            fs.read(file, place * PAGE as u64, &mut bytes).await.unwrap();
            assert!(bytes == page(place, *version), "page {place} is not of version {version}");
        }
        fs.unmount().await.unwrap();
    });
}

#[test]
fn pages_are_copied_and_none_is_lost() {
    overwrite(options(Cleaner::Copy), 70, 64);
}

#[test]
fn pages_are_remapped_and_none_is_lost() {
    overwrite(options(Cleaner::Share), 70, 64);
}

/// Writeback writes a page, and it leaves the memory, while the cleaner reads what it was before.
#[test]
fn no_page_is_lost_that_writeback_writes_meanwhile() {
    for cleaner in [Cleaner::Copy, Cleaner::Share] {
        let small = F2fsOptions { cache_bytes: 1 << 20, dirty_background_bytes: 1 << 18, ..options(cleaner) };
        overwrite(small, 70, 500);
    }
}

#[test]
fn a_filesystem_that_is_nearly_full_goes_on() {
    overwrite(options(Cleaner::Copy), 95, 500);
}

#[test]
fn a_full_filesystem_has_room_again_after_a_deletion() {
    play(2, async |clock| {
        let (disk, fs) = mounted(&clock, BLOCKS, options(Cleaner::Copy)).await;
        for round in 0..3 {
            let mut files = 0;
            let full = loop {
                let name = format!("{round}-{files}");
                let file = match fs.create(ROOT, name.as_bytes(), &regular()).await {
                    Ok(file) => file,
                    Err(error) => break error,
                };
                files += 1;
                match fs.write(file, 0, &vec![7; 1 << 20]).await {
                    Ok(written) if written == 1 << 20 => {}
                    Ok(_) => break FsError::NoSpace,
                    Err(error) => break error,
                }
            };
            assert_eq!(full, FsError::NoSpace);
            assert!(files > 20, "{files}");
            for nth in 0..files {
                fs.unlink(ROOT, format!("{round}-{nth}").as_bytes()).await.unwrap();
            }
        }
        unmount_and_judge(&disk, fs).await;
    });
}
