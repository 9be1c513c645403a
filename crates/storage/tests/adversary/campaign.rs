//! A random workload over a disk, with the power cut (on paper) at every event.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use weir_runtime::{Handle, Random, Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Command, Discard, Extent, Illegal, Lba,
    Ordering, Part, Priority, Rules, SharePair, Storage, StorageError, StorageMutant, StreamId, Ticket,
    Witness, Write, WriteFlags, submit_when_free,
};

/// Blocks that the workload uses: few, so that versions pile up.
const BLOCKS: u64 = 12;

/// What one run, or many, have shown.
#[derive(Default)]
pub struct Findings {
    pub illegal: Option<Illegal>,
    pub judged: u64,
    pub distinct: BTreeSet<u64>,
}

/// Everything that a disk of this kind may be able to do.
pub fn able(ordering: Ordering) -> Capabilities {
    Capabilities {
        ordering,
        ordered_service: true,
        fua: true,
        preflush: true,
        reliable: true,
        discard: Discard::ReadsZero,
        share: true,
        packed: true,
        ..Capabilities::legacy(12, 8, 512)
    }
}

/// Runs one workload of `commands` commands and judges crash states at one event in `every`.
pub fn run(options: AdversaryOptions, seed: u64, commands: u64, every: u64) -> Findings {
    run_before(options, seed, commands, every, |disk| disk)
}

/// The same with something that stands before the disk.
pub fn run_before(
    options: AdversaryOptions,
    seed: u64,
    commands: u64,
    every: u64,
    stand_before: impl FnOnce(Rc<AdversaryDisk>) -> Rc<dyn Storage>,
) -> Findings {
    let runtime = Runtime::simulated(Simulation { seed, explore: true, cores: None });
    let handle = runtime.handle();
    let findings = Rc::new(RefCell::new(Findings::default()));
    let disk = AdversaryDisk::new(&handle, AdversaryOptions { blocks: BLOCKS, ..options });
    let witness = Witness::new(stand_before(Rc::clone(&disk)), &disk.image());
    watch(&handle, &disk, &witness, &findings, every);
    let work = workload(handle.random("workload"), Rc::clone(&witness) as Rc<dyn Storage>, commands);
    runtime.block_on(work).unwrap();
    drop((disk, witness, runtime));
    Rc::into_inner(findings).expect("the observer is gone with the disk").into_inner()
}

fn watch(
    handle: &Handle,
    disk: &AdversaryDisk,
    witness: &Rc<Witness>,
    findings: &Rc<RefCell<Findings>>,
    every: u64,
) {
    let (witness, findings) = (Rc::downgrade(witness), Rc::clone(findings));
    let random = RefCell::new(handle.random("crash states"));
    disk.observe(Box::new(move |disk| {
        let Some(witness) = witness.upgrade() else { return };
        if random.borrow_mut().below(every) > 0 {
            return;
        }
        let (expectation, states) = (witness.expect(), disk.crash_states());
        let mut findings = findings.borrow_mut();
        let mut judge = |image: weir_storage::Image| {
            findings.judged += 1;
            if findings.distinct.insert(image.hash()) && findings.illegal.is_none() {
                findings.illegal = expectation.judge(&image).err();
            }
        };
        if states.count() <= 32 {
            states.all().for_each(&mut judge);
        } else {
            (0..32).for_each(|_| judge(states.sample(&mut random.borrow_mut())));
        }
        // What reads find is the state in which everything transferred was kept; a prefix device shows
        // transfers out of order of receipt.
        if disk.capabilities().ordering != Ordering::Prefix {
            judge(disk.image());
        }
    }));
}

async fn workload(mut random: Random, storage: Rc<dyn Storage>, commands: u64) {
    let mut tickets: Vec<Ticket> = Vec::new();
    for stamp in 1..=commands {
        let ticket = one(&mut random, &*storage, stamp, &mut tickets).await;
        tickets.push(ticket);
        if random.below(6) == 0 {
            settle(&mut tickets).await;
        }
    }
    settle(&mut tickets).await;
}

