//! Volumes that grow and shrink: what they hold before and after, and what a power cut at any event of it leaves (V11).

#![allow(clippy::print_stdout, reason = "figures belong in the log of a test run")]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use weir_runtime::{Handle, Random, Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, Command, Extent, Image, Lba, Part, Rejected, Rules, Storage, flush,
    read, submit_when_free, write,
};
use weir_volume::{
    Format, NewSize, RepairOptions, ResizableVolume, ResizeError, Resized, Volume, VolumeError, VolumeMutant,
    VolumeOptions, check, grow, inspect, repair, shrink,
};

use crate::snapshots::{disk_options, open, page};

const SEGMENT_BLOCKS: u32 = 8;
/// Blocks that the disk has at least.
const LEAST: u64 = 400;
/// Blocks that hold something at most.
const USED: usize = 120;
/// States that are looked at for a power cut at one event, at most.
const SAMPLES: u32 = 4;
/// Runs.
const SEEDS: u64 = 16;

/// The stamps of the blocks; what is not there reads zeros.
type Content = BTreeMap<u64, u64>;

fn options(mutant: Option<VolumeMutant>) -> VolumeOptions {
    VolumeOptions { rules: Rules::but(mutant), ..VolumeOptions::default() }
}

/// The same content on a disk of another size.
fn with_blocks(image: &Image, blocks: u64) -> Image {
    let mut resized = Image::zeroed(blocks, 512);
    for block in (0..blocks.min(image.blocks())).map(Lba) {
        let bytes = image.read(block);
        if bytes.iter().any(|byte| *byte != 0) {
            resized.write(block, &bytes);
        }
    }
    resized
}

fn disk_of(handle: &Handle, image: &Image) -> Rc<AdversaryDisk> {
    AdversaryDisk::from_image(handle, disk_options(), image)
}

async fn content_of(volume: &Volume) -> Content {
    let mut found = Content::new();
    let mut from = Lba(0);
    while let Some(at) = volume.next_data(from) {
        let block = read(volume, Extent::new(at, 1)).await.unwrap();
        let stamp = u64::from_le_bytes(block[..8].try_into().unwrap());
        assert!(block[..] == page(stamp)[..], "{at} is torn");
        found.extend((stamp != 0).then_some((at.0, stamp)));
        from = at.offset(1);
    }
    found
}

/// A volume, what is to be in it, and what was done to it.
struct Run {
    handle: Handle,
    random: Random,
    disk: Rc<AdversaryDisk>,
    content: Content,
    mutant: Option<VolumeMutant>,
    next: u64,
    grown: u32,
    grown_open: u32,
    shrunk: u32,
    refused: BTreeSet<String>,
    states: u32,
}

impl Run {
    async fn new(handle: &Handle, mutant: Option<VolumeMutant>, slots: u32) -> Run {
        let mut random = handle.random("commands");
        let blocks = LEAST + random.below(600);
        let disk = AdversaryDisk::new(handle, AdversaryOptions { blocks, ..disk_options() });
        let thin = random.below(3) == 0;
        let logical_blocks = if thin { 1500 } else { 0 };
        let format = Format { logical_blocks, segment_blocks: SEGMENT_BLOCKS, overwrite: false, slots };
        Volume::create(handle, &*disk, format).await.unwrap();
        Run {
            handle: handle.clone(),
            random,
            disk,
            content: Content::new(),
            mutant,
            next: 1,
            grown: 0,
            grown_open: 0,
            shrunk: 0,
            refused: BTreeSet::new(),
            states: 0,
        }
    }

