//! A volume that begins with the state of a base: what it reads, over cleaning, checkpoints and crashes (V12).

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use weir_runtime::{Event, Handle, Random};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Command, CommandKind, Extent, Lba, Part,
    Rejected, Rules, SharePair, Storage, StorageError, Ticket, flush, read, submit_when_free, write,
};
use weir_volume::{
    Base, Format, RepairOptions, Volume, VolumeError, VolumeMutant, VolumeOptions, check, inspect, repair,
};

use crate::simulation::simulate;

const BLOCKS: u64 = 120;
const BASE: Base = Base { sequence: 1000, generation: 7, epoch: 3, token: 99 };
const IDENTITY: u64 = 0x5EED;

/// What each block holds: the number of a write; nothing for zeros.
type Content = BTreeMap<u64, u64>;

fn page(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(BLOCK_BYTES / 8)
}

fn disk_options() -> AdversaryOptions {
    let capabilities = Capabilities::legacy(32, 64, 512);
    AdversaryOptions { blocks: 256, capabilities, latency_ns_max: 20_000, ..AdversaryOptions::default() }
}

/// The base: a volume, since that knows its holes. Its reads can be made to fail.
struct Below {
    volume: Volume,
    fails: std::cell::Cell<bool>,
}

impl Storage for Below {
    fn blocks(&self) -> u64 {
        self.volume.blocks()
    }

    fn capabilities(&self) -> &Capabilities {
        self.volume.capabilities()
    }

    fn submit(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        assert_eq!(command.kind(), CommandKind::Read, "a base is only read");
        match self.fails.get() {
            true => Ok(Ticket::failed(StorageError::Gone)),
            false => self.volume.submit(command),
        }
    }

    fn slots(&self) -> &Event {
        self.volume.slots()
    }

    fn next_data(&self, from: Lba) -> Option<Lba> {
        self.volume.next_data(from)
    }
}

struct World {
    handle: Handle,
    base: Rc<Below>,
    disk: Rc<AdversaryDisk>,
    volume: Rc<Volume>,
    mutant: Option<VolumeMutant>,
    random: Random,
    content: Content,
    /// The content after each request.
    history: BTreeMap<u64, Content>,
    writes: u64,
}

async fn open(
    handle: &Handle,
    disk: &Rc<AdversaryDisk>,
    base: &Rc<Below>,
    mutant: Option<VolumeMutant>,
) -> Rc<Volume> {
    let options =
        VolumeOptions { rules: Rules::but(mutant), checkpoint_segments: 4, ..VolumeOptions::default() };
    let base = Rc::<Below>::clone(base);
    Rc::new(Volume::open_on_base(handle, Rc::<AdversaryDisk>::clone(disk), base, options).await.unwrap())
}

impl World {
    async fn new(handle: &Handle, mutant: Option<VolumeMutant>) -> World {
        let format = Format { segment_blocks: 8, logical_blocks: BLOCKS, ..Format::default() };
        let below = AdversaryDisk::new(handle, disk_options());
        Volume::create(handle, &*below, format).await.unwrap();
        let volume = Volume::open(handle, below, VolumeOptions::default()).await.unwrap();
        let mut content = Content::new();
        for lba in (0..BLOCKS).filter(|lba| lba % 7 < 4) {
            write(&volume, Part::bytes(Lba(lba), &page(100_000 + lba))).await.unwrap();
            content.insert(lba, 100_000 + lba);
        }
        let base = Rc::new(Below { volume, fails: Default::default() });
        let disk = AdversaryDisk::new(handle, disk_options());
        Volume::create_on_base(handle, &*disk, format, IDENTITY, BASE).await.unwrap();
        let volume = open(handle, &disk, &base, mutant).await;
        let history = BTreeMap::from([(BASE.sequence, content.clone())]);
        let random = handle.random("workload");
        World { handle: handle.clone(), base, disk, volume, mutant, random, content, history, writes: 0 }
    }

    fn note(&mut self) {
        self.history.insert(self.volume.position().placed, self.content.clone());
    }

