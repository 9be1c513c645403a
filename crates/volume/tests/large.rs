//! Volumes of all sizes, up to the largest that the format addresses (V6): on sparse files, and over the adversary.

#![allow(clippy::print_stdout, reason = "figures belong in the log of a test run")]
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;

use weir_runtime::{Handle, Runtime, Wall};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Command, Extent, FileDisk, FileDiskOptions,
    Lba, Part, Rules, Storage, flush, read, submit_when_free, write,
};
use weir_volume::{Damage, Format, Stats, Volume, VolumeError, VolumeMutant, VolumeOptions, check, inspect};

use crate::simulation::simulate;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
/// The largest is the last that 32 bits address.
const SIZES: [u64; 7] = [256 * MIB, GIB, 100 * GIB, 600 * GIB, TIB, 4 * TIB, 16 * TIB - 2 * 4096];

fn content(lba: u64, version: u64) -> Vec<u8> {
    let mut block = vec![(lba * 31 + version * 7 + 1) as u8; BLOCK_BYTES];
    block[..8].copy_from_slice(&lba.to_le_bytes());
    block[8..16].copy_from_slice(&version.to_le_bytes());
    block
}

async fn put(volume: &Volume, lba: u64, version: u64) {
    write(volume, Part::bytes(Lba(lba), &content(lba, version))).await.unwrap();
}

/// Blocks over the whole range, the last one among them.
fn scattered(volume: &Volume, count: u64) -> impl Iterator<Item = u64> + use<> {
    let (step, last) = (volume.blocks() / count, volume.blocks() - 1);
    (0..count).map(move |i| i * step).chain([last])
}

async fn holds(volume: &Volume, lbas: impl Iterator<Item = u64>, version: u64) {
    for lba in lbas {
        let found = read(volume, Extent::new(Lba(lba), 1)).await.unwrap();
        assert!(found[..] == content(lba, version), "block {lba} of version {version}");
    }
}

async fn open(handle: &Handle, disk: &Rc<impl Storage + 'static>, options: &VolumeOptions) -> Volume {
    let disk = Rc::clone(disk) as Rc<dyn Storage>;
    Volume::open(handle, disk, options.clone()).await.unwrap()
}

/// With 513 pages of the map in use: memory is a page and perhaps the group that finds it for each, and what finds the
/// groups. A checkpoint writes each page, and perhaps the block that says where each is, and the free-segment list.
fn follows_what_is_used(stats: &Stats, what: &str) {
    let bytes = stats.map_bytes + stats.segments_bytes;
    println!("{what}: {bytes} bytes of memory, {} blocks a checkpoint", stats.checkpoint_blocks);
    assert!(bytes < 513 * (4200 + 8192 + 8192) + 2 * MIB, "{what}: {bytes} bytes of memory");
    assert_eq!(stats.checkpoints, 1);
    assert!(stats.checkpoint_blocks <= 513 + 513 + 9, "{what}: {} blocks", stats.checkpoint_blocks);
}

/// Writes over the whole range, flushes, is cut off, recovers, and reads all of it back.
async fn live(handle: &Handle, disk: Rc<dyn Storage>, what: &str) {
    Volume::create(handle, &*disk, Format::default()).await.unwrap();
    assert_eq!(inspect(&*disk).await.unwrap().physical_blocks, disk.blocks());
    let options = VolumeOptions::default();
    let volume = Volume::open(handle, Rc::clone(&disk), options.clone()).await.unwrap();
    let lbas = || scattered(&volume, 512);
    for lba in lbas() {
        put(&volume, lba, 1).await;
    }
    flush(&volume).await.unwrap();
    for lba in lbas() {
        put(&volume, lba, 2).await;
    }
    flush(&volume).await.unwrap();
    let lbas: Vec<u64> = lbas().collect();
    // Dropped as by a power cut: what was flushed comes back from the log.
    drop(volume);
    let volume = Volume::open(handle, Rc::clone(&disk), options.clone()).await.unwrap();
    assert_eq!(volume.stats().recovery.records, 2 * 513, "{what}");
    holds(&volume, lbas.iter().copied(), 2).await;
    follows_what_is_used(&volume.stats(), what);
    volume.close().await.unwrap();
    let report = check(&*disk).await.unwrap();
    assert_eq!((report.live_blocks, report.damaged_total), (513, 0), "{what}");
}

