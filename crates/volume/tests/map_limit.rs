//! Volumes whose map is larger than what may be in memory of it (V6).

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use weir_runtime::{Handle, Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, Capabilities, Command, Extent, Lba, Part, Rejected, Rules, Storage,
    StorageError, flush, read, submit_when_free, write,
};
use weir_volume::{Format, Volume, VolumeMutant, VolumeOptions, check};

const BLOCKS: u64 = 1 << 20;
/// Logical blocks of a page of the map.
const PAGE: u64 = 510;
/// Pages of the map that the tests use.
const PAGES: u64 = 1000;

fn simulate<T>(seed: u64, work: impl AsyncFnOnce(Handle) -> T) -> T {
    let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
    let handle = runtime.handle();
    runtime.block_on(work(handle)).unwrap()
}

fn options(mutant: Option<VolumeMutant>) -> VolumeOptions {
    VolumeOptions { map_pages: 16, rules: Rules::but(mutant), ..VolumeOptions::default() }
}

async fn made(handle: &Handle, latency_ns_max: u64) -> Rc<AdversaryDisk> {
    let capabilities = Capabilities::legacy(32, 512, 4096);
    let disk =
        AdversaryOptions { blocks: BLOCKS, capabilities, latency_ns_max, ..AdversaryOptions::default() };
    let disk = AdversaryDisk::new(handle, disk);
    Volume::create(handle, &*disk, Format::default()).await.unwrap();
    disk
}

async fn open(handle: &Handle, disk: &Rc<AdversaryDisk>, mutant: Option<VolumeMutant>) -> Volume {
    Volume::open(handle, Rc::clone(disk) as Rc<dyn Storage>, options(mutant)).await.unwrap()
}

fn content(lba: u64, version: u8) -> Vec<u8> {
    let mut block = vec![version; 4096];
    block[..8].copy_from_slice(&lba.to_le_bytes());
    block
}

async fn byte(volume: &Volume, lba: u64) -> Result<u8, Rejected> {
    let found = read(volume, Extent::new(Lba(lba), 1)).await?;
    if found[4095] > 0 {
        assert_eq!(found[..8], lba.to_le_bytes(), "block {lba} reads another one");
    }
    Ok(found[4095])
}

/// Writes, shares and discards over a thousand pages of the map with sixteen of them in memory, three lives long: each life
/// reads what the ones before it have left, and so does a check.
#[test]
fn a_map_larger_than_its_limit_is_read_and_changed_as_one_in_memory() {
    simulate(11, async |handle| {
        let disk = made(&handle, 0).await;
        let mut model: BTreeMap<u64, u8> = BTreeMap::new();
        let mut contents: BTreeMap<u64, u64> = BTreeMap::new();
        for life in 1..=3_u8 {
            let volume = open(&handle, &disk, None).await;
            let random = &mut handle.random("blocks");
            for _ in 0..4000 {
                let lba = random.below(PAGES) * PAGE + random.below(3);
                match random.below(8) {
                    0 => {
                        let extent = Extent::new(Lba(lba), 700);
                        submit_when_free(&volume, Command::Discard(&[extent])).await.unwrap();
                        model.retain(|block, _| !(lba..lba + 700).contains(block));
                    }
                    _ => {
                        write(&volume, Part::bytes(Lba(lba), &content(lba, life))).await.unwrap();
                        model.insert(lba, life);
                        contents.insert(lba, lba);
                    }
                }
            }
            flush(&volume).await.unwrap();
            let stats = volume.stats();
            assert!(stats.map_pages_evicted > PAGES / 2 && stats.map_pages_loaded > 1000, "{stats:?}");
            // Sixteen, and what commands at one time and a checkpoint add.
            assert!(stats.map_bytes < 200 * 4200 + 64 * 1024, "{} bytes of map", stats.map_bytes);
            for lba in (0..PAGES).flat_map(|page| (0..3).map(move |i| page * PAGE + i)) {
                let wanted = model.get(&lba).copied().unwrap_or(0);
                assert_eq!(byte(&volume, lba).await.unwrap(), wanted, "life {life}, block {lba}");
            }
            if life == 2 {
                volume.close().await.unwrap()
            } else {
                drop(volume)
            }
            let report = check(&*disk).await.unwrap();
            assert_eq!((report.live_blocks, report.damaged_total), (model.len() as u64, 0), "life {life}");
        }
    });
}

/// Fills a volume with a page of the map a block, so that most are evicted, and damages a page on the disk: what a read of
/// its block and a write to it answer, and whether a block of another page is read.
fn with_a_damaged_page(mutant: Option<VolumeMutant>) -> (Result<u8, Rejected>, Result<u8, Rejected>, bool) {
    simulate(12, async |handle| {
        let disk = made(&handle, 0).await;
        let volume = open(&handle, &disk, mutant).await;
        for page in 0..PAGES {
            write(&volume, Part::bytes(Lba(page * PAGE), &content(page * PAGE, 7))).await.unwrap();
        }
        volume.checkpoint().await.unwrap();
        for page in PAGES / 2..PAGES {
            byte(&volume, page * PAGE).await.unwrap();
        }
        // Page 5 is in the first map area: its block there becomes that of page 6.
        let start = map_start(&disk).await;
        let other = read(&*disk, Extent::new(Lba(start + 6), 1)).await.unwrap();
        write(&*disk, Part::bytes(Lba(start + 5), &other)).await.unwrap();
        let (damaged, whole) = (byte(&volume, 5 * PAGE).await, byte(&volume, 9 * PAGE).await);
        let written = write(&volume, Part::bytes(Lba(5 * PAGE + 1), &content(5 * PAGE + 1, 8))).await;
        (damaged, whole, written.is_ok())
    })
}

/// The block in which the superblock says that the map begins.
async fn map_start(disk: &AdversaryDisk) -> u64 {
    let superblock = read(disk, Extent::new(Lba(0), 1)).await.unwrap();
    u64::from_le_bytes(superblock[64..72].try_into().unwrap())
}

#[test]
fn a_damaged_page_of_the_map_fails_what_needs_it_alone_until_it_is_to_change() {
    let lost = Err(Rejected::Failed(StorageError::Damaged(Lba(5 * PAGE))));
    assert_eq!(with_a_damaged_page(None), (lost, Ok(7), false));
}

#[test]
fn checks_pages_of_the_map_that_are_loaded_again() {
    // The block's entry is that of a block of another page, and reads its content.
    let outcome = std::panic::catch_unwind(|| with_a_damaged_page(Some(VolumeMutant::PageUnchecked)));
    assert!(outcome.is_err(), "page 6 read for page 5 is noticed by what it reads");
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
