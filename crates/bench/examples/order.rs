//! Write, barrier, flush, on a file: `cargo run --release -p weir-bench --example order -- FILE`.
//!
//! The file must not exist yet; it stays, as a volume that `weir volume check FILE` accepts. The function
//! `run` is shown in docs/users/rust.md, too; a test checks that the two are the same.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use weir_block::{BlockLayer, BlockOptions, Request};
use weir_runtime::{Handle, Runtime, Wall};
use weir_storage::{FileDisk, FileDiskOptions, Lba, Part, StreamId};
use weir_volume::{Format, Volume, VolumeOptions};

#[allow(clippy::print_stderr, reason = "a program says why it fails")]
fn main() -> ExitCode {
    match make() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn make() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map(PathBuf::from).ok_or("name a file to make the volume in")?;
    let runtime = Runtime::wall(Wall::default())?;
    runtime.block_on(run(&runtime.handle(), &path))?
}

async fn run(handle: &Handle, path: &Path) -> Result<(), Box<dyn Error>> {
    let disk = FileDisk::create(handle, path, 64 << 20, FileDiskOptions::default())?;
    Volume::create(handle, &*disk, Format::default()).await?;
    let volume = Rc::new(Volume::open(handle, disk, VolumeOptions::default()).await?);
    let layer = BlockLayer::new(handle, volume.clone(), BlockOptions::default())?;

    // The log before the data. The barrier says so; submitting waits for room in the queue, at most.
    let (log, data) = ([1; 4096], [2; 4096]);
    layer.submit(&Request::barrier(StreamId(0), &[Part::bytes(Lba(0), &log)])).await?;
    layer.submit(&Request::ordered(StreamId(0), &[Part::bytes(Lba(100), &data)])).await?;

    // Both are to be safe now. This waits for the disk.
    layer.flush()?.transferred().await?;
    Ok(volume.close().await?)
}
