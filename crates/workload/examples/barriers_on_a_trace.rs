//! What barriers cost on a trace: its writes, replayed in virtual time on an emulated device as fast as its queue takes
//! them: orderless, each as a barrier write, and in epochs of eight.
//!
//! ```text
//! cargo run -p weir-workload --example barriers_on_a_trace -- [DEVICE [TRACE]]
//! ```
//!
//! Without a trace in one of the formats of [`BlockTrace`], small neighbouring writes are made: 1 to 8 writes of 4 KiB, each
//! behind the one before, then another place. The device's ordered service and the block layer's merging are both changed,
//! since each may be what a barrier costs: writes that continue each other become one command only where no barrier parts
//! them (E4).

use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::rc::Rc;

use weir_block::{BlockLayer, BlockOptions, Class, Dispatch, Request};
use weir_flash::{FlashDevice, FlashOptions, Keep, OrderedService, Profile};
use weir_runtime::{Buffer, Runtime, Simulation};
use weir_storage::{BLOCK_BYTES, Data, Lba, Part, StreamId};
use weir_workload::{BlockTrace, TraceKind};

/// The device is shortened to 4 GiB.
const BLOCKS: u64 = 1 << 20;

/// Neighbouring writes that are made.
const WRITES: usize = 40_000;

/// A write: its first block, and how many.
type Write = (u64, u64);

/// What a replay shows.
struct Seen {
    seconds: f64,
    /// Commands to the device.
    commands: u64,
}

#[allow(clippy::print_stdout, reason = "a program tells what it has measured")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let device = arguments.next().unwrap_or_else(|| "ufs20".to_owned());
    let writes = match arguments.next() {
        Some(path) => recorded(&path)?,
        None => neighbours(),
    };
    let profile = Profile::builtin(&device)?.with_capacity(BLOCKS);
    println!("{device}: {} writes", writes.len());
    for (merging, merge) in [("merged", true), ("not merged", false)] {
        let orderless = replay(&profile, &writes, None, merge)?;
        tell(&format!("orderless, {merging}"), &writes, &orderless, &orderless);
        for service in [OrderedService::Serial, OrderedService::Pipelined] {
            let mut profile = profile.clone();
            profile.host.ordered_service = service;
            for epoch in [1, 8] {
                let ordered = replay(&profile, &writes, Some(epoch), merge)?;
                let what = format!("a barrier every {epoch}, {service:?} service, {merging}");
                tell(&what, &writes, &ordered, &orderless);
            }
        }
    }
    Ok(())
}

#[allow(clippy::print_stdout, reason = "a program tells what it has measured")]
fn tell(what: &str, writes: &[Write], seen: &Seen, beside: &Seen) {
    let rate = writes.len() as f64 / seen.seconds;
    let share = 100.0 * beside.seconds / seen.seconds;
    println!("{what}: {rate:.0} writes/s, {} commands, {share:.1} % of orderless", seen.commands);
}

/// The writes of a trace, folded onto the device.
fn recorded(path: &str) -> Result<Vec<Write>, Box<dyn Error>> {
    let mut writes = Vec::new();
    for request in BlockTrace::new(BufReader::new(File::open(path)?)) {
        let request = request?;
        if request.kind == TraceKind::Write && request.bytes > 0 {
            let start = request.offset / BLOCK_BYTES as u64;
            let end = (request.offset + request.bytes).div_ceil(BLOCK_BYTES as u64);
            writes.push(folded(start, end - start));
        }
    }
    Ok(writes)
}

fn folded(start: u64, blocks: u64) -> Write {
    let blocks = blocks.min(64);
    (start % (BLOCKS - blocks), blocks)
}

fn neighbours() -> Vec<Write> {
    let runtime = Runtime::simulated(Simulation::default());
    let mut random = runtime.handle().random("neighbours");
    let mut writes = Vec::new();
    while writes.len() < WRITES {
        let start = random.below(BLOCKS - 8);
        let run = random.below(8) + 1;
        writes.extend((0..run).map(|nth| (start + nth, 1)));
    }
    writes
}

/// Replays in epochs of so many writes, or without order.
fn replay(
    profile: &Profile,
    writes: &[Write],
    epoch: Option<usize>,
    merge: bool,
) -> Result<Seen, Box<dyn Error>> {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let options = FlashOptions { keep: Keep::Versions, never_cut: true, ..FlashOptions::default() };
    let device = FlashDevice::new(&handle, profile, options);
    device.precondition(BLOCKS);
    let dispatch = if epoch.is_some() { Dispatch::OrderPreserving } else { Dispatch::Legacy };
    let layer =
        BlockLayer::new(&handle, device, BlockOptions { dispatch, merge, ..BlockOptions::default() })?;
    let page = Rc::new(Buffer::new(64 * BLOCK_BYTES));
    let from = handle.now();
    let replayed = runtime.block_on(async {
        let mut last = None;
        for (nth, (start, blocks)) in writes.iter().enumerate() {
            let class = match epoch {
                None => Class::Orderless,
                Some(epoch) if (nth + 1).is_multiple_of(epoch) => Class::Barrier,
                Some(_) => Class::Ordered,
            };
            let data = Data::Shared { buffer: &page, offset: 0, bytes: *blocks as usize * BLOCK_BYTES };
            let parts = [Part { start: Lba(*start), data }];
            last = Some(layer.submit(&Request::new(StreamId(0), class, &parts)).await?);
        }
        match last {
            Some(ticket) => ticket.transferred().await.map_err(Into::into),
            None => Ok::<(), weir_storage::Rejected>(()),
        }
    });
    replayed??;
    let seconds = handle.now().since(from).as_secs_f64();
    Ok(Seen { seconds, commands: writes.len() as u64 - layer.stats().merged })
}
