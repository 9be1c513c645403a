//! How fast an emulated device is simulated: random 4 KiB writes, orderless or with barriers, through the block
//! layer, so many in flight at any time. What is measured is the simulator, in wall time, and beside it what
//! the simulated device did in its own time.

use std::collections::VecDeque;
use std::rc::Rc;

use serde::Serialize;
use weir_block::{BlockLayer, BlockOptions, Class, Dispatch, Refused, Request};
use weir_flash::{FlashDevice, FlashOptions, Keep, Mechanism, Probe, Profile};
use weir_runtime::{Handle, Runtime, Simulation};
use weir_storage::{BLOCK_BYTES, Lba, Part, Recorder, Storage, StreamId, Ticket};

use crate::caller::WeirCalls;
use crate::error::BenchError;

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulatedOptions {
    /// Writes that are timed.
    pub writes: u64,
    /// Writes in flight, up to the depth of the device's queue, and to the span: they do not overlap (S6).
    pub depth: u32,
    /// Determines everything but the wall's time.
    pub seed: u64,
    /// Whether the order recorder checks every write.
    pub recorder: bool,
    /// Whether each write is a barrier; not on a device without a mechanism.
    pub barriers: bool,
    /// Blocks written over, from the first; the whole device if it has fewer.
    pub span_blocks: u64,
    /// Whether the device was written once from end to end before.
    pub preconditioned: bool,
}

