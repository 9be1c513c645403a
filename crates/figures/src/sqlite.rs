//! A run of real SQLite: [`Inserts`] in virtual time, on a new filesystem on a device whose every block was written
//! once in order.
//!
//! SQLite is no task: it drives the runtime, and stands for one thread of the host. It is given each transaction as text,
//! `BEGIN; INSERT ...; COMMIT;`, as a program gives it to `sqlite3_exec`. What its own instructions cost is a parameter of
//! the host, spent once an insert; each call of its VFS costs what the system calls cost that its VFS for Unix makes.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use weir_ext4::ROOT_INODE;
use weir_flash::{FlashDevice, FlashOptions};
use weir_fs::BarrierFs;
use weir_runtime::{Handle, Runtime, Simulation, Stalled};
use weir_sqlite_vfs::rusqlite;
use weir_sqlite_vfs::{Call, Connection, Fault, Vfs, What};
use weir_vfs::FsError;

use crate::calls::On;
use crate::error::FigureError;
use crate::experiment::{Experiment, depends_on};
use crate::gauge::{Gauge, Window};
use crate::host::{Host, microseconds};
use crate::inserts::{Inserts, Journal, Syncs};
use crate::metric::{Metric, OPERATIONS};
use crate::mounting::Mounting;
use crate::run::{Outcome, Run};
use crate::stage::{self, APPLICATION, NEVER, Progress, mount};
use crate::tap::Tap;

/// What counts.
const INSERTS: Metric = Metric::new("inserts", "inserts/s");

/// The database.
const DATABASE: &str = "messages.db";

/// Bytes of the text in a row, as Mobibench has it.
const TEXT_BYTES: usize = 100;

impl Experiment for Inserts {
    fn metrics(&self) -> Vec<Metric> {
        stage::metrics(INSERTS).into_iter().chain([OPERATIONS]).collect()
    }

    fn filesystem(&self) -> Option<On> {
        Some(self.on)
    }

    fn waits(&self) -> bool {
        self.syncs != Syncs::Order || !self.on.has_barriers()
    }

    fn depends_on(&self, parameter: &str) -> bool {
        matches!(parameter, "sqlite_insert_us" | "small_call_us") || depends_on(self.filesystem(), parameter)
    }

    fn run(&self, run: &Run, seed: u64, options: FlashOptions) -> Result<Outcome, FigureError> {
        let cores = Some(run.host.simulated());
        let runtime = Rc::new(Runtime::simulated(Simulation { seed, cores, ..Simulation::default() }));
        let handle = runtime.handle();
        let window = Window { warm_up: NEVER, measured: 2, sample_ns: run.sample_ns };
        let gauge = Rc::new(Gauge::new(window));
        let probe = Rc::clone(&gauge);
        let recorder = run.recorder();
        let options = FlashOptions { recorder: recorder.clone(), probe: Some(probe), ..options };
        let device = FlashDevice::new(&handle, &run.device, options);
        run.prepare(&device, run.device.blocks);
        let tap = Tap::new(&handle, device, run.host.no_fua.is_none());
        let stalled = |source: Stalled| FigureError::Stalled { run: run.title(), source };
        let mounted = runtime.block_on(mount(run, Mounting::of(self.on), &handle, &tap, recorder.clone()));
        let filesystem =
            mounted.map_err(stalled)?.map_err(|source| FigureError::Files { run: run.title(), source })?;
        runtime.simulate_caller(APPLICATION);
        let progress = Progress::new(run, &handle, filesystem.clone(), &tap, &gauge);
        let program = Program { run, inserts: *self, runtime: Rc::clone(&runtime), handle: handle.clone() };
        program
            .insert(&filesystem, &progress)
            .map_err(|source| FigureError::Sqlite { run: run.title(), source })?;
        let unmounted = runtime.block_on(filesystem.unmount()).map_err(stalled)?;
        unmounted.map_err(|source| FigureError::Files { run: run.title(), source })?;
        let seen = progress.seen(&run.host, self.on.has_barriers());
        let mut outcome = run.read(&handle, &gauge, recorder.as_deref(), INSERTS, run.writes)?;
        outcome.set(OPERATIONS, outcome.value(INSERTS.name));
        Ok(seen.add_to(outcome, INSERTS))
    }
}

/// Who inserts.
struct Program<'a> {
    run: &'a Run,
    inserts: Inserts,
    runtime: Rc<Runtime>,
    handle: Handle,
}

