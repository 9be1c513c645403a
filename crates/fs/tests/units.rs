//! Units: an aligned write is old or new after a crash, never mixed, on a storage that keeps requests whole; also with
//! writeback, a small cache, large writes and full disks.

use std::rc::Rc;

use weir_vfs::{Fallocate, InodeNumber};

use crate::support::{
    self, BLOCKS, capabilities, collect_crash_states, image_of, mount, plan, read_file, simulated,
    simulated_with, write_file,
};
use rand::RngExt as _;
use weir_ext4::ROOT_INODE;
use weir_fs::{BarrierFs, CacheMutant, Conflicts, Engine, FsMutant, JournalMode, MountOptions};
use weir_runtime::Handle;
use weir_storage::{AdversaryDisk, AdversaryOptions, Capabilities, Image, Ordering, Rules};

const BLOCK: usize = 4096;
const UNIT: usize = 4 * BLOCK;
/// Units of the file.
const UNITS: usize = 24;

/// A storage that keeps requests of up to ten blocks whole: not a multiple of a unit.
fn disk(clock: &Handle, image: &Image) -> Rc<AdversaryDisk> {
    let capabilities = Capabilities {
        ordering: Ordering::Prefix,
        ordered_service: true,
        max_transfer_blocks: 10,
        atomic_blocks: 10,
        ..capabilities(true)
    };
    let options = AdversaryOptions { capabilities, latency_ns_max: 100_000, ..AdversaryOptions::default() };
    AdversaryDisk::from_image(clock, options, image)
}

fn options(engine: Engine, mode: JournalMode, mutant: Option<FsMutant>) -> MountOptions {
    MountOptions {
        engine: Some(engine),
        mode,
        cache_bytes: 64 * BLOCK as u64,
        dirty_background_bytes: 0,
        dirty_bytes: 26 * BLOCK as u64,
        rules: Rules::but(mutant),
        ..MountOptions::default()
    }
}

/// Writes units, and larger pieces, each full of one byte; reads in between, so that parts of units leave memory.
async fn write_units(clock: &Handle, fs: &BarrierFs, file: InodeNumber, seed: u64) {
    let mut random = clock.random(&format!("units {seed}"));
    for n in 2..120_u8 {
        let first = random.random_range(0..UNITS);
        let units = if random.random_ratio(1, 4) { random.random_range(1..=UNITS - first) } else { 1 };
        let bytes = vec![n; units * UNIT];
        let mut done = 0;
        while done < bytes.len() {
            done += fs.write(file, (first * UNIT + done) as u64, &bytes[done..]).await.expect("written");
        }
        match random.random_range(0..8) {
            0 => fs.fdatasync(file).await.expect("durable"),
            1 => fs.fbarrier(file).await.expect("ordered"),
            _ => {}
        }
        let mut some = vec![0; BLOCK];
        let at = random.random_range(0..UNITS * 4) * BLOCK;
        fs.read(file, at as u64, &mut some).await.expect("read");
    }
}

/// What a power cut may leave at any event.
fn crashes(seed: u64, options: MountOptions, prepare: impl AsyncFn(&BarrierFs) -> InodeNumber) -> Vec<Image> {
    simulated_with(seed, async |clock| {
        let disk = disk(&clock, &image_of(&plan(BLOCKS)));
        let fs = mount(&clock, &disk, options).await.expect("mounted");
        let file = prepare(&fs).await;
        fs.sync().await.expect("durable");
        let images = collect_crash_states(&clock, &disk, 6);
        write_units(&clock, &fs, file, seed).await;
        images.take()
    })
}

/// Whether every unit of every image is one version.
fn are_whole(images: &[Image]) -> Result<(), String> {
    for image in images {
        let content = simulated(async |clock| {
            let disk = disk(&clock, image);
            let fs = mount(&clock, &disk, MountOptions::default()).await.expect("recovered");
            read_file(&fs, b"a").await.expect("there")
        });
        for (nth, unit) in content.chunks(UNIT).enumerate() {
            if unit.iter().any(|byte| *byte != unit[0]) {
                let versions: Vec<u8> = unit.iter().step_by(BLOCK).copied().collect();
                return Err(format!("unit {nth} holds {versions:?}"));
            }
        }
    }
    Ok(())
}

/// A file that has its blocks, not written.
async fn preallocated(fs: &BarrierFs) -> InodeNumber {
    let file = write_file(fs, b"a", b"").await;
    let whole = Fallocate::Allocate { keep_size: false };
    fs.fallocate(file, whole, 0, (UNITS * UNIT) as u64).await.expect("room");
    file
}

