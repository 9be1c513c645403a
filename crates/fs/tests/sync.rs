//! The synchronisation calls: what they wait for, and what a crash leaves of what they ordered. Each rule holds,
//! and a filesystem that drops it is noticed.

use std::cell::{Cell, OnceCell};
use std::time::Duration;

use weir_vfs::{Fallocate, Filesystem, InodeNumber, RenameFlags};

use crate::support::{
    BLOCKS, collect_crash_states, content, disk, disk_for, mount, new_image, prefix_disk, read_file,
    simulated_with, write_file,
};
use weir_ext4::ROOT_INODE;
use weir_fs::{
    BarrierFs, CacheMutant, CommitTimes, Conflicts, Engine, FsMutant, JournalMode, JournalMutant,
    MountOptions, Waits,
};
use weir_runtime::{Cores, Handle, Runtime, Simulation};
use weir_storage::{Image, Lba, Rules};

const DUAL: Engine = Engine::Dual { conflicts: Conflicts::Copy };
const BLOCK: usize = 4096;

fn options(mutant: Option<FsMutant>) -> MountOptions {
    MountOptions { engine: Some(DUAL), rules: Rules::but(mutant), ..MountOptions::default() }
}

/// Proves that `rule` holds, and that the check can fail: a filesystem that drops the rule does not pass it.
fn prove(mutants: &[FsMutant], rule: impl Fn(Option<FsMutant>) -> Result<(), String>) {
    assert_eq!(rule(None), Ok(()));
    for mutant in mutants {
        assert!(rule(Some(*mutant)).is_err(), "{mutant:?} was not noticed");
    }
}

fn require(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// What a power cut may leave, at the end of `script` or at any event after it calls its second argument.
fn crashes(
    seed: u64,
    options: MountOptions,
    script: impl AsyncFnOnce(&Handle, &BarrierFs, &dyn Fn()),
) -> Vec<Image> {
    simulated_with(seed, async |clock| {
        let disk = disk_for(&clock, &new_image(BLOCKS), options.engine.unwrap_or(DUAL));
        let fs = mount(&clock, &disk, options).await.expect("mounted");
        let images = OnceCell::new();
        let begin = || drop(images.set(collect_crash_states(&clock, &disk, 1)));
        script(&clock, &fs, &begin).await;
        images.get().map(|images| images.take()).unwrap_or_default()
    })
}

/// Mounts what a power cut has left, and looks at it.
fn after_crash<T>(image: &Image, look: impl AsyncFnOnce(BarrierFs) -> T) -> T {
    simulated_with(1, async |clock| {
        let disk = disk(&clock, image, true);
        look(mount(&clock, &disk, options(None)).await.expect("recovered")).await
    })
}

/// Fills blocks with `byte`, the last first, so that none continues another on disk.
async fn write_backwards(fs: &BarrierFs, inode: InodeNumber, blocks: u64, byte: u8) {
    for block in (0..blocks).rev() {
        fs.write(inode, block * BLOCK as u64, &[byte; BLOCK]).await.expect("written");
    }
}

/// What a call waited for, and how long it took.
async fn measured(clock: &Handle, fs: &BarrierFs, call: impl Future) -> (Waits, Duration) {
    let (before, began) = (fs.statistics().waits, clock.now());
    call.await;
    let after = fs.statistics().waits;
    let waits = Waits {
        transfers: after.transfers - before.transfers,
        flushes: after.flushes - before.flushes,
        durable_commits: after.durable_commits - before.durable_commits,
    };
    (waits, clock.now().since(began))
}

fn waits(transfers: u64, flushes: u64, durable_commits: u64) -> Waits {
    Waits { transfers, flushes, durable_commits }
}

#[test]
fn barriers_wait_for_nothing_and_fsync_for_one_transfer_and_one_flush() {
    simulated_with(1, async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let fs = mount(&clock, &disk, options(None)).await.expect("mounted");
        let inode = write_file(&fs, b"a", &content(BLOCK)).await;
        fs.fsync(inode).await.expect("durable");
        for block in 1..10 {
            let append = async || {
                assert_eq!(fs.write(inode, block * BLOCK as u64, &content(BLOCK)).await, Ok(BLOCK));
            };
            append().await;
            let (_, took) = measured(&clock, &fs, fs.fbarrier(inode)).await;
            assert_eq!(took, Duration::ZERO, "fbarrier after an append");
            assert_eq!(fs.write(inode, 0, b"over").await, Ok(4));
            let (_, took) = measured(&clock, &fs, fs.fdatabarrier(inode)).await;
            assert_eq!(took, Duration::ZERO, "fdatabarrier after an overwrite");
            let (_, took) = measured(&clock, &fs, fs.fdatabarrier(inode)).await;
            assert_eq!(took, Duration::ZERO, "fdatabarrier with nothing dirty");
            // The ordering commits retire, and with them the waits of the flush task.
            clock.sleep(Duration::from_millis(20)).await;
            assert_eq!(fs.write(inode, (100 + block) * BLOCK as u64, b"append").await, Ok(6));
            let (waited, _) = measured(&clock, &fs, fs.fsync(inode)).await;
            assert_eq!(waited, waits(1, 1, 0), "fsync after an append");
            assert_eq!(fs.write(inode, 0, b"again").await, Ok(5));
            let (waited, _) = measured(&clock, &fs, fs.fdatasync(inode)).await;
            assert_eq!(waited, waits(1, 1, 0), "fdatasync after an overwrite");
        }
    });
}

