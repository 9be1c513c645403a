//! What is left without an unmount: the next mount replays the journal and finishes orphans, and can itself be
//! interrupted anywhere.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use weir_format::FileType;
use weir_vfs::{FsError, NewNode, Statfs};

use crate::support::{
    self, BLOCKS, collect_crash_states, content, debugfs, disk, disk_for, image_by_mke2fs, journal_blocks,
    judge, load, mount, new_image, read_file, simulated_with, store, superblock, verdict, write_file,
};
use weir_ext4::{Feature, ROOT_INODE, SUPERBLOCK_OFFSET};
use weir_fs::{BarrierFs, Conflicts, Engine, FsMutant, JournalMode, JournalMutant, MountOptions};
use weir_runtime::Handle;
use weir_storage::{AdversaryDisk, Image, Lba, Rules, Storage};

const ENGINES: [Engine; 4] = [
    Engine::Dual { conflicts: Conflicts::Copy },
    Engine::Dual { conflicts: Conflicts::List },
    Engine::Jbd2 { barrier: true },
    Engine::Prefix,
];

fn options(engine: Engine) -> MountOptions {
    MountOptions { engine: Some(engine), ..MountOptions::default() }
}

/// Files made, synced, removed and truncated, one of them open without a name at the end; which of them are
/// durable.
async fn work(fs: &BarrierFs) -> BTreeMap<Vec<u8>, usize> {
    let mut durable = BTreeMap::new();
    for nth in 0..8_usize {
        let name = format!("file {nth}").into_bytes();
        let inode = write_file(fs, &name, &content(10_000 * nth + 1)).await;
        if nth % 3 == 1 {
            fs.fsync(inode).await.expect("durable");
            durable.insert(name, 10_000 * nth + 1);
        }
    }
    let gone = write_file(fs, b"gone", &content(300_000)).await;
    fs.open(gone).await.expect("open");
    fs.unlink(ROOT_INODE, b"gone").await.expect("unlinked");
    let new = NewNode::new(FileType::Directory, 0o755);
    fs.mkdir(ROOT_INODE, b"directory", &new).await.expect("made");
    durable
}

/// Mounts what a crash has left, and looks for what was durable.
async fn recover(
    clock: &Handle,
    disk: &Rc<AdversaryDisk>,
    engine: Engine,
    durable: &BTreeMap<Vec<u8>, usize>,
) -> Result<BarrierFs, String> {
    let fs = mount(clock, disk, options(engine)).await.map_err(|error| error.to_string())?;
    for (name, bytes) in durable {
        let found = read_file(&fs, name).await.map_err(|error| error.to_string())?;
        if found != content(*bytes) {
            return Err(format!("{} has another content", String::from_utf8_lossy(name)));
        }
    }
    Ok(fs)
}

/// Dropped without unmount, with the storage intact: everything that was committed is there.
#[test]
fn what_is_dropped_is_recovered() {
    for engine in ENGINES {
        let left = simulated_with(1, async |clock| {
            let disk = disk_for(&clock, &new_image(BLOCKS), engine);
            let fs = mount(&clock, &disk, options(engine)).await.expect("mounted");
            let free = fs.statfs().await;
            let mut there = work(&fs).await;
            fs.sync().await.expect("synchronised");
            there.insert(b"file 7".to_vec(), 70_001);
            drop(fs);
            let refused = mount(&clock, &disk, MountOptions { read_only: true, ..options(engine) }).await;
            assert_eq!(refused.err(), Some(FsError::NeedsRecovery));
            let fs = recover(&clock, &disk, engine, &there).await.expect("recovered");
            for nth in 0..8 {
                fs.unlink(ROOT_INODE, format!("file {nth}").as_bytes()).await.expect("unlinked");
            }
            fs.rmdir(ROOT_INODE, b"directory").await.expect("removed");
            assert_eq!(fs.statfs().await, free, "the orphan and all files are gone");
            fs.unmount().await.expect("unmounted");
            disk.image()
        });
        judge(&left);
        assert_eq!(superblock(&left).last_orphan.get(), 0);
    }
}

