//! How fast a volume takes 4 KiB records on the disk under the directory given (default: here), and what
//! of the processor each costs: `cargo run --release -p weir-volume --example append_rate [DIRECTORY]`.

use std::error::Error;
use std::rc::Rc;

use rand::{Rng, RngExt};
use weir_runtime::{Runtime, Wall};
use weir_storage::{
    BLOCK_BYTES, Command, FileDisk, FileDiskOptions, Lba, Part, Rejected, Storage, Write, flush,
};
use weir_volume::{Format, Volume, VolumeOptions};

const DISK_BYTES: u64 = 1 << 30;
const WRITES: u64 = 2_000_000;
const SHARE_PERCENT: u64 = 25;

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let path = std::path::Path::new(&directory).join("append_rate.weir");
    let runtime = Runtime::wall(Wall::default())?;
    let outcome = runtime.block_on(run(&runtime, &path))?;
    std::fs::remove_file(&path)?;
    println!("{}", outcome?);
    Ok(())
}

async fn run(runtime: &Runtime, path: &std::path::Path) -> Result<String, Box<dyn Error>> {
    let handle = runtime.handle();
    let disk = FileDisk::create(&handle, path, DISK_BYTES, FileDiskOptions::default())?;
    let filler = vec![1_u8; 64 * BLOCK_BYTES];
    for start in (0..disk.blocks()).step_by(64) {
        weir_storage::write(&*disk, Part::bytes(Lba(start), &filler)).await?;
    }
    flush(&*disk).await?;
    Volume::create(&handle, &*disk, Format { overwrite: true, ..Format::default() }).await?;
    let volume = Rc::new(Volume::open(&handle, disk, VolumeOptions::default()).await?);
    let span = volume.blocks() * SHARE_PERCENT / 100;
    let mut random = handle.random("append_rate");
    let mut page = vec![0; BLOCK_BYTES];
    random.fill_bytes(&mut page);
    let (began, cpu) = (handle.now(), handle.cpu_time());
    for version in 0..WRITES {
        page[..8].copy_from_slice(&version.to_le_bytes());
        let parts = [Part::bytes(Lba(random.random_range(0..span)), &page)];
        loop {
            match volume.submit(Command::Write(Write::new(&parts))) {
                Ok(_) => break,
                Err(Rejected::Busy) => volume.slots().listen().await,
                Err(error) => return Err(error.into()),
            }
        }
    }
    flush(&*volume).await?;
    let seconds = handle.now().since(began).as_secs_f64();
    let spent = handle.cpu_time();
    let cpu = (spent.user + spent.system - cpu.user - cpu.system).as_secs_f64();
    let rate = WRITES as f64 / seconds;
    Ok(format!("{rate:.0} writes/s, {:.3} us CPU a write\n{:?}", cpu / WRITES as f64 * 1e6, volume.stats()))
}
