//! Shares at their limits: many names, little space, volumes of older programs, and what a share costs.

#![allow(clippy::print_stdout, reason = "figures belong in the log of a test run")]
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::rc::Rc;

use crate::simulation::simulate;
use crate::support::Seed;
use weir_runtime::Handle;
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Command, Extent, Feature, Image, Lba, Part,
    Rejected, SharePair, Storage, StorageError, flush, read, submit_when_free, write,
};
use weir_volume::{Format, Volume, VolumeOptions, check, inspect, upgrade};

/// Pairs that fit one command, and one header.
const MOST: u64 = 336;

fn capabilities() -> Capabilities {
    Capabilities::legacy(32, 512, 4096)
}

fn disk(handle: &Handle, image: &Image) -> Rc<AdversaryDisk> {
    let options = AdversaryOptions { capabilities: capabilities(), ..AdversaryOptions::default() };
    AdversaryDisk::from_image(handle, options, image)
}

async fn open(handle: &Handle, disk: &Rc<AdversaryDisk>) -> Volume {
    Volume::open(handle, Rc::clone(disk) as Rc<dyn Storage>, VolumeOptions::default()).await.unwrap()
}

async fn made(handle: &Handle, blocks: u64, format: Format) -> (Rc<AdversaryDisk>, Volume) {
    let disk = disk(handle, &Image::zeroed(blocks, BLOCK_BYTES as u32));
    Volume::create(handle, &*disk, format).await.unwrap();
    let volume = open(handle, &disk).await;
    (disk, volume)
}

async fn put(volume: &Volume, lba: u64, stamp: u8) -> Result<(), Rejected> {
    write(volume, Part::bytes(Lba(lba), &[stamp; BLOCK_BYTES])).await
}

async fn holds(volume: &Volume, lba: u64, stamp: u8) -> bool {
    let found = read(volume, Extent::new(Lba(lba), 1)).await.unwrap();
    found.iter().all(|byte| *byte == stamp)
}

fn pair(from: u64, to: u64) -> SharePair {
    SharePair { from: Extent::new(Lba(from), 1), to: Lba(to) }
}

async fn share(volume: &Volume, pairs: &[SharePair]) -> Result<(), Rejected> {
    Ok(submit_when_free(volume, Command::Share(pairs)).await?.transferred().await?)
}

/// A block with more names than one record takes moves in several. Only where the log ends between them does the rest
/// become a block of its own.
#[test]
fn a_block_with_a_thousand_names_moves_with_all_of_them() {
    simulate(1, async |handle| {
        let format = Format { logical_blocks: 3000, segment_blocks: 8, overwrite: false, slots: 0 };
        let (disk, volume) = made(&handle, 640, format).await;
        put(&volume, 0, 7).await.unwrap();
        for first in [1000, 1000 + MOST, 1000 + 2 * MOST] {
            let pairs: Vec<SharePair> = (first..first + MOST).map(|to| pair(0, to)).collect();
            share(&volume, &pairs).await.unwrap();
        }
        let names = 3 * MOST + 1;
        assert_eq!(volume.stats().shared_names, names);
        let mut random = handle.random("churn");
        let mut moved = 0;
        for turn in 0..6000_u64 {
            put(&volume, 1 + random.below(300), 10 + (turn % 200) as u8).await.unwrap();
            moved = volume.stats().cleaned_blocks;
        }
        assert!(moved > 1000, "{moved} blocks moved");
        flush(&volume).await.unwrap();
        drop(volume);
        let volume = open(&handle, &disk).await;
        let stats = volume.stats();
        assert_eq!(stats.shared_names, names);
        assert!(stats.shared_blocks <= names.div_ceil(MOST), "{} blocks", stats.shared_blocks);
        for lba in [0, 1000, 1000 + MOST, 999 + 3 * MOST] {
            assert!(holds(&volume, lba, 7).await, "block {lba}");
        }
        volume.close().await.unwrap();
        assert_eq!(check(&*disk).await.unwrap().damaged_total, 0);
    });
}

