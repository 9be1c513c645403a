//! Packed writes, reliable writes and torn programs, each rule by itself (F11, F12): order and answers of a packed
//! command, what it costs, what a power cut leaves, and a device without a cache.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use crate::small;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use weir_flash::{FlashDevice, FlashMutant, FlashOptions, Mechanism, Profile};
use weir_runtime::{Handle, Runtime, Simulation};
use weir_storage::{
    BLOCK_BYTES, Command, Lba, Part, Rejected, Rules, Storage, StorageError, Write, WriteFlags,
    submit_when_free,
};

const PLAIN: WriteFlags = WriteFlags { barrier: false, fua: false, preflush: false, reliable: false };
const FUA: WriteFlags = WriteFlags { fua: true, ..PLAIN };
const RELIABLE: WriteFlags = WriteFlags { reliable: true, ..PLAIN };

/// As eMMC: one command at a time, packed and reliable writes, and programs that a power cut tears.
fn emmc() -> Profile {
    let mut profile = small::profile(Mechanism::None);
    profile.host.queue_depth = 1;
    (profile.host.packed_header_ns, profile.host.reliable_extra_ns) = (Some(3_000), Some(11_000));
    profile.nand.torn_program = true;
    assert_eq!(profile.check(), Ok(()));
    profile
}

fn device(handle: &Handle, profile: &Profile, mutant: Option<FlashMutant>) -> Rc<FlashDevice> {
    let options = FlashOptions { rules: Rules::but(mutant), ..FlashOptions::default() };
    FlashDevice::new(handle, profile, options)
}

/// What a block is filled with.
fn fill_of(device: &FlashDevice, block: u64) -> Option<u8> {
    let mut bytes = [0; BLOCK_BYTES];
    device.peek(Lba(block), &mut bytes);
    bytes.iter().all(|byte| *byte == bytes[0]).then_some(bytes[0])
}

/// Writes of one block each, as one packed command.
async fn pack(device: &FlashDevice, writes: &[(u64, u8, WriteFlags)]) -> Result<(), Rejected> {
    let pages: Vec<[u8; BLOCK_BYTES]> = writes.iter().map(|(_, fill, _)| [*fill; BLOCK_BYTES]).collect();
    let parts: Vec<_> =
        writes.iter().zip(&pages).map(|((block, ..), page)| [Part::bytes(Lba(*block), page)]).collect();
    let packed: Vec<_> = parts
        .iter()
        .zip(writes)
        .map(|(parts, (.., flags))| Write { flags: *flags, ..Write::new(parts) })
        .collect();
    Ok(submit_when_free(device, Command::Packed(&packed)).await?.transferred().await?)
}

async fn write(device: &FlashDevice, block: u64, fill: u8, flags: WriteFlags) {
    let page = [fill; BLOCK_BYTES];
    let parts = [Part::bytes(Lba(block), &page)];
    let ticket = submit_when_free(device, Command::Write(Write { flags, ..Write::new(&parts) })).await;
    ticket.unwrap().transferred().await.unwrap();
}

async fn flush(device: &FlashDevice) {
    submit_when_free(device, Command::Flush).await.unwrap().transferred().await.unwrap();
}

/// What is left of blocks by power cuts at every event of `work` and between, a number of times at each: their fills,
/// none for garbage. Blocks are written durably with 1 before.
fn left(
    profile: &Profile,
    mutant: Option<FlashMutant>,
    blocks: &'static [u64],
    work: impl AsyncFnOnce(&FlashDevice),
) -> Vec<Vec<Option<u8>>> {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let device = device(&handle, profile, mutant);
    let found: Rc<RefCell<Vec<Vec<Option<u8>>>>> = Rc::default();
    runtime
        .block_on(async {
            for block in blocks {
                write(&device, *block, 1, PLAIN).await;
            }
            flush(&device).await;
            let (weak, seen, random) =
                (Rc::downgrade(&device), Rc::clone(&found), RefCell::new(handle.random("cuts")));
            let (again, profile) = (handle.clone(), profile.clone());
            let look = Rc::new(move || {
                let Some(device) = weak.upgrade() else { return };
                for _ in 0..20 {
                    let medium = device.after_cut(&mut random.borrow_mut());
                    let options = FlashOptions::default();
                    let recovered = FlashDevice::restarted(&again, &profile, options, medium);
                    seen.borrow_mut().push(blocks.iter().map(|block| fill_of(&recovered, *block)).collect());
                }
            });
            let at_events = Rc::clone(&look);
            device.observe(move || at_events());
            // The beginning of a flush is no event.
            let ticks = handle.spawn(ticking(handle.clone(), look));
            work(&device).await;
            drop(ticks);
            device.observe(|| {});
        })
        .unwrap();
    found.take()
}

async fn ticking(handle: Handle, look: Rc<dyn Fn()>) {
    for _ in 0..1000 {
        handle.sleep(Duration::from_micros(50)).await;
        look();
    }
}

