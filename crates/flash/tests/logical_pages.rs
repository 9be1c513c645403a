//! Logical pages of several blocks: every block reads what was written to it last, whatever parts of pages are written,
//! discarded and flushed, and before and after a power cut behind a flush.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use crate::small;
use std::cell::RefCell;
use std::rc::Rc;

use weir_flash::{
    Allocation, Busy, FlashDevice, FlashOptions, Mechanism, Probe, Profile, Replacement, Subject,
};
use weir_runtime::{Handle, Random, Runtime, Simulation};
use weir_storage::{BLOCK_BYTES, Command, Extent, Lba, Part, Storage, Write, submit_when_free};

fn shown(device: &FlashDevice, block: u64) -> u8 {
    let mut bytes = [0; BLOCK_BYTES];
    device.peek(Lba(block), &mut bytes);
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "block {block} is torn");
    bytes[0]
}

/// An extent of one to five blocks.
fn drawn(random: &mut Random, blocks: u64) -> Extent {
    let start = random.below(blocks);
    Extent::new(Lba(start), (1 + random.below(5)).min(blocks - start) as u32)
}

async fn command(device: &FlashDevice, command: Command<'_>) {
    submit_when_free(device, command).await.unwrap().transferred().await.unwrap();
}

/// Writes and discards at random, with what each block must read in `model`.
async fn change(device: &FlashDevice, model: &mut [u8], random: &mut Random) {
    for _ in 0..400 {
        let extent = drawn(random, model.len() as u64);
        let places = extent.start.0 as usize..extent.end().0 as usize;
        let fill = if random.below(5) == 0 { 0 } else { 1 + random.below(255) as u8 };
        if fill == 0 {
            command(device, Command::Discard(&[extent])).await;
        } else {
            let bytes = vec![fill; extent.bytes()];
            let parts = [Part::bytes(extent.start, &bytes)];
            command(device, Command::Write(Write::new(&parts))).await;
        }
        model[places].fill(fill);
        if random.below(20) == 0 {
            command(device, Command::Flush).await;
        }
    }
}

async fn lives(handle: &Handle, mechanism: Mechanism) {
    let profile = small::paged(mechanism);
    let mut device = FlashDevice::new(handle, &profile, FlashOptions::default());
    let mut model = vec![0; device.blocks() as usize];
    let mut random = handle.random("commands");
    for _ in 0..6 {
        change(&device, &mut model, &mut random).await;
        let seen: Vec<u8> = (0..device.blocks()).map(|block| shown(&device, block)).collect();
        assert!(seen == model, "{}", mechanism.name());
        command(&device, Command::Flush).await;
        let stats = device.stats();
        assert!(stats.completing_reads > 0 && stats.summary_pages > 0 && stats.erases > 0, "{stats:?}");
        let medium = device.after_cut(&mut random);
        device.cut_power();
        device = FlashDevice::restarted(handle, &profile, FlashOptions::default(), medium);
        let found: Vec<u8> = (0..device.blocks()).map(|block| shown(&device, block)).collect();
        assert!(found == model, "{} after a power cut", mechanism.name());
    }
}

#[test]
fn parts_of_logical_pages_are_what_was_written_last() {
    for mechanism in Mechanism::ALL {
        let runtime = Runtime::simulated(Simulation::default());
        let handle = runtime.handle();
        runtime.block_on(lives(&handle, mechanism)).unwrap();
    }
}

/// What a write of a part costs: pages read after each of four steps.
fn completing_reads(replacement: Replacement) -> [u64; 4] {
    let runtime = Runtime::simulated(Simulation::default());
    let mut profile = small::paged(Mechanism::None);
    profile.cache.replacement = replacement;
    profile.cache.destage_share = 0.5;
    let device = FlashDevice::new(&runtime.handle(), &profile, FlashOptions::default());
    let write = async |start, blocks: usize| {
        let bytes = vec![7; blocks * BLOCK_BYTES];
        command(&device, Command::Write(Write::new(&[Part::bytes(Lba(start), &bytes)]))).await;
    };
    let reads = async || {
        command(&device, Command::Flush).await;
        device.stats().completing_reads
    };
    let run = async {
        write(0, 2).await;
        let whole = reads().await;
        write(0, 1).await;
        let part = reads().await;
        write(0, 1).await;
        write(1, 1).await;
        let both_parts = reads().await;
        write(4, 1).await;
        [whole, part, both_parts, reads().await]
    };
    runtime.block_on(run).unwrap()
}

/// A write of a part reads the rest first, unless the rest is in the cache; one of a whole page does not.
#[test]
fn what_is_not_written_is_read_once() {
    assert_eq!(completing_reads(Replacement::Fifo), [0, 1, 1, 1]);
    // What is committed is still in the cache.
    assert_eq!(completing_reads(Replacement::Lru), [0; 4]);
}

/// Sees which die programs which block, in order.
#[derive(Default)]
struct Programs(RefCell<Vec<(u32, u64)>>);

impl Probe for Programs {
    fn busy(&self, what: Busy, subject: Subject, _: u64, _: u64) {
        if let (Busy::Program { die }, Some(block)) = (what, subject.block) {
            self.0.borrow_mut().push((die, block));
        }
    }

    fn queue_depth(&self, _: u64, _: u32) {}

    fn cached(&self, _: u64, _: u64) {}
}

