//! V8: two hosts that share a disk, over a network that delays what it carries. A volume has one owner, and whatever an owner
//! has acknowledged stays. There is no lock here that both hosts see.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use rand::RngExt as _;
use weir_runtime::{Buffer, Event, Handle, Random, Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Command, Extent, Lba, Opener, Part, Rejected,
    Rules, Standing, Storage, StorageError, Ticket, Write, flush, read, submit_when_free, write,
};
use weir_volume::{Format, Volume, VolumeError, VolumeMutant, VolumeOptions, inspect, upgrade};

const SMALL: Format = Format { logical_blocks: 0, segment_blocks: 8, overwrite: false, slots: 0 };
/// Rounds of two owners; the long run takes more.
const ROUNDS: u64 = 50;
/// What the rule allows a write for its way, with some to spare.
const WRITE_DELAY_MAX: Duration = Duration::from_millis(400);

/// How long commands of a host are on their way, and their answers.
#[derive(Clone, Copy)]
struct Network {
    /// Of any command.
    usual: Duration,
    /// Of a read or a flush, and of any answer, from one moment on.
    stall: Duration,
}

const FAST: Network = Network { usual: Duration::ZERO, stall: Duration::ZERO };

/// A shared disk as one host sees it.
struct Host {
    handle: Handle,
    disk: Rc<AdversaryDisk>,
    network: Cell<Network>,
    random: RefCell<Random>,
    opener: Opener,
    standing: Standing,
}

fn opener(host: u8) -> Opener {
    let mut name = [0; 64];
    name[0] = b'a' + host;
    Opener {
        boot: u128::from(host),
        device: 1,
        inode: 2,
        namespace: 3,
        process: 100 + u32::from(host),
        began: 4,
        host: name,
    }
}

impl Host {
    fn new(handle: &Handle, disk: &Rc<AdversaryDisk>, number: u8) -> Rc<Host> {
        Host::that_knows(handle, disk, number, Standing::Unknown)
    }

    /// One that knows this of the others.
    fn that_knows(handle: &Handle, disk: &Rc<AdversaryDisk>, number: u8, standing: Standing) -> Rc<Host> {
        Rc::new(Host {
            handle: handle.clone(),
            disk: Rc::clone(disk),
            network: Cell::new(FAST),
            random: RefCell::new(handle.random(&format!("network of host {number}"))),
            opener: opener(number),
            standing,
        })
    }

    fn delay(&self, most: Duration) -> Duration {
        most.mul_f64(self.random.borrow_mut().random_range(0.0..=1.0))
    }
}

impl Storage for Host {
    fn blocks(&self) -> u64 {
        self.disk.blocks()
    }

    fn capabilities(&self) -> &Capabilities {
        self.disk.capabilities()
    }

    fn submit(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        let Network { usual, stall } = self.network.get();
        let (there, back) = match &command {
            Command::Write(_) => (usual.min(WRITE_DELAY_MAX), usual.max(stall)),
            _ => (usual.max(stall), usual.max(stall)),
        };
        let (there, back) = (self.delay(there), self.delay(back));
        let (ticket, completer) = Ticket::pending();
        let (handle, disk) = (self.handle.clone(), Rc::clone(&self.disk));
        let written: Option<Vec<(Lba, Vec<u8>)>> = match &command {
            Command::Write(write) => {
                Some(write.parts.iter().map(|part| (part.start, part.data.bytes().to_vec())).collect())
            }
            _ => None,
        };
        let extent = match command {
            Command::Read { extent, .. } => Some(extent),
            _ => None,
        };
        drop(self.handle.spawn(async move {
            handle.sleep(there).await;
            let below = match (&written, extent) {
                (Some(parts), _) => {
                    let parts: Vec<_> = parts.iter().map(|(at, bytes)| Part::bytes(*at, bytes)).collect();
                    submit_when_free(&*disk, Command::Write(Write::new(&parts))).await
                }
                (_, Some(extent)) => submit_when_free(&*disk, Command::read(extent)).await,
                _ => submit_when_free(&*disk, Command::Flush).await,
            };
            let below = below.unwrap();
            let outcome = below.transferred().await;
            handle.sleep(back).await;
            if let Some(data) = below.take_data() {
                completer.data(data);
            }
            completer.finish(outcome, outcome);
        }));
        Ok(ticket)
    }

