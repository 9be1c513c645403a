//! Async commit through a mount: its log is ours while it is in use, and jbd2's again when it is empty; and a filesystem
//! without metadata checksums has them in such a log all the same.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weir_vfs::FsError;

use crate::support::{
    content, disk, image_of, journal_blocks, judge, mount, new_image, plan, read_file, simulated_with, store,
    superblock, verdict, write_file,
};
use weir_ext4::journal::JournalSuperblock;
use weir_ext4::{Feature, Mkfs};
use weir_fs::{Conflicts, Engine, FsMutant, JournalMutant, MountOptions, ReplayMutant};
use weir_runtime::Handle;
use weir_storage::{AdversaryDisk, Image, Lba, Rules};

/// 8 MiB.
const BLOCKS: u64 = 2048;

fn options(engine: Engine, mutant: Option<FsMutant>) -> MountOptions {
    MountOptions { engine: Some(engine), rules: Rules::but(mutant), ..MountOptions::default() }
}

/// The journal's superblock.
fn journal(image: &Image) -> JournalSuperblock {
    let area = journal_blocks(image);
    let blocks = u32::try_from(area.end - area.start).expect("a journal");
    JournalSuperblock::decode(&image.read(Lba(area.start)), blocks).expect("a journal")
}

/// Whether the superblock says that only we can replay the log.
fn is_ours(image: &Image) -> bool {
    superblock(image).features().has(Feature::JOURNAL_ASYNC_COMMIT)
}

/// Whether other programs take the filesystem whenever they can.
fn stays_open_to_others(image: &Image) -> Result<(), &'static str> {
    let clean = !superblock(image).features().has(Feature::NEEDS_RECOVERY);
    let ours_in_log = journal(image).format().features.has_weir_features();
    match () {
        () if is_ours(image) && clean => Err("nothing is to be recovered, and others are kept out"),
        () if ours_in_log && journal(image).start().is_none() => Err("the journal is empty, and ours"),
        () if ours_in_log && !is_ours(image) => Err("the log is ours, and the superblock does not say so"),
        () => Ok(()),
    }
}

/// What the events of a disk showed.
#[derive(Default)]
struct Seen {
    wrong: Option<&'static str>,
    /// The log was empty, and the superblock said that it may hold what only we can replay.
    between: Option<Image>,
}

fn watch(disk: &AdversaryDisk) -> Rc<RefCell<Seen>> {
    let seen: Rc<RefCell<Seen>> = Rc::default();
    let watched = Rc::clone(&seen);
    disk.observe(Box::new(move |disk| {
        let (image, mut seen) = (disk.image(), watched.borrow_mut());
        seen.wrong = seen.wrong.or(stays_open_to_others(&image).err());
        if is_ours(&image) && journal(&image).start().is_none() {
            seen.between = Some(image);
        }
    }));
    seen
}

/// How a mount with async commit ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Unmount,
    /// A crash, with transactions in the log.
    Crash,
    /// A crash during the unmount, when the log is empty.
    CrashBetween,
}

/// A filesystem that was mounted with async commit is mounted without, by dual-mode journaling: what is wrong for others.
/// The mutant drops its rule in what takes the feature away: the unmount, or behind a crash the next mount.
fn feature_goes(seed: u64, end: End, mutant: Option<FsMutant>) -> Result<(), &'static str> {
    let (unmount, next) = match end {
        End::Unmount => (mutant, None),
        End::Crash | End::CrashBetween => (None, mutant),
    };
    simulated_with(seed, async |clock| {
        let storage = disk(&clock, &new_image(BLOCKS), true);
        let seen = watch(&storage);
        let fs = mount(&clock, &storage, options(Engine::AsyncCommit, unmount)).await.expect("mounted");
        let file = write_file(&fs, b"file", &content(30_000)).await;
        fs.fsync(file).await.expect("durable");
        assert!(is_ours(&storage.image()) && journal(&storage.image()).format().features.async_commit);
        let crashed = storage.image();
        fs.unmount().await.expect("unmounted");
        let Seen { wrong, between } = seen.take();
        wrong.map_or(Ok(()), Err)?;
        let left = match end {
            End::Unmount => storage.image(),
            End::Crash => crashed,
            End::CrashBetween => between.expect("an unmount empties the log first"),
        };
        let storage = disk(&clock, &left, true);
        let seen = watch(&storage);
        let dual = Engine::Dual { conflicts: Conflicts::Copy };
        let fs = mount(&clock, &storage, options(dual, next)).await.expect("mounted");
        assert_eq!(read_file(&fs, b"file").await.expect("there"), content(30_000));
        if is_ours(&storage.image()) {
            return Err("it is mounted without async commit, and others are kept out");
        }
        fs.unmount().await.expect("unmounted");
        seen.take().wrong.map_or(Ok(()), Err)?;
        judge(&storage.image());
        Ok(())
    })
}

