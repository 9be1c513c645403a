//! A device always goes on: however full it is, however little is spare, and whatever the readers do.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use crate::small;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use weir_flash::{
    Allocation, FlashDevice, FlashOptions, GcPolicy, Keep, Layout, Mechanism, Profile, Replacement,
};
use weir_runtime::{Handle, Random, Runtime, Simulation};
use weir_storage::{
    BLOCK_BYTES, Command, Extent, Lba, Part, Storage, Ticket, Write, WriteFlags, submit_when_free,
};

/// Devices that are drawn.
const DEVICES: u64 = 300;

fn one<T: Copy>(random: &mut Random, choices: &[T]) -> T {
    choices[random.below(choices.len() as u64) as usize]
}

/// A device with as few spare blocks as a profile may have.
fn tight(random: &mut Random) -> Profile {
    let mut tight = small::profile(one(random, &Mechanism::ALL));
    tight.nand.channels = one(random, &[1, 2]);
    tight.nand.ways = one(random, &[1, 2]);
    tight.nand.planes = one(random, &[1, 2]);
    tight.nand.multi_plane = random.below(2) == 0;
    tight.nand.blocks_per_plane = one(random, &[8, 10, 20, 60, 200]);
    tight.nand.pages_per_block = one(random, &[2, 4, 16]);
    tight.nand.page_bytes = 4096 * one(random, &[1, 2, 4, 8, 16]);
    tight.ftl.gc = one(random, &[GcPolicy::Greedy, GcPolicy::CostBenefit]);
    tight.ftl.gc_free_blocks = one(random, &[3, 4]);
    tight.cache.bytes = one(random, &[8, 64]) * 4096;
    let together = if tight.nand.multi_plane { tight.nand.planes } else { 1 };
    let page_blocks = tight.nand.page_bytes / 4096 * together;
    tight.ftl.layout = layout(random, page_blocks);
    tight.ftl.layout.summary_pages &= tight.nand.pages_per_block > 2;
    if tight.ftl.layout.logical_page_blocks > 1 {
        tight.ftl.share = 0;
    }
    tight.cache.bytes *= u64::from(tight.ftl.layout.logical_page_blocks);
    tight.cache.replacement = one(random, &[Replacement::Fifo, Replacement::Lru]);
    if tight.barrier.mechanism == Mechanism::OrderPreservingRecovery {
        // A request fits into what cleaning keeps free on a die: one of three logical pages at least.
        let free_pages = (tight.ftl.gc_free_blocks - 2) * tight.nand.pages_per_block;
        if free_pages < 6 {
            tight.ftl.layout = Layout::default();
        }
        let Layout { logical_page_blocks, summary_pages, .. } = tight.ftl.layout;
        let data_pages = free_pages - (tight.ftl.gc_free_blocks - 2) * u32::from(summary_pages);
        let room = data_pages * page_blocks / logical_page_blocks;
        tight.host.max_transfer_blocks = tight.host.max_transfer_blocks.min(room);
    }
    // As many blocks as are allowed, or a few fewer.
    tight.blocks = tight.raw_blocks();
    shrink_until_possible(&mut tight);
    tight.blocks -= random.below(3).min(tight.blocks - 1);
    shrink_until_possible(&mut tight);
    tight
}

fn shrink_until_possible(tight: &mut Profile) {
    while tight.check().is_err() && tight.blocks > 1 {
        tight.blocks -= 1;
    }
    tight.check().unwrap();
}

/// Half of the devices have a map of blocks.
fn layout(random: &mut Random, page_blocks: u32) -> Layout {
    let logical_page_blocks = one(random, &[1, 1, page_blocks / 2, page_blocks]).clamp(1, 16);
    let whole = logical_page_blocks == page_blocks;
    Layout {
        logical_page_blocks,
        allocation: if whole { Allocation::Static } else { Allocation::Dynamic },
        summary_pages: random.below(2) == 0,
        log_buffer_bytes: one(random, &[0, 4096]),
    }
}

fn options() -> FlashOptions {
    FlashOptions { keep: Keep::Versions, ..FlashOptions::default() }
}

async fn write(device: &FlashDevice, block: u64, flags: WriteFlags) -> Ticket {
    let page = [0; BLOCK_BYTES];
    let parts = [Part::bytes(Lba(block), &page)];
    let write = Write { flags, ..Write::new(&parts) };
    submit_when_free(device, Command::Write(write)).await.unwrap()
}