    /// Writes and discards, makes or deletes a snapshot, and closes the volume, or leaves it as a crash would.
    async fn use_volume(&mut self) {
        let volume = open(&self.handle, &self.disk, self.mutant).await;
        assert_eq!(content_of(&volume).await, self.content);
        for _ in 0..self.random.below(300) {
            let lba = self.random.below(volume.blocks());
            if self.random.below(4) == 0 || self.content.len() > USED {
                let extents = [Extent::new(Lba(lba), ((volume.blocks() - lba) / 2).max(1) as u32)];
                submit_when_free(&*volume, Command::Discard(&extents)).await.unwrap();
                self.content.retain(|block, _| !(lba..extents[0].end().0).contains(block));
            } else {
                write(&*volume, Part::bytes(Lba(lba), &page(self.next))).await.unwrap();
                self.content.insert(lba, self.next);
                self.next += 1;
            }
        }
        if inspect(&*self.disk).await.unwrap().slots > 0 {
            match volume.snapshots().first() {
                Some(branch) => volume.delete_snapshot(&branch.name).await.unwrap(),
                None if self.random.below(3) == 0 => {
                    volume.create_snapshot("snapshot").await.unwrap();
                }
                None => {}
            }
        }
        if self.random.below(3) == 0 {
            flush(&*volume).await.unwrap();
        } else {
            volume.close().await.unwrap();
        }
    }

    /// Empties what is behind `blocks`.
    async fn discard_behind(&mut self, blocks: u64) {
        let volume = open(&self.handle, &self.disk, None).await;
        if blocks < volume.blocks() {
            let extents = [Extent::new(Lba(blocks), (volume.blocks() - blocks) as u32)];
            submit_when_free(&*volume, Command::Discard(&extents)).await.unwrap();
            self.content.retain(|block, _| *block < blocks);
        }
        volume.close().await.unwrap();
    }

    /// Grows or shrinks the volume, with a power cut at each event of it, and goes on from one of these or from the end.
    async fn resize(&mut self) {
        let before = inspect(&*self.disk).await.unwrap();
        let grows = before.physical_blocks < LEAST || self.random.below(2) == 0;
        let step = if self.random.below(4) == 0 { self.random.below(24) } else { self.random.below(3000) };
        let physical_blocks = if grows {
            before.physical_blocks + step
        } else {
            LEAST.max(before.physical_blocks - step.min(before.physical_blocks))
        };
        let capacity = if grows {
            before.logical_blocks + self.random.below(3000)
        } else {
            1 + self.random.below(before.logical_blocks)
        };
        let logical_blocks = (self.random.below(2) == 0).then_some(capacity);
        if !grows && self.random.below(3) > 0 {
            self.discard_behind(capacity).await;
        }
        let blocks = physical_blocks.max(self.disk.blocks());
        self.disk = disk_of(&self.handle, &with_blocks(&self.disk.image(), blocks));
        let images = self.collect_crash_states();
        let size = NewSize { physical_blocks, logical_blocks };
        let disk = Rc::clone(&self.disk) as Rc<dyn Storage>;
        let is_open = grows && self.random.below(2) == 0;
        let outcome = match (grows, is_open) {
            (true, true) => self.grow_open(size).await,
            (true, false) => grow(&self.handle, disk, size, options(self.mutant)).await,
            (false, _) => shrink(&self.handle, disk, size, options(self.mutant)).await,
        };
        let sizes = self.note(&before.logical_blocks, before.physical_blocks, size, &outcome);
        let found = inspect(&*self.disk).await.unwrap();
        assert_eq!(Some(&(found.logical_blocks, found.physical_blocks)), sizes.last());
        let images: Vec<Image> = images.borrow_mut().drain(..).collect();
        let chosen = self.random.below(2 * images.len() as u64 + 1) as usize;
        for (i, image) in images.iter().enumerate() {
            let disk = self.judge(image, &sizes).await;
            if i == chosen {
                self.disk = disk;
            }
        }
        self.states += images.len() as u32;
        if self.random.below(2) == 0 {
            // As where a file is cut to its new size.
            let blocks = inspect(&*self.disk).await.unwrap().physical_blocks;
            self.disk = disk_of(&self.handle, &with_blocks(&self.disk.image(), blocks));
        }
    }

    /// Grows the volume while it is open, closes it, and sees that it has what it had.
    async fn grow_open(&mut self, size: NewSize) -> Result<Resized, ResizeError> {
        let disk = Rc::clone(&self.disk) as Rc<dyn Storage>;
        let volume = ResizableVolume::from(Volume::open(&self.handle, disk, options(self.mutant)).await?);
        let grown = volume.grow(size).await;
        self.grown_open += u32::from(grown.is_ok());
        assert_eq!(content_of(&volume.current()).await, self.content);
        volume.current().close().await?;
        grown
    }

