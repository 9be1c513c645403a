//! Ordered writes at a rate, with a replica and without; a restore beside plain reads of the same objects.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::Args;
use futures_util::{StreamExt as _, stream};
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64;
use weir_bucket::{Bucket, Place};
use weir_replica::ObjectStore as _;
use weir_runtime::{Runtime, Wall};

use crate::lag::{Lag, lag_of};
use crate::seaweed::{BUCKET, Seaweed};
use crate::{Ground, Outcome, bytes_in_store, run, told};

/// Bytes of a write.
const WRITE: usize = 128 << 10;
/// The file is written again and again.
const FILE_MIB: u64 = 256;
const MIB: f64 = (1 << 20) as f64;
/// Plain reads at one time.
const AT_ONCE: usize = 8;

/// What is measured.
#[derive(Args)]
pub struct Arguments {
    /// MiB a second that are written, if the mount takes so many
    #[arg(long, default_value_t = 100)]
    rate: u64,
    /// Seconds of a turn
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    /// Rounds of two turns, without a replica and with one
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// Ship the objects as they are
    #[arg(long)]
    no_compression: bool,
}

/// Has both work in turns.
fn run_turns(asked: &Arguments, ground: &Ground, seaweed: &Seaweed) -> Outcome<[Vec<f64>; 6]> {
    let this = std::env::current_exe()?;
    let [mut without, mut with, mut ratio, mut lags, mut restores, mut reads] = <[Vec<f64>; 6]>::default();
    for round in 0..asked.rounds {
        ground.format(3 * FILE_MIB)?;
        ground.mount(seaweed, &["--sync", "order"])?;
        let (plain, _) = write(asked, &ground.root())?;
        ground.umount()?;
        ground.format(3 * FILE_MIB)?;
        let url = format!("s3://{BUCKET}/speed-{round}");
        let more = ["--sync", "order", "--replicate", &url];
        let more =
            if asked.no_compression { [&more[..], &["--no-compression"]].concat() } else { more.to_vec() };
        ground.mount(seaweed, &more)?;
        let (shipped, seen) = write(asked, &ground.root())?;
        ground.umount()?;
        without.push(plain);
        with.push(shipped);
        ratio.push(shipped / plain);
        lags.push(seen.iter().map(|lag| lag.ms).max().unwrap_or(0) as f64);
        let largest = seen.iter().map(|lag| lag.bytes).max().unwrap_or(0) as f64 / MIB;
        let (bytes, seconds) = bytes_in_store(seaweed, &this, &url)?;
        reads.push(bytes as f64 / MIB / seconds);
        let copy = ground.path.join("restored");
        restores.push(bytes as f64 / MIB / restore(ground, seaweed, &url, &copy)?);
        std::fs::remove_file(copy)?;
        let (read, restored) = (reads[reads.len() - 1], restores[restores.len() - 1]);
        println!(
            "round {round}: {plain:.1} and {shipped:.1} MiB/s, {largest:.1} MiB behind at most; read {read:.0}, restored {restored:.0} \
             MiB/s"
        );
    }
    Ok([without, with, ratio, lags, restores, reads])
}

/// Measures, and prints a line for each.
pub fn measure(asked: &Arguments, ground: &Ground) -> Outcome<()> {
    let seaweed = Seaweed::start(&ground.path);
    let [without, with, ratio, lags, restores, reads] = run_turns(asked, ground, &seaweed)?;
    let share = restores.iter().zip(&reads).map(|(restore, read)| restore / read).collect();
    println!("ordered writes, no replica    {} MiB/s", told(without, 1));
    println!("ordered writes, replica       {} MiB/s", told(with, 1));
    println!("replica over none             {}", told(ratio, 2));
    println!("largest lag                   {} ms", told(lags, 0));
    println!("plain reads, {AT_ONCE} at a time      {} MiB/s", told(reads, 0));
    println!("restore                       {} MiB/s of objects", told(restores, 0));
    println!("restore over plain reads      {}", told(share, 2));
    Ok(())
}

/// Writes for a while, each write in order behind the one before. Returns MiB a second, and what the mount said of its replica.
fn write(asked: &Arguments, root: &Path) -> Outcome<(f64, Vec<Lag>)> {
    let file: File = OpenOptions::new().write(true).create(true).truncate(false).open(root.join("file"))?;
    // No compression makes it less.
    let mut data = vec![0; 64 * WRITE];
    Pcg64::seed_from_u64(1).fill_bytes(&mut data);
    let (mut written, mut seen) = (0, Vec::new());
    let began = Instant::now();
    let end = Duration::from_secs(asked.seconds);
    while began.elapsed() < end {
        let at = written % (FILE_MIB << 20);
        let from = (written as usize / WRITE % 63) * WRITE + written as usize / (64 * WRITE) % 4096;
        file.write_all_at(&data[from..from + WRITE], at)?;
        file.sync_data()?;
        written += WRITE as u64;
        if written % (4 << 20) == 0 {
            seen.extend(lag_of(root));
        }
        let due = Duration::from_secs_f64(written as f64 / MIB / asked.rate as f64);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
    }
    Ok((written as f64 / MIB / began.elapsed().as_secs_f64(), seen))
}

/// Reads all objects below a URL, and prints their bytes and the seconds.
pub fn get(url: &str) -> Outcome<()> {
    let runtime = Runtime::wall(Wall::default())?;
    let handle = runtime.handle();
    let place: Place = url.parse()?;
    let (bytes, seconds) = runtime.block_on(async {
        let bucket = Rc::new(Bucket::open(&handle, &place, false)?);
        let keys = bucket.list("", "").await?;
        let began = Instant::now();
        let sizes = stream::iter(keys).map(|key| {
            let bucket = Rc::clone(&bucket);
            async move { bucket.get(&key).await.map(|bytes| bytes.len() as u64) }
        });
        let sizes: Vec<_> = sizes.buffer_unordered(AT_ONCE).collect().await;
        let bytes = sizes.into_iter().sum::<Result<u64, _>>()?;
        Outcome::Ok((bytes, began.elapsed().as_secs_f64()))
    })??;
    println!("{bytes} {seconds}");
    Ok(())
}

/// `weir restore` of a URL into a new file: seconds.
pub fn restore(ground: &Ground, seaweed: &Seaweed, url: &str, to: &Path) -> Outcome<f64> {
    let began = Instant::now();
    let mut command: Command = ground.weir(seaweed);
    run(command.args(["restore", url]).arg(to))?;
    Ok(began.elapsed().as_secs_f64())
}