    async fn write(&mut self, lba: u64, blocks: u64) {
        self.writes += 1;
        let data = page(self.writes).repeat(blocks as usize);
        write(&*self.volume, Part::bytes(Lba(lba), &data)).await.unwrap();
        self.content.extend((lba..lba + blocks).map(|lba| (lba, self.writes)));
        self.note();
    }

    async fn discard(&mut self, lba: u64, blocks: u64) {
        let extent = [Extent::new(Lba(lba), blocks as u32)];
        submit_when_free(&*self.volume, Command::Discard(&extent)).await.unwrap();
        self.content.retain(|at, _| !(lba..lba + blocks).contains(at));
        self.note();
    }

    /// Lets the first of each pair read what the second does.
    async fn share(&mut self, pairs: &[(u64, u64)]) -> Result<(), Rejected> {
        let pair = |(to, from): &(u64, u64)| SharePair { from: Extent::new(Lba(*from), 1), to: Lba(*to) };
        let command: Vec<SharePair> = pairs.iter().map(pair).collect();
        submit_when_free(&*self.volume, Command::Share(&command)).await?;
        let found: Vec<Option<u64>> = pairs.iter().map(|(_, from)| self.content.get(from).copied()).collect();
        for ((to, _), found) in pairs.iter().zip(found) {
            self.content.remove(to);
            self.content.extend(found.map(|found| (*to, found)));
        }
        self.note();
        Ok(())
    }

    async fn play(&mut self, steps: u64) {
        for _ in 0..steps {
            let lba = self.random.below(BLOCKS - 12);
            match self.random.below(12) {
                0..5 => {
                    let blocks = self.random.below(4) + 1;
                    self.write(lba, blocks).await;
                }
                5..7 => {
                    let blocks = self.random.below(12) + 1;
                    self.discard(lba, blocks).await;
                }
                7..9 => {
                    let from = self.random.below(BLOCKS);
                    if from != lba {
                        self.share(&[(lba, from), (lba + 1, lba)]).await.unwrap();
                    }
                }
                9 => flush(&*self.volume).await.unwrap(),
                10 => self.volume.checkpoint().await.unwrap(),
                _ => self.handle.sleep(Duration::from_millis(self.random.below(200))).await,
            }
        }
    }

    /// The power is cut, and the volume opened again: it holds a prefix of what it was asked for.
    async fn crash(&mut self) {
        self.disk.cut_power();
        let left = self.disk.crash_states().sample(&mut self.random);
        self.disk = AdversaryDisk::from_image(&self.handle, disk_options(), &left);
        self.volume = open(&self.handle, &self.disk, &self.base, self.mutant).await;
        let newest = self.volume.position().placed;
        self.history.retain(|sequence, _| *sequence <= newest);
        self.content = self.history.last_key_value().unwrap().1.clone();
    }

    /// Whether it reads what it was asked for, by reads of any length.
    async fn is_as_expected(&mut self) -> bool {
        let mut lba = 0;
        while lba < BLOCKS {
            let blocks = (self.random.below(7) + 1).min(BLOCKS - lba);
            let found = read(&*self.volume, Extent::new(Lba(lba), blocks as u32)).await.unwrap();
            let mut blocks = (lba..).zip(found.chunks_exact(BLOCK_BYTES));
            if !blocks.all(|(lba, block)| block == page(self.content.get(&lba).copied().unwrap_or(0))) {
                return false;
            }
            lba += found.len() as u64 / BLOCK_BYTES as u64;
        }
        (0..BLOCKS).all(|lba| {
            let may_hold = self.volume.next_data(Lba(lba)) == Some(Lba(lba));
            may_hold || !self.content.contains_key(&lba)
        })
    }
}