    /// The sizes that the volume may have: the old one, and if it was resized the new one.
    fn note(
        &mut self,
        logical: &u64,
        physical: u64,
        size: NewSize,
        outcome: &Result<Resized, ResizeError>,
    ) -> Vec<(u64, u64)> {
        let mut sizes = vec![(*logical, physical)];
        match outcome {
            Ok(resized) => {
                sizes.push((resized.logical_blocks, resized.physical_blocks));
                let grows = resized.physical_blocks > physical || resized.logical_blocks > *logical;
                *(if grows { &mut self.grown } else { &mut self.shrunk }) += 1;
                assert!(size.logical_blocks.is_none_or(|asked| asked == resized.logical_blocks));
            }
            Err(error) => {
                let name = format!("{error:?}");
                assert!(
                    !matches!(error, ResizeError::Volume(VolumeError::Damaged { .. } | VolumeError::Disk(_))),
                    "{name}"
                );
                self.refused.insert(name.split([' ', '(']).next().unwrap().to_owned());
            }
        }
        sizes
    }

    /// From here on, some of what a power cut at each event may leave.
    fn collect_crash_states(&mut self) -> Rc<RefCell<Vec<Image>>> {
        let images = Rc::new(RefCell::new(Vec::new()));
        let seen = RefCell::new(BTreeSet::new());
        let random = RefCell::new(self.handle.random(&format!("left {}", self.next)));
        let collected = Rc::clone(&images);
        self.disk.observe(Box::new(move |disk| {
            for _ in 0..SAMPLES {
                let image = disk.crash_states().sample(&mut random.borrow_mut());
                if seen.borrow_mut().insert(image.hash()) {
                    collected.borrow_mut().push(image);
                }
            }
        }));
        images
    }

    /// Opens what a power cut has left, changes it, loses the first copy of its superblock, and opens it again.
    async fn judge(&mut self, image: &Image, sizes: &[(u64, u64)]) -> Rc<AdversaryDisk> {
        let disk = disk_of(&self.handle, image);
        let volume = open(&self.handle, &disk, self.mutant).await;
        let info = inspect(&*disk).await.unwrap();
        assert!(sizes.contains(&(info.logical_blocks, info.physical_blocks)), "{info:?}, of {sizes:?}");
        assert_eq!(content_of(&volume).await, self.content);
        let mut content = self.content.clone();
        for _ in 0..3 {
            let lba = self.random.below(volume.blocks());
            write(&*volume, Part::bytes(Lba(lba), &page(self.next))).await.unwrap();
            content.insert(lba, self.next);
            self.next += 1;
        }
        volume.close().await.unwrap();
        let report = check(&*disk).await.unwrap();
        assert_eq!((report.damaged_total, report.live_blocks >= content.len() as u64), (0, true));
        let mut damaged = disk.image();
        damaged.flip_bit(24, 0);
        damaged.flip_bit(33, 0);
        let volume = open(&self.handle, &disk_of(&self.handle, &damaged), self.mutant).await;
        assert_eq!(content_of(&volume).await, content, "with one copy of the superblock");
        disk_of(&self.handle, image)
    }
}

fn run(seed: u64, mutant: Option<VolumeMutant>) -> (u32, u32, u32, BTreeSet<String>, u32) {
    let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
    let handle = runtime.handle();
    runtime
        .block_on(async {
            let mut run = Run::new(&handle, mutant, if seed.is_multiple_of(2) { 2 } else { 0 }).await;
            for _ in 0..6 {
                run.use_volume().await;
                run.resize().await;
            }
            run.use_volume().await;
            (run.grown, run.grown_open, run.shrunk, run.refused, run.states)
        })
        .unwrap()
}

#[test]
fn a_resized_volume_has_its_old_size_or_the_new_one_and_all_its_content_after_a_power_cut_at_any_event() {
    let (mut grown, mut grown_open, mut shrunk, mut states) = (0, 0, 0, 0);
    let mut refused = BTreeSet::new();
    for seed in 0..SEEDS {
        let found = run(seed, None);
        grown += found.0;
        grown_open += found.1;
        shrunk += found.2;
        refused.extend(found.3);
        states += found.4;
    }
    println!("{grown} grown, {grown_open} of them open, {shrunk} shrunk, {refused:?}, {states} crash states");
    assert!(grown > 20 && grown_open > 10 && shrunk > 10 && states > 1000);
    for kind in ["InUse", "Snapshots", "TooLittle"] {
        assert!(refused.contains(kind), "{kind}");
    }
}

