//! One run: rounds of transactions, with the power cut at every event of each. SQLite runs outside of any task, on a
//! runtime that it drives; what a cut leaves is judged in the middle of its calls, in separate runtimes.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use futures_util::FutureExt as _;
use weir_fs::{BarrierFs, MountOptions};
use weir_runtime::{Handle, Runtime, Simulation};
use weir_sqlite_vfs::{Call, Connection, Fault, Mode, Vfs};
use weir_stack::FalseOrder;
use weir_storage::{Ordering, Storage};

use super::script::{Content, End, Past, Script, Settings, read};
use super::syncs::Watch;
use super::{SqliteCampaign, SqliteJournal, SqliteTotals};
use crate::campaign::{Run, runtime_of};
use crate::content::mix;
use crate::cuts::{CUTS_PER_EVENT, Cuts};
use crate::fs::ground::{Blocks, DiskTraits, Ground, Left};
use crate::options::{mount_options, pick};

/// Rounds of a run.
const ROUNDS: u32 = 3;
/// Transactions of a round at most.
const TRANSACTIONS_MAX: u64 = 30;
/// Transactions before the first cut, in some rounds: the journal and the log have been used again by then.
const TRANSACTIONS_WARM: u64 = 60;
/// Of so many calls that begin or end a transaction without a journal, one fails.
const BATCHES_PER_FAILURE: u64 = 8;
/// States of a round that are judged, at most: what comes later in it is judged in other rounds.
const STATES_MAX: u64 = 400;

/// The database.
pub(super) const PATH: &str = "a.db";

/// The transactions that count when the power is cut, by their numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Acknowledged {
    /// The last one that has to be left.
    floor: u64,
    /// The last one whose COMMIT has returned.
    newest: u64,
}

/// One run.
pub(super) struct SqliteRun {
    runtime: Rc<Runtime>,
    handle: Handle,
    campaign: SqliteCampaign,
    options: MountOptions,
    settings: Settings,
    found: Rc<RefCell<Cuts<SqliteTotals>>>,
    past: Rc<RefCell<Past>>,
    acknowledged: Rc<Cell<Acknowledged>>,
}

impl SqliteRun {
    /// Plays the run of this seed.
    pub(super) fn play(campaign: &SqliteCampaign, image: &Blocks, seed: u64) -> Run<SqliteTotals> {
        let runtime = Rc::new(runtime_of(seed));
        let run = SqliteRun::new(&runtime, campaign);
        let ended = run.play_rounds(image);
        run.found.borrow_mut().end_run(Ok::<_, Infallible>(ended), runtime.handle().trace_hash())
    }

    fn new(runtime: &Rc<Runtime>, campaign: &SqliteCampaign) -> SqliteRun {
        let handle = runtime.handle();
        let mut random = handle.random("options");
        SqliteRun {
            runtime: Rc::clone(runtime),
            campaign: campaign.clone(),
            options: mount_options(campaign.options, &mut random),
            settings: Settings::draw(&mut random),
            found: Rc::new(RefCell::new(Cuts::new(handle.random("cut"), STATES_MAX, CUTS_PER_EVENT))),
            past: Rc::default(),
            acknowledged: Rc::default(),
            handle,
        }
    }

    fn play_rounds(&self, image: &Blocks) -> Result<(), String> {
        let mut random = self.handle.random("ground");
        let ground =
            Ground::new(self.campaign.ground, &self.handle, &mut random, image, None, DiskTraits::PLAIN);
        let ground = self.runtime.block_on(ground).map_err(|error| error.to_string())?;
        let ground = ground.map_err(|error| error.to_string())?;
        let play_round = async |ground: &Ground, round| {
            self.play_round(ground, round)?;
            ground.rest();
            Ok(())
        };
        let recover = async |left: Left| {
            // What is left is on the medium: no later cut takes it back, that of a recovery neither.
            let content = find(&left, &self.campaign, self.options, 0)?;
            self.past.borrow_mut().go_back_to(content.number);
            self.acknowledged.set(Acknowledged { floor: content.number, newest: content.number });
            let up = self
                .runtime
                .block_on(Ground::from_left(&left, &self.handle, None))
                .map_err(|error| error.to_string())?;
            up.map_err(|error| error.to_string())
        };
        // SQLite drives the runtime, so nothing here is pending.
        let rounds = Cuts::play_rounds(&self.found, ROUNDS, ground, play_round, recover);
        rounds.now_or_never().unwrap_or_else(|| Err("a round waits".to_owned()))
    }

