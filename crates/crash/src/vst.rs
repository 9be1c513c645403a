//! Virtual stress testing of order-preserving firmware (VST; OPTR paper, section 5): a trace drives an emulated
//! device, the power is cut at random events, and what recovery leaves is compared with a *golden disk*, the result of the
//! requests up to the recovery point that the firmware reports.
//!
//! Sectors of 512 bytes hold their number and a version that each write raises by one. So one look at a sector tells a
//! lost write, a stale one, a torn one, and one in the wrong place. Requests are numbered as they are submitted; a flush
//! covers all before it, and a recovery point before the last flush is a violation as well.
//!
//! The paper cuts a compiled firmware from a second thread, and rebuilds the golden disk for each image by a replay of the
//! trace. Here the cut is at an event that the seed draws, and the golden disk is looked up in the history of each sector.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use serde::Serialize;
use weir_flash::{
    Allocation, Barrier, Cache, FlashDevice, FlashOptions, Flush, Ftl, GcPolicy, Host, InternalFlush, Layout,
    Mechanism, Nand, OrderedService, Profile, RecoveryPoint, Replacement, SimpleService,
};
use weir_runtime::{Handle, Random, Runtime, Simulation};
use weir_storage::{
    BLOCK_BYTES, Command, Extent, Lba, Part, Rejected, Storage, Ticket, Write, submit_when_free,
};

use crate::content::mix;

/// Bytes of a sector.
pub const SECTOR_BYTES: usize = 512;

const SECTORS_PER_BLOCK: u64 = (BLOCK_BYTES / SECTOR_BYTES) as u64;

/// Events of the device from one image to the next, on average.
const EVENTS_PER_IMAGE: u64 = 60;

/// Requests of a synthetic trace.
const SYNTHETIC_REQUESTS: usize = 4000;

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

/// A test run.
#[derive(Clone)]
pub struct Vst {
    /// Crash images to judge.
    pub images: u64,
    /// A flush after so many writes, besides those of the trace.
    pub flush_every: Option<u64>,
    /// Replayed from its beginning until there are so many images; empty: random writes.
    pub trace: Vec<VstRequest>,
    /// Determines everything.
    pub seed: u64,
    /// How the firmware runs: for mutants.
    pub options: FlashOptions,
}

/// What a test run found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VstSummary {
    /// Crash images judged.
    pub images: u64,
    /// Images that broke a promise.
    pub violations: u64,
    /// The first violation.
    pub first_violation: Option<String>,
    /// Requests submitted that change something.
    pub requests: u64,
    /// Flushes awaited.
    pub flushes: u64,
    /// Images in which recovery dropped requests of which the flash held something.
    pub images_rolled_back: u64,
    /// Of these requests, the most in one image.
    pub most_dropped: u64,
    /// Erase blocks erased.
    pub erases: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Pages of coalescing records written.
    pub record_pages: u64,
    /// Flushes that the firmware made by itself.
    pub internal_flushes: u64,
    /// Stands for everything that happened, as 16 hexadecimal digits.
    pub trace_hash: String,
}

impl Vst {
    /// Random writes, without flushes, on firmware without bugs.
    #[must_use]
    pub fn new(images: u64, seed: u64) -> Vst {
        Vst { images, flush_every: None, trace: Vec::new(), seed, options: FlashOptions::default() }
    }

    /// Runs until so many images are judged.
    #[must_use]
    pub fn run_test(&self) -> VstSummary {
        let runtime = Runtime::simulated(Simulation { seed: self.seed, ..Simulation::default() });
        let handle = runtime.handle();
        let findings: Rc<RefCell<Findings>> = Rc::new(RefCell::new(Findings::new(&handle)));
        let ended = runtime.block_on(self.run(&handle, &findings));
        let mut summary = std::mem::take(&mut findings.borrow_mut().summary);
        let stopped = match ended {
            Ok(Ok(())) => None,
            Ok(Err(rejected)) => Some(format!("a command was rejected: {rejected}")),
            Err(stalled) => Some(stalled.to_string()),
        };
        if let Some(why) = stopped {
            summary.violations += 1;
            summary.first_violation.get_or_insert(why);
        }
        summary.trace_hash = format!("{:016x}", mix(handle.trace_hash(), summary.requests));
        summary
    }

