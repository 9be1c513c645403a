//! A full filesystem: what is allocated can be written, and made holes, without any space; what is kept back is kept
//! for whom it is kept. Each rule holds, and a filesystem that drops it is noticed.

use weir_format::FileType;
use weir_vfs::{Caller, Expect, Fallocate, FilesystemCalls, FsError, InodeNumber, NewNode};

use crate::support::{
    collect_crash_states, disk, image_of, judge, mount, plan, read_file, simulated, simulated_with,
    write_file,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use weir_ext4::{Mkfs, ROOT_INODE};
use weir_fs::{BarrierFs, Conflicts, Engine, FsMutant, JournalMode, MountOptions};
use weir_runtime::{Handle, Runtime, Simulation};
use weir_storage::{Image, Rules};

const BLOCK: usize = 4096;
/// 128 MiB.
const BLOCKS: u64 = 32_768;
/// What is allocated in advance: 16 MiB.
const AHEAD: u64 = 4096;
/// Random blocks of it that are written.
const WRITES: usize = 599;
const USER: Caller = Caller { uid: 1000, gid: 1000 };

fn without_reserve(mutant: Option<FsMutant>) -> MountOptions {
    MountOptions { tree_reserve_blocks: 0, rules: Rules::but(mutant), ..MountOptions::default() }
}

fn new_image(blocks: u64, reserved_percent: u8) -> Image {
    image_of(&Mkfs { reserved_percent, ..plan(blocks) })
}

fn require(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// Writes until there is no space: how many blocks.
async fn fill(fs: &dyn FilesystemCalls, inode: InodeNumber) -> u64 {
    let (mut size, chunk) = (0, vec![9; 1 << 20]);
    loop {
        match fs.write(inode, size, &chunk).await {
            Ok(written) => size += written as u64,
            Err(FsError::NoSpace) => return size / BLOCK as u64,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Different blocks, in random order.
fn some_blocks(count: usize) -> Vec<u64> {
    let mut random = Pcg64::seed_from_u64(7);
    let mut blocks: Vec<u64> = Vec::new();
    while blocks.len() < count {
        let block = random.random_range(0..AHEAD);
        if !blocks.contains(&block) {
            blocks.push(block);
        }
    }
    blocks
}

fn block_of(bytes: &[u8], block: u64) -> &[u8] {
    &bytes[block as usize * BLOCK..][..BLOCK]
}

/// Parts of a file that are written, and holes and unwritten parts between them.
async fn parts(fs: &BarrierFs, inode: InodeNumber) -> u64 {
    let (mut at, mut parts) = (0, 0);
    while let Some(data) = fs.seek_data(inode, at).await.expect("readable") {
        parts += 1;
        at = fs.seek_hole(inode, data).await.expect("readable").expect("an end");
    }
    parts
}

/// Plays on a filesystem that is full but for a file with 16 MiB that are allocated and not written; then says what
/// is in that file after a mount, and has the image judged.
fn on_full(
    options: MountOptions,
    script: impl AsyncFnOnce(&BarrierFs, InodeNumber) -> Result<(), String>,
) -> Result<Vec<u8>, String> {
    let (bytes, image) = simulated(async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS, 0), true);
        let fs = mount(&clock, &disk, options).await.expect("mounted");
        let ahead = write_file(&fs, b"ahead", b"").await;
        let allocate = Fallocate::Allocate { keep_size: false };
        fs.fallocate(ahead, allocate, 0, AHEAD * BLOCK as u64).await.expect("allocated");
        let ballast = write_file(&fs, b"ballast", b"").await;
        assert!(fill(&fs, ballast).await > 10_000);
        script(&fs, ahead).await?;
        fs.fsync(ahead).await.map_err(|error| error.to_string())?;
        fs.unmount().await.map_err(|error| error.to_string())?;
        let image = disk.image();
        let fs = mount(&clock, &disk, options).await.expect("mounted again");
        Ok::<_, String>((read_file(&fs, b"ahead").await.expect("readable"), image))
    })?;
    judge(&image);
    Ok(bytes)
}

/// What was written at random into what was allocated is there after a mount, and the rest is zeros.
fn write_at_random(options: MountOptions, least_parts: u64) -> Result<(), String> {
    let blocks = some_blocks(WRITES);
    let bytes = on_full(options, async |fs, ahead| {
        let mut failed = 0;
        for (nth, block) in blocks.iter().enumerate() {
            let content = [nth as u8 | 1; BLOCK];
            let done = fs.write(ahead, block * BLOCK as u64, &content).await;
            failed += u32::from(done != Ok(BLOCK));
        }
        require(failed == 0, || format!("{failed} of {WRITES} writes found no space"))?;
        let parts = parts(fs, ahead).await;
        require(parts >= least_parts, || format!("only {parts} parts: the rest was filled with zeros"))
    })?;
    for block in 0..AHEAD {
        let expected = blocks.iter().position(|written| *written == block).map_or(0, |nth| nth as u8 | 1);
        let right = block_of(&bytes, block).iter().all(|byte| *byte == expected);
        require(right, || format!("block {block} does not hold {expected}"))?;
    }
    Ok(())
}

#[test]
fn a_write_into_what_is_allocated_finds_space_in_a_full_filesystem() {
    for mode in [JournalMode::Ordered, JournalMode::Writeback, JournalMode::Data] {
        assert_eq!(write_at_random(MountOptions { mode, ..MountOptions::default() }, 400), Ok(()));
        assert_eq!(write_at_random(MountOptions { mode, ..without_reserve(None) }, 1), Ok(()));
    }
    let engine = Some(Engine::Jbd2 { barrier: true });
    assert_eq!(write_at_random(MountOptions { engine, ..without_reserve(None) }, 1), Ok(()));
    // Without what is kept for trees, the extents are not divided.
    let mutant = MountOptions { rules: Rules::but(Some(FsMutant::NoTreeReserve)), ..MountOptions::default() };
    assert!(write_at_random(mutant, 400).is_err());
    let mutant = without_reserve(Some(FsMutant::NoZeroing));
    let told = write_at_random(mutant, 1).expect_err("the mutant was not noticed");
    assert!(told.contains("found no space"), "{told}");
}

/// Holes in a file that is written, one block each, or what reads like them.
fn make_holes(options: MountOptions, mode: Fallocate, least_parts: u64) -> Result<(), String> {
    let blocks = some_blocks(500);
    let bytes = on_full(options, async |fs, ahead| {
        let content = vec![5; AHEAD as usize * BLOCK];
        let mut done = 0;
        while done < content.len() {
            done += fs.write(ahead, done as u64, &content[done..]).await.expect("allocated");
        }
        fs.fsync(ahead).await.expect("durable");
        let mut failed = 0;
        for block in &blocks {
            let done = fs.fallocate(ahead, mode, block * BLOCK as u64, BLOCK as u64).await;
            failed += u32::from(done.is_err());
        }
        require(failed == 0, || format!("{failed} of 500 holes found no space"))?;
        let parts = parts(fs, ahead).await;
        require(parts >= least_parts, || format!("only {parts} parts"))
    })?;
    for block in 0..AHEAD {
        let expected = if blocks.contains(&block) { 0 } else { 5 };
        let right = block_of(&bytes, block).iter().all(|byte| *byte == expected);
        require(right, || format!("block {block} does not hold {expected}"))?;
    }
    Ok(())
}

#[test]
fn a_hole_finds_space_in_a_full_filesystem() {
    for mode in [Fallocate::PunchHole, Fallocate::ZeroRange { keep_size: true }] {
        assert_eq!(make_holes(MountOptions::default(), mode, 300), Ok(()));
        assert_eq!(make_holes(without_reserve(None), mode, 1), Ok(()));
        let journaled = MountOptions { mode: JournalMode::Data, ..without_reserve(None) };
        assert_eq!(make_holes(journaled, mode, 1), Ok(()));
    }
    let mutant = without_reserve(Some(FsMutant::NoZeroing));
    let told = make_holes(mutant, Fallocate::ZeroRange { keep_size: true }, 1).expect_err("noticed");
    assert!(told.contains("found no space"), "{told}");
}

/// The first hole finds no space; those that come later do, in what others have freed.
#[test]
fn a_hole_that_finds_no_space_is_zeros() {
    let rule = |mutant| {
        on_full(without_reserve(mutant), async |fs, ahead| {
            for block in [0, 2, 4, 6, 8, 10] {
                fs.write(ahead, block * BLOCK as u64, &[5; 2 * BLOCK]).await.expect("allocated");
            }
            fs.sync().await.expect("durable");
            let hole = fs.fallocate(ahead, Fallocate::PunchHole, 3 * BLOCK as u64, BLOCK as u64).await;
            hole.map_err(|error| error.to_string())?;
            let hole = fs.fallocate(ahead, Fallocate::PunchHole, 100 * BLOCK as u64, BLOCK as u64).await;
            hole.map_err(|error| error.to_string())
        })
    };
    let bytes = rule(None).expect("holes need no space");
    assert!(block_of(&bytes, 3).iter().all(|byte| *byte == 0) && block_of(&bytes, 4)[0] == 5);
    assert_eq!(block_of(&bytes, 2)[0], 5);
}

/// What a power cut may leave of a file whose extent could not be divided, at any event: zeros, or what was written,
/// and never what was in its blocks before.
fn cuts_show_nothing_old(seed: u64, options: MountOptions) -> Result<(), String> {
    let images = simulated_with(seed, async |clock: Handle| {
        let disk = disk(&clock, &new_image(8192, 0), true);
        let fs = mount(&clock, &disk, options).await.expect("mounted");
        let old = write_file(&fs, b"old", b"").await;
        fill(&fs, old).await;
        fs.sync().await.expect("durable");
        fs.truncate(old, 0).await.expect("truncated");
        fs.sync().await.expect("durable");
        let ahead = write_file(&fs, b"ahead", b"").await;
        let allocate = Fallocate::Allocate { keep_size: false };
        fs.fallocate(ahead, allocate, 0, 100 * BLOCK as u64).await.expect("allocated");
        let ballast = fs.create(ROOT_INODE, b"ballast", &NewNode::new(FileType::Regular, 0o644)).await;
        fill(&fs, ballast.expect("made")).await;
        fs.sync().await.expect("durable");
        let images = collect_crash_states(&clock, &disk, 1);
        for block in [50, 20, 80, 35, 65, 10, 90] {
            fs.write(ahead, block * BLOCK as u64, &[7; BLOCK]).await.expect("allocated");
            fs.fbarrier(ahead).await.expect("ordered");
        }
        fs.fsync(ahead).await.expect("durable");
        images.take()
    });
    for (nth, image) in images.iter().enumerate() {
        let bytes = simulated(async |clock| {
            let disk = disk(&clock, image, true);
            let options = MountOptions { rules: Rules::all(), ..options };
            let fs = mount(&clock, &disk, options).await.expect("recovered");
            read_file(&fs, b"ahead").await.expect("readable")
        });
        require(!bytes.contains(&9), || format!("state {nth} shows what was in the blocks before"))?;
    }
    require(images.len() > 30, || format!("{} states", images.len()))
}

#[test]
fn j2_zeros_are_written_before_what_marks_them_as_written() {
    for engine in [Engine::Dual { conflicts: Conflicts::Copy }, Engine::Jbd2 { barrier: true }] {
        for mode in [JournalMode::Ordered, JournalMode::Writeback, JournalMode::Data] {
            let options = MountOptions { engine: Some(engine), mode, ..without_reserve(None) };
            assert_eq!(cuts_show_nothing_old(0, options), Ok(()), "{engine:?} {mode:?}");
        }
    }
    for mutant in [FsMutant::ZerosForgotten, FsMutant::ZerosNotAwaited] {
        // The legacy path flushes what is transferred, and no more.
        let options =
            MountOptions { engine: Some(Engine::Jbd2 { barrier: true }), ..without_reserve(Some(mutant)) };
        let noticed = (0..20).any(|seed| cuts_show_nothing_old(seed, options).is_err());
        assert!(noticed, "{mutant:?} was not noticed");
    }
}

/// What a power cut may leave of a file with journaled data that becomes zeros, and is written in its middle where its
/// extent cannot be divided: all that was there before, or zeros.
fn cuts_show_all_or_nothing(seed: u64, engine: Engine, mutant: Option<FsMutant>) -> Result<(), String> {
    let blocks = 100;
    let images = simulated_with(seed, async |clock: Handle| {
        let disk = disk(&clock, &new_image(8192, 0), true);
        let options =
            MountOptions { engine: Some(engine), mode: JournalMode::Data, ..without_reserve(mutant) };
        let fs = mount(&clock, &disk, options).await.expect("mounted");
        let file = write_file(&fs, b"ahead", &vec![5; blocks * BLOCK]).await;
        let ballast = write_file(&fs, b"ballast", b"").await;
        fill(&fs, ballast).await;
        fs.unmount().await.expect("unmounted");
        let fs = mount(&clock, &disk, options).await.expect("mounted");
        let images = collect_crash_states(&clock, &disk, 1);
        let zeros = Fallocate::ZeroRange { keep_size: true };
        fs.fallocate(file, zeros, 0, (blocks * BLOCK) as u64).await.expect("no space is needed");
        for block in [50, 20, 80, 35, 65] {
            let written = fs.write(file, block * BLOCK as u64, &[7; BLOCK]).await;
            require(written == Ok(BLOCK), || format!("a write of block {block}: {written:?}"))?;
        }
        require(fs.statistics().zeroed_blocks > 0, || "no zeros were written".to_owned())?;
        fs.fsync(file).await.expect("durable");
        Ok::<_, String>(images.take())
    })?;
    for (nth, image) in images.iter().enumerate() {
        let bytes = simulated(async |clock| {
            let disk = disk(&clock, image, true);
            let options =
                MountOptions { engine: Some(engine), mode: JournalMode::Data, ..without_reserve(None) };
            let fs = mount(&clock, &disk, options).await.expect("recovered");
            read_file(&fs, b"ahead").await.expect("readable")
        });
        let old = bytes.iter().filter(|byte| **byte == 5).count();
        require(old == 0 || old == blocks * BLOCK, || {
            format!("state {nth} has {old} bytes of the old content")
        })?;
    }
    require(images.len() > 10, || format!("{} states", images.len()))
}

#[test]
fn j2_journaled_data_is_overwritten_with_zeros_when_a_cut_brings_it_back_no_more() {
    for engine in [Engine::Dual { conflicts: Conflicts::Copy }, Engine::Jbd2 { barrier: true }] {
        assert_eq!(cuts_show_all_or_nothing(0, engine, None), Ok(()), "{engine:?}");
        let mutant = Some(FsMutant::ZerosTooEarly);
        let noticed = (0..20).any(|seed| cuts_show_all_or_nothing(seed, engine, mutant).is_err());
        assert!(noticed, "{engine:?}: the mutant was not noticed");
    }
}

/// `df` tells a plain user what can be written.
fn a_user_writes_what_is_available(mutant: Option<FsMutant>) -> Result<(), String> {
    simulated(async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS, 5), true);
        let options = MountOptions { rules: Rules::but(mutant), ..MountOptions::default() };
        let fs = mount(&clock, &disk, options).await.expect("mounted");
        let users = fs.for_caller(USER);
        let file = users.create(ROOT_INODE, b"users", &NewNode::new(FileType::Regular, 0o644)).await;
        let told = fs.statfs().await;
        require(told.available_blocks < told.free_blocks, || "nothing is kept back".to_owned())?;
        let written = fill(&*users, file.expect("made")).await;
        require(written == told.available_blocks, || {
            format!("{written} blocks were written, {} were said to be available", told.available_blocks)
        })?;
        assert_eq!(
            users.mkdir(ROOT_INODE, b"a", &NewNode::new(FileType::Directory, 0o755)).await,
            Err(FsError::NoSpace)
        );
        require(fs.statfs().await.available_blocks == 0, || "some are available still".to_owned())?;
        // The superuser has the reserve, and no file's data has what is kept for trees.
        let file = fs.create(ROOT_INODE, b"superuser's", &NewNode::new(FileType::Regular, 0o644)).await;
        let more = fill(&fs, file.expect("made")).await;
        require(more == BLOCKS * 5 / 100, || format!("{more} blocks of the reserve"))?;
        let left = fs.statfs().await.free_blocks;
        require(left == (BLOCKS / 50).min(4096), || format!("{left} blocks are kept for trees"))
    })
}