    /// One round, from the mount on.
    fn play_round(&self, ground: &Ground, round: u32) -> Result<(), String> {
        let mut random = self.handle.random("life");
        let warm_up = if round == 0 { pick(&mut random, &[0, 0, TRANSACTIONS_WARM]) } else { 0 };
        if warm_up == 0 {
            self.cut_at_every_event(ground);
        }
        let (filesystem, vfs) = start(&self.runtime, ground, &self.campaign, self.options)?;
        let watch = Rc::<Watch>::default();
        self.inject_faults(&filesystem, &vfs, &watch);
        let connection = vfs.open(PATH, self.campaign.mode).map_err(|error| format!("opening: {error}"))?;
        let begun = self.past.borrow().begun();
        self.require_content(&connection, begun)?;
        let settings = self.settings;
        let mut script = Script::new(self.handle.random("script"), &self.past);
        // A rollback has syncs of its own.
        script.rolls_back = self.campaign.dropped.is_none();
        Script::set_up(&connection, self.campaign.journal, self.campaign.extra, settings)
            .map_err(|error| format!("setting up: {error}"))?;
        for number in 0..warm_up + 1 + random.below(TRANSACTIONS_MAX) {
            if number == warm_up && warm_up > 0 {
                self.cut_at_every_event(ground);
            }
            if self.found.borrow().is_over() {
                break;
            }
            watch.begin();
            self.transaction(&mut script, &connection)?;
            ground.visit_now();
        }
        if self.found.borrow().failure.is_some() {
            return Ok(());
        }
        let begun = self.past.borrow().begun();
        self.require_content(&connection, begun)?;
        if random.below(3) == 0 {
            // The last connection that closes a write-ahead log checkpoints it.
            drop(connection);
            let unmounted = self.runtime.block_on(filesystem.unmount()).map_err(|error| error.to_string())?;
            unmounted.map_err(|error| format!("unmounting: {error}"))?;
        } else {
            ground.rest();
        }
        Ok(())
    }

    fn transaction(&self, script: &mut Script, connection: &Connection) -> Result<(), String> {
        match script.step(connection).map_err(|error| format!("a transaction: {error}"))? {
            End::RolledBack => {}
            End::Committed => {
                let newest = self.past.borrow().begun();
                let floor = match self.campaign.promises_durability() {
                    true => newest,
                    false => self.acknowledged.get().floor,
                };
                self.acknowledged.set(Acknowledged { floor, newest });
                self.found.borrow_mut().totals.commits += 1;
            }
        }
        Ok(())
    }

    /// Fails unless a connection reads what transaction `number` has left.
    fn require_content(&self, connection: &Connection, number: u64) -> Result<(), String> {
        let content = read(connection)?;
        match self.past.borrow().content(number) {
            Some(expected) if expected == content => Ok(()),
            expected => Err(format!("before any cut the content is {content:?}, and should be {expected:?}")),
        }
    }

