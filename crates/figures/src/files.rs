//! A run through the filesystem: threads make [`Calls`] in a closed loop, in virtual time.
//!
//! The filesystem is new, on a device whose every block was written once in order. Each thread has files of its
//! own, made before the run begins. The warm-up ends, and the window begins and ends, with a call of any thread.
//!
//! Processor time of a call is spent by the thread that does the work: the one that calls, or one of the
//! filesystem's own, the commit task, the flush task and those that checkpoint and write back.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weir_ext4::{FileType, Mkfs, ROOT_INODE};
use weir_flash::{FlashDevice, FlashOptions, Stats};
use weir_fs::{AttributeChanges, Discards, Filesystem, FsError, InodeNumber, MountOptions, NewNode};
use weir_runtime::{Cores, Handle, Random, Runtime, Simulation};
use weir_storage::{BLOCK_BYTES, Recorder};

use crate::calls::{Call, Calls, Change, On};
use crate::error::FigureError;
use crate::gauge::{Gauge, Window, delays};
use crate::host::{Host, microseconds};
use crate::run::{Commits, Outcome, Run};
use crate::tap::Tap;

/// The threads whose context switches count.
pub(crate) const APPLICATION: &str = "application";

/// Files of a thread that changes permissions, and how far their inodes are apart: two never share a block.
const FILES: usize = 32;
const INODES_APART: usize = 16;

/// A window of the gauge that nothing but the calls begin and end.
pub(crate) const NEVER: u64 = u64::MAX / 4;

/// Blocks that one write of the preparation has.
const BLOCKS_AT_ONCE: usize = 64;

impl Run {
    /// Runs calls.
    pub(crate) fn files_outcome(
        &self,
        calls: Calls,
        seed: u64,
        options: FlashOptions,
    ) -> Result<Outcome, FigureError> {
        let cores = self.host.simulated();
        let cores = Cores { count: calls.cores.map_or(cores.count, |cores| cores.max(1) as usize), ..cores };
        let runtime = Runtime::simulated(Simulation { seed, cores: Some(cores), ..Simulation::default() });
        let handle = runtime.handle();
        let window = Window { warm_up: NEVER, measured: 2, sample_ns: self.sample_ns };
        let gauge = Rc::new(Gauge::new(window));
        let probe = Rc::clone(&gauge);
        let recorder = self.recorder();
        let options = FlashOptions { recorder: recorder.clone(), probe: Some(probe), ..options };
        let device = FlashDevice::new(&handle, &self.device, options);
        self.prepare(&device, self.device.blocks);
        let tap = Tap::new(&handle, device, self.host.no_fua.is_none());
        let stage = Stage { run: self, calls, handle: handle.clone(), tap, gauge: Rc::clone(&gauge) };
        let ended = runtime.block_on(stage.perform(recorder.clone()));
        let seen = ended
            .map_err(|source| FigureError::Stalled { run: self.title(), source })?
            .map_err(|source| FigureError::Files { run: self.title(), source })?;
        Ok(Outcome {
            latency: delays(seen.latencies),
            commits: seen.commits,
            switches: seen.switches,
            counts: seen.counts,
            ..self.read(&handle, &gauge, recorder.as_deref())?
        })
    }
}

/// A new filesystem, mounted as a run wants it.
pub(crate) async fn mount(
    run: &Run,
    on: On,
    handle: &Handle,
    tap: &Rc<Tap>,
    recorder: Option<Rc<Recorder>>,
) -> Result<Filesystem, FsError> {
    let options = Mkfs::new(run.device.blocks, [1; 16], [2; 16], 1_500_000_000);
    Filesystem::make(&**tap, &options).await?;
    let host = &run.host;
    let options = MountOptions {
        engine: Some(on.engine()),
        timer_hz: host.timer_hz.value.round().max(1.0) as u32,
        // As the papers' mounts: ext4 does not by itself.
        discard: Discards::Off,
        ..MountOptions::default()
    };
    let device = Rc::<Tap>::clone(tap);
    Filesystem::mount_recorded(handle, device, recorder, options).await
}

/// Everything that a run needs.
struct Stage<'a> {
    run: &'a Run,
    calls: Calls,
    handle: Handle,
    tap: Rc<Tap>,
    gauge: Rc<Gauge>,
}

