//! Which flush makes what durable: one that was submitted before data was transferred says nothing of it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use weir_vfs::Fallocate;

use crate::support::{self, disk, disk_for, mount, new_image, read_file, simulated_with, write_file};
use event_listener::Event;
use weir_fs::{Conflicts, Engine, FsMutant, JournalMutant, MountOptions};
use weir_runtime::Handle;
use weir_storage::{AdversaryDisk, BLOCK_BYTES, Command, Interposed, Rejected, Rules, Storage, Ticket};

/// A disk whose flushes do what they should at once, and say so late, when they are told to.
struct SlowToSay {
    disk: Rc<AdversaryDisk>,
    clock: Handle,
    holds: Cell<bool>,
    held: RefCell<Vec<Rc<Event>>>,
}

impl SlowToSay {
    fn before(disk: &Rc<AdversaryDisk>, clock: &Handle) -> Rc<SlowToSay> {
        let (disk, clock) = (Rc::clone(disk), clock.clone());
        Rc::new(SlowToSay { disk, clock, holds: Cell::new(false), held: RefCell::default() })
    }

    fn let_go(&self) {
        self.holds.set(false);
        self.held.take().iter().for_each(|event| {
            event.notify(1);
        });
    }
}

impl Interposed for SlowToSay {
    fn below(&self) -> &dyn Storage {
        &*self.disk
    }

    fn take(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        let holds = matches!(command, Command::Flush) && self.holds.get();
        let flushed = self.disk.submit(command)?;
        if !holds {
            return Ok(flushed);
        }
        let (ticket, completer) = Ticket::pending();
        let event = Rc::new(Event::new());
        let told = event.listen();
        self.held.borrow_mut().push(event);
        drop(self.clock.spawn(async move {
            let done = flushed.transferred().await;
            told.await;
            completer.transferred(done);
        }));
        Ok(ticket)
    }
}

/// Data that goes to the disk while its file's transaction is being flushed, by its own call or by writeback.
#[test]
fn fsync_does_not_take_a_flush_for_its_own_that_was_submitted_before_its_data() {
    for engine in [Conflicts::Copy, Conflicts::List].map(|conflicts| Engine::Dual { conflicts }) {
        for (data_only, written_back) in [(false, true), (true, true), (false, false)] {
            simulated_with(1, async |clock| {
                let below = disk(&clock, &new_image(support::BLOCKS), true);
                let slow = SlowToSay::before(&below, &clock);
                let dirty = if written_back { 0 } else { 1 << 20 };
                let options = MountOptions {
                    engine: Some(engine),
                    dirty_background_bytes: dirty,
                    ..MountOptions::default()
                };
                let fs = mount(&clock, &slow, options).await.unwrap();
                let file = write_file(&fs, b"a", &[1; 2 * BLOCK_BYTES]).await;
                slow.holds.set(true);
                let (other, at) = (fs.clone(), clock.clone());
                let first = at.spawn(async move { other.fsync(file).await });
                clock.sleep(Duration::from_millis(2)).await;
                assert_eq!(slow.held.borrow().len(), 1, "the transaction is being flushed: {engine:?}");
                fs.write(file, 0, &[2; BLOCK_BYTES]).await.unwrap();
                clock.sleep(Duration::from_micros(500)).await;
                let other = fs.clone();
                let second = at.spawn(async move {
                    if data_only { other.fdatasync(file).await } else { other.fsync(file).await }
                });
                clock.sleep(Duration::from_millis(2)).await;
                slow.let_go();
                first.await.unwrap().unwrap();
                second.await.unwrap().unwrap();
                for image in below.crash_states().all().take(64) {
                    let after = disk(&clock, &image, true);
                    let fs = mount(&clock, &after, options).await.unwrap();
                    let found = read_file(&fs, b"a").await.unwrap();
                    assert_eq!(
                        found[0], 2,
                        "{engine:?}, data only: {data_only}, written back: {written_back}"
                    );
                }
            });
        }
    }
}

/// How many blocks of a file are there after a power cut right when `fsync` returns, which was called while `sync`
/// had its flush under way: the fewest.
fn synced_beside_sync(mutant: Option<FsMutant>) -> usize {
    simulated_with(1, async |clock| {
        let below = disk(&clock, &new_image(support::BLOCKS), true);
        let slow = SlowToSay::before(&below, &clock);
        let engine = Some(Engine::Dual { conflicts: Conflicts::Copy });
        let options = MountOptions { engine, rules: Rules::but(mutant), ..MountOptions::default() };
        let fs = mount(&clock, &slow, options).await.expect("mounted");
        let file = write_file(&fs, b"a", &[1; BLOCK_BYTES]).await;
        fs.sync().await.expect("durable");
        slow.holds.set(true);
        let other = fs.clone();
        let sync = clock.spawn(async move { other.sync().await });
        clock.sleep(Duration::from_millis(2)).await;
        assert_eq!(slow.held.borrow().len(), 1, "its flush is under way");
        fs.write(file, BLOCK_BYTES as u64, &[1; BLOCK_BYTES]).await.expect("written");
        let (other, disk_below) = (fs.clone(), Rc::clone(&below));
        let fsync = clock.spawn(async move {
            other.fsync(file).await.expect("durable");
            disk_below.crash_states().all().take(64).collect::<Vec<_>>()
        });
        // The transaction is transferred.
        clock.sleep(Duration::from_millis(2)).await;
        slow.let_go();
        sync.await.expect("not cancelled").expect("durable");
        let mut fewest = usize::MAX;
        for image in fsync.await.expect("not cancelled") {
            let fs =
                mount(&clock, &disk(&clock, &image, true), MountOptions::default()).await.expect("recovered");
            fewest = fewest.min(read_file(&fs, b"a").await.expect("read").len() / BLOCK_BYTES);
        }
        fewest
    })
}