#[test]
fn the_legacy_path_waits_for_each_step() {
    for (barrier, flushes) in [(true, 1), (false, 0)] {
        simulated_with(1, async |clock| {
            let disk = disk(&clock, &new_image(BLOCKS), true);
            let engine = Some(Engine::Jbd2 { barrier });
            let fs = mount(&clock, &disk, MountOptions { engine, ..options(None) }).await.expect("mounted");
            let inode = write_file(&fs, b"a", &content(BLOCK)).await;
            fs.fsync(inode).await.expect("durable");
            for block in 1..5 {
                assert_eq!(fs.write(inode, block * BLOCK as u64, b"append").await, Ok(6));
                // D, JD, and JC with pre-flush and FUA.
                let (waited, _) = measured(&clock, &fs, fs.fsync(inode)).await;
                assert_eq!(waited, waits(3, 0, flushes));
                assert_eq!(fs.write(inode, 0, b"over").await, Ok(4));
                let (waited, _) = measured(&clock, &fs, fs.fdatabarrier(inode)).await;
                assert_eq!(waited, waits(1, flushes, 0), "order is kept by waiting");
            }
        });
    }
}

/// Flush-ahead commit: a flush behind D, and one wait for JD and JC together. Nothing waits for the transfer of D alone.
#[test]
fn flush_ahead_commit_waits_once_and_flushes_before_the_log_is_written() {
    simulated_with(1, async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS), false);
        let engine = Some(Engine::FlushAhead);
        let fs = mount(&clock, &disk, MountOptions { engine, ..options(None) }).await.expect("mounted");
        let inode = write_file(&fs, b"a", &content(BLOCK)).await;
        fs.fsync(inode).await.expect("durable");
        for block in 1..5 {
            assert_eq!(fs.write(inode, block * BLOCK as u64, b"append").await, Ok(6));
            let (waited, _) = measured(&clock, &fs, fs.fsync(inode)).await;
            assert_eq!(waited, waits(1, 1, 1));
            assert_eq!(fs.write(inode, 0, b"over").await, Ok(4));
            let (waited, _) = measured(&clock, &fs, fs.fdatabarrier(inode)).await;
            assert_eq!(waited, waits(1, 1, 0), "order is kept by durability");
        }
    });
}

/// Without a journal a call waits for the data, and for the blocks that lead to it; others stay dirty, and nothing is flushed.
#[test]
fn without_a_journal_a_call_writes_what_leads_to_its_file() {
    simulated_with(1, async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS), false);
        let engine = Some(Engine::Unjournaled);
        let commit_interval = Duration::from_secs(30);
        let options = MountOptions { engine, commit_interval, ..options(None) };
        let fs = mount(&clock, &disk, options).await.expect("mounted");
        let inode = write_file(&fs, b"a", &content(BLOCK)).await;
        // Blocks that the disk shows otherwise than before.
        let image = Cell::new(disk.image());
        let changed = || {
            let (before, now) = (image.replace(disk.image()), disk.image());
            (0..BLOCKS).filter(|block| before.read(Lba(*block)) != now.read(Lba(*block))).count()
        };
        let (waited, _) = measured(&clock, &fs, fs.fsync(inode)).await;
        assert_eq!((waited, changed()), (waits(2, 0, 0), 3), "data, the inode with its directory's, a name");
        for content in [&b"over"[..], b"again"] {
            // A tick of the clock, so that the inode has another time.
            clock.sleep(Duration::from_millis(10)).await;
            assert_eq!(fs.write(inode, 0, content).await, Ok(content.len()));
            let (waited, _) = measured(&clock, &fs, fs.fsync(inode)).await;
            assert_eq!((waited, changed()), (waits(2, 0, 0), 2), "data and the inode");
        }
        clock.sleep(2 * commit_interval).await;
        assert!(changed() > 1, "bitmaps and the like go home when they are old");
    });
}

/// What the steps of one commit took, on a host that takes `compose` for a block of the log, and what the call took.
fn steps(engine: Engine, compose: Duration) -> (CommitTimes, Duration) {
    let cores = Cores { count: 2, compose, ..Cores::default() };
    let runtime = Runtime::simulated(Simulation { seed: 1, cores: Some(cores), ..Simulation::default() });
    let clock = runtime.handle();
    let work = async {
        let disk = disk(&clock, &new_image(BLOCKS), false);
        let engine = Some(engine);
        let fs = mount(&clock, &disk, MountOptions { engine, ..options(None) }).await.expect("mounted");
        let inode = write_file(&fs, b"a", &content(BLOCK)).await;
        let times = || fs.statistics().journal.commit_times;
        assert_eq!(times(), CommitTimes::default());
        let (_, took) = measured(&clock, &fs, fs.fsync(inode)).await;
        (times(), took)
    };
    runtime.block_on(work).expect("it does not wait for ever")
}

