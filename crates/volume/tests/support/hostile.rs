//! Hostile volumes: small ones with something of every structure in them, edits of any of them under good checksums,
//! and a life with what comes of that: a check, an opening, reads, writes, and another opening.
//!
//! It needs nothing of its crate, so that the fuzz target (fuzz/) compiles it too. It knows the format by docs/format/volume.md, and
//! shares no code with what it tries.

#![allow(dead_code, reason = "each caller uses a part of it")]

#[path = "../../../storage/tests/support/trial.rs"]
pub mod trial;

use std::collections::BTreeMap;
use std::rc::Rc;

use weir_runtime::Handle;
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Command, Discard, Extent, Image, Lba, Part,
    Rejected, SharePair, Storage, StorageError, StreamId, flush, read, submit_when_free, write,
};
use weir_volume::{Format, Volume, VolumeError, VolumeOptions, check, inspect};

use trial::{run, within_memory};

/// Blocks of the disks.
const BLOCKS: u64 = 320;
/// Blocks of a segment.
const SEGMENT: u32 = 8;
/// The longest list of edits.
const EDITS_MAX: usize = 16;
/// Bytes that encode one of them.
const EDIT_BYTES: usize = 7;
/// Blocks that a life reads of what was there.
const READ_MAX: u64 = 400;
/// Requests of a life that change something: more than the log has room for.
const CHANGES: u64 = 320;
/// Of so many one is a discard, and behind so many comes a flush.
const DISCARD_EVERY: u64 = 19;
const FLUSH_EVERY: u64 = 50;
/// Before so many comes a share.
const SHARE_EVERY: u64 = 7;

/// Places of fields, as the format has them.
const SUPERBLOCK_SUM: usize = 12;
const CHECKPOINT_MAP_SUM: usize = 40;
const CHECKPOINT_RUNWAY: usize = 52;
const CHECKPOINT_SUM: usize = 60;
const CHECKPOINT_HEAD: usize = 64;
const PAGE_ENTRIES: usize = 510;
const PAGE_SUM: usize = 4092;
const CHUNK_SUM: usize = 4;
const CHUNK_ENTRIES: usize = 48;
const CHUNK_HEAD: usize = 64;
const ENTRY: usize = 12;

/// Of a map entry's block: its names are listed.
pub const SHARED: u32 = 1 << 31;
/// A share, among the kinds of entries.
const SHARE: u64 = 3;

/// What a block is, and so how it is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Superblock,
    Checkpoint,
    MapPage,
    Chunk,
    /// The block that an entry of a chunk brought.
    Data {
        chunk: u64,
        entry: usize,
    },
}

/// A sound volume, and what each of its blocks is.
pub struct Seed {
    pub image: Image,
    pub kinds: BTreeMap<u64, Kind>,
    map_start: u64,
    map_pages: u64,
    /// The map's entries that name a block: the map page's block, and which entry.
    named: BTreeMap<u64, Vec<(u64, usize)>>,
}

fn number(bytes: &[u8], at: usize, width: usize) -> u64 {
    let mut number = [0; 8];
    number[..width].copy_from_slice(&bytes[at..at + width]);
    u64::from_le_bytes(number)
}

impl Seed {
    /// As it was made.
    pub fn fresh() -> Seed {
        Seed::of(made(0, true, async |_| {}))
    }

    /// Written, overwritten and discarded, and closed.
    pub fn closed() -> Seed {
        Seed::of(made(0, true, live_well))
    }

    /// The same after a crash: with a log to replay, part of which was durable.
    pub fn crashed() -> Seed {
        Seed::of(made(0, false, live_well))
    }

    /// One that shows more than it holds, so that its map has many pages, after a crash.
    pub fn thin() -> Seed {
        Seed::of(made(8000, false, async |volume| {
            for lba in 0..40 {
                put(volume, lba * 199, 1 + lba as u8).await;
            }
            volume.checkpoint().await.expect("a checkpoint");
            for lba in 0..20 {
                put(volume, lba * 399, 100 + lba as u8).await;
            }
            flush(volume).await.expect("flushed");
        }))
    }

    /// One with shares, in a checkpoint and behind it, after a crash.
    pub fn shared() -> Seed {
        Seed::of(made(0, false, async |volume| {
            live_well(volume).await;
            for turn in 0..12 {
                share(volume, &[pair(turn, 20 + turn), pair(turn, 60 + turn), pair(60 + turn, turn)]).await;
            }
            volume.checkpoint().await.expect("a checkpoint");
            for turn in 0..12 {
                share(volume, &[pair(60 + turn, 70 + turn), pair(turn, 71 + turn)]).await;
                put(volume, turn, 200 + turn as u8).await;
            }
            flush(volume).await.expect("flushed");
        }))
    }

