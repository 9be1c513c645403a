//! Reads beside one another, and beside whatever changes the file: no call waits for a read of another one, and
//! no call reads what was never there.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use weir_vfs::{Fallocate, FsError, InodeNumber};

use crate::slow::Slow;
use crate::support::{BLOCKS, content, disk, judge, mount, new_image, simulated, simulated_with, write_file};
use futures_util::future::join_all;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use weir_fs::{BarrierFs, CacheMutant, FsMutant, MountOptions};
use weir_runtime::{Handle, Instant, Semaphore};
use weir_storage::{BLOCK_BYTES, Rules, StorageError};

const BLOCK: u64 = BLOCK_BYTES as u64;

const SLOW: Duration = Duration::from_millis(100);

/// A file of 512 blocks of which nothing is in memory but its node and its map, on a disk whose reads are slow now.
async fn slow_file(clock: &Handle, options: MountOptions) -> (Rc<Slow>, BarrierFs, InodeNumber) {
    let slow = Slow::new(clock, disk(clock, &new_image(BLOCKS), true), Duration::ZERO);
    let fs = mount(clock, &slow, MountOptions::default()).await.expect("mounted");
    let inode = write_file(&fs, b"file", &content(512 * BLOCK_BYTES)).await;
    fs.unmount().await.expect("unmounted");
    let fs = mount(clock, &slow, options).await.expect("mounted again");
    fs.read(inode, 511 * BLOCK, &mut [0]).await.expect("read");
    slow.delay.set(SLOW);
    slow.reads.set(0);
    (slow, fs, inode)
}

async fn block_of(fs: &BarrierFs, inode: InodeNumber, block: u64) -> Result<Vec<u8>, FsError> {
    let mut bytes = vec![0; BLOCK_BYTES];
    let read = fs.read(inode, block * BLOCK, &mut bytes).await?;
    bytes.truncate(read);
    Ok(bytes)
}

fn expected(block: u64) -> Vec<u8> {
    content(512 * BLOCK_BYTES)[(block * BLOCK) as usize..][..BLOCK_BYTES].to_vec()
}

#[test]
fn readers_of_a_file_do_not_wait_for_each_other() {
    simulated(async |clock| {
        let (slow, fs, inode) = slow_file(&clock, MountOptions::default()).await;
        let began = clock.now();
        let found = join_all((0..32).map(|nth| block_of(&fs, inode, 7 + 11 * nth))).await;
        for (nth, found) in (0..).zip(found) {
            assert_eq!(found.expect("read"), expected(7 + 11 * nth));
        }
        assert_eq!(slow.reads.get(), 32);
        let took = clock.now().since(began);
        assert!(took < SLOW * 3 / 2, "{took:?}");
    });
}

#[test]
fn readers_of_one_block_share_its_read() {
    simulated(async |clock| {
        let (slow, fs, inode) = slow_file(&clock, MountOptions::default()).await;
        let found = join_all((0..32).map(|_| block_of(&fs, inode, 100))).await;
        assert!(found.into_iter().all(|found| found == Ok(expected(100))));
        assert_eq!(slow.reads.get(), 1);
    });
}

/// A reader that gives up lets the others go on.
#[test]
fn a_read_that_is_dropped_is_made_by_a_task_that_waits_for_it() {
    simulated(async |clock| {
        let (slow, fs, inode) = slow_file(&clock, MountOptions::default()).await;
        let first = {
            clock.spawn({
                let fs = fs.clone();
                async move { block_of(&fs, inode, 100).await }
            })
        };
        clock.sleep(SLOW / 2).await;
        let second = clock.spawn({
            let fs = fs.clone();
            async move { block_of(&fs, inode, 100).await }
        });
        clock.sleep(SLOW / 10).await;
        first.cancel();
        assert_eq!(second.await.expect("not cancelled"), Ok(expected(100)));
        assert_eq!(slow.reads.get(), 2);
    });
}

