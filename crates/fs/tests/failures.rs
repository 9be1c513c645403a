//! Time, and storage that fails: what is old enough is committed by itself, and after a failed write or flush
//! nothing is called durable any more, nor shown to anybody.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use weir_format::FileType;
use weir_vfs::{Fallocate, FsError, InodeNumber, NewNode, ReadOnlyReason, RenameFlags};

use crate::support::faulty::{Fails, Faulty, Kind};
use crate::support::{
    BLOCKS, content, disk, disk_for, journal_blocks, mount, new_image, read_file, simulated, simulated_with,
    write_file,
};
use futures_util::future::{Either, select};
use weir_ext4::ROOT_INODE;
use weir_fs::{
    BarrierFs, CacheMutant, Conflicts, Engine, FsMutant, JournalMode, JournalMutant, MountOptions,
};
use weir_storage::{AdversaryDisk, Image, Rules};

const ENGINES: [Engine; 4] = [
    Engine::Dual { conflicts: Conflicts::Copy },
    Engine::Dual { conflicts: Conflicts::List },
    Engine::Jbd2 { barrier: true },
    Engine::Prefix,
];

const MODES: [JournalMode; 3] = [JournalMode::Ordered, JournalMode::Writeback, JournalMode::Data];

/// A disk of which nothing fails yet.
fn faulty_disk(disk: &Rc<AdversaryDisk>) -> Rc<Faulty> {
    Faulty::new(disk, journal_blocks(&disk.image()))
}

fn options(engine: Engine) -> MountOptions {
    MountOptions { engine: Some(engine), ..MountOptions::default() }
}

#[test]
fn what_is_old_enough_is_committed_without_a_call() {
    for engine in ENGINES {
        simulated_with(0, async |clock| {
            let below = disk_for(&clock, &new_image(BLOCKS), engine);
            let fs = mount(&clock, &below, options(engine)).await.unwrap();
            for name in [b"a", b"b"] {
                let before = fs.statistics().journal.commits;
                write_file(&fs, name, &content(10_000)).await;
                clock.sleep(Duration::from_secs(60)).await;
                assert!(fs.statistics().journal.commits > before, "{engine:?}");
            }
            let after = disk_for(&clock, &below.image(), engine);
            let fs = mount(&clock, &after, options(engine)).await.unwrap();
            assert_eq!(read_file(&fs, b"b").await.unwrap(), content(10_000), "{engine:?}");
        });
    }
}

#[test]
fn after_a_failed_flush_nothing_is_called_durable() {
    for engine in ENGINES {
        simulated_with(0, async |clock| {
            let below = disk_for(&clock, &new_image(BLOCKS), engine);
            let faulty = faulty_disk(&below);
            let fs = mount(&clock, &faulty, options(engine)).await.unwrap();
            let file = write_file(&fs, b"a", &content(10_000)).await;
            fs.fsync(file).await.unwrap();
            fs.write(file, 0, &[9; 4096]).await.unwrap();
            faulty.fails.set(Fails::Flushes);
            assert!(fs.sync().await.is_err(), "{engine:?}");
            faulty.fails.set(Fails::Nothing);
            assert!(fs.read_only().is_some(), "{engine:?}");
            let later =
                [fs.sync().await, fs.fsync(file).await, fs.fdatasync(file).await, fs.fbarrier(file).await];
            assert!(
                later.iter().all(|call| matches!(call, Err(FsError::ReadOnly(_)))),
                "{engine:?}: {later:?}"
            );
        });
    }
}

/// Whether `rule` holds for all engines.
fn holds(mutant: Option<FsMutant>, rule: impl Fn(MountOptions) -> Result<(), String>) -> Result<(), String> {
    ENGINES.into_iter().try_for_each(|engine| {
        rule(MountOptions { rules: Rules::but(mutant), ..options(engine) })
            .map_err(|broken| format!("{engine:?}: {broken}"))
    })
}

/// Two calls come at the same time, and each needs a flush. The first flush fails, and takes with it what it likes
/// of both: the next one makes up for nothing. (The block layer refuses it, too.)
#[test]
fn a_failed_flush_fails_for_those_who_would_have_shared_it_or_the_next() {
    let rule = |options: MountOptions| {
        simulated_with(0, async |clock| {
            let below = disk_for(&clock, &new_image(BLOCKS), options.engine.expect("one is given"));
            let faulty = faulty_disk(&below);
            let fs = mount(&clock, &faulty, options).await.unwrap();
            let files = [write_file(&fs, b"a", &[1; 4096]).await, write_file(&fs, b"b", &[1; 4096]).await];
            fs.sync().await.unwrap();
            faulty.fails.set(Fails::Nth(Kind::Flush, 0));
            for file in files {
                fs.write(file, 0, &[2; 4096]).await.unwrap();
            }
            let calls = files.map(|file| {
                let fs = fs.clone();
                clock.spawn(async move { fs.fdatasync(file).await })
            });
            for call in calls {
                if call.await.unwrap().is_ok() {
                    return Err("a call reports durability after the flush has failed".to_owned());
                }
            }
            let later = [fs.fsync(files[0]).await, fs.fdatasync(files[1]).await, fs.sync().await];
            if later.iter().any(Result::is_ok) { Err(format!("later: {later:?}")) } else { Ok(()) }
        })
    };
    assert_eq!(holds(None, rule), Ok(()));
}