    fn of(image: Image) -> Seed {
        let superblock = image.read(Lba(0));
        let field = |at, width| number(&superblock, at, width);
        let (checkpoint_blocks, map_pages, map_start) = (field(56, 4), field(60, 4), field(64, 8));
        assert_eq!(checkpoint_blocks, 1, "the seals of longer ones are not made here");
        let mut seed = Seed { image, kinds: BTreeMap::new(), map_start, map_pages, named: BTreeMap::new() };
        for block in [0, 1] {
            seed.kinds.insert(block, Kind::Superblock);
            seed.kinds.insert(2 + block, Kind::Checkpoint);
        }
        for block in map_start..map_start + 2 * map_pages {
            seed.find_page(block);
        }
        for segment in 0..field(44, 4) {
            seed.find_chunks(field(72, 8) + segment * u64::from(SEGMENT));
        }
        seed
    }

    fn find_page(&mut self, block: u64) {
        let bytes = self.image.read(Lba(block));
        if bytes.iter().all(|byte| *byte == 0) {
            return;
        }
        self.kinds.insert(block, Kind::MapPage);
        for entry in 0..PAGE_ENTRIES {
            let named = number(&bytes, 8 * entry, 4) & u64::from(!SHARED);
            if named != 0 {
                self.named.entry(named).or_default().push((block, entry));
            }
        }
    }

    /// All that looks like a chunk in a segment, those of past lives, too.
    fn find_chunks(&mut self, segment: u64) {
        let mut block = segment;
        while block < segment + u64::from(SEGMENT) {
            let bytes = self.image.read(Lba(block));
            let chunk = block;
            block += 1;
            if bytes[..4] != *b"WCHK" {
                continue;
            }
            self.kinds.insert(chunk, Kind::Chunk);
            for entry in 0..number(&bytes, CHUNK_ENTRIES, 2) as usize {
                if number(&bytes, CHUNK_HEAD + ENTRY * entry + 8, 4) & 0x7FFF_FFFF == 1 {
                    self.kinds.insert(block, Kind::Data { chunk, entry });
                    block += 1;
                }
            }
        }
    }

    /// The bytes of all entries that are shares: the block, and where in it.
    pub fn shares(&self) -> Vec<(u64, usize)> {
        let chunks = self.blocks(|kind| kind == Kind::Chunk).into_iter();
        let entries = chunks.flat_map(|chunk| {
            let bytes = self.image.read(Lba(chunk));
            let places =
                (0..number(&bytes, CHUNK_ENTRIES, 2) as usize).map(|entry| CHUNK_HEAD + ENTRY * entry);
            let shares = places.filter(|at| number(&bytes, at + 8, 4) & 0x7FFF_FFFF == SHARE);
            shares.map(|at| (chunk, at)).collect::<Vec<_>>()
        });
        entries.collect()
    }

    /// The entries of map pages that name a block, and what is there of it.
    pub fn entries(&self) -> Vec<(u64, usize, u32)> {
        let named = self.named.values().flatten();
        let block = |page, entry: usize| number(&self.image.read(Lba(page)), 8 * entry, 4) as u32;
        named.map(|(page, entry)| (*page, *entry, block(*page, *entry))).collect()
    }

    /// The blocks of a kind.
    pub fn blocks(&self, wanted: impl Fn(Kind) -> bool) -> Vec<u64> {
        self.kinds.iter().filter(|(_, kind)| wanted(**kind)).map(|(block, _)| *block).collect()
    }

    /// Seals a block, and what holds its checksum.
    pub fn seal(&self, image: &mut Image, block: u64) {
        match self.kinds.get(&block).copied() {
            None => {}
            Some(Kind::Superblock) => seal_at(image, block, SUPERBLOCK_SUM),
            Some(Kind::Checkpoint) => seal_at(image, block, CHECKPOINT_SUM),
            Some(Kind::Chunk) => seal_at(image, block, CHUNK_SUM),
            Some(Kind::MapPage) => {
                seal_at(image, block, PAGE_SUM);
                self.seal_sums(image);
            }
            Some(Kind::Data { chunk, entry }) => {
                let sum = content_sum(&image.read(Lba(block))).to_le_bytes();
                put_bytes(image, chunk, CHUNK_HEAD + ENTRY * entry + 4, &sum);
                seal_at(image, chunk, CHUNK_SUM);
                for &(page, entry) in self.named.get(&block).into_iter().flatten() {
                    put_bytes(image, page, 8 * entry + 4, &sum);
                    seal_at(image, page, PAGE_SUM);
                }
                self.seal_sums(image);
            }
        }
    }