/// Cleaning takes blocks off the list that have one name left.
#[test]
fn a_moved_block_with_one_name_left_takes_no_memory_for_names() {
    simulate(2, async |handle| {
        let format = Format { segment_blocks: 8, ..Format::default() };
        let (_, volume) = made(&handle, 400, format).await;
        let without = volume.memory_bound();
        for lba in 0..20 {
            put(&volume, lba, 7).await.unwrap();
            share(&volume, &[pair(lba, 40 + lba)]).await.unwrap();
            // With it in its segment, and soon overwritten: so the segment is cleaned.
            put(&volume, 20 + lba % 5, 8).await.unwrap();
        }
        let stats = volume.stats();
        assert_eq!((stats.shared_blocks, stats.shared_names), (20, 40));
        assert_eq!(volume.memory_bound() - without, stats.names_bytes);
        assert_eq!(stats.names_bytes, 40 * 32);
        let mut random = handle.random("churn");
        for turn in 0..6000_u64 {
            let lba = Some(random.below(volume.blocks())).filter(|lba| !(40..60).contains(lba));
            put(&volume, lba.unwrap_or(0), (turn % 250) as u8).await.unwrap();
        }
        let stats = volume.stats();
        assert_eq!((stats.shared_blocks, stats.shared_names, stats.names_bytes), (0, 0, 0));
        assert_eq!(volume.memory_bound(), without);
        for lba in 40..60 {
            assert!(holds(&volume, lba, 7).await, "block {lba}");
        }
    });
}

/// Where a volume shows more than fits, to write over a shared block takes a fresh one.
#[test]
fn writing_over_a_shared_block_takes_space() {
    simulate(3, async |handle| {
        let format = Format { logical_blocks: 1000, segment_blocks: 8, overwrite: false, slots: 0 };
        let (_, volume) = made(&handle, 200, format).await;
        let usable = volume.stats().usable_blocks;
        for lba in 0..usable - 1 {
            put(&volume, lba, 1).await.unwrap();
        }
        share(&volume, &[pair(0, 900), pair(0, 901), pair(1, 902)]).await.unwrap();
        put(&volume, 900, 2).await.unwrap();
        let full = Err(Rejected::Failed(StorageError::NoSpace));
        assert_eq!(volume.stats().live_blocks, usable);
        assert_eq!(put(&volume, 901, 2).await, full, "block 0 keeps what it reads");
        assert_eq!(put(&volume, 903, 2).await, full);
        // A block of its own, and one that was the last name.
        put(&volume, 2, 3).await.unwrap();
        put(&volume, 900, 3).await.unwrap();
        share(&volume, &[pair(3, 904)]).await.unwrap();
        // Both names at once: as much is given back as is taken but for one.
        assert_eq!(volume.stats().live_blocks, usable);
        submit_when_free(&volume, Command::Discard(&[Extent::new(Lba(5), 1)])).await.unwrap();
        put(&volume, 901, 4).await.unwrap();
        assert!(holds(&volume, 0, 1).await && holds(&volume, 901, 4).await && holds(&volume, 902, 1).await);
    });
}

/// A volume that shows what fits never runs out of space, whatever is shared and written over.
#[test]
fn a_volume_that_shows_what_fits_stays_writable() {
    simulate(4, async |handle| {
        let format = Format { segment_blocks: 8, ..Format::default() };
        let (_, volume) = made(&handle, 400, format).await;
        let blocks = volume.blocks();
        for lba in 0..blocks {
            put(&volume, lba, 1).await.unwrap();
        }
        let mut random = handle.random("shares");
        for turn in 0..4000_u64 {
            let (from, to) = (random.below(blocks), random.below(blocks));
            match turn % 3 {
                0 if from != to => share(&volume, &[pair(from, to)]).await.unwrap(),
                1 => {
                    let first = random.below(blocks - 30);
                    let page = [turn as u8; 30 * BLOCK_BYTES];
                    write(&volume, Part::bytes(Lba(first), &page[..volume_most(&volume)])).await.unwrap();
                }
                _ => put(&volume, to, turn as u8).await.unwrap(),
            }
        }
        for lba in 0..blocks {
            put(&volume, lba, 9).await.unwrap();
        }
        assert_eq!(volume.stats().live_blocks, blocks);
    });
}

/// Bytes of the largest write.
fn volume_most(volume: &Volume) -> usize {
    volume.capabilities().max_transfer_blocks as usize * BLOCK_BYTES
}

/// What the first blocks hold.
async fn content(volume: &Volume) -> Vec<u8> {
    let mut content = Vec::new();
    for lba in 0..60 {
        content.extend_from_slice(&read(volume, Extent::new(Lba(lba), 1)).await.unwrap());
    }
    content
}

/// A volume of a program that knew no shares.
fn old() -> Image {
    let seed = Seed::crashed();
    let mut image = seed.image.clone();
    for block in [0, 1] {
        let mut bytes = image.read(Lba(block));
        bytes[80..88].fill(0);
        image.write(Lba(block), &bytes);
        seed.seal(&mut image, block);
    }
    image
}