/// What the calls showed in the window.
pub(crate) struct Seen {
    pub(crate) latencies: Vec<u64>,
    pub(crate) commits: Commits,
    pub(crate) switches: f64,
    pub(crate) counts: Stats,
}

impl Stage<'_> {
    async fn perform(&self, recorder: Option<Rc<Recorder>>) -> Result<Seen, FsError> {
        let filesystem = mount(self.run, self.calls.on, &self.handle, &self.tap, recorder).await?;
        let mut callers = Vec::new();
        let progress = Progress::new(self.run, &self.handle, filesystem.clone(), &self.tap, &self.gauge);
        let progress = Rc::new(progress);
        for thread in 0..self.calls.threads.max(1) {
            callers.push(Caller {
                handle: self.handle.clone(),
                filesystem: filesystem.clone(),
                files: self.files(&filesystem, thread).await?,
                calls: self.calls,
                host: self.run.host.clone(),
                span: self.run.span.max(1),
                random: self.handle.random(APPLICATION),
                progress: Rc::clone(&progress),
                made: 0,
            });
        }
        filesystem.sync().await?;
        let threads: Vec<_> =
            callers.into_iter().map(|caller| self.handle.spawn_thread(APPLICATION, caller.run())).collect();
        for thread in threads {
            // A task is cancelled only with its runtime.
            thread.await.unwrap_or(Ok(()))?;
        }
        filesystem.unmount().await?;
        Ok(progress.seen(&self.run.host, self.calls.on.has_barriers()))
    }

    /// The files of a thread.
    async fn files(&self, filesystem: &Filesystem, thread: u32) -> Result<Vec<InodeNumber>, FsError> {
        let new = NewNode::new(FileType::Regular, 0o644);
        let all = if self.calls.change == Change::Permissions { FILES * INODES_APART } else { 1 };
        let mut files = Vec::new();
        for file in 0..all {
            let name = format!("{thread}-{file}");
            files.push(filesystem.create(ROOT_INODE, name.as_bytes(), &new).await?);
        }
        if self.calls.change == Change::Overwrite {
            let bytes = vec![1; BLOCKS_AT_ONCE * BLOCK_BYTES];
            let end = self.run.span.max(1) * BLOCK_BYTES as u64;
            let mut offset = 0;
            while offset < end {
                let some = bytes.len().min(usize::try_from(end - offset).unwrap_or(usize::MAX));
                offset += filesystem.write(files[0], offset, &bytes[..some]).await? as u64;
            }
        }
        Ok(files.into_iter().step_by(INODES_APART).collect())
    }
}

/// How far all threads together are, and what is known so far.
pub(crate) struct Progress {
    handle: Handle,
    filesystem: Filesystem,
    tap: Rc<Tap>,
    gauge: Rc<Gauge>,
    warm_up: u64,
    measured: u64,
    done: Cell<u64>,
    latencies: RefCell<Vec<u64>>,
    begun: Cell<Counted>,
    ended: Cell<Counted>,
}

/// What only counts upwards.
#[derive(Clone, Copy, Default)]
struct Counted {
    commits: u64,
    switches: u64,
    switches_of_commit: u64,
    nanoseconds: u64,
    device: Stats,
}