    /// Has both checkpoints know the pages that they name.
    fn seal_sums(&self, image: &mut Image) {
        for slot in [2, 3] {
            let bytes = image.read(Lba(slot));
            let runway = number(&bytes, CHECKPOINT_RUNWAY, 4).min(BLOCKS) as usize;
            let states = &bytes[CHECKPOINT_HEAD + 4 * runway..];
            let sum = (0..self.map_pages).fold(0_u64, |sum, page| {
                let area = match states[page as usize / 4] >> (page % 4 * 2) & 3 {
                    1 => 0,
                    2 => 1,
                    _ => return sum,
                };
                let block = image.read(Lba(self.map_start + area * self.map_pages + page));
                sum.wrapping_add(mix(page, number(&block, PAGE_SUM, 4)))
            });
            put_bytes(image, slot, CHECKPOINT_MAP_SUM, &sum.to_le_bytes());
            seal_at(image, slot, CHECKPOINT_SUM);
        }
    }

    /// The image with these bytes of a block changed, under good checksums.
    pub fn with(&self, block: u64, at: usize, value: &[u8]) -> Image {
        let mut image = self.image.clone();
        put_bytes(&mut image, block, at, value);
        self.seal(&mut image, block);
        image
    }

    /// The image after the edits that `data` encodes, seven bytes each: which block (2, little-endian), which byte
    /// of it (2), how, and a value (2).
    pub fn edited(&self, data: &[u8]) -> Image {
        let places: Vec<u64> = self.kinds.keys().copied().collect();
        let mut image = self.image.clone();
        for edit in data.chunks_exact(EDIT_BYTES).take(EDITS_MAX) {
            let word = |at: usize| usize::from(u16::from_le_bytes([edit[at], edit[at + 1]]));
            let block = places[word(0) % places.len()];
            self.edit(&mut image, &places, block, word(2) % BLOCK_BYTES, edit[4], word(5));
        }
        image
    }

    /// Edits the bytes from `at` on of a block of an image, one of `places`; or puts a copy of another one there.
    fn edit(&self, image: &mut Image, places: &[u64], block: u64, at: usize, how: u8, value: usize) {
        let mut bytes = image.read(Lba(block));
        let end = (at + [1, 2, 4, 8][usize::from(how & 3)]).min(BLOCK_BYTES);
        let mut old = [0; 8];
        old[..end - at].copy_from_slice(&bytes[at..end]);
        let signed = i64::from(value as u16 as i16);
        let new = match how >> 2 & 3 {
            0 => signed.cast_unsigned(),
            1 => places[value % places.len()],
            2 => u64::from_le_bytes(old).wrapping_add_signed(signed),
            _ => u64::from_le_bytes(old) ^ 1 << (value % 64),
        };
        bytes[at..end].copy_from_slice(&new.to_le_bytes()[..end - at]);
        if how & 64 != 0 {
            bytes = image.read(Lba(places[value % places.len()]));
        }
        image.write(Lba(block), &bytes);
        if how & 128 == 0 {
            self.seal(image, block);
        }
    }
}

/// The seeds of the fuzz target, and what it does with its bytes: the first chooses a seed and a life, the others edit.
pub struct Seeds(Vec<Seed>);

impl Seeds {
    pub fn new() -> Seeds {
        Seeds(vec![Seed::fresh(), Seed::closed(), Seed::crashed(), Seed::thin(), Seed::shared()])
    }

    /// One case of the fuzz target.
    pub fn play(&self, data: &[u8]) -> Outcome {
        let (first, edits) = data.split_first().unwrap_or((&0, &[]));
        // The first two bits say which seed; the next two, both set, the one with shares instead.
        let seed = if first & 12 == 12 { 4 } else { usize::from(first & 3) };
        let outcome = live(&self.0[seed].edited(edits), *first >> 4);
        within_memory();
        outcome
    }
}

/// How far a life got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was not opened.
    Refused(VolumeError),
    /// It was opened, and writing or closing failed.
    Failed,
    /// What was written is there, and so it is after another opening.
    Kept,
}