#[test]
fn each_mutant_of_a_resize_is_found() {
    for mutant in [VolumeMutant::ResizedTooEarly, VolumeMutant::SuperblocksDiffer] {
        let fails = |seed| std::panic::catch_unwind(|| run(seed, Some(mutant))).is_err();
        assert!((0..SEEDS).any(fails), "{mutant:?}");
    }
}

/// What an interrupted resize has left of the superblocks is a finding, and repair makes both copies say the same.
#[test]
fn repair_makes_the_superblocks_say_the_same() {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let script = async {
        let disk = AdversaryDisk::new(&handle, AdversaryOptions { blocks: 600, ..disk_options() });
        let format = Format { segment_blocks: SEGMENT_BLOCKS, ..Format::default() };
        Volume::create(&handle, &*disk, format).await.unwrap();
        let old = disk.image();
        let disk = disk_of(&handle, &with_blocks(&old, 1200));
        let size = NewSize { physical_blocks: 1200, logical_blocks: None };
        let below = Rc::clone(&disk) as Rc<dyn Storage>;
        let grown = grow(&handle, below, size, VolumeOptions::default()).await.unwrap();
        assert!(grown.logical_blocks > 800, "{grown:?}");
        let mut image = disk.image();
        image.write(Lba(0), &old.read(Lba(0)));
        let disk = disk_of(&handle, &image);
        let report = check(&*disk).await.unwrap();
        assert_eq!((report.superblock_copies, report.superblocks_differ), (1, true));
        // One that is damaged, the first or the second, is not what a resize leaves.
        for copy in [0, 1] {
            let mut damaged = image.clone();
            damaged.flip_bit(copy * 4096 + 24, 0);
            let report = check(&*disk_of(&handle, &damaged)).await.unwrap();
            assert_eq!((report.superblock_copies, report.superblocks_differ), (1, false), "{copy}");
        }
        let below = Rc::clone(&disk) as Rc<dyn Storage>;
        let report = repair(&handle, below, RepairOptions::default()).await.unwrap();
        assert_eq!(report.findings_total, 1, "{report:?}");
        assert_eq!(check(&*disk).await.unwrap().superblock_copies, 2);
        assert_eq!(inspect(&*disk).await.unwrap().physical_blocks, 600);
    };
    runtime.block_on(script).unwrap();
}

/// What is live at the end of the disk stays there, and the volume with it.
#[test]
fn a_volume_keeps_what_is_live_at_the_end_of_the_disk() {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let script = async {
        let disk = AdversaryDisk::new(&handle, AdversaryOptions { blocks: 600, ..disk_options() });
        let format = Format { segment_blocks: SEGMENT_BLOCKS, ..Format::default() };
        Volume::create(&handle, &*disk, format).await.unwrap();
        let volume = open(&handle, &disk, None).await;
        let last = volume.blocks() - 1;
        for lba in (1..last).chain([0]) {
            write(&*volume, Part::bytes(Lba(lba), &page(lba + 1))).await.unwrap();
        }
        submit_when_free(&*volume, Command::Discard(&[Extent::new(Lba(1), last as u32)])).await.unwrap();
        volume.close().await.unwrap();
        let shrink_to = async |physical_blocks, logical_blocks| {
            let size = NewSize { physical_blocks, logical_blocks };
            shrink(&handle, Rc::clone(&disk) as Rc<dyn Storage>, size, VolumeOptions::default()).await
        };
        let first = shrink_to(200, Some(100)).await.unwrap();
        assert!((400..600).contains(&first.physical_blocks), "{first:?}");
        assert_eq!(first.logical_blocks, 100);
        assert_eq!(shrink_to(200, Some(100)).await, Err(ResizeError::Unchanged));
        let volume = open(&handle, &disk, None).await;
        write(&*volume, Part::bytes(Lba(0), &page(7))).await.unwrap();
        volume.close().await.unwrap();
        assert_eq!(shrink_to(200, Some(100)).await.unwrap().physical_blocks, 200);
        let volume = open(&handle, &disk, None).await;
        assert_eq!(content_of(&volume).await, Content::from([(0, 7)]));
    };
    runtime.block_on(script).unwrap();
}

