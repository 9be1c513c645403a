//! *Cleaning*: what it costs a log-structured filesystem to move pages by copies, or by the share command, as figure 3 of
//! the SHARE paper measures it on F2FS.
//!
//! A run of [`Cleaning`]. F2FS takes all of the drive. One file is written from end to end, and then pages of its first
//! part at random, with an `fsync` after every so many: first for long enough that the filesystem has no free segments but
//! those that cleaning gives, then for the window.

use std::fmt;
use std::rc::Rc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use weir_f2fs::{Mkfs, NodeId};
use weir_flash::{FlashDevice, FlashOptions, Keep, Stats};
use weir_format::FileType;
use weir_lfs::{Cleaner, CleanerCounts, F2fs, F2fsOptions, Flushes, Statistics};
use weir_runtime::{Handle, Random, Runtime, Simulation};
use weir_storage::{BLOCK_BYTES, Storage};
use weir_vfs::{FsError, InodeNumber, NewNode};

use crate::device_window::DEVICE;
use crate::error::FigureError;
use crate::experiment::Experiment;
use crate::gauge::{Gauge, QUEUE_METERS, Window};
use crate::host::{Host, microseconds};
use crate::metric::{Meter, Metric, SECONDS, WRITES, metrics_of, total};
use crate::run::{Outcome, Run};
use crate::stage::{APPLICATION, NEVER};

/// One thread overwrites pages of a file on F2FS at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cleaning {
    /// How the cleaner moves pages: `copy` or `share`.
    #[serde(deserialize_with = "cleaner")]
    pub cleaner: Cleaner,
    /// Writes from one `fsync` to the next, 1 and more.
    pub fsync_every: u32,
    /// The file, in percent of the drive.
    pub filled_percent: u8,
    /// The part of it that is overwritten, in percent of the drive.
    pub written_percent: u8,
    /// What is overwritten before the window, in percent of the drive.
    pub aged_percent: u16,
    /// Bytes of file data in memory, in MiB.
    pub cache_mib: u32,
    /// How often an `fsync` flushes without barriers: `once` behind the nodes, as Linux's F2FS, or `twice`, before them too (L3).
    #[serde(default)]
    pub flushes: FlushCount,
    /// How pages are drawn.
    #[serde(default)]
    pub pages: Drawn,
}

/// How often an `fsync` flushes on storage without barriers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlushCount {
    /// Behind the nodes.
    #[default]
    Once,
    /// Before and behind them.
    Twice,
}

/// How pages are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Drawn {
    /// Any page at any time, as fio with its option `norandommap`.
    #[default]
    WithReplacement,
    /// Each page once before any is written again, as fio without that option.
    OncePerPass,
}

fn cleaner<'de, D: Deserializer<'de>>(from: D) -> Result<Cleaner, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

impl fmt::Display for Cleaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cleaning { cleaner, fsync_every, filled_percent, flushes, pages, .. } = self;
        write!(f, "F2FS filled to {filled_percent} %, cleaning by {}, fsync/{fsync_every}", cleaner.name())?;
        f.write_str(if *flushes == FlushCount::Twice { ", two flushes" } else { "" })?;
        f.write_str(if *pages == Drawn::OncePerPass { ", each page once a pass" } else { "" })
    }
}

/// A synchronisation call overwrites so many pages in place: the default of Linux's F2FS.
const IN_PLACE_PAGES: usize = 8;

/// Pages of one write when the file is made.
const PAGES_AT_ONCE: u64 = 64;

/// What only counts upwards.
#[derive(Clone, Copy, Default)]
struct Counted {
    device: Stats,
    cleaned: CleanerCounts,
    checkpoints: u64,
}

/// What a window showed beside the gauge.
struct Seen {
    begun: Counted,
    ended: Counted,
}

/// What is read from the filesystem's counts.
const CLEANING_METERS: &[Meter<Seen>] = &[
    total("cleaned-segments", "segments", |seen| {
        (seen.ended.cleaned.segments - seen.begun.cleaned.segments) as f64
    }),
    total("moved-pages", "pages", |seen| (seen.ended.cleaned.pages - seen.begun.cleaned.pages) as f64),
    total("moved-nodes", "nodes", |seen| (seen.ended.cleaned.nodes - seen.begun.cleaned.nodes) as f64),
    total("checkpoints", "checkpoints", |seen| (seen.ended.checkpoints - seen.begun.checkpoints) as f64),
];

impl Experiment for Cleaning {
    fn metrics(&self) -> Vec<Metric> {
        let shared = metrics_of(CLEANING_METERS).chain(metrics_of(QUEUE_METERS)).chain(metrics_of(DEVICE));
        [WRITES, SECONDS].into_iter().chain(shared).collect()
    }

    fn waits(&self) -> bool {
        true
    }

    fn short_name(&self) -> String {
        self.cleaner.name().to_owned()
    }

