//! A volume is full when too much is live, and never otherwise.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use weir_runtime::{Handle, Random, Runtime, Simulation};
use weir_storage::{AdversaryDisk, AdversaryOptions, Capabilities, Rejected, Storage, flush};
use weir_volume::{
    CleaningPolicy, Completion, Format, LossWindow, Volume, VolumeError, VolumeOptions, check,
};

use crate::bench::{FORMAT, get, open, put, simulate, submit_page};

/// A volume of many small segments, written to, rested, and closed, can be opened again.
fn survives_a_long_free_list(segments: u64) {
    simulate(1, async |handle| {
        let blocks = segments * 8 + 4096;
        let disk = AdversaryDisk::new(&handle, AdversaryOptions { blocks, ..AdversaryOptions::default() });
        let format = Format { overwrite: true, ..FORMAT };
        Volume::create(&handle, &*disk, format).await.expect("a volume fits");
        let volume = open(&handle, &disk, &VolumeOptions::default()).await.expect("the volume is whole");
        assert!(u64::from(volume.stats().segments) >= segments);
        for i in 0..3_000 {
            put(&volume, i % 1_000, 1 + i).await.expect("there is room");
        }
        flush(&volume).await.expect("nothing fails");
        handle.sleep(Duration::from_millis(1_500)).await;
        volume.close().await.expect("nothing fails");
        drop(volume);
        check(&*disk).await.expect("the volume is whole");
        let volume = open(&handle, &disk, &VolumeOptions::default()).await.expect("the volume is whole");
        assert_eq!(get(&volume, 999).await, Ok(Some(3_000)));
    });
}

#[test]
fn a_free_list_is_never_longer_than_a_checkpoint_can_name() {
    survives_a_long_free_list(51_000);
}

/// A volume in a volume.
#[test]
fn segments_fit_the_commands_of_the_disk_below() {
    simulate(1, async |handle| {
        let disk =
            AdversaryDisk::new(&handle, AdversaryOptions { blocks: 8192, ..AdversaryOptions::default() });
        Volume::create(&handle, &*disk, Format::default()).await.expect("a volume fits");
        let outer = open(&handle, &disk, &VolumeOptions::default()).await.expect("the volume is whole");
        let outer: Rc<dyn Storage> = Rc::new(outer);
        let refused = Volume::create(&handle, &*outer, Format::default()).await;
        assert!(matches!(refused, Err(VolumeError::Transfer { .. })), "{refused:?}");
        Volume::create(&handle, &*outer, Format { segment_blocks: 64, ..FORMAT }).await.expect("it fits");
        let inner = Volume::open(&handle, outer, VolumeOptions::default()).await.expect("it is whole");
        for block in 0..300 {
            put(&inner, block, 1 + block).await.expect("there is room");
        }
        flush(&inner).await.expect("nothing fails");
        assert_eq!(get(&inner, 299).await, Ok(Some(300)));
    });
}

fn pick(random: &mut Random, choices: &[u64]) -> u64 {
    choices[random.below(choices.len() as u64) as usize]
}

/// Readers, writers and a user who takes checkpoints, all on one volume.
struct Crowd {
    seed: u64,
    handle: Handle,
    volume: Volume,
    /// The stamp that was taken last for each block; stamps only grow.
    versions: RefCell<Vec<u64>>,
    last: Cell<u64>,
}

const TURNS: u64 = 150;

