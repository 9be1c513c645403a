//! The options of a run, drawn as a *swarm*: each run has a random subset of wildly different settings, so
//! that rare combinations come up, and each is a function of its seed.

use std::time::Duration;

use weir_fs::MountOptions;
use weir_lfs::F2fsOptions;
use weir_runtime::{Random, Runtime, Simulation};
use weir_storage::{AdversaryOptions, Capabilities, Discard, Faults};
use weir_volume::{CleaningPolicy, Completion, Format, LossWindow, VolumeOptions};

/// Two superblocks and two checkpoints.
const HEAD_BLOCKS: u64 = 4;
/// Segments on a free-segment list at most.
const FREE_LIST_MAX: u64 = 8192;
/// Map pages of a volume without spread blocks, at most.
const MAP_PAGES: u64 = 2;
/// Blocks that a map page maps.
const BLOCKS_PER_PAGE: u64 = 510;
/// Blocks used at most where they are spread.
const SPREAD_BLOCKS: u64 = 144;
/// Blocks of a segment of a large volume, and segments of a volume at least.
const LARGE_SEGMENT_BLOCKS: u32 = 256;
const SEGMENTS_MIN: u64 = 8;
/// The most states of a window that a run judges completely.
pub const EXHAUSTIVE_MAX: u64 = 1 << 16;

/// How often each kind of step is taken, in relation to the others.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Writes.
    pub write: u64,
    /// Discards.
    pub discard: u64,
    /// Flushes.
    pub flush: u64,
    /// Bare barriers.
    pub barrier: u64,
    /// Reads of the running volume, judged at once.
    pub read: u64,
    /// Pauses.
    pub pause: u64,
    /// Checkpoints asked for.
    pub checkpoint: u64,
    /// Ends of the process: the volume is dropped and opened again, and the disk keeps its cache.
    pub restart: u64,
    /// Discards, on the disk below, of all that is free.
    pub trim: u64,
    /// Shares.
    pub share: u64,
    /// Packed writes.
    pub packed: u64,
}

/// Everything that decides a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Determines everything else, unless it was set by hand.
    pub seed: u64,
    /// Tasks are polled in an order drawn by the seed.
    pub explore: bool,
    /// Blocks in a segment.
    pub segment_blocks: u32,
    /// Segments of the volume, 8 and more.
    pub segments: u32,
    /// Blocks of the disk, where the volume is a large one; 0 for as many as the segments need.
    pub disk_blocks: u64,
    /// Blocks that the workload uses, in percent of what may be live, 1 to 100.
    pub fill: u64,
    /// Logical blocks from one used block to the next: more than 1 spreads few blocks over many map pages.
    pub stride: u64,
    /// Of ten requests, so many go to the first eighth of the blocks.
    pub hot: u64,
    /// Blocks in one request at most.
    pub request_blocks: u64,
    /// What the disk below can do.
    pub disk: Capabilities,
    /// Longest service time of the disk, in nanoseconds.
    pub latency_ns_max: u64,
    /// Longest pause between requests, in nanoseconds.
    pub pause_ns_max: u64,
    /// How the volume behaves.
    pub volume: VolumeOptions,
    /// What the workload does.
    pub mix: Mix,
    /// A second task reads while the first one writes; of 64 of its turns so many take a checkpoint.
    pub reader: Option<u64>,
    /// Of 64 writes, so many carry FUA, and as many pre-flush.
    pub fua: u64,
    /// Steps before the first power cut: a volume that is full and cleans from then on.
    pub warm_up: u64,
    /// Steps of the workload, those of the warm-up included.
    pub steps: u64,
    /// All states are judged of a window with at most so many; at most [`EXHAUSTIVE_MAX`].
    pub exhaustive_max: u64,
    /// States drawn from a larger window at each event; four times as many where a checkpoint or cleaning
    /// is in it.
    pub samples: u64,
    /// One state in so many is recovered with the power cut again, and then written on.
    pub deeper: u64,
    /// Distinct states after which the run ends.
    pub states_max: u64,
    /// The disk acknowledges flushes and does nothing: the negative control.
    pub ignores_flushes: bool,
}

/// Some blocks more than a page of the map has.
const PAGE_STRIDE: u64 = 520;

impl RunOptions {
    /// Blocks of the disk of a large volume, at least.
    pub const LARGE_BLOCKS_MIN: u64 = SEGMENTS_MIN * LARGE_SEGMENT_BLOCKS as u64;