#[test]
fn a_writer_of_a_file_does_not_wait_for_its_readers() {
    simulated(async |clock| {
        let (slow, fs, inode) = slow_file(&clock, MountOptions::default()).await;
        slow.delay.set(Duration::ZERO);
        fs.read(inode, 0, &mut [0; BLOCK_BYTES]).await.expect("read");
        fs.write(inode, 512 * BLOCK, &[1; BLOCK_BYTES]).await.expect("the bitmaps are in memory now");
        slow.delay.set(SLOW);
        let reader = clock.spawn({
            let fs = fs.clone();
            async move { block_of(&fs, inode, 100).await }
        });
        // A write of a part of a block reads the rest of it, and no call waits for that either.
        let part = clock.spawn({
            let fs = fs.clone();
            async move { fs.write(inode, 200 * BLOCK + 1, &[9; 10]).await }
        });
        clock.sleep(SLOW / 10).await;
        let began = clock.now();
        fs.write(inode, 5, b"a page in memory").await.expect("written");
        fs.write(inode, 513 * BLOCK, &[1; BLOCK_BYTES]).await.expect("appended");
        fs.write(inode, 300 * BLOCK, &[2; BLOCK_BYTES]).await.expect("written");
        fs.fallocate(inode, Fallocate::PunchHole, 100 * BLOCK, BLOCK).await.expect("punched");
        fs.truncate(inode, 400 * BLOCK).await.expect("truncated");
        let took = clock.now().since(began);
        assert!(took < SLOW / 2, "{took:?}");
        let found = reader.await.expect("not cancelled").expect("read");
        assert!(found == expected(100) || found == [0; BLOCK_BYTES]);
        assert_eq!(part.await.expect("not cancelled"), Ok(10));
        assert_eq!(block_of(&fs, inode, 100).await.expect("read"), [0; BLOCK_BYTES], "what was read stayed");
        let mut written = expected(200);
        written[1..11].fill(9);
        assert_eq!(block_of(&fs, inode, 200).await.expect("read"), written);
    });
}

#[test]
fn a_read_that_fails_leaves_nothing_behind() {
    simulated(async |clock| {
        let (slow, fs, inode) = slow_file(&clock, MountOptions::default()).await;
        // Of a large read one command fails.
        slow.delay.set(Duration::ZERO);
        let before = fs.statistics().pages;
        let image = slow.disk.image();
        let damaged =
            (0..image.blocks()).find(|block| image.read(weir_storage::Lba(*block)) == expected(300));
        slow.fails.set(damaged);
        let found = join_all([300, 300, 299].map(|block| block_of(&fs, inode, block))).await;
        assert_eq!(found[0], Err(FsError::Storage(StorageError::Gone)));
        assert_eq!(found[1], Err(FsError::Storage(StorageError::Gone)));
        assert_eq!(found[2], Ok(expected(299)));
        assert_eq!(fs.statistics().pages, before + 1);
        let mut all = vec![0; 512 * BLOCK_BYTES];
        assert_eq!(fs.read(inode, 0, &mut all).await, Err(FsError::Storage(StorageError::Gone)));
        slow.fails.set(None);
        assert_eq!(block_of(&fs, inode, 300).await, Ok(expected(300)));
    });
}

/// A file that is read slowly, and another that pushes its pages out of a small cache.
async fn pushed(clock: &Handle, mutant: Option<FsMutant>) -> (BarrierFs, InodeNumber, InodeNumber) {
    let options =
        MountOptions { cache_bytes: 64 * BLOCK, rules: Rules::but(mutant), ..MountOptions::default() };
    let (slow, fs, inode) = slow_file(clock, options).await;
    slow.delay.set(Duration::ZERO);
    let other = write_file(&fs, b"other", &[2; 400 * BLOCK_BYTES]).await;
    fs.sync().await.expect("durable");
    slow.delay.set(SLOW);
    (fs, inode, other)
}

