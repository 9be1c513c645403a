//! Volumes whose map is larger than what may be in memory of it (V6).

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, join_all, select};
use weir_runtime::Handle;
use weir_storage::{
    AdversaryDisk, AdversaryOptions, Capabilities, Command, Extent, Lba, Part, Rejected, Rules, SharePair,
    Storage, StorageError, flush, place_mark, read, submit_when_free, write,
};
use weir_volume::{Format, Volume, VolumeMutant, VolumeOptions, check};

use crate::simulation::simulate;

const BLOCKS: u64 = 1 << 20;
/// Logical blocks of a page of the map.
const PAGE: u64 = 510;
/// Pages of the map that the tests use.
const PAGES: u64 = 1000;

fn options(mutant: Option<VolumeMutant>, map_pages: usize) -> VolumeOptions {
    VolumeOptions { map_pages, rules: Rules::but(mutant), ..VolumeOptions::default() }
}

async fn made(handle: &Handle, latency_ns_max: u64) -> Rc<AdversaryDisk> {
    let capabilities = Capabilities::legacy(32, 512, 4096);
    let disk =
        AdversaryOptions { blocks: BLOCKS, capabilities, latency_ns_max, ..AdversaryOptions::default() };
    let disk = AdversaryDisk::new(handle, disk);
    Volume::create(handle, &*disk, Format::default()).await.unwrap();
    disk
}

async fn open_with(handle: &Handle, disk: &Rc<AdversaryDisk>, options: VolumeOptions) -> Volume {
    Volume::open(handle, Rc::clone(disk) as Rc<dyn Storage>, options).await.unwrap()
}

/// With sixteen pages of the map in memory.
async fn open(handle: &Handle, disk: &Rc<AdversaryDisk>, mutant: Option<VolumeMutant>) -> Volume {
    open_with(handle, disk, options(mutant, 16)).await
}

fn content(lba: u64, version: u8) -> Vec<u8> {
    let mut block = vec![version; 4096];
    block[..8].copy_from_slice(&lba.to_le_bytes());
    block
}

/// What [`byte`] answers where a block reads the content of another.
const OTHER: u8 = 255;

/// The version of what a block reads.
async fn byte(volume: &Volume, lba: u64) -> Result<u8, Rejected> {
    let found = read(volume, Extent::new(Lba(lba), 1)).await?;
    Ok(if found[..8] == lba.to_le_bytes() { found[4095] } else { OTHER })
}

/// Content of which no two are the same.
fn numbered(lba: u64, nth: u64) -> Vec<u8> {
    let mut block = content(lba, 1);
    block[8..16].copy_from_slice(&nth.to_le_bytes());
    block
}