/// What is programmed when these logical pages are written, in this order, and flushed.
fn programs(profile: &Profile, pages: &[u64]) -> Vec<(u32, u64)> {
    let runtime = Runtime::simulated(Simulation::default());
    let seen = Rc::new(Programs::default());
    let options = FlashOptions { probe: Some(Rc::clone(&seen) as Rc<dyn Probe>), ..FlashOptions::default() };
    let device = FlashDevice::new(&runtime.handle(), profile, options);
    let run = async {
        for page in pages {
            let bytes = vec![7; 2 * BLOCK_BYTES];
            command(&device, Command::Write(Write::new(&[Part::bytes(Lba(2 * page), &bytes)]))).await;
        }
        command(&device, Command::Flush).await;
    };
    runtime.block_on(run).unwrap();
    seen.0.take()
}

/// A device that writes back when a flush asks for it.
fn lazy(replacement: Replacement) -> Profile {
    let mut profile = small::paged(Mechanism::None);
    (profile.cache.destage_share, profile.cache.replacement) = (0.9, replacement);
    profile
}

#[test]
fn with_static_allocation_each_logical_page_has_its_die() {
    let pages: Vec<u64> = (0..16).map(|nth| nth * 7 % 16).collect();
    let on_its_die = |(die, block): &(u32, u64)| u64::from(*die) == block / 2 % 4;
    let mut profile = lazy(Replacement::Lru);
    let found = programs(&profile, &pages);
    assert!(found.len() == 16 && found.iter().all(on_its_die), "{found:?}");
    profile.ftl.layout.allocation = Allocation::Dynamic;
    assert!(!programs(&profile, &pages).iter().all(on_its_die));
}

#[test]
fn what_was_written_again_is_written_back_last() {
    // All on one die.
    let again = [0, 4, 8, 12, 0];
    let order = |replacement| -> Vec<u64> {
        programs(&lazy(replacement), &again).into_iter().map(|(_, block)| block / 2).collect()
    };
    assert_eq!(order(Replacement::Fifo), [0, 4, 8, 12]);
    assert_eq!(order(Replacement::Lru), [4, 8, 12, 0]);
}

/// What a flush waits for keeps its place, so that the flush ends, also if it is written again and nothing else comes.
#[test]
fn a_flush_ends_though_its_pages_are_written_again() {
    let runtime = Runtime::simulated(Simulation::default());
    let device = FlashDevice::new(&runtime.handle(), &lazy(Replacement::Lru), FlashOptions::default());
    let run = async {
        let bytes = vec![7; 2 * BLOCK_BYTES];
        let write = |page: u64| {
            device.submit(Command::Write(Write::new(&[Part::bytes(Lba(2 * page), &bytes)]))).unwrap()
        };
        for page in [0, 4, 8, 12, 16] {
            write(page).transferred().await.unwrap();
        }
        let flush = device.submit(Command::Flush).unwrap();
        for page in [20, 16, 12, 8] {
            write(page).transferred().await.unwrap();
        }
        flush.transferred().await.unwrap();
    };
    runtime.block_on(run).unwrap();
}

#[test]
fn a_full_buffer_of_changes_is_a_checkpoint() {
    let checkpoints = |log_buffer_bytes| {
        let runtime = Runtime::simulated(Simulation::default());
        let mut profile = small::paged(Mechanism::None);
        (profile.ftl.checkpoint_share, profile.ftl.layout.log_buffer_bytes) = (0.5, log_buffer_bytes);
        let device = FlashDevice::new(&runtime.handle(), &profile, FlashOptions::default());
        let run = async {
            let bytes = vec![7; 2 * BLOCK_BYTES];
            for page in 0..40 {
                let parts = [Part::bytes(Lba(2 * page), &bytes)];
                command(&device, Command::Write(Write::new(&parts))).await;
            }
            command(&device, Command::Flush).await;
            device.stats().checkpoints
        };
        runtime.block_on(run).unwrap()
    };
    // 40 changes of 8 bytes.
    assert_eq!((checkpoints(0), checkpoints(320)), (0, 1));
}

/// How long a write of four blocks in two logical pages takes until it is transferred, in nanoseconds.
fn transfer_ns(profile: &Profile) -> u64 {
    let runtime = Runtime::simulated(Simulation::default());
    let device = FlashDevice::new(&runtime.handle(), profile, FlashOptions::default());
    let bytes = [7; 4 * BLOCK_BYTES];
    let parts = [Part::bytes(Lba(4), &bytes)];
    runtime.block_on(command(&device, Command::Write(Write::new(&parts)))).unwrap();
    runtime.handle().now().as_nanos()
}

/// The controller copies each byte, and notes each logical page where it keeps requests in order, and there alone.
#[test]
fn copies_and_notes_of_requests_take_the_controllers_time() {
    let taken = |mechanism, copy_bytes_per_second, tag_ns| {
        let mut profile = small::paged(mechanism);
        (profile.cache.copy_bytes_per_second, profile.barrier.tag_ns) = (copy_bytes_per_second, tag_ns);
        assert_eq!(profile.check(), Ok(()));
        transfer_ns(&profile)
    };
    let (ordered, ordinary) = (Mechanism::OrderPreservingRecovery, Mechanism::None);
    let plain = taken(ordered, None, 0);
    assert_eq!(taken(ordinary, None, 0), plain);
    // 16 KiB at 64 MiB a second are 1/4096 s.
    assert_eq!(taken(ordered, Some(64 << 20), 0), plain + 1_000_000_000 / 4096);
    assert_eq!(taken(ordered, None, 5_000), plain + 10_000);
    assert_eq!(taken(ordinary, None, 5_000), plain);
}