    fn slots(&self) -> &Event {
        self.disk.slots()
    }

    fn allocate(&self, bytes: usize) -> Buffer {
        self.disk.allocate(bytes)
    }

    fn opener(&self) -> Option<Opener> {
        Some(self.opener)
    }

    fn standing(&self, _other: &Opener) -> Standing {
        self.standing
    }
}

fn disk(handle: &Handle) -> Rc<AdversaryDisk> {
    let capabilities = Capabilities::legacy(256, 64, 512);
    AdversaryDisk::new(handle, AdversaryOptions { blocks: 4096, capabilities, ..AdversaryOptions::default() })
}

fn options(mutant: Option<VolumeMutant>) -> VolumeOptions {
    VolumeOptions { rules: Rules::but(mutant), ..VolumeOptions::default() }
}

fn block(lba: u64, version: u64) -> Vec<u8> {
    let mut block = vec![lba as u8; BLOCK_BYTES];
    block[..8].copy_from_slice(&version.to_le_bytes());
    block
}

/// What was acknowledged as durable: the version of each block.
type Acknowledged = Rc<RefCell<Vec<(u64, u64)>>>;

/// Writes and flushes until it fails or the time is over; whether it failed.
async fn work(
    handle: &Handle,
    volume: &Volume,
    first: u64,
    acknowledged: &Acknowledged,
    ends: Duration,
) -> bool {
    let began = handle.now();
    for turn in 0.. {
        let (lba, version) = (first + turn % 40, 1 + turn);
        let written = async {
            write(volume, Part::bytes(Lba(lba), &block(lba, version))).await?;
            flush(volume).await
        };
        match written.await {
            Ok(()) => acknowledged.borrow_mut().push((lba, version)),
            Err(_) => return true,
        }
        handle.sleep(Duration::from_millis(7)).await;
        if handle.now().since(began) > ends {
            return false;
        }
    }
    false
}

/// Whether all that was acknowledged is there, in a volume that nobody has open any more.
async fn has_all(handle: &Handle, disk: &Rc<AdversaryDisk>, acknowledged: &Acknowledged) -> bool {
    let host = Host::that_knows(handle, disk, 9, Standing::Ended);
    let Ok(volume) = Volume::open(handle, host, VolumeOptions::default()).await else { return false };
    let acknowledged = acknowledged.borrow().clone();
    for (lba, version) in acknowledged {
        let Ok(found) = read(&volume, Extent::new(Lba(lba), 1)).await else { return false };
        let mut newest = [0; 8];
        newest.copy_from_slice(&found[..8]);
        if u64::from_le_bytes(newest) < version {
            return false;
        }
    }
    volume.close().await.is_ok()
}

/// How a round ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The second host was refused, and the first one worked on.
    Refused,
    /// The first host stopped, and the second one worked on.
    TakenOver,
    /// Something that had been acknowledged is lost.
    Lost,
}