/// Overwrites at random, with a flush, a barrier, or a discard now and then; counts commands in `done`.
async fn overwrite(handle: Handle, device: Rc<FlashDevice>, commands: u64, done: Rc<Cell<u64>>) {
    let mut random = handle.random("overwrite");
    let barriers = device.capabilities().barriers();
    for _ in 0..commands {
        let block = random.below(device.blocks());
        match random.below(100) {
            0 => drop(submit_when_free(&*device, Command::Flush).await.unwrap()),
            1 if random.below(10) == 0 => {
                let extent = Extent::new(Lba(block), 1);
                drop(submit_when_free(&*device, Command::Discard(&[extent])).await.unwrap());
            }
            chance => {
                let flags = WriteFlags { barrier: barriers && chance < 20, ..WriteFlags::default() };
                drop(write(&device, block, flags).await);
            }
        }
        done.set(done.get() + 1);
    }
    submit_when_free(&*device, Command::Flush).await.unwrap().transferred().await.unwrap();
    done.set(u64::MAX);
}

/// Whether everything in `done` comes to its end. A device that answers nothing for 20 seconds, which is much
/// longer than it takes to clean all of it, never answers.
async fn ends(handle: &Handle, done: &Cell<u64>) -> bool {
    let mut before = u64::MAX;
    while done.get() != u64::MAX && done.get() != before {
        before = done.get();
        handle.sleep(Duration::from_secs(20)).await;
    }
    done.get() == u64::MAX
}

/// Random overwrites of a full device with next to nothing spare: a life that ends by a power cut, and one to the
/// end on what that left.
async fn two_lives(handle: &Handle, profile: &Profile) -> bool {
    let mut random = handle.random("lives");
    let device = FlashDevice::new(handle, profile, options());
    device.precondition(profile.blocks);
    let commands = (3 * profile.blocks).clamp(1000, 6000);
    drop(handle.spawn(overwrite(handle.clone(), Rc::clone(&device), commands, Rc::new(Cell::new(0)))));
    handle.sleep(Duration::from_micros(random.below(2_000_000))).await;
    let medium = device.after_cut(&mut random);
    device.cut_power();
    let device = FlashDevice::restarted(handle, profile, options(), medium);
    let done = Rc::new(Cell::new(0));
    drop(handle.spawn(overwrite(handle.clone(), Rc::clone(&device), commands, Rc::clone(&done))));
    ends(handle, &done).await
}

#[test]
fn a_full_device_goes_on() {
    for seed in 0..DEVICES {
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        let handle = runtime.handle();
        let profile = tight(&mut handle.random("tight"));
        assert_eq!(profile.check(), Ok(()), "seed {seed}");
        let answered = runtime.block_on(two_lives(&handle, &profile));
        assert!(answered.unwrap(), "seed {seed} stalls: {profile:?}");
    }
}

/// Reads a block again and again.
async fn read_on(device: Rc<FlashDevice>, block: u64) {
    loop {
        let read = Command::read(Extent::new(Lba(block), 1));
        let Ok(ticket) = submit_when_free(&*device, read).await else { return };
        let _ = ticket.transferred().await;
    }
}

/// Readers that leave a single die no gap do not keep a flush waiting: it takes at most a few times as long as
/// the reads that may go before each of its pages.
#[test]
fn readers_do_not_starve_a_flush() {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let mut profile = small::profile(Mechanism::None);
    (profile.nand.channels, profile.nand.ways, profile.blocks) = (1, 1, 32);
    assert_eq!(profile.check(), Ok(()));
    let device = FlashDevice::new(&handle, &profile, options());
    device.precondition(profile.blocks);
    let took = runtime.block_on(async {
        for block in 0..6 {
            drop(handle.spawn(read_on(Rc::clone(&device), block)));
        }
        handle.sleep(Duration::from_millis(10)).await;
        for block in 20..24 {
            write(&device, block, WriteFlags::default()).await.transferred().await.unwrap();
        }
        let (from, done) = (handle.now(), Rc::new(Cell::new(0)));
        let (flushed, flusher) = (Rc::clone(&done), Rc::clone(&device));
        drop(handle.spawn(async move {
            submit_when_free(&*flusher, Command::Flush).await.unwrap().transferred().await.unwrap();
            flushed.set(1);
        }));
        while done.get() == 0 && handle.now().since(from) < Duration::from_secs(1) {
            handle.sleep(Duration::from_micros(100)).await;
        }
        handle.now().since(from)
    });
    // Four pages at most, each after 9 reads of 80 us and with 740 us to program, and 720 us for the flush.
    let took = took.unwrap();
    assert!(took < Duration::from_millis(12), "{took:?}");
}