    /// Lets some transactions without a journal fail, so that SQLite repeats them with one. While such transactions are
    /// written, time passes and the filesystem is synchronised. As a negative control, drops one sync of each transaction.
    fn inject_faults(&self, filesystem: &BarrierFs, vfs: &Vfs, watch: &Rc<Watch>) {
        let (dropped, watch) = (self.campaign.dropped, Rc::clone(watch));
        let random = RefCell::new(self.handle.random("batch"));
        let (runtime, handle, filesystem) =
            (Rc::clone(&self.runtime), self.handle.clone(), filesystem.clone());
        let is_slow = self.campaign.journal == SqliteJournal::BatchAtomic;
        vfs.intercept(move |call| match call {
            Call::BeginBatch | Call::CommitBatch if dropped.is_none() => {
                (random.borrow_mut().below(BATCHES_PER_FAILURE) == 0).then_some(Fault::Io)
            }
            Call::Write if is_slow => {
                let pause = pick(&mut random.borrow_mut(), &[0, 0, 0, 0, 0, 0, 100, 1_000, 10_000]);
                if pause > 0 {
                    // What fails here, SQLite's own calls meet as well.
                    let _ = runtime.block_on(async {
                        handle.sleep(Duration::from_micros(pause)).await;
                        filesystem.sync().await
                    });
                }
                None
            }
            _ => (dropped.is_some() && watch.see(call) == dropped).then_some(Fault::Dropped),
        });
    }

    /// Cuts the power, on copies, at every event of the storage from now on, and when a transaction has ended.
    fn cut_at_every_event(&self, ground: &Ground) {
        let (found, past, acknowledged) =
            (Rc::clone(&self.found), Rc::clone(&self.past), Rc::clone(&self.acknowledged));
        let (campaign, options) = (self.campaign.clone(), self.options);
        ground.observe(move |draw| {
            let found = &mut *found.borrow_mut();
            if !found.sees_event() {
                return;
            }
            let (past, promised) = (past.borrow(), acknowledged.get());
            found.at_event(draw, mix(promised.floor, past.begun()), |left, state, totals| {
                let lost = judge(find(left, &campaign, options, state)?, &past, promised)?;
                totals.lost_max = totals.lost_max.max(lost);
                Ok(true)
            });
        });
    }
}

/// Judges the content that a cut has left; returns how many acknowledged transactions are lost.
fn judge(content: Content, past: &Past, promised: Acknowledged) -> Result<u64, String> {
    let Acknowledged { floor, newest } = promised;
    let number = content.number;
    if past.content(number) != Some(content) {
        return Err(format!("no COMMIT has left this content: {content:?}"));
    }
    if number < floor {
        return Err(format!("the last transaction is {number}, and {floor} was promised"));
    }
    Ok(newest.saturating_sub(number))
}

/// Mounts what the ground holds, and SQLite on it.
pub(super) fn start(
    runtime: &Rc<Runtime>,
    ground: &Ground,
    campaign: &SqliteCampaign,
    options: MountOptions,
) -> Result<(BarrierFs, Vfs), String> {
    let storage = match campaign.ignores_barriers {
        true => FalseOrder::new(ground.storage(), Ordering::Barrier) as Rc<dyn Storage>,
        false => ground.storage(),
    };
    let handle = runtime.handle();
    let mounted = runtime.block_on(BarrierFs::mount(&handle, storage, options));
    let mounted = mounted.map_err(|error| error.to_string())?;
    let filesystem = mounted.map_err(|error| format!("mounting: {error}"))?;
    let vfs = Vfs::new(Rc::clone(runtime), filesystem.clone().into()).map_err(|error| error.to_string())?;
    Ok((filesystem, vfs))
}

/// What SQLite finds on what is left.
pub(super) fn find(
    left: &Left,
    campaign: &SqliteCampaign,
    options: MountOptions,
    seed: u64,
) -> Result<Content, String> {
    let runtime = Rc::new(Runtime::simulated(Simulation { seed, ..Simulation::default() }));
    let ground = runtime
        .block_on(Ground::from_left(left, &runtime.handle(), None))
        .map_err(|error| error.to_string())?;
    let ground = ground.map_err(|error| error.to_string())?;
    let (_filesystem, vfs) = start(&runtime, &ground, campaign, options)?;
    let connection = vfs.open(PATH, Mode::Order).map_err(|error| format!("opening: {error}"))?;
    read(&connection)
}