/// One host works; its network becomes slow at some moment, or not; and a second host opens the volume at another.
fn round(seed: u64, mutant: Option<VolumeMutant>) -> End {
    let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
    let handle = runtime.handle();
    let mut random = handle.random("round");
    let stall = [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(20)]
        [random.random_range(0..4)];
    let usual = Duration::from_millis([0, 1, 50, 400][random.random_range(0..4)]);
    let (stalls_at, opens_at) = (random.random_range(0..3000), random.random_range(0..4000));
    runtime
        .block_on(async {
            let disk = disk(&handle);
            let (one, two) = (Host::new(&handle, &disk, 1), Host::new(&handle, &disk, 2));
            Volume::create(&handle, &*one, SMALL).await.unwrap();
            let acknowledged = Acknowledged::default();
            let first = Volume::open(&handle, one.clone(), options(mutant)).await.unwrap();
            one.network.set(Network { usual, stall: Duration::ZERO });
            let worker = {
                let (handle, acknowledged) = (handle.clone(), Rc::clone(&acknowledged));
                let clock = handle.clone();
                handle.spawn(
                    async move { work(&clock, &first, 0, &acknowledged, Duration::from_secs(25)).await },
                )
            };
            let slow = {
                let (clock, one) = (handle.clone(), one.clone());
                handle.spawn(async move {
                    clock.sleep(Duration::from_millis(stalls_at)).await;
                    one.network.set(Network { usual, stall });
                })
            };
            handle.sleep(Duration::from_millis(opens_at)).await;
            let opened = Volume::open(&handle, two, options(mutant)).await;
            let second_works = match &opened {
                Ok(volume) => !work(&handle, volume, 100, &acknowledged, Duration::from_secs(5)).await,
                Err(VolumeError::OpenElsewhere(opener)) => {
                    assert_eq!((opener.host_name().as_str(), opener.process), ("b", 101));
                    false
                }
                Err(_) => false,
            };
            slow.await.unwrap();
            let first_failed = worker.await.unwrap();
            if let Ok(volume) = opened {
                let _ = volume.close().await;
            }
            // Whatever is still on its way arrives.
            handle.sleep(Duration::from_secs(30)).await;
            match (has_all(&handle, &disk, &acknowledged).await, second_works) {
                (false, _) => End::Lost,
                (true, true) => {
                    assert!(first_failed, "seed {seed}: two owners");
                    End::TakenOver
                }
                (true, false) => End::Refused,
            }
        })
        .unwrap()
}

#[test]
fn v8_the_second_owner_is_refused_or_the_first_one_stops() {
    let ends: Vec<End> = (0..ROUNDS).map(|seed| round(seed, None)).collect();
    let count = |end| ends.iter().filter(|found| **found == end).count();
    assert_eq!(count(End::Lost), 0, "{ends:?}");
    assert!(count(End::Refused) > 5 && count(End::TakenOver) > 2, "{ends:?}");
}

#[test]
fn v8_an_owner_that_does_not_look_at_its_claim() {
    assert!((0..ROUNDS).any(|seed| dies(|| round(seed, Some(VolumeMutant::LeaseUnchecked)))));
}

#[test]
fn v8_an_opener_that_waits_for_no_answer() {
    assert!((0..ROUNDS).any(|seed| dies(|| round(seed, Some(VolumeMutant::ClaimNotAwaited)))));
}

/// Whether a round loses something, or two owners go on. Another surprise proves nothing.
fn dies(round: impl FnOnce() -> End) -> bool {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(round)) {
        Ok(end) => end == End::Lost,
        Err(panic) => panic.downcast_ref::<String>().is_some_and(|why| why.contains("two owners")),
    }
}

/// Two hosts open a volume that is closed at the same time; how many of them have it then, and are content.
fn opened_at_once(seed: u64, mutant: Option<VolumeMutant>) -> usize {
    let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
    let handle = runtime.handle();
    runtime
        .block_on(async {
            let disk = disk(&handle);
            let hosts = [1, 2].map(|number| Host::new(&handle, &disk, number));
            Volume::create(&handle, &*hosts[0], SMALL).await.unwrap();
            let tasks = hosts.map(|host| {
                host.network.set(Network { usual: Duration::from_millis(30), stall: Duration::ZERO });
                let clock = handle.clone();
                handle.spawn(async move { Volume::open(&clock, host, options(mutant)).await })
            });
            let mut opened = Vec::new();
            for task in tasks {
                opened.extend(task.await.unwrap().ok());
            }
            let mut content = 0;
            for volume in &opened {
                content += usize::from(flush(volume).await.is_ok());
            }
            content
        })
        .unwrap()
}

#[test]
fn v8_of_two_openers_one_has_the_volume() {
    let owners: Vec<usize> = (0..ROUNDS).map(|seed| opened_at_once(seed, None)).collect();
    assert!(owners.iter().all(|owners| *owners <= 1), "{owners:?}");
    assert!(owners.iter().filter(|owners| **owners == 1).count() > 5, "{owners:?}");
}