    /// Draws the options of a run from its seed.
    #[must_use]
    pub fn draw(seed: u64) -> RunOptions {
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        let random = &mut runtime.handle().random("swarm");
        let segment_blocks = pick(random, &[8, 8, 8, 16, 32]);
        let segment_bytes = u64::from(segment_blocks) * 4096;
        let latency_ns_max = pick(random, &[0, 100, 5_000, 50_000]);
        let tear_unit_bytes = pick(random, &[512, 4096]);
        let warm_up = pick(random, &[0, 0, 100, 300, 600]);
        RunOptions {
            seed,
            explore: random.below(2) == 0,
            segment_blocks,
            segments: 9 + random.below(14) as u32,
            disk_blocks: 0,
            fill: pick(random, &[10, 40, 70, 90, 100]),
            stride: pick(random, &[1, 1, 1, 7, 40]),
            hot: pick(random, &[0, 0, 5, 9]),
            request_blocks: pick(random, &[1, 1, 2, 4, 7]),
            disk: Capabilities {
                fua: random.below(2) == 0,
                ..Capabilities::legacy(pick(random, &[1, 2, 4, 32]), 64, tear_unit_bytes)
            },
            latency_ns_max,
            pause_ns_max: pick(random, &[0, 1_000, 200_000]),
            volume: VolumeOptions {
                buffers: 2 + random.below(7) as usize,
                completion: pick(random, &[Completion::Placed, Completion::Disk]),
                loss_window: LossWindow {
                    time: Duration::from_nanos(pick(random, &[1_000, 100_000, 100_000_000])),
                    bytes: segment_bytes * pick(random, &[4, 6, 16]),
                },
                cleaning: pick(random, &[CleaningPolicy::Greedy, CleaningPolicy::CostBenefit]),
                checkpoint_segments: pick(random, &[2, 3, 4, 8, 16]),
                ..VolumeOptions::default()
            },
            mix: Mix {
                write: 40,
                discard: pick(random, &[0, 2, 10]),
                flush: pick(random, &[0, 1, 5, 20]),
                barrier: pick(random, &[0, 5]),
                read: pick(random, &[0, 4]),
                pause: pick(random, &[1, 8]),
                checkpoint: pick(random, &[0, 0, 1]),
                restart: pick(random, &[0, 0, 1]),
                trim: 0,
                share: 0,
                packed: 0,
            },
            fua: pick(random, &[0, 1, 16]),
            warm_up,
            steps: warm_up + pick(random, &[60, 200, 400]),
            exhaustive_max: pick(random, &[8, 64, 512]),
            samples: pick(random, &[1, 2, 6]),
            deeper: pick(random, &[16, 48]),
            states_max: 1_500,
            reader: pick(random, &[None, None, Some(0), Some(8)]),
            ignores_flushes: false,
        }
        .with_discards_below(&mut runtime.handle().random("discards below"))
        .with_map_limit(&mut runtime.handle().random("pages of the map"))
    }

    /// In half of the runs fewer pages of the map are in memory than the workload uses.
    fn with_map_limit(mut self, random: &mut Random) -> RunOptions {
        if random.below(2) == 0 {
            self.limit_map(pick(random, &[1, 12, 24]));
        }
        self
    }

    /// So many pages of the map are in memory at most, and the blocks in use are spread over many.
    pub fn limit_map(&mut self, pages: usize) {
        self.volume.map_pages = pages;
        self.stride = PAGE_STRIDE;
    }

    /// In two of three runs the disk below takes discards, and the volume passes them on, by itself or when it is asked.
    fn with_discards_below(mut self, random: &mut Random) -> RunOptions {
        self.disk.discard = pick(random, &[Discard::Unsupported, Discard::ReadsZero, Discard::Undefined]);
        if self.disk.discard != Discard::Unsupported {
            self.volume.discard_below = random.below(2) == 0;
            self.mix.trim = pick(random, &[0, 1, 3]);
        }
        self
    }

    /// The same with shares: few of them, or nearly as many as writes.
    pub fn add_shares(&mut self) {
        let runtime = Runtime::simulated(Simulation { seed: self.seed, ..Simulation::default() });
        self.mix.share = pick(&mut runtime.handle().random("shares"), &[4, 12, 30]);
    }

    /// The same with packed writes: few of them, or nearly as many as writes.
    pub fn add_packed(&mut self) {
        let runtime = Runtime::simulated(Simulation { seed: self.seed, ..Simulation::default() });
        self.mix.packed = pick(&mut runtime.handle().random("packed writes"), &[4, 12, 30]);
    }

    /// A small case: few requests to a small volume, so that most windows have at most
    /// [`EXHAUSTIVE_MAX`] states, and all of those are judged.
    #[must_use]
    pub fn draw_small(seed: u64) -> RunOptions {
        let drawn = RunOptions::draw(seed);
        let mut options = RunOptions { request_blocks: 1 + seed % 3, deeper: 64, ..drawn };
        options.steps = options.warm_up + 40;
        options.segment_blocks = 8;
        options.segments = options.segments.min(12);
        options.volume.loss_window.bytes = 4 * 8 * 4096;
        options.disk.tear_unit_bytes = 4096;
        options.mix.flush = options.mix.flush.max(5);
        options.exhaustive_max = EXHAUSTIVE_MAX;
        options.states_max = 4_000;
        options
    }