/// A filesystem that no caller has any more writes nothing: the storage may be mounted again by then.
#[test]
fn what_is_dropped_writes_nothing_later() {
    for engine in ENGINES {
        simulated_with(0, async |clock| {
            let disk = disk_for(&clock, &new_image(BLOCKS), engine);
            let fs = mount(&clock, &disk, options(engine)).await.expect("mounted");
            let inode = write_file(&fs, b"a", &content(1_000_000)).await;
            fs.fsync(inode).await.expect("durable");
            fs.write(inode, 0, &[1; 100_000]).await.expect("written");
            write_file(&fs, b"b", &content(1_000_000)).await;
            drop(fs);
            // What was submitted is on its way.
            clock.sleep(Duration::from_secs(1)).await;
            let left = disk.image().hash();
            clock.sleep(Duration::from_secs(600)).await;
            assert_eq!(disk.image().hash(), left, "{engine:?}");
        });
    }
}

/// The power is cut somewhere, and again somewhere in the recovery of that: what was durable is there, and
/// e2fsck finds nothing to say.
fn cut_twice(engine: Engine, seed: u64, mutant: Option<FsMutant>) -> Result<(), String> {
    let left = simulated_with(seed, async |clock| {
        let mut random = clock.random("test.cuts");
        let (image, durable) = crash(&clock, &mut random, engine).await;
        let half = interrupt(
            &clock,
            &mut random,
            MountOptions { rules: Rules::but(mutant), ..options(engine) },
            &image,
        )
        .await;
        let disk = disk_for(&clock, &half, engine);
        let fs = recover(&clock, &disk, engine, &durable).await?;
        fs.unmount().await.map_err(|error| error.to_string())?;
        Ok::<_, String>(disk.image())
    })?;
    verdict(store(&left).path())
}

#[test]
fn recovery_can_be_interrupted() {
    for engine in ENGINES {
        for seed in 0..16 {
            if let Err(complaint) = cut_twice(engine, seed, None) {
                panic!("{engine:?}, seed {seed}: {complaint}");
            }
        }
    }
}

#[test]
fn j5_a_log_is_not_called_empty_before_what_it_held_is_durable() {
    let noticed = |seed| {
        cut_twice(ENGINES[0], seed, Some(FsMutant::Journal(JournalMutant::EmptyWithoutFlush))).is_err()
    };
    assert!((0..64).any(noticed), "the mutant was not noticed");
}

/// J5 (e): recovery brings home as many blocks as the log holds, not only as many as are written at once.
#[test]
fn j5_a_long_log_is_replayed_to_its_end() {
    const BYTES: usize = 350 * 4096;
    let recovered = |mutant| {
        simulated_with(0, async |clock| {
            let disk = disk(&clock, &new_image(BLOCKS), true);
            let logged = MountOptions { mode: JournalMode::Data, ..options(ENGINES[0]) };
            let fs = mount(&clock, &disk, logged).await.expect("mounted");
            let inode = write_file(&fs, b"a", &content(BYTES)).await;
            fs.fsync(inode).await.expect("durable");
            let journal = fs.statistics().journal;
            assert!(journal.log_blocks_used > 350 && journal.checkpoints == 0, "{journal:?}");
            drop(fs);
            let fs = mount(&clock, &disk, MountOptions { rules: Rules::but(mutant), ..logged })
                .await
                .expect("recovered");
            read_file(&fs, b"a").await.expect("read") == content(BYTES)
        })
    };
    assert!(recovered(None));
    assert!(!recovered(Some(FsMutant::Journal(JournalMutant::ReplaysInPart))), "the mutant was not noticed");
}