/// Looks at a volume, opens it, reads and changes it, and opens it again: after it was closed, or if `how` is odd, after
/// a power cut.
///
/// # Panics
/// If that takes longer than it may, in virtual time, or what was written is not what is read.
pub fn live(image: &Image, how: u8) -> Outcome {
    run(async |clock| life(&clock, image, how).await)
}

async fn life(clock: &Handle, image: &Image, how: u8) -> Outcome {
    let options = VolumeOptions { discard_below: how & 2 != 0, ..VolumeOptions::default() };
    let disk = disk(clock, image);
    let storage = || Rc::clone(&disk) as Rc<dyn Storage>;
    let found = disk.image().hash();
    let _ = inspect(&*disk).await;
    let is_whole = check(&*disk).await.is_ok_and(|report| report.damaged_total == 0);
    assert_eq!(disk.image().hash(), found, "looking changes nothing");
    let volume = match Volume::open(clock, storage(), options.clone()).await {
        Ok(volume) => volume,
        Err(error) => {
            assert!(!is_whole, "whole, and refused: {error}");
            assert_eq!(disk.image().hash(), found, "what is refused is left alone");
            return Outcome::Refused(error);
        }
    };
    for lba in 0..volume.blocks().min(READ_MAX) {
        let read = read(&volume, Extent::new(Lba(lba), 1)).await;
        assert!(read.is_ok() || !is_whole, "whole, and cannot be read: {lba}");
    }
    let mut written = BTreeMap::new();
    if change(&volume, &mut written).await.is_err() {
        return Outcome::Failed;
    }
    require(&volume, &written).await;
    if how & 1 != 0 {
        disk.cut_power();
        drop(volume);
        let left = disk.crash_states().sample(&mut clock.random("what is left"));
        return reopened(clock, self::disk(clock, &left), &options, &written).await;
    }
    match volume.close().await {
        Ok(()) => reopened(clock, Rc::clone(&disk), &options, &written).await,
        Err(_) => Outcome::Failed,
    }
}

/// Opens what was made durable.
async fn reopened(
    clock: &Handle,
    disk: Rc<AdversaryDisk>,
    options: &VolumeOptions,
    written: &BTreeMap<u64, u8>,
) -> Outcome {
    let volume = Volume::open(clock, disk, options.clone()).await.expect("what was durable can be opened");
    require(&volume, written).await;
    Outcome::Kept
}

/// Writes, discards, orders and flushes; what is there then. Blocks that are not known, since a request failed, are
/// not in it.
async fn change(volume: &Volume, written: &mut BTreeMap<u64, u8>) -> Result<(), Rejected> {
    let blocks = volume.blocks();
    for turn in 0..CHANGES {
        let lba = (turn * 37 + turn / 60) % blocks;
        let version = 1 + (turn % 250) as u8;
        let length = (1 + turn % 3).min(blocks - lba);
        for lba in lba..lba + length {
            written.remove(&lba);
        }
        if turn % SHARE_EVERY == 0 && volume.capabilities().share {
            let to = (lba + blocks / 2) % blocks;
            share_known(volume, (lba, to), written).await?;
        }
        let (done, version) = match turn % DISCARD_EVERY {
            0 => {
                let extent = [Extent::new(Lba(lba), length as u32)];
                let ticket = submit_when_free(volume, Command::Discard(&extent)).await;
                (ticket.map(drop), 0)
            }
            _ => {
                let bytes = vec![version; length as usize * BLOCK_BYTES];
                (write(volume, Part::bytes(Lba(lba), &bytes)).await, version)
            }
        };
        match done {
            Ok(()) => written.extend((lba..lba + length).map(|lba| (lba, version))),
            Err(Rejected::Failed(StorageError::NoSpace)) => {}
            Err(error) => return Err(error),
        }
        submit_when_free(volume, Command::Barrier { stream: StreamId(0) }).await?;
        if turn % FLUSH_EVERY == 0 {
            flush(volume).await?;
        }
    }
    flush(volume).await
}

/// Shares a block with another one.
async fn share_known(
    volume: &Volume,
    (from, to): (u64, u64),
    written: &mut BTreeMap<u64, u8>,
) -> Result<(), Rejected> {
    if from == to {
        return Ok(());
    }
    match (submit_when_free(volume, Command::Share(&[pair(from, to)])).await, written.get(&from).copied()) {
        (Err(Rejected::Failed(StorageError::NoSpace)), _) => {}
        (Err(error), _) => return Err(error),
        (Ok(_), Some(version)) => drop(written.insert(to, version)),
        (Ok(_), None) => drop(written.remove(&to)),
    }
    Ok(())
}

