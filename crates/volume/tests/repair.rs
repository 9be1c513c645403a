//! Repair (V9): damage at random places of a volume at rest, at one place or at two. What the damage did not hit is read,
//! what it hit is listed and reads as an error, and nothing wrong is read. A repaired volume opens, and is clean.
//!
//! The judge knows the format by docs/format/volume.md: it finds by itself which logical blocks are at a place.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weir_runtime::{Handle, Random, Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Command, Extent, Image, Lba, Part, Rules, SharePair,
    Storage, flush, read, submit_when_free, write,
};
use weir_volume::{
    Damage, Finding, Format, RepairOptions, RepairReport, Volume, VolumeError, VolumeMutant, VolumeOptions,
    repair,
};

const BLOCKS: u64 = 1500;
const LOGICAL: u64 = 2600;
/// A block that the campaigns leave to what ends a log.
const LAST: u64 = LOGICAL - 1;

type Content = BTreeMap<u64, u64>;

/// A volume that was used.
struct Used {
    image: Image,
    content: Content,
    /// Blocks that read what they do by a share. What shares with a lost block is lost, too.
    shared: BTreeSet<u64>,
}

fn page(value: u64) -> Vec<u8> {
    value.to_le_bytes().repeat(BLOCK_BYTES / 8)
}

fn disk(handle: &Handle, image: Option<&Image>) -> Rc<AdversaryDisk> {
    let options = AdversaryOptions { blocks: BLOCKS, ..AdversaryOptions::default() };
    match image {
        Some(image) => AdversaryDisk::from_image(handle, options, image),
        None => AdversaryDisk::new(handle, options),
    }
}

/// Writes, overwrites, discards and shares, with checkpoints and openings between, on few blocks, so that segments are
/// cleaned and used again.
async fn use_volume(handle: &Handle, rules: Rules<VolumeMutant>, is_closed: bool) -> Used {
    let disk = disk(handle, None);
    let format = Format { segment_blocks: 16, logical_blocks: LOGICAL, ..Format::default() };
    Volume::create(handle, &*disk, format).await.expect("created");
    let options = VolumeOptions { checkpoint_segments: 12, rules, ..VolumeOptions::default() };
    let mut random = handle.random("what is written");
    let (mut content, mut shared) = (Content::new(), BTreeSet::new());
    let mut open =
        Volume::open(handle, Rc::clone(&disk) as Rc<dyn Storage>, options.clone()).await.expect("open");
    for value in 1..4000_u64 {
        let lba = if random.below(3) == 0 { random.below(LAST) } else { random.below(300) };
        match random.below(40) {
            0 => {
                let extents = [Extent::new(Lba(lba), 3.min((LAST - lba) as u32))];
                submit_when_free(&open, Command::Discard(&extents)).await.expect("discarded");
                for Lba(lba) in extents[0].iter() {
                    content.remove(&lba);
                    shared.remove(&lba);
                }
            }
            1 => {
                let from = random.below(300);
                if from != lba {
                    let pair = SharePair { from: Extent::new(Lba(from), 1), to: Lba(lba) };
                    submit_when_free(&open, Command::Share(&[pair])).await.expect("shared");
                    shared.insert(lba);
                    match content.get(&from).copied() {
                        Some(value) => _ = content.insert(lba, value),
                        None => _ = content.remove(&lba),
                    }
                }
            }
            // A volume holds fewer blocks than it shows.
            _ if content.len() >= 500 && !content.contains_key(&lba) => {}
            _ => {
                write(&open, Part::bytes(Lba(lba), &page(value))).await.expect("written");
                content.insert(lba, value);
                shared.remove(&lba);
            }
        }
        if random.below(60) == 0 {
            flush(&open).await.expect("flushed");
        }
        if random.below(900) == 0 {
            open.close().await.expect("closed");
            open = Volume::open(handle, Rc::clone(&disk) as Rc<dyn Storage>, options.clone())
                .await
                .expect("open");
        }
    }
    flush(&open).await.expect("flushed");
    if is_closed {
        open.close().await.expect("closed");
        return Used { image: disk.image(), content, shared };
    }
    // What comes behind the rest of the log says that this was durable.
    write(&open, Part::bytes(Lba(LAST), &page(1))).await.expect("written");
    flush(&open).await.expect("flushed");
    Used { image: disk.image(), content, shared }
}