/// A file of which every unit was written, between others that take the blocks behind it.
async fn grown(fs: &BarrierFs) -> InodeNumber {
    let files = [write_file(fs, b"a", b"").await, write_file(fs, b"b", b"").await];
    for unit in 0..UNITS {
        for file in files {
            fs.write(file, (unit * UNIT) as u64, &[1; UNIT]).await.expect("written");
            fs.fsync(file).await.expect("durable");
        }
    }
    files[0]
}

const DUAL: Engine = Engine::Dual { conflicts: Conflicts::Copy };

#[test]
fn units_are_old_or_new() {
    for (engine, mode) in [
        (DUAL, JournalMode::Ordered),
        (DUAL, JournalMode::Data),
        (DUAL, JournalMode::Writeback),
        (Engine::Prefix, JournalMode::Ordered),
        (Engine::Jbd2 { barrier: true }, JournalMode::Ordered),
    ] {
        let mut states = 0;
        for seed in 0..3 {
            for images in [
                crashes(seed, options(engine, mode, None), preallocated),
                crashes(seed, options(engine, mode, None), grown),
            ] {
                states += images.len();
                assert_eq!(are_whole(&images), Ok(()), "{engine:?}, {mode:?}");
            }
        }
        assert!(states > 150, "{states}");
    }
}

#[test]
fn what_parts_units_is_noticed() {
    for mutant in [FsMutant::Cache(CacheMutant::UnitInParts), FsMutant::Cache(CacheMutant::UnitInTwoRequests)]
    {
        let noticed = (0..20).any(|seed| {
            let images = crashes(seed, options(DUAL, JournalMode::Ordered, Some(mutant)), preallocated);
            are_whole(&images).is_err()
        });
        assert!(noticed, "{mutant:?} was not noticed");
    }
}

/// Leaves free runs of `run` blocks between files of one block, and one of 40; writes units until nothing is left;
/// how many units were allocated in two places.
fn fragmented(run: u64, mutant: Option<FsMutant>) -> (u64, u64) {
    simulated(async |clock| {
        let disk = disk(&clock, &image_of(&plan(BLOCKS)));
        let rules = Rules::but(mutant);
        let fs =
            mount(&clock, &disk, MountOptions { rules, ..MountOptions::default() }).await.expect("mounted");
        let pieces = write_file(&fs, b"pieces", b"").await;
        let whole = Fallocate::Allocate { keep_size: false };
        let free = fs.statfs().await.available_blocks - 2000;
        fs.fallocate(pieces, whole, 0, free * BLOCK as u64).await.expect("room");
        fs.fsync(pieces).await.expect("durable");
        let rest = write_file(&fs, b"rest", b"").await;
        let mut length = fs.statfs().await.available_blocks;
        while length > 0 {
            let at = fs.attributes(rest).await.expect("there").size;
            match fs.fallocate(rest, whole, at, length * BLOCK as u64).await {
                Ok(()) => {}
                Err(_) => length /= 2,
            }
        }
        for at in (0..3000).step_by(run as usize + 1) {
            fs.fallocate(pieces, Fallocate::PunchHole, at * BLOCK as u64, run * BLOCK as u64)
                .await
                .expect("a hole");
        }
        fs.fsync(pieces).await.expect("durable");
        clock.sleep(std::time::Duration::from_secs(1)).await;
        let before = fs.statistics().split_units;
        let file = write_file(&fs, b"file", b"").await;
        let mut units = 0;
        while units < 300 && fs.write(file, units * UNIT as u64, &[1; 4 * UNIT]).await == Ok(4 * UNIT) {
            units += 4;
        }
        assert_eq!(fs.lookup(ROOT_INODE, b"file").await, Ok(file));
        (units, fs.statistics().split_units - before)
    })
}

#[test]
fn runs_end_between_units_where_there_are_such_runs() {
    let (units, split) = fragmented(7, None);
    assert!(units == 300 && split == 0, "{units} units, {split} of them split");
    let (_, split) = fragmented(7, Some(FsMutant::UnitInTwoRuns));
    assert!(split > 100, "the mutant was not noticed: {split}");
    let (units, split) = fragmented(3, None);
    assert!(
        units > 100 && split >= units / 2,
        "without such runs they are counted: {units} units, {split} split"
    );
}

#[test]
fn the_unit_is_what_the_storage_keeps_whole() {
    simulated(async |clock| {
        let fs = mount(&clock, &disk(&clock, &image_of(&plan(BLOCKS))), MountOptions::default()).await;
        assert_eq!(fs.expect("mounted").statistics().unit_bytes, UNIT as u32);
        let fs =
            mount(&clock, &support::disk(&clock, &image_of(&plan(BLOCKS)), true), MountOptions::default())
                .await;
        assert_eq!(fs.expect("mounted").statistics().unit_bytes, BLOCK as u32);
    });
}
