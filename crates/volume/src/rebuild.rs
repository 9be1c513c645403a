//! *Rebuilding* the map of a checkpoint some of whose pages are damaged (V9).
//!
//! The checkpoint holds a sum over the checksums of all its pages, so a page that is made anew is proved when the sum
//! comes out. Candidates for a damaged page are, in this order: the damaged page with one bit corrected; the page in its
//! other place, which is an older one or the same; and what the records on the disk say. What none of them proves
//! is unknown, block by block, unless no record is missing behind the one that says it.

use std::collections::BTreeSet;
use std::mem::offset_of;

use weir_storage::{BLOCK_BYTES, Extent, Rules, Storage};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::blocks::Blocks;
use crate::checkpoint::{Checkpoint, load_page, whole_page};
use crate::correction::correct_bit;
use crate::error::{Damage, VolumeError};
use crate::geometry::Geometry;
use crate::layout::{ENTRIES_PER_PAGE, MapEntry, MapPage, stamp_checksum};
use crate::map::Entry;
use crate::map_page::page_sum;
use crate::mutants::VolumeMutant;
use crate::scan::{Records, read_or_zeros};

/// Combinations of candidates that are tried at most.
const COMBINATIONS_MAX: usize = 4096;

type Page = Box<[u8]>;

/// A page that is damaged, and what may have been in it.
struct DamagedPage {
    page: u32,
    candidates: Vec<Page>,
}

/// A map that was loaded as far as it is known.
pub(crate) struct Rebuilt {
    pub blocks: Blocks,
    /// Pages that were damaged and are whole again.
    pub rebuilt: Vec<u32>,
    /// Pages of which some blocks are unknown.
    pub lost: Vec<u32>,
    /// Those blocks.
    pub unknown: BTreeSet<u32>,
}

/// Loads the map of a checkpoint, and makes damaged pages anew. The checkpoint is as it was parsed: what a load puts into
/// its table of pages would count twice.
pub(crate) async fn rebuild(
    disk: &dyn Storage,
    geometry: &Geometry,
    checkpoint: &mut Checkpoint,
    rules: Rules<VolumeMutant>,
) -> Result<Rebuilt, VolumeError> {
    let blocks = Blocks::new(geometry, rules, usize::MAX);
    let (rebuilt, lost, unknown) = Default::default();
    let mut map = Rebuilt { blocks, rebuilt, lost, unknown };
    let mut damaged = load_whole(disk, geometry, checkpoint, &mut map.blocks).await?;
    let sum = checkpoint.pages.sum();
    checkpoint.pages.add_up();
    let wanted = sum.wrapping_sub(checkpoint.pages.sum());
    if damaged.is_empty() && wanted != 0 {
        return Err(VolumeError::Damaged { what: Damage::StaleMap, at: geometry.map_page(0, 0) });
    }
    let mut chosen = proved(&damaged, wanted, rules);
    if chosen.is_none() {
        let pages = damaged.iter().map(|page| page.page).collect();
        let records = Records::of_pages(disk, geometry, checkpoint, &pages).await;
        for page in &mut damaged {
            add_from_records(page, geometry, &records);
        }
        chosen = proved(&damaged, wanted, rules);
        if chosen.is_none() {
            for page in &damaged {
                load_proved(page.page, geometry, &records, &mut map)?;
            }
        }
    }
    for (page, choice) in damaged.iter().zip(chosen.into_iter().flatten()) {
        load(&page.candidates[choice], page.page, geometry, checkpoint, &mut map.blocks)?;
        map.rebuilt.push(page.page);
    }
    checkpoint.pages.add_up();
    // What was damaged is written anew.
    damaged.iter().for_each(|page| map.blocks.map.write_again(page.page));
    Ok(map)
}

/// Loads the pages that are whole, and finds candidates for the others. A page that is missing counts 0 in the sum.
async fn load_whole(
    disk: &dyn Storage,
    geometry: &Geometry,
    checkpoint: &mut Checkpoint,
    blocks: &mut Blocks,
) -> Result<Vec<DamagedPage>, VolumeError> {
    let mut damaged = Vec::new();
    for (first, count, place) in checkpoint.pages.runs() {
        let bytes = read_or_zeros(disk, Extent::new(geometry.map_page(place.area(), first), count)).await;
        for (page, block) in (first..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
            if whole_page(block, page, geometry.volume).is_some() {
                load(block, page, geometry, checkpoint, blocks)?;
                continue;
            }
            let mut corrected: Page = block.into();
            let is_corrected = correct_bit(&mut corrected, offset_of!(MapPage, checksum))
                && whole_page(&corrected, page, geometry.volume).is_some();
            let at = Extent::new(geometry.map_page(place.other().area(), page), 1);
            let other: Page = read_or_zeros(disk, at).await[..].into();
            let is_whole = whole_page(&other, page, geometry.volume).is_some();
            let candidates = [(is_corrected, corrected), (is_whole, other)];
            let candidates =
                candidates.into_iter().filter(|(is_one, _)| *is_one).map(|(_, page)| page).collect();
            damaged.push(DamagedPage { page, candidates });
        }
    }
    Ok(damaged)
}

