//! A *stage* is a new filesystem, on a device whose every block was written once in order, with what measures what
//! threads do there, in virtual time.
//!
//! What threads do is counted as calls: writes, transactions, operations of a mail server. The warm-up ends, and the
//! window begins and ends, with a call of any thread.
//!
//! Processor time of a call is spent by the thread that does the work: the one that calls, or one of the
//! filesystem's own, the commit task, the flush task and those that checkpoint and write back.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;

use weir_ext4::Mkfs;
use weir_flash::{FlashDevice, FlashOptions, Stats};
use weir_format::FileType;
use weir_fs::{BarrierFs, Discards, MountOptions};
use weir_runtime::{Cores, Handle, Runtime, Simulation};
use weir_storage::{BLOCK_BYTES, Recorder};
use weir_vfs::{FsError, InodeNumber, NewNode};

use crate::calls::Call;
use crate::device_window::DEVICE;
use crate::error::FigureError;
use crate::gauge::{Delays, Gauge, QUEUE_METERS, Window, delays};
use crate::host::{Host, microseconds};
use crate::metric::{Meter, Metric, SECONDS, meter, metrics_of, total};
use crate::mounting::Mounting;
use crate::random_writes::{RandomWriter, RandomWrites, Size};
use crate::run::{Outcome, Run};
use crate::steps::Steps;
use crate::tap::{Persisted, Tap};

/// The threads whose context switches count.
pub(crate) const APPLICATION: &str = "application";

/// A window of the gauge that nothing but the calls begin and end.
pub(crate) const NEVER: u64 = u64::MAX / 4;

/// A thread of the host.
pub(crate) type Thread = Pin<Box<dyn Future<Output = Result<(), FsError>>>>;

/// Where threads do what a run is about.
pub(crate) struct Stage {
    pub(crate) handle: Handle,
    pub(crate) host: Host,
    pub(crate) filesystem: BarrierFs,
    pub(crate) progress: Rc<Progress>,
}

impl Stage {
    /// Spends the processor's time for a call, in microseconds.
    pub(crate) async fn work(&self, us: f64) {
        self.handle.work(microseconds(us)).await;
    }

    /// Writes so many bytes of no meaning, for their price.
    pub(crate) async fn write(&self, file: InodeNumber, offset: u64, bytes: u64) -> Result<(), FsError> {
        self.work(bytes.div_ceil(BLOCK_BYTES as u64) as f64 * self.host.write_us.value).await;
        let data = vec![4; usize::try_from(bytes).unwrap_or_default()];
        self.filesystem.write(file, offset, &data).await.map(drop)
    }

    /// Reads a file of so many bytes by its name, for the price of writing them.
    pub(crate) async fn read(&self, directory: InodeNumber, name: &str, bytes: u64) -> Result<(), FsError> {
        self.work(bytes.div_ceil(BLOCK_BYTES as u64) as f64 * self.host.write_us.value).await;
        let file = self.filesystem.lookup(directory, name.as_bytes()).await?;
        let mut data = vec![0; usize::try_from(bytes).unwrap_or_default()];
        self.filesystem.read(file, 0, &mut data).await.map(drop)
    }

    /// Makes a file, for the price of a write.
    pub(crate) async fn create(&self, directory: InodeNumber, name: &str) -> Result<InodeNumber, FsError> {
        self.work(self.host.write_us.value).await;
        let new = NewNode::new(FileType::Regular, 0o600);
        self.filesystem.create(directory, name.as_bytes(), &new).await
    }

    /// Deletes a file, for the price of a write.
    pub(crate) async fn unlink(&self, directory: InodeNumber, name: &str) -> Result<(), FsError> {
        self.work(self.host.write_us.value).await;
        self.filesystem.unlink(directory, name.as_bytes()).await
    }

    /// Synchronises a file by this call, for its price.
    pub(crate) async fn call(&self, call: Call, file: InodeNumber) -> Result<(), FsError> {
        let Some(call) = call.sync_call() else { return Ok(()) };
        self.work(self.host.sync_us.value).await;
        self.filesystem.synchronise(file, call).await
    }