/// Writeback fails while no caller waits for it. Whoever asks is told, each time.
#[test]
fn a_failed_write_is_told_by_every_later_call() {
    let rule = |options: MountOptions| {
        simulated_with(0, async |clock| {
            let below = disk_for(&clock, &new_image(BLOCKS), options.engine.expect("one is given"));
            let faulty = faulty_disk(&below);
            let eager = MountOptions { dirty_background_bytes: 0, ..options };
            let fs = mount(&clock, &faulty, eager).await.unwrap();
            let file = write_file(&fs, b"a", &content(20_000)).await;
            fs.sync().await.unwrap();
            faulty.fails.set(Fails::Writes(0x77));
            fs.write(file, 0, &[0x77; 4096]).await.unwrap();
            clock.sleep(Duration::from_millis(50)).await;
            faulty.fails.set(Fails::Nothing);
            let calls = [
                fs.sync().await,
                fs.sync().await,
                fs.fsync(file).await,
                fs.fdatasync(file).await,
                fs.sync().await,
            ];
            if calls.iter().any(Result::is_ok) { Err(format!("{calls:?}")) } else { Ok(()) }
        })
    };
    assert_eq!(holds(None, rule), Ok(()));
    assert!(
        holds(Some(FsMutant::Cache(CacheMutant::WriteErrorForgotten)), rule).is_err(),
        "the mutant was not noticed"
    );
}

#[test]
fn a_file_whose_data_failed_never_shows_what_its_blocks_held_before() {
    for engine in ENGINES {
        let image = simulated_with(3, async |clock| {
            let below = disk_for(&clock, &new_image(BLOCKS), engine);
            let fs = mount(&clock, &below, options(engine)).await.unwrap();
            write_file(&fs, b"secret", &vec![0x53; 4096 * 8000]).await;
            fs.sync().await.unwrap();
            fs.unlink(ROOT_INODE, b"secret").await.unwrap();
            fs.unmount().await.unwrap();
            let faulty = faulty_disk(&below);
            // Writeback comes before the commit, so that the failure is over when the commit asks.
            let early = MountOptions {
                dirty_background_bytes: 4096,
                commit_interval: Duration::from_millis(50),
                ..options(engine)
            };
            let fs = mount(&clock, &faulty, early).await.unwrap();
            faulty.fails.set(Fails::Writes(0x77));
            write_file(&fs, b"new", &vec![0x77; 4096 * 4]).await;
            clock.sleep(Duration::from_millis(500)).await;
            assert!(fs.read_only().is_some(), "{engine:?}: the commit went on without its data");
            below.image()
        });
        simulated_with(1, async |clock| {
            let below = disk_for(&clock, &image, engine);
            let fs = mount(&clock, &below, options(engine)).await.unwrap();
            if let Ok(found) = read_file(&fs, b"new").await {
                assert!(!found.contains(&0x53), "{engine:?}: it shows a deleted file");
            }
        });
    }
}

/// What was acknowledged as durable, by the last call that did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Durable {
    Nothing,
    /// The first content of `a`, which is changed later.
    First,
    /// The last content of `a`.
    Last,
    /// That, the new name of `b`, and that `c` is gone.
    Everything,
}

/// A filesystem, and how often it promised something after its end.
struct Watched {
    fs: BarrierFs,
    lies: Cell<usize>,
}

impl Watched {
    /// Whether a call promises what it is there for: never once the filesystem is read-only.
    async fn promises(&self, call: impl Future<Output = Result<(), FsError>>) -> bool {
        let ended = self.fs.read_only().is_some();
        let promised = call.await.is_ok();
        self.lies.set(self.lies.get() + usize::from(ended && promised));
        promised
    }