fn load(
    block: &[u8],
    page: u32,
    geometry: &Geometry,
    checkpoint: &mut Checkpoint,
    blocks: &mut Blocks,
) -> Result<(), VolumeError> {
    let at = geometry.map_page(checkpoint.pages.place(page).area(), page);
    let checksum =
        load_page(block, page, geometry.volume, blocks).map_err(|what| VolumeError::Damaged { what, at })?;
    checkpoint.pages.set_checksum(page, checksum);
    Ok(())
}

fn checksum_of(page: &[u8]) -> u32 {
    MapPage::ref_from_bytes(page).map_or(0, |page| page.checksum.get())
}

/// Which candidates the sum proves, one for each page; none if no combination does. A page that is not loaded is in what
/// is left of the sum with the checksum 0.
fn proved(damaged: &[DamagedPage], wanted: u64, rules: Rules<VolumeMutant>) -> Option<Vec<usize>> {
    let counts: Vec<usize> = damaged.iter().map(|page| page.candidates.len()).collect();
    let all = counts.iter().try_fold(1_usize, |all, count| all.checked_mul(*count))?;
    if all == 0 {
        return None;
    }
    // Of too many, the first candidates of all pages and the last ones.
    let tried = all.min(COMBINATIONS_MAX / 2);
    for number in (0..tried).chain(all - tried..all) {
        let mut left = number;
        let choice: Vec<usize> = counts
            .iter()
            .map(|count| {
                let one = left % count;
                left /= count;
                one
            })
            .collect();
        let found = damaged.iter().zip(&choice).fold(0_u64, |found, (page, one)| {
            let checksum = checksum_of(&page.candidates[*one]);
            found.wrapping_add(page_sum(page.page, checksum)).wrapping_sub(page_sum(page.page, 0))
        });
        if found == wanted || rules.drops(VolumeMutant::StaleRepaired) {
            return Some(choice);
        }
    }
    None
}

/// Adds what the records say: alone, and over the page in its other place.
fn add_from_records(damaged: &mut DamagedPage, geometry: &Geometry, records: &Records) {
    let first = u64::from(damaged.page) * ENTRIES_PER_PAGE as u64;
    let older = damaged.candidates.last().and_then(|page| MapPage::read_from_bytes(page).ok());
    let mut alone = MapPage::new_zeroed();
    let mut over = older.unwrap_or_else(MapPage::new_zeroed);
    for (i, (alone, over)) in alone.entries.iter_mut().zip(&mut over.entries).enumerate() {
        let lba = (first + i as u64) as u32;
        *alone = on_disk(records.newest(lba));
        if let Some(entry) = records.proved(lba) {
            *over = on_disk(entry);
        }
    }
    for mut made in [alone, over] {
        (made.volume, made.page) = (geometry.volume.into(), damaged.page.into());
        let mut bytes: Page = made.as_bytes().into();
        stamp_checksum(&mut bytes, offset_of!(MapPage, checksum));
        damaged.candidates.push(bytes);
    }
}

fn on_disk(entry: Entry) -> MapEntry {
    MapEntry { block: entry.block.into(), checksum: entry.checksum.into() }
}

/// Loads of a page what single records prove. The rest is unknown.
fn load_proved(
    page: u32,
    geometry: &Geometry,
    records: &Records,
    map: &mut Rebuilt,
) -> Result<(), VolumeError> {
    let first = u64::from(page) * ENTRIES_PER_PAGE as u64;
    let end = (first + ENTRIES_PER_PAGE as u64).min(geometry.addressable_blocks());
    map.lost.push(page);
    for lba in first..end {
        match records.proved(lba as u32) {
            Some(entry) if entry.is_mapped() => {
                let at = geometry.map_page(0, page);
                map.blocks.load_recorded(lba, entry).map_err(|what| VolumeError::Damaged { what, at })?;
            }
            Some(_) => {}
            None => {
                map.unknown.insert(lba as u32);
            }
        }
    }
    Ok(())
}