/// An allocation of more than there is takes nothing, from a file that has some of it, too.
fn what_cannot_fit_takes_nothing(mutant: Option<FsMutant>) -> Result<(), String> {
    simulated(async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS, 5), true);
        let options = MountOptions { rules: Rules::but(mutant), ..MountOptions::default() };
        let fs = mount(&clock, &disk, options).await.expect("mounted");
        let file = write_file(&fs, b"file", &[1; 10 * BLOCK]).await;
        let users = fs.for_caller(USER);
        let available = fs.statfs().await.available_blocks;
        let allocate = Fallocate::Allocate { keep_size: false };
        let blocks = |count: u64| count * BLOCK as u64;
        let refused = users.fallocate(file, allocate, 0, blocks(available + 11)).await;
        require(refused == Err(FsError::NoSpace), || format!("{refused:?}"))?;
        let left = fs.statfs().await.available_blocks;
        require(left == available, || format!("{left} of {available} blocks are available"))?;
        // What it has elsewhere does not help.
        let refused = users.fallocate(file, allocate, blocks(10), blocks(available + 1)).await;
        require(refused == Err(FsError::NoSpace), || format!("behind its end: {refused:?}"))?;
        let left = fs.statfs().await.available_blocks;
        require(left == available, || format!("{left} of {available} blocks are available"))?;
        // Nor does an extent that reaches beyond the range, behind a hole in it.
        let ballast = write_file(&fs, b"ballast", b"").await;
        users.fallocate(ballast, allocate, blocks(1), blocks(available)).await.expect("all that there is");
        let refused = users.fallocate(ballast, allocate, 0, blocks(2)).await;
        require(refused == Err(FsError::NoSpace), || format!("before an extent: {refused:?}"))?;
        fs.truncate(ballast, 0).await.expect("shorter");
        fs.sync().await.expect("durable");
        // All that there is, and what the file has.
        users.fallocate(file, allocate, 0, blocks(available + 10)).await.map_err(|error| error.to_string())
    })
}