/// F11: what a cut leaves of writes with FUA is a prefix of them, and any prefix may be left.
#[test]
fn a_cut_leaves_a_prefix_of_packed_writes_with_fua() {
    let flags = WriteFlags { fua: true, ..RELIABLE };
    assert_eq!(prefixes(&emmc(), flags, None), Some([0, 1, 2, 3].into()));
    assert_eq!(prefixes(&emmc(), flags, Some(FlashMutant::PackedTogether)), None);
}

/// F11: what fits a page of flash is there with it or not at all, and is not torn, as reliable writes serve as FUA.
#[test]
fn packed_writes_that_fit_a_page_are_programmed_together() {
    let mut profile = emmc();
    profile.host.packed_pages = true;
    assert_eq!(profile.check(), Ok(()));
    // Two planes are programmed at once, a block on each.
    assert_eq!(prefixes(&profile, FUA, None), Some([0, 2, 3].into()));
    profile.host.reliable_extra_ns = None;
    assert!(profile.check().unwrap_err().to_string().contains("host.packed_pages"));
}

/// How many of three packed writes power cuts leave; none if it is ever anything but the first of them.
fn prefixes(profile: &Profile, flags: WriteFlags, mutant: Option<FlashMutant>) -> Option<BTreeSet<usize>> {
    let found = left(profile, mutant, &[3, 40, 8], async |device| {
        pack(device, &[(3, 2, flags), (40, 2, flags), (8, 2, flags)]).await.unwrap();
    });
    let prefix = |fills: &Vec<Option<u8>>| {
        let new = fills.iter().take_while(|fill| **fill == Some(2)).count();
        fills[new..].iter().all(|fill| *fill == Some(1)).then_some(new)
    };
    found.iter().map(prefix).collect()
}

/// F11: of writes to one block the last counts.
#[test]
fn packed_writes_enter_the_cache_in_turn() {
    let runtime = Runtime::simulated(Simulation::default());
    let device = device(&runtime.handle(), &emmc(), None);
    let work = pack(&device, &[(5, 7, PLAIN), (6, 8, PLAIN), (5, 9, PLAIN)]);
    runtime.block_on(work).unwrap().unwrap();
    assert_eq!([fill_of(&device, 5), fill_of(&device, 6)], [Some(9), Some(8)]);
}

/// F11, F12: a command is answered when the last of its writes that must be on flash is there.
#[test]
fn a_command_is_answered_when_it_is_on_flash() {
    let survives = |mutant, packed: bool, flags: WriteFlags| {
        let found = left(&emmc(), mutant, &[3, 40], async |device| {
            match packed {
                true => pack(device, &[(3, 2, FUA), (40, 2, flags)]).await.unwrap(),
                false => {
                    write(device, 3, 2, flags).await;
                    write(device, 40, 2, flags).await;
                }
            }
            // From the next event on, both are answered.
            write(device, 9, 1, PLAIN).await;
        });
        // The last event is that by which the third write enters the cache.
        found.iter().rev().take(20).all(|fills| *fills == [Some(2), Some(2)])
    };
    for flags in [FUA, RELIABLE] {
        assert!(survives(None, true, flags) && survives(None, false, flags), "{flags:?}");
    }
    assert!(!survives(Some(FlashMutant::ReliableCached), false, RELIABLE));
    assert!(!survives(None, true, PLAIN), "it was not asked for");
}

/// F12: a page that is torn reads as good, and what it held before is gone, but for reliable blocks.
#[test]
fn a_torn_page_is_garbled_unless_it_holds_a_reliable_block() {
    let garbled = |profile: &Profile, mutant, flags| {
        let found = left(profile, mutant, &[3], async |device| {
            write(device, 3, 2, flags).await;
            flush(device).await;
        });
        assert!(found.contains(&vec![Some(1)]) && found.contains(&vec![Some(2)]));
        found.contains(&vec![None])
    };
    let mut good = emmc();
    good.nand.torn_program = false;
    assert!(garbled(&emmc(), None, PLAIN) && garbled(&emmc(), None, FUA));
    assert!(!garbled(&emmc(), None, RELIABLE) && !garbled(&good, None, PLAIN));
    assert!(garbled(&emmc(), Some(FlashMutant::ReliableTorn), RELIABLE));
    // A mechanism has to know its torn pages.
    assert!(!garbled(&emmc().with_mechanism(Mechanism::InOrderRecovery), None, PLAIN));
}

