//! The content of files: what was written is read, whatever happens in between, as a file in memory would have it;
//! and e2fsck agrees with what is left.

use weir_format::FileType;
use weir_vfs::{Fallocate, FsError, NewNode};

use crate::support::{BLOCKS, disk, judge, mount, new_image, simulated, simulated_with};
use rand::{Rng as _, RngExt as _};
use weir_ext4::ROOT_INODE;
use weir_fs::{BarrierFs, Conflicts, Engine, JournalMode, MountOptions};
use weir_runtime::{Handle, Random};

const DUAL: Engine = Engine::Dual { conflicts: Conflicts::Copy };
const BLOCK: u64 = 4096;

fn options(engine: Engine, mode: JournalMode) -> MountOptions {
    // A small cache, so that pages come and go.
    MountOptions {
        engine: Some(engine),
        mode,
        cache_bytes: 128 * BLOCK,
        dirty_background_bytes: 16 * BLOCK,
        dirty_bytes: 48 * BLOCK,
        ..MountOptions::default()
    }
}

async fn create(fs: &BarrierFs, name: &[u8]) -> u32 {
    fs.create(ROOT_INODE, name, &NewNode::new(FileType::Regular, 0o644)).await.expect("created")
}

/// Files on a filesystem, and the same in memory.
struct Model {
    fs: BarrierFs,
    files: Vec<(u32, Vec<u8>)>,
}

/// No file of the model is larger.
const LARGEST: u64 = 300 * BLOCK;

impl Model {
    async fn step(&mut self, random: &mut Random) {
        let file = random.random_range(0..self.files.len());
        let (inode, content) = &mut self.files[file];
        let inode = *inode;
        let (offset, length) = range(random);
        let end = offset + length;
        let fs = &self.fs;
        let grow = |content: &mut Vec<u8>, size: u64| content.resize(content.len().max(size as usize), 0);
        let zero = |content: &mut Vec<u8>| {
            let size = content.len();
            content[size.min(offset as usize)..size.min(end as usize)].fill(0);
        };
        match random.random_range(0..100) {
            0..40 => {
                let mut bytes = vec![0; length as usize];
                random.fill_bytes(&mut bytes);
                assert_eq!(fs.write(inode, offset, &bytes).await, Ok(bytes.len()));
                grow(content, end);
                content[offset as usize..end as usize].copy_from_slice(&bytes);
            }
            40..65 => {
                let mut bytes = vec![1; length as usize];
                let read = fs.read(inode, offset, &mut bytes).await.expect("read");
                let (from, to) = (content.len().min(offset as usize), content.len().min(end as usize));
                assert_eq!(read, to - from);
                assert!(bytes[..read] == content[from..to], "file {file}, {length} bytes at {offset}");
            }
            65..72 => {
                let size = if random.random_bool(0.5) { offset } else { end };
                fs.truncate(inode, size).await.expect("truncated");
                content.resize(size as usize, 0);
            }
            72..77 => {
                let keep_size = random.random_bool(0.5);
                fs.fallocate(inode, Fallocate::Allocate { keep_size }, offset, length)
                    .await
                    .expect("allocated");
                if !keep_size {
                    grow(content, end);
                }
            }
            77..82 => {
                fs.fallocate(inode, Fallocate::PunchHole, offset, length).await.expect("punched");
                zero(content);
            }
            82..87 => {
                let keep_size = random.random_bool(0.5);
                fs.fallocate(inode, Fallocate::ZeroRange { keep_size }, offset, length)
                    .await
                    .expect("zeroed");
                zero(content);
                if !keep_size {
                    grow(content, end);
                }
            }
            87..89 => fs.fsync(inode).await.expect("durable"),
            89..91 => fs.fdatasync(inode).await.expect("durable"),
            91..94 => fs.fbarrier(inode).await.expect("ordered"),
            94..98 => fs.fdatabarrier(inode).await.expect("ordered"),
            _ => fs.sync().await.expect("durable"),
        }
    }