    /// Every kind of change, and every kind of promise, whether or not those before have failed; what was
    /// acknowledged.
    async fn work(&self) -> Durable {
        let fs = &self.fs;
        let mut durable = Durable::Nothing;
        let new = NewNode::new(FileType::Regular, 0o644);
        let a = fs.create(ROOT_INODE, b"a", &new).await.unwrap_or(InodeNumber::MAX);
        let written = fs.write(a, 0, &content(10_000)).await == Ok(10_000);
        if self.promises(fs.fsync(a)).await && written {
            durable = Durable::First;
        }
        let appended = fs.write(a, 10_000, &[5; 5000]).await == Ok(5000);
        let mut changed = appended && self.promises(fs.fdatasync(a)).await;
        changed &= fs.write(a, 0, &[7; 4096]).await == Ok(4096);
        self.promises(fs.fbarrier(a)).await;
        let b = fs.create(ROOT_INODE, b"b", &new).await.unwrap_or(InodeNumber::MAX);
        let mut other = fs.write(b, 0, &content(3000)).await == Ok(3000);
        self.promises(fs.fdatabarrier(b)).await;
        let plain = RenameFlags::default();
        other &= fs.rename((ROOT_INODE, b"b"), (ROOT_INODE, b"renamed"), plain).await.is_ok();
        changed &= fs.truncate(a, 4096).await.is_ok();
        other &= fs.unlink(ROOT_INODE, b"c").await.is_ok();
        if self.promises(fs.fsync(a)).await && changed {
            durable = Durable::Last;
        }
        let synchronised = self.promises(fs.sync()).await;
        let unmounted = self.promises(fs.clone().unmount()).await;
        if (synchronised || unmounted) && changed && other {
            durable = Durable::Everything;
        }
        durable
    }
}

/// Whether what a power cut has left has all that was acknowledged.
async fn has(fs: &BarrierFs, durable: Durable) -> bool {
    let a = read_file(fs, b"a").await;
    let last = a.as_deref() == Ok(&[7; 4096]);
    let first = |a: &[u8]| {
        let known = a.len().min(10_000);
        known >= 4096
            && (a[..4096] == [7; 4096] || a[..4096] == content(10_000)[..4096])
            && a[4096..known] == content(10_000)[4096..known]
    };
    let others = async || {
        read_file(fs, b"renamed").await.as_deref() == Ok(&content(3000)[..])
            && fs.lookup(ROOT_INODE, b"b").await == Err(FsError::NotFound)
            && fs.lookup(ROOT_INODE, b"c").await == Err(FsError::NotFound)
    };
    match durable {
        Durable::Nothing => true,
        Durable::First => a.is_ok_and(|a| first(&a)),
        Durable::Last => last,
        Durable::Everything => last && others().await,
    }
}

/// What is left of a mount and its work in which one command has failed.
struct Left {
    /// What a power cut may leave.
    images: Vec<Image>,
    durable: Durable,
}

/// A mount and its work, in which the command of this kind fails that comes after `nth` others. None if there are
/// not so many.
fn fail_one(options: MountOptions, image: &Image, kind: Kind, nth: u64) -> Result<Option<Left>, String> {
    simulated_with(nth, async |clock| {
        let below = disk_for(&clock, image, options.engine.expect("one is given"));
        let faulty = faulty_disk(&below);
        faulty.fails.set(Fails::Nth(kind, nth));
        let played = async {
            let Ok(fs) = mount(&clock, &faulty, options).await else { return Ok(Durable::Nothing) };
            let watched = Watched { fs, lies: Cell::new(0) };
            let durable = watched.work().await;
            // What is not done yet comes to its end.
            clock.sleep(Duration::from_secs(60)).await;
            let why = watched.fs.read_only();
            // Unmount writes past the journal at its end.
            let over = matches!(why, Some(ReadOnlyReason::Aborted(_) | ReadOnlyReason::Unmounted));
            match (watched.lies.get(), faulty.failed.get()) {
                (0, Some(true)) if !over => Err(format!("read-only: {why:?}")),
                (0, _) => Ok(durable),
                (lies, _) => Err(format!("{lies} promises after its end")),
            }
        };
        let durable = match select(pin!(played), pin!(clock.sleep(Duration::from_secs(600)))).await {
            Either::Left((durable, _)) => durable?,
            Either::Right(_) => return Err("a call waits for ever".to_owned()),
        };
        let (states, mut random) = (below.crash_states(), clock.random("crash"));
        let images = (0..3).map(|_| states.sample(&mut random)).collect();
        Ok(faulty.failed.get().map(|_| Left { images, durable }))
    })
}

/// Each command of this kind fails once: nothing hangs, nothing is called durable after the journal has failed, and
/// what was called so before is there. How many there were.
fn fail_each(options: MountOptions, image: &Image, kind: Kind) -> Result<u64, String> {
    let mut nth = 0;
    loop {
        let told = |what: String| format!("{:?}, {kind:?} {nth}: {what}", options.engine);
        let Some(Left { images, durable }) = fail_one(options, image, kind, nth).map_err(told)? else {
            return Ok(nth);
        };
        for left in images {
            let there = simulated(async |clock| {
                let fs = mount(&clock, &disk(&clock, &left, true), MountOptions::default()).await;
                has(&fs.expect("recovered"), durable).await
            });
            if !there {
                return Err(told(format!("{durable:?} is lost")));
            }
        }
        nth += 1;
    }
}

