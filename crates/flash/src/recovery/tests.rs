//! Order-preserving recovery reads the erase blocks that are named, and no other; and what it takes for free is erased. The
//! power is cut after every event of small devices.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weir_runtime::{Handle, Random, Runtime, Simulation};
use weir_storage::{
    BLOCK_BYTES, Command, Extent, Lba, Part, Rules, Storage, Write, WriteFlags, submit_when_free,
};

use super::*;
use crate::ftl::{Ftl, NewPage, Outcome};
use crate::geometry::EraseBlock;
use crate::medium::{Payload, Spare};
use crate::profile::{Allocation, InternalFlush, Layout};
use crate::recovery_point::Receipt;
use crate::{FlashDevice, FlashOptions, Keep};

/// Devices that are cut.
const DEVICES: u64 = 24;

/// A device of a few erase blocks with little to spare, so that dies run out of free ones.
fn tight(random: &mut Random) -> Profile {
    let ordered = Profile::builtin("ufs20").unwrap().with_mechanism(Mechanism::OrderPreservingRecovery);
    let mut tight = Profile { blocks: 0, ..ordered };
    let nand = &mut tight.nand;
    (nand.channels, nand.ways, nand.planes, nand.multi_plane) = (1, 1 + random.below(2) as u32, 1, false);
    (nand.blocks_per_plane, nand.page_bytes) = (10, 8192);
    let paged = random.below(2) == 0;
    let summary_pages = random.below(2) == 0;
    nand.pages_per_block = 4 + u32::from(summary_pages);
    tight.ftl.layout = Layout {
        logical_page_blocks: if paged { 2 } else { 1 },
        allocation: if paged { Allocation::Static } else { Allocation::Dynamic },
        summary_pages,
        log_buffer_bytes: 400,
    };
    (tight.ftl.gc_free_blocks, tight.ftl.log_share, tight.ftl.share) = (3, 1.0, 0);
    tight.host.max_transfer_blocks = 2;
    tight.cache.bytes = 16 * 4096;
    tight.barrier.internal = InternalFlush { every_ns: 3_000_000, cleaning_batch: 1, stops_commands: false };
    tight.blocks = tight.raw_blocks();
    while tight.check().is_err() {
        tight.blocks -= 1;
    }
    tight
}

/// What recovery finds on a medium.
#[derive(PartialEq)]
struct Recovery {
    map: Map,
    filled: Vec<Filled>,
    numbers: [u64; 4],
    reads: RecoveryReads,
}

fn recover_from(medium: &Medium, profile: &Profile, rules: FlashRules) -> Recovery {
    let Recovered { start, next_version, point, next_wid, reads, .. } = recover(medium, profile, rules);
    let numbers = [start.next_sequence, next_version, point, next_wid];
    Recovery { map: start.map, filled: start.filled, numbers, reads }
}

/// What was seen over all cuts.
#[derive(Clone, Copy, Debug, Default)]
struct CutCounts {
    cuts: u64,
    /// Erase blocks that recovery takes for filled, and that are erased.
    erased_since: u64,
    /// Erase blocks that recovery does not read.
    unread: u64,
}

/// What is wrong with recovery from a medium.
fn judge(medium: &Medium, profile: &Profile, rules: FlashRules, seen: &mut CutCounts) -> Result<(), String> {
    let geometry = *medium.geometry();
    let Recovery { filled, reads, .. } = recover_from(medium, profile, rules);
    let blocks = || (0..geometry.blocks()).map(EraseBlock).zip(&filled);
    for (block, Filled { pages, .. }) in blocks() {
        let programmed = medium.block(block).programmed();
        if *pages < geometry.data_pages_per_block && *pages != programmed {
            return Err(format!("{block:?} has {programmed} pages, and recovery takes it for {pages}"));
        }
        seen.erased_since += u64::from(programmed < *pages && programmed == 0);
    }
    // What looking at all of them finds behind the seal, and the erase blocks that are named.
    let mut all = PageReads::new(medium);
    let (_, seal) = loaded(all.newest(), profile, &geometry, rules);
    let every = FoundPages::in_all_blocks(&mut all, seal.scan_from);
    let mut along = PageReads::new(medium);
    let along = FoundPages::along(&mut along, &seal, &seal.stock, rules);
    let mut behind = along.pages.iter().map(ReadPage::page);
    for page in every.pages.iter().filter(|page| page.spare().sequence >= seal.end) {
        if !behind.any(|found| found == page.page()) {
            return Err(format!("{page:?} is not found"));
        }
    }
    let opened = medium.system.openings().iter().map(|opening| opening.block);
    let named = every.pages.iter().map(|page| page.spare().next_block).chain(opened);
    let mut may_read: Vec<EraseBlock> =
        seal.stock.next.iter().map(|page| geometry.block_of(*page)).chain(named).collect();
    may_read.sort_unstable();
    may_read.dedup();
    // All other blocks hold something else now, and recovery finds the same.
    let mut other = medium.clone();
    for (block, _) in blocks().filter(|(block, _)| may_read.binary_search(block).is_err()) {
        seen.unread += 1;
        other.erase(block);
        let spare = Spare { sequence: 1 << 40, tag: Tag::Request, used: 0, next_block: EraseBlock(0) };
        let receipt = Receipt { wid: 1 << 40, size: 1 };
        let content = Content { lpn: 0, version: 1 << 39, payload: Payload::Version, receipt };
        (0..geometry.pages_per_block)
            .for_each(|nth| other.program(geometry.page(block, nth), spare, std::slice::from_ref(&content)));
    }
    if recover_from(&other, profile, rules) != recover_from(medium, profile, rules) {
        return Err("recovery read an erase block that nothing names".to_owned());
    }
    let read = reads.probed_pages <= may_read.len() as u64
        && reads.scanned_pages <= may_read.len() as u64 * u64::from(geometry.pages_per_block);
    seen.cuts += 1;
    read.then_some(()).ok_or_else(|| format!("{reads:?} of {} erase blocks", may_read.len()))
}