    async fn check(&self) {
        for (inode, content) in &self.files {
            let mut bytes = vec![1; content.len() + 10];
            assert_eq!(self.fs.read(*inode, 0, &mut bytes).await, Ok(content.len()));
            let differs = (0..content.len()).find(|at| bytes[*at] != content[*at]);
            assert_eq!(differs, None, "inode {inode} of {} bytes", content.len());
        }
    }
}

/// A range of a file: of whole blocks, within one, or anything.
fn range(random: &mut Random) -> (u64, u64) {
    let offset = random.random_range(0..LARGEST / 2);
    let longest = if random.random_bool(0.2) { LARGEST / 2 } else { 5 * BLOCK };
    let length = random.random_range(1..longest);
    match random.random_range(0..3) {
        0 => (offset / BLOCK * BLOCK, length.next_multiple_of(BLOCK)),
        1 => (offset, length % BLOCK + 1),
        _ => (offset, length),
    }
}

/// Random operations on a few files, with remounts in between.
async fn play(clock: Handle, options: MountOptions) -> weir_storage::Image {
    let disk = disk(&clock, &new_image(BLOCKS), true);
    let mut random = clock.random("operations");
    let mut model = Model { fs: mount(&clock, &disk, options).await.expect("mounted"), files: Vec::new() };
    for name in [b"a", b"b", b"c"] {
        let inode = create(&model.fs, name).await;
        model.files.push((inode, Vec::new()));
    }
    for _ in 0..4 {
        for _ in 0..150 {
            model.step(&mut random).await;
        }
        model.check().await;
        model.fs.clone().unmount().await.expect("unmounted");
        model.fs = mount(&clock, &disk, options).await.expect("mounted again");
        model.check().await;
    }
    model.fs.unmount().await.expect("unmounted");
    disk.image()
}

#[test]
fn files_are_what_a_model_says() {
    let list = Engine::Dual { conflicts: Conflicts::List };
    let engines = [DUAL, list, Engine::Jbd2 { barrier: true }, Engine::Jbd2 { barrier: false }];
    for (nth, engine) in engines.into_iter().enumerate() {
        for mode in [JournalMode::Ordered, JournalMode::Writeback, JournalMode::Data] {
            for seed in 0..3 {
                let seed = seed * 100 + nth as u64;
                eprintln!("engine {engine:?}, mode {mode:?}, seed {seed}");
                judge(&simulated_with(seed, async |clock| play(clock, options(engine, mode)).await));
            }
        }
    }
}

#[test]
fn a_sparse_file_of_100_gib_has_one_block() {
    let left = simulated(async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
        let inode = create(&fs, b"sparse").await;
        let (far, before) = (100 << 30, fs.statfs().await.free_blocks);
        assert_eq!(fs.write(inode, far, b"the end").await, Ok(7));
        assert_eq!(before - fs.statfs().await.free_blocks, 1);
        let mut bytes = [1; 20];
        assert_eq!(fs.read(inode, far - 10, &mut bytes).await, Ok(17));
        assert_eq!(&bytes[..17], b"\0\0\0\0\0\0\0\0\0\0the end");
        assert_eq!(fs.seek_data(inode, 0).await, Ok(Some(far)));
        assert_eq!(fs.seek_hole(inode, 0).await, Ok(Some(0)));
        assert_eq!(fs.seek_hole(inode, far).await, Ok(Some(far + 7)));
        assert_eq!(fs.seek_data(inode, far + 7).await, Ok(None));
        // What is allocated counts as well, but nothing behind the end, and no more than is asked for.
        let allocate = Fallocate::Allocate { keep_size: true };
        fs.fallocate(inode, allocate, BLOCK, 5 * BLOCK).await.expect("allocated");
        fs.fallocate(inode, allocate, far + 9 * BLOCK, BLOCK).await.expect("allocated");
        assert_eq!(fs.mapped_blocks(inode, u64::MAX).await, Ok(6));
        assert_eq!(fs.mapped_blocks(inode, 3).await, Ok(5), "it ends with the extent that is too much");
        fs.truncate(inode, u64::MAX).await.expect_err("larger than a file can be");
        fs.unmount().await.expect("unmounted");
        disk.image()
    });
    judge(&left);
}