/// A commit's time is that of its steps. A flush that goes ahead ends while the log's blocks are made, if that takes long.
#[test]
fn the_steps_of_a_commit_are_measured() {
    let (none, long) = (Duration::ZERO, Duration::from_millis(1));
    let sum = |times: CommitTimes| {
        let CommitTimes { data, compose, flush, log, commit_block } = times;
        data + compose + flush + log + commit_block
    };
    for engine in [Engine::Jbd2 { barrier: true }, Engine::AsyncCommit, Engine::FlushAhead] {
        let (times, took) = steps(engine, none);
        // The call itself waits for the file's data before the commit begins.
        assert!(sum(times) > none && sum(times) <= took, "{engine:?}: {times:?} of {took:?}");
        assert_eq!(times.compose, none, "{engine:?}");
        let (flush, log, commit_block) = (times.flush > none, times.log > none, times.commit_block > none);
        let expected = match engine {
            Engine::FlushAhead => (true, false, true),
            Engine::AsyncCommit => (true, false, true),
            _ => (false, true, true),
        };
        assert_eq!((flush, log, commit_block), expected, "{engine:?}: {times:?}");
    }
    let (legacy, _) = steps(Engine::Jbd2 { barrier: true }, long);
    let (ahead, _) = steps(Engine::FlushAhead, long);
    assert!(legacy.compose == ahead.compose && ahead.compose >= 3 * long, "{legacy:?}, {ahead:?}");
    assert_eq!(ahead.flush, none, "it is over by then");
}

/// The OPTR paper's calls: the optimized `fsync`, `ffence` and `fdatafence`; and its no-barrier mode, which never flushes.
#[test]
fn on_a_prefix_device_a_fence_waits_for_transfers_and_fsync_for_one_flush_more() {
    for (engine, flushes) in [(Engine::Prefix, 1), (Engine::Jbd2 { barrier: false }, 0)] {
        simulated_with(1, async |clock| {
            let disk = prefix_disk(&clock, &new_image(BLOCKS));
            let options = MountOptions { engine: Some(engine), ..options(None) };
            let fs = mount(&clock, &disk, options).await.expect("mounted");
            let inode = write_file(&fs, b"a", &content(BLOCK)).await;
            fs.fsync(inode).await.expect("durable");
            for block in 1..5 {
                let append = async |at: u64| {
                    assert_eq!(fs.write(inode, (at + block) * BLOCK as u64, b"append").await, Ok(6));
                };
                let overwrite = async || assert_eq!(fs.write(inode, 0, b"over").await, Ok(4));
                append(0).await;
                let (waited, _) = measured(&clock, &fs, fs.fsync(inode)).await;
                assert_eq!(waited, waits(3, flushes, 0), "{engine:?}: D, JD, JC, and a flush");
                overwrite().await;
                let (waited, _) = measured(&clock, &fs, fs.fdatasync(inode)).await;
                assert_eq!(waited, waits(1, flushes, 0), "{engine:?}: D, and a flush");
                append(100).await;
                let (waited, _) = measured(&clock, &fs, fs.fbarrier(inode)).await;
                assert_eq!(waited, waits(3, 0, 0), "{engine:?}: ffence, D, JD and JC");
                overwrite().await;
                let (waited, _) = measured(&clock, &fs, fs.fdatabarrier(inode)).await;
                assert_eq!(waited, waits(1, 0, 0), "{engine:?}: fdatafence, D");
                let (waited, _) = measured(&clock, &fs, fs.fdatabarrier(inode)).await;
                assert_eq!(waited, waits(0, 0, 0), "{engine:?}: fdatafence with nothing dirty");
            }
            assert_eq!(fs.statistics().epochs, 0, "{engine:?}: barriers");
        });
    }
}

/// J3, for prefix devices: data that waits in the queue, since it overlaps what is in flight, would be received behind what
/// comes after the call.
#[test]
fn j3_a_fence_returns_when_the_data_is_received() {
    prove(&[FsMutant::Journal(JournalMutant::FenceNotAwaited)], |mutant| {
        for seed in 0..5 {
            let fences = MountOptions { engine: Some(Engine::Prefix), ..options(mutant) };
            let images = crashes(seed, fences, async |_, fs, begin| {
                let one = write_file(fs, b"one", &[1; BLOCK]).await;
                let two = write_file(fs, b"two", &[1; BLOCK]).await;
                fs.sync().await.expect("durable");
                begin();
                for round in 2..30 {
                    fs.write(one, 0, &[round; BLOCK]).await.expect("written");
                    fs.fdatabarrier(one).await.expect("ordered");
                    fs.write(two, 0, &[round; BLOCK]).await.expect("written");
                    fs.fdatabarrier(two).await.expect("ordered");
                }
                fs.fsync(two).await.expect("durable");
            });
            for image in images {
                let [one, two] = after_crash(&image, async |fs| {
                    [read_file(&fs, b"one").await, read_file(&fs, b"two").await]
                        .map(|file| file.expect("read")[0])
                });
                require(one >= two, || format!("two is of round {two}, and one of round {one}"))?;
            }
        }
        Ok(())
    });
}

