//! Order and durability between files of BarrierFS: `cargo run --release -p weir-bench --example files -- FILE`.
//!
//! The file must not exist yet; it stays, as a volume with a filesystem in it. The function `run` is shown
//! in docs/users/rust.md, too; a test checks that the two are the same.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

use weir_ext4::{Mkfs, ROOT_INODE};
use weir_format::FileType;
use weir_fs::{BarrierFs, MountOptions};
use weir_runtime::{Handle, Runtime, Wall};
use weir_storage::{FileDisk, FileDiskOptions, Storage};
use weir_vfs::{FsError, NewNode};
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
    let handle = runtime.handle();
    runtime.block_on(async {
        let disk = FileDisk::create(&handle, &path, 64 << 20, FileDiskOptions::default())?;
        Volume::create(&handle, &*disk, Format::default()).await?;
        let volume = Rc::new(Volume::open(&handle, disk, VolumeOptions::default()).await?);
        let created = u32::try_from(handle.wall_clock_millis() / 1000).unwrap_or(u32::MAX);
        let mkfs = Mkfs::new(volume.blocks(), *b"an example's own", *b"names are hashed", created);
        BarrierFs::make(&*volume, &mkfs).await?;
        run(&handle, volume.clone()).await?;
        Ok(volume.close().await?)
    })?
}

async fn run(handle: &Handle, volume: Rc<dyn Storage>) -> Result<(), FsError> {
    let fs = BarrierFs::mount(handle, volume, MountOptions::default()).await?;
    let regular = NewNode::new(FileType::Regular, 0o644);
    let log = fs.create(ROOT_INODE, b"log", &regular).await?;
    let data = fs.create(ROOT_INODE, b"data", &regular).await?;

    fs.write(log, 0, b"what is going to be done").await?;
    fs.fdatabarrier(log).await?; // this before whatever is written from now on
    fs.write(data, 0, b"done").await?;
    fs.fsync(data).await?; // and now both are safe
    fs.unmount().await
}