/// Waits for everything; failures are the disk's right where faults are on.
async fn settle(tickets: &mut Vec<Ticket>) {
    for ticket in tickets.drain(..) {
        match ticket.transferred().await {
            Ok(()) | Err(StorageError::Device { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

async fn one(random: &mut Random, storage: &dyn Storage, stamp: u64, tickets: &mut Vec<Ticket>) -> Ticket {
    let capabilities = *storage.capabilities();
    let extent = Extent::new(Lba(random.below(BLOCKS - 3)), 1 + random.below(3) as u32);
    let command = match random.below(20) {
        0 | 1 => Command::Flush,
        2 => Command::read(extent),
        3 if capabilities.barriers() => Command::Barrier { stream: StreamId(0) },
        4 if capabilities.discard != Discard::Unsupported => {
            // What it leaves may be what it found: like a share where that is undefined.
            let alone = capabilities.discard == Discard::Undefined;
            return submit(storage, Command::Discard(&[extent]), alone, tickets).await;
        }
        5 if capabilities.share => {
            return submit(storage, Command::Share(&[pair(0, 6), pair(2, 9)]), true, tickets).await;
        }
        6 if capabilities.packed => {
            let (first, second) = (content(stamp, 1), content(stamp + (1 << 32), 2));
            let parts = [Part::bytes(Lba(1), &first), Part::bytes(Lba(4), &second)];
            let barrier = WriteFlags { barrier: capabilities.barriers(), ..WriteFlags::default() };
            let mut writes = [Write { flags: barrier, ..Write::new(&parts[..1]) }, Write::new(&parts[1..])];
            for write in &mut writes {
                write.flags.fua = capabilities.fua && random.below(3) == 0;
            }
            return submit_when_free(storage, Command::Packed(&writes)).await.unwrap();
        }
        _ => {
            let content = content(stamp, extent.blocks);
            let parts = [Part::bytes(extent.start, &content)];
            let (flags, priority) = flags(random, &capabilities);
            let write = Write { flags, priority, ..Write::new(&parts) };
            return submit_when_free(storage, Command::Write(write)).await.unwrap();
        }
    };
    submit_when_free(storage, command).await.unwrap()
}

/// Submits a command, alone if nothing may overlap it (S6): no judge could say what a share found.
async fn submit(
    storage: &dyn Storage,
    command: Command<'_>,
    alone: bool,
    tickets: &mut Vec<Ticket>,
) -> Ticket {
    if alone {
        settle(tickets).await;
    }
    let ticket = submit_when_free(storage, command).await.unwrap();
    if alone {
        tickets.push(ticket.clone());
        settle(tickets).await;
    }
    ticket
}

fn pair(from: u64, to: u64) -> SharePair {
    SharePair { from: Extent::new(Lba(from), 2), to: Lba(to) }
}

/// Content that no other write of the run has, different in every word.
fn content(stamp: u64, blocks: u32) -> Vec<u8> {
    let words = blocks as usize * BLOCK_BYTES / 8;
    (0..words as u64).flat_map(|i| (stamp << 16 | i).to_le_bytes()).collect()
}

fn flags(random: &mut Random, capabilities: &Capabilities) -> (WriteFlags, Priority) {
    let mut one_in = |chances: u64, able: bool| able && random.below(chances) == 0;
    let barrier = one_in(4, capabilities.barriers());
    let flags = WriteFlags {
        barrier,
        fua: one_in(12, capabilities.fua),
        preflush: one_in(12, capabilities.preflush),
        reliable: one_in(8, capabilities.reliable),
    };
    // As the block layer does it: barriers go with ordered priority; now and then something else does.
    let ordered = capabilities.ordered_service && (barrier || random.below(16) == 0);
    (flags, if ordered { Priority::Ordered } else { Priority::Simple })
}

/// Runs seeds until an illegal state is found, `seeds` at most; counts what was seen on the way.
pub fn campaign(options: &AdversaryOptions, seeds: u64, commands: u64) -> Findings {
    campaign_with_looks(options, seeds, commands, 1)
}

/// The same, looking at one event in `every`.
pub fn campaign_with_looks(options: &AdversaryOptions, seeds: u64, commands: u64, every: u64) -> Findings {
    let mut all = Findings::default();
    for seed in 0..seeds {
        let found = run(options.clone(), seed, commands, every);
        all.judged += found.judged;
        all.distinct.extend(found.distinct);
        all.illegal = found.illegal;
        if all.illegal.is_some() {
            break;
        }
    }
    all
}

/// The options of a disk with `capabilities`, correct or not.
pub fn disk(capabilities: Capabilities, mutant: Option<StorageMutant>) -> AdversaryOptions {
    AdversaryOptions {
        capabilities,
        latency_ns_max: 50,
        rules: Rules::but(mutant),
        ..AdversaryOptions::default()
    }
}