#[test]
fn v8_openers_that_do_not_look_again() {
    let both = |seed| opened_at_once(seed, Some(VolumeMutant::ClaimNotReread)) > 1;
    assert!((0..ROUNDS).any(both));
}

/// Runs a test in virtual time, with a disk that holds nothing.
fn on_a_disk(seed: u64, test: impl AsyncFnOnce(Handle, Rc<AdversaryDisk>)) {
    let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
    let handle = runtime.handle();
    let disk = disk(&handle);
    runtime.block_on(test(handle, disk)).unwrap();
}

#[test]
fn how_long_opening_takes_depends_on_what_is_known_of_the_last_owner() {
    on_a_disk(3, async |handle, disk| {
        let stranger = Host::new(&handle, &disk, 1);
        Volume::create(&handle, &*stranger, SMALL).await.unwrap();
        let opens = async |host: Rc<Host>, options| {
            let began = handle.now();
            let opened = Volume::open(&handle, host, options).await;
            (opened, handle.now().since(began))
        };
        let (volume, took) = opens(stranger.clone(), VolumeOptions::default()).await;
        assert!(took < Duration::from_millis(500), "nobody has it: {took:?}");
        volume.unwrap().close().await.unwrap();
        let (volume, took) = opens(stranger.clone(), VolumeOptions::default()).await;
        assert!(took < Duration::from_millis(500), "it was closed: {took:?}");
        drop(volume);
        assert_eq!(inspect(&*disk).await.unwrap().opener, Some(opener(1)));
        let same = Host::that_knows(&handle, &disk, 1, Standing::Ended);
        let (volume, took) = opens(same, VolumeOptions::default()).await;
        assert!(took < Duration::from_millis(500), "its owner has ended: {took:?}");
        drop(volume);
        let (volume, took) = opens(stranger.clone(), VolumeOptions::default()).await;
        assert!(took > Duration::from_millis(1900) && took < Duration::from_millis(2500), "{took:?}");
        drop(volume);
        // A copy of a volume whose owner runs.
        let beside = Host::that_knows(&handle, &disk, 1, Standing::Running);
        let (volume, _) = opens(beside.clone(), VolumeOptions::default()).await;
        assert!(matches!(volume, Err(VolumeError::CopyOfOpen(_))), "{:?}", volume.err());
        let after_crash = VolumeOptions { after_crash: true, ..VolumeOptions::default() };
        let (volume, _) = opens(beside.clone(), after_crash.clone()).await;
        let volume = volume.unwrap();
        // The same by another path, which is no copy.
        let (second, _) = opens(beside, after_crash).await;
        assert!(matches!(second, Err(VolumeError::OpenElsewhere(_))), "{:?}", second.err());
        volume.close().await.unwrap();
        assert_eq!(inspect(&*disk).await.unwrap().opener, None);
    });
}

#[test]
fn a_disk_that_does_not_answer_for_long_costs_time_and_nothing_else() {
    on_a_disk(4, async |handle, disk| {
        let host = Host::new(&handle, &disk, 1);
        Volume::create(&handle, &*host, SMALL).await.unwrap();
        let volume = Volume::open(&handle, host.clone(), VolumeOptions::default()).await.unwrap();
        let acknowledged = Acknowledged::default();
        for _ in 0..5 {
            host.network.set(Network { usual: Duration::ZERO, stall: Duration::from_secs(10) });
            assert!(!work(&handle, &volume, 0, &acknowledged, Duration::from_secs(4)).await);
            host.network.set(FAST);
            assert!(!work(&handle, &volume, 0, &acknowledged, Duration::from_secs(4)).await);
        }
        // Another one makes a new volume there, while this one cannot answer.
        let other = Host::new(&handle, &disk, 2);
        host.network.set(Network { usual: Duration::from_secs(30), stall: Duration::from_secs(30) });
        handle.sleep(Duration::from_secs(2)).await;
        Volume::create(&handle, &*other, Format { overwrite: true, ..SMALL }).await.unwrap();
        host.network.set(FAST);
        handle.sleep(Duration::from_secs(60)).await;
        assert_eq!(flush(&volume).await, Err(Rejected::Failed(StorageError::TakenOver)));
    });
}