async fn write(device: &Rc<FlashDevice>, random: &mut Random) {
    let blocks = 1 + random.below(2);
    let extent = Extent::new(Lba(random.below(device.blocks() - blocks + 1)), blocks as u32);
    let bytes = vec![0; extent.blocks as usize * BLOCK_BYTES];
    let parts = [Part::bytes(extent.start, &bytes)];
    let flags = WriteFlags { fua: random.below(20) == 0, ..WriteFlags::default() };
    let write = Command::Write(Write { flags, ..Write::new(&parts) });
    let command = if random.below(30) == 0 { Command::Flush } else { write };
    submit_when_free(&**device, command).await.unwrap().transferred().await.unwrap();
}

type Verdict = Rc<RefCell<Result<(), String>>>;

/// Judges what a cut leaves after every event of a device.
fn observe(
    device: &Rc<FlashDevice>,
    profile: &Profile,
    (rules, random): (FlashRules, Random),
    (verdict, seen): (&Verdict, &Rc<Cell<CutCounts>>),
) {
    let (weak, profile) = (Rc::downgrade(device), profile.clone());
    let (verdict, seen) = (Rc::clone(verdict), Rc::clone(seen));
    let random = RefCell::new(random);
    device.observe(move || {
        let Some(device) = weak.upgrade() else { return };
        if verdict.borrow().is_ok() {
            let mut now = seen.get();
            let medium = device.after_cut(&mut random.borrow_mut());
            *verdict.borrow_mut() = judge(&medium, &profile, rules, &mut now);
            seen.set(now);
        }
    });
}

/// Uses a device, and cuts its power after every event; then goes on with what the last cut left.
async fn cut(handle: &Handle, rules: FlashRules, seen: &Rc<Cell<CutCounts>>) -> Result<(), String> {
    let mut random = handle.random("device");
    let profile = tight(&mut random);
    let options = FlashOptions { keep: Keep::Versions, rules, ..FlashOptions::default() };
    let mut device = FlashDevice::new(handle, &profile, options.clone());
    device.precondition(profile.blocks);
    let verdict: Verdict = Rc::new(RefCell::new(Ok(())));
    for _ in 0..3 {
        observe(&device, &profile, (rules, handle.random("cut")), (&verdict, seen));
        for _ in 0..200 {
            if verdict.borrow().is_ok() {
                write(&device, &mut random).await;
            }
        }
        let medium = device.after_cut(&mut random);
        device.cut_power();
        verdict.borrow().clone()?;
        device = FlashDevice::restarted(handle, &profile, options.clone(), medium);
    }
    Ok(())
}

fn cut_all(mutant: Option<FlashMutant>) -> (Result<(), String>, CutCounts) {
    let seen = Rc::new(Cell::new(CutCounts::default()));
    let verdict = (0..DEVICES).try_for_each(|seed| {
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        runtime.block_on(cut(&runtime.handle(), Rules::but(mutant), &seen)).unwrap()
    });
    (verdict, seen.get())
}

#[test]
fn it_reads_what_is_named_and_what_it_takes_for_free_is_erased() {
    let (verdict, seen) = cut_all(None);
    assert_eq!(verdict, Ok(()));
    assert!(seen.cuts > 10_000 && seen.unread > 5 * seen.cuts && seen.erased_since > 100, "{seen:?}");
}

#[test]
fn erase_blocks_that_are_not_followed_or_not_listed_are_noticed() {
    for mutant in [FlashMutant::ChainCutShort, FlashMutant::StockStale] {
        let (verdict, seen) = cut_all(Some(mutant));
        assert!(verdict.is_err(), "{mutant:?} survives {seen:?}");
    }
}

/// Fills an erase block of a die that has no free one then, and programs a page to one that is erased afterwards. The
/// version that recovery finds, of two.
fn found_without_a_name(mutant: Option<FlashMutant>) -> u64 {
    let rules = Rules::but(mutant);
    let profile = tight(&mut Runtime::simulated(Simulation::default()).handle().random("device"));
    let geometry = Geometry::new(&profile);
    let options = FlashOptions { rules, ..FlashOptions::default() };
    let start = Recovered::nothing(&profile, rules).start;
    let mut ftl = Ftl::new(&profile, &options, Medium::new(geometry), start);
    let mut others = ftl.dies[0].free.split_off(1);
    let mut now = 0;
    for nth in 0..=geometry.data_pages_per_block {
        let version = 1 + u64::from(nth / geometry.data_pages_per_block);
        ftl.dies[0].free.extend(others.pop_front().filter(|_| version == 2));
        let content = Content { lpn: 0, version, payload: Payload::Version, receipt: Receipt::default() };
        let page = ftl.take_page(0, true).unwrap();
        let new = NewPage { tag: Tag::Plain, contents: vec![content], reads: 0, reliable: false };
        ftl.program(0, page, new, now);
        while let Some(at) = ftl.array.next() {
            now = at;
            ftl.advance(now, &mut Outcome::default());
        }
    }
    assert_eq!(ftl.stats.opening_pages, u64::from(mutant.is_none()));
    recover(&ftl.medium, &profile, rules).start.map.version(0)
}

#[test]
fn the_log_names_what_no_page_could() {
    assert_eq!(found_without_a_name(None), 2);
    assert_eq!(found_without_a_name(Some(FlashMutant::BlockOpenedUnnamed)), 1);
}
