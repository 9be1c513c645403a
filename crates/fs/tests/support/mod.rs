//! A filesystem for tests: on a disk in memory or an emulated flash device, in virtual time, and e2fsck to judge
//! what is left.

#![allow(dead_code, reason = "each test uses a part of it")]

pub mod faulty;
pub mod hostile;

use std::cell::RefCell;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Output;
use std::rc::Rc;

use rand::RngExt as _;
use tempfile::NamedTempFile;
use weir_ext4::{Mkfs, ROOT_INODE, SUPERBLOCK_OFFSET, Superblock};
use weir_flash::{FlashDevice, FlashOptions, Mechanism, Profile};
use weir_format::FileType;
use weir_fs::{BarrierFs, Engine, MountOptions, Needs};
use weir_runtime::{Handle, Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Discard, Image, Lba, Ordering, Storage,
};
use weir_vfs::{FsError, InodeNumber, NewNode};

#[path = "../../../crash/src/system.rs"]
mod system_program;
use system_program::system;

/// 64 MiB: an image that has room for a journal and for files.
pub const BLOCKS: u64 = 16_384;

/// Unix time that e2fsck takes for now: behind that of all simulated clocks.
const JUDGES_TIME: &str = "1900000000";

/// Runs `script` in virtual time.
pub fn simulated<T>(script: impl AsyncFnOnce(Handle) -> T) -> T {
    simulated_with(0, script)
}

/// Runs `script` in virtual time, its randomness drawn from `seed`.
pub fn simulated_with<T>(seed: u64, script: impl AsyncFnOnce(Handle) -> T) -> T {
    let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
    runtime.block_on(script(runtime.handle())).expect("it does not wait for ever")
}

/// What a new filesystem of `blocks` blocks is like.
pub fn plan(blocks: u64) -> Mkfs {
    Mkfs { zeroed: true, ..Mkfs::new(blocks, *b"sixteen bytes id", *b"another sixteen.", 1_700_000_000) }
}

/// A new filesystem.
pub fn new_image(blocks: u64) -> Image {
    image_of(&plan(blocks))
}

/// A new filesystem with these options.
pub fn image_of(options: &Mkfs) -> Image {
    let mut image = Image::zeroed(options.blocks, BLOCK_BYTES as u32);
    for (block, bytes) in options.plan().expect("options in range").writes() {
        image.write(Lba(block), &bytes);
    }
    image
}

/// A filesystem made by mkfs.ext4 with these options and size; none, with a word on it, where that is missing.
pub fn image_by_mke2fs(options: &[&str], size: &str) -> Option<Image> {
    let file = NamedTempFile::new().expect("a temporary file");
    let path = file.path().to_str().expect("a plain path");
    let arguments: Vec<&str> =
        ["-q", "-F", "-b", "4096"].iter().chain(options).copied().chain([path, size]).collect();
    let output = run("mkfs.ext4", &arguments)?;
    assert!(output.status.success(), "mkfs.ext4: {}", String::from_utf8_lossy(&output.stderr));
    Some(load(file.path()))
}

/// What a power cut may leave at events of the disk from now on, at one of `one_of` events: a list that grows.
pub fn collect_crash_states(clock: &Handle, disk: &AdversaryDisk, one_of: u32) -> Rc<RefCell<Vec<Image>>> {
    let images = Rc::new(RefCell::new(Vec::new()));
    let (states, random) = (Rc::clone(&images), RefCell::new(clock.random("crash")));
    disk.observe(Box::new(move |disk| {
        let mut random = random.borrow_mut();
        if random.random_ratio(1, one_of) {
            states.borrow_mut().push(disk.crash_states().sample(&mut random));
        }
    }));
    images
}

/// Reads an image from a file.
pub fn load(path: &Path) -> Image {
    let bytes = std::fs::read(path).expect("an image");
    let mut image = Image::zeroed((bytes.len() / BLOCK_BYTES) as u64, BLOCK_BYTES as u32);
    image.write(Lba(0), &bytes);
    image
}

/// Writes an image to a temporary file, which is sparse where the image is zero.
pub fn store(image: &Image) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a temporary file");
    let out: &File = file.as_file();
    out.set_len(image.blocks() * BLOCK_BYTES as u64).expect("room");
    for block in 0..image.blocks() {
        let bytes = image.read(Lba(block));
        if bytes.iter().any(|byte| *byte != 0) {
            out.write_all_at(&bytes, block * BLOCK_BYTES as u64).expect("room");
        }
    }
    file
}

/// What a disk in memory can do: everything, with barriers or without.
pub fn capabilities(barriers: bool) -> Capabilities {
    let legacy = Capabilities::legacy(32, 256, 4096);
    let ordering = if barriers { Ordering::Barrier } else { legacy.ordering };
    Capabilities {
        ordering,
        ordered_service: barriers,
        fua: true,
        preflush: true,
        discard: Discard::ReadsZero,
        packed: true,
        ..legacy
    }
}

/// A disk in memory with this content, that takes some time for each command, and behaves as badly as it may
/// when its power is cut.
pub fn disk(clock: &Handle, image: &Image, barriers: bool) -> Rc<AdversaryDisk> {
    let options = AdversaryOptions {
        capabilities: capabilities(barriers),
        latency_ns_max: 100_000,
        ..AdversaryOptions::default()
    };
    AdversaryDisk::from_image(clock, options, image)
}

