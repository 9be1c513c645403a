//! A filesystem on a disk in memory, and its judges.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::rc::Rc;

use weir_f2fs::Mkfs;
use weir_f2fs::check::check;
use weir_format::{BLOCK_BYTES, FileType};
use weir_lfs::{F2fs, F2fsOptions};
use weir_runtime::{Handle, Runtime, Simulation};
use weir_storage::{AdversaryDisk, AdversaryOptions, Capabilities, Image, Lba, Ordering, Storage};
use weir_vfs::{FsError, InodeNumber, NewNode, StorageImage};

use crate::judge::find_complaints;

/// Blocks of the disk, if a test does not need more: 128 MiB.
pub const BLOCKS: u64 = 32_768;

/// A regular file with the usual permissions.
pub fn regular() -> NewNode {
    NewNode::new(FileType::Regular, 0o644)
}

/// A directory with the usual permissions.
pub fn directory() -> NewNode {
    NewNode::new(FileType::Directory, 0o755)
}

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// A page of which every version of every place is another.
pub fn page(place: u64, version: u64) -> Vec<u8> {
    [place, version].map(u64::to_le_bytes).concat().repeat(PAGE / 16)
}

/// A disk with barriers, or one without, that can share.
pub fn options(blocks: u64, barriers: bool) -> AdversaryOptions {
    let legacy = Capabilities::legacy(32, 256, 4096);
    let ordering = if barriers { Ordering::Barrier } else { Ordering::Legacy };
    let capabilities = Capabilities { ordering, ordered_service: barriers, share: true, ..legacy };
    AdversaryOptions { blocks, capabilities, ..AdversaryOptions::default() }
}

/// The plan of a filesystem that fills a disk in memory.
pub fn plan(blocks: u64) -> Mkfs {
    Mkfs { zeroed: true, ..Mkfs::new(blocks, [7; 16], 1, 1_700_000_000) }
}

/// Runs a script in virtual time.
pub fn play<T>(seed: u64, script: impl AsyncFnOnce(Handle) -> T) -> T {
    let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
    let clock = runtime.handle();
    runtime.block_on(script(clock)).expect("no stall")
}

/// A filesystem on a new disk with barriers.
pub async fn mounted(clock: &Handle, blocks: u64, mount: F2fsOptions) -> (Rc<AdversaryDisk>, F2fs) {
    mounted_on(clock, options(blocks, true), mount).await
}

/// A filesystem on a new disk.
pub async fn mounted_on(
    clock: &Handle,
    disk: AdversaryOptions,
    mount: F2fsOptions,
) -> (Rc<AdversaryDisk>, F2fs) {
    let blocks = disk.blocks;
    let disk = AdversaryDisk::new(clock, disk);
    F2fs::make(&*disk, &plan(blocks)).await.expect("made");
    let fs = F2fs::mount(clock, Rc::clone(&disk) as Rc<dyn Storage>, mount).await.expect("mounted");
    (disk, fs)
}

/// Unmounts, and lets all judges look at what is on the disk.
pub async fn unmount_and_judge(disk: &Rc<AdversaryDisk>, fs: F2fs) {
    fs.unmount().await.expect("unmounted");
    drop(fs);
    judge_disk(Rc::clone(disk) as Rc<dyn Storage>).await;
    judge_image(&disk.image());
}

/// Lets the check of Weir look at a disk.
pub async fn judge_disk(disk: Rc<dyn Storage>) {
    let report = check(&StorageImage(disk)).await.expect("readable");
    assert!(report.is_clean(), "{report:#?}");
}

/// Lets fsck.f2fs look at an image.
pub fn judge_image(image: &Image) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("image");
    let file = File::create(&path).expect("a file");
    file.set_len(image.blocks() * BLOCK_BYTES as u64).expect("a sparse file");
    for block in 0..image.blocks() {
        let bytes = image.read(Lba(block));
        if bytes.iter().any(|byte| *byte != 0) {
            file.write_all_at(&bytes, block * BLOCK_BYTES as u64).expect("written");
        }
    }
    if let Some(complaints) = find_complaints(&path) {
        assert!(complaints.is_empty(), "{complaints:#?}");
    }
}

/// All of a file's content.
pub async fn content(fs: &F2fs, inode: InodeNumber) -> Result<Vec<u8>, FsError> {
    let size = fs.attributes(inode).await?.size as usize;
    let mut bytes = vec![0; size + 10];
    let read = fs.read(inode, 0, &mut bytes).await?;
    bytes.truncate(read);
    Ok(bytes)
}