fn number(bytes: &[u8], at: usize, width: usize) -> u64 {
    bytes[at..at + width].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Where a volume's structures are, and which logical blocks its map has at each block.
struct Layout {
    map: std::ops::Range<u64>,
    segments: u64,
    /// Generation of the newest checkpoint.
    generation: u64,
    /// The first record behind that checkpoint.
    next_sequence: u64,
    named: BTreeMap<u64, BTreeSet<u64>>,
    headers: Vec<u64>,
    /// Those of the newest generation.
    newest: Vec<u64>,
}

impl Layout {
    fn of(image: &Image) -> Layout {
        let superblock = image.read(Lba(0));
        let field = |at, width| number(&superblock, at, width);
        let (slot_blocks, map_pages, map_start, segments) =
            (field(56, 4), field(60, 4), field(64, 8), field(72, 8));
        let slots = [2, 2 + slot_blocks].map(|at| image.read(Lba(at)));
        let newest = slots.iter().max_by_key(|slot| number(slot, 16, 8)).expect("two");
        let states = 64 + 4 * number(newest, 52, 4) as usize;
        let mut named: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for map_page in 0..map_pages {
            let area = newest[states + map_page as usize / 4] >> (map_page % 4 * 2) & 3;
            if area == 0 {
                continue;
            }
            let at = map_start + u64::from(area - 1) * map_pages + map_page;
            let bytes = image.read(Lba(at));
            for entry in 0..510 {
                let block = number(&bytes, entry * 8, 4) & 0x7FFF_FFFF;
                if block != 0 {
                    named.entry(block).or_default().insert(map_page * 510 + entry as u64);
                }
            }
        }
        let headers: Vec<u64> =
            (segments..BLOCKS).filter(|at| image.read(Lba(*at)).starts_with(b"WCHK")).collect();
        let (generation, next_sequence) = (number(newest, 24, 8), number(newest, 32, 8));
        let generation_of = |at: &u64| number(&image.read(Lba(*at)), 16, 8);
        let last = headers.iter().map(generation_of).max();
        let newest = headers.iter().copied().filter(|at| Some(generation_of(at)) == last).collect();
        let map = map_start..map_start + 2 * map_pages;
        Layout { map, segments, generation, next_sequence, named, headers, newest }
    }

    /// The layout, with what a volume that was not closed names when its log is replayed.
    async fn of_replayed(handle: &Handle, image: &Image) -> Layout {
        // Opening may clean, and so move blocks. A repair replays the log and takes a checkpoint without that, if
        // something is damaged.
        let mut damaged = image.clone();
        damaged.write(Lba(1), &[0; BLOCK_BYTES]);
        let disk = disk(handle, Some(&damaged));
        let storage = Rc::clone(&disk) as Rc<dyn Storage>;
        repair(handle, storage, RepairOptions::default()).await.expect("repaired");
        Layout { named: Layout::of(&disk.image()).named, ..Layout::of(image) }
    }

    /// The last chunks of the log, of which no chunk says that they were durable.
    fn find_unproved(&self, image: &Image) -> Vec<std::ops::RangeInclusive<u64>> {
        let field = |at: u64, offset, width| number(&image.read(Lba(at)), offset, width);
        let durable = self.newest.iter().map(|at| field(*at, 32, 8)).max().expect("a log");
        let last_request = |at: u64| field(at, 24, 8) + field(at, 52, 2) - 1;
        let unproved = self.newest.iter().filter(|at| last_request(**at) > durable);
        unproved.map(|at| *at..=*at + field(*at, 50, 2)).collect()
    }

    fn map_pages(&self) -> u64 {
        (self.map.end - self.map.start) / 2
    }

    /// The map page in a block of the map areas.
    fn page_at(&self, at: u64) -> Option<u64> {
        self.map.contains(&at).then(|| (at - self.map.start) % self.map_pages())
    }

    /// The other place of a map page.
    fn other_place(&self, at: u64) -> u64 {
        let pages = self.map_pages();
        if at < self.map.start + pages { at + pages } else { at - pages }
    }

    /// A block of a kind: superblock, checkpoint, map, header, data, data of the newest log.
    fn draw(&self, kind: u64, random: &mut Random) -> u64 {
        let between = |random: &mut Random, from: u64, to: u64| from + random.below(to - from);
        match kind {
            0 => random.below(2),
            1 => between(random, 2, self.map.start),
            2 => between(random, self.map.start, self.map.end),
            3 => self.headers[random.below(self.headers.len() as u64) as usize],
            5 => self.newest[random.below(self.newest.len() as u64) as usize] + 1,
            _ => between(random, self.segments, BLOCKS),
        }
    }
}

/// Repairs, and requires that a repair that follows finds nothing, before the volume was opened and after.
async fn repaired(
    handle: &Handle,
    image: &Image,
    options: &RepairOptions,
) -> Result<(RepairReport, BTreeMap<u64, Option<u64>>), VolumeError> {
    let disk = disk(handle, Some(image));
    let storage = || Rc::clone(&disk) as Rc<dyn Storage>;
    let report = repair(handle, storage(), options.clone()).await?;
    require_new_generation(&disk.image(), &report);
    require_repaired(handle, &disk, &report).await?;
    let volume = Volume::open(handle, storage(), VolumeOptions::default()).await?;
    let mut found = BTreeMap::new();
    for lba in 0..LAST {
        let is_lost = report.lost.contains(&Lba(lba));
        match read(&volume, Extent::new(Lba(lba), 1)).await {
            Ok(bytes) => {
                let value = number(&bytes, 0, 8);
                assert!(bytes[..] == page(value)[..], "block {lba} is a mixture");
                assert!(!is_lost, "block {lba} is listed as lost and reads {value}");
                found.insert(lba, Some(value).filter(|value| *value != 0));
            }
            Err(_) => assert!(is_lost, "block {lba} is lost and not listed"),
        }
    }
    volume.close().await?;
    require_repaired(handle, &disk, &report).await?;
    Ok((report, found))
}

/// V1: what a repaired volume's log holds is of past generations.
fn require_new_generation(image: &Image, report: &RepairReport) {
    let layout = Layout::of(image);
    let in_log = layout.headers.iter().map(|at| number(&image.read(Lba(*at)), 16, 8)).max();
    let is_new = in_log.is_none_or(|in_log| in_log < layout.generation);
    assert!(report.findings_total == 0 || is_new, "generation {} is in use", layout.generation);
}

/// Another repair finds nothing but the blocks that are lost.
async fn require_repaired(
    handle: &Handle,
    disk: &Rc<AdversaryDisk>,
    first: &RepairReport,
) -> Result<(), VolumeError> {
    let again = self::disk(handle, Some(&disk.image()));
    let report = repair(handle, again, RepairOptions::default()).await?;
    assert_eq!((&report.findings[..], &report.lost), (&[][..], &first.lost), "{:?}", first.findings);
    Ok(())
}

/// Nothing wrong is read, all that was hit is listed as lost, and nothing else but what `may` be.
fn judge(
    (report, found): &(RepairReport, BTreeMap<u64, Option<u64>>),
    content: &Content,
    hit: &BTreeSet<u64>,
    may: impl Fn(u64) -> bool,
) -> Result<(), String> {
    let wrong = found.iter().find(|(lba, value)| content.get(*lba) != value.as_ref());
    if let Some((lba, value)) = wrong {
        return Err(format!("block {lba} reads {value:?}, not {:?}", content.get(lba)));
    }
    let lost: BTreeSet<u64> = report.lost.iter().map(|lba| lba.0).filter(|lba| *lba != LAST).collect();
    let is_due = lost.is_superset(hit) && lost.difference(hit).all(|lba| may(*lba));
    match is_due {
        false => Err(format!("lost are {lost:?}, and hit were {hit:?}: {:?}", report.findings)),
        true => Ok(()),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Bit,
    Garbage,
}

/// What a campaign does to a volume.
#[derive(Clone, Copy)]
struct Campaign {
    seed: u64,
    count: u64,
    damage: Kind,
    is_closed: bool,
    /// Blocks that are damaged together, 1 or 2.
    places: u64,
    rules: Rules<VolumeMutant>,
}

/// What a campaign met.
#[derive(Default)]
struct Tally {
    /// Volumes that were repaired, by the kind of the first block.
    repaired: [u64; 5],
    /// Volumes whose repair was refused.
    refused: u64,
}

impl Campaign {
    fn new(seed: u64, count: u64, damage: Kind, is_closed: bool) -> Campaign {
        Campaign { seed, count, damage, is_closed, places: 1, rules: Rules::all() }
    }

    /// The blocks to damage in one turn: of two in the map, each third time both places of a page.
    fn draw(&self, turn: u64, layout: &Layout, random: &mut Random) -> BTreeSet<u64> {
        let first = layout.draw(turn % 5, random);
        let mut places = BTreeSet::from([first]);
        if self.places == 2 && layout.page_at(first).is_some() && turn.is_multiple_of(3) {
            places.insert(layout.other_place(first));
        }
        while (places.len() as u64) < self.places {
            places.insert(layout.draw(turn / 5 % 6, random));
        }
        places
    }

    fn damage(&self, image: &Image, places: &BTreeSet<u64>, random: &mut Random) -> Image {
        let mut image = image.clone();
        for at in places {
            match self.damage {
                Kind::Bit => {
                    image.flip_bit(at * BLOCK_BYTES as u64 + random.below(4096), random.below(8) as u32)
                }
                Kind::Garbage => {
                    let garbage: Vec<u8> =
                        (0..512).flat_map(|_| random.below(u64::MAX).to_le_bytes()).collect();
                    image.write(Lba(*at), &garbage);
                }
            }
        }
        image
    }

    /// Whether a repair may refuse with this error: a structure that is needed was hit, and nothing makes up for it. A bit
    /// can always be corrected.
    fn may_refuse(&self, error: &VolumeError, layout: &Layout, places: &BTreeSet<u64>) -> bool {
        let hit = |range: std::ops::Range<u64>| places.range(range).count();
        let checkpoints = hit(2..layout.map.start);
        self.damage == Kind::Garbage
            && match error {
                VolumeError::Foreign => hit(0..2) == 2,
                VolumeError::Damaged { what: Damage::NoCheckpoint, .. } => checkpoints == 2,
                VolumeError::Damaged { what: Damage::NewestCheckpoint, .. } => {
                    !self.is_closed && checkpoints > 0
                }
                VolumeError::Damaged { what: Damage::LostRecord, .. } => {
                    !self.is_closed && layout.headers.iter().any(|at| places.contains(at))
                }
                _ => false,
            }
    }

    /// Map pages of which a repair may lose blocks: no bit can be corrected, and there is no second copy.
    fn losable_pages(&self, layout: &Layout, places: &BTreeSet<u64>) -> BTreeSet<u64> {
        let is_losable = |at: &u64| {
            self.damage == Kind::Garbage && (!self.is_closed || places.contains(&layout.other_place(*at)))
        };
        places
            .range(layout.map.clone())
            .filter(|at| is_losable(at))
            .filter_map(|at| layout.page_at(*at))
            .collect()
    }

    /// Damages a volume again and again, and judges what a repair makes of it.
    fn run(self) -> Result<Tally, String> {
        let runtime = Runtime::simulated(Simulation { seed: self.seed, ..Simulation::default() });
        let handle = runtime.handle();
        runtime.block_on(self.run_with(&handle)).expect("a run")
    }

    async fn run_with(&self, handle: &Handle) -> Result<Tally, String> {
        let Used { image, content, shared } = use_volume(handle, self.rules, self.is_closed).await;
        let layout = Layout::of_replayed(handle, &image).await;
        let mut random = handle.random("damage");
        let mut tally = Tally::default();
        let unproved = layout.find_unproved(&image);
        for turn in 0..self.count {
            let places = self.draw(turn, &layout, &mut random);
            let hits_unproved = unproved.iter().any(|chunk| places.range(chunk.clone()).next().is_some());
            if !self.is_closed && hits_unproved {
                continue;
            }
            let image = self.damage(&image, &places, &mut random);
            let named = places.iter().filter_map(|at| layout.named.get(at)).flatten();
            let hit: BTreeSet<u64> = named.copied().filter(|lba| *lba != LAST).collect();
            let losable = self.losable_pages(&layout, &places);
            let options = RepairOptions { rules: self.rules, ..RepairOptions::default() };
            let outcome = match repaired(handle, &image, &options).await {
                Ok(found) => {
                    tally.repaired[(turn % 5) as usize] += 1;
                    judge(&found, &content, &hit, |lba| {
                        losable.contains(&(lba / 510)) || !losable.is_empty() && shared.contains(&lba)
                    })
                }
                Err(error) if self.may_refuse(&error, &layout, &places) => {
                    tally.refused += 1;
                    Ok(())
                }
                Err(error) => Err(error.to_string()),
            };
            outcome.map_err(|why| format!("seed {}, turn {turn}, blocks {places:?}: {why}", self.seed))?;
        }
        Ok(tally)
    }
}

fn require(campaign: Campaign) -> Tally {
    campaign.run().unwrap_or_else(|why| panic!("{why}"))
}

#[test]
fn v9_after_a_flipped_bit_anywhere_only_what_it_hit_is_lost() {
    for seed in 0..4 {
        let tally = require(Campaign::new(seed, 50, Kind::Bit, true));
        assert_eq!((tally.repaired, tally.refused), ([10; 5], 0));
    }
}

#[test]
fn v9_after_a_damaged_block_anywhere_only_what_was_in_it_is_lost() {
    for seed in 10..12 {
        let tally = require(Campaign::new(seed, 50, Kind::Garbage, true));
        assert_eq!((tally.repaired, tally.refused), ([10; 5], 0));
    }
}

/// Not closed: its log is to be replayed, and pages of the map are there once.
#[test]
fn v9_nothing_wrong_is_read_after_damage_to_a_volume_that_was_not_closed() {
    for seed in 20..22 {
        let tally = require(Campaign::new(seed, 60, Kind::Bit, false));
        assert_eq!(tally.refused, 0);
        let tally = require(Campaign::new(seed, 60, Kind::Garbage, false));
        assert!(tally.refused <= 20, "{} of 60 were refused", tally.refused);
    }
}

/// Two places at a time, both places of a map page among them: one repair finds all of it.
#[test]
fn v9_after_two_flipped_bits_only_what_they_hit_is_lost() {
    for (seed, is_closed) in [(30, true), (31, false), (32, false)] {
        let tally = require(Campaign { places: 2, ..Campaign::new(seed, 150, Kind::Bit, is_closed) });
        assert_eq!(tally.refused, 0);
    }
}

#[test]
fn v9_after_two_damaged_blocks_nothing_wrong_is_read() {
    for (seed, is_closed, refused) in [(40, true, 12), (41, false, 90), (42, false, 90)] {
        let tally = require(Campaign { places: 2, ..Campaign::new(seed, 150, Kind::Garbage, is_closed) });
        assert!(tally.refused <= refused, "{} of 150 were refused", tally.refused);
    }
}

/// V2, also where the record that says where the log goes on is the damaged one.
#[test]
fn opening_notices_each_durable_chunk_of_the_log_that_is_damaged() {
    let mut noticed = 0;
    for seed in [41, 1068, 1086] {
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        let handle = runtime.handle();
        let script = async {
            let Used { image, .. } = use_volume(&handle, Rules::all(), false).await;
            let layout = Layout::of(&image);
            let unproved = layout.find_unproved(&image);
            let is_due = |at: &&u64| {
                number(&image.read(Lba(**at)), 24, 8) >= layout.next_sequence
                    && !unproved.iter().any(|chunk| chunk.contains(*at))
            };
            for at in layout.newest.iter().filter(is_due) {
                let mut damaged = image.clone();
                damaged.write(Lba(*at), &[0; BLOCK_BYTES]);
                let disk = disk(&handle, Some(&damaged));
                let error = Volume::open(&handle, disk, VolumeOptions::default()).await.err();
                let is_noticed = matches!(error, Some(VolumeError::Damaged { what: Damage::LostRecord, .. }));
                assert!(is_noticed, "seed {seed}, the chunk at {at}: {error:?}");
                noticed += 1;
            }
        };
        runtime.block_on(script).expect("a run");
    }
    assert!(noticed > 20, "{noticed}");
}

/// The first of these campaigns that fails with a rule dropped, and how.
fn first_failure(
    seeds: std::ops::Range<u64>,
    mutant: VolumeMutant,
    campaign: impl Fn(u64) -> Campaign,
    expected: &str,
) -> Option<String> {
    let rules = Rules::but(Some(mutant));
    let fails = |seed| {
        let campaign = Campaign { rules, ..campaign(seed) };
        std::panic::catch_unwind(|| campaign.run())
    };
    let text =
        |panic: Box<dyn std::any::Any + Send>| panic.downcast_ref::<String>().cloned().unwrap_or_default();
    seeds
        .filter_map(|seed| fails(seed).map_or_else(|panic| Some(text(panic)), Result::err))
        .find(|why| why.contains(expected))
}

/// The judge fails what keeps the rule only in part.
#[test]
fn v9_a_repair_from_what_is_out_of_date() {
    let campaign = |seed| Campaign::new(seed, 60, Kind::Garbage, false);
    let wrong = first_failure(66..76, VolumeMutant::StaleRepaired, campaign, "reads");
    assert!(wrong.is_some(), "a stale page of the map is taken for the newest, and nothing wrong is read");
}

#[test]
fn v9_a_volume_that_is_closed_with_one_checkpoint() {
    let campaign = |seed| Campaign::new(seed, 50, Kind::Garbage, true);
    let found = first_failure(10..20, VolumeMutant::ClosedOnce, campaign, "lost are");
    assert!(found.is_some(), "each page of the map is there once, and none is lost");
}

/// V1 holds for a repair as for recovery.
#[test]
fn v1_a_repair_that_goes_on_in_the_old_generation() {
    let campaign = |seed| Campaign::new(seed, 50, Kind::Bit, false);
    let wrong = first_failure(20..22, VolumeMutant::SameGeneration, campaign, "is in use");
    assert!(wrong.is_some(), "the log goes on in a generation that it has");
}

/// A damaged record in the middle of what was durable: without a word of the user nothing is given up.
#[test]
fn a_volume_goes_back_to_the_newest_prefix_when_it_is_told_to() {
    let runtime = Runtime::simulated(Simulation { seed: 5, ..Simulation::default() });
    let handle = runtime.handle();
    let work = async {
        let disk = disk(&handle, None);
        let format = Format { segment_blocks: 16, logical_blocks: LOGICAL, ..Format::default() };
        Volume::create(&handle, &*disk, format).await.expect("created");
        let open = Volume::open(&handle, Rc::clone(&disk) as Rc<dyn Storage>, VolumeOptions::default()).await;
        let open = open.expect("open");
        for lba in 0..9 {
            write(&open, Part::bytes(Lba(lba), &page(lba + 1))).await.expect("written");
            flush(&open).await.expect("flushed");
        }
        drop(open);
        let mut image = disk.image();
        let headers = Layout::of(&image).headers;
        let fifth =
            headers.into_iter().find(|at| number(&image.read(Lba(*at)), 24, 8) == 5).expect("five records");
        image.write(Lba(fifth), &page(u64::MAX));
        let refused = repaired(&handle, &image, &RepairOptions::default()).await;
        let lost =
            matches!(refused, Err(VolumeError::Damaged { what: Damage::LostRecord, at }) if at == Lba(fifth));
        assert!(lost, "{:?}", refused.map(|_| ()));
        let options = RepairOptions { to_prefix: true, ..RepairOptions::default() };
        let (report, found) = repaired(&handle, &image, &options).await.expect("repaired");
        assert_eq!(report.findings, [Finding::Prefix { records: 5, at: Lba(fifth) }]);
        let left: Vec<u64> = found.into_values().flatten().collect();
        assert_eq!((left, report.lost), (vec![1, 2, 3, 4], vec![]));
    };
    runtime.block_on(work).expect("a run");
}