/// The same, of the kind that an engine is for: a prefix device where it needs one, else with barriers.
pub fn disk_for(clock: &Handle, image: &Image, engine: Engine) -> Rc<AdversaryDisk> {
    if engine.facts().needs != Needs::Prefix { disk(clock, image, true) } else { prefix_disk(clock, image) }
}

/// The same, as a prefix device.
pub fn prefix_disk(clock: &Handle, image: &Image) -> Rc<AdversaryDisk> {
    let capabilities = Capabilities { ordering: Ordering::Prefix, ..capabilities(false) };
    let options = AdversaryOptions { capabilities, latency_ns_max: 100_000, ..AdversaryOptions::default() };
    AdversaryDisk::from_image(clock, options, image)
}

/// A barrier-compliant emulated UFS device of `blocks` blocks.
pub fn flash(clock: &Handle, blocks: u64) -> Rc<FlashDevice> {
    let profile = Profile::builtin("ufs20").expect("built in").with_capacity(blocks);
    let profile = profile.with_mechanism(Mechanism::InOrderRecovery);
    FlashDevice::new(clock, &profile, FlashOptions::default())
}

/// Mounts what is on a storage.
pub async fn mount(
    clock: &Handle,
    storage: &Rc<impl Storage + 'static>,
    options: MountOptions,
) -> Result<BarrierFs, FsError> {
    BarrierFs::mount(clock, Rc::clone(storage) as Rc<dyn Storage>, options).await
}

/// Makes a file in the root directory, with this content.
pub async fn write_file(fs: &BarrierFs, name: &[u8], content: &[u8]) -> InodeNumber {
    let inode = fs.create(ROOT_INODE, name, &NewNode::new(FileType::Regular, 0o644)).await.expect("created");
    let mut written = 0;
    while written < content.len() {
        written += fs.write(inode, written as u64, &content[written..]).await.expect("written");
    }
    inode
}

/// Reads a file of the root directory.
pub async fn read_file(fs: &BarrierFs, name: &[u8]) -> Result<Vec<u8>, FsError> {
    let inode = fs.lookup(ROOT_INODE, name).await?;
    let mut content = vec![0; fs.attributes(inode).await?.size as usize];
    let mut read = 0;
    while read < content.len() {
        let now = fs.read(inode, read as u64, &mut content[read..]).await?;
        assert!(now > 0, "the file ends early");
        read += now;
    }
    Ok(content)
}

/// Content that tells where it is misplaced.
pub fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 7 % 251) as u8).collect()
}

/// What is on a flash device now.
pub fn image_of_flash(device: &FlashDevice) -> Image {
    let mut image = Image::zeroed(device.blocks(), BLOCK_BYTES as u32);
    let mut bytes = vec![0; BLOCK_BYTES];
    for block in 0..device.blocks() {
        device.peek(Lba(block), &mut bytes);
        image.write(Lba(block), &bytes);
    }
    image
}

/// The superblock of an image.
pub fn superblock(image: &Image) -> Superblock {
    Superblock::read(&image.read(Lba(0))[SUPERBLOCK_OFFSET..]).expect("a superblock")
}

/// The blocks of the journal of an image that our mkfs has made: one extent, in the superblock's copy.
pub fn journal_blocks(image: &Image) -> Range<u64> {
    let copy = superblock(image).journal_backup.map(|word| u64::from(word.get()));
    // A header of three words; then the file's block, length and half of the place, and the rest of the place.
    let (length, start) = (copy[4] & 0xFFFF, copy[5] | (copy[4] >> 16) << 32);
    start..start + length
}

/// Runs `script` on a filesystem, and has e2fsck judge what it leaves.
#[track_caller]
pub fn on_image(image: &Image, script: impl AsyncFnOnce(&BarrierFs)) -> Image {
    let left = simulated(async |clock| {
        let disk = disk(&clock, image, true);
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
        script(&fs).await;
        fs.unmount().await.expect("unmounted");
        disk.image()
    });
    judge(&left);
    left
}

/// Asserts that e2fsck, which is not allowed to change anything, has nothing to say against an image.
#[track_caller]
pub fn judge(image: &Image) {
    let file = store(image);
    if let Err(complaint) = verdict(file.path()) {
        panic!("{complaint}");
    }
}

/// What e2fsck says against the image in a file.
pub fn verdict(path: &Path) -> Result<(), String> {
    let Some(output) = run("e2fsck", &["-fn", path.to_str().expect("a plain path")]) else { return Ok(()) };
    let told =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // With the mark: a temporary file's name may hold the word.
    let complaints = ["Fix?", "IGNORED", "ERROR", "WARNING", "skipping journal", "needs_recovery"];
    let clean = output.status.success() && !complaints.iter().any(|complaint| told.contains(complaint));
    if clean { Ok(()) } else { Err(told) }
}

/// What debugfs prints for a command on an image, changing it where the command does; none where it is missing.
pub fn debugfs(path: &Path, command: &str) -> Option<String> {
    let output = run("debugfs", &["-w", "-R", command, path.to_str().expect("a plain path")])?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program of e2fsprogs; none, with a word on it, where it is not installed.
pub fn run(program: &str, arguments: &[&str]) -> Option<Output> {
    let output =
        system(program).args(arguments).env("DEBUGFS_PAGER", "cat").env("E2FSCK_TIME", JUDGES_TIME).output();
    if output.is_err() {
        eprintln!("skipped: {program} is not installed");
    }
    output.ok()
}
