//! A run of real SQLite: [`Inserts`] in virtual time, on a new filesystem on a device whose every block was written
//! once in order.
//!
//! SQLite is no task: it drives the runtime, and stands for one thread of the host. What its own instructions cost is
//! a parameter of the host, spent once an insert; calls into the filesystem cost what they cost other programs.

use std::rc::Rc;

use weir_flash::{FlashDevice, FlashOptions};
use weir_fs::Filesystem;
use weir_runtime::{Handle, Runtime, Simulation, Stalled};
use weir_sqlite_vfs::rusqlite::{self, params};
use weir_sqlite_vfs::{Call, Connection, Vfs};
use weir_storage::Recorder;

use crate::error::FigureError;
use crate::files::{APPLICATION, NEVER, Progress, mount};
use crate::gauge::{Gauge, Window, delays};
use crate::host::{Host, microseconds};
use crate::inserts::Inserts;
use crate::run::{Outcome, RECORDED, Run};
use crate::tap::Tap;

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
        let recorder = inserts.on.has_barriers().then(|| Recorder::with(false, RECORDED));
        let options = FlashOptions { recorder: recorder.clone(), probe: Some(probe), ..options };
        let device = FlashDevice::new(&handle, &self.device, options);
        device.precondition(self.device.blocks);
        let tap = Tap::new(&handle, device, self.host.no_fua.is_none());
        let stalled = |source: Stalled| FigureError::Stalled { run: self.title(), source };
        let mounted = runtime.block_on(mount(self, inserts.on, &handle, &tap, recorder.clone()));
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
        let connection = vfs.open("messages.db", self.inserts.syncs.mode())?;
        self.set_up(&connection)?;
        self.pay(&vfs);
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
        let journal = self.inserts.journal.name();
        connection.execute_batch(&format!(
            "PRAGMA journal_mode = {journal}; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 1000; {TABLE}"
        ))
    }

    /// Calls into the filesystem cost the host something from now on.
    fn pay(&self, vfs: &Vfs) {
        let (runtime, handle) = (Rc::clone(&self.runtime), self.handle.clone());
        let Host { write_us, sync_us, .. } = &self.run.host;
        let (write, sync) = (microseconds(write_us.value), microseconds(sync_us.value));
        vfs.intercept(move |call| {
            let cost = match call {
                Call::Write => write,
                Call::Sync(_) | Call::Finish(_) => sync,
                _ => return None,
            };
            // Work always ends.
            let _ = runtime.block_on(handle.work(cost));
            None
        });
    }

    fn work(&self, us: f64) {
        let _ = self.runtime.block_on(self.handle.work(microseconds(us)));
    }
}
