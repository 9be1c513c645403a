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
//!
//! As the first of the paper's three tests, a campaign can also write so many bytes without a cut. What the trace reads, and
//! now and then the whole device, is compared with the golden disk.

mod device;
mod driver;
mod golden;

use std::cell::RefCell;
use std::rc::Rc;

use weir_flash::{FlashDevice, FlashOptions, Medium};
use weir_runtime::{Handle, Random, Runtime, Simulation};
use weir_storage::BLOCK_BYTES;
use weir_workload::{ServerTrace, TraceKind, TraceRequest};

use crate::campaign::{Campaign, Failure, Plan, Run, counts};
use crate::content::mix;
use crate::cuts::Cuts;
use crate::shrink::leave_out;
use device::profile;
use driver::{Driver, Stopped};
use golden::GoldenDisk;

/// Bytes of a sector.
pub const SECTOR_BYTES: usize = 512;

const SECTORS_PER_BLOCK: u64 = (BLOCK_BYTES / SECTOR_BYTES) as u64;

/// Crash states that a run judges.
const STATES_PER_RUN: u64 = 200;

/// Events of the device from one power cut to the next, on average.
const EVENTS_PER_CUT: u64 = 60;

/// Requests of a synthetic trace, and of a stretch of a server's.
const SYNTHETIC_REQUESTS: usize = 4000;

/// Traces that are tried to make one that fails shorter, at most.
const TRIALS_MAX: u32 = 60;

/// What is wrong with a trace of flushes alone, which would be played without end.
const CHANGES_NOTHING: &str = "the trace changes nothing";

/// A request of the trace; sectors are those of any disk, and are folded onto the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VstRequest {
    /// Reads so many sectors from this one, and compares them.
    Read {
        /// The first sector.
        sector: u64,
        /// How many, 1 and more.
        sectors: u64,
    },
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
    /// Each run replays it until it has judged its crash states; empty: random writes, or those of a server.
    pub trace: Vec<VstRequest>,
    /// Without a trace: each run has a stretch of this one, as chance draws it.
    pub server: Option<ServerTrace>,
    /// One run alone, which cuts no power and writes so many bytes. It replays whole passes of a server's trace.
    pub uncut_bytes: Option<u64>,
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
        /// Reads of the trace, compared.
        pub reads: u64,
        /// Bytes written by the trace, where no power is cut.
        pub bytes_written: u64,
        /// Comparisons of the whole device, where no power is cut.
        pub comparisons: u64,
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
        VstCampaign {
            plan,
            flush_every: None,
            trace: Vec::new(),
            server: None,
            uncut_bytes: None,
            ignores_flushes: false,
            options: FlashOptions::default(),
        }
    }

    /// The trace of a run.
    fn trace(&self, handle: &Handle) -> Vec<VstRequest> {
        if !self.trace.is_empty() {
            return self.trace.clone();
        }
        let mut random = handle.random("trace");
        match self.server {
            Some(server) => requests_of(server, random).take(SYNTHETIC_REQUESTS).collect(),
            None => random_writes(&mut random),
        }
    }

    /// The requests of a pass: the trace, or where no power is cut a whole pass of the server's, the same each time.
    fn pass<'a>(
        &self,
        trace: &'a [VstRequest],
        random: &Random,
    ) -> Box<dyn Iterator<Item = VstRequest> + 'a> {
        match self.server.filter(|_| self.uncut_bytes.is_some()) {
            Some(server) => Box::new(requests_of(server, random.clone())),
            None => Box::new(trace.iter().copied()),
        }
    }

    /// Plays a trace, by default that of the run, until there are enough crash states.
    fn play_trace(&self, seed: u64, trace: Option<&[VstRequest]>) -> Run<VstTotals> {
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        let handle = runtime.handle();
        let found = Rc::new(RefCell::new(Found::new(&handle, self.uncut_bytes.is_none())));
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
        let options = FlashOptions { never_cut: self.uncut_bytes.is_some(), ..self.options.clone() };
        let device = FlashDevice::new(handle, &profile(), options);
        let cuts = self.uncut_bytes.is_none();
        if cuts && self.server.is_none() {
            self.cut_at_random_events(handle, &device, found);
        }
        let mut driver = Driver::new(self, device, found);
        let stopped = |stopped: Stopped| stopped.to_string();
        driver.fill().await.map_err(stopped)?;
        // What is left of the fill is the same on every trace: a server's crash states are of its requests.
        if cuts && self.server.is_some() {
            self.cut_at_random_events(handle, &driver.device, found);
        }
        let random = handle.random("pass");
        while !driver.is_over() {
            let before = found.borrow().golden.requests;
            for request in self.pass(trace, &random) {
                driver.submit_request(request).await.map_err(stopped)?;
                if driver.is_over() {
                    break;
                }
            }
            if found.borrow().golden.requests == before {
                return Err(CHANGES_NOTHING.to_owned());
            }
        }
        if self.uncut_bytes.is_some() {
            driver.compare_all().await.map_err(stopped)?;
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

    fn runs(&self) -> u64 {
        if self.uncut_bytes.is_some() { 1 } else { u64::MAX }
    }

    fn play_run(&self, (): &(), _number: u64, seed: u64) -> Run<VstTotals> {
        self.play_trace(seed, None)
    }

    fn shrink_failure(&self, (): &(), failure: Failure) -> Failure {
        // One run without cuts takes too long to be tried again.
        if self.uncut_bytes.is_some() {
            return failure;
        }
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

/// The requests of a pass of a server's trace.
fn requests_of(server: ServerTrace, random: Random) -> impl Iterator<Item = VstRequest> {
    server.generate(random).map(|TraceRequest { kind, offset, bytes, .. }| {
        let (sector, sectors) = (offset / SECTOR_BYTES as u64, bytes.div_ceil(SECTOR_BYTES as u64));
        match kind {
            TraceKind::Read => VstRequest::Read { sector, sectors },
            TraceKind::Write => VstRequest::Write { sector, sectors },
            TraceKind::Discard => VstRequest::Discard { sector, sectors },
            TraceKind::Flush => VstRequest::Flush,
        }
    })
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

/// What a run has found so far.
struct Found {
    cuts: Cuts<VstTotals, Medium>,
    golden: GoldenDisk,
    random: Random,
    /// Events until the next power cut.
    events_left: u64,
}

impl Found {
    fn new(handle: &Handle, keeps_past: bool) -> Found {
        Found {
            cuts: Cuts::new(handle.random("cut"), STATES_PER_RUN, 1),
            golden: GoldenDisk::new(profile().blocks, keeps_past),
            random: handle.random("events"),
            events_left: EVENTS_PER_CUT,
        }
    }
}