    /// Calls `fsync`, which is measured: how long it takes, and what is written meanwhile.
    pub(crate) async fn synchronise(&self, file: InodeNumber) -> Result<(), FsError> {
        let from = self.handle.now().as_nanos();
        self.progress.tap.call(true);
        let done = self.call(Call::Fsync, file).await;
        self.progress.tap.call(false);
        self.progress.took(self.handle.now().as_nanos() - from);
        done
    }
}

/// The metrics of an experiment through the filesystem, the first of which is its rate.
pub(crate) fn metrics(rate: Metric) -> Vec<Metric> {
    let queue = metrics_of(QUEUE_METERS).chain(metrics_of(CALL_METERS)).chain(metrics_of(DEVICE));
    [rate, SECONDS].into_iter().chain(queue).collect()
}

/// What a run of threads needs beside the run itself.
pub(crate) struct Setting {
    pub(crate) mounting: Mounting,
    /// Cores, if not the host's.
    pub(crate) cores: Option<u32>,
    /// What the threads do a second.
    pub(crate) rate: Metric,
    /// Blocks that are overwritten at random before, in percent of the device's.
    pub(crate) aged_percent: u32,
}

/// Runs the threads that `play` makes, when it has made the files that they need.
pub(crate) fn perform(
    run: &Run,
    Setting { mounting, cores, rate, aged_percent }: Setting,
    seed: u64,
    options: FlashOptions,
    play: impl AsyncFnOnce(&Rc<Stage>) -> Result<Vec<Thread>, FsError>,
) -> Result<Outcome, FigureError> {
    let host = run.host.simulated();
    let cores = Cores { count: cores.map_or(host.count, |cores| cores.max(1) as usize), ..host };
    let runtime = Runtime::simulated(Simulation { seed, cores: Some(cores), ..Simulation::default() });
    let handle = runtime.handle();
    let window = Window { warm_up: NEVER, measured: 2, sample_ns: run.sample_ns };
    let gauge = Rc::new(Gauge::new(window));
    let probe = Rc::clone(&gauge);
    let recorder = run.recorder();
    let options = FlashOptions { recorder: recorder.clone(), probe: Some(probe), ..options };
    let device = FlashDevice::new(&handle, &run.device, options);
    run.prepare(&device, run.device.blocks);
    let tap = Tap::new(&handle, Rc::clone(&device), run.host.no_fua.is_none());
    let ended = runtime.block_on(async {
        if aged_percent > 0 {
            age(run, &handle, device, aged_percent).await?;
        }
        let filesystem = mount(run, mounting, &handle, &tap, recorder.clone()).await?;
        let progress = Rc::new(Progress::new(run, &handle, filesystem.clone(), &tap, &gauge));
        tap.set_journal(filesystem.journal_area());
        let host = run.host.clone();
        let stage = Rc::new(Stage { handle: handle.clone(), host, filesystem, progress });
        let threads = play(&stage).await?;
        stage.filesystem.sync().await?;
        let threads: Vec<_> =
            threads.into_iter().map(|thread| handle.spawn_thread(APPLICATION, thread)).collect();
        for thread in threads {
            // A task is cancelled only with its runtime.
            thread.await.unwrap_or(Ok(()))?;
        }
        stage.filesystem.clone().unmount().await?;
        Ok(stage.progress.seen(&run.host, mounting.on.has_barriers()))
    });
    let seen = ended
        .map_err(|source| FigureError::Stalled { run: run.title(), source })?
        .map_err(|source| FigureError::Files { run: run.title(), source })?;
    let outcome = run.read(&handle, &gauge, recorder.as_deref(), rate, run.writes)?;
    Ok(seen.add_to(outcome, rate))
}

/// Overwrites so many of the device's blocks, in percent, by writes of 16 KiB at random.
async fn age(run: &Run, handle: &Handle, device: Rc<FlashDevice>, percent: u32) -> Result<(), FsError> {
    let blocks = run.device.blocks;
    let footprint_mib = (blocks * BLOCK_BYTES as u64) >> 20;
    let writes = RandomWrites { footprint_mib, size: Size::Small, flush_every: u64::MAX };
    let mut writer = RandomWriter::new(handle, device, writes, &run.host);
    let mut written = 0;
    while written < blocks * u64::from(percent) / 100 {
        written += writer.request().await?;
    }
    Ok(writer.wait_for(0).await?)
}