#[test]
fn a_file_is_as_large_as_the_kernels_ext4_has_it() {
    let left = simulated(async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
        let (inode, end) = (create(&fs, b"large").await, (1 << 44) - BLOCK);
        assert_eq!(fs.truncate(inode, end + 1).await, Err(FsError::TooLarge));
        fs.truncate(inode, end).await.expect("as large as that");
        assert_eq!(fs.write(inode, end - 2, b"far").await, Ok(2), "as far as there is room");
        assert_eq!(fs.write(inode, end, b"far").await, Err(FsError::TooLarge));
        fs.fsync(inode).await.expect("durable");
        assert_eq!(fs.seek_data(inode, 0).await, Ok(Some(end - BLOCK)));
        fs.fallocate(inode, Fallocate::PunchHole, end - 1, 1).await.expect("one byte");
        let mut bytes = [1; 4];
        assert_eq!(fs.read(inode, end - 3, &mut bytes).await, Ok(3));
        assert_eq!(bytes, [0, b'f', 0, 1]);
        fs.unmount().await.expect("unmounted");
        disk.image()
    });
    judge(&left);
}

#[test]
fn a_full_disk_says_so_and_takes_more_once_there_is_room() {
    for mode in [JournalMode::Ordered, JournalMode::Data] {
        let left = simulated(async |clock| {
            let disk = disk(&clock, &new_image(BLOCKS), true);
            let fs = mount(&clock, &disk, options(DUAL, mode)).await.expect("mounted");
            let (one, two) = (create(&fs, b"one").await, create(&fs, b"two").await);
            let megabyte = vec![7; 1 << 20];
            let mut size = 0;
            let full = loop {
                match fs.write(one, size, &megabyte).await {
                    Ok(written) => size += written as u64,
                    Err(error) => break error,
                }
            };
            assert_eq!(full, FsError::NoSpace);
            assert_eq!(fs.write(two, 0, b"more").await, Err(FsError::NoSpace));
            assert_eq!(
                fs.fallocate(two, Fallocate::Allocate { keep_size: true }, 0, 1 << 20).await,
                Err(FsError::NoSpace)
            );
            // What is freed can be used at once, though only after its commit (J7).
            fs.truncate(one, size / 2).await.expect("truncated");
            assert_eq!(fs.write(two, 0, &megabyte).await, Ok(1 << 20));
            let mut bytes = vec![0; 1 << 20];
            assert_eq!(fs.read(one, 1 << 20, &mut bytes).await, Ok(1 << 20));
            assert!(bytes == megabyte);
            fs.unmount().await.expect("unmounted");
            disk.image()
        });
        judge(&left);
    }
}

/// A file of many extents takes many transactions to truncate.
#[test]
fn a_truncation_of_many_extents_leaves_nothing_behind() {
    let left = simulated(async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
        let inode = create(&fs, b"a").await;
        let before = fs.statfs().await.free_blocks;
        for block in 0..1000 {
            fs.write(inode, 2 * block * BLOCK, b"x").await.expect("written");
        }
        assert!(before - fs.statfs().await.free_blocks > 1000, "nodes of the tree are counted");
        fs.truncate(inode, 5 * BLOCK + 10).await.expect("truncated");
        assert_eq!(fs.seek_data(inode, 5 * BLOCK).await, Ok(None));
        let mut bytes = vec![1; 6 * BLOCK as usize];
        assert_eq!(fs.read(inode, 0, &mut bytes).await, Ok(5 * BLOCK as usize + 10));
        let written: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] == b'x').collect();
        assert_eq!(written, [0, 2 * BLOCK as usize, 4 * BLOCK as usize]);
        fs.truncate(inode, 0).await.expect("truncated");
        assert_eq!(before, fs.statfs().await.free_blocks);
        fs.unmount().await.expect("unmounted");
        disk.image()
    });
    judge(&left);
}