#[test]
fn j5_an_empty_journal_has_no_feature_of_ours() {
    const SEEDS: std::ops::Range<u64> = 0..4;
    let journals = FsMutant::Journal(JournalMutant::FeaturesStay);
    let mutants = [
        (End::Unmount, &[FsMutant::FeaturesStay, journals][..]),
        (End::Crash, &[FsMutant::FeaturesStay, journals]),
        (End::CrashBetween, &[FsMutant::FeaturesStay]),
    ];
    for (end, mutants) in mutants {
        for seed in SEEDS {
            assert_eq!(feature_goes(seed, end, None), Ok(()), "{end:?}, seed {seed}");
            for mutant in mutants {
                let found = feature_goes(seed, end, Some(*mutant));
                assert!(found.is_err(), "{end:?}, seed {seed}: {mutant:?} survives");
            }
        }
    }
}

/// What a power cut at some event of work leaves, and how many files were durable then.
async fn cut(clock: &Handle, image: &Image) -> (Image, usize) {
    let disk = disk(clock, image, false);
    let fs = mount(clock, &disk, options(Engine::AsyncCommit, None)).await.expect("mounted");
    let (durable, cut) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new((disk.image(), 0))));
    let (seen, taken, is_durable) = (Cell::new(0), Rc::clone(&cut), Rc::clone(&durable));
    let draws = RefCell::new(clock.random("test.cuts"));
    disk.observe(Box::new(move |disk| {
        seen.set(seen.get() + 1);
        let mut draws = draws.borrow_mut();
        if draws.below(seen.get()) == 0 {
            taken.replace((disk.crash_states().sample(&mut draws), is_durable.get()));
        }
    }));
    for nth in 0..12 {
        let inode = write_file(&fs, format!("file {nth}").as_bytes(), &content(10_000 * nth + 1)).await;
        fs.fsync(inode).await.expect("durable");
        durable.set(nth + 1);
    }
    fs.unmount().await.expect("unmounted");
    let (image, durable) = &*cut.borrow();
    (image.clone(), *durable)
}

/// Whether the log of a filesystem without metadata checksums had something in it at a power cut, and was recovered: with
/// all that was durable, and nothing for e2fsck to say.
fn recovers_without_metadata_checksums(seed: u64, mutant: Option<FsMutant>) -> Result<bool, String> {
    let plain = image_of(&Mkfs { checksums: false, ..plan(BLOCKS) });
    let (in_use, left) = simulated_with(seed, async |clock| {
        let (image, durable) = cut(&clock, &plain).await;
        let disk = disk(&clock, &image, false);
        let fs = mount(&clock, &disk, options(Engine::AsyncCommit, mutant)).await?;
        for nth in 0..durable {
            let found = read_file(&fs, format!("file {nth}").as_bytes()).await?;
            if found != content(10_000 * nth + 1) {
                return Err(FsError::Invalid("a durable file has another content"));
            }
        }
        fs.unmount().await?;
        Ok((journal(&image).start().is_some(), disk.image()))
    })
    .map_err(|error: FsError| format!("seed {seed}: {error}"))?;
    assert!(!superblock(&left).features().has(Feature::METADATA_CSUM), "its features are as they were");
    verdict(store(&left).path()).map(|()| in_use).map_err(|complaint| format!("seed {seed}: {complaint}"))
}

/// The log has checksums of its own, which tell a torn commit.
#[test]
fn async_commit_needs_no_metadata_checksums() {
    const SEEDS: std::ops::Range<u64> = 0..40;
    let cuts: Result<Vec<bool>, String> =
        SEEDS.map(|seed| recovers_without_metadata_checksums(seed, None)).collect();
    let in_use = cuts.map(|cuts| cuts.iter().filter(|in_use| **in_use).count());
    assert!(in_use.as_ref().is_ok_and(|in_use| *in_use > 20), "{in_use:?}");
    let mutant = FsMutant::Journal(JournalMutant::Replay(ReplayMutant::TrustsCommitBlock));
    let found =
        SEEDS.map(|seed| recovers_without_metadata_checksums(seed, Some(mutant))).any(|cut| cut.is_err());
    assert!(found, "{mutant:?} survives");
}