/// Gives a file another first block, brings it to the disk, and out of memory. A write to the same place would wait for
/// those who read it (S6).
async fn replace_and_push(fs: &BarrierFs, inode: InodeNumber, other: InodeNumber) {
    fs.fallocate(inode, Fallocate::PunchHole, 0, BLOCK).await.expect("punched");
    fs.write(inode, 0, &[1; BLOCK_BYTES]).await.expect("written");
    fs.fsync(inode).await.expect("durable");
    for part in 0..4 {
        fs.write(other, part * 100 * BLOCK, &[2; 100 * BLOCK_BYTES]).await.expect("written");
        fs.fsync(other).await.expect("durable");
    }
}

/// What the first block holds that was replaced while a task read it.
fn read_beside_a_change(mutant: Option<FsMutant>) -> Vec<u8> {
    simulated(async |clock| {
        let (fs, inode, other) = pushed(&clock, mutant).await;
        let reader = clock.spawn({
            let fs = fs.clone();
            async move { block_of(&fs, inode, 0).await }
        });
        clock.sleep(SLOW / 10).await;
        replace_and_push(&fs, inode, other).await;
        reader.await.expect("not cancelled").expect("read");
        block_of(&fs, inode, 0).await.expect("read")
    })
}

#[test]
fn what_was_read_before_a_change_does_not_come_back_after_it() {
    assert!(read_beside_a_change(None) == [1; BLOCK_BYTES]);
    assert!(
        read_beside_a_change(Some(FsMutant::Cache(CacheMutant::ReadsOutliveBlocks))) == expected(0),
        "of before"
    );
}

/// A block that is replaced, written back and forgotten faster than it can be read: how often, until a task has read
/// it; none if no task has.
fn rounds_until_read(mutant: Option<FsMutant>) -> Option<u32> {
    simulated(async |clock| {
        let (fs, inode, other) = pushed(&clock, mutant).await;
        let done = Rc::new(Cell::new(false));
        let reader = clock.spawn({
            let (fs, done) = (fs.clone(), Rc::clone(&done));
            async move {
                block_of(&fs, inode, 0).await.expect("read");
                done.set(true);
            }
        });
        clock.sleep(SLOW / 10).await;
        for round in 0..100 {
            if done.get() {
                return Some(round);
            }
            replace_and_push(&fs, inode, other).await;
            clock.sleep(SLOW / 20).await;
        }
        drop(reader);
        None
    })
}

#[test]
fn a_read_that_is_overtaken_again_and_again_comes_to_its_end() {
    assert!(rounds_until_read(None).is_some());
    assert_eq!(rounds_until_read(Some(FsMutant::ReadsStarve)), None);
}

/// Bytes that the model tells apart.
const UNIT: u64 = 512;
/// Units of the file at most.
const UNITS: u64 = 100 * BLOCK / UNIT;
/// What every unit of other files holds.
const FOREIGN: u64 = u64::MAX;

/// What a unit held from when the call began that made it so, until the call ended that made it something else.
struct Held {
    /// The call that wrote it, 0 for zeros; none behind the end of the file.
    stamp: Option<u64>,
    from: Instant,
    until: Option<Instant>,
}

/// All that every unit of a file ever held. Changes come one at a time.
struct Model {
    units: Vec<Vec<Held>>,
    size: u64,
}

impl Model {
    fn new(now: Instant) -> Model {
        let nothing = || vec![Held { stamp: None, from: now, until: None }];
        Model { units: (0..UNITS).map(|_| nothing()).collect(), size: 0 }
    }

    fn now(&self, unit: u64) -> Option<u64> {
        self.units[unit as usize].last().expect("never empty").stamp
    }

    /// A call begins that makes units so; the others keep what they hold.
    fn begin(&mut self, now: Instant, becomes: impl Fn(u64, Option<u64>) -> Option<u64>) {
        for unit in 0..UNITS {
            let (old, new) = (self.now(unit), becomes(unit, self.now(unit)));
            if old != new {
                self.units[unit as usize].push(Held { stamp: new, from: now, until: None });
            }
        }
    }