/// What calls of `fsync` by many tasks, each after an append to its own file, waited for: the first of all tasks
/// come `apart` after each other.
fn synced_by_many(engine: Engine, apart: Duration) -> Waits {
    simulated_with(1, async |clock| {
        let disk = disk_for(&clock, &new_image(BLOCKS), engine);
        let engine = MountOptions { engine: Some(engine), ..options(None) };
        let fs = mount(&clock, &disk, engine).await.expect("mounted");
        let mut files = Vec::new();
        for task in 0..TASKS {
            files.push(write_file(&fs, &[b'a' + task as u8], b"").await);
        }
        fs.sync().await.expect("durable");
        let all = async {
            let tasks: Vec<_> = (0..TASKS)
                .map(|task| {
                    let (fs, inode, clock) = (fs.clone(), files[task as usize], clock.clone());
                    clock.clone().spawn(async move {
                        for round in 0..CALLS_A_TASK {
                            clock.sleep(if round == 0 { apart * task } else { apart * TASKS }).await;
                            let at = u64::from(round) * BLOCK as u64;
                            fs.write(inode, at, &[1; BLOCK]).await.expect("written");
                            fs.fsync(inode).await.expect("durable");
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("not cancelled");
            }
        };
        measured(&clock, &fs, all).await.0
    })
}

const TASKS: u32 = 12;
const CALLS_A_TASK: u32 = 4;

/// J1 and J2: a flush for each call at most, however they meet, and the fewer the more of them come at once.
#[test]
fn concurrent_fsyncs_take_a_flush_each_at_most_and_share_them() {
    let calls = u64::from(TASKS * CALLS_A_TASK);
    let alone = Duration::from_millis(5);
    let lists = [Conflicts::List, Conflicts::ListUntilTransfer].map(|conflicts| Engine::Dual { conflicts });
    for engine in [DUAL, lists[0], lists[1]] {
        for apart in [0, 10, 30, 100, 300].map(Duration::from_micros) {
            let waited = synced_by_many(engine, apart);
            assert_eq!(waited.durable_commits, 0, "{engine:?}");
            assert!((1..=calls).contains(&waited.flushes), "{engine:?}, {apart:?} apart: {waited:?}");
        }
        assert_eq!(synced_by_many(engine, alone), waits(calls, calls, 0), "{engine:?}, alone");
        let together = synced_by_many(engine, Duration::ZERO).flushes;
        assert!(together <= calls / 4, "{engine:?}: {together} flushes for {calls} calls at once");
    }
    // Three waits and a flush, which calls share.
    assert_eq!(synced_by_many(Engine::Prefix, alone), waits(3 * calls, calls, 0));
    let together = synced_by_many(Engine::Prefix, Duration::ZERO);
    assert!(together.flushes <= calls / 4, "{together:?} for {calls} calls at once");
    // Pre-flush and FUA: two flushes, as it were.
    let legacy = Engine::Jbd2 { barrier: true };
    assert_eq!(synced_by_many(legacy, alone), waits(3 * calls, 0, calls));
    let together = synced_by_many(legacy, Duration::ZERO);
    assert!(
        together.flushes + together.durable_commits <= calls / 4,
        "{together:?} for {calls} calls at once"
    );
}

/// J3: append to one file, `fdatabarrier`, overwrite another: the way of every write-ahead log.
#[test]
fn j3_an_overwrite_is_not_seen_without_the_append_before_it() {
    prove(&[FsMutant::DataBarrierForgetsMetadata], |mutant| {
        for mode in [JournalMode::Ordered, JournalMode::Writeback, JournalMode::Data] {
            let mode = MountOptions { mode, ..options(mutant) };
            let images = crashes(3, mode, async |_, fs, begin| {
                let log = write_file(fs, b"log", &[1; BLOCK]).await;
                let table = write_file(fs, b"table", &[1; BLOCK]).await;
                fs.fsync(log).await.expect("durable");
                fs.fsync(table).await.expect("durable");
                begin();
                for round in 1..30 {
                    fs.write(log, u64::from(round) * BLOCK as u64, &[round; BLOCK]).await.expect("written");
                    fs.fdatabarrier(log).await.expect("ordered");
                    fs.write(table, 0, &[round; BLOCK]).await.expect("written");
                    fs.fdatabarrier(table).await.expect("ordered");
                }
                fs.fsync(table).await.expect("durable");
            });
            assert!(images.len() > 50, "power is cut often");
            for image in images {
                let (log, table) = after_crash(&image, async |fs| {
                    (
                        read_file(&fs, b"log").await.expect("read"),
                        read_file(&fs, b"table").await.expect("read"),
                    )
                });
                let round = usize::from(table[0]);
                require(log.len() > round * BLOCK || round <= 1, || {
                    format!("round {round} is in the table, and {} bytes in the log", log.len())
                })?;
                let logged = |nth: &usize| log[nth * BLOCK..(nth + 1) * BLOCK] == [*nth as u8; BLOCK];
                require((1..round).all(|nth| logged(&nth)), || {
                    format!("a hole in the log at round {round}")
                })?;
            }
        }
        Ok(())
    });
}

/// J3 and E7: what writeback has submitted looks clean, and is ordered by the call all the same: by a bare barrier, or by a
/// commit that the call forces.
#[test]
fn j3_a_barrier_with_nothing_dirty_is_a_barrier() {
    for forces_commits in [false, true] {
        nothing_dirty_is_a_barrier(forces_commits);
    }
}

fn nothing_dirty_is_a_barrier(forces_commits: bool) {
    prove(&[FsMutant::Journal(JournalMutant::NoBareBarrier)], |mutant| {
        let eager = MountOptions { dirty_background_bytes: 0, forces_commits, ..options(mutant) };
        for seed in 0..5 {
            let images = crashes(seed, eager, async |clock, fs, begin| {
                let one = write_file(fs, b"one", &[1; BLOCK]).await;
                let two = write_file(fs, b"two", &[1; BLOCK]).await;
                fs.sync().await.expect("durable");
                begin();
                for round in 2..30 {
                    fs.write(one, 0, &[round; BLOCK]).await.expect("written");
                    // Writeback comes first.
                    for _ in 0..3 {
                        clock.yield_now().await;
                    }
                    fs.fdatabarrier(one).await.expect("ordered");
                    fs.write(two, 0, &[round; BLOCK]).await.expect("written");
                    fs.fdatabarrier(two).await.expect("ordered");
                    clock.sleep(Duration::from_micros(150)).await;
                }
            });
            assert!(images.len() > 50, "power is cut often");
            for image in images {
                let (one, two) = after_crash(&image, async |fs| {
                    (read_file(&fs, b"one").await.expect("read"), read_file(&fs, b"two").await.expect("read"))
                });
                require(one[0] >= two[0], || format!("{} is there, of {}", two[0], one[0]))?;
            }
        }
        Ok(())
    });
}

/// J3: where the mount asks for it, calls that find nothing dirty commit, also if nothing has changed at all.
#[test]
fn j3_a_call_that_finds_nothing_dirty_forces_a_commit() {
    prove(&[FsMutant::NothingForced], |mutant| {
        simulated_with(1, async |clock| {
            let forcing = MountOptions { forces_commits: true, ..options(mutant) };
            let disk = disk_for(&clock, &new_image(BLOCKS), DUAL);
            let fs = mount(&clock, &disk, forcing).await.expect("mounted");
            let file = write_file(&fs, b"a", &content(BLOCK)).await;
            fs.fsync(file).await.expect("durable");
            let commits = || fs.statistics().journal.commits;
            for durable in [false, true] {
                let before = commits();
                // Something to be written is no reason.
                fs.write(file, 0, b"over").await.expect("written");
                let call =
                    async || if durable { fs.fdatasync(file).await } else { fs.fdatabarrier(file).await };
                call().await.expect("ordered");
                require(commits() == before, || "an overwrite was committed".to_owned())?;
                for calls in 1..=3 {
                    call().await.expect("ordered");
                    require(commits() == before + calls, || format!("{} commits", commits() - before))?;
                }
            }
            fs.unmount().await.expect("unmounted");
            let fs = mount(&clock, &disk, options(None)).await.expect("mounted again");
            require(read_file(&fs, b"a").await.is_ok(), || "an empty transaction damages the log".to_owned())
        })
    });
}

/// J3: a commit that does not refer to a file's data, since it maps none of it anew, may be faster than the call
/// that submits the data: its barrier is then before the data.
#[test]
fn j3_a_faster_commit_is_no_barrier_behind_the_data() {
    prove(&[FsMutant::Journal(JournalMutant::TrustsFasterCommit)], |mutant| {
        for seed in 0..3 {
            let images = crashes(seed, options(mutant), async |clock, fs, begin| {
                let (many, other) = (write_file(fs, b"many", b"").await, write_file(fs, b"other", b"").await);
                write_backwards(fs, many, 40, 1).await;
                fs.write(other, 0, &[1; BLOCK]).await.expect("written");
                fs.sync().await.expect("durable");
                // The timer ticks, so that an overwrite changes the inode.
                clock.sleep(Duration::from_millis(10)).await;
                write_backwards(fs, many, 40, 2).await;
                // The queue does not take all data of this commit.
                let crowd = write_file(fs, b"crowd", b"").await;
                write_backwards(fs, crowd, 300, 1).await;
                let third = write_file(fs, b"third", b"").await;
                begin();
                let commit = clock.spawn({
                    let fs = fs.clone();
                    async move { fs.fbarrier(third).await }
                });
                // The commit has begun, and waits for queue space.
                for _ in 0..4 {
                    clock.yield_now().await;
                }
                fs.fbarrier(many).await.expect("ordered");
                fs.write(other, 0, &[2; BLOCK]).await.expect("written");
                fs.fsync(other).await.expect("durable");
                commit.await.expect("not cancelled").expect("ordered");
            });
            for image in images {
                let (many, other) = after_crash(&image, async |fs| {
                    let other = read_file(&fs, b"other").await.expect("read");
                    (read_file(&fs, b"many").await.expect("read"), other)
                });
                let ordered = other[0] == 1 || many.iter().all(|byte| *byte == 2);
                require(ordered, || "what comes after the barrier is there, and not all before".to_owned())?;
            }
        }
        Ok(())
    });
}

/// What a power cut may leave as soon as `fsync` has returned that was called in the middle of a commit.
fn synced_beside_a_commit(delay: Duration, engine: Engine, mutant: Option<FsMutant>) -> Vec<Image> {
    simulated_with(delay.as_micros() as u64, async |clock| {
        let disk = disk_for(&clock, &new_image(BLOCKS), engine);
        let engine = MountOptions { engine: Some(engine), ..options(mutant) };
        let fs = mount(&clock, &disk, engine).await.expect("mounted");
        let file = write_file(&fs, b"a", &[1; BLOCK]).await;
        fs.sync().await.expect("durable");
        // The timer ticks, so that an overwrite changes the inode; the next one comes within the tick.
        clock.sleep(Duration::from_millis(10)).await;
        fs.write(file, 0, &[2; BLOCK]).await.expect("written");
        let commit = clock.spawn({
            let fs = fs.clone();
            async move { fs.fsync(file).await }
        });
        clock.sleep(delay).await;
        fs.write(file, 0, &[3; BLOCK]).await.expect("written");
        fs.fsync(file).await.expect("durable");
        let (states, mut random) = (disk.crash_states(), clock.random("crash"));
        let images = (0..4).map(|_| states.sample(&mut random)).collect();
        commit.await.expect("not cancelled").expect("durable");
        images
    })
}

/// J2: what is transferred after the flush of a commit needs a flush of its own, whoever is first to come back.
#[test]
fn j2_the_flush_of_a_commit_under_way_does_not_cover_later_data() {
    let holds = |engine, mutant| {
        for delay in (0..600).step_by(15).map(Duration::from_micros) {
            for image in synced_beside_a_commit(delay, engine, mutant) {
                let found = after_crash(&image, async |fs| read_file(&fs, b"a").await.expect("read"));
                require(found == [3; BLOCK], || format!("{} is there after {delay:?}", found[0]))?;
            }
        }
        Ok(())
    };
    assert_eq!(holds(DUAL, None), Ok(()));
    for engine in [Engine::Jbd2 { barrier: true }, Engine::Prefix, Engine::FlushAhead] {
        prove(&[FsMutant::Journal(JournalMutant::TrustsEarlierFlush)], |mutant| holds(engine, mutant));
    }
}

/// J3: of two files that changed in one transaction, the first call pays, where their data is in the log with it.
#[test]
fn j3_journaled_data_is_durable_with_its_transaction() {
    let holds = |engine, mutant| {
        simulated_with(1, async |clock| {
            let disk = disk_for(&clock, &new_image(BLOCKS), engine);
            let engine = MountOptions { engine: Some(engine), mode: JournalMode::Data, ..options(mutant) };
            let fs = mount(&clock, &disk, engine).await.expect("mounted");
            let (a, b) = (write_file(&fs, b"a", &[1; BLOCK]).await, write_file(&fs, b"b", &[1; BLOCK]).await);
            fs.sync().await.expect("durable");
            for file in [a, b] {
                fs.write(file, 0, &[2; BLOCK]).await.expect("written");
            }
            fs.fsync(a).await.expect("durable");
            let (waited, _) = measured(&clock, &fs, fs.fsync(b)).await;
            let found = after_crash(&disk.crash_states().sample(&mut clock.random("crash")), async |fs| {
                read_file(&fs, b"b").await.expect("read")
            });
            require(found == [2; BLOCK], || format!("{} is there", found[0]))?;
            require(waited == waits(0, 0, 0), || format!("{waited:?}"))
        })
    };
    for engine in [DUAL, Engine::Jbd2 { barrier: true }, Engine::Prefix, Engine::FlushAhead] {
        prove(&[FsMutant::FlushesJournaled], |mutant| holds(engine, mutant));
    }
}

/// J3: a file that grows into blocks that it has already changes its size only, and `fdatasync` commits it.
#[test]
fn j3_growing_into_blocks_allocated_ahead_is_durable_with_fdatasync() {
    let length = 8 * BLOCK as u64;
    let images = crashes(6, options(None), async |_, fs, begin| {
        let inode = write_file(fs, b"new", b"").await;
        fs.fallocate(inode, Fallocate::Allocate { keep_size: true }, 0, length).await.expect("allocated");
        fs.fsync(inode).await.expect("durable");
        fs.fallocate(inode, Fallocate::Allocate { keep_size: false }, 0, length).await.expect("grown");
        fs.fdatasync(inode).await.expect("durable");
        begin();
        write_file(fs, b"later", &content(10 * BLOCK)).await;
        fs.sync().await.expect("durable");
    });
    for image in images {
        let new = after_crash(&image, async |fs| read_file(&fs, b"new").await.expect("read"));
        assert_eq!(new.len() as u64, length);
    }
}

/// J3: the data of a directory are its names, and `fdatasync` commits them, though its size stays.
/// A hole in what is durable: `fdatasync` commits it, or what was there before would be back after a crash.
#[test]
fn j3_a_hole_is_durable_with_fdatasync() {
    let rule = |mutant| {
        let images = simulated_with(1, async |clock| {
            let disk = disk(&clock, &new_image(BLOCKS), true);
            let fs = mount(&clock, &disk, options(mutant)).await.expect("mounted");
            let file = write_file(&fs, b"a", &[1; 3 * BLOCK]).await;
            fs.sync().await.expect("durable");
            let hole = fs.fallocate(file, Fallocate::PunchHole, BLOCK as u64, BLOCK as u64).await;
            hole.expect("made");
            fs.fdatasync(file).await.expect("durable");
            disk.crash_states().all().take(32).collect::<Vec<_>>()
        });
        images.iter().try_for_each(|image| {
            let found = after_crash(image, async |fs| read_file(&fs, b"a").await.expect("read"));
            require(found[BLOCK] == 0, || "what was in the hole is back".to_owned())
        })
    };
    prove(&[FsMutant::HolesUnnoticed], rule);
}

#[test]
fn j3_a_name_that_was_removed_stays_removed_after_fdatasync_of_its_directory() {
    let images = crashes(8, options(None), async |clock, fs, begin| {
        write_file(fs, b"old", b"").await;
        fs.sync().await.expect("durable");
        clock.sleep(Duration::from_secs(1)).await;
        fs.unlink(ROOT_INODE, b"old").await.expect("removed");
        fs.fdatasync(ROOT_INODE).await.expect("durable");
        begin();
        write_file(fs, b"later", &content(10 * BLOCK)).await;
        fs.sync().await.expect("durable");
    });
    for image in images {
        let found = after_crash(&image, async |fs| read_file(&fs, b"old").await);
        assert!(found.is_err());
    }
}

/// J6: between two ticks of the timer the inode changes once, and `fsync` is `fdatasync` then.
#[test]
fn j6_overwrites_between_two_ticks_commit_nothing() {
    prove(&[FsMutant::StampsEveryWrite], |mutant| {
        simulated_with(1, async |clock| {
            let disk = disk(&clock, &new_image(BLOCKS), true);
            let fs = mount(&clock, &disk, options(mutant)).await.expect("mounted");
            let inode = write_file(&fs, b"a", &content(BLOCK)).await;
            fs.fsync(inode).await.expect("durable");
            let (began, before) = (clock.now(), fs.statistics().journal.commits);
            for _ in 0..200 {
                fs.write(inode, 0, b"over").await.expect("written");
                fs.fsync(inode).await.expect("durable");
            }
            let commits = fs.statistics().journal.commits - before;
            let ticks = clock.now().since(began).as_nanos() as u64 / (1_000_000_000 / 250) + 2;
            require(commits <= ticks, || format!("{commits} commits in {ticks} ticks"))
        })
    });
}

/// J2: a transaction on its way maps blocks of a file that is truncated before its data was submitted.
#[test]
fn j2_a_truncation_does_not_uncover_what_was_in_the_blocks() {
    prove(&[FsMutant::TruncateForgetsCommitting], |mutant| {
        for seed in 0..10 {
            let images = crashes(seed, options(mutant), async |clock, fs, begin| {
                let (many, short) = (write_file(fs, b"many", b"").await, write_file(fs, b"short", b"").await);
                let other = write_file(fs, b"other", b"").await;
                fs.sync().await.expect("durable");
                // The queue does not take them all.
                write_backwards(fs, many, 300, 1).await;
                fs.write(short, 0, &[7; 4 * BLOCK]).await.expect("written");
                fs.write(other, 0, b"x").await.expect("written");
                begin();
                let commit = clock.spawn({
                    let fs = fs.clone();
                    async move { fs.fbarrier(other).await }
                });
                // The commit has begun, and waits for queue space.
                for _ in 0..4 {
                    clock.yield_now().await;
                }
                fs.truncate(short, 0).await.expect("truncated");
                commit.await.expect("not cancelled").expect("ordered");
                fs.fsync(other).await.expect("durable");
                fs.sync().await.expect("durable");
            });
            for image in images {
                let short = after_crash(&image, async |fs| read_file(&fs, b"short").await.expect("read"));
                require(short.iter().all(|byte| *byte == 7), || "what was in the blocks before".to_owned())?;
            }
        }
        Ok(())
    });
}

/// Journal mode writeback: what is written without order may be missing when its size is there, and then the blocks
/// show what they held before. Those that were allocated to read as zeros do not (J2).
#[test]
fn j2_blocks_allocated_ahead_never_show_what_was_in_them_before() {
    let shows = |ahead: bool| {
        let mode = MountOptions { mode: JournalMode::Writeback, ..options(None) };
        let images = crashes(5, mode, async |clock, fs, begin| {
            // On all of the disk.
            let old = write_file(fs, b"old", b"").await;
            let mut size = 0;
            while let Ok(written) = fs.write(old, size, &[9; 64 * BLOCK]).await {
                size += written as u64;
            }
            let (new, other) = (write_file(fs, b"new", b"").await, write_file(fs, b"other", b"").await);
            fs.sync().await.expect("durable");
            fs.truncate(old, 0).await.expect("truncated");
            fs.sync().await.expect("durable");
            let length = 40 * BLOCK as u64;
            if ahead {
                fs.fallocate(new, Fallocate::Allocate { keep_size: false }, 0, length)
                    .await
                    .expect("allocated");
                fs.sync().await.expect("durable");
            }
            begin();
            fs.write(new, 0, &[7; 40 * BLOCK]).await.expect("written");
            fs.write(other, 0, b"x").await.expect("written");
            fs.fbarrier(other).await.expect("ordered");
            for round in 0..10 {
                clock.sleep(Duration::from_millis(1)).await;
                fs.write(other, 0, &[round]).await.expect("written");
                fs.fdatabarrier(other).await.expect("ordered");
            }
        });
        let of_old = |image: &Image| {
            after_crash(image, async |fs| read_file(&fs, b"new").await.expect("read").contains(&9))
        };
        images.iter().any(of_old)
    };
    assert!(shows(false), "a check that cannot fail proves nothing");
    assert!(!shows(true));
}

/// A page is clean when the disk was told what it holds, and not what it held when its write began to wait for
/// queue space.
#[test]
fn a_page_that_changes_while_its_write_waits_is_written_again() {
    const PAGES: u64 = 300;
    prove(&[FsMutant::Cache(CacheMutant::CleansChangedPages)], |mutant| {
        let image = simulated_with(1, async |clock| {
            let disk = disk(&clock, &new_image(BLOCKS), true);
            let fs = mount(&clock, &disk, options(mutant)).await.expect("mounted");
            let many = write_file(&fs, b"many", b"").await;
            // The queue does not take them all.
            write_backwards(&fs, many, PAGES, 1).await;
            let first = clock.spawn({
                let fs = fs.clone();
                async move { fs.fsync(many).await }
            });
            for _ in 0..4 {
                clock.yield_now().await;
            }
            assert!(fs.statistics().pages_dirty > 0, "some wait");
            write_backwards(&fs, many, PAGES, 2).await;
            first.await.expect("not cancelled").expect("durable");
            fs.fsync(many).await.expect("durable");
            disk.image()
        });
        let found = after_crash(&image, async |fs| read_file(&fs, b"many").await.expect("read"));
        require(found.iter().all(|byte| *byte == 2), || "a change was never written".to_owned())
    });
}

/// A name: what `lookup` needs to find the inode is durable with it.
#[test]
fn fsync_of_a_new_file_makes_its_name_durable() {
    let images = crashes(4, options(None), async |_, fs, begin| {
        let inode = write_file(fs, b"new", &content(3 * BLOCK)).await;
        fs.fsync(inode).await.expect("durable");
        begin();
        write_file(fs, b"later", &content(10 * BLOCK)).await;
        fs.sync().await.expect("durable");
    });
    for image in images {
        after_crash(&image, async |fs| {
            fs.lookup(ROOT_INODE, b"new").await.expect("found");
            assert_eq!(read_file(&fs, b"new").await, Ok(content(3 * BLOCK)));
        });
    }
}

/// A program that writes in place, and wants each write ordered, calls nothing for it.
#[test]
fn a_write_in_place_is_ordered_by_itself() {
    simulated_with(5, async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let fs = mount(&clock, &disk, options(None)).await.expect("mounted");
        let file = write_file(&fs, b"log", &content(2 * BLOCK)).await;
        let ordered = async |offset: usize, bytes: &[u8]| {
            let before = fs.statistics().answered.ordered;
            let end = (offset + bytes.len()) as u64;
            let done =
                Filesystem::from(fs.clone()).in_order(file, end, fs.write(file, offset as u64, bytes)).await;
            (done.expect("ordered").is_ok(), fs.statistics().answered.ordered - before)
        };
        assert_eq!(ordered(BLOCK, &content(BLOCK)).await, (true, 1));
        assert_eq!(ordered(BLOCK + 1, &content(BLOCK)).await, (true, 0), "it makes the file longer");
        assert_eq!(ordered(usize::MAX - BLOCK, &content(BLOCK)).await, (false, 0), "no file is so long");
        assert_eq!(fs.statistics().pages_dirty, 2, "neither is written for that");
    });
}

/// Overwrites files, makes a file and renames one, orders all, and then overwrites the last file, with no other call for order.
fn tree_barrier(engine: Engine, mutant: Option<FsMutant>) -> Result<(), String> {
    let mut reached = 0;
    for seed in 0..4 {
        let options = MountOptions { engine: Some(engine), ..options(mutant) };
        let images = crashes(seed, options, async |clock, fs, begin| {
            let mut files = Vec::new();
            for number in 0..4 {
                files.push(write_file(fs, format!("file {number}").as_bytes(), &[1; 3 * BLOCK]).await);
            }
            let last = write_file(fs, b"last", &[1; BLOCK]).await;
            fs.sync().await.expect("durable");
            begin();
            for inode in &files {
                fs.write(*inode, 0, &[2; 3 * BLOCK]).await.expect("written");
            }
            write_file(fs, b"made", &[2; BLOCK]).await;
            let flags = RenameFlags { no_replace: false, exchange: false, whiteout: false };
            fs.rename((ROOT_INODE, b"file 0"), (ROOT_INODE, b"renamed"), flags).await.expect("renamed");
            fs.order_all().await.expect("ordered");
            fs.write(last, 0, &[2; BLOCK]).await.expect("written");
            fs.fbarrier(last).await.expect("ordered");
            clock.sleep(Duration::from_millis(20)).await;
        });
        for image in &images {
            let (later, missing) = after_crash(image, async |fs| {
                let later = read_file(&fs, b"last").await.expect("there")[0] == 2;
                let mut missing = Vec::new();
                for name in ["renamed", "file 1", "file 2", "file 3", "made"] {
                    let found = read_file(&fs, name.as_bytes()).await;
                    if !found.is_ok_and(|found| !found.is_empty() && found.iter().all(|byte| *byte == 2)) {
                        missing.push(name);
                    }
                }
                (later, missing)
            });
            reached += u32::from(later);
            require(!later || missing.is_empty(), || format!("seed {seed}: {missing:?} are not there"))?;
        }
    }
    require(reached > 0, || "no crash left what came later".to_owned())
}

#[test]
fn a_tree_barrier_orders_what_any_caller_has_changed() {
    let dual = |mutant| tree_barrier(DUAL, mutant);
    prove(&[FsMutant::TreeBarrierForgetsData], dual);
    for engine in [Engine::Prefix, Engine::Jbd2 { barrier: true }] {
        assert_eq!(tree_barrier(engine, None), Ok(()), "{engine:?}");
    }
}

#[test]
fn a_tree_barrier_waits_for_nothing() {
    simulated_with(1, async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let fs = mount(&clock, &disk, options(None)).await.expect("mounted");
        for number in 0..5 {
            write_file(&fs, format!("{number}").as_bytes(), &content(BLOCK)).await;
            let (_, took) = measured(&clock, &fs, fs.order_all()).await;
            assert_eq!(took, Duration::ZERO);
        }
    });
}