impl Progress {
    pub(crate) fn new(
        run: &Run,
        handle: &Handle,
        filesystem: Filesystem,
        tap: &Rc<Tap>,
        gauge: &Rc<Gauge>,
    ) -> Progress {
        let measured = run.writes.max(2);
        Progress {
            handle: handle.clone(),
            filesystem,
            tap: Rc::clone(tap),
            gauge: Rc::clone(gauge),
            warm_up: (measured / 4).clamp(1, run.warm_up_max.max(1)),
            measured,
            done: Cell::default(),
            latencies: RefCell::default(),
            begun: Cell::default(),
            ended: Cell::default(),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.done.get() >= self.warm_up + self.measured
    }

    /// A call is over, which took so long.
    pub(crate) fn called(&self, nanoseconds: u64) {
        let now = self.handle.now().as_nanos();
        let done = self.done.get() + 1;
        self.done.set(done);
        if done > self.warm_up && done <= self.warm_up + self.measured {
            self.latencies.borrow_mut().push(nanoseconds);
        }
        if done == self.warm_up {
            self.gauge.begin(now);
            self.tap.open(true);
            self.begun.set(self.counted());
        } else if done == self.warm_up + self.measured / 2 {
            self.gauge.halve(now);
        } else if done == self.warm_up + self.measured {
            self.gauge.end(now);
            self.tap.open(false);
            self.ended.set(self.counted());
        }
    }

    fn counted(&self) -> Counted {
        let switches = self.handle.switches().by_thread;
        let of = |thread: &str| switches.get(thread).copied().unwrap_or(0);
        Counted {
            commits: self.filesystem.statistics().journal.commits,
            switches: of(APPLICATION),
            switches_of_commit: of("commit"),
            nanoseconds: self.handle.now().as_nanos(),
            device: self.tap.stats(),
        }
    }

    /// What the window has shown, on this host.
    pub(crate) fn seen(&self, host: &Host, has_barriers: bool) -> Seen {
        let (begun, ended) = (self.begun.get(), self.ended.get());
        let commits = (ended.commits - begun.commits).max(1) as f64;
        let measured = self.tap.measured();
        let micro = |nanoseconds: f64| nanoseconds / 1e3 / commits;
        // What a write takes until it is transferred; more is what it takes until it is durable.
        let write = measured.writes.nanoseconds as f64 / measured.writes.commands.max(1) as f64;
        let durable = measured.durable_writes;
        let writes = (measured.writes.commands + durable.commands) as f64;
        let until_durable = (durable.nanoseconds as f64 - durable.commands as f64 * write).max(0.0);
        let switches = (ended.switches_of_commit - begun.switches_of_commit) as f64;
        let completions = if has_barriers { 0.0 } else { writes };
        let commits = Commits {
            interval_us: micro((ended.nanoseconds - begun.nanoseconds) as f64),
            dispatch_us: (switches * host.context_switch_us.value
                + writes * host.dispatch_us.value
                + completions * host.completion_us.value)
                / commits,
            transfer_us: micro(writes * write),
            flush_us: micro(measured.flushes.nanoseconds as f64 + until_durable),
        };
        let switches = (ended.switches - begun.switches) as f64 / self.measured as f64;
        let counts = ended.device.since(&begun.device);
        Seen { latencies: self.latencies.take(), commits, switches, counts }
    }
}

/// One thread of the host that calls.
struct Caller {
    handle: Handle,
    filesystem: Filesystem,
    files: Vec<InodeNumber>,
    calls: Calls,
    host: Host,
    /// Blocks of the file that it overwrites.
    span: u64,
    random: Random,
    progress: Rc<Progress>,
    /// Calls made.
    made: u64,
}

impl Caller {
    /// Calls until the window has ended.
    async fn run(mut self) -> Result<(), FsError> {
        let page = vec![2; BLOCK_BYTES];
        while !self.progress.is_over() {
            let file = self.files[self.made as usize % self.files.len()];
            self.change(file, &page).await?;
            let from = self.handle.now();
            self.handle.work(microseconds(self.host.sync_us.value)).await;
            match self.calls.call {
                Call::Fsync => self.filesystem.fsync(file).await?,
                Call::Fbarrier => self.filesystem.fbarrier(file).await?,
            }
            self.made += 1;
            self.progress.called(self.handle.now().as_nanos() - from.as_nanos());
        }
        Ok(())
    }

    async fn change(&mut self, file: InodeNumber, page: &[u8]) -> Result<(), FsError> {
        let block = match self.calls.change {
            Change::Append => self.made,
            Change::Overwrite => self.random.below(self.span),
            Change::Permissions => return self.change_permissions(file).await,
        };
        self.handle.trace(&[block]);
        self.handle.work(microseconds(self.host.write_us.value)).await;
        self.filesystem.write(file, block * BLOCK_BYTES as u64, page).await.map(drop)
    }

    async fn change_permissions(&self, file: InodeNumber) -> Result<(), FsError> {
        let turn = self.made / self.files.len() as u64;
        let permissions = Some(if turn.is_multiple_of(2) { 0o600 } else { 0o644 });
        let changes = AttributeChanges { permissions, ..AttributeChanges::default() };
        self.filesystem.set_attributes(file, &changes).await
    }
}