    /// It has ended.
    fn end(&mut self, now: Instant) {
        for unit in &mut self.units {
            let last = unit.len() - 1;
            for old in unit[..last].iter_mut().filter(|old| old.until.is_none()) {
                old.until = Some(now);
            }
        }
        self.size = (0..UNITS).filter(|unit| self.now(*unit).is_some()).count() as u64;
    }

    fn held(&self, unit: u64, stamp: Option<u64>, (from, until): (Instant, Instant)) -> bool {
        let held = &self.units[unit as usize];
        held.iter()
            .any(|held| held.stamp == stamp && held.from <= until && held.until.is_none_or(|end| end >= from))
    }
}

fn stamped(stamp: u64, units: u64) -> Vec<u8> {
    stamp.to_le_bytes().repeat((units * UNIT / 8) as usize)
}

/// What everybody plays with.
struct Ground {
    clock: Handle,
    fs: BarrierFs,
    file: InodeNumber,
    model: RefCell<Model>,
    turn: Semaphore,
    calls: Cell<u64>,
    over: Cell<bool>,
}

impl Ground {
    /// Reads at random places until it is over.
    async fn read(self: Rc<Ground>, mut random: Pcg64) -> Result<(), String> {
        while !self.over.get() {
            // What is in memory takes no time.
            self.clock.sleep(Duration::from_micros(random.random_range(1..1000))).await;
            let first = random.random_range(0..UNITS);
            let units = random.random_range(1..=(UNITS - first).min(64));
            let mut bytes = vec![0xAB; (units * UNIT) as usize];
            let from = self.clock.now();
            let read = self.fs.read(self.file, first * UNIT, &mut bytes).await;
            let read = read.map_err(|error| format!("a read fails: {error}"))? as u64;
            let time = (from, self.clock.now());
            let model = self.model.borrow();
            for unit in 0..read / UNIT {
                let bytes = &bytes[(unit * UNIT) as usize..][..UNIT as usize];
                let stamp = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
                if bytes != stamped(stamp, 1) || !model.held(first + unit, Some(stamp), time) {
                    return Err(format!("unit {} reads {stamp:#x}, which it never held then", first + unit));
                }
            }
            if read < units * UNIT && !model.held(first + read / UNIT, None, time) {
                return Err(format!("a read ends before unit {}, which was there", first + read / UNIT));
            }
        }
        Ok(())
    }

    /// Changes the file, in turn with others who do.
    async fn change(self: Rc<Ground>, mut random: Pcg64) -> Result<(), FsError> {
        for _ in 0..60 {
            let turn = self.turn.acquire(1).await;
            self.calls.set(self.calls.get() + 1);
            let stamp = self.calls.get();
            let first = random.random_range(0..UNITS);
            let units = random.random_range(1..=(UNITS - first).min(80));
            let whole = random.random_bool(0.7);
            let (first, units) =
                if whole { (first / 8 * 8, units.next_multiple_of(8)) } else { (first, units) };
            let inside = move |unit: u64| (first..first + units).contains(&unit);
            let now = self.clock.now();
            match random.random_range(0..10) {
                0..4 => {
                    self.model.borrow_mut().begin(now, |unit, old| match old {
                        _ if inside(unit) => Some(stamp),
                        None if unit < first => Some(0),
                        old => old,
                    });
                    self.fs.write(self.file, first * UNIT, &stamped(stamp, units)).await?;
                }
                4..6 => {
                    self.model
                        .borrow_mut()
                        .begin(now, |unit, old| old.map(|old| if inside(unit) { 0 } else { old }));
                    self.fs.fallocate(self.file, Fallocate::PunchHole, first * UNIT, units * UNIT).await?;
                }
                6 => {
                    self.model
                        .borrow_mut()
                        .begin(now, |unit, old| old.map(|old| if inside(unit) { 0 } else { old }));
                    let mode = Fallocate::ZeroRange { keep_size: true };
                    self.fs.fallocate(self.file, mode, first * UNIT, units * UNIT).await?;
                }
                7 | 8 => {
                    self.model
                        .borrow_mut()
                        .begin(now, |unit, old| (unit < first).then_some(old.unwrap_or(0)));
                    self.fs.truncate(self.file, first * UNIT).await?;
                }
                _ => self.fs.fsync(self.file).await?,
            }
            self.model.borrow_mut().end(self.clock.now());
            drop(turn);
            self.clock.sleep(Duration::from_micros(random.random_range(0..3000))).await;
        }
        Ok(())
    }