#[test]
fn volumes_of_all_sizes_live_on_sparse_files() {
    for size in SIZES {
        let runtime = Runtime::wall(Wall::default()).unwrap();
        let handle = runtime.handle();
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = directory.path().join("disk");
        // Some filesystems end earlier; the sizes that they have are tested there.
        let made = File::create(&path).unwrap().set_len(size);
        if made.is_err() {
            eprintln!("skipped: no file of {size} bytes here");
            continue;
        }
        let work = async {
            let disk = FileDisk::open(&handle, &path, FileDiskOptions::default()).unwrap();
            live(&handle, disk, &format!("{size} bytes")).await;
        };
        runtime.block_on(work).unwrap();
        let allocated = std::fs::metadata(&path).unwrap().blocks() * 512;
        println!("{size} bytes: {allocated} allocated");
        assert!(allocated < 24 * MIB, "{size} bytes: {allocated} allocated");
    }
}

fn simulated_disk(handle: &Handle, blocks: u64) -> Rc<AdversaryDisk> {
    let capabilities = Capabilities::legacy(32, 512, 4096);
    AdversaryDisk::new(handle, AdversaryOptions { blocks, capabilities, ..AdversaryOptions::default() })
}

#[test]
fn volumes_of_all_sizes_live_over_the_adversary() {
    for size in SIZES {
        simulate(1, async |handle| {
            let disk = simulated_disk(&handle, size / 4096);
            live(&handle, disk, &format!("{size} bytes")).await;
        });
    }
}

/// Whether a volume of this size takes a write at all.
fn takes_a_write(size: u64, mutant: Option<VolumeMutant>) -> bool {
    simulate(2, async |handle| {
        let disk = simulated_disk(&handle, size / 4096);
        Volume::create(&handle, &*disk, Format::default()).await.unwrap();
        let volume =
            open(&handle, &disk, &VolumeOptions { rules: Rules::but(mutant), ..VolumeOptions::default() })
                .await;
        let written = write(&volume, Part::bytes(Lba(7), &content(7, 1))).await.is_ok();
        written && flush(&volume).await.is_ok()
    })
}

#[test]
fn v6_a_reserve_beyond_what_a_free_list_holds() {
    for size in SIZES {
        assert!(takes_a_write(size, None), "{size} bytes");
    }
    assert!(!takes_a_write(TIB, Some(VolumeMutant::ReserveUnbounded)));
}

/// Blocks of a checkpoint of a volume of almost 16 TiB with one block in it.
fn blocks_of_a_checkpoint(mutant: Option<VolumeMutant>) -> u64 {
    simulate(3, async |handle| {
        let disk = simulated_disk(&handle, SIZES[6] / 4096);
        Volume::create(&handle, &*disk, Format::default()).await.unwrap();
        let volume =
            open(&handle, &disk, &VolumeOptions { rules: Rules::but(mutant), ..VolumeOptions::default() })
                .await;
        put(&volume, volume.blocks() / 2, 1).await;
        let before = volume.stats().checkpoint_blocks;
        volume.checkpoint().await.unwrap();
        volume.stats().checkpoint_blocks - before
    })
}

#[test]
fn v6_a_checkpoint_that_grows_with_the_volume() {
    // The free-segment list, a block of page places, and the map page.
    assert_eq!(blocks_of_a_checkpoint(None), 9 + 1 + 1);
    assert!(blocks_of_a_checkpoint(Some(VolumeMutant::CheckpointWhole)) > 500);
}