impl Crowd {
    async fn gather(seed: u64, handle: Handle) -> Crowd {
        let random = &mut handle.random("options");
        let segment_blocks = pick(random, &[8, 16, 32]);
        let segments = 9 + random.below(20);
        let queue_depth = pick(random, &[1, 2, 8, 32]) as u32;
        let disk = AdversaryDisk::new(
            &handle,
            AdversaryOptions {
                blocks: 16 + segments * segment_blocks,
                latency_ns_max: pick(random, &[100, 5_000, 500_000]),
                capabilities: Capabilities {
                    fua: random.below(2) == 0,
                    ..Capabilities::legacy(queue_depth, 64, 512)
                },
                ..AdversaryOptions::default()
            },
        );
        let format = Format { segment_blocks: segment_blocks as u32, ..FORMAT };
        Volume::create(&handle, &*disk, format).await.expect("a volume fits");
        let options = VolumeOptions {
            buffers: 2 + random.below(6) as usize,
            completion: if random.below(2) == 0 { Completion::Disk } else { Completion::Placed },
            checkpoint_segments: pick(random, &[2, 3, 8, 1000]) as usize,
            loss_window: LossWindow {
                time: Duration::from_nanos(pick(random, &[1_000, 100_000, 100_000_000])),
                bytes: 4 * segment_blocks * 4096,
            },
            cleaning: if random.below(2) == 0 { CleaningPolicy::Greedy } else { CleaningPolicy::CostBenefit },
            ..VolumeOptions::default()
        };
        let volume = open(&handle, &disk, &options).await.expect("the volume is whole");
        let blocks = (volume.blocks() * pick(random, &[30, 70, 95, 100]) / 100).max(8);
        let versions = RefCell::new(vec![0; blocks as usize]);
        Crowd { seed, handle, volume, versions, last: Cell::new(0) }
    }

    fn version(&self, block: u64) -> u64 {
        self.versions.borrow()[block as usize]
    }

    async fn read(&self, block: u64) {
        let before = self.version(block);
        let found = get(&self.volume, block).await.expect("nothing fails").expect("a page of this block");
        let current = before..=self.version(block);
        assert!(current.contains(&found), "seed {} block {block}: {found} is none of {current:?}", self.seed);
    }

    async fn write(&self, block: u64, wait: bool) {
        let ticket = loop {
            let stamp = self.last.get() + 1;
            match submit_page(&self.volume, block, stamp) {
                Ok(ticket) => {
                    self.last.set(stamp);
                    self.versions.borrow_mut()[block as usize] = stamp;
                    break ticket;
                }
                Err(Rejected::Busy) => self.volume.slots().listen().await,
                Err(error) => panic!("seed {}: {error}; {:?}", self.seed, self.volume.stats()),
            }
        };
        if wait {
            ticket.transferred().await.expect("nothing fails");
        }
    }

    async fn member(self: Rc<Crowd>, number: u64) {
        let mut random = self.handle.random("member");
        let blocks = self.versions.borrow().len() as u64;
        for _ in 0..TURNS {
            let block = random.below(blocks);
            match (number, random.below(10)) {
                (0..=1, _) => self.read(block).await,
                (_, 0) => flush(&self.volume).await.expect("nothing fails"),
                (5, 1) => self.volume.checkpoint().await.expect("nothing fails"),
                _ => self.write(block, random.below(2) == 0).await,
            }
            if random.below(4) == 0 {
                self.handle.sleep(Duration::from_nanos(random.below(20_000))).await;
            }
        }
    }
}

#[test]
fn whoever_takes_checkpoints_fills_no_volume_and_reads_race_writes_unharmed() {
    for seed in 0..150 {
        let runtime = Runtime::simulated(Simulation { seed, explore: true, ..Simulation::default() });
        let handle = runtime.handle();
        let outcome = runtime.block_on(async {
            let crowd = Rc::new(Crowd::gather(seed, handle.clone()).await);
            let members: Vec<_> =
                (0..6).map(|number| handle.spawn(Rc::clone(&crowd).member(number))).collect();
            for member in members {
                member.await.expect("no task is cancelled");
            }
            flush(&crowd.volume).await.expect("nothing fails");
            let blocks = crowd.versions.borrow().len() as u64;
            for block in 0..blocks {
                crowd.read(block).await;
            }
        });
        outcome.unwrap_or_else(|stalled| panic!("seed {seed}: {stalled}"));
    }
}
