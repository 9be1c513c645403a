//! Repair (V9): damage at random places of a volume at rest, one at a time. What the damage did not hit is read, what it
//! hit is listed and reads as an error, and nothing wrong is read.
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
async fn use_volume(handle: &Handle, rules: Rules<VolumeMutant>, is_closed: bool) -> (Image, Content) {
    let disk = disk(handle, None);
    let format = Format { segment_blocks: 16, logical_blocks: LOGICAL, ..Format::default() };
    Volume::create(handle, &*disk, format).await.expect("created");
    let options = VolumeOptions { checkpoint_segments: 12, rules, ..VolumeOptions::default() };
    let mut random = handle.random("what is written");
    let mut content = Content::new();
    let mut open =
        Volume::open(handle, Rc::clone(&disk) as Rc<dyn Storage>, options.clone()).await.expect("open");
    for value in 1..4000_u64 {
        let lba = if random.below(3) == 0 { random.below(LAST) } else { random.below(300) };
        match random.below(40) {
            0 => {
                let extents = [Extent::new(Lba(lba), 3.min((LAST - lba) as u32))];
                submit_when_free(&open, Command::Discard(&extents)).await.expect("discarded");
                extents[0].iter().for_each(|lba| _ = content.remove(&lba.0));
            }
            1 => {
                let from = random.below(300);
                if from != lba {
                    let pair = SharePair { from: Extent::new(Lba(from), 1), to: Lba(lba) };
                    submit_when_free(&open, Command::Share(&[pair])).await.expect("shared");
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
        return (disk.image(), content);
    }
    // What comes behind the rest of the log says that this was durable.
    write(&open, Part::bytes(Lba(LAST), &page(1))).await.expect("written");
    flush(&open).await.expect("flushed");
    (disk.image(), content)
}

fn number(bytes: &[u8], at: usize, width: usize) -> u64 {
    bytes[at..at + width].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Where a volume's structures are, and which logical blocks its map has at each block.
struct Layout {
    map: std::ops::Range<u64>,
    segments: u64,
    named: BTreeMap<u64, BTreeSet<u64>>,
    headers: Vec<u64>,
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
        let headers = (segments..BLOCKS).filter(|at| image.read(Lba(*at)).starts_with(b"WCHK")).collect();
        Layout { map: map_start..map_start + 2 * map_pages, segments, named, headers }
    }

    /// A block of a kind: superblock, checkpoint, map, header, data.
    fn draw(&self, kind: u64, random: &mut Random) -> u64 {
        let between = |random: &mut Random, from: u64, to: u64| from + random.below(to - from);
        match kind {
            0 => random.below(2),
            1 => between(random, 2, self.map.start),
            2 => between(random, self.map.start, self.map.end),
            3 => self.headers[random.below(self.headers.len() as u64) as usize],
            _ => between(random, self.segments, BLOCKS),
        }
    }
}

async fn repaired(
    handle: &Handle,
    image: &Image,
    options: &RepairOptions,
) -> Result<(RepairReport, BTreeMap<u64, Option<u64>>), VolumeError> {
    let disk = disk(handle, Some(image));
    let report = repair(handle, Rc::clone(&disk) as Rc<dyn Storage>, options.clone()).await?;
    let volume = Volume::open(handle, disk, VolumeOptions::default()).await?;
    let mut found = BTreeMap::new();
    for lba in 0..LAST {
        match read(&volume, Extent::new(Lba(lba), 1)).await {
            Ok(bytes) => {
                let value = number(&bytes, 0, 8);
                assert!(bytes[..] == page(value)[..], "block {lba} is a mixture");
                found.insert(lba, Some(value).filter(|value| *value != 0));
            }
            Err(_) => assert!(report.lost.contains(&Lba(lba)), "block {lba} is lost and not listed"),
        }
    }
    volume.close().await?;
    Ok((report, found))
}

/// Nothing wrong is read; with `exact`, what is lost is what was at the damaged block.
fn judge(
    (report, found): &(RepairReport, BTreeMap<u64, Option<u64>>),
    content: &Content,
    hit: &BTreeSet<u64>,
    exact: bool,
) -> Result<(), String> {
    let wrong = found.iter().find(|(lba, value)| content.get(*lba) != value.as_ref());
    if let Some((lba, value)) = wrong {
        return Err(format!("block {lba} reads {value:?}, not {:?}", content.get(lba)));
    }
    let lost: BTreeSet<u64> = report.lost.iter().map(|lba| lba.0).filter(|lba| *lba != LAST).collect();
    match exact && lost != *hit {
        true => Err(format!("lost are {lost:?}, and hit were {hit:?}: {:?}", report.findings)),
        false => Ok(()),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Bit,
    Garbage,
}

/// Damages one block at a time, and judges what a repair makes of it. What the campaign met, by kind of block.
fn campaign(
    seed: u64,
    count: u64,
    damage: Kind,
    is_closed: bool,
    rules: Rules<VolumeMutant>,
) -> Result<[u64; 5], String> {
    let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
    let handle = runtime.handle();
    let work = async {
        let (image, content) = use_volume(&handle, rules, is_closed).await;
        let layout = Layout::of(&image);
        let mut random = handle.random("damage");
        let mut met = [0; 5];
        let last = layout.headers.iter().copied().max_by_key(|at| {
            let header = image.read(Lba(*at));
            (number(&header, 16, 8), number(&header, 24, 8))
        });
        for turn in 0..count {
            let kind = turn % 5;
            let at = layout.draw(kind, &mut random);
            if !is_closed && last == Some(at) {
                continue;
            }
            let mut image = image.clone();
            match damage {
                Kind::Bit => {
                    image.flip_bit(at * BLOCK_BYTES as u64 + random.below(4096), random.below(8) as u32)
                }
                Kind::Garbage => {
                    let garbage: Vec<u8> =
                        (0..512).flat_map(|_| random.below(u64::MAX).to_le_bytes()).collect();
                    image.write(Lba(at), &garbage);
                }
            }
            let mut hit = layout.named.get(&at).cloned().unwrap_or_default();
            hit.remove(&LAST);
            let options = RepairOptions { rules, ..RepairOptions::default() };
            // Where the log's data is, the map does not tell.
            let exact = is_closed || damage == Kind::Bit && kind != 4;
            let outcome =
                match repaired(&handle, &image, &options).await {
                    Ok(found) => judge(&found, &content, &hit, exact),
                    // It says that it cannot, and so nothing wrong is read.
                    Err(VolumeError::Damaged {
                        what: Damage::LostRecord | Damage::NewestCheckpoint, ..
                    }) if damage == Kind::Garbage && !is_closed => Ok(()),
                    Err(error) => Err(error.to_string()),
                };
            outcome.map_err(|why| format!("seed {seed}, turn {turn}, block {at} of kind {kind}: {why}"))?;
            met[kind as usize] += 1;
        }
        Ok(met)
    };
    runtime.block_on(work).expect("a run")
}

#[test]
fn v9_after_a_flipped_bit_anywhere_only_what_it_hit_is_lost() {
    for seed in 0..4 {
        let met = campaign(seed, 50, Kind::Bit, true, Rules::all()).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(met, [10; 5]);
    }
}

#[test]
fn v9_after_a_damaged_block_anywhere_only_what_was_in_it_is_lost() {
    for seed in 10..12 {
        campaign(seed, 50, Kind::Garbage, true, Rules::all()).unwrap_or_else(|why| panic!("{why}"));
    }
}

/// Not closed: its log is to be replayed, and pages of the map are there once.
#[test]
fn v9_nothing_wrong_is_read_after_damage_to_a_volume_that_was_not_closed() {
    for seed in 20..22 {
        for damage in [Kind::Bit, Kind::Garbage] {
            campaign(seed, 60, damage, false, Rules::all()).unwrap_or_else(|why| panic!("{why}"));
        }
    }
}

/// The judge fails what keeps the rule only in part.
#[test]
fn v9_a_repair_from_what_is_out_of_date() {
    let rules = Rules::but(Some(VolumeMutant::StaleRepaired));
    let found = (20..30).filter_map(|seed| campaign(seed, 60, Kind::Garbage, false, rules).err());
    let wrong = found.into_iter().find(|why| why.contains("reads"));
    assert!(wrong.is_some(), "a stale page of the map is taken for the newest, and nothing wrong is read");
}

#[test]
fn v9_a_volume_that_is_closed_with_one_checkpoint() {
    let rules = Rules::but(Some(VolumeMutant::ClosedOnce));
    let found = (10..20).find_map(|seed| campaign(seed, 50, Kind::Garbage, true, rules).err());
    assert!(
        found.is_some_and(|why| why.contains("lost are")),
        "each page of the map is there once, and none is lost"
    );
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
