//! Virtual stress testing of order-preserving firmware (VST; OPTR paper, section 5): a trace drives an emulated
//! device, the power is cut at random events, and what recovery leaves is compared with a *golden disk*, the result of the
//! requests up to the recovery point that the firmware reports.
//!
//! Sectors of 512 bytes hold their number and a version that each write raises by one. So a sector that is read shows a
//! lost write, a stale one, a torn one, or one in the wrong place. Requests are numbered as they are submitted; a flush
//! covers all before it, and a recovery point before the last flush is a violation as well.
//!
//! The paper cuts a compiled firmware from a second thread, and rebuilds the golden disk for each image by a replay of the
//! trace. Here the cut is at an event that the seed draws, and the golden disk is read from the history of each sector.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use weir_flash::{
    Allocation, Barrier, Cache, FlashDevice, FlashOptions, Flush, Ftl, GcPolicy, Host, InternalFlush, Layout,
    Mechanism, Medium, Nand, OrderedService, Profile, RecoveryPoint, Replacement, SimpleService,
};
use weir_runtime::{Handle, Random, Runtime, Simulation};
use weir_storage::{
    BLOCK_BYTES, Command, Extent, Lba, Part, Rejected, Storage, Ticket, Write, submit_when_free,
};

use crate::campaign::{Campaign, Failure, Plan, Run, counts};
use crate::content::mix;
use crate::cuts::Cuts;
use crate::shrink::leave_out;

/// Bytes of a sector.
pub const SECTOR_BYTES: usize = 512;

const SECTORS_PER_BLOCK: u64 = (BLOCK_BYTES / SECTOR_BYTES) as u64;

/// Crash states that a run judges.
const STATES_PER_RUN: u64 = 200;

/// Events of the device from one power cut to the next, on average.
const EVENTS_PER_CUT: u64 = 60;

/// Requests of a synthetic trace.
const SYNTHETIC_REQUESTS: usize = 4000;

/// Traces that are tried to make one that fails shorter, at most.
const TRIALS_MAX: u32 = 60;

/// What is wrong with a trace of flushes alone, which would be played without end.
const CHANGES_NOTHING: &str = "the trace changes nothing";

/// A request of the trace; sectors are those of any disk, and are folded onto the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VstRequest {
    /// Writes so many sectors from this one.
    Write {
        /// The first sector.
        sector: u64,
        /// How many, 1 and more.
        sectors: u64,
    },
    /// Discards what lies wholly in so many sectors from this one.
    Discard {
        /// The first sector.
        sector: u64,
        /// How many.
        sectors: u64,
    },
    /// Flushes.
    Flush,
}

/// A campaign on order-preserving firmware.
#[derive(Clone)]
pub struct VstCampaign {
    /// How long it is.
    pub plan: Plan,
    /// A flush after so many writes, besides those of the trace.
    pub flush_every: Option<u64>,
    /// Each run replays it until it has judged its crash states; empty: random writes.
    pub trace: Vec<VstRequest>,
    /// The device gets no flush, and each counts as done: the negative control.
    pub ignores_flushes: bool,
    /// How the firmware runs: for mutants.
    pub options: FlashOptions,
}

counts! {
    /// Counts of runs on order-preserving firmware.
    pub struct VstTotals {
        /// Runs.
        pub runs: u64,
        /// Requests submitted that change something.
        pub requests: u64,
        /// Flushes awaited.
        pub flushes: u64,
        /// Events of the device.
        pub events: u64,
        /// Power cuts judged, some of which left the same.
        pub cuts: u64,
        /// Different states of the flash among them, where the same state after other requests counts as different.
        pub states_distinct: u64,
        /// Of these, states in which recovery dropped requests of which the flash held something.
        pub states_rolled_back: u64,
        /// Erase blocks erased.
        pub erases: u64,
        /// Checkpoints written.
        pub checkpoints: u64,
        /// Pages of coalescing records written.
        pub record_pages: u64,
        /// Flushes that the firmware made by itself.
        pub internal_flushes: u64,
    }
    largest {
        /// Requests dropped in one state, at most.
        pub dropped_max: u64,
    }
}

