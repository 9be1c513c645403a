//! Power cuts and kills under clients: two connections write, flush and write with FUA, the power is cut or the server killed at
//! events of the disk, and what is left keeps what was answered. The judge knows what was sent and answered, and nothing of the server.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use rand::RngExt as _;
use weir_export::{Export, ExportMutant, ExportOptions, FlushMode};
use weir_runtime::{Handle, Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Extent, Image, Lba, Ordering, Rules, Storage,
    read,
};
use weir_volume::{Completion, Volume, VolumeMutant, VolumeOptions};

use crate::support::{
    Client, FLUSH, FUA, WRITE, export, request, worst_disk, worst_volume, worst_volume_with,
};

/// Blocks that clients write: the even ones by one, the odd ones by the other.
const BLOCKS: u64 = 24;
/// Batches of requests that each client sends.
const BATCHES: usize = 16;
/// Crash states that a run is judged by.
const STATES: usize = 120;

/// What is below the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ground {
    /// A volume on a legacy disk: what is left is a prefix.
    Volume,
    /// A disk with barriers: what is left is epochs.
    Barriers,
    /// A volume that answers from the disk, or a mutant of it, whose server is killed: what is left is what the disk has taken.
    Killed(Option<VolumeMutant>),
}

/// A request that was sent, and when it was answered; moments are numbers that only grow.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// What it wrote; none of a flush. Versions grow with the moments at which they are sent.
    write: Option<(u64, u64)>,
    fua: bool,
    sent: u64,
    answered: Option<u64>,
}

impl Asked {
    fn is_before(&self, other: &Asked) -> bool {
        self.answered.is_some_and(|answered| answered < other.sent)
    }
}

/// What clients did so far.
#[derive(Clone, Default)]
struct History {
    asked: Vec<Asked>,
    moment: u64,
}