fn pair(from: u64, to: u64) -> SharePair {
    SharePair { from: Extent::new(Lba(from), 1), to: Lba(to) }
}

async fn share(volume: &Volume, pairs: &[SharePair]) {
    submit_when_free(volume, Command::Share(pairs)).await.expect("shared");
}

async fn require(volume: &Volume, written: &BTreeMap<u64, u8>) {
    for (&lba, &version) in written {
        let found = read(volume, Extent::new(Lba(lba), 1)).await;
        assert!(
            found.as_ref().is_ok_and(|found| found.iter().all(|byte| *byte == version)),
            "block {lba} is not version {version}: {:?}",
            found.map(|found| found[0])
        );
    }
}

/// A new volume that `script` has changed, closed or as a crash leaves it.
fn made(logical_blocks: u64, close: bool, script: impl AsyncFnOnce(&Volume)) -> Image {
    run(async |clock| {
        let disk = disk(&clock, &Image::zeroed(BLOCKS, BLOCK_BYTES as u32));
        let format = Format { logical_blocks, segment_blocks: SEGMENT, overwrite: false, slots: 0 };
        Volume::create(&clock, &*disk, format).await.expect("made");
        let storage = Rc::clone(&disk) as Rc<dyn Storage>;
        let volume = Volume::open(&clock, storage, VolumeOptions::default()).await.expect("opened");
        script(&volume).await;
        if close {
            volume.close().await.expect("closed");
        }
        drop(volume);
        disk.image()
    })
}

async fn live_well(volume: &Volume) {
    for turn in 0..130 {
        put(volume, turn * 7 % 90, 1 + turn as u8).await;
    }
    let extent = [Extent::new(Lba(10), 5)];
    submit_when_free(volume, Command::Discard(&extent)).await.expect("discarded");
    volume.checkpoint().await.expect("a checkpoint");
    for turn in 0..60 {
        put(volume, turn * 11 % 90, 131 + turn as u8).await;
        if turn % 16 == 15 {
            flush(volume).await.expect("flushed");
        }
    }
    let extent = [Extent::new(Lba(40), 3)];
    submit_when_free(volume, Command::Discard(&extent)).await.expect("discarded");
    flush(volume).await.expect("flushed");
}

async fn put(volume: &Volume, lba: u64, version: u8) {
    write(volume, Part::bytes(Lba(lba), &[version; BLOCK_BYTES])).await.expect("written");
}

fn disk(clock: &Handle, image: &Image) -> Rc<AdversaryDisk> {
    let capabilities = Capabilities { discard: Discard::ReadsZero, ..Capabilities::legacy(32, 64, 4096) };
    let options = AdversaryOptions { capabilities, latency_ns_max: 50_000, ..AdversaryOptions::default() };
    AdversaryDisk::from_image(clock, options, image)
}

fn put_bytes(image: &mut Image, block: u64, at: usize, value: &[u8]) {
    let mut bytes = image.read(Lba(block));
    bytes[at..at + value.len()].copy_from_slice(value);
    image.write(Lba(block), &bytes);
}

/// Puts a block's checksum at byte `at` of it.
fn seal_at(image: &mut Image, block: u64, at: usize) {
    let mut bytes = image.read(Lba(block));
    bytes[at..at + 4].fill(0);
    let sum = crc32c(&bytes);
    put_bytes(image, block, at, &sum.to_le_bytes());
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(
            sum ^ u32::from(*byte),
            |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0x82F6_3B78 } else { sum >> 1 },
        )
    })
}

/// CRC-64/NVME, its halves added by XOR.
fn content_sum(bytes: &[u8]) -> u32 {
    let sum = !bytes.iter().fold(!0_u64, |sum, byte| {
        (0..8).fold(sum ^ u64::from(*byte), |sum, _| {
            if sum & 1 == 1 { sum >> 1 ^ 0x9A6C_9329_AC4B_C9B5 } else { sum >> 1 }
        })
    });
    (sum >> 32) as u32 ^ sum as u32
}

/// What a map page adds to the sum of all.
fn mix(page: u64, checksum: u64) -> u64 {
    let x = (page << 32 | checksum).wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^ x >> 27
}