impl VstCampaign {
    /// Random writes, without flushes, on firmware without bugs.
    #[must_use]
    pub fn new(plan: Plan) -> VstCampaign {
        let options = FlashOptions::default();
        VstCampaign { plan, flush_every: None, trace: Vec::new(), ignores_flushes: false, options }
    }

    /// The trace of a run.
    fn trace(&self, handle: &Handle) -> Vec<VstRequest> {
        match self.trace.is_empty() {
            true => random_writes(&mut handle.random("trace")),
            false => self.trace.clone(),
        }
    }

    /// Plays a trace, by default that of the run, until there are enough crash states.
    fn play_trace(&self, seed: u64, trace: Option<&[VstRequest]>) -> Run<VstTotals> {
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        let handle = runtime.handle();
        let found = Rc::new(RefCell::new(Found::new(&handle)));
        let ended = runtime.block_on(async {
            let trace = trace.map_or_else(|| self.trace(&handle), <[VstRequest]>::to_vec);
            self.submit_trace(&handle, &trace, &found).await
        });
        let trace_hash = mix(handle.trace_hash(), found.borrow().golden.requests);
        found.borrow_mut().cuts.end_run(ended, trace_hash)
    }

    async fn submit_trace(
        &self,
        handle: &Handle,
        trace: &[VstRequest],
        found: &Rc<RefCell<Found>>,
    ) -> Result<(), String> {
        let device = FlashDevice::new(handle, &profile(), self.options.clone());
        self.cut_at_random_events(handle, &device, found);
        let (found, in_flight) = (Rc::clone(found), VecDeque::new());
        let mut driver = Driver { campaign: self, device, found: Rc::clone(&found), in_flight, writes: 0 };
        let rejected = |rejected: Rejected| format!("a command was rejected: {rejected}");
        driver.fill().await.map_err(rejected)?;
        while !found.borrow().cuts.is_over() {
            let before = found.borrow().golden.requests;
            for request in trace {
                driver.submit_request(*request).await.map_err(rejected)?;
                if found.borrow().cuts.is_over() {
                    break;
                }
            }
            if found.borrow().golden.requests == before {
                return Err(CHANGES_NOTHING.to_owned());
            }
        }
        let stats = driver.device.stats();
        let requests = found.borrow().golden.requests;
        let totals = &mut found.borrow_mut().cuts.totals;
        (totals.requests, totals.erases, totals.checkpoints) = (requests, stats.erases, stats.checkpoints);
        (totals.record_pages, totals.internal_flushes) = (stats.record_pages, stats.internal_flushes);
        driver.device.cut_power();
        Ok(())
    }

    /// Cuts the power, on copies, at events that chance draws.
    fn cut_at_random_events(&self, handle: &Handle, device: &Rc<FlashDevice>, found: &Rc<RefCell<Found>>) {
        let (weak, found) = (Rc::downgrade(device), Rc::clone(found));
        let (handle, options, profile) = (handle.clone(), self.options.clone(), profile());
        device.observe(move || {
            let Some(device) = weak.upgrade() else { return };
            let Found { cuts, golden, random, events_left } = &mut *found.borrow_mut();
            if !cuts.sees_event() {
                return;
            }
            *events_left -= 1;
            if *events_left > 0 {
                return;
            }
            *events_left = 1 + random.below(2 * EVENTS_PER_CUT);
            let draw = &mut |random: &mut Random| device.after_cut(random);
            cuts.at_event(draw, golden.requests, |medium, _, totals| {
                let recovered = FlashDevice::restarted(&handle, &profile, options.clone(), medium.clone());
                golden.judge(&recovered, totals).map(|()| true)
            });
        });
    }
}

impl Campaign for VstCampaign {
    type Totals = VstTotals;
    type Beginning = ();

    fn plan(&self) -> Plan {
        self.plan
    }

    fn prepare(&self) -> Result<(), String> {
        Ok(())
    }

    fn play_run(&self, (): &(), _number: u64, seed: u64) -> Run<VstTotals> {
        self.play_trace(seed, None)
    }