impl Default for SimulatedOptions {
    fn default() -> SimulatedOptions {
        SimulatedOptions {
            writes: 4_000_000,
            depth: 32,
            seed: 1,
            recorder: false,
            barriers: false,
            span_blocks: 1 << 18,
            preconditioned: false,
        }
    }
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct SimulatedReport {
    /// The device's profile.
    pub device: String,
    /// Its capacity, in blocks.
    pub device_blocks: u64,
    /// Writes simulated.
    pub writes: u64,
    /// Writes in flight.
    pub depth: u32,
    /// Blocks written over.
    pub span_blocks: u64,
    /// Whether the order recorder was on.
    pub recorder: bool,
    /// Whether the device was full before.
    pub preconditioned: bool,
    /// The device's own time, in seconds.
    pub simulated_seconds: f64,
    /// Writes a second of the device's own time.
    pub simulated_iops: f64,
    /// The wall's time, in seconds.
    pub wall_seconds: f64,
    /// Writes simulated in a second of the wall's time.
    pub simulated_per_second: f64,
    /// The most memory that this process had, in bytes.
    pub peak_rss_bytes: u64,
    /// Slots programmed, of the host and of cleaning, for each block that the host wrote.
    pub write_amplification: f64,
    /// Erase blocks erased: none if the device never had to clean.
    pub erases: u64,
    /// Stands for everything that happened.
    pub trace_hash: String,
}

/// A device without barriers is driven by legacy dispatch, and takes no barrier writes.
fn block_options(profile: &Profile, barriers: bool) -> Result<BlockOptions, BenchError> {
    let dispatch = match profile.barrier.mechanism {
        Mechanism::None if barriers => {
            return Err(BenchError::NoBarriers { device: profile.name.clone() });
        }
        Mechanism::None => Dispatch::Legacy,
        _ => Dispatch::OrderPreserving,
    };
    Ok(BlockOptions { dispatch, ..BlockOptions::default() })
}

/// Simulates, timed by `clock`, a runtime in wall time.
///
/// # Errors
/// [`BenchError::NoBarriers`]; what the device or the block layer answered, and a breach of order.
pub fn simulate(
    clock: &Handle,
    profile: &Profile,
    options: &SimulatedOptions,
) -> Result<SimulatedReport, BenchError> {
    let runtime = Runtime::simulated(Simulation { seed: options.seed, ..Simulation::default() });
    let handle = runtime.handle();
    let recorder = options.recorder.then(Recorder::new);
    let keep = Keep::Versions;
    let device_options =
        FlashOptions { keep, recorder: recorder.clone(), never_cut: true, ..FlashOptions::default() };
    let device = FlashDevice::new(&handle, profile, device_options);
    if options.preconditioned {
        device.precondition(profile.blocks);
    }
    let storage = Rc::clone(&device) as Rc<dyn Storage>;
    let layer =
        BlockLayer::recorded(&handle, storage, block_options(profile, options.barriers)?, recorder.clone())?;
    let began = clock.now();
    runtime.block_on(writes(&handle, &layer, profile, options))??;
    let wall_seconds = clock.now().since(began).as_secs_f64();
    if let Some(recorder) = recorder {
        recorder.check()?;
    }
    let simulated_seconds = handle.now().as_nanos() as f64 / 1e9;
    let stats = device.stats();
    let pages = (stats.programmed_pages + stats.moved_pages) as f64;
    Ok(SimulatedReport {
        device: profile.name.clone(),
        device_blocks: profile.blocks,
        writes: options.writes,
        depth: options.depth,
        span_blocks: options.span_blocks.min(profile.blocks),
        recorder: options.recorder,
        preconditioned: options.preconditioned,
        simulated_seconds,
        simulated_iops: options.writes as f64 / simulated_seconds.max(1e-9),
        wall_seconds,
        simulated_per_second: options.writes as f64 / wall_seconds.max(1e-9),
        peak_rss_bytes: clock.peak_memory_bytes(),
        write_amplification: pages * device.blocks_per_page() as f64 / stats.written_blocks.max(1) as f64,
        erases: stats.erases,
        trace_hash: format!("{:016x}", handle.trace_hash()),
    })
}

/// Keeps `depth` writes in flight; the oldest is waited for.
async fn writes(
    handle: &Handle,
    layer: &BlockLayer,
    profile: &Profile,
    options: &SimulatedOptions,
) -> Result<(), BenchError> {
    let mut random = handle.random("writes");
    let span = options.span_blocks.min(profile.blocks);
    let depth = span.min(options.depth.min(profile.host.queue_depth).into()).max(1) as usize;
    let class = if options.barriers { Class::Barrier } else { Class::Orderless };
    let page = vec![0; BLOCK_BYTES];
    let mut in_flight: VecDeque<(u64, Ticket)> = VecDeque::with_capacity(depth);
    for _ in 0..options.writes {
        while in_flight.front().is_some_and(|(_, ticket)| ticket.poll_transferred().is_some())
            || in_flight.len() >= depth
        {
            if let Some((_, ticket)) = in_flight.pop_front() {
                ticket.transferred().await?;
            }
        }
        // Writes in flight together do not overlap (S6).
        let block = loop {
            let block = random.below(span);
            if !in_flight.iter().any(|(other, _)| *other == block) {
                break block;
            }
        };
        let parts = [Part::bytes(Lba(block), &page)];
        let request = Request::new(StreamId(0), class, &parts);
        let ticket = loop {
            match layer.try_submit(&request) {
                Ok(ticket) => break ticket,
                Err(Refused::Full) => layer.space().listen().await,
                Err(refused) => return Err(refused.into()),
            }
        };
        in_flight.push_back((block, ticket));
    }
    for (_, ticket) in in_flight {
        ticket.transferred().await?;
    }
    Ok(())
}

/// Runs random writes of one block through the block layer on an emulated device, with `probe` told of
/// everything that takes time.
///
/// # Errors
/// [`BenchError::NoBarriers`] for barrier writes on a device without a mechanism; what the device or the block
/// layer answered.
pub fn trace(
    profile: &Profile,
    calls: WeirCalls,
    writes: u64,
    seed: u64,
    probe: Rc<dyn Probe>,
) -> Result<(), BenchError> {
    let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
    let handle = runtime.handle();
    let keep = Keep::Versions;
    let options = FlashOptions { keep, probe: Some(probe), never_cut: true, ..FlashOptions::default() };
    let device = FlashDevice::new(&handle, profile, options);
    let block_options = block_options(profile, calls == WeirCalls::B)?;
    let layer = BlockLayer::new(&handle, device as Rc<dyn Storage>, block_options)?;
    runtime.block_on(traced(&handle, &layer, profile, calls, writes))?
}

async fn traced(
    handle: &Handle,
    layer: &BlockLayer,
    profile: &Profile,
    calls: WeirCalls,
    writes: u64,
) -> Result<(), BenchError> {
    let mut random = handle.random("writes");
    let class = if calls == WeirCalls::B { Class::Barrier } else { Class::Orderless };
    let page = vec![0; BLOCK_BYTES];
    for _ in 0..writes {
        let parts = [Part::bytes(Lba(random.below(profile.blocks)), &page)];
        let ticket = layer.submit(&Request::new(StreamId(0), class, &parts)).await?;
        if matches!(calls, WeirCalls::X | WeirCalls::Xnf) {
            ticket.transferred().await?;
        }
        if calls == WeirCalls::Xnf {
            layer.when_space(BlockLayer::flush).await?.transferred().await?;
        }
    }
    layer.when_space(BlockLayer::flush).await?.transferred().await?;
    Ok(())
}