#[test]
fn j1_the_flush_of_sync_covers_nothing_that_comes_later() {
    assert_eq!(synced_beside_sync(None), 2);
    let mutant = FsMutant::Journal(JournalMutant::SyncCoversLater);
    assert!(synced_beside_sync(Some(mutant)) < 2, "{mutant:?} was not noticed");
}

/// What takes dirty pages of a file away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Truncate,
    PunchHole,
    ZeroRange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Fsync,
    Fdatasync,
    Sync,
    Fbarrier,
    Fdatabarrier,
}

const TAKES: [Takes; 3] = [Takes::Truncate, Takes::PunchHole, Takes::ZeroRange];
const CALLS: [Call; 5] = [Call::Fsync, Call::Fdatasync, Call::Sync, Call::Fbarrier, Call::Fdatabarrier];

/// A file loses a dirty page while a caller asks for order or durability, so long after that began. Whether any power
/// cut right then, or after a later write that is ordered, leaves what was overwritten before both.
fn shows_what_was_overwritten(options: MountOptions, takes: Takes, call: Call, after: Duration) -> bool {
    simulated_with(1, async |clock| {
        let engine = options.engine.expect("one is given");
        let below = disk_for(&clock, &new_image(support::BLOCKS), engine);
        let fs = mount(&clock, &below, options).await.expect("mounted");
        let file = write_file(&fs, b"a", &[1; 2 * BLOCK_BYTES]).await;
        let later = write_file(&fs, b"later", &[1; BLOCK_BYTES]).await;
        fs.unmount().await.expect("durable");
        // Bitmaps have to be read again, which takes its time.
        let fs = mount(&clock, &below, options).await.expect("mounted");
        // In the same tick of the timer an overwrite changes nothing of the inode.
        clock.sleep(Duration::from_millis(1010)).await;
        fs.write(file, 0, &[1; BLOCK_BYTES]).await.expect("written");
        fs.fsync(file).await.expect("durable");
        fs.write(file, 0, &[2; BLOCK_BYTES]).await.expect("written");
        let other = fs.clone();
        let taken = clock.spawn(async move {
            let (hole, zeros) = (Fallocate::PunchHole, Fallocate::ZeroRange { keep_size: true });
            match takes {
                Takes::Truncate => other.truncate(file, 0).await,
                Takes::PunchHole => other.fallocate(file, hole, 0, BLOCK_BYTES as u64).await,
                Takes::ZeroRange => other.fallocate(file, zeros, 0, BLOCK_BYTES as u64).await,
            }
        });
        clock.sleep(after).await;
        let called = match call {
            Call::Fsync => fs.fsync(file).await,
            Call::Fdatasync => fs.fdatasync(file).await,
            Call::Sync => fs.sync().await,
            Call::Fbarrier => fs.fbarrier(file).await,
            Call::Fdatabarrier => fs.fdatabarrier(file).await,
        };
        called.expect("promised");
        let orders = matches!(call, Call::Fbarrier | Call::Fdatabarrier);
        if orders {
            fs.write(later, 0, &[9; BLOCK_BYTES]).await.expect("written");
            fs.fdatabarrier(later).await.expect("ordered");
        }
        let left: Vec<_> = below.crash_states().all().take(24).collect();
        taken.await.expect("not cancelled").expect("taken");
        for image in left {
            let after = disk_for(&clock, &image, engine);
            let fs = mount(&clock, &after, MountOptions::default()).await.expect("recovered");
            let is_later = read_file(&fs, b"later").await.expect("read").first() == Some(&9);
            let shows = read_file(&fs, b"a").await.expect("read").first() == Some(&1);
            if shows && (is_later || !orders) {
                return true;
            }
        }
        false
    })
}

#[test]
fn a_call_waits_for_the_transaction_that_drops_dirty_pages() {
    let engines = [
        Engine::Dual { conflicts: Conflicts::Copy },
        Engine::Dual { conflicts: Conflicts::List },
        Engine::Jbd2 { barrier: true },
        Engine::Prefix,
        Engine::FlushAhead,
        Engine::AsyncCommit,
    ];
    for engine in engines {
        let mut noticed = Vec::new();
        for (takes, call) in TAKES.into_iter().flat_map(|takes| CALLS.map(|call| (takes, call))) {
            let shows = |mutant| {
                let engine = Some(engine);
                let options = MountOptions {
                    engine,
                    rules: Rules::but(mutant),
                    timer_hz: 1,
                    ..MountOptions::default()
                };
                (0..40).any(|nth| {
                    shows_what_was_overwritten(options, takes, call, Duration::from_micros(19 * nth))
                })
            };
            assert!(!shows(None), "{engine:?}: {takes:?}, {call:?}");
            if shows(Some(FsMutant::DropsPagesSilently)) {
                noticed.push(call);
            }
        }
        // `sync` writes the file back again after it has committed everything. On the legacy path, `fbarrier` is `fsync`.
        let calls = match engine {
            Engine::Dual { .. } => &[Call::Fsync, Call::Fdatasync, Call::Fbarrier, Call::Fdatabarrier][..],
            Engine::Jbd2 { .. }
            | Engine::AsyncCommit
            | Engine::OptFs
            | Engine::Prefix
            | Engine::FlushAhead
            | Engine::Unjournaled => &[Call::Fsync, Call::Fdatasync],
        };
        for call in calls {
            assert!(noticed.contains(call), "{engine:?}: the mutant was not noticed by {call:?}");
        }
    }
}