    fn shrink_failure(&self, (): &(), failure: Failure) -> Failure {
        let seed = mix(self.plan.seed, failure.run);
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        let (mut trace, mut trials) = (self.trace(&runtime.handle()), TRIALS_MAX);
        let mut smallest = failure;
        leave_out(&mut trace, |fewer| {
            trials = u32::checked_sub(trials, 1)?;
            if fewer.is_empty() {
                return Some(false);
            }
            // A trace that changes nothing fails, too, and reproduces nothing.
            let found = self.play_trace(seed, Some(fewer)).failure;
            let found = found.filter(|found| found.what != CHANGES_NOTHING);
            if let Some(found) = &found {
                smallest = Failure { run: smallest.run, ..found.clone() };
            }
            Some(found.is_some())
        });
        Failure { story: trace.iter().map(|request| format!("{request:?}")).collect(), ..smallest }
    }
}

/// The device: 64 MiB on 8 dies, laid out as the paper's drive, and small enough that it is cleaned all the time.
fn profile() -> Profile {
    Profile {
        name: "vst".to_owned(),
        title: "for virtual stress testing".to_owned(),
        blocks: 8192,
        host: Host {
            queue_depth: 32,
            max_transfer_blocks: 128,
            link_bytes_per_second: 500_000_000,
            full_duplex: false,
            command_ns: 10_000,
            latency_ns: 10_000,
            ordered_service: OrderedService::None,
            simple_service: SimpleService::Fifo,
            fua: true,
            packed_header_ns: None,
            packed_pages: false,
            reliable_extra_ns: None,
        },
        cache: Cache { bytes: 1 << 20, destage_share: 0.5, replacement: Replacement::Lru },
        nand: Nand {
            channels: 4,
            ways: 2,
            planes: 1,
            multi_plane: false,
            blocks_per_plane: 20,
            pages_per_block: 32,
            page_bytes: 16_384,
            read_ns: vec![60_000],
            program_ns: vec![500_000, 1_500_000],
            erase_ns: 3_000_000,
            channel_bytes_per_second: 200_000_000,
            torn_program: false,
        },
        ftl: Ftl {
            gc: GcPolicy::Greedy,
            gc_free_blocks: 7,
            checkpoint_share: 0.1,
            log_share: 1.0,
            share: 0,
            layout: Layout {
                logical_page_blocks: 4,
                allocation: Allocation::Static,
                summary_pages: true,
                log_buffer_bytes: 16_384,
            },
        },
        flush: Flush { fixed_ns: 100_000, journal_pages: 0 },
        barrier: Barrier {
            mechanism: Mechanism::OrderPreservingRecovery,
            penalty: 0.0,
            internal: InternalFlush { every_ns: 500_000_000, cleaning_batch: 8 },
        },
    }
}

/// Small writes to few sectors, large ones anywhere, and runs.
fn random_writes(random: &mut Random) -> Vec<VstRequest> {
    let all = profile().blocks * SECTORS_PER_BLOCK;
    let mut next = 0;
    (0..SYNTHETIC_REQUESTS)
        .map(|_| {
            let (span, most) = match random.below(8) {
                0..4 => (all / 64, 16),
                4..6 => (all, 64),
                _ => (all, 512),
            };
            let sectors = 1 + random.below(most);
            let sector = if random.below(4) == 0 { next } else { random.below(span) };
            next = sector + sectors;
            match random.below(60) {
                0 => VstRequest::Discard { sector, sectors },
                _ => VstRequest::Write { sector, sectors },
            }
        })
        .collect()
}

/// What each sector held after each request that changed it.
struct GoldenDisk {
    /// By sector: the requests, and the version that each left; 0 for a discard.
    history: Vec<Vec<(u64, u64)>>,
    /// Requests submitted.
    requests: u64,
    /// Of these, those that a flush covers.
    flushed: u64,
}

impl GoldenDisk {
    fn new(blocks: u64) -> GoldenDisk {
        GoldenDisk {
            history: vec![Vec::new(); (blocks * SECTORS_PER_BLOCK) as usize],
            requests: 0,
            flushed: 0,
        }
    }

