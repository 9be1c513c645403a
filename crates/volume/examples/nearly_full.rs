//! What overwriting costs in a small volume that is nearly full, with and without discards of what is no longer used.
//!
//! `nearly_full DIRECTORY [SEGMENTS]`: a line a case, on a file there that is removed again. Rates are of this machine
//! at this moment; counts are exact.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::error::Error;
use std::path::Path;
use std::rc::Rc;

use weir_runtime::{Handle, Runtime, Wall};
use weir_storage::{BLOCK_BYTES, Command, Extent, FileDisk, FileDiskOptions, Lba, Part, submit_when_free};
use weir_volume::{CleaningPolicy, Format, Volume, VolumeOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("which directory?")?;
    let segments: u64 = arguments.next().map_or(Ok(254), |text| text.parse())?;
    let runtime = Runtime::wall(Wall::default())?;
    let handle = runtime.handle();
    let path = Path::new(&directory).join("nearly-full.disk");
    let outcome = runtime.block_on(cases(&handle, &path, (segments + 2) << 20));
    let _ = std::fs::remove_file(&path);
    outcome?
}

async fn cases(handle: &Handle, path: &Path, bytes: u64) -> Result<(), Box<dyn Error>> {
    let disk = FileDisk::create(handle, path, bytes, FileDiskOptions::default())?;
    println!(
        "live  discards  policy       writes/s  amplification  moved/write  flushes  checkpoints  cleaned"
    );
    for percent in [80, 90, 95] {
        for discards in [false, true] {
            for cleaning in [CleaningPolicy::Greedy, CleaningPolicy::CostBenefit] {
                case(handle, &disk, percent, discards, cleaning).await?;
            }
        }
    }
    Ok(())
}

/// Fills the volume to `percent` of what may be live, discards four fifths of that if asked, and overwrites at random.
async fn case(
    handle: &Handle,
    disk: &Rc<FileDisk>,
    percent: u64,
    discards: bool,
    cleaning: CleaningPolicy,
) -> Result<(), Box<dyn Error>> {
    Volume::create(handle, &**disk, Format { overwrite: true, ..Format::default() }).await?;
    let options = VolumeOptions { cleaning, ..VolumeOptions::default() };
    let volume = Volume::open(handle, Rc::<FileDisk>::clone(disk), options).await?;
    let blocks = volume.stats().usable_blocks * percent / 100;
    let page = vec![1; BLOCK_BYTES];
    for lba in 0..blocks {
        place(&volume, lba, &page).await?;
    }
    let used = if discards { blocks / 5 } else { blocks };
    for first in (used..blocks).step_by(4096) {
        let extent = Extent::new(Lba(first), 4096.min(blocks - first) as u32);
        submit_when_free(&volume, Command::Discard(&[extent])).await?;
    }
    let mut random = handle.random("nearly full");
    let (before, began) = (volume.stats(), handle.now());
    let writes = 2 * blocks;
    for _ in 0..writes {
        place(&volume, random.below(used), &page).await?;
    }
    let seconds = handle.now().since(began).as_secs_f64();
    let after = volume.stats();
    let of = |count: fn(&weir_volume::Stats) -> u64| (count(&after) - count(&before)) as f64;
    println!(
        "{percent:3} %  {discards:8}  {:11}  {:8.0}  {:13.2}  {:11.2}  {:7}  {:11}  {:7}",
        format!("{cleaning:?}"),
        writes as f64 / seconds,
        of(weir_volume::Stats::disk_blocks) / writes as f64,
        of(|stats| stats.cleaned_blocks) / writes as f64,
        of(|stats| stats.flushes),
        of(|stats| stats.checkpoints),
        of(|stats| stats.segments_cleaned),
    );
    Ok(volume.close().await?)
}

async fn place(volume: &Volume, lba: u64, page: &[u8]) -> Result<(), Box<dyn Error>> {
    let part = [Part::bytes(Lba(lba), page)];
    submit_when_free(volume, Command::Write(weir_storage::Write::new(&part))).await?;
    Ok(())
}
