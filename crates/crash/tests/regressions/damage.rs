//! Damage that is noticed: a newest checkpoint that is gone, counters at their end, one unreadable block.

use std::cell::Cell;
use std::rc::Rc;

use weir_runtime::Handle;
use weir_storage::{
    AdversaryDisk, BLOCK_BYTES, Command, Faults, Image, Interposed, Lba, Rejected, Storage, StorageError,
    Ticket, flush,
};
use weir_volume::{Damage, Volume, VolumeError, VolumeOptions, check};

use crate::bench::{disk_with, find_page, get, made, made_on, open, put, simulate};

/// Blocks of the two checkpoints.
const CHECKPOINTS: [u64; 2] = [2, 3];

/// A volume closed once, opened again, and then written to with a flush behind each of 30 requests: blocks 0
/// to 9 hold 120 to 129.
async fn reopened_and_written(handle: &Handle) -> Image {
    let disk = made(handle).await;
    let volume = open(handle, &disk, &VolumeOptions::default()).await.expect("the volume is whole");
    put(&volume, 1, 7).await.expect("there is room");
    volume.close().await.expect("nothing fails");
    drop(volume);
    let volume = open(handle, &disk, &VolumeOptions::default()).await.expect("the volume is whole");
    for i in 0..30 {
        put(&volume, i % 10, 100 + i).await.expect("there is room");
        flush(&volume).await.expect("nothing fails");
    }
    disk.image()
}

fn flipped(image: &Image, block: u64, bit: u64) -> Image {
    let mut image = image.clone();
    image.flip_bit(block * BLOCK_BYTES as u64 + bit / 8, (bit % 8) as u32);
    image
}

#[test]
fn a_damaged_newest_checkpoint_is_an_error_and_a_damaged_older_one_no_loss() {
    simulate(1, async |handle| {
        let image = reopened_and_written(&handle).await;
        let bits = [100, 200, 300, 64 * 8 + 5];
        let (mut whole, mut noticed) = (0, 0);
        for (block, bit) in CHECKPOINTS.into_iter().flat_map(|block| bits.map(|bit| (block, bit))) {
            let disk = disk_with(&handle, &flipped(&image, block, bit), Faults::default());
            match open(&handle, &disk, &VolumeOptions::default()).await {
                Ok(volume) => {
                    for i in 0..10 {
                        assert_eq!(get(&volume, i).await, Ok(Some(120 + i)), "block {block} bit {bit}");
                    }
                    whole += 1;
                }
                Err(error) => {
                    let what = Damage::NewestCheckpoint;
                    assert_eq!(error, VolumeError::Damaged { what, at: Lba(block) });
                    noticed += 1;
                }
            }
        }
        assert_eq!((whole, noticed), (4, 4));
    });
}

/// CRC-32C, bit by bit: the test forges what the volume believes.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |sum: u32| if sum & 1 == 1 { (sum >> 1) ^ 0x82f6_3b78 } else { sum >> 1 };
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| step(sum)))
}

/// Where a checkpoint holds its number and its checksum.
const NUMBER: usize = 16;
const CHECKSUM: usize = 60;

fn forge(image: &Image, field: usize, value: u64) -> Image {
    let number = |block: u64| {
        let bytes = &image.read(Lba(block))[NUMBER..NUMBER + 8];
        u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    };
    let newest = CHECKPOINTS.into_iter().max_by_key(|block| number(*block)).expect("two of them");
    let mut bytes = image.read(Lba(newest)).to_vec();
    bytes[field..field + 8].copy_from_slice(&value.to_le_bytes());
    bytes[CHECKSUM..CHECKSUM + 4].fill(0);
    let sum = crc32c(&bytes);
    bytes[CHECKSUM..CHECKSUM + 4].copy_from_slice(&sum.to_le_bytes());
    let mut image = image.clone();
    image.write(Lba(newest), &bytes);
    image
}

#[test]
fn counters_at_their_end_are_damage() {
    simulate(1, async |handle| {
        let image = reopened_and_written(&handle).await;
        let (number, generation, sequence) = (NUMBER, 24, 32);
        for (field, value) in
            [(number, u64::MAX), (generation, u64::MAX), (sequence, u64::MAX), (sequence, 0)]
        {
            let disk = disk_with(&handle, &forge(&image, field, value), Faults::default());
            let outcomes = [
                check(&*disk).await.map(drop),
                open(&handle, &disk, &VolumeOptions::default()).await.map(drop),
            ];
            for outcome in outcomes {
                let named =
                    matches!(outcome, Err(VolumeError::Damaged { what: Damage::CheckpointField(_), .. }));
                assert!(named, "{value:x} at {field}: {outcome:?}");
            }
        }
    });
}

/// A disk with one block that cannot be read.
struct BadBlock {
    disk: Rc<AdversaryDisk>,
    bad: Cell<Option<Lba>>,
    hits: Cell<u64>,
}

impl Interposed for BadBlock {
    fn below(&self) -> &dyn Storage {
        &*self.disk
    }

    fn take(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        let hit = |bad: &Lba| matches!(command, Command::Read { extent, .. } if extent.iter().any(|lba| lba == *bad));
        let Some(at) = self.bad.get().filter(hit) else { return self.disk.submit(command) };
        self.hits.set(self.hits.get() + 1);
        let (command, cause) = (command.kind(), std::io::ErrorKind::Other);
        Ok(Ticket::failed(StorageError::Device { command, at, cause }))
    }
}

#[test]
fn one_unreadable_block_costs_its_segment_and_no_more() {
    simulate(1, async |handle| {
        let disk = made_on(&handle, 8 + 64 * 8).await;
        let bad = Rc::new(BadBlock { disk: Rc::clone(&disk), bad: Cell::new(None), hits: Cell::new(0) });
        let storage = Rc::clone(&bad) as Rc<dyn Storage>;
        let volume = Volume::open(&handle, storage, VolumeOptions::default()).await;
        let volume = volume.expect("the volume is whole");
        let blocks = volume.blocks() * 7 / 10;
        for block in 0..blocks {
            put(&volume, block, 1 + block).await.expect("there is room");
        }
        flush(&volume).await.expect("nothing fails");
        // Block 0 is never written again, so its place stays live.
        bad.bad.set(Some(find_page(&disk.image(), 0, 1)));
        let mut random = handle.random("blocks");
        for stamp in 10_000..20_000 {
            let outcome = put(&volume, 1 + random.below(blocks - 1), stamp).await;
            assert_eq!(outcome, Ok(()), "write {stamp}: {:?}", volume.stats());
        }
        flush(&volume).await.expect("nothing else fails");
        assert!(bad.hits.get() > 0 && volume.stats().segments_cleaned > 0);
        assert!(get(&volume, 0).await.is_err(), "it cannot be read");
    });
}
