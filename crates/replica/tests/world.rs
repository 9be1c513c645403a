//! A volume on the worst disk, a simulated store, and what the volume was asked for: the content after each request.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use weir_replica::{
    EncryptionKey, Replica, ReplicaError, ReplicaOptions, ReplicaStorage, Restored, SimulatedStore,
    StoreFaults, Uploader, WantedState,
};
use weir_runtime::{Handle, Random, Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Command, Discard, Extent, Lba, Part, Rules,
    SharePair, Storage, flush, read, submit_when_free, write,
};
use weir_volume::{Format, TapBounds, Volume, VolumeMutant, VolumeOptions};

/// Logical blocks that are used.
pub const BLOCKS: u32 = 48;

/// A store that is slow, and nothing else is wrong with it.
pub const LATENCY: StoreFaults = StoreFaults {
    delay_max: Duration::from_millis(40),
    lost_answers: 0,
    lost_requests: 0,
    repeated: 0,
    list_age: Duration::ZERO,
    ignores_condition: false,
};

/// What each block holds: the number of the write, 0 for zeros.
pub type Content = BTreeMap<u32, u64>;

pub struct World {
    pub handle: Handle,
    pub store: SimulatedStore,
    pub disk: Rc<AdversaryDisk>,
    pub volume: Rc<Volume>,
    pub random: Random,
    pub content: Content,
    /// The content after each request, by its sequence number.
    pub history: BTreeMap<u64, Content>,
    writes: u64,
}

/// Bounds that no test reaches that ships now and then.
pub fn bounds() -> TapBounds {
    TapBounds { bytes: 1 << 24, time: Duration::from_secs(3600), never_wait: false }
}

pub fn options() -> ReplicaOptions {
    ReplicaOptions { object_bytes: 6 * BLOCK_BYTES, patience: None, ..ReplicaOptions::default() }
}

pub fn page(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(BLOCK_BYTES / 8)
}

/// Runs a test in virtual time.
pub fn simulate<F: Future>(seed: u64, test: impl FnOnce(Handle) -> F) -> F::Output {
    let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
    let handle = runtime.handle();
    runtime.block_on(test(handle)).unwrap()
}

pub fn disk_options() -> AdversaryOptions {
    AdversaryOptions { blocks: 512, latency_ns_max: 20_000, ..AdversaryOptions::default() }
}

pub async fn make_volume(handle: &Handle, disk: &Rc<AdversaryDisk>) -> Rc<Volume> {
    let format = Format { segment_blocks: 8, logical_blocks: 120, ..Format::default() };
    Volume::create(handle, &**disk, format).await.unwrap();
    Rc::new(Volume::open(handle, disk.clone(), VolumeOptions::default()).await.unwrap())
}

impl World {
    pub async fn new(handle: &Handle, faults: StoreFaults) -> World {
        let store = SimulatedStore::new(handle, faults);
        let disk = AdversaryDisk::new(handle, disk_options());
        let volume = make_volume(handle, &disk).await;
        let random = handle.random("workload");
        let history = BTreeMap::from([(0, Content::new())]);
        let (handle, content) = (handle.clone(), Content::new());
        World { handle, store, disk, volume, random, content, history, writes: 0 }
    }

    /// Opens the volume again, with a rule dropped.
    pub async fn break_rule(&mut self, mutant: VolumeMutant) {
        self.volume.close().await.unwrap();
        let options = VolumeOptions { rules: Rules::but(Some(mutant)), ..VolumeOptions::default() };
        let opened = Volume::open(&self.handle, self.disk.clone(), options).await;
        self.volume = Rc::new(opened.unwrap());
    }

    pub async fn uploader(&self, options: ReplicaOptions) -> Result<Uploader, ReplicaError> {
        let store = Rc::new(self.store.clone());
        Uploader::open(&self.handle, Rc::clone(&self.volume), store, bounds(), options).await
    }

    /// Writes `blocks` blocks from `lba` on, in one request.
    pub async fn write(&mut self, lba: u32, blocks: u32) {
        self.writes += 1;
        let data = page(self.writes).repeat(blocks as usize);
        write(&*self.volume, Part::bytes(Lba(u64::from(lba)), &data)).await.unwrap();
        self.content.extend((lba..lba + blocks).map(|lba| (lba, self.writes)));
        self.note();
    }

