//! What the layer adds to a write: nanoseconds a barrier write on a device that does nothing, against the
//! device alone; and what a queued write costs in simulation. Run with `--release`.

#![allow(clippy::print_stdout, reason = "a program's output")]

use std::error::Error;
use std::hint::black_box;
use std::rc::Rc;
use std::time::Duration;

use event_listener::Event;
use weir_block::{BlockLayer, BlockOptions, Request};
use weir_runtime::{Runtime, Simulation, Wall};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, Capabilities, Command, Lba, Ordering, Part, Rejected, Storage, StreamId,
    Ticket,
};

const WRITES: u64 = 10_000_000;
const QUEUED_WRITES: u64 = 200_000;
const BLOCKS: u64 = 1 << 10;

/// Accepts every command, and has transferred it on return.
struct NullDevice {
    capabilities: Capabilities,
    slots: Event,
}

impl Storage for NullDevice {
    fn blocks(&self) -> u64 {
        BLOCKS
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        black_box(&command);
        Ok(Ticket::done())
    }

    fn slots(&self) -> &Event {
        &self.slots
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::wall(Wall::default())?;
    let handle = runtime.handle();
    let legacy = Capabilities::legacy(32, 256, 4096);
    let capabilities = Capabilities { ordering: Ordering::Prefix, ..legacy };
    let device: Rc<dyn Storage> = Rc::new(NullDevice { capabilities, slots: Event::new() });
    let layer = BlockLayer::new(&handle, Rc::clone(&device), BlockOptions::default())?;
    let page = vec![7; 4096];
    let cost = |start: weir_runtime::Instant| handle.now().since(start).as_nanos() as f64 / WRITES as f64;

    for _ in 0..3 {
        let start = handle.now();
        for i in 0..WRITES {
            let parts = [Part::bytes(Lba(i % BLOCKS), black_box(&page))];
            black_box(device.submit(Command::Write(weir_storage::Write::new(&parts)))?);
        }
        let alone = cost(start);
        let start = handle.now();
        for i in 0..WRITES {
            let parts = [Part::bytes(Lba(i % BLOCKS), black_box(&page))];
            black_box(layer.try_submit(&Request::barrier(StreamId(0), &parts))?);
        }
        println!("straight through: {:5.1} ns a barrier write, the device alone {alone:.1} ns", cost(start));
    }
    queued()
}

/// Orderless writes faster than a device of depth 32 in virtual time takes them: all of them queue.
fn queued() -> Result<(), Box<dyn Error>> {
    let clock = Runtime::wall(Wall::default())?.handle();
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let capabilities = Capabilities { ordering: Ordering::Prefix, ..Capabilities::legacy(32, 256, 4096) };
    let options =
        AdversaryOptions { blocks: BLOCKS, capabilities, latency_ns_max: 1_000, ..Default::default() };
    let disk = AdversaryDisk::new(&handle, options);
    let layer = BlockLayer::new(&handle, disk, BlockOptions { merge: false, ..BlockOptions::default() })?;
    let page = vec![7; 4096];
    let start = clock.now();
    runtime.block_on(async {
        for i in 0..QUEUED_WRITES {
            let parts = [Part::bytes(Lba(i * 7 % BLOCKS), &page)];
            layer.submit(&Request::barrier(StreamId(0), &parts)).await?;
        }
        handle.sleep(Duration::from_millis(1)).await;
        Ok::<(), Rejected>(())
    })??;
    let spent = clock.now().since(start).as_nanos() as f64 / QUEUED_WRITES as f64;
    println!("queued, with the adversary disk: {spent:5.0} ns a barrier write");
    Ok(())
}