/// What was made without a name is there after a power cut if it was given one durably, and takes nothing else.
#[test]
fn a_file_without_a_name_outlives_a_crash_only_with_one() {
    let (mut named, mut unnamed) = (0, 0);
    for (engine, seed) in ENGINES.into_iter().flat_map(|engine| (0..16).map(move |seed| (engine, seed))) {
        let left = simulated_with(seed, async |clock| {
            let (image, durable) = crash_of_unnamed(&clock, engine).await;
            let disk = disk_for(&clock, &image, engine);
            let fs = mount(&clock, &disk, options(engine)).await.expect("mounted");
            let found = read_file(&fs, b"named").await;
            match &found {
                Ok(found) if durable => assert!(*found == content(20_001)),
                Ok(_) => {}
                Err(error) => {
                    assert_eq!((error, durable), (&FsError::NotFound, false), "{engine:?}, seed {seed}")
                }
            }
            let Statfs { inodes, free_inodes, .. } = fs.statfs().await;
            assert_eq!(free_inodes, inodes - 11 - u32::from(found.is_ok()), "{engine:?}, seed {seed}");
            (named, unnamed) = (named + u32::from(durable), unnamed + u32::from(found.is_err()));
            fs.unmount().await.expect("unmounted");
            disk.image()
        });
        judge(&left);
    }
    assert!(named > 3 && unnamed > 3, "cut on both sides: {named}, {unnamed}");
}

/// What a power cut leaves at some event of work on files without names, and whether the one that got a name was durable
/// then.
async fn crash_of_unnamed(clock: &Handle, engine: Engine) -> (Image, bool) {
    let disk = disk_for(clock, &new_image(BLOCKS), engine);
    let fs = mount(clock, &disk, options(engine)).await.expect("mounted");
    let durable = Rc::new(Cell::new(false));
    let state = Rc::new(RefCell::new((disk.image(), false)));
    let (seen, left, is_durable) = (Cell::new(0), Rc::clone(&state), Rc::clone(&durable));
    let draws = RefCell::new(clock.random("test.cuts"));
    disk.observe(Box::new(move |disk| {
        seen.set(seen.get() + 1);
        let mut draws = draws.borrow_mut();
        if draws.below(seen.get()) == 0 {
            left.replace((disk.crash_states().sample(&mut draws), is_durable.get()));
        }
    }));
    let new = NewNode::new(FileType::Regular, 0o644);
    let make = async |bytes| {
        let inode = fs.create_unnamed(ROOT_INODE, &new).await.expect("made");
        fs.write(inode, 0, &content(bytes)).await.expect("written");
        inode
    };
    let first = make(300_000).await;
    fs.fsync(first).await.expect("durable");
    let named = make(20_001).await;
    make(50_000).await;
    fs.link(named, ROOT_INODE, b"named").await.expect("linked");
    fs.fsync(named).await.expect("durable");
    durable.set(true);
    fs.release(first).await.expect("released");
    fs.release(named).await.expect("released");
    fs.sync().await.expect("durable");
    let last = state.borrow();
    (last.0.clone(), last.1)
}

/// What a power cut at some event leaves, and what was durable then.
async fn crash(
    clock: &Handle,
    random: &mut weir_runtime::Random,
    engine: Engine,
) -> (Image, BTreeMap<Vec<u8>, usize>) {
    let disk = disk_for(clock, &new_image(BLOCKS), engine);
    let fs = mount(clock, &disk, options(engine)).await.expect("mounted");
    let durable = work(&fs).await;
    clock.sleep(Duration::from_micros(random.below(20_000))).await;
    (disk.crash_states().sample(random), durable)
}

/// What a power cut at some event of a mount leaves.
async fn interrupt(
    clock: &Handle,
    random: &mut weir_runtime::Random,
    options: MountOptions,
    image: &Image,
) -> Image {
    let events = |disk: &Rc<AdversaryDisk>| {
        let count = Rc::new(Cell::new(0_u64));
        let counted = Rc::clone(&count);
        disk.observe(Box::new(move |_| counted.set(counted.get() + 1)));
        count
    };
    // How many events a mount has; then again, up to one of them.
    let whole = disk_for(clock, image, options.engine.expect("one is given"));
    let count = events(&whole);
    drop(mount(clock, &whole, options).await.expect("mounted"));
    let until = random.below(count.get()) + 1;
    let disk = disk_for(clock, image, options.engine.expect("one is given"));
    let state = Rc::new(RefCell::new(None));
    let (left, seen) = (Rc::clone(&state), Cell::new(0));
    let draws = RefCell::new(clock.random("test.interrupt"));
    disk.observe(Box::new(move |disk| {
        seen.set(seen.get() + 1);
        if seen.get() == until {
            left.replace(Some(disk.crash_states().sample(&mut draws.borrow_mut())));
        }
    }));
    drop(mount(clock, &disk, options).await);
    state.take().unwrap_or_else(|| disk.image())
}