    pub async fn discard(&mut self, lba: u32, blocks: u32) {
        let extent = [Extent::new(Lba(u64::from(lba)), blocks)];
        submit_when_free(&*self.volume, Command::Discard(&extent)).await.unwrap();
        self.content.retain(|at, _| !(lba..lba + blocks).contains(at));
        self.note();
    }

    /// Lets the first of each pair read what the second does.
    pub async fn share(&mut self, pairs: &[(u32, u32)]) {
        let of = |(to, from): &(u32, u32)| SharePair {
            from: Extent::new(Lba(u64::from(*from)), 1),
            to: Lba(u64::from(*to)),
        };
        let command: Vec<SharePair> = pairs.iter().map(of).collect();
        submit_when_free(&*self.volume, Command::Share(&command)).await.unwrap();
        let found: Vec<Option<u64>> = pairs.iter().map(|(_, from)| self.content.get(from).copied()).collect();
        for ((to, _), found) in pairs.iter().zip(found) {
            self.content.remove(to);
            self.content.extend(found.map(|found| (*to, found)));
        }
        self.note();
    }

    fn note(&mut self) {
        self.history.insert(self.volume.position().placed, self.content.clone());
    }

    pub async fn flush(&self) {
        flush(&*self.volume).await.unwrap();
    }

    /// Some requests of all kinds.
    pub async fn play(&mut self, steps: u64) {
        for _ in 0..steps {
            let lba = self.random.below(u64::from(BLOCKS) - 4) as u32;
            match self.random.below(12) {
                0..6 => {
                    let blocks = self.random.below(4) as u32 + 1;
                    self.write(lba, blocks).await;
                }
                6..8 => self.discard(lba, 3).await,
                8..10 => {
                    let from = self.random.below(u64::from(BLOCKS)) as u32;
                    if from != lba {
                        self.share(&[(lba, from), (lba + 1, lba)]).await;
                    }
                }
                10 => self.flush().await,
                _ => self.handle.sleep(Duration::from_millis(self.random.below(400))).await,
            }
        }
    }

    pub async fn replica(&self, options: ReplicaOptions) -> Result<Replica, ReplicaError> {
        Replica::open(&self.handle, Rc::new(self.store.clone()), options).await
    }

    /// Opens a state to be read block by block.
    pub async fn mounted(
        &self,
        options: ReplicaOptions,
        wanted: WantedState,
        cache_bytes: usize,
    ) -> Result<ReplicaStorage, ReplicaError> {
        self.replica(options).await?.open_storage(&self.handle, wanted, cache_bytes).await
    }

    /// Restores a state, and reads it.
    pub async fn restore(&self, wanted: WantedState) -> Result<(Restored, Content), ReplicaError> {
        restore(&self.handle, &self.replica(options()).await?, wanted).await
    }

    /// What was there after a request, or after the one before if that is none of a user.
    pub fn content_at(&self, sequence: u64) -> &Content {
        self.history.range(..=sequence).next_back().unwrap().1
    }
}

pub async fn restore(
    handle: &Handle,
    replica: &Replica,
    wanted: WantedState,
) -> Result<(Restored, Content), ReplicaError> {
    let (restored, target) = restore_disk(handle, replica, wanted).await?;
    Ok((restored, content_of(&*target).await))
}

/// Restores a state to a disk.
pub async fn restore_disk(
    handle: &Handle,
    replica: &Replica,
    wanted: WantedState,
) -> Result<(Restored, Rc<AdversaryDisk>), ReplicaError> {
    let capabilities = Capabilities {
        discard: Discard::ReadsZero,
        share: true,
        ..Capabilities::legacy(8, 4, BLOCK_BYTES as u32)
    };
    let options = AdversaryOptions { blocks: 120, capabilities, ..AdversaryOptions::default() };
    let target = AdversaryDisk::new(handle, options);
    let restored = replica.restore(wanted, &*target).await?;
    Ok((restored, target))
}

/// Reads everything that is used. A block that is neither zeros nor one write is none of ours.
pub async fn content_of(storage: &dyn Storage) -> Content {
    let mut content = Content::new();
    for lba in 0..BLOCKS {
        let block = read(storage, Extent::new(Lba(u64::from(lba)), 1)).await.unwrap();
        let number = u64::from_le_bytes(block[..8].try_into().unwrap());
        assert!(block[..] == page(number)[..], "block {lba} is torn");
        if number != 0 {
            content.insert(lba, number);
        }
    }
    content
}

pub fn key(digit: &str) -> Option<EncryptionKey> {
    EncryptionKey::from_hex(&digit.repeat(64))
}