/// A discard of everything, and what it leaves in memory and on the disk.
#[test]
fn a_discard_of_16_tib_is_quick_and_frees_the_map() {
    simulate(4, async |handle| {
        let disk = simulated_disk(&handle, SIZES[6] / 4096);
        Volume::create(&handle, &*disk, Format::default()).await.unwrap();
        let volume = open(&handle, &disk, &VolumeOptions::default()).await;
        let empty = volume.stats().map_bytes;
        for lba in scattered(&volume, 256) {
            put(&volume, lba, 1).await;
        }
        volume.checkpoint().await.unwrap();
        assert!(volume.stats().map_bytes >= empty + 256 * 4096);
        let everything = Extent::new(Lba(0), volume.blocks() as u32);
        let commands = volume.capabilities().split_discard(&[everything]);
        for extents in &commands {
            submit_when_free(&volume, Command::Discard(extents)).await.unwrap().transferred().await.unwrap();
        }
        flush(&volume).await.unwrap();
        drop(volume);
        let volume = open(&handle, &disk, &VolumeOptions::default()).await;
        let stats = volume.stats();
        assert_eq!((stats.live_blocks, stats.recovery.records), (0, commands.len() as u64));
        for lba in scattered(&volume, 256) {
            assert_eq!(read(&volume, Extent::new(Lba(lba), 1)).await.unwrap()[..], [0; BLOCK_BYTES]);
        }
        // What a page held is gone with the checkpoint that wrote it; what is left is what finds pages.
        assert!(stats.map_bytes < empty + 257 * 8192 + MIB, "{}", stats.map_bytes);
    });
}

/// The newest checkpoint is damaged after one more, taken while running or by a recovery: opening has to notice, and
/// reads no more than what that one has to do with.
#[test]
fn a_newest_checkpoint_that_is_lost_is_noticed_in_a_large_volume() {
    for reopen in [false, true] {
        simulate(5, async |handle| {
            let disk = simulated_disk(&handle, TIB / 4096);
            Volume::create(&handle, &*disk, Format::default()).await.unwrap();
            let mut volume = open(&handle, &disk, &VolumeOptions::default()).await;
            for lba in 0..600 {
                put(&volume, lba, 1).await;
            }
            flush(&volume).await.unwrap();
            if reopen {
                drop(volume);
                volume = open(&handle, &disk, &VolumeOptions::default()).await;
            } else {
                volume.checkpoint().await.unwrap();
            }
            for lba in 0..600 {
                put(&volume, lba, 2).await;
            }
            flush(&volume).await.unwrap();
            drop(volume);
            let info = inspect(&*disk).await.unwrap();
            // Number 1 is in the first slot, and so on, one by the other.
            let slots = (2, 2 + checkpoint_blocks(&info));
            let newest = if info.checkpoint % 2 == 1 { slots.0 } else { slots.1 };
            let mut image = disk.image();
            image.flip_bit(newest * 4096 + 100, 1);
            let options =
                AdversaryOptions { capabilities: *disk.capabilities(), ..AdversaryOptions::default() };
            let left = AdversaryDisk::from_image(&handle, options, &image);
            let outcome = Volume::open(&handle, left, VolumeOptions::default()).await.err();
            let lost = matches!(outcome, Some(VolumeError::Damaged { what: Damage::NewestCheckpoint, .. }));
            assert!(lost, "reopened {reopen}: {outcome:?}");
        });
    }
}

/// As docs/format/volume.md has it.
fn checkpoint_blocks(info: &weir_volume::Info) -> u64 {
    let free_list = (info.physical_blocks / u64::from(info.segment_blocks)).min(8192);
    // Laid out for as many logical blocks as there are physical ones.
    let pages = info.physical_blocks.div_ceil(510);
    (64 + 4 * free_list + pages.div_ceil(4)).div_ceil(4096)
}