/// A new log begins behind all sequence numbers of the old one, also those of what was not committed: no block of
/// that is ever taken for one of the new.
#[test]
fn a_replayed_log_leaves_no_block_that_counts_later() {
    for seed in 0..20 {
        let image = simulated_with(seed, async |clock| {
            let working = disk(&clock, &new_image(BLOCKS), true);
            let fs = mount(&clock, &working, options(ENGINES[0])).await.expect("mounted");
            work(&fs).await;
            // Its log blocks may be there, and its commit block not.
            fs.fbarrier(ROOT_INODE).await.expect("ordered");
            let mut random = clock.random("test.cuts");
            clock.sleep(Duration::from_micros(random.below(1000))).await;
            let left = working.crash_states().sample(&mut random);
            let disk = disk(&clock, &left, true);
            BarrierFs::recover(&clock, Rc::clone(&disk) as Rc<dyn Storage>).await.expect("recovered");
            disk.image()
        });
        let word = |block: &[u8], at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| block[at + byte]));
        let mut log = journal_blocks(&image).map(|block| image.read(Lba(block)));
        let superblock = log.next().expect("a journal");
        let (next, start) = (word(&superblock, 24), word(&superblock, 28));
        assert_eq!(start, 0, "the log is empty");
        let of_log = log.filter(|block| word(block, 0) == 0xC03B_3998);
        let newest = of_log.map(|block| word(&block, 8)).max().expect("something is in the log");
        assert!(newest < next, "seed {seed}: the log has {newest}, and the next is {next}");
    }
}

/// The power is cut in the middle of a truncation that takes many transactions: the rest of it is done later.
#[test]
fn a_long_truncation_is_done_to_its_end() {
    const PIECES: u64 = 1500;
    let mut halfway = 0;
    for seed in 0..3 {
        let (fresh, images) = simulated_with(seed, async |clock| {
            let disk = disk(&clock, &new_image(BLOCKS), true);
            let fs = mount(&clock, &disk, options(ENGINES[0])).await.expect("mounted");
            write_file(&fs, b"other", b"").await;
            let long = write_file(&fs, b"long", b"").await;
            fs.sync().await.expect("durable");
            let fresh = fs.statfs().await;
            for piece in 0..PIECES {
                fs.write(long, piece * 8192, b"a block, and a hole behind it").await.expect("written");
            }
            fs.unmount().await.expect("unmounted");
            // Now its map has to be read, and others come between.
            let fs = mount(&clock, &disk, options(ENGINES[0])).await.expect("mounted");
            let images = collect_crash_states(&clock, &disk, 4);
            let other = clock.spawn({
                let fs = fs.clone();
                async move {
                    let other = fs.lookup(ROOT_INODE, b"other").await.expect("there");
                    for block in 0..10 {
                        fs.write(other, block * 4096, b"x").await.expect("written");
                        fs.fsync(other).await.expect("durable");
                    }
                    fs.truncate(other, 0).await.expect("truncated");
                }
            });
            fs.truncate(long, 0).await.expect("truncated");
            other.await.expect("not cancelled");
            fs.sync().await.expect("durable");
            (fresh, images.take())
        });
        for image in images {
            simulated_with(seed, async |clock| {
                let disk = disk(&clock, &image, true);
                BarrierFs::recover(&clock, Rc::clone(&disk) as Rc<dyn Storage>).await.expect("replayed");
                halfway += usize::from(superblock(&disk.image()).last_orphan.get() != 0);
                let fs = mount(&clock, &disk, options(ENGINES[0])).await.expect("recovered");
                let other = fs.lookup(ROOT_INODE, b"other").await.expect("there");
                fs.truncate(other, 0).await.expect("truncated");
                let long = fs.lookup(ROOT_INODE, b"long").await.expect("there");
                let left = fs.attributes(long).await.expect("there");
                if left.size == 0 {
                    assert_eq!(left.sectors, 0, "seed {seed}: blocks behind the end");
                    assert_eq!(fs.statfs().await, fresh, "seed {seed}: blocks are lost");
                } else {
                    assert!(left.size > (PIECES - 1) * 8192, "seed {seed}: {}", left.size);
                }
            });
        }
    }
    assert!(halfway > 10, "only {halfway} power cuts in the middle");
}