/// Writes, shares and discards over a thousand pages of the map with few of them in memory, in lives of which the second has
/// a lower limit than the first and replays its log: each life reads what the ones before it have left, and so does a check.
#[test]
fn a_map_larger_than_its_limit_is_read_and_changed_as_one_in_memory() {
    simulate(11, async |handle| {
        let disk = made(&handle, 0).await;
        // What each block reads: the block that was written, and which write of all that was.
        let mut writes = 0_u64;
        let mut model: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for (life, limit) in [(1, 400), (2, 16), (3, 64)] {
            let volume = open_with(&handle, &disk, options(None, limit)).await;
            let random = &mut handle.random("blocks");
            for _ in 0..4000 {
                let lba = random.below(PAGES) * PAGE + random.below(3);
                match random.below(8) {
                    0 => {
                        let extent = Extent::new(Lba(lba), 700);
                        submit_when_free(&volume, Command::Discard(&[extent])).await.unwrap();
                        model.retain(|block, _| !(lba..lba + 700).contains(block));
                    }
                    1 => {
                        let to = random.below(PAGES) * PAGE + 4 + random.below(3);
                        let pair = SharePair { from: Extent::new(Lba(lba), 1), to: Lba(to) };
                        submit_when_free(&volume, Command::Share(&[pair])).await.unwrap();
                        match model.get(&lba).copied() {
                            Some(content) => model.insert(to, content),
                            None => model.remove(&to),
                        };
                    }
                    _ => {
                        writes += 1;
                        write(&volume, Part::bytes(Lba(lba), &numbered(lba, writes))).await.unwrap();
                        model.insert(lba, (lba, writes));
                    }
                }
            }
            flush(&volume).await.unwrap();
            volume.checkpoint().await.unwrap();
            let stats = volume.stats();
            assert!(stats.map_pages_evicted > PAGES / 3 && stats.map_pages_loaded > 1000, "{stats:?}");
            // A share names two pages, so that sixteen are there at least; groups of pages take memory, too.
            assert!(
                stats.map_bytes < limit.max(16) as u64 * 4200 + 64 * 1024,
                "{} bytes of map",
                stats.map_bytes
            );
            for lba in (0..PAGES).flat_map(|page| (0..7).map(move |i| page * PAGE + i)) {
                let found = read(&volume, Extent::new(Lba(lba), 1)).await.unwrap();
                let wanted = model.get(&lba).map_or_else(|| vec![0; 4096], |(lba, nth)| numbered(*lba, *nth));
                assert!(found[..] == wanted[..], "life {life}, block {lba}");
            }
            let blocks: BTreeSet<(u64, u64)> = model.values().copied().collect();
            if life < 3 {
                // Something for the next life to replay.
                write(&volume, Part::bytes(Lba(0), &numbered(0, 0))).await.unwrap();
                model.insert(0, (0, 0));
                flush(&volume).await.unwrap();
                continue;
            }
            volume.close().await.unwrap();
            let report = check(&*disk).await.unwrap();
            assert_eq!((report.live_blocks, report.damaged_total), (blocks.len() as u64, 0), "life {life}");
        }
    });
}

/// A volume with a block in each page of the map, most of which are evicted, the first among them.
async fn filled(handle: &Handle, disk: &Rc<AdversaryDisk>, mutant: Option<VolumeMutant>) -> Volume {
    let volume = open(handle, disk, mutant).await;
    for page in 0..PAGES {
        write(&volume, Part::bytes(Lba(page * PAGE), &content(page * PAGE, 7))).await.unwrap();
    }
    volume.checkpoint().await.unwrap();
    for page in PAGES / 2..PAGES {
        byte(&volume, page * PAGE).await.unwrap();
    }
    volume
}

/// Damages a page of the map on the disk: what a read of its block, and a write to it, answer.
fn with_a_damaged_page(mutant: Option<VolumeMutant>) -> (Result<u8, Rejected>, Result<(), Rejected>) {
    simulate(12, async |handle| {
        let disk = made(&handle, 0).await;
        let volume = filled(&handle, &disk, mutant).await;
        // Page 5 is in the first map area: its block there becomes that of page 6.
        let start = map_start(&disk).await;
        let other = read(&*disk, Extent::new(Lba(start + 6), 1)).await.unwrap();
        write(&*disk, Part::bytes(Lba(start + 5), &other)).await.unwrap();
        let read = byte(&volume, 5 * PAGE).await;
        let written = write(&volume, Part::bytes(Lba(5 * PAGE + 1), &content(5 * PAGE + 1, 8))).await;
        // The volume goes on with all other pages.
        write(&volume, Part::bytes(Lba(9 * PAGE), &content(9 * PAGE, 9))).await.unwrap();
        flush(&volume).await.unwrap();
        assert_eq!(byte(&volume, 9 * PAGE).await, Ok(9));
        volume.close().await.unwrap();
        (read, written)
    })
}

/// The block in which the superblock says that the map begins.
async fn map_start(disk: &AdversaryDisk) -> u64 {
    let superblock = read(disk, Extent::new(Lba(0), 1)).await.unwrap();
    u64::from_le_bytes(superblock[64..72].try_into().unwrap())
}

#[test]
fn a_damaged_page_of_the_map_fails_only_what_needs_it() {
    let lost = Rejected::Failed(StorageError::Damaged(Lba(5 * PAGE)));
    assert_eq!(with_a_damaged_page(None), (Err(lost), Err(lost)));
}

#[test]
fn checks_pages_of_the_map_that_are_loaded_again() {
    // Where no check is made, block 5 * PAGE reads what is in block 6 * PAGE, and the write is taken.
    assert_eq!(with_a_damaged_page(Some(VolumeMutant::PageUnchecked)), (Ok(OTHER), Ok(())));
}