/// Live blocks that lie scattered leave no segment free where a smaller volume ends behind the last of them: it keeps more then.
#[test]
fn a_volume_of_scattered_blocks_takes_writes_when_it_was_shrunk() {
    let runtime = Runtime::simulated(Simulation { seed: 1, ..Simulation::default() });
    let handle = runtime.handle();
    runtime
        .block_on(async {
            let disk = AdversaryDisk::new(&handle, AdversaryOptions { blocks: 2000, ..disk_options() });
            let format = Format { segment_blocks: SEGMENT_BLOCKS, ..Format::default() };
            Volume::create(&handle, &*disk, format).await.unwrap();
            let volume = open(&handle, &disk, None).await;
            for lba in 0..700 {
                write(&*volume, Part::bytes(Lba(lba), &page(lba + 1))).await.unwrap();
            }
            flush(&*volume).await.unwrap();
            for first in (0..700).step_by(7) {
                let extents = [Extent::new(Lba(first + 1), 6)];
                submit_when_free(&*volume, Command::Discard(&extents)).await.unwrap();
            }
            flush(&*volume).await.unwrap();
            let content = content_of(&volume).await;
            volume.close().await.unwrap();
            let size = NewSize { physical_blocks: 200, logical_blocks: Some(700) };
            let shrunk =
                shrink(&handle, Rc::<AdversaryDisk>::clone(&disk), size, options(None)).await.unwrap();
            assert!(shrunk.physical_blocks < 2000, "{shrunk:?}");
            let volume = open(&handle, &disk, None).await;
            assert_eq!(content_of(&volume).await, content);
            for number in 0..2000 {
                write(&*volume, Part::bytes(Lba(number % 100 * 7), &page(number + 1))).await.unwrap();
            }
            flush(&*volume).await.unwrap();
            volume.close().await.unwrap();
        })
        .unwrap();
}

/// Writes blocks of its own one after the other, and reads each once it is there.
async fn write_and_read(handle: Handle, volume: Rc<ResizableVolume>, writer: u64) -> Result<(), Rejected> {
    for number in 1..=900 {
        handle.sleep(Duration::from_micros(2)).await;
        let lba = Lba(writer * 64 + number % 64);
        write(&*volume, Part::bytes(lba, &page(number))).await?;
        let found = read(&*volume, Extent::new(lba, 1)).await?;
        assert_eq!(found[..], page(number)[..], "writer {writer}");
    }
    Ok(())
}

/// Grows a volume in three steps; its capacity after each.
async fn grow_in_steps(handle: Handle, volume: Rc<ResizableVolume>) -> Result<Vec<u64>, ResizeError> {
    let mut grown = Vec::new();
    for physical_blocks in [900, 2500, 6000] {
        handle.sleep(Duration::from_micros(400)).await;
        let size = NewSize { physical_blocks, logical_blocks: None };
        grown.push(volume.grow(size).await?.logical_blocks);
    }
    Ok(grown)
}