    /// The number of the next request.
    fn begin_request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    fn write(&mut self, sector: u64, request: u64) {
        let history = &mut self.history[sector as usize];
        let version = history.iter().rev().map(|(_, version)| *version).find(|version| *version > 0);
        history.push((request, version.unwrap_or(0) + 1));
    }

    fn discard(&mut self, sector: u64, request: u64) {
        self.history[sector as usize].push((request, 0));
    }

    /// The version of a sector after so many requests; 0 where it reads zeroes.
    fn version(&self, sector: u64, requests: u64) -> u64 {
        let history = &self.history[sector as usize];
        let until = history.partition_point(|(request, _)| *request <= requests);
        history[..until].last().map_or(0, |(_, version)| *version)
    }

    /// What a sector holds after so many requests.
    fn fill(&self, sector: u64, requests: u64, bytes: &mut [u8]) {
        bytes.fill(0);
        let version = self.version(sector, requests);
        if version > 0 {
            bytes[..8].copy_from_slice(&(sector + 1).to_le_bytes());
            bytes[8..16].copy_from_slice(&version.to_le_bytes());
            bytes[SECTOR_BYTES - 8..].copy_from_slice(&version.to_le_bytes());
        }
    }

    /// What a block holds after so many requests.
    fn block(&self, block: u64, requests: u64) -> [u8; BLOCK_BYTES] {
        let mut bytes = [0; BLOCK_BYTES];
        let first = block * SECTORS_PER_BLOCK;
        for (sector, bytes) in (first..).zip(bytes.chunks_exact_mut(SECTOR_BYTES)) {
            self.fill(sector, requests, bytes);
        }
        bytes
    }

    /// Judges a recovered device by the recovery point that it reports.
    fn judge(&self, recovered: &FlashDevice, totals: &mut VstTotals) -> Result<(), String> {
        let point = recovered.recovery_point().unwrap_or(RecoveryPoint { kept: u64::MAX, found: 0 });
        let (kept, dropped) = (point.kept, point.found.saturating_sub(point.kept));
        totals.states_rolled_back += u64::from(dropped > 0);
        totals.dropped_max = totals.dropped_max.max(dropped);
        if kept < self.flushed {
            return Err(format!("{kept} requests are kept, and a flush covers {}", self.flushed));
        }
        if kept > self.requests {
            return Err(format!("{kept} requests are kept, and {} were submitted", self.requests));
        }
        let mut found = [0; BLOCK_BYTES];
        let wrong = (0..recovered.blocks()).find_map(|block| {
            recovered.peek(Lba(block), &mut found);
            let golden = self.block(block, kept);
            if found == golden {
                return None;
            }
            let sectors = found.chunks_exact(SECTOR_BYTES).zip(golden.chunks_exact(SECTOR_BYTES));
            let at = sectors.take_while(|(found, golden)| found == golden).count();
            let sector = block * SECTORS_PER_BLOCK + at as u64;
            let held = &found[at * SECTOR_BYTES..];
            let number = |at: usize| held.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            let [number, version] = [number(0), number(8)].map(|bytes| bytes.map_or(0, u64::from_le_bytes));
            let right = self.version(sector, kept);
            Some(format!(
                "sector {sector} after {kept} requests: version {right} is right, found version {version} of sector {}",
                number.saturating_sub(1)
            ))
        });
        wrong.map_or(Ok(()), Err)
    }
}

/// What a run has found so far.
struct Found {
    cuts: Cuts<VstTotals, Medium>,
    golden: GoldenDisk,
    random: Random,
    /// Events until the next power cut.
    events_left: u64,
}

impl Found {
    fn new(handle: &Handle) -> Found {
        Found {
            cuts: Cuts::new(handle.random("cut"), STATES_PER_RUN, 1),
            golden: GoldenDisk::new(profile().blocks),
            random: handle.random("events"),
            events_left: EVENTS_PER_CUT,
        }
    }
}

/// Submits the requests, as many at a time as the device takes and do not overlap (S6).
struct Driver<'a> {
    campaign: &'a VstCampaign,
    device: Rc<FlashDevice>,
    found: Rc<RefCell<Found>>,
    in_flight: VecDeque<(Ticket, Extent)>,
    /// Writes since the last flush.
    writes: u64,
}

