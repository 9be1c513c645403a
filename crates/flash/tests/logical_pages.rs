//! Logical pages of several blocks: every block reads what was written to it last, whatever parts of pages are written,
//! discarded and flushed, and before and after a power cut behind a flush.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod small;

use weir_flash::{FlashDevice, FlashOptions, Mechanism, Replacement};
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
