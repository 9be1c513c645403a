//! Names under pressure: many tasks that change one small tree at once, and a disk that is full.

use weir_format::{Cookie, FileType};
use weir_vfs::{Expect, FsError, NewNode, RenameFlags};

use crate::support::{
    BLOCKS, disk, image_of, judge, mount, new_image, plan, simulated, simulated_with, write_file,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use weir_ext4::{Mkfs, ROOT_INODE};
use weir_fs::{BarrierFs, Conflicts, Discards, Engine, JournalMode, MountOptions};

const TASKS: u64 = 8;
const OPERATIONS: usize = 400;

/// What may come of an operation whose names others change meanwhile.
fn is_expected<T>(done: &Result<T, FsError>) -> bool {
    use FsError::{Exists, Invalid, IsDirectory, NotDirectory, NotEmpty, NotFound};
    matches!(done, Ok(_) | Err(Exists | Invalid(_) | IsDirectory | NotDirectory | NotEmpty | NotFound))
}

/// Changes the tree at random places, most of them found by path just before; how often it worked.
async fn disturb(fs: BarrierFs, mut random: Pcg64) -> usize {
    let mut worked = 0;
    let name = |random: &mut Pcg64| [b'a' + random.random_range(0..4_u8)];
    for _ in 0..OPERATIONS {
        let mut path = Vec::new();
        for _ in 0..random.random_range(0..3) {
            path.extend([b'/', name(&mut random)[0]]);
        }
        let directory = fs.resolve(&path).await.unwrap_or(ROOT_INODE);
        let other = fs.resolve(&[b'/', name(&mut random)[0]]).await.unwrap_or(ROOT_INODE);
        let (one, two) = (name(&mut random), name(&mut random));
        let done = match random.random_range(0..12) {
            0..2 => fs.create(directory, &one, &NewNode::new(FileType::Regular, 0o644)).await.map(drop),
            2..5 => fs.mkdir(directory, &one, &NewNode::new(FileType::Directory, 0o755)).await.map(drop),
            5 => fs.unlink(directory, &one).await,
            6 => fs.rmdir(directory, &one).await,
            7 => match fs.lookup(directory, &one).await {
                Ok(inode) => match fs.write(inode, 0, &[1; 5000]).await {
                    Ok(_) => fs.fsync(inode).await,
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            },
            8 => match fs.lookup(directory, &one).await {
                Ok(inode) => fs.link(inode, other, &two).await.or_else(|error| match error {
                    FsError::NotPermitted(_) => Ok(()),
                    other => Err(other),
                }),
                Err(error) => Err(error),
            },
            9 => {
                let opened = match fs.lookup(directory, &one).await {
                    Ok(inode) => fs.open(inode).await.map(|()| inode),
                    Err(error) => Err(error),
                };
                let removed = fs.unlink(directory, &one).await;
                assert!(is_expected(&removed), "{removed:?}");
                match opened {
                    Ok(inode) => fs.release(inode).await,
                    Err(error) => Err(error),
                }
            }
            nth => {
                let flags = RenameFlags { exchange: nth == 11, ..RenameFlags::default() };
                fs.rename((directory, &one), (other, &two), flags).await
            }
        };
        assert!(is_expected(&done), "{done:?}");
        worked += usize::from(done.is_ok());
    }
    worked
}

#[test]
fn many_tasks_change_one_tree() {
    let engines = [
        (Engine::Dual { conflicts: Conflicts::Copy }, JournalMode::Ordered),
        (Engine::Dual { conflicts: Conflicts::List }, JournalMode::Data),
        (Engine::Jbd2 { barrier: true }, JournalMode::Ordered),
    ];
    for (seed, (engine, mode)) in (0..).zip(engines) {
        let left = simulated_with(seed, async |clock| {
            let disk = disk(&clock, &new_image(BLOCKS), true);
            // A small cache, so that operations have to wait for blocks, and meet.
            let cache_metadata_blocks = 4;
            let options =
                MountOptions { engine: Some(engine), mode, cache_metadata_blocks, ..Default::default() };
            let fs = mount(&clock, &disk, options).await.expect("mounted");
            let mut tasks = Vec::new();
            for task in 0..TASKS {
                tasks.push(clock.spawn(disturb(fs.clone(), Pcg64::seed_from_u64(100 * seed + task))));
            }
            // Two that wait for each other would stall the simulation here, which it tells.
            let mut worked = 0;
            for task in tasks {
                worked += task.await.expect("not cancelled");
            }
            assert!(worked > TASKS as usize * OPERATIONS / 5, "only {worked} operations worked");
            fs.unmount().await.expect("unmounted");
            disk.image()
        });
        judge(&left);
    }
}

/// Does something until there is no space for it; how often it worked.
async fn until_full(mut fill: impl AsyncFnMut(u32) -> Result<(), FsError>) -> u32 {
    for nth in 0..100_000 {
        match fill(nth).await {
            Ok(()) => {}
            Err(FsError::NoSpace) => return nth,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the disk does not get full");
}

#[test]
fn a_full_disk_says_so_and_stays_whole() {
    let (full, empty) = simulated(async |clock| {
        let disk = disk(&clock, &new_image(4096), true);
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
        let fresh = fs.statfs().await;
        let directory = NewNode::new(FileType::Directory, 0o755);
        let home = fs.mkdir(ROOT_INODE, b"home", &directory).await.expect("made");
        let file = fs.create(home, b"file", &NewNode::new(FileType::Regular, 0o644)).await.expect("made");
        // All but some blocks go to one file, the rest to directories, long links and attributes, in turn.
        let free = fs.statfs().await.free_blocks;
        let ballast = vec![7; 4096];
        for nth in 0..free.saturating_sub(300) {
            fs.write(file, nth * 4096, &ballast).await.expect("room");
        }
        fs.fsync(file).await.expect("durable");
        let target = vec![b'x'; 4000];
        let made = until_full(async |nth| {
            let name = format!("{nth:0200}").into_bytes();
            match nth % 3 {
                0 => fs.mkdir(home, &name, &directory).await.map(drop),
                1 => fs.symlink(home, &name, &target, (0, 0)).await.map(drop),
                _ => {
                    let inode = fs.create(home, &name, &NewNode::new(FileType::Regular, 0o644)).await?;
                    fs.set_extended_attribute(inode, b"user.large", &target[..2000], Expect::Anything).await
                }
            }
        })
        .await;
        assert!(made > 100, "{made}");
        let name = format!("{:0200}", 0).into_bytes();
        let other = fs.lookup(home, &format!("{:0200}", 1).into_bytes()).await.expect("there");
        // What needs no space works still.
        fs.rename((home, &name), (ROOT_INODE, b"moved"), RenameFlags::default()).await.expect("moved");
        fs.link(other, ROOT_INODE, b"linked").await.expect("linked");
        fs.unmount().await.expect("unmounted");
        let full = disk.image();

        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted again");
        for entry in fs.read_directory(home, Cookie::DOT_DOT).await.expect("readable") {
            match fs.unlink(home, &entry.name).await {
                Err(FsError::IsDirectory) => fs.rmdir(home, &entry.name).await.expect("removed"),
                done => done.expect("removed"),
            }
        }
        fs.rmdir(ROOT_INODE, b"moved").await.expect("removed");
        fs.unlink(ROOT_INODE, b"linked").await.expect("removed");
        fs.rmdir(ROOT_INODE, b"home").await.expect("removed");
        let now = fs.statfs().await;
        assert_eq!((now.free_blocks, now.free_inodes), (fresh.free_blocks, fresh.free_inodes));
        fs.unmount().await.expect("unmounted");
        (full, disk.image())
    });
    judge(&full);
    judge(&empty);
}

/// On a full disk one block is freed and taken again, while home writes wait for queue space and hold back what is
/// freed.
#[test]
fn what_was_freed_can_be_had_while_a_checkpoint_is_under_way() {
    const SCATTERED: u64 = 300;
    simulated(async |clock| {
        let disk = disk(&clock, &image_of(&Mkfs { reserved_percent: 0, ..plan(8192) }), true);
        let options = MountOptions { mode: JournalMode::Data, ..MountOptions::default() };
        let fs = mount(&clock, &disk, options).await.expect("mounted");
        let scattered = write_file(&fs, b"scattered", b"x").await;
        let one = write_file(&fs, b"one block", b"x").await;
        let ballast = write_file(&fs, b"ballast", b"x").await;
        fs.write(scattered, 0, &vec![1; 2 * 4096 * SCATTERED as usize]).await.expect("room");
        let mut size = 0;
        until_full(async |_| {
            size += fs.write(ballast, size, &[7; 1 << 16]).await? as u64;
            Ok(())
        })
        .await;
        fs.sync().await.expect("durable");
        let before = fs.statistics().journal.checkpoints;
        for round in 0..20_u8 {
            // Through the journal, and home one by one: the queue does not take them all.
            for block in 0..SCATTERED {
                fs.write(scattered, 2 * block * 4096, &[round; 4096]).await.expect("written");
            }
            fs.fbarrier(scattered).await.expect("ordered");
            for _ in 0..20 {
                fs.truncate(one, 0).await.expect("truncated");
                fs.write(one, 0, &[2; 4096]).await.expect("what was freed before");
            }
        }
        assert!(fs.statistics().journal.checkpoints - before > 10, "home writes are under way");
    });
}

/// What is being discarded is free, and to be had when that is over.
#[test]
fn blocks_that_are_being_discarded_are_waited_for() {
    for wait in [0, 1, 20, 60, 100, 1000] {
        simulated(async |clock| {
            let disk = disk(&clock, &new_image(BLOCKS), true);
            let discard_delay = std::time::Duration::ZERO;
            let options = MountOptions { discard: Discards::On, discard_delay, ..MountOptions::default() };
            let fs = mount(&clock, &disk, options).await.expect("mounted");
            let chunk = vec![1; 1 << 20];
            let fill = async |name: &[u8]| {
                let file = write_file(&fs, name, b"").await;
                let mut size = 0;
                until_full(async |_| {
                    size += fs.write(file, size, &chunk).await? as u64;
                    Ok(())
                })
                .await;
                (file, size)
            };
            let (first, size) = fill(b"first").await;
            fs.fsync(first).await.expect("durable");
            fs.unlink(ROOT_INODE, b"first").await.expect("gone");
            fs.sync().await.expect("durable");
            clock.sleep(std::time::Duration::from_micros(wait)).await;
            assert_eq!(fill(b"second").await.1, size, "{wait} us later");
        });
    }
}