/// A new filesystem, mounted as a run wants it.
pub(crate) async fn mount(
    run: &Run,
    mounting: Mounting,
    handle: &Handle,
    tap: &Rc<Tap>,
    recorder: Option<Rc<Recorder>>,
) -> Result<BarrierFs, FsError> {
    let journal_blocks = mounting.journal_mib.map(|mib| mib.saturating_mul(256));
    let options = Mkfs { journal_blocks, ..Mkfs::new(run.device.blocks, [1; 16], [2; 16], 1_500_000_000) };
    BarrierFs::make(&**tap, &options).await?;
    let host = &run.host;
    let options = MountOptions {
        engine: Some(mounting.on.engine()),
        mode: mounting.mode.journal_mode(),
        checkpoint: mounting.mode.checkpoint(),
        checkpoints: mounting.checkpoints(),
        commits_running: true,
        commit_interval: mounting.on.commit_interval(),
        coalition: mounting.on.coalesces(),
        forces_commits: mounting.on.forces_commits(),
        timer_hz: host.timer_hz.value.round().max(1.0) as u32,
        // As the papers' mounts: ext4 does not by itself.
        discard: Discards::Off,
        ..MountOptions::default()
    };
    let device = Rc::<Tap>::clone(tap);
    BarrierFs::mount_recorded(handle, device, recorder, options).await
}

/// What the calls showed in the window.
pub(crate) struct Seen {
    /// Calls that were measured, and how long each took.
    calls: u64,
    latency: Delays,
    commits: Commits,
    /// Context switches of the calling threads for each call.
    switches: f64,
    counts: Stats,
    steps: Steps,
    persisted: Persisted,
}

/// A journal's commits, on average, in microseconds (FAST 2018 paper, section 4.5).
struct Commits {
    /// From one commit to the next.
    interval_us: f64,
    /// What the processor does for a commit: context switches of the commit task, composing, dispatch, and completions
    /// where it waits for them.
    dispatch_us: f64,
    /// From the dispatch to the transfer of all commands of a commit, added up.
    transfer_us: f64,
    /// From the dispatch to the answer of its flushes, and what writes with FUA take beyond a transfer.
    flush_us: f64,
    /// From the dispatch of JD, its last command, to that of JC.
    log_to_commit_us: f64,
    /// Bytes that it has changed, in percent of a block.
    changed_percent: f64,
}

impl Seen {
    /// Adds what was seen to the outcome of the device's queue.
    pub(crate) fn add_to(&self, mut outcome: Outcome, rate: Metric) -> Outcome {
        outcome.read(CALL_METERS, self);
        outcome.read_device(self.counts, rate);
        outcome
    }
}

const OF_CALLS: &str = "% of the calls";

/// What is read from the calls: how long they take, in milliseconds; the parts of a commit, each with those before it, in
/// microseconds; what each step takes of the calls' time; journal blocks over all blocks that are written while a call
/// that is measured is under way, and both.
pub(crate) const CALL_METERS: &[Meter<Seen>] = &[
    meter("latency-mean", "ms", |seen| seen.latency.mean / 1e3),
    meter("latency-p50", "ms", |seen| seen.latency.p50 / 1e3),
    meter("latency-p99", "ms", |seen| seen.latency.p99 / 1e3),
    meter("latency-p999", "ms", |seen| seen.latency.p999 / 1e3),
    meter("latency-p9999", "ms", |seen| seen.latency.p9999 / 1e3),
    total("calls", "calls", |seen| seen.calls as f64),
    meter("switches", "switches", |seen| seen.switches),
    meter("commit-interval", "us", |seen| seen.commits.interval_us),
    meter("commit-dispatch", "us", |seen| seen.commits.dispatch_us),
    meter("commit-transfer", "us", |seen| seen.commits.dispatch_us + seen.commits.transfer_us),
    meter("commit-flush", "us", |seen| {
        seen.commits.dispatch_us + seen.commits.transfer_us + seen.commits.flush_us
    }),
    meter("log-to-commit", "us", |seen| seen.commits.log_to_commit_us),
    meter("commit-changes", "% of a block", |seen| seen.commits.changed_percent),
    meter("step-data-writeback", OF_CALLS, |seen| seen.steps.share(seen.steps.data)),
    meter("step-compose-descriptor", OF_CALLS, |seen| seen.steps.share(seen.steps.compose)),
    meter("step-wait-flush", OF_CALLS, |seen| seen.steps.share(seen.steps.flush)),
    meter("step-wait-writeback", OF_CALLS, |seen| seen.steps.share(seen.steps.log)),
    meter("step-wait-commit-block", OF_CALLS, |seen| seen.steps.share(seen.steps.commit_block)),
    meter("step-flush-and-commit-block", OF_CALLS, |seen| {
        seen.steps.share(seen.steps.flush + seen.steps.commit_block)
    }),
    meter("step-others", OF_CALLS, |seen| seen.steps.share(seen.steps.others())),
    meter("journal-ratio", "of all blocks", |seen| seen.persisted.journal_ratio()),
    total("persisted-journal", "blocks", |seen| seen.persisted.journal_blocks as f64),
    total("persisted-other", "blocks", |seen| seen.persisted.other_blocks as f64),
];