/// Submits a read of two blocks, of which the first one's page is to be loaded, and then a write of the second: what was
/// read of that.
fn read_before_a_write(mutant: Option<VolumeMutant>) -> u8 {
    simulate(13, async |handle| {
        let disk = made(&handle, 100_000).await;
        let volume = filled(&handle, &disk, mutant).await;
        byte(&volume, 6 * PAGE).await.unwrap();
        let extent = Extent::new(Lba(6 * PAGE - 1), 2);
        let read = submit_when_free(&volume, Command::read(extent)).await.unwrap();
        write(&volume, Part::bytes(Lba(6 * PAGE), &content(6 * PAGE, 8))).await.unwrap();
        read.transferred().await.unwrap();
        let found = read.take_data().unwrap();
        assert_eq!(byte(&volume, 6 * PAGE).await, Ok(8));
        found[2 * 4096 - 1]
    })
}

#[test]
fn s1_a_write_that_overtakes_a_read_of_the_same_block() {
    assert_eq!(read_before_a_write(None), 7);
    assert_eq!(read_before_a_write(Some(VolumeMutant::WriteOvertakesRead)), 8);
}

/// Changes some pages, and reads them and others while a checkpoint writes them: whether all reads are right.
fn read_beside_a_checkpoint(mutant: Option<VolumeMutant>, seed: u64) -> bool {
    simulate(seed, async |handle| {
        let disk = made(&handle, 1_000_000).await;
        let volume = Rc::new(open(&handle, &disk, mutant).await);
        let put = async |page: u64, version: u8| {
            write(&*volume, Part::bytes(Lba(page * PAGE), &content(page * PAGE, version))).await.unwrap();
        };
        for page in 0..64 {
            put(page, 1).await;
        }
        volume.checkpoint().await.unwrap();
        for page in 0..8 {
            put(page, 2).await;
        }
        let of_task = Rc::clone(&volume);
        let checkpoint = handle.spawn(async move { of_task.checkpoint().await });
        let reader = async |number: u64| {
            let random = &mut handle.random(&format!("reader {number}"));
            let mut is_right = true;
            while !checkpoint.is_finished() {
                let page = random.below(40);
                is_right &= byte(&volume, page * PAGE).await == Ok(if page < 8 { 2 } else { 1 });
                // A page that is in memory takes no time to read.
                handle.sleep(Duration::from_micros(10)).await;
            }
            is_right
        };
        join_all((0..32).map(reader)).await.into_iter().all(|is_right| is_right)
    })
}

#[test]
fn v6_pages_of_the_map_evicted_before_they_are_written() {
    for seed in 0..20 {
        assert!(read_beside_a_checkpoint(None, seed), "seed {seed}");
    }
    let is_right = |seed| read_beside_a_checkpoint(Some(VolumeMutant::PageEvictedEarly), seed);
    assert!(!(0..20).all(is_right), "a page is read from where it is not yet");
}

/// A checkpoint waits for a mark (V13), so what brings the mark about waits for no checkpoint of a map that is full.
#[test]
fn a_user_who_brings_a_mark_about_exceeds_the_limit_of_the_map() {
    simulate(12, async |handle| {
        let disk = made(&handle, 0).await;
        let options = VolumeOptions { marks: Some(4 << 20), ..options(None, 16) };
        let volume = open_with(&handle, &disk, options).await;
        let work = async {
            for version in 1..4 {
                volume.marks().unwrap().begin();
                for page in 0..200 {
                    write(&volume, Part::bytes(Lba(page * PAGE), &content(page * PAGE, version)))
                        .await
                        .unwrap();
                }
                place_mark(&volume).await.unwrap().transferred().await.unwrap();
            }
        };
        let limit = pin!(handle.sleep(Duration::from_secs(60)));
        assert!(matches!(select(pin!(work), limit).await, Either::Left(_)), "a write does not end");
        for page in 0..200 {
            assert_eq!(byte(&volume, page * PAGE).await, Ok(3));
        }
        let stats = volume.stats();
        assert!(stats.map_pages_evicted > 150, "the limit holds again: {stats:?}");
    });
}