#[test]
fn a_volume_of_an_older_program_opens_without_shares_and_can_be_upgraded() {
    simulate(5, async |handle| {
        let disk = disk(&handle, &old());
        assert!(!inspect(&*disk).await.unwrap().shares);
        let volume = open(&handle, &disk).await;
        let found = content(&volume).await;
        let refused = share(&volume, &[pair(1, 2)]).await;
        assert_eq!(refused, Err(Rejected::Unsupported(Feature::Share)));
        for turn in 0..2000_u64 {
            put(&volume, 60 + turn % 100, turn as u8).await.unwrap();
        }
        volume.close().await.unwrap();
        drop(volume);
        assert!(upgrade(&handle, disk.clone()).await.unwrap());
        assert!(!upgrade(&handle, disk.clone()).await.unwrap());
        assert!(inspect(&*disk).await.unwrap().shares);
        let report = check(&*disk).await.unwrap();
        assert_eq!((report.damaged_total, report.superblock_copies), (0, 2));
        let volume = open(&handle, &disk).await;
        assert!(content(&volume).await == found);
        share(&volume, &[pair(61, 2)]).await.unwrap();
        assert!(volume.capabilities().share);
    });
}

/// A power cut during an upgrade leaves a volume with shares or one without, and it can be upgraded again.
#[test]
fn an_upgrade_that_a_power_cut_ends_leaves_a_volume() {
    let (mut with, mut without) = (0, 0);
    for seed in 0..200 {
        simulate(seed, async |handle| {
            let capabilities = Capabilities::legacy(32, 512, 512);
            let options =
                AdversaryOptions { capabilities, latency_ns_max: 1000, ..AdversaryOptions::default() };
            let disk = AdversaryDisk::from_image(&handle, options, &old());
            let below = Rc::clone(&disk);
            let clock = handle.clone();
            let task = handle.spawn(async move { upgrade(&clock, below).await });
            handle.sleep(std::time::Duration::from_nanos(25 * seed)).await;
            let left = disk.crash_states().sample(&mut handle.random("what is left"));
            drop(task.await);
            let disk = self::disk(&handle, &left);
            let shares = inspect(&*disk).await.unwrap().shares;
            (with, without) = (with + u32::from(shares), without + u32::from(!shares));
            drop(open(&handle, &disk).await);
            assert_eq!(upgrade(&handle, disk.clone()).await.unwrap(), !shares);
            assert_eq!(check(&*disk).await.unwrap().superblock_copies, 2);
        });
    }
    assert!(with > 20 && without > 20, "{with} with shares, {without} without");
}

/// What 512 blocks cost that are brought home, by a copy and by shares: blocks written to the disk, and those of the
/// checkpoint behind it.
fn cost(remap: bool, spread: u64) -> (u64, u64) {
    simulate(6, async |handle| {
        let (_, volume) = made(&handle, 1 << 19, Format::default()).await;
        for lba in 0..512 {
            put(&volume, lba, 1 + (lba % 250) as u8).await.unwrap();
        }
        for lba in 0..512 {
            put(&volume, 10_000 + lba * spread, 1).await.unwrap();
        }
        volume.checkpoint().await.unwrap();
        let before = volume.stats().disk_blocks();
        let pairs: Vec<SharePair> = (0..512).map(|lba| pair(lba, 10_000 + lba * spread)).collect();
        match remap {
            true => {
                for pairs in pairs.chunks(MOST as usize) {
                    share(&volume, pairs).await.unwrap();
                }
            }
            false => {
                for (lba, pair) in (0..).zip(&pairs) {
                    put(&volume, pair.to.0, 1 + (lba % 250) as u8).await.unwrap();
                }
            }
        }
        flush(&volume).await.unwrap();
        let blocks = volume.stats().disk_blocks() - before;
        let pages = volume.stats().checkpoint_blocks;
        volume.checkpoint().await.unwrap();
        (blocks, volume.stats().checkpoint_blocks - pages)
    })
}

#[test]
fn what_is_brought_home_by_shares_writes_headers_only() {
    for spread in [1, 510, 600] {
        let (copied, pages_copied) = cost(false, spread);
        let (remapped, pages) = cost(true, spread);
        println!(
            "512 blocks, {spread} apart: {copied} blocks by a copy and {remapped} by shares; checkpoint {pages_copied} and {pages}"
        );
        assert!(remapped * 50 <= copied, "2 %: {remapped} of {copied}");
        assert!(pages <= pages_copied + 3, "the map pages of the sources: {pages} and {pages_copied}");
    }
}
