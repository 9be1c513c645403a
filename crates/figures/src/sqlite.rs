//! A run of real SQLite: [`Inserts`] in virtual time, on a new filesystem on a device whose every block was written
//! once in order.
//!
//! SQLite is no task: it drives the runtime, and stands for one thread of the host. What its own instructions cost is
//! a parameter of the host, spent once an insert; calls into the filesystem cost what they cost other programs.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use weir_ext4::ROOT_INODE;
use weir_flash::{FlashDevice, FlashOptions};
use weir_fs::{Filesystem, FsError};
use weir_runtime::{Handle, Runtime, Simulation, Stalled};
use weir_sqlite_vfs::rusqlite::{self, params};
use weir_sqlite_vfs::{Call, Connection, Fault, Vfs, What};

use crate::error::FigureError;
use crate::gauge::{Gauge, Window, delays};
use crate::host::{Host, microseconds};
use crate::inserts::{Inserts, Journal, Syncs};
use crate::mounting::Mounting;
use crate::run::{Outcome, Run};
use crate::stage::{APPLICATION, NEVER, Progress, mount};
use crate::tap::Tap;

/// The database.
const DATABASE: &str = "messages.db";

/// Bytes of the text in a row.
const TEXT_BYTES: usize = 100;

/// What an insert is part of: a table that a program keeps its messages in.
const TABLE: &str = "CREATE TABLE message(id INTEGER PRIMARY KEY, sent INTEGER, text TEXT)";

impl Run {
    /// Runs inserts.
    pub(crate) fn sqlite_outcome(
        &self,
        inserts: Inserts,
        seed: u64,
        options: FlashOptions,
    ) -> Result<Outcome, FigureError> {
        let cores = Some(self.host.simulated());
        let runtime = Rc::new(Runtime::simulated(Simulation { seed, cores, ..Simulation::default() }));
        let handle = runtime.handle();
        let window = Window { warm_up: NEVER, measured: 2, sample_ns: self.sample_ns };
        let gauge = Rc::new(Gauge::new(window));
        let probe = Rc::clone(&gauge);
        let recorder = self.recorder();
        let options = FlashOptions { recorder: recorder.clone(), probe: Some(probe), ..options };
        let device = FlashDevice::new(&handle, &self.device, options);
        self.prepare(&device, self.device.blocks);
        let tap = Tap::new(&handle, device, self.host.no_fua.is_none());
        let stalled = |source: Stalled| FigureError::Stalled { run: self.title(), source };
        let mounted =
            runtime.block_on(mount(self, Mounting::of(inserts.on), &handle, &tap, recorder.clone()));
        let filesystem =
            mounted.map_err(stalled)?.map_err(|source| FigureError::Files { run: self.title(), source })?;
        runtime.simulate_caller(APPLICATION);
        let progress = Progress::new(self, &handle, filesystem.clone(), &tap, &gauge);
        let program = Program { run: self, inserts, runtime: Rc::clone(&runtime), handle: handle.clone() };
        program
            .insert(&filesystem, &progress)
            .map_err(|source| FigureError::Sqlite { run: self.title(), source })?;
        let unmounted = runtime.block_on(filesystem.unmount()).map_err(stalled)?;
        unmounted.map_err(|source| FigureError::Files { run: self.title(), source })?;
        let seen = progress.seen(&self.host, inserts.on.has_barriers());
        Ok(Outcome {
            latency: delays(seen.latencies),
            commits: seen.commits,
            switches: seen.switches,
            counts: seen.counts,
            ..self.read(&handle, &gauge, recorder.as_deref())?
        })
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
    fn insert(&self, filesystem: &Filesystem, progress: &Progress) -> rusqlite::Result<()> {
        let vfs = Vfs::new(Rc::clone(&self.runtime), filesystem.clone())?;
        let connection = vfs.open(DATABASE, self.inserts.syncs.mode())?;
        self.set_up(&connection)?;
        self.pay(&vfs, filesystem);
        let mut insert = connection.prepare("INSERT INTO message(sent, text) VALUES(?1, ?2)")?;
        let text = "m".repeat(TEXT_BYTES);
        while !progress.is_over() {
            let from = self.handle.now();
            self.work(self.run.host.sqlite_insert_us.value);
            insert.execute(params![from.as_nanos().cast_signed(), text])?;
            progress.called(self.handle.now().as_nanos() - from.as_nanos());
        }
        Ok(())
    }

    fn set_up(&self, connection: &Connection) -> rusqlite::Result<()> {
        let (journal, synchronous) = (self.inserts.journal.name(), self.inserts.synchronous.name());
        connection.execute_batch(&format!(
            "PRAGMA journal_mode = {journal}; PRAGMA synchronous = {synchronous}; PRAGMA wal_autocheckpoint = 1000; {TABLE}"
        ))
    }

    /// Calls into the filesystem cost the host something from now on, and the directory of a new journal is synchronised.
    fn pay(&self, vfs: &Vfs, filesystem: &Filesystem) {
        let (runtime, handle, filesystem) =
            (Rc::clone(&self.runtime), self.handle.clone(), filesystem.clone());
        let Host { write_us, sync_us, .. } = &self.run.host;
        let (write, sync) = (microseconds(write_us.value), microseconds(sync_us.value));
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
            let cost = match call {
                Call::Write => write,
                Call::Sync(_) | Call::Finish(_) => sync,
                Call::Delete if inserts.deletion_synchronises() => sync,
                _ if directory => Duration::ZERO,
                _ => return None,
            };
            let pays = async {
                if directory {
                    handle.work(sync).await;
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