    async fn run(&self, handle: &Handle, findings: &Rc<RefCell<Findings>>) -> Result<(), Rejected> {
        let profile = profile();
        let device = FlashDevice::new(handle, &profile, self.options.clone());
        findings.borrow_mut().golden = GoldenDisk::new(profile.blocks);
        self.cut_now_and_then(handle, &device, findings);
        let synthetic = self.trace.is_empty().then(|| random_writes(&mut handle.random("trace")));
        let trace = synthetic.as_ref().unwrap_or(&self.trace);
        let mut driver =
            Driver { device, findings: Rc::clone(findings), in_flight: VecDeque::new(), writes: 0 };
        driver.fill().await?;
        while !findings.borrow().is_enough(self.images) {
            let before = findings.borrow().summary.requests;
            for request in trace {
                driver.submit_request(*request, self.flush_every).await?;
                if findings.borrow().is_enough(self.images) {
                    break;
                }
            }
            if findings.borrow().summary.requests == before {
                findings.borrow_mut().violated("the trace changes nothing".to_owned());
                break;
            }
        }
        let stats = driver.device.stats();
        let summary = &mut findings.borrow_mut().summary;
        (summary.erases, summary.checkpoints) = (stats.erases, stats.checkpoints);
        (summary.record_pages, summary.internal_flushes) = (stats.record_pages, stats.internal_flushes);
        driver.device.cut_power();
        Ok(())
    }