#[test]
fn each_command_fails_once_and_no_promise_is_broken() {
    let image = simulated(async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
        write_file(&fs, b"c", &content(20_000)).await;
        fs.unmount().await.expect("unmounted");
        disk.image()
    });
    for (kind, least) in [(Kind::Write, 20), (Kind::Flush, 8), (Kind::Read, 8)] {
        for engine in ENGINES {
            let failed = fail_each(options(engine), &image, kind).unwrap_or_else(|broken| panic!("{broken}"));
            assert!(failed >= least, "{engine:?}: only {failed} of {kind:?}");
        }
        if kind != Kind::Read {
            let ignores = MountOptions {
                rules: Rules::but(Some(FsMutant::Journal(JournalMutant::ErrorIgnored))),
                ..options(ENGINES[0])
            };
            assert!(
                fail_each(ignores, &image, kind).is_err(),
                "errors ignored, and no call noticed: {kind:?}"
            );
        }
    }
}

/// A hole is made, and its block cannot be freed: the bitmap cannot be read. The page that was dropped is not on the
/// disk, so nothing of the file is called durable any more, and no call waits for ever.
#[test]
fn a_hole_that_fails_halfway_is_no_hole_and_no_promise() {
    for engine in ENGINES {
        simulated_with(1, async |clock| {
            let options = MountOptions { timer_hz: 1, ..options(engine) };
            let below = disk_for(&clock, &new_image(BLOCKS), engine);
            let fs = mount(&clock, &below, options).await.unwrap();
            let file = write_file(&fs, b"a", &[1; 3 * 4096]).await;
            fs.unmount().await.unwrap();
            let faulty = faulty_disk(&below);
            let fs = mount(&clock, &faulty, options).await.unwrap();
            // In the same tick of the timer an overwrite changes nothing of the inode.
            clock.sleep(Duration::from_millis(1010)).await;
            fs.write(file, 0, &[2; 4096]).await.unwrap();
            fs.fsync(file).await.unwrap();
            fs.write(file, 0, &[3; 4096]).await.unwrap();
            faulty.fails.set(Fails::Nth(Kind::Read, 0));
            let punched = fs.fallocate(file, Fallocate::PunchHole, 0, 4096).await;
            assert!(punched.is_err() && fs.read_only().is_some(), "{engine:?}: {punched:?}");
            let synced = pin!(fs.fsync(file));
            match select(synced, pin!(clock.sleep(Duration::from_secs(60)))).await {
                Either::Left((synced, _)) => assert!(synced.is_err(), "{engine:?}: what was written is lost"),
                Either::Right(_) => panic!("{engine:?}: fsync waits for ever"),
            }
        });
    }
}

/// A write finds some of its blocks, and the search for more fails: what those blocks held before is not shown.
#[test]
fn a_write_that_fails_halfway_shows_nothing_of_others() {
    for (engine, mode) in ENGINES.into_iter().flat_map(|engine| MODES.map(|mode| (engine, mode))) {
        simulated_with(1, async |clock| {
            let options = MountOptions { mode, ..options(engine) };
            let below = disk_for(&clock, &new_image(BLOCKS), engine);
            let fs = mount(&clock, &below, options).await.unwrap();
            write_file(&fs, b"secret", &vec![0x53; 4096 * 9000]).await;
            fs.sync().await.unwrap();
            fs.unlink(ROOT_INODE, b"secret").await.unwrap();
            fs.sync().await.unwrap();
            let file = write_file(&fs, b"a", &[]).await;
            fs.fallocate(file, Fallocate::Allocate { keep_size: false }, 0, 16 * 4096).await.unwrap();
            fs.truncate(file, 32 * 4096).await.unwrap();
            fs.unmount().await.unwrap();
            let faulty = faulty_disk(&below);
            let fs = mount(&clock, &faulty, options).await.unwrap();
            assert!(read_file(&fs, b"a").await.unwrap().iter().all(|byte| *byte == 0));
            faulty.fails.set(Fails::Reads);
            let written = fs.write(file, 0, &[9; 32 * 4096]).await;
            faulty.fails.set(Fails::Nothing);
            let found = read_file(&fs, b"a").await.unwrap();
            assert!(!found.contains(&0x53), "{engine:?}, {mode:?}: {written:?}");
        });
    }
}