#[test]
fn a_volume_without_a_claim_gets_one_by_an_upgrade() {
    on_a_disk(5, async |handle, disk| {
        // By a program that knew no claims, or where nobody else can come.
        Volume::create(&handle, &*disk, SMALL).await.unwrap();
        let host = Host::new(&handle, &disk, 1);
        let volume = Volume::open(&handle, host.clone(), VolumeOptions::default()).await.unwrap();
        write(&volume, Part::bytes(Lba(3), &block(3, 1))).await.unwrap();
        assert_eq!(inspect(&*disk).await.unwrap().opener, None);
        volume.close().await.unwrap();
        assert!(upgrade(&handle, host.clone()).await.unwrap());
        assert!(!upgrade(&handle, host.clone()).await.unwrap(), "once is enough");
        let volume = Volume::open(&handle, host, VolumeOptions::default()).await.unwrap();
        assert_eq!(inspect(&*disk).await.unwrap().opener, Some(opener(1)));
        assert_eq!(read(&volume, Extent::new(Lba(3), 1)).await.unwrap()[..], block(3, 1)[..]);
        volume.close().await.unwrap();
    });
}

#[test]
fn v8_a_volume_that_is_open_is_not_made_anew_or_upgraded() {
    on_a_disk(6, async |handle, disk| {
        let host = Host::new(&handle, &disk, 1);
        Volume::create(&handle, &*host, SMALL).await.unwrap();
        let volume = Volume::open(&handle, host, VolumeOptions::default()).await.unwrap();
        write(&volume, Part::bytes(Lba(3), &block(3, 1))).await.unwrap();
        flush(&volume).await.unwrap();
        // So that there is something to upgrade.
        write(&*disk, Part::bytes(Lba(1), &[7; BLOCK_BYTES])).await.unwrap();
        for standing in [Standing::Unknown, Standing::Running] {
            let other = Host::that_knows(&handle, &disk, 2, standing);
            let made = Volume::create(&handle, &*other, Format { overwrite: true, ..SMALL }).await;
            assert!(matches!(made, Err(VolumeError::OpenElsewhere(_))), "{made:?}");
            let upgraded = upgrade(&handle, other).await;
            assert!(
                matches!(upgraded, Err(VolumeError::OpenElsewhere(_) | VolumeError::CopyOfOpen(_))),
                "{upgraded:?}"
            );
        }
        assert_eq!(read(&volume, Extent::new(Lba(3), 1)).await.unwrap()[..], block(3, 1)[..]);
        volume.close().await.unwrap();
        let other = Host::new(&handle, &disk, 2);
        upgrade(&handle, other.clone()).await.unwrap();
        assert_eq!(inspect(&*disk).await.unwrap().opener, None, "the claim is given up");
        Volume::create(&handle, &*other, Format { overwrite: true, ..SMALL }).await.unwrap();
    });
}

#[test]
fn a_step_of_the_date_takes_no_volume_away() {
    on_a_disk(7, async |handle, disk| {
        let (one, two) = (Host::new(&handle, &disk, 1), Host::new(&handle, &disk, 2));
        Volume::create(&handle, &*one, SMALL).await.unwrap();
        let volume = Volume::open(&handle, one, VolumeOptions::default()).await.unwrap();
        for step in [3_600_000_000_000, -7_200_000_000_000] {
            let (clock, two) = (handle.clone(), two.clone());
            let opening = handle
                .spawn(async move { Volume::open(&clock, two, VolumeOptions::default()).await.map(drop) });
            handle.sleep(Duration::from_millis(1)).await;
            handle.step_wall_clock(step);
            let refused = opening.await.unwrap();
            assert!(matches!(refused, Err(VolumeError::OpenElsewhere(_))), "{refused:?}");
            flush(&volume).await.unwrap();
        }
        volume.close().await.unwrap();
    });
}
