//! What snapshots and clones cost: to make them, to write beneath one, and to go back.
//!
//! `snapshot_cost DIRECTORY [MIB]`: a volume of so many MiB in use on a file there. Rates are of this machine at this moment.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::error::Error;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

use weir_runtime::{Handle, Runtime, Wall};
use weir_storage::{
    BLOCK_BYTES, Command, FileDisk, FileDiskOptions, Lba, Part, Storage, Write, flush, submit_when_free,
};
use weir_volume::{BranchStorage, Format, Volume, VolumeOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("which directory?")?;
    let mib: u64 = arguments.next().map_or(Ok(1024), |text| text.parse())?;
    let path = Path::new(&directory).join("snapshot-cost.disk");
    File::create(&path)?.set_len((mib * 4) << 20)?;
    let runtime = Runtime::wall(Wall::default())?;
    let handle = runtime.handle();
    let outcome = runtime.block_on(measure(&handle, &path, mib << 8));
    std::fs::remove_file(&path)?;
    outcome?
}

/// Microseconds since `began`.
fn micros(handle: &Handle, began: weir_runtime::Instant) -> f64 {
    handle.now().since(began).as_secs_f64() * 1e6
}

/// Pieces in which a volume and its clone are written by turns, each followed by a flush: both wait for the same cleaning, to which the
/// writes of both lead.
const PIECES: u64 = 64;

/// In which order the blocks of a storage are written.
#[derive(Clone, Copy)]
struct Pattern {
    blocks: u64,
    at_random: bool,
}

impl Pattern {
    /// Writes all blocks, and returns microseconds a block.
    async fn write_all(self, handle: &Handle, storage: &dyn Storage) -> Result<f64, Box<dyn Error>> {
        self.write_blocks(handle, storage, 0..self.blocks).await
    }

    /// Writes these blocks, or as many at random, and returns microseconds a block.
    async fn write_blocks(
        self,
        handle: &Handle,
        storage: &dyn Storage,
        blocks: Range<u64>,
    ) -> Result<f64, Box<dyn Error>> {
        let (page, mut random) = (vec![1; BLOCK_BYTES], handle.random("blocks"));
        let count = blocks.end - blocks.start;
        let began = handle.now();
        for block in blocks {
            let lba = if self.at_random { random.below(self.blocks) } else { block };
            let part = [Part::bytes(Lba(lba), &page)];
            submit_when_free(storage, Command::Write(Write::new(&part))).await?;
        }
        flush(storage).await?;
        Ok(micros(handle, began) / count as f64)
    }

    /// Writes a quarter of the blocks of two storages, by turns, and returns microseconds a block of each. Which of them comes first
    /// is drawn, so that rounds of cleaning do not always meet the same one.
    async fn write_by_turns(
        self,
        handle: &Handle,
        storages: [&dyn Storage; 2],
    ) -> Result<[f64; 2], Box<dyn Error>> {
        let (piece, mut order) = (self.blocks / 4 / PIECES, handle.random("order"));
        let mut rates = [0.0; 2];
        for first in (0..PIECES).map(|i| i * piece) {
            let begins = order.below(2) as usize;
            for which in [begins, 1 - begins] {
                let took = self.write_blocks(handle, storages[which], first..first + piece).await?;
                rates[which] += took / PIECES as f64;
            }
        }
        Ok(rates)
    }
}

async fn measure(handle: &Handle, path: &Path, blocks: u64) -> Result<(), Box<dyn Error>> {
    let disk = FileDisk::open(handle, path, FileDiskOptions::default())?;
    let format = Format { logical_blocks: blocks, slots: 4, ..Format::default() };
    Volume::create(handle, &*disk, format).await?;
    let volume = Rc::new(Volume::open(handle, disk, VolumeOptions::default()).await?);
    for at_random in [false, true] {
        let pattern = Pattern { blocks, at_random };
        pattern.write_all(handle, &*volume).await?;
        let plain = pattern.write_all(handle, &*volume).await?;
        let began = handle.now();
        volume.create_snapshot("snapshot").await?;
        let made = micros(handle, began);
        let first = pattern.write_all(handle, &*volume).await?;
        let again = pattern.write_all(handle, &*volume).await?;
        let began = handle.now();
        volume.create_clone("snapshot", "clone").await?;
        let cloned = micros(handle, began);
        let clone = BranchStorage::open(Rc::clone(&volume), "clone")?;
        let [beside, of_clone] = pattern.write_by_turns(handle, [&*volume, &clone]).await?;
        // A branch that is open is in use.
        drop(clone);
        let began = handle.now();
        volume.roll_back("snapshot").await?;
        let back = micros(handle, began) / 1e6;
        let names = volume.stats().shared_names;
        volume.delete_snapshot("clone").await?;
        let began = handle.now();
        volume.delete_snapshot("snapshot").await?;
        let deleted = micros(handle, began) / 1e6;
        println!(
            "{}: us a block: plain {plain:.2}, first below a snapshot {first:.2} ({:.2}), again {again:.2}; \
             in a clone {of_clone:.2}, by turns with the volume, {beside:.2} ({:.2}); \
             create {:.1} ms, clone {:.1} ms, roll back {back:.2} s, delete {deleted:.2} s; {names} names",
            if at_random { "random" } else { "in turn" },
            first / plain,
            of_clone / beside,
            made / 1e3,
            cloned / 1e3,
        );
    }
    volume.close().await?;
    Ok(())
}