/// A packed command is decoded once, and its header takes time and one sector of the link; a reliable write takes time
/// of the controller.
#[test]
fn what_a_command_costs() {
    let profile = emmc();
    let took = |writes: &[(u64, u8, WriteFlags)], packed: bool| {
        let runtime = Runtime::simulated(Simulation::default());
        let handle = runtime.handle();
        let device = device(&handle, &profile, None);
        let run = async {
            match packed {
                true => pack(&device, writes).await.unwrap(),
                false => {
                    for (block, fill, flags) in writes {
                        write(&device, *block, *fill, *flags).await;
                    }
                }
            }
            handle.now().as_nanos()
        };
        runtime.block_on(run).unwrap()
    };
    let host = &profile.host;
    let link_ns = |bytes: u64| bytes * 1_000_000_000 / host.link_bytes_per_second;
    let block = BLOCK_BYTES as u64;
    let one = host.command_ns + host.latency_ns;
    let two = [(3, 1, PLAIN), (40, 1, PLAIN)];
    assert_eq!(took(&two[..1], false), one + link_ns(block));
    assert_eq!(took(&two, false), 2 * (one + link_ns(block)));
    assert_eq!(took(&two, true), one + 3_000 + link_ns(2 * block + 512));
    let on_flash = took(&[(3, 1, RELIABLE)], false) - took(&[(3, 1, FUA)], false);
    assert_eq!(on_flash, 11_000);
}

/// Without a cache, a write is answered when it is on flash.
#[test]
fn a_device_without_a_cache_answers_what_is_on_flash() {
    let mut profile = emmc();
    profile.cache.bytes = 0;
    assert_eq!(profile.check(), Ok(()));
    let found = left(&profile, None, &[3], async |device| {
        write(device, 3, 2, PLAIN).await;
        write(device, 9, 1, PLAIN).await;
    });
    assert_eq!(found.last(), Some(&vec![Some(2)]));
    let off = profile;
    let mut small = emmc();
    small.cache.bytes = 4096;
    assert!(small.check().is_err(), "a cache holds a command");
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let device = device(&handle, &off, None);
    let answered_at = async {
        write(&device, 3, 2, PLAIN).await;
        handle.now().as_nanos()
    };
    let programmed = off.nand.program_ns[0];
    assert!(runtime.block_on(answered_at).unwrap() > programmed);
}

/// What the profile does not have is refused; what it has is in the capabilities.
#[test]
fn capabilities_say_what_the_profile_has() {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let able = |profile: &Profile| *device(&handle, profile, None).capabilities();
    let (without, with) = (able(&small::profile(Mechanism::None)), able(&emmc()));
    assert!(!without.packed && !without.reliable && !without.corrupts_when_cut && without.atomic_blocks == 1);
    assert!(with.packed && with.reliable && with.corrupts_when_cut && with.atomic_blocks == 0);
    let ordered = able(&emmc().with_mechanism(Mechanism::InOrderWriteback));
    assert!(ordered.packed && ordered.reliable && !ordered.corrupts_when_cut);
    let mut paged = small::paged(Mechanism::None);
    paged.nand.torn_program = true;
    assert!(paged.check().unwrap_err().to_string().contains("nand.torn_program"));
}

/// Every tenth of a second of a run of packed commands, on every mechanism, somebody flushes: all of it is answered.
#[test]
fn packed_commands_come_to_their_end_on_every_mechanism() {
    for mechanism in small::BARRIER_MECHANISMS.into_iter().chain([Mechanism::None]) {
        let runtime = Runtime::simulated(Simulation::default());
        let handle = runtime.handle();
        let mut profile = small::profile(mechanism);
        (profile.host.packed_header_ns, profile.host.max_transfer_blocks) = (Some(0), 4);
        assert_eq!(profile.check(), Ok(()));
        let device = device(&handle, &profile, None);
        let mut random = handle.random("blocks");
        let run = async {
            for number in 0..600_u64 {
                let mut writes = Vec::new();
                for _ in 0..=random.below(3) {
                    let flags = WriteFlags {
                        fua: random.below(2) == 0,
                        barrier: mechanism != Mechanism::None && random.below(4) == 0,
                        ..PLAIN
                    };
                    writes.push((random.below(profile.blocks), number as u8, flags));
                }
                pack(&device, &writes).await?;
            }
            Ok::<_, Rejected>(())
        };
        let ended = runtime.block_on(run);
        assert!(matches!(ended, Ok(Ok(()))), "{mechanism:?}: {ended:?}");
        assert!(device.stats().erases > 20, "{mechanism:?}");
    }
}

/// A device that goes away answers nobody.
#[test]
fn a_cut_in_a_packed_command_leaves_it_unanswered() {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let device = device(&handle, &emmc(), None);
    let work = async {
        let page = [1; BLOCK_BYTES];
        let parts = [[Part::bytes(Lba(3), &page)], [Part::bytes(Lba(4), &page)]];
        let writes = parts.iter().map(|parts| Write { flags: FUA, ..Write::new(parts) }).collect::<Vec<_>>();
        let ticket = submit_when_free(&*device, Command::Packed(&writes)).await.unwrap();
        handle.sleep(Duration::from_micros(300)).await;
        device.cut_power();
        let before = ticket.poll_transferred();
        drop(device);
        handle.sleep(Duration::from_millis(5)).await;
        (before, ticket.poll_transferred())
    };
    assert_eq!(runtime.block_on(work).unwrap(), (None, Some(Err(StorageError::Gone))));
}