    /// Cuts the power on copies, at events that chance draws.
    fn cut_now_and_then(&self, handle: &Handle, device: &Rc<FlashDevice>, findings: &Rc<RefCell<Findings>>) {
        let (weak, findings) = (Rc::downgrade(device), Rc::clone(findings));
        let (handle, options, images) = (handle.clone(), self.options.clone(), self.images);
        let profile = profile();
        device.observe(move || {
            let Some(device) = weak.upgrade() else { return };
            let findings = &mut *findings.borrow_mut();
            if findings.is_enough(images) || !findings.is_time() {
                return;
            }
            let medium = device.after_cut(&mut findings.random);
            let again = FlashDevice::restarted(&handle, &profile, options.clone(), medium);
            findings.judge(&again);
        });
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
#[derive(Default)]
struct GoldenDisk {
    /// By sector: the requests, and the version that each left; 0 for a discard.
    history: Vec<Vec<(u64, u64)>>,
}

impl GoldenDisk {
    fn new(blocks: u64) -> GoldenDisk {
        GoldenDisk { history: vec![Vec::new(); (blocks * SECTORS_PER_BLOCK) as usize] }
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
}

struct Findings {
    summary: VstSummary,
    golden: GoldenDisk,
    random: Random,
    /// Requests that a flush covers.
    flushed: u64,
    /// Events until the next image.
    events_left: u64,
}

impl Findings {
    fn new(handle: &Handle) -> Findings {
        Findings {
            summary: VstSummary::default(),
            golden: GoldenDisk::default(),
            random: handle.random("cut"),
            flushed: 0,
            events_left: EVENTS_PER_IMAGE,
        }
    }

    fn is_enough(&self, images: u64) -> bool {
        self.summary.images >= images
    }

    /// Whether an image is taken at this event.
    fn is_time(&mut self) -> bool {
        self.events_left -= 1;
        let now = self.events_left == 0;
        if now {
            self.events_left = 1 + self.random.below(2 * EVENTS_PER_IMAGE);
        }
        now
    }

    fn judge(&mut self, recovered: &FlashDevice) {
        let point = recovered.recovery_point().unwrap_or(RecoveryPoint { kept: u64::MAX, found: 0 });
        let (kept, dropped) = (point.kept, point.found.saturating_sub(point.kept));
        self.summary.images += 1;
        self.summary.images_rolled_back += u64::from(dropped > 0);
        self.summary.most_dropped = self.summary.most_dropped.max(dropped);
        if let Some(what) = self.wrong(recovered, kept) {
            self.violated(format!("image {}: {what}", self.summary.images));
        }
    }

    fn violated(&mut self, what: String) {
        self.summary.violations += 1;
        self.summary.first_violation.get_or_insert(what);
    }

    /// What is wrong with a recovered device, if anything is.
    fn wrong(&self, recovered: &FlashDevice, kept: u64) -> Option<String> {
        if kept < self.flushed {
            return Some(format!("{kept} requests are kept, and a flush covers {}", self.flushed));
        }
        if kept > self.summary.requests {
            return Some(format!("{kept} requests are kept, and {} were submitted", self.summary.requests));
        }
        let mut found = [0; BLOCK_BYTES];
        (0..recovered.blocks()).find_map(|block| {
            recovered.peek(Lba(block), &mut found);
            let golden = self.golden.block(block, kept);
            if found == golden {
                return None;
            }
            let sectors = found.chunks_exact(SECTOR_BYTES).zip(golden.chunks_exact(SECTOR_BYTES));
            let at = sectors.take_while(|(found, golden)| found == golden).count();
            let sector = block * SECTORS_PER_BLOCK + at as u64;
            let held = &found[at * SECTOR_BYTES..];
            let number = |at: usize| held.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            let [number, version] = [number(0), number(8)].map(|bytes| bytes.map_or(0, u64::from_le_bytes));
            let right = self.golden.version(sector, kept);
            Some(format!(
                "sector {sector} after {kept} requests: version {right} is right, found version {version} of sector {}",
                number.saturating_sub(1)
            ))
        })
    }
}

/// Submits the requests, as many at a time as the device takes and do not overlap (S6).
struct Driver {
    device: Rc<FlashDevice>,
    findings: Rc<RefCell<Findings>>,
    in_flight: VecDeque<(Ticket, Extent)>,
    /// Writes since the last flush.
    writes: u64,
}

impl Driver {
    /// Writes every sector once, so that cleaning comes soon.
    async fn fill(&mut self) -> Result<(), Rejected> {
        const AT_ONCE: u64 = 512;
        for first in (0..self.device.blocks() * SECTORS_PER_BLOCK).step_by(AT_ONCE as usize) {
            self.write(first, AT_ONCE).await?;
        }
        Ok(())
    }

    async fn submit_request(
        &mut self,
        request: VstRequest,
        flush_every: Option<u64>,
    ) -> Result<(), Rejected> {
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
        if flush_every.is_some_and(|every| self.writes >= every) {
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
            let findings = &mut *self.findings.borrow_mut();
            findings.summary.requests += 1;
            let request = findings.summary.requests;
            (sector..sector + sectors).for_each(|sector| findings.golden.write(sector, request));
            (first..end).flat_map(|block| findings.golden.block(block, request)).collect()
        };
        let parts = [Part::bytes(Lba(first), &bytes)];
        let ticket = submit_when_free(&*self.device, Command::Write(Write::new(&parts))).await?;
        self.in_flight.push_back((ticket, extent));
        Ok(())
    }

    async fn discard(&mut self, extent: Extent) -> Result<(), Rejected> {
        self.wait_for(extent).await?;
        {
            let findings = &mut *self.findings.borrow_mut();
            findings.summary.requests += 1;
            let request = findings.summary.requests;
            for block in extent.iter() {
                let first = block.0 * SECTORS_PER_BLOCK;
                (first..first + SECTORS_PER_BLOCK)
                    .for_each(|sector| findings.golden.discard(sector, request));
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
        let covered = self.findings.borrow().summary.requests;
        submit_when_free(&*self.device, Command::Flush).await?.transferred().await?;
        let findings = &mut *self.findings.borrow_mut();
        findings.flushed = covered;
        findings.summary.flushes += 1;
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