    /// The same on a disk of `blocks` blocks, at least [`LARGE_BLOCKS_MIN`](Self::LARGE_BLOCKS_MIN), with the blocks in use
    /// spread over all of the volume. Segments are as large as usual, so none is ever cleaned.
    pub fn enlarge(&mut self, blocks: u64) {
        self.disk_blocks = blocks;
        self.segment_blocks = LARGE_SEGMENT_BLOCKS;
        // What a volume shows is less than its disk by no more than a tenth.
        self.stride = (blocks - blocks / 10) / SPREAD_BLOCKS;
        // Units are numbered in 32 bits.
        self.disk.tear_unit_bytes = 4096;
        self.disk.max_transfer_blocks = 512;
        // The worst disk remembers each block that is discarded, and nearly all are free.
        self.mix.trim = 0;
        self.volume.discard_below = false;
    }

    /// The volume to make.
    pub(crate) fn format(&self) -> Format {
        let logical_blocks =
            if self.stride == 1 || self.disk_blocks > 0 { 0 } else { SPREAD_BLOCKS * self.stride };
        Format { logical_blocks, segment_blocks: self.segment_blocks, overwrite: false, slots: 0 }
    }

    /// Where the segments start.
    pub(crate) fn segments_start(&self) -> u64 {
        if self.disk_blocks > 0 {
            let pages = self.disk_blocks.div_ceil(BLOCKS_PER_PAGE);
            let free_list = (self.disk_blocks / u64::from(self.segment_blocks)).min(FREE_LIST_MAX);
            let checkpoint = (64 + 4 * free_list + pages.div_ceil(4)).div_ceil(4096);
            return (2 + 2 * checkpoint + 2 * pages).next_multiple_of(u64::from(self.segment_blocks));
        }
        let pages = match self.format().logical_blocks {
            0 => MAP_PAGES,
            blocks => blocks.div_ceil(BLOCKS_PER_PAGE),
        };
        // Every map page has two places.
        (HEAD_BLOCKS + 2 * pages).next_multiple_of(u64::from(self.segment_blocks))
    }

    /// The disk below.
    pub(crate) fn adversary(&self) -> AdversaryOptions {
        let needed = self.segments_start() + u64::from(self.segments) * u64::from(self.segment_blocks);
        AdversaryOptions {
            blocks: if self.disk_blocks > 0 { self.disk_blocks } else { needed },
            capabilities: self.disk,
            latency_ns_max: self.latency_ns_max,
            faults: Faults::default(),
            ..AdversaryOptions::default()
        }
    }
}

/// One of these, each with the same chance.
pub(crate) fn pick<T: Copy>(random: &mut Random, choices: &[T]) -> T {
    choices[random.below(choices.len() as u64) as usize]
}

/// How a filesystem is mounted in a run: writeback as soon as a few pages are dirty, or never; and how old a transaction
/// may be.
pub(crate) fn mount_options(beside: MountOptions, random: &mut Random) -> MountOptions {
    let by_calls = random.below(2) == 0;
    MountOptions {
        dirty_background_bytes: if by_calls { 1 << 40 } else { pick(random, &[1, 4, 16]) << 12 },
        dirty_bytes: if by_calls { 1 << 41 } else { 1 << 18 },
        commit_interval: Duration::from_micros(pick(random, &[300, 20_000, 5_000_000])),
        ..beside
    }
}

/// The same of F2FS: writeback as soon as a few pages are dirty, or never; how much stays in memory, and how often a checkpoint is
/// written.
pub(crate) fn f2fs_options(beside: F2fsOptions, random: &mut Random) -> F2fsOptions {
    // Pages go to the disk by calls and checkpoints only.
    let by_calls = random.below(2) == 0;
    F2fsOptions {
        in_place_pages: pick(random, &[0, 8]),
        dirty_background_bytes: if by_calls { 1 << 40 } else { pick(random, &[1, 4, 16]) << 12 },
        dirty_bytes: if by_calls { 1 << 41 } else { 1 << 18 },
        cache_bytes: if by_calls { 1 << 28 } else { pick(random, &[1 << 28, 0]) },
        cache_inodes: pick(random, &[1 << 14, 1]),
        checkpoint_interval: Duration::from_micros(pick(random, &[2_000, 50_000, 60_000_000])),
        ..beside
    }
}