/// A random life with crashes: blocks that were cleaned in it, or nothing if a read was wrong.
fn live(seed: u64, mutant: Option<VolumeMutant>) -> Option<u64> {
    simulate(seed, async |handle| {
        let mut world = World::new(&handle, mutant).await;
        let mut cleaned = 0;
        for _ in 0..4 {
            world.play(120).await;
            if !world.is_as_expected().await {
                return None;
            }
            cleaned += world.volume.stats().cleaned_blocks;
            world.crash().await;
            if !world.is_as_expected().await {
                return None;
            }
        }
        world.volume.close().await.unwrap();
        let report = check(&*world.disk).await.unwrap();
        assert_eq!(report.damaged_total, 0);
        world.volume = open(&handle, &world.disk, &world.base, mutant).await;
        world.is_as_expected().await.then_some(cleaned)
    })
}

#[test]
fn a_volume_on_a_base_reads_what_was_written_discarded_and_shared_over_crashes() {
    let lives = (0..40).map(|seed| live(seed, None).unwrap_or_else(|| panic!("seed {seed}")));
    assert!(lives.sum::<u64>() > 0, "nothing was cleaned");
}

/// V12: a discard brings back the base, or a share takes zeros for it.
#[test]
fn a_discard_that_uncovers_the_base_and_a_share_that_does_not_see_it_are_noticed() {
    for mutant in [VolumeMutant::DiscardUncoversBase, VolumeMutant::ShareUncopied] {
        assert!((0..10).any(|seed| live(seed, Some(mutant)).is_none()), "{mutant:?}");
    }
}

#[test]
fn a_volume_on_a_base_goes_on_with_its_identity_and_numbers_and_is_not_opened_without_it() {
    simulate(1, async |handle| {
        let mut world = World::new(&handle, None).await;
        assert_eq!(world.volume.identity(), IDENTITY);
        let position = world.volume.position();
        assert_eq!((position.placed, position.generation), (BASE.sequence, BASE.generation + 1));
        world.write(3, 1).await;
        assert_eq!(world.volume.position().placed, BASE.sequence + 1);
        world.volume.close().await.unwrap();
        assert_eq!(inspect(&*world.disk).await.unwrap().base, Some(BASE));
        let alone = async |mutant| {
            let options = VolumeOptions { rules: Rules::but(mutant), ..VolumeOptions::default() };
            Volume::open(&handle, Rc::<AdversaryDisk>::clone(&world.disk), options).await
        };
        assert_eq!(alone(None).await.err(), Some(VolumeError::BaseNeeded(BASE.sequence)));
        let repaired =
            repair(&handle, Rc::<AdversaryDisk>::clone(&world.disk), RepairOptions::default()).await;
        assert_eq!(repaired.err(), Some(VolumeError::BaseNeeded(BASE.sequence)));
        let control = alone(Some(VolumeMutant::BaseLeftOut)).await.unwrap();
        assert_eq!(read(&control, Extent::new(Lba(0), 1)).await.unwrap()[..], page(0)[..], "the control");
        drop(control);
        // One of another size, and a base for a volume that has none.
        let format = Format { segment_blocks: 8, logical_blocks: BLOCKS + 1, ..Format::default() };
        for is_on_base in [true, false] {
            let disk = AdversaryDisk::new(&handle, disk_options());
            match is_on_base {
                true => Volume::create_on_base(&handle, &*disk, format, 1, BASE).await.unwrap(),
                false => Volume::create(&handle, &*disk, format).await.unwrap(),
            }
            let base = Rc::<Below>::clone(&world.base);
            let opened = Volume::open_on_base(&handle, disk, base, VolumeOptions::default()).await;
            assert_eq!(opened.err(), Some(VolumeError::OtherBase));
        }
    });
}

/// A read of the base that fails is the error of a read, or of a share that needs the block; nothing else is touched.
#[test]
fn a_base_that_cannot_be_read_fails_what_needs_it_and_the_volume_goes_on() {
    simulate(2, async |handle| {
        let mut world = World::new(&handle, None).await;
        world.base.fails.set(true);
        let gone = Rejected::Failed(StorageError::Gone);
        assert_eq!(read(&*world.volume, Extent::new(Lba(0), 2)).await.err(), Some(gone));
        assert_eq!(world.share(&[(5, 1)]).await, Err(gone));
        world.write(1, 1).await;
        world.share(&[(5, 1)]).await.unwrap();
        world.discard(0, 1).await;
        assert_eq!(read(&*world.volume, Extent::new(Lba(0), 2)).await.unwrap()[..BLOCK_BYTES], page(0)[..]);
        world.base.fails.set(false);
        world.share(&[(6, 2)]).await.unwrap();
        assert!(world.is_as_expected().await);
    });
}