/// As ext4 has it: that is how programs give back what they have allocated in advance.
#[test]
fn setting_the_size_that_it_has_frees_what_is_allocated_behind_the_end() {
    let left = simulated(async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
        let inode = create(&fs, b"a").await;
        fs.write(inode, 0, &[7; 5000]).await.expect("written");
        fs.fsync(inode).await.expect("durable");
        let before = fs.statfs().await.free_blocks;
        let behind = Fallocate::Allocate { keep_size: true };
        fs.fallocate(inode, behind, 0, 1 << 20).await.expect("allocated");
        assert!(before - fs.statfs().await.free_blocks >= 254);
        fs.truncate(inode, 5000).await.expect("truncated");
        assert_eq!(before, fs.statfs().await.free_blocks);
        let mut bytes = vec![0; 6000];
        assert_eq!(fs.read(inode, 0, &mut bytes).await, Ok(5000));
        assert!(bytes[..5000].iter().all(|&byte| byte == 7));
        fs.unmount().await.expect("unmounted");
        disk.image()
    });
    judge(&left);
}

#[test]
fn a_file_written_in_order_is_contiguous() {
    simulated(async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
        let inode = create(&fs, b"a").await;
        for block in 0..500 {
            fs.write(inode, block * BLOCK, &[block as u8; BLOCK as usize]).await.expect("written");
            fs.fbarrier(inode).await.expect("ordered");
        }
        let before = fs.statfs().await.free_blocks;
        fs.unmount().await.expect("unmounted");
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
        // One extent needs no node of its own: nothing but the data is freed.
        fs.truncate(inode, 0).await.expect("truncated");
        assert_eq!(fs.statfs().await.free_blocks - before, 500);
    });
}

/// Many tasks on the same files, with a cache of 128 pages, writeback, and commits in between.
#[test]
fn tasks_do_not_disturb_each_other() {
    for mode in [JournalMode::Ordered, JournalMode::Data] {
        let left = simulated_with(7, async |clock| {
            let disk = disk(&clock, &new_image(BLOCKS), true);
            let fs = mount(&clock, &disk, options(DUAL, mode)).await.expect("mounted");
            let inode = create(&fs, b"shared").await;
            let tasks: Vec<_> = (0..8_u8)
                .map(|task| {
                    let (fs, clock) = (fs.clone(), clock.clone());
                    clock.clone().spawn(own_blocks(clock, fs, inode, task))
                })
                .collect();
            for task in tasks {
                task.await.expect("not cancelled");
            }
            fs.unmount().await.expect("unmounted");
            disk.image()
        });
        judge(&left);
    }
}

/// Writes, reads, frees and synchronises every eighth block of a file.
async fn own_blocks(clock: Handle, fs: BarrierFs, inode: u32, task: u8) {
    let mut random = clock.random("task");
    let mut blocks = [0_u8; 40];
    for round in 1..150_u8 {
        let nth = random.random_range(0..blocks.len());
        let offset = (nth as u64 * 8 + u64::from(task)) * BLOCK;
        let mut bytes = [0; BLOCK as usize];
        match random.random_range(0..10) {
            0..4 => {
                blocks[nth] = round;
                assert_eq!(fs.write(inode, offset, &[round; BLOCK as usize]).await, Ok(bytes.len()));
            }
            4 => {
                blocks[nth] = 0;
                fs.fallocate(inode, Fallocate::PunchHole, offset, BLOCK).await.expect("punched");
            }
            5 => fs.fsync(inode).await.expect("durable"),
            6 => fs.fbarrier(inode).await.expect("ordered"),
            7 => fs.fdatabarrier(inode).await.expect("ordered"),
            _ => {
                let read = fs.read(inode, offset, &mut bytes).await.expect("read");
                assert!(bytes[..read].iter().all(|byte| *byte == blocks[nth]), "task {task}, block {nth}");
            }
        }
    }
}