/// How far all threads together are, and what is known so far.
pub(crate) struct Progress {
    handle: Handle,
    filesystem: BarrierFs,
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
    logged_blocks: u64,
    changed_bytes: u64,
    switches: u64,
    switches_of_commit: u64,
    nanoseconds: u64,
    device: Stats,
    steps: Steps,
}

impl Progress {
    pub(crate) fn new(
        run: &Run,
        handle: &Handle,
        filesystem: BarrierFs,
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

    /// A call is over, which took so long, and counts.
    pub(crate) fn called(&self, nanoseconds: u64) {
        self.took(nanoseconds);
        self.done();
    }

    /// A call is over, which took so long.
    pub(crate) fn took(&self, nanoseconds: u64) {
        if self.done.get() >= self.warm_up && !self.is_over() {
            self.latencies.borrow_mut().push(nanoseconds);
        }
    }

    /// Something is over that counts.
    pub(crate) fn done(&self) {
        let now = self.handle.now().as_nanos();
        let done = self.done.get() + 1;
        self.done.set(done);
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
        let statistics = self.filesystem.statistics();
        Counted {
            commits: statistics.journal.commits,
            logged_blocks: statistics.journal.logged_blocks,
            changed_bytes: statistics.journal.changed_bytes,
            switches: of(APPLICATION),
            switches_of_commit: of("commit"),
            nanoseconds: self.handle.now().as_nanos(),
            device: self.tap.stats(),
            steps: Steps::of(&statistics),
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
        let changed = (ended.changed_bytes - begun.changed_bytes) as f64;
        // The descriptor and JC are composed, too.
        let composed = (ended.logged_blocks - begun.logged_blocks) as f64 + 2.0 * commits;
        // With barriers it is the flush task that waits, and flushes.
        let commands = if has_barriers { writes } else { writes + measured.flushes.commands as f64 };
        let completions = if has_barriers { 0.0 } else { commands };
        let commits = Commits {
            interval_us: micro((ended.nanoseconds - begun.nanoseconds) as f64),
            dispatch_us: (switches * host.context_switch_us.value
                + composed * host.compose_us.value
                + commands * host.dispatch_us.value
                + completions * host.completion_us.value)
                / commits,
            transfer_us: micro(writes * write),
            flush_us: micro(measured.flushes.nanoseconds as f64 + until_durable),
            log_to_commit_us: measured.commit_blocks.mean_us(),
            changed_percent: 100.0 * changed / BLOCK_BYTES as f64 / commits,
        };
        let switches = (ended.switches - begun.switches) as f64 / self.measured as f64;
        let counts = ended.device.since(&begun.device);
        let latencies = self.latencies.take();
        let steps = ended.steps.since(&begun.steps, latencies.iter().sum::<u64>() as f64);
        let (calls, latency) = (latencies.len() as u64, delays(latencies));
        Seen { calls, latency, commits, switches, counts, steps, persisted: measured.persisted }
    }
}