/// V6: a discard of what neither the volume nor the base has takes no page of the map, and no record.
#[test]
fn a_discard_of_what_nothing_has_is_no_record() {
    simulate(3, async |handle| {
        let mut world = World::new(&handle, None).await;
        let before = world.volume.position().placed;
        world.discard(4, 3).await;
        world.discard(18, 3).await;
        assert_eq!(world.volume.position().placed, before);
        world.discard(0, BLOCKS).await;
        world.discard(0, BLOCKS).await;
        assert_eq!(world.volume.position().placed, before + 1);
        assert!(world.is_as_expected().await);
    });
}

/// A process that is ended while it makes a volume leaves what the same volume is made over; data that is not of that is not touched.
#[test]
fn a_volume_that_was_not_made_to_the_end_is_made_anew_and_nothing_else_is_overwritten() {
    let format = Format { segment_blocks: 8, logical_blocks: BLOCKS, ..Format::default() };
    simulate(4, async |handle| {
        let disk = AdversaryDisk::new(&handle, disk_options());
        let (left, random) = (Rc::new(RefCell::new(Vec::new())), RefCell::new(handle.random("cuts")));
        let (observed, images) = (Rc::downgrade(&disk), Rc::clone(&left));
        disk.observe(Box::new(move |_| {
            let states = observed.upgrade().unwrap().crash_states();
            images.borrow_mut().extend((0..40).map(|_| states.sample(&mut random.borrow_mut())));
        }));
        Volume::create_on_base(&handle, &*disk, format, IDENTITY, BASE).await.unwrap();
        let (mut begun, mut whole) = (0, 0);
        for image in left.take() {
            let disk = AdversaryDisk::from_image(&handle, disk_options(), &image);
            let bytes = read(&*disk, Extent::new(Lba(0), 64)).await.unwrap();
            let first = bytes.iter().position(|byte| *byte != 0);
            let first = first.map(|byte| Lba((byte / BLOCK_BYTES) as u64));
            let later = Base { sequence: 2000, generation: 9, epoch: 4, token: 98 };
            match (inspect(&*disk).await, first) {
                (Ok(info), _) => {
                    assert_eq!(info.base, Some(BASE));
                    let again = Volume::require_unused(&*disk, format, IDENTITY).await;
                    assert_eq!(again, Err(VolumeError::VolumeExists));
                    whole += 1;
                }
                // A superblock of which a part is there, and no other.
                (Err(VolumeError::Damaged { .. }), _) => {}
                (Err(error), None) => assert_eq!(error, VolumeError::Foreign),
                (Err(error), Some(first)) => {
                    assert_eq!(error, VolumeError::Foreign);
                    let other = Volume::require_unused(&*disk, format, IDENTITY + 1).await;
                    assert_eq!(other, Err(VolumeError::NotEmpty(first)), "of another volume");
                    // One byte that is not of the volume.
                    let disturbed = AdversaryDisk::from_image(&handle, disk_options(), &image);
                    let mut block = read(&*disturbed, Extent::new(first, 1)).await.unwrap().to_vec();
                    block[BLOCK_BYTES - 1] ^= 1;
                    write(&*disturbed, Part::bytes(first, &block)).await.unwrap();
                    let created = Volume::create_on_base(&handle, &*disturbed, format, IDENTITY, later).await;
                    assert_eq!(created, Err(VolumeError::NotEmpty(first)));
                    begun += 1;
                    Volume::create_on_base(&handle, &*disk, format, IDENTITY, later).await.unwrap();
                    assert_eq!(inspect(&*disk).await.unwrap().base, Some(later));
                    assert_eq!(check(&*disk).await.unwrap().superblock_copies, 2);
                }
            }
        }
        assert!(begun > 20 && whole > 20, "{begun} begun, {whole} whole");
    });
}