/// Programs write and read while it grows: none gets an error, and each finds what it wrote; after a power cut at any time, what
/// each wrote is there as a prefix.
fn grow_under_programs(seeds: Range<u64>, mutant: Option<VolumeMutant>) -> u32 {
    let mut cut_while_growing = 0;
    for seed in seeds {
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        let handle = runtime.handle();
        runtime
            .block_on(async {
                let mut random = handle.random("cut");
                let format = Format { segment_blocks: SEGMENT_BLOCKS, ..Format::default() };
                let small = AdversaryDisk::new(&handle, AdversaryOptions { blocks: 700, ..disk_options() });
                Volume::create(&handle, &*small, format).await.unwrap();
                let timed = AdversaryOptions { latency_ns_max: 20_000, ..disk_options() };
                let disk = AdversaryDisk::from_image(&handle, timed, &with_blocks(&small.image(), 6000));
                let below = Rc::clone(&disk) as Rc<dyn Storage>;
                let volume = Volume::open(&handle, below, options(mutant)).await.unwrap();
                let volume = Rc::new(ResizableVolume::from(volume));
                let start = |writer| handle.spawn(write_and_read(handle.clone(), Rc::clone(&volume), writer));
                let writers: Vec<_> = (0..4).map(start).collect();
                let growing = handle.spawn(grow_in_steps(handle.clone(), Rc::clone(&volume)));
                if seed % 2 == 0 {
                    for writer in writers {
                        assert_eq!(writer.await, Ok(Ok(())));
                    }
                    let grown = growing.await.unwrap().unwrap();
                    assert!(grown.is_sorted() && volume.blocks() == grown[2] && grown[2] > 4000, "{grown:?}");
                    volume.current().close().await.unwrap();
                    assert_eq!(check(&*disk).await.unwrap().damaged_total, 0);
                    return;
                }
                handle.sleep(Duration::from_micros(random.below(3000))).await;
                disk.cut_power();
                let left = disk.crash_states().sample(&mut random);
                let recovered = open(&handle, &disk_of(&handle, &left), None).await;
                cut_while_growing += u32::from((600..4000).contains(&recovered.blocks()));
                for writer in 0..4 {
                    require_prefix(&recovered, writer).await;
                }
            })
            .unwrap();
    }
    cut_while_growing
}

#[test]
fn a_volume_grows_under_programs_that_write_and_read() {
    let cut_while_growing = grow_under_programs(0..40, None);
    assert!(cut_while_growing > 5, "{cut_while_growing}");
}

#[test]
fn a_volume_that_takes_commands_while_it_grows_is_found() {
    assert!(std::panic::catch_unwind(|| grow_under_programs(0..4, Some(VolumeMutant::GrownUnheld))).is_err());
}

/// A snapshot that meets a growth is made on the volume that it leaves; the one that was in hand is closed.
#[test]
fn what_meets_a_growth_is_done_again() {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let script = async {
        let format = Format { segment_blocks: SEGMENT_BLOCKS, slots: 4, ..Format::default() };
        let small = AdversaryDisk::new(&handle, AdversaryOptions { blocks: 700, ..disk_options() });
        Volume::create(&handle, &*small, format).await.unwrap();
        let timed = AdversaryOptions { latency_ns_max: 20_000, ..disk_options() };
        let disk = AdversaryDisk::from_image(&handle, timed, &with_blocks(&small.image(), 6000));
        let volume = Volume::open(&handle, disk, options(None)).await.unwrap();
        let volume = Rc::new(ResizableVolume::from(volume));
        let (before, growing) = (volume.current(), Rc::clone(&volume));
        let size = NewSize { physical_blocks: 6000, logical_blocks: None };
        let growing = handle.spawn(async move { growing.grow(size).await });
        handle.sleep(Duration::from_micros(1)).await;
        let made = volume.with_current(async |volume| volume.create_snapshot("a").await);
        let (made, closed) = futures_util::join!(made, before.create_snapshot("b"));
        assert_eq!(growing.await.unwrap().unwrap().physical_blocks, 6000);
        made.unwrap();
        assert!(closed.is_err(), "it has met the growth");
        assert!(volume.current().create_snapshot("a").await.is_err(), "it is there");
    };
    runtime.block_on(script).unwrap();
}

/// The blocks of a writer are those after one of its writes.
async fn require_prefix(volume: &Volume, writer: u64) {
    let mut found = Vec::new();
    for place in 0..64 {
        let block = read(volume, Extent::new(Lba(writer * 64 + place), 1)).await.unwrap();
        found.push(u64::from_le_bytes(block[..8].try_into().unwrap()));
    }
    let newest = found.iter().copied().max().unwrap_or(0);
    for (place, stamp) in (0..64).zip(found) {
        let expected = (newest.saturating_sub(63)..=newest).find(|number| number % 64 == place);
        assert_eq!(stamp, expected.unwrap_or(0), "writer {writer}, place {place}, the newest {newest}");
    }
}