impl History {
    fn tick(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    fn send(&mut self, lba: Option<u64>, fua: bool) -> (usize, u64) {
        let sent = self.tick();
        self.asked.push(Asked { write: lba.map(|lba| (lba, sent)), fua, sent, answered: None });
        (self.asked.len() - 1, sent)
    }

    fn answer(&mut self, nth: usize) {
        let now = self.tick();
        self.asked[nth].answered = Some(now);
    }

    /// What is wrong with a state in which the blocks have these versions, if anything is.
    fn judge(&self, versions: &[u64], ground: Ground, mode: FlushMode) -> Result<(), String> {
        let flushes = || self.asked.iter().filter(|asked| asked.write.is_none() && asked.answered.is_some());
        let writes = || self.asked.iter().filter_map(|asked| Some((asked, asked.write?)));
        for (write, (lba, version)) in writes() {
            if versions[lba as usize] >= version {
                continue;
            }
            let lost = format!("version {version} of block {lba} is lost");
            let is_durable =
                flushes().any(|flush| write.is_before(flush)) || write.fua && write.answered.is_some();
            if mode == FlushMode::Durable && is_durable {
                return Err(format!("{lost}, which was durable"));
            }
            if matches!(ground, Ground::Killed(_)) && write.answered.is_some() {
                return Err(format!("{lost}, which the disk should have"));
            }
            for (later, (other, newer)) in
                writes().filter(|(_, (lba, version))| versions[*lba as usize] >= *version)
            {
                let ordered = match ground {
                    Ground::Volume | Ground::Killed(_) => write.is_before(later),
                    Ground::Barriers => {
                        flushes().any(|flush| write.is_before(flush) && flush.is_before(later))
                    }
                };
                if ordered {
                    return Err(format!(
                        "{lost}, though version {newer} of block {other} is later and is there"
                    ));
                }
            }
        }
        Ok(())
    }
}

fn content(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat(BLOCK_BYTES / 8)
}

/// One client: it sends some requests, waits for all replies, and goes on.
async fn play(handle: Handle, client: Client, history: Rc<RefCell<History>>, parity: u64) {
    let mut random = handle.random("client");
    for _ in 0..BATCHES {
        let first = random.random_range(0..BLOCKS / 2);
        let mut asked = Vec::new();
        for nth in 0..random.random_range(1..6_u64) {
            let is_flush = random.random_range(0..6) == 0;
            let fua = !is_flush && random.random_range(0..8) == 0;
            let lba = (first + nth) % (BLOCKS / 2) * 2 + parity;
            let (place, version) = history.borrow_mut().send((!is_flush).then_some(lba), fua);
            let bytes = match is_flush {
                true => request(FLUSH, 0, place as u64, 0, 0),
                false => {
                    let flags = if fua { FUA } else { 0 };
                    let header =
                        request(WRITE, flags, place as u64, lba * BLOCK_BYTES as u64, BLOCK_BYTES as u32);
                    [header, content(version)].concat()
                }
            };
            client.send(&bytes).await;
            asked.push(place);
        }
        for _ in asked {
            let reply = client.reply(0).await;
            assert_eq!(reply.error, 0);
            history.borrow_mut().answer(reply.cookie as usize);
        }
        handle.sleep(Duration::from_micros(random.random_range(0..300))).await;
    }
}

/// The versions of the blocks of a state; a block is of one version as a whole.
fn versions_of(blocks: impl IntoIterator<Item = Vec<u8>>) -> Vec<u64> {
    let version = |block: Vec<u8>| {
        let version = u64::from_le_bytes(block[..8].try_into().unwrap());
        assert_eq!(block, content(version), "a block of two versions");
        version
    };
    blocks.into_iter().map(version).collect()
}

/// What a volume holds that is recovered from a state.
fn recovered(image: &Image) -> Vec<u64> {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let script = async {
        let disk = AdversaryDisk::from_image(&handle, AdversaryOptions::default(), image);
        let volume = Volume::open(&handle, disk, VolumeOptions::default()).await.unwrap();
        let mut blocks = Vec::new();
        for lba in 0..BLOCKS {
            blocks.push(read(&volume, Extent::new(Lba(lba), 1)).await.unwrap().to_vec());
        }
        versions_of(blocks)
    };
    runtime.block_on(script).unwrap()
}

/// What stores the blocks, and the disk whose power is cut.
async fn build(handle: &Handle, ground: Ground) -> (Rc<dyn Storage>, Rc<AdversaryDisk>) {
    match ground {
        Ground::Volume => {
            let (volume, disk) = worst_volume(handle, 2048).await;
            (volume, disk)
        }
        Ground::Killed(mutant) => {
            let rules = Rules::but(mutant);
            let options = VolumeOptions { completion: Completion::Disk, rules, ..VolumeOptions::default() };
            let (volume, disk) = worst_volume_with(handle, 2048, options).await;
            (volume, disk)
        }
        Ground::Barriers => {
            // A tear unit is a block: that a block is not torn is not the server's to keep.
            let legacy = Capabilities::legacy(32, 64, 4096);
            let disk =
                worst_disk(handle, 64, Capabilities { ordering: Ordering::Barrier, fua: true, ..legacy });
            (Rc::clone(&disk) as Rc<dyn Storage>, disk)
        }
    }
}

/// Plays one run and judges what cuts leave; the states, or what is wrong with one.
fn run(seed: u64, ground: Ground, mode: FlushMode, mutant: Option<ExportMutant>) -> Result<usize, String> {
    let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
    let handle = runtime.handle();
    let states = Rc::new(RefCell::new(Vec::new()));
    let script = async {
        let (storage, disk) = build(&handle, ground).await;
        let options = ExportOptions { flush: mode, rules: Rules::but(mutant), ..ExportOptions::default() };
        let export: Rc<Export> = export(storage, options);
        let history = Rc::<RefCell<History>>::default();
        let mut clients = Vec::new();
        for parity in 0..2 {
            let client = Client::new(&handle, &export, false).await;
            clients.push(handle.spawn(play(handle.clone(), client, Rc::clone(&history), parity)));
        }
        let random = RefCell::new(handle.random("cuts"));
        let (kept, seen) = (Rc::clone(&states), Rc::clone(&history));
        disk.observe(Box::new(move |disk| {
            if kept.borrow().len() < STATES {
                let image = match ground {
                    Ground::Killed(_) => disk.image(),
                    _ => disk.crash_states().sample(&mut random.borrow_mut()),
                };
                kept.borrow_mut().push((image, seen.borrow().clone()));
            }
        }));
        for client in clients {
            client.await.unwrap();
        }
        disk.observe(Box::new(|_| ()));
    };
    runtime.block_on(script).unwrap();
    let states = states.take();
    for (image, history) in &states {
        let versions = match ground {
            Ground::Volume | Ground::Killed(_) => recovered(image),
            Ground::Barriers => versions_of((0..BLOCKS).map(|lba| image.read(Lba(lba)).to_vec())),
        };
        history.judge(&versions, ground, mode).map_err(|wrong| format!("seed {seed}: {wrong}"))?;
    }
    Ok(states.len())
}

const KEPT: [(Ground, FlushMode); 6] = [
    (Ground::Volume, FlushMode::Durable),
    (Ground::Volume, FlushMode::Order),
    (Ground::Barriers, FlushMode::Durable),
    (Ground::Barriers, FlushMode::Order),
    (Ground::Killed(None), FlushMode::Durable),
    (Ground::Killed(None), FlushMode::Order),
];

#[test]
fn what_was_answered_is_kept_over_power_cuts_and_kills() {
    for (ground, mode) in KEPT {
        let states: usize = (0..8).map(|seed| run(seed, ground, mode, None).unwrap()).sum();
        assert!(states > 100, "{ground:?}, {mode:?}: {states} states say little");
    }
}

/// Whether one of some runs finds the mutant.
fn is_found(ground: Ground, mode: FlushMode, mutant: ExportMutant) -> bool {
    (0..20).any(|seed| run(seed, ground, mode, Some(mutant)).is_err())
}

#[test]
fn n1_early_answers_are_noticed() {
    for ground in [Ground::Volume, Ground::Barriers] {
        assert!(is_found(ground, FlushMode::Durable, ExportMutant::FlushEarly), "{ground:?}");
        assert!(is_found(ground, FlushMode::Durable, ExportMutant::FuaEarly), "{ground:?}");
    }
}

#[test]
fn n2_a_flush_that_orders_nothing_is_noticed() {
    assert!(is_found(Ground::Barriers, FlushMode::Order, ExportMutant::OrderSkipped));
}

#[test]
fn n4_an_answer_before_the_disk_has_the_change_is_noticed() {
    let mutant = Some(VolumeMutant::AnswersFromMemory);
    assert!((0..20).any(|seed| run(seed, Ground::Killed(mutant), FlushMode::Order, None).is_err()));
}

/// A flush on one connection covers what was answered on another: `NBD_FLAG_CAN_MULTI_CONN`.
#[test]
fn a_flush_covers_the_writes_of_other_connections() {
    let left = |mutant| {
        let runtime = Runtime::simulated(Simulation::default());
        let handle = runtime.handle();
        let script = async {
            let (volume, disk) = worst_volume(&handle, 2048).await;
            let options = ExportOptions { rules: Rules::but(mutant), ..ExportOptions::default() };
            let export = export(volume, options);
            let writers =
                [Client::new(&handle, &export, false).await, Client::new(&handle, &export, true).await];
            for lba in 0..BLOCKS {
                let writer = &writers[lba as usize % 2];
                writer.writes(lba * BLOCK_BYTES as u64, &content(lba + 1), 0).await;
            }
            let other = Client::new(&handle, &export, true).await;
            assert_eq!(other.error(FLUSH, 0, 0, 0).await, 0);
            disk.crash_states()
        };
        let states = runtime.block_on(script).unwrap();
        states.all().take(50).map(|image| recovered(&image)).collect::<Vec<_>>()
    };
    let all: Vec<u64> = (1..=BLOCKS).collect();
    assert!(left(None).iter().all(|versions| *versions == all));
    assert!(left(Some(ExportMutant::FlushEarly)).iter().any(|versions| *versions != all));
}