    /// Takes blocks that others free, and frees them.
    async fn take_blocks(self: Rc<Ground>, file: InodeNumber) -> Result<(), FsError> {
        while !self.over.get() {
            for at in 0..100 {
                self.fs.write(file, at * BLOCK, &stamped(FOREIGN, 8)).await?;
            }
            self.fs.fsync(file).await?;
            self.clock.sleep(Duration::from_millis(2)).await;
            self.fs.truncate(file, 0).await?;
            self.fs.fsync(file).await?;
        }
        Ok(())
    }
}

/// Readers, changers, and takers of blocks at one file, on a disk with slow reads and hardly any space: what a
/// reader saw that it must not see.
fn play(seed: u64, mutant: Option<FsMutant>) -> Result<(), String> {
    let image = simulated_with(seed, async |clock| {
        let slow = Slow::new(&clock, disk(&clock, &new_image(4096), true), Duration::ZERO);
        let options =
            MountOptions { cache_bytes: 64 * BLOCK, rules: Rules::but(mutant), ..MountOptions::default() };
        let fs = mount(&clock, &slow, options).await.expect("mounted");
        let (file, other) = (write_file(&fs, b"file", b"").await, write_file(&fs, b"other", b"").await);
        let ballast = write_file(&fs, b"ballast", b"").await;
        let mut size = 0;
        while fs.statfs().await.free_blocks > 320 {
            size += fs.write(ballast, size, &stamped(FOREIGN, 8)).await.expect("room") as u64;
        }
        fs.sync().await.expect("durable");
        slow.delay.set(Duration::from_millis(20));
        *slow.random.borrow_mut() = Some(Pcg64::seed_from_u64(seed));
        let ground = Rc::new(Ground {
            model: RefCell::new(Model::new(clock.now())),
            clock: clock.clone(),
            fs: fs.clone(),
            file,
            turn: Semaphore::new(1),
            calls: Cell::new(0),
            over: Cell::new(false),
        });
        let random = |nth: u64| Pcg64::seed_from_u64(1000 * seed + nth);
        let readers: Vec<_> = (0..12).map(|nth| clock.spawn(Rc::clone(&ground).read(random(nth)))).collect();
        let changers: Vec<_> =
            (0..4).map(|nth| clock.spawn(Rc::clone(&ground).change(random(100 + nth)))).collect();
        let taker = clock.spawn(Rc::clone(&ground).take_blocks(other));
        let told = |error: FsError| format!("a change fails: {error}");
        let mut done = Ok(());
        for changer in changers {
            done = done.and(changer.await.expect("not cancelled").map_err(told));
        }
        ground.over.set(true);
        for reader in readers {
            done = done.and(reader.await.expect("not cancelled"));
        }
        done.and(taker.await.expect("not cancelled").map_err(told))?;
        fs.unmount().await.map_err(told)?;
        Ok::<_, String>(slow.disk.image())
    })?;
    judge(&image);
    Ok(())
}

#[test]
fn what_is_read_was_there_while_it_was_read() {
    for seed in 0..6 {
        assert_eq!(play(seed, None), Ok(()), "seed {seed}");
    }
}

#[test]
fn what_was_freed_while_it_was_read_is_noticed() {
    assert!((0..6).any(|seed| play(seed, Some(FsMutant::Cache(CacheMutant::ReadsOutliveBlocks))).is_err()));
}