#[test]
fn an_allocation_that_cannot_fit_takes_nothing() {
    assert_eq!(what_cannot_fit_takes_nothing(None), Ok(()));
    assert!(what_cannot_fit_takes_nothing(Some(FsMutant::AllocatesWhatCannotFit)).is_err());
}

#[test]
fn a_plain_user_writes_what_df_says_and_no_more() {
    assert_eq!(a_user_writes_what_is_available(None), Ok(()));
    for mutant in [FsMutant::SuperuserReserveIgnored, FsMutant::NoTreeReserve] {
        assert!(a_user_writes_what_is_available(Some(mutant)).is_err(), "{mutant:?} was not noticed");
    }
}

/// What looks for space once more waits for the locks of others that do: none of them holds anything that they need.
#[test]
fn operations_that_look_for_space_again_do_not_wait_for_each_other() {
    assert!(looks_again_side_by_side(None));
    assert!(!looks_again_side_by_side(Some(FsMutant::RetriesTakeTurns)), "the dropped rule is not noticed");
}

/// Whether all of them end.
fn looks_again_side_by_side(mutant: Option<FsMutant>) -> bool {
    let runtime = Runtime::simulated(Simulation::default());
    let clock = runtime.handle();
    let work = async {
        let disk = disk(&clock, &new_image(BLOCKS, 0), true);
        let fs = mount(&clock, &disk, without_reserve(mutant)).await.expect("mounted");
        let file = write_file(&fs, b"file", b"something").await;
        let ballast = write_file(&fs, b"ballast", b"").await;
        fill(&fs, ballast).await;
        for round in 0..8_u8 {
            // Some blocks come with the next commit, and no sooner.
            fs.truncate(ballast, fs.attributes(ballast).await.expect("there").size - 64 * BLOCK as u64)
                .await
                .expect("shorter");
            let value = vec![round; 3000];
            let set = async {
                let set = fs.set_extended_attribute(file, b"user.large", &value, Expect::Anything).await;
                set.expect("there is room after the commit");
            };
            let write = async {
                let written = fs.write(file, u64::from(round) * BLOCK as u64, &[round; BLOCK]).await;
                written.expect("there is room after the commit");
            };
            let fallocate = async {
                let allocate = Fallocate::Allocate { keep_size: true };
                let offset = (64 + u64::from(round)) * BLOCK as u64;
                fs.fallocate(file, allocate, offset, BLOCK as u64)
                    .await
                    .expect("there is room after the commit");
            };
            futures_util::join!(set, write, fallocate);
            fill(&fs, ballast).await;
        }
        fs.unmount().await.expect("unmounted");
    };
    runtime.block_on(work).is_ok()
}
