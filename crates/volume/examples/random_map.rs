//! What the map costs where blocks are written at random all over a large volume, by how many of its pages may be in memory.
//!
//! `random_map DIRECTORY [GIB] [MIB]`: writes so many MiB in blocks of 4 KiB over a sparse volume of so many GiB, twice, and reads as
//! many blocks; a line a limit. Rates are of this machine at this moment; counts are exact.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::error::Error;
use std::fs::File;
use std::path::Path;

use weir_runtime::{Handle, Runtime, Wall};
use weir_storage::{
    BLOCK_BYTES, Command, Extent, FileDisk, FileDiskOptions, Lba, Part, Write, submit_when_free,
};
use weir_volume::{Format, Stats, Volume, VolumeOptions};

/// Reads that are under way together.
const READS_AT_ONCE: usize = 32;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("which directory?")?;
    let gib: u64 = arguments.next().map_or(Ok(64), |text| text.parse())?;
    let mib: u64 = arguments.next().map_or(Ok(1024), |text| text.parse())?;
    let path = Path::new(&directory).join("random-map.disk");
    println!(
        "limit  in use  writes/s  map blocks/write  loads/write  reads/s  loads/read  memory of the map"
    );
    let pages = (gib << 18) / 510;
    for limit in [pages, pages / 2, pages / 4] {
        File::create(&path)?.set_len((gib + gib / 10) << 30)?;
        let runtime = Runtime::wall(Wall::default())?;
        let handle = runtime.handle();
        let outcome = runtime.block_on(case(&handle, &path, gib << 18, mib << 8, limit as usize));
        std::fs::remove_file(&path)?;
        outcome??;
    }
    Ok(())
}

/// Writes so many blocks of the first `span` two times, and measures the second time.
async fn case(
    handle: &Handle,
    path: &Path,
    span: u64,
    blocks: u64,
    limit: usize,
) -> Result<(), Box<dyn Error>> {
    let disk = FileDisk::open(handle, path, FileDiskOptions::default())?;
    Volume::create(handle, &*disk, Format::default()).await?;
    let options = VolumeOptions { map_pages: limit, ..VolumeOptions::default() };
    let volume = Volume::open(handle, disk, options).await?;
    let mut random = handle.random("blocks");
    let page = vec![1; BLOCK_BYTES];
    let mut measured = (Stats::default(), handle.now());
    for turn in 0..2 {
        measured = (volume.stats(), handle.now());
        for _ in 0..blocks {
            let part = [Part::bytes(Lba(random.below(span)), &page)];
            submit_when_free(&volume, Command::Write(Write::new(&part))).await?;
        }
        if turn == 0 {
            volume.checkpoint().await?;
        }
    }
    let (before, began) = measured;
    let seconds = handle.now().since(began).as_secs_f64();
    let written = volume.stats();
    let began = handle.now();
    let mut reads = std::collections::VecDeque::new();
    for _ in 0..blocks / 4 {
        let extent = Extent::new(Lba(random.below(span)), 1);
        reads.push_back(submit_when_free(&volume, Command::read(extent)).await?);
        if reads.len() == READS_AT_ONCE
            && let Some(ticket) = reads.pop_front()
        {
            ticket.transferred().await?;
        }
    }
    let reading = handle.now().since(began).as_secs_f64();
    let read = volume.stats();
    let of = |count: fn(&Stats) -> u64| (count(&written) - count(&before)) as f64 / blocks as f64;
    println!(
        "{limit:5}  {:6}  {:8.0}  {:16.3}  {:11.3}  {:7.0}  {:10.3}  {:.0} MiB",
        written.live_blocks,
        blocks as f64 / seconds,
        of(|stats| stats.checkpoint_blocks),
        of(|stats| stats.map_pages_loaded),
        blocks as f64 / 4.0 / reading,
        (read.map_pages_loaded - written.map_pages_loaded) as f64 / (blocks as f64 / 4.0),
        read.map_bytes as f64 / f64::from(1 << 20),
    );
    volume.close().await?;
    Ok(())
}