impl Driver<'_> {
    /// Writes every sector once, so that cleaning comes soon.
    async fn fill(&mut self) -> Result<(), Rejected> {
        const AT_ONCE: u64 = 512;
        for first in (0..self.device.blocks() * SECTORS_PER_BLOCK).step_by(AT_ONCE as usize) {
            self.write(first, AT_ONCE).await?;
        }
        Ok(())
    }

    async fn submit_request(&mut self, request: VstRequest) -> Result<(), Rejected> {
        let all = self.device.blocks() * SECTORS_PER_BLOCK;
        match request {
            VstRequest::Write { sector, sectors } => {
                let first = sector % all;
                let mut sector = first;
                let end = first.saturating_add(sectors.max(1)).min(all);
                let most = u64::from(self.device.capabilities().max_transfer_blocks - 1) * SECTORS_PER_BLOCK;
                while sector < end {
                    let part = (end - sector).min(most);
                    self.write(sector, part).await?;
                    sector += part;
                }
                self.writes += 1;
            }
            VstRequest::Discard { sector, sectors } => {
                let first = (sector % all).div_ceil(SECTORS_PER_BLOCK);
                let end = (sector % all).saturating_add(sectors).min(all) / SECTORS_PER_BLOCK;
                if first < end {
                    self.discard(Extent::new(Lba(first), (end - first) as u32)).await?;
                }
            }
            VstRequest::Flush => self.flush().await?,
        }
        if self.campaign.flush_every.is_some_and(|every| self.writes >= every) {
            self.flush().await?;
        }
        Ok(())
    }

    /// One request: whole blocks, in which other sectors stay as they are.
    async fn write(&mut self, sector: u64, sectors: u64) -> Result<(), Rejected> {
        let first = sector / SECTORS_PER_BLOCK;
        let end = (sector + sectors).div_ceil(SECTORS_PER_BLOCK);
        let extent = Extent::new(Lba(first), (end - first) as u32);
        self.wait_for(extent).await?;
        let bytes: Vec<u8> = {
            let golden = &mut self.found.borrow_mut().golden;
            let request = golden.begin_request();
            (sector..sector + sectors).for_each(|sector| golden.write(sector, request));
            (first..end).flat_map(|block| golden.block(block, request)).collect()
        };
        let parts = [Part::bytes(Lba(first), &bytes)];
        let ticket = submit_when_free(&*self.device, Command::Write(Write::new(&parts))).await?;
        self.in_flight.push_back((ticket, extent));
        Ok(())
    }

    async fn discard(&mut self, extent: Extent) -> Result<(), Rejected> {
        self.wait_for(extent).await?;
        {
            let golden = &mut self.found.borrow_mut().golden;
            let request = golden.begin_request();
            for block in extent.iter() {
                let first = block.0 * SECTORS_PER_BLOCK;
                (first..first + SECTORS_PER_BLOCK).for_each(|sector| golden.discard(sector, request));
            }
        }
        let ticket = submit_when_free(&*self.device, Command::Discard(&[extent])).await?;
        self.in_flight.push_back((ticket, extent));
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Rejected> {
        while let Some((ticket, _)) = self.in_flight.pop_front() {
            ticket.transferred().await?;
        }
        let covered = self.found.borrow().golden.requests;
        if !self.campaign.ignores_flushes {
            submit_when_free(&*self.device, Command::Flush).await?.transferred().await?;
        }
        let found = &mut *self.found.borrow_mut();
        found.golden.flushed = covered;
        found.cuts.totals.flushes += 1;
        self.writes = 0;
        Ok(())
    }

    /// Waits until nothing in flight overlaps an extent.
    async fn wait_for(&mut self, extent: Extent) -> Result<(), Rejected> {
        while self.in_flight.iter().any(|(_, theirs)| theirs.overlaps(extent)) {
            if let Some((ticket, _)) = self.in_flight.pop_front() {
                ticket.transferred().await?;
            }
        }
        self.in_flight.retain(|(ticket, _)| ticket.poll_transferred().is_none());
        Ok(())
    }
}