impl Program<'_> {
    /// Inserts until the window has ended.
    fn insert(&self, filesystem: &BarrierFs, progress: &Progress) -> rusqlite::Result<()> {
        let vfs = Vfs::new(Rc::clone(&self.runtime), filesystem.clone().into())?;
        let connection = vfs.open(DATABASE, self.inserts.syncs.mode())?;
        self.set_up(&connection)?;
        self.pay(&vfs, filesystem);
        let text = "m".repeat(TEXT_BYTES);
        let transaction = format!("BEGIN; INSERT INTO message(text) VALUES('{text}'); COMMIT;");
        while !progress.is_over() {
            let from = self.handle.now();
            self.work(self.run.host.sqlite_insert_us.value + f64::from(self.inserts.program_us));
            connection.execute_batch(&transaction)?;
            progress.called(self.handle.now().as_nanos() - from.as_nanos());
        }
        Ok(())
    }

    fn set_up(&self, connection: &Connection) -> rusqlite::Result<()> {
        let (journal, synchronous) = (self.inserts.journal.name(), self.inserts.synchronous.name());
        let table = self.inserts.table.statement();
        connection.execute_batch(&format!(
            "PRAGMA journal_mode = {journal}; PRAGMA synchronous = {synchronous}; PRAGMA wal_autocheckpoint = 1000; {table}"
        ))
    }

    /// Calls into the filesystem cost the host something from now on, and the directory of a new journal is synchronised.
    fn pay(&self, vfs: &Vfs, filesystem: &BarrierFs) {
        let (runtime, handle, filesystem) =
            (Rc::clone(&self.runtime), self.handle.clone(), filesystem.clone());
        let prices = Prices::of(&self.run.host);
        let (inserts, journal) = (self.inserts, Cell::new(NewJournal::None));
        vfs.intercept(move |call| {
            let before = journal.get();
            journal.set(before.after(call));
            let opens = inserts.journal == Journal::Delete || inserts.syncs == Syncs::Whole;
            let directory = before == NewJournal::Synchronised && opens;
            let whole = match call {
                Call::Sync(what) if inserts.syncs == Syncs::Whole => Some(file_of(what)),
                _ => None,
            };
            let mut cost = prices.of_call(call);
            if call == Call::Delete && inserts.deletion_synchronises() {
                cost += prices.sync;
            }
            let pays = async {
                if directory {
                    handle.work(prices.sync).await;
                    match inserts.syncs {
                        Syncs::Stock | Syncs::Whole => filesystem.fsync(ROOT_INODE).await?,
                        Syncs::Durable | Syncs::Order => filesystem.fbarrier(ROOT_INODE).await?,
                    }
                }
                handle.work(cost).await;
                if let Some(name) = &whole {
                    filesystem.fsync(filesystem.lookup(ROOT_INODE, name.as_bytes()).await?).await?;
                }
                Ok::<(), FsError>(())
            };
            match runtime.block_on(pays) {
                // The sync that SQLite asks for was done here.
                Ok(Ok(())) => whole.is_some().then_some(Fault::Dropped),
                Ok(Err(_)) | Err(_) => Some(Fault::Io),
            }
        });
    }

    fn work(&self, us: f64) {
        let _ = self.runtime.block_on(self.handle.work(microseconds(us)));
    }
}

/// What system calls cost, by class.
struct Prices {
    /// Those that change a file's page or a name.
    write: Duration,
    sync: Duration,
    /// Those that move few bytes, or none.
    small: Duration,
}

impl Prices {
    fn of(host: &Host) -> Prices {
        let [write, sync, small] =
            [&host.write_us, &host.sync_us, &host.small_call_us].map(|cost| microseconds(cost.value));
        Prices { write, sync, small }
    }

    /// What the system calls cost that SQLite's VFS for Unix makes for one of its calls. A lock is taken by one to three of
    /// them, and given back by one or two.
    fn of_call(&self, call: Call) -> Duration {
        match call {
            Call::Write | Call::Open | Call::Delete | Call::Truncate => self.write,
            Call::Sync(_) | Call::Finish(_) | Call::Guard => self.sync,
            Call::Lock | Call::Unlock => 2 * self.small,
            Call::Read | Call::Size | Call::Access | Call::CheckLock | Call::MapLock | Call::MapUnlock => {
                self.small
            }
            // Memory that is mapped already; and what is no system call there.
            Call::Map | Call::BeginBatch | Call::CommitBatch => Duration::ZERO,
        }
    }
}

/// The file that SQLite synchronises.
fn file_of(what: Option<What>) -> String {
    let end = match what {
        Some(What::Journal) => "-journal",
        Some(What::Wal { .. }) => "-wal",
        _ => "",
    };
    format!("{DATABASE}{end}")
}

/// A journal that was made anew. SQLite's own VFS for Unix synchronises its directory behind its first sync, which the
/// VFS here need not: its `fsync` covers the name. The papers' program did.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NewJournal {
    None,
    Made,
    /// For the first time: its directory is next.
    Synchronised,
}

impl NewJournal {
    fn after(self, call: Call) -> NewJournal {
        match (self, call) {
            (_, Call::Open) => NewJournal::Made,
            (NewJournal::Made, Call::Sync(_)) => NewJournal::Synchronised,
            (NewJournal::Made, _) => NewJournal::Made,
            _ => NewJournal::None,
        }
    }
}
