//! What a checkpoint on a volume writes to the disk below: by remap, next to nothing.

#![allow(clippy::print_stdout, reason = "figures belong in the log of a test run")]

use std::rc::Rc;

use weir_block::{BlockLayer, BlockOptions, Dispatch};
use weir_ext4::Checksums;
use weir_ext4::journal::{JournalSuperblock, Sequence};
use weir_format::BLOCK_BYTES;
use weir_journal::{
    Buffers, CheckpointBy, Conflicts, Disk, Engine, Journal, JournalExtent, JournalOptions, Reuse, Role,
    Until,
};
use weir_runtime::{Handle as Clock, Runtime, Simulation};
use weir_storage::{AdversaryDisk, AdversaryOptions, Capabilities, Extent, Rules, Storage};
use weir_volume::{Format, Volume, VolumeOptions};

/// Where the journal lies.
const AREA: JournalExtent = JournalExtent { first: 0, start: 20_000, blocks: 12_000 };
/// Blocks that are committed, all of the log's share before a checkpoint comes by itself, and in one transaction.
const BLOCKS: u64 = 5_000;
const AT_ONCE: u64 = 500;

struct Ignored;

impl Reuse for Ignored {
    fn may_be_reused(&self, _: &[Extent], _: Sequence) {}

    fn are_durable(&self, _: Sequence) {}

    fn awaiting_durability(&self) -> u64 {
        0
    }
}

/// Bytes that the volume writes to its disk from when all is committed and durable until all is home and the journal
/// called empty. The homes lie `apart` blocks from each other.
async fn checkpoint_bytes(clock: &Clock, checkpoint: CheckpointBy, apart: u64) -> u64 {
    let capabilities = Capabilities::legacy(32, 512, 512);
    let below = AdversaryOptions { blocks: 100_000, capabilities, ..AdversaryOptions::default() };
    let below = AdversaryDisk::new(clock, below);
    Volume::create(clock, &*below, Format::default()).await.expect("created");
    let volume = Volume::open(clock, below, VolumeOptions::default()).await.expect("opened");
    let volume = Rc::new(volume);
    let capabilities = *volume.capabilities();
    let layer = BlockOptions { dispatch: Dispatch::OrderPreserving, ..BlockOptions::default() };
    let layer = BlockLayer::new(clock, Rc::<Volume>::clone(&volume), layer).expect("it fits");
    let disk = Disk::new(clock, layer, capabilities, Rules::all());
    let buffers = Buffers::new(Rc::clone(&disk), Checksums::none(), 64);
    let superblock = JournalSuperblock::new([7; 16], AREA.blocks, true).expect("large enough");
    let engine = Engine::Dual { conflicts: Conflicts::Copy };
    let options = JournalOptions { checkpoint, ..JournalOptions::new(engine) };
    let (disk, reuse) = (Rc::clone(&disk), Rc::new(Ignored));
    let journal = Journal::new(disk, Rc::clone(&buffers), reuse, options, superblock, vec![AREA]);
    journal.open().await.expect("open");
    let homes: Vec<u64> = (0..BLOCKS).map(|nth| 10 + nth * apart).collect();
    for homes in homes.chunks(AT_ONCE as usize) {
        let handle = journal.start(AT_ONCE as u32).await.expect("room");
        for home in homes {
            let fill = |bytes: &mut [u8]| bytes.fill(*home as u8);
            handle.modify(&buffers.fresh(*home, Role::Data), 0..BLOCK_BYTES, fill);
        }
        let sequence = handle.sequence();
        drop(handle);
        journal.commit(sequence, Until::Durable).await.expect("durable");
    }
    assert_eq!(journal.stats().checkpoints, 0, "one came by itself");
    let before = volume.stats().disk_blocks();
    journal.close().await.expect("closed");
    let bytes = (volume.stats().disk_blocks() - before) * BLOCK_BYTES as u64;
    for home in homes {
        let found = buffers.cached(home).map(|buffer| buffer.is_pinned());
        assert_ne!(found, Some(true), "block {home} is not home");
    }
    bytes
}

/// Of what a copying checkpoint writes, one by remap writes at most 2 %, also if no two homes lie side by side.
#[test]
fn a_checkpoint_by_remap_writes_next_to_nothing_on_a_volume() {
    for apart in [1, 3] {
        let runtime = Runtime::simulated(Simulation::default());
        let clock = runtime.handle();
        let work = async {
            let copied = checkpoint_bytes(&clock, CheckpointBy::Copy, apart).await;
            (copied, checkpoint_bytes(&clock, CheckpointBy::Remap, apart).await)
        };
        let (copied, remapped) = runtime.block_on(work).expect("no stall");
        println!("homes {apart} apart: {copied} bytes by copies, {remapped} by remap");
        assert!(copied >= BLOCKS * BLOCK_BYTES as u64, "{copied}");
        assert!(remapped > 0 && remapped * 50 <= copied, "{remapped} of {copied}");
    }
}