/// An orphan leaves the middle of the chain: the one before it names the one behind it, also after a crash.
#[test]
fn an_orphan_leaves_the_middle_of_the_chain() {
    for gone in 0..3 {
        let left = simulated_with(gone, async |clock| {
            let disk = disk(&clock, &new_image(BLOCKS), true);
            let fs = mount(&clock, &disk, options(ENGINES[0])).await.expect("mounted");
            let free = fs.statfs().await;
            let mut orphans = Vec::new();
            for name in [b"a", b"b", b"c"] {
                let inode = write_file(&fs, name, &content(100_000)).await;
                fs.open(inode).await.expect("open");
                fs.unlink(ROOT_INODE, name).await.expect("unlinked");
                orphans.push(inode);
            }
            // What is in one transaction with the change of the chain must not cover for it.
            fs.sync().await.expect("durable");
            fs.release(orphans[gone as usize]).await.expect("released");
            fs.sync().await.expect("durable");
            drop(fs);
            let fs = mount(&clock, &disk, options(ENGINES[0])).await.expect("recovered");
            assert_eq!(fs.statfs().await, free, "all are gone");
            fs.unmount().await.expect("unmounted");
            disk.image()
        });
        judge(&left);
    }
}

/// Our recovery and debugfs's replay leave the same blocks, superblock and journal apart.
#[test]
fn debugfs_replays_the_same() {
    for seed in 0..6 {
        let image = simulated_with(seed, async |clock| {
            let mut random = clock.random("test.cuts");
            crash(&clock, &mut random, ENGINES[0]).await.0
        });
        let file = store(&image);
        if debugfs(file.path(), "jr").is_none() {
            return;
        }
        let theirs = load(file.path());
        let (ours, journal) = simulated_with(seed, async |clock| {
            // Orphans are processed in the first transaction, which stays in the log: nothing of it is home.
            let disk = disk(&clock, &image, true);
            drop(mount(&clock, &disk, options(ENGINES[0])).await.expect("mounted"));
            (disk.image(), journal_blocks(&image))
        });
        for block in 1..BLOCKS {
            let journaled = journal.contains(&block);
            assert!(
                journaled || ours.read(Lba(block)) == theirs.read(Lba(block)),
                "seed {seed}, block {block}"
            );
        }
    }
}

/// An orphan file that another program has filled is emptied.
#[test]
fn orphans_in_a_file_are_processed() {
    let Some(image) = image_by_mke2fs(&["-O", "orphan_file"], "64M") else { return };
    let left = simulated_with(0, async |clock| {
        let first = disk(&clock, &image, true);
        let fs = mount(&clock, &first, MountOptions::default()).await.expect("mounted");
        let free = fs.statfs().await;
        let inode = write_file(&fs, b"gone", &content(100_000)).await;
        fs.open(inode).await.expect("open");
        fs.unlink(ROOT_INODE, b"gone").await.expect("unlinked");
        fs.sync().await.expect("synchronised");
        drop(fs);
        let file = store(&first.image());
        // What is in the log goes home, and the orphan from the chain into the file.
        debugfs(file.path(), "jr").expect("debugfs is there, as mkfs.ext4 is");
        let mut moved = load(file.path());
        move_to_file(&mut moved, inode);
        let second = disk(&clock, &moved, true);
        let fs = mount(&clock, &second, MountOptions::default()).await.expect("mounted");
        assert_eq!(fs.statfs().await, free, "the orphan is gone");
        fs.unmount().await.expect("unmounted");
        second.image()
    });
    assert!(!superblock(&left).features().has(Feature::ORPHAN_PRESENT));
    judge(&left);
}