    fn run(&self, run: &Run, seed: u64, options: FlashOptions) -> Result<Outcome, FigureError> {
        let cores = Some(run.host.simulated());
        let runtime = Runtime::simulated(Simulation { seed, cores, ..Simulation::default() });
        let handle = runtime.handle();
        let window = Window { warm_up: NEVER, measured: 2, sample_ns: run.sample_ns };
        let gauge = Rc::new(Gauge::new(window));
        // The filesystem reads what it has written.
        let options = FlashOptions { keep: Keep::Bytes, probe: Some(Rc::<Gauge>::clone(&gauge)), ..options };
        let device = FlashDevice::new(&handle, &run.device, options);
        run.prepare(&device, run.device.blocks);
        let play = async {
            let writer = Writer::new(&handle, device, *self, &run.host).await?;
            let task = handle.spawn_thread(APPLICATION, measured(writer, run.writes, Rc::clone(&gauge)));
            // A task is cancelled only with its runtime.
            task.await.unwrap_or(Err(FsError::NotFound))
        };
        let seen = runtime
            .block_on(play)
            .map_err(|source| FigureError::Stalled { run: run.title(), source })?
            .map_err(|source| FigureError::Files { run: run.title(), source })?;
        let mut outcome = run.read(&handle, &gauge, None, WRITES, run.writes)?;
        outcome.read(CLEANING_METERS, &seen);
        outcome.read_device(seen.ended.device.since(&seen.begun.device), WRITES);
        Ok(outcome)
    }
}

/// Ages the filesystem, and writes so many pages in the window.
async fn measured(mut writer: Writer, writes: u64, gauge: Rc<Gauge>) -> Result<Seen, FsError> {
    let aged = writer.device.blocks() * u64::from(writer.cleaning.aged_percent) / 100;
    writer.overwrite(aged).await?;
    let now = |writer: &Writer| writer.handle.now().as_nanos();
    gauge.begin(now(&writer));
    let begun = writer.counted();
    writer.overwrite(writes / 2).await?;
    gauge.halve(now(&writer));
    writer.overwrite(writes - writes / 2).await?;
    gauge.end(now(&writer));
    let ended = writer.counted();
    writer.filesystem.clone().unmount().await?;
    Ok(Seen { begun, ended })
}

/// The thread that writes.
struct Writer {
    handle: Handle,
    device: Rc<FlashDevice>,
    filesystem: F2fs,
    cleaning: Cleaning,
    host: Host,
    file: InodeNumber,
    /// Pages that it overwrites.
    pages: u64,
    random: Random,
    /// Of a pass, the pages that are not written yet.
    left: Vec<u64>,
    written: u64,
}

impl Writer {
    /// On a new filesystem, with its file.
    async fn new(
        handle: &Handle,
        device: Rc<FlashDevice>,
        cleaning: Cleaning,
        host: &Host,
    ) -> Result<Writer, FsError> {
        let blocks = device.blocks();
        F2fs::make(&*device, &Mkfs::new(blocks, [1; 16], 2, 1_500_000_000)).await?;
        let options = F2fsOptions {
            cleaner: cleaning.cleaner,
            in_place_pages: IN_PLACE_PAGES,
            cache_bytes: u64::from(cleaning.cache_mib) << 20,
            flushes: match cleaning.flushes {
                FlushCount::Once => Flushes::Once,
                FlushCount::Twice => Flushes::Ordered,
            },
            ..F2fsOptions::default()
        };
        let filesystem = F2fs::mount(handle, Rc::<FlashDevice>::clone(&device), options).await?;
        let new = NewNode::new(FileType::Regular, 0o644);
        let file = filesystem.create(NodeId::ROOT.0, b"job.0.0", &new).await?;
        let bytes = vec![1; PAGES_AT_ONCE as usize * BLOCK_BYTES];
        let of_drive = |percent: u8| blocks * u64::from(percent) / 100;
        for page in (0..of_drive(cleaning.filled_percent)).step_by(PAGES_AT_ONCE as usize) {
            filesystem.write(file, page * BLOCK_BYTES as u64, &bytes).await?;
        }
        filesystem.sync().await?;
        Ok(Writer {
            handle: handle.clone(),
            device,
            filesystem,
            cleaning,
            host: host.clone(),
            file,
            pages: of_drive(cleaning.written_percent).max(1),
            random: handle.random(APPLICATION),
            left: Vec::new(),
            written: 0,
        })
    }

    /// The next page that is overwritten.
    fn draw_page(&mut self) -> u64 {
        if self.cleaning.pages == Drawn::WithReplacement {
            return self.random.below(self.pages);
        }
        if self.left.is_empty() {
            self.left = (0..self.pages).collect();
        }
        let nth = self.random.below(self.left.len() as u64) as usize;
        self.left.swap_remove(nth)
    }

    /// Overwrites so many pages.
    async fn overwrite(&mut self, count: u64) -> Result<(), FsError> {
        let bytes = vec![2; BLOCK_BYTES];
        for _ in 0..count {
            let page = self.draw_page();
            self.handle.trace(&[page]);
            self.handle.work(microseconds(self.host.write_us.value)).await;
            self.filesystem.write(self.file, page * BLOCK_BYTES as u64, &bytes).await?;
            self.written += 1;
            if self.written.is_multiple_of(u64::from(self.cleaning.fsync_every.max(1))) {
                self.handle.work(microseconds(self.host.sync_us.value)).await;
                self.filesystem.fsync(self.file).await?;
            }
        }
        Ok(())
    }

    fn counted(&self) -> Counted {
        let Statistics { cleaned, checkpoints, .. } = self.filesystem.statistics();
        Counted { device: self.device.stats(), cleaned, checkpoints }
    }
}
