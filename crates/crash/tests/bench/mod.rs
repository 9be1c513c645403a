//! A test bench: a small volume on an adversary disk, in virtual time, and single requests to it.

#![allow(dead_code, reason = "each test uses a part")]

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use weir_crash::{Stamp, push_page, stamp_of};
use weir_runtime::{Handle, Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, Capabilities, Command, Extent, Faults, Image, Lba, Part, Rejected,
    Storage, Ticket, Write,
};
use weir_volume::{Format, Volume, VolumeError, VolumeOptions};

/// Blocks of the disk: 16 segments of 8 blocks behind the head.
pub const BLOCKS: u64 = 8 + 16 * 8;
pub const FORMAT: Format = Format { logical_blocks: 0, segment_blocks: 8, overwrite: false, slots: 0 };

/// Runs `work` in virtual time; a stall is a failure.
pub fn simulate<T, F: Future<Output = T>>(seed: u64, work: impl FnOnce(Handle) -> F) -> T {
    let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
    let outcome = runtime.block_on(work(runtime.handle()));
    outcome.unwrap_or_else(|stalled| panic!("seed {seed}: {stalled}"))
}

pub fn disk_options(faults: Faults) -> AdversaryOptions {
    let capabilities = Capabilities::legacy(8, 64, 512);
    AdversaryOptions {
        blocks: BLOCKS,
        capabilities,
        latency_ns_max: 1_000,
        faults,
        ..AdversaryOptions::default()
    }
}

/// A disk with an empty volume.
pub async fn made(handle: &Handle) -> Rc<AdversaryDisk> {
    made_on(handle, BLOCKS).await
}

/// The same with another number of blocks.
pub async fn made_on(handle: &Handle, blocks: u64) -> Rc<AdversaryDisk> {
    let disk = AdversaryDisk::new(handle, AdversaryOptions { blocks, ..disk_options(Faults::default()) });
    Volume::create(handle, &*disk, FORMAT).await.expect("a volume fits");
    disk
}

/// The disk that a machine finds with this image, and with these faults.
pub fn disk_with(handle: &Handle, image: &Image, faults: Faults) -> Rc<AdversaryDisk> {
    AdversaryDisk::from_image(handle, disk_options(faults), image)
}

pub async fn open(
    handle: &Handle,
    disk: &Rc<AdversaryDisk>,
    options: &VolumeOptions,
) -> Result<Volume, VolumeError> {
    Volume::open(handle, Rc::clone(disk) as Rc<dyn Storage>, options.clone()).await
}

pub fn submit_page(storage: &dyn Storage, block: u64, stamp: Stamp) -> Result<Ticket, Rejected> {
    let mut page = Vec::new();
    push_page(&mut page, block, stamp);
    storage.submit(Command::Write(Write::new(&[Part::bytes(Lba(block), &page)])))
}

pub async fn put(storage: &dyn Storage, block: u64, stamp: Stamp) -> Result<(), Rejected> {
    let mut page = Vec::new();
    push_page(&mut page, block, stamp);
    weir_storage::write(storage, Part::bytes(Lba(block), &page)).await
}

/// Whose page a block holds; `Ok(None)` if it holds none.
pub async fn get(storage: &dyn Storage, block: u64) -> Result<Option<Stamp>, Rejected> {
    let page = weir_storage::read(storage, Extent::new(Lba(block), 1)).await?;
    Ok(stamp_of(&page, block))
}

/// Where on the disk the page that `stamp` wrote to `block` lies.
pub fn find_page(image: &Image, block: u64, stamp: Stamp) -> Lba {
    let mut places = (0..image.blocks()).map(Lba);
    places.find(|place| stamp_of(&image.read(*place), block) == Some(stamp)).expect("the page is on the disk")
}

/// Whether a future is done now.
pub fn is_done<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

/// Some images that a power cut may leave at each event of `disk`, from now on.
pub fn record_cuts(handle: &Handle, disk: &AdversaryDisk, note: impl Fn(Image) + 'static) {
    let random = RefCell::new(handle.random("cuts"));
    disk.observe(Box::new(move |disk| {
        let states = disk.crash_states();
        (0..8).for_each(|_| note(states.sample(&mut random.borrow_mut())));
    }));
}