/// Takes the only orphan out of the chain, and enters it in the first slot of the orphan file.
fn move_to_file(image: &mut Image, orphan: u32) {
    let mut changed = superblock(image);
    assert_eq!(changed.last_orphan.get(), orphan);
    changed.last_orphan = 0.into();
    changed.set_features(changed.features().with(Feature::ORPHAN_PRESENT, true));
    changed.update_checksum();
    let mut block = image.read(Lba(0));
    let bytes = zerocopy::IntoBytes::as_bytes(&changed);
    block[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + bytes.len()].copy_from_slice(bytes);
    image.write(Lba(0), &block);
    let magic = 0x0B10_CA04_u32.to_le_bytes();
    let is_orphans = |block: &u64| image.read(Lba(*block))[4088..4092] == magic;
    let place = (1..image.blocks()).find(is_orphans).expect("an orphan file");
    let mut block = image.read(Lba(place));
    block[..4].copy_from_slice(&orphan.to_le_bytes());
    let kind = weir_ext4::Kind::OrphanFile { inode: changed.orphan_file_inode.get(), generation: 0 };
    changed.checksums().update_checksum(kind, place, &mut block).expect("sealed");
    image.write(Lba(place), &block);
}

/// A chain that leads into itself, or to what is no file, is an error, not a hang.
#[test]
fn a_damaged_chain_of_orphans_is_refused() {
    for head in [5_u32, 12, 1000, u32::MAX] {
        let mut image = new_image(BLOCKS);
        let mut changed = superblock(&image);
        changed.last_orphan = head.into();
        changed.update_checksum();
        let mut block = image.read(Lba(0));
        let bytes = zerocopy::IntoBytes::as_bytes(&changed);
        block[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + bytes.len()].copy_from_slice(bytes);
        image.write(Lba(0), &block);
        simulated_with(0, async |clock| {
            let disk = disk(&clock, &image, true);
            let error = mount(&clock, &disk, MountOptions::default()).await.err();
            assert!(matches!(error, Some(FsError::Format(_))), "{head}: {error:?}");
        });
    }
}

/// Whether a file is whole after a crash whose blocks were a directory's in a transaction that is replayed.
fn replay_spares_the_file(mutant: Option<FsMutant>) -> bool {
    simulated_with(9, async |clock| {
        let disk = disk(&clock, &new_image(2048), true);
        let fs = mount(&clock, &disk, MountOptions { rules: Rules::but(mutant), ..options(ENGINES[0]) })
            .await
            .expect("mounted");
        let directory = NewNode::new(FileType::Directory, 0o755);
        let made = fs.mkdir(ROOT_INODE, b"directory", &directory).await.expect("made");
        let empty = NewNode::new(FileType::Regular, 0o644);
        for nth in 0..60 {
            fs.create(made, format!("{nth:0200}").as_bytes(), &empty).await.expect("made");
        }
        fs.fsync(made).await.expect("durable");
        for nth in 0..60 {
            fs.unlink(made, format!("{nth:0200}").as_bytes()).await.expect("unlinked");
        }
        fs.rmdir(ROOT_INODE, b"directory").await.expect("removed");
        let file = write_file(&fs, b"file", b"").await;
        fs.fsync(file).await.expect("durable");
        // It takes all blocks that there are.
        let mut size = 0;
        loop {
            match fs.write(file, size, &[0xF1; 4096]).await {
                Ok(written) => size += written as u64,
                Err(FsError::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
        }
        fs.fsync(file).await.expect("durable");
        let image = disk.image();
        drop(fs);
        let disk = support::disk(&clock, &image, true);
        let fs = mount(&clock, &disk, options(ENGINES[0])).await.expect("mounted again");
        let found = read_file(&fs, b"file").await.expect("read");
        found.len() as u64 == size && found.iter().all(|byte| *byte == 0xF1)
    })
}

/// J5 (d).
#[test]
fn a_directory_is_not_replayed_over_a_file_that_has_its_blocks() {
    assert!(replay_spares_the_file(None));
    for mutant in [FsMutant::NoDirectoryRevoke, FsMutant::Journal(JournalMutant::NoRevoke)] {
        assert!(!replay_spares_the_file(Some(mutant)), "{mutant:?}");
    }
}
