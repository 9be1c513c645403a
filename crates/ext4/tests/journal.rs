//! The journal: what a writer encodes, recovery finds; at every cut, after every damage, and with debugfs,
//! e2fsck and the kernel as judges.

use weir_format::{BLOCK_BYTES, FormatError};

use crate::judge;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use crate::image::{self, Image, now};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use weir_ext4::Feature;
use weir_ext4::journal::{
    Changes, JournalSuperblock, LogBlock, LogFeatures, LogReader, Replay, Sequence, encode_coalition,
    encode_commit, encode_transaction, replay,
};

type Block = [u8; BLOCK_BYTES];

/// A journal in memory, with a writer that knows where its head is.
#[derive(Clone)]
struct Journal {
    blocks: Vec<Block>,
    superblock: JournalSuperblock,
    head: u32,
    next: Sequence,
}

/// Reads a journal, and counts how often.
struct Reader<'a> {
    blocks: &'a [Block],
    homes: BTreeMap<u64, Block>,
    reads: RefCell<usize>,
}

impl LogReader for Reader<'_> {
    type Error = FormatError;

    async fn read(&self, block: u32, bytes: &mut Block) -> Result<(), FormatError> {
        *self.reads.borrow_mut() += 1;
        *bytes = self.blocks[block as usize];
        Ok(())
    }

    async fn read_home(&self, home: u64, bytes: &mut Block) -> Result<(), FormatError> {
        *bytes = self.homes.get(&home).copied().unwrap_or([0; BLOCK_BYTES]);
        Ok(())
    }
}

impl Journal {
    fn new(superblock: JournalSuperblock) -> Self {
        let (head, next) = (superblock.ring().first(), superblock.sequence());
        Self { blocks: vec![[0; BLOCK_BYTES]; superblock.blocks() as usize], superblock, head, next }
    }

    fn put(&mut self, block: &Block) {
        self.blocks[self.head as usize] = *block;
        self.head = self.superblock.ring().advance(self.head, 1);
    }

    /// Appends a transaction and returns how many blocks it took. Where the journal has coalition blocks, the writes to
    /// what is in `old` are changes of it.
    fn append(&mut self, revokes: &[u64], writes: &[(u64, Block)], old: &Home) -> usize {
        let format = self.superblock.format();
        let ranges = |(home, bytes): &(u64, Block)| Some(changed(old.get(home)?, bytes));
        let changes: Vec<Changes<'_>> = match format.features.coalition {
            true => {
                writes.iter().filter_map(|write| Changes::of(write.0, &write.1, &ranges(write)?)).collect()
            }
            false => Vec::new(),
        };
        let is_change = |home: u64| changes.iter().any(|change| change.home == home);
        let copies = writes.iter().filter(|(home, _)| !is_change(*home));
        let mut copies: Vec<(u64, Vec<u8>)> = copies.map(|(home, bytes)| (*home, bytes.to_vec())).collect();
        let (order, commits) = match format.features.coalition {
            true => {
                let coalition = encode_coalition(&format, self.next, revokes, &changes, &mut copies);
                let coalition = coalition.expect("a transaction");
                (coalition.blocks, coalition.commits)
            }
            false => {
                (encode_transaction(&format, self.next, revokes, &mut copies).expect("a transaction"), false)
            }
        };
        for block in &order {
            match block {
                LogBlock::Own(bytes) => self.put(bytes),
                LogBlock::Copy(index) => {
                    self.put(copies[*index].1.as_slice().try_into().expect("a whole block"));
                }
            }
        }
        if !commits {
            self.put(&encode_commit(&format, self.next, 1_700_000_000, 5));
        }
        self.next = self.next.next();
        let (took, most) =
            (order.len() + usize::from(!commits), format.transaction_blocks(writes.len(), revokes.len()));
        assert!(
            if format.features.coalition { took <= most } else { took == most },
            "{took} blocks, not {most}"
        );
        took
    }

    fn replay(&self) -> Result<Replay, FormatError> {
        let reader = Reader { blocks: &self.blocks, homes: BTreeMap::new(), reads: RefCell::new(0) };
        let found = now(replay(&self.superblock, 1000, &reader));
        assert!(*reader.reads.borrow() <= self.blocks.len(), "no block of the log is read twice");
        found
    }
}

/// The filesystem's blocks, as far as anything wrote them.
type Home = BTreeMap<u64, Block>;

fn recover(home: &Home, journal: &[Block], found: &Replay) -> Home {
    let reader = Reader { blocks: journal, homes: BTreeMap::new(), reads: RefCell::new(0) };
    let mut recovered = home.clone();
    for write in &found.writes {
        // Garbage, where all of it is in the log.
        let mut bytes = if write.needs_home() { home[&write.home] } else { [0xEE; BLOCK_BYTES] };
        now(write.restore(&reader, &mut bytes)).expect("the log is there");
        recovered.insert(write.home, bytes);
    }
    recovered
}

/// Where two blocks differ.
fn changed(old: &Block, new: &Block) -> Vec<Range<u16>> {
    let differs = (0..BLOCK_BYTES).filter(|at| old[*at] != new[*at]);
    differs.map(|at| at as u16..at as u16 + 1).collect()
}

/// Another content of a block that differs in some places.
fn touched(random: &mut Pcg64, old: &Block) -> Block {
    let mut bytes = *old;
    for _ in 0..random.random_range(1..12) {
        let start = random.random_range(0..BLOCK_BYTES);
        let end = (start + random.random_range(1..400)).min(BLOCK_BYTES);
        random.fill(&mut bytes[start..end]);
    }
    bytes
}

fn contents(random: &mut Pcg64) -> Block {
    let mut bytes = [random.random(); BLOCK_BYTES];
    match random.random_range(0..4) {
        0 => bytes[..4].copy_from_slice(&0xC03B_3998_u32.to_be_bytes()),
        1 => {
            // What looks like a commit block of any transaction must be escaped, too.
            bytes[..8].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 2]);
            bytes[8..12].copy_from_slice(&random.random_range(0_u32..40).to_be_bytes());
        }
        _ => random.fill(&mut bytes[4..40]),
    }
    bytes
}

/// A history: the state before the log's tail, and after each of its transactions.
#[derive(Clone)]
struct History {
    journal: Journal,
    states: Vec<Home>,
    /// For each transaction the number of log blocks until its commit block is in.
    ends: Vec<usize>,
}

/// Writes many transactions through a small ring, checkpointing the oldest ones when it is full. Freed
/// blocks are revoked and reused for data that no journal sees, which replay must leave alone.
fn history(seed: u64, checksums: bool, coalition: bool) -> History {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut superblock = JournalSuperblock::new([9; 16], 41, checksums).expect("40 blocks of log");
    superblock.set_features(LogFeatures { coalition, ..LogFeatures::default() }).expect("an empty log");
    superblock.set_tail(None, Sequence(u32::MAX - 5));
    let mut journal = Journal::new(superblock);
    let mut states = vec![Home::new()];
    let mut live: Vec<(u32, Sequence, usize)> = Vec::new();
    for _ in 0..random.random_range(5..40) {
        let homes: Vec<u64> = (0..random.random_range(0..6)).map(|_| random.random_range(0..20)).collect();
        let mut writes: BTreeMap<u64, Block> = BTreeMap::new();
        for home in homes {
            let old = states.last().and_then(|state: &Home| state.get(&home)).filter(|_| coalition);
            let bytes = match old.filter(|_| random.random_range(0..4) > 0) {
                Some(old) => touched(&mut random, old),
                None => contents(&mut random),
            };
            writes.insert(home, bytes);
        }
        let revokes: Vec<u64> = (0..random.random_range(0..3))
            .map(|_| random.random_range(0..20))
            .filter(|home| !writes.contains_key(home))
            .collect();
        let blocks = journal.superblock.format().transaction_blocks(writes.len(), revokes.len());
        while live.iter().map(|&(_, _, blocks)| blocks).sum::<usize>() + blocks > 39 {
            live.remove(0);
            states.remove(0);
        }
        let start = (journal.head, journal.next);
        let writes: Vec<(u64, Block)> = writes.into_iter().collect();
        let mut state = states.last().expect("a state").clone();
        let blocks = journal.append(&revokes, &writes, &state);
        live.push((start.0, start.1, blocks));
        state.extend(writes);
        for &home in &revokes {
            // Data that goes home on its own: as durable as the revocation, in every state from here on,
            // and if the revocation is lost then neither version may be expected.
            state.remove(&home);
        }
        states.push(state);
    }
    let &(place, sequence, _) = live.first().expect("a transaction");
    journal.superblock.set_tail(Some(place), sequence);
    let ends = live.iter().scan(0, |end, &(_, _, blocks)| {
        *end += blocks;
        Some(*end)
    });
    History { ends: ends.collect(), states, journal }
}

/// What replay writes over an empty home must be the newest versions of this history's transactions: all of
/// them that are in `state` and not yet in the first state, and nothing that `state` does not have.
fn explains(history: &History, upto: usize, found: &Replay) {
    let recovered = recover(&history.states[0], &history.journal.blocks, found);
    let state = &history.states[upto];
    for (home, bytes) in state {
        assert!(recovered.get(home) == Some(bytes), "block {home} after {upto} transactions");
    }
    let first = &history.states[0];
    for home in recovered.keys().filter(|home| !state.contains_key(home)) {
        assert!(first.contains_key(home), "block {home} was revoked, and came back");
    }
}

#[test]
fn every_cut_of_a_log_recovers_a_prefix() {
    for seed in 0..120 {
        let history = history(seed, seed % 4 != 0, seed % 2 == 1);
        let tail = history.journal.superblock.start().expect("a tail");
        let ring = history.journal.superblock.ring();
        let total = *history.ends.last().expect("a transaction");
        for cut in 0..=total {
            // Blocks from the cut on never arrived: they hold what a lap before left, or nothing.
            let mut crashed = history.journal.clone();
            for lost in cut..total {
                crashed.blocks[ring.advance(tail, lost as u32) as usize] = [0; BLOCK_BYTES];
            }
            let found = crashed.replay().expect("a cut is no damage");
            let whole = history.ends.iter().filter(|&&end| end <= cut).count();
            assert_eq!(found.transactions as usize, whole, "seed {seed} cut at {cut}");
            explains(&history, whole, &found);
        }
    }
}

#[test]
fn changes_go_home_over_any_mixture_of_their_states() {
    let mut mixed = 0;
    for seed in 0..60 {
        let history = history(seed, true, true);
        let found = history.journal.replay().expect("a whole log");
        let reader =
            Reader { blocks: &history.journal.blocks, homes: BTreeMap::new(), reads: RefCell::new(0) };
        let mut random = Pcg64::seed_from_u64(seed);
        for write in found.writes.iter().filter(|write| write.needs_home()) {
            // A checkpoint under way, or a replay, has torn them between 512 bytes.
            let mut bytes = [0; BLOCK_BYTES];
            for at in (0..BLOCK_BYTES).step_by(512) {
                let state = &history.states[random.random_range(0..history.states.len())][&write.home];
                bytes[at..at + 512].copy_from_slice(&state[at..at + 512]);
            }
            now(write.restore(&reader, &mut bytes)).expect("the log is there");
            let newest = &history.states.last().expect("a state")[&write.home];
            assert!(bytes == *newest, "seed {seed}: block {}", write.home);
            mixed += 1;
        }
    }
    assert!(mixed > 100, "{mixed} blocks had changes only");
}

#[test]
fn a_transaction_of_changes_takes_one_block() {
    let mut superblock = JournalSuperblock::new([1; 16], 64, true).expect("a journal");
    superblock.set_features(LogFeatures { coalition: true, ..LogFeatures::default() }).expect("an empty log");
    let mut journal = Journal::new(superblock);
    let old: Home = (0..30).map(|home| (home, [1; BLOCK_BYTES])).collect();
    let write = |home: u64| {
        let mut bytes = [1; BLOCK_BYTES];
        bytes[100..220].fill(2);
        (home, bytes)
    };
    let writes: Vec<(u64, Block)> = (0..30).map(write).collect();
    assert_eq!(
        journal.append(&[40, 41], &writes[..12], &old),
        1,
        "twelve inodes, two revokes, and the commit"
    );
    assert_eq!(journal.append(&[], &writes, &old), 1, "thirty");
    assert_eq!(journal.append(&[], &writes[..1], &Home::new()), 3, "a new block: index, copy, commit block");
    journal.superblock.set_tail(Some(1), Sequence(1));
    let found = journal.replay().expect("a log");
    assert_eq!((found.transactions, found.writes.len()), (3, 30));
}

#[test]
fn an_old_lap_is_not_the_end_of_a_new_one() {
    // After recovery the emptied journal starts again at its first block. Nothing that is still in the log
    // may be taken for a later transaction.
    for seed in 0..20 {
        let history = history(seed, true, seed % 2 == 1);
        let mut journal = history.journal;
        let found = journal.replay().expect("a whole log");
        let first = journal.superblock.ring().first();
        journal.superblock.set_tail(Some(first), found.next);
        journal.head = first;
        journal.next = found.next;
        journal.append(&[], &[(3, [7; BLOCK_BYTES])], &Home::new());
        let again = journal.replay().expect("a new lap");
        assert_eq!((again.transactions, again.writes.len()), (1, 1), "seed {seed}");
    }
}

#[test]
fn revocations_are_what_keeps_freed_blocks_alone() {
    let superblock = JournalSuperblock::new([1; 16], 64, true).expect("a journal");
    let mut journal = Journal::new(superblock);
    journal.append(&[], &[(5, [1; BLOCK_BYTES]), (6, [1; BLOCK_BYTES])], &Home::new());
    let without = {
        let mut journal = journal.clone();
        journal.append(&[], &[(7, [2; BLOCK_BYTES])], &Home::new());
        journal.superblock.set_tail(Some(1), Sequence(1));
        journal.replay().expect("a log")
    };
    let homes = |found: &Replay| found.writes.iter().map(|write| write.home).collect::<Vec<_>>();
    assert_eq!(homes(&without), [5, 6, 7], "the control: without it the freed block is overwritten");
    journal.append(&[5], &[(7, [2; BLOCK_BYTES])], &Home::new());
    journal.superblock.set_tail(Some(1), Sequence(1));
    let with = journal.replay().expect("a log");
    assert_eq!((homes(&with), with.revoked), (vec![6, 7], 1));
    journal.append(&[], &[(5, [3; BLOCK_BYTES])], &Home::new());
    assert_eq!(homes(&journal.replay().expect("a log")), [5, 6, 7], "journaled again after its revocation");
}

#[test]
fn a_block_is_journaled_or_revoked() {
    let format = JournalSuperblock::new([1; 16], 64, true).expect("a journal").format();
    let mut copies = [(5_u64, vec![0; BLOCK_BYTES])];
    encode_transaction(&format, Sequence(1), &[4, 6], &mut copies).expect("others may be revoked");
    encode_transaction(&format, Sequence(1), &[6, 5], &mut copies).expect_err("both");
    encode_transaction(&format, Sequence(1), &[], &mut [(5, vec![0; 512])]).expect_err("not a block");
}

#[test]
fn many_blocks_take_several_descriptors() {
    for (checksums, coalition) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut superblock = JournalSuperblock::new([1; 16], 2000, checksums).expect("a journal");
        superblock.set_features(LogFeatures { coalition, ..LogFeatures::default() }).expect("an empty log");
        let mut journal = Journal::new(superblock);
        let writes: Vec<(u64, Block)> = (0..700).map(|home| (home, [home as u8; BLOCK_BYTES])).collect();
        let revokes: Vec<u64> = (1_000_000..1_001_100).collect();
        journal.append(&revokes, &writes, &Home::new());
        journal.superblock.set_tail(Some(1), Sequence(1));
        let found = journal.replay().expect("a log");
        assert_eq!((found.transactions, found.writes.len(), found.revoked), (1, 700, 0));
        assert_eq!(recover(&Home::new(), &journal.blocks, &found), writes.into_iter().collect());
    }
}

#[test]
fn damage_is_an_error_or_a_prefix_and_never_a_panic() {
    let mut errors = 0;
    for seed in 100..180 {
        let history = history(seed, true, seed % 2 == 1);
        let mut random = Pcg64::seed_from_u64(seed);
        for _ in 0..200 {
            let mut damaged = history.journal.clone();
            let block = random.random_range(1..damaged.blocks.len());
            // Mostly where the fields are.
            let at = if random.random() { random.random_range(0..64) } else { random.random_range(0..4096) };
            damaged.blocks[block][at] ^= 1 << random.random_range(0..8);
            match damaged.replay() {
                Ok(found) => {
                    let upto = found.transactions as usize;
                    let same = History { journal: damaged, ..history.clone() };
                    explains(&same, upto, &found);
                }
                Err(_) => errors += 1,
            }
        }
    }
    assert!(errors > 1000, "most damage behind a commit block is noticed: {errors}");
}

/// With coalition blocks nearly every block commits. One that is damaged must not pass for the end of the log, as long as a
/// later transaction is there.
#[test]
fn damage_in_the_middle_of_a_log_of_changes_is_an_error() {
    let mut superblock = JournalSuperblock::new([1; 16], 64, true).expect("a journal");
    superblock.set_features(LogFeatures { coalition: true, ..LogFeatures::default() }).expect("an empty log");
    let mut journal = Journal::new(superblock);
    let old: Home = (0..3).map(|home| (home, [1; BLOCK_BYTES])).collect();
    for nth in 2..20 {
        let writes: Vec<(u64, Block)> = (0..3).map(|home| (home, [nth; BLOCK_BYTES])).collect();
        let mut some = writes.clone();
        some.iter_mut().for_each(|(_, bytes)| bytes[100..].fill(1));
        // Now and then a block is logged whole.
        let writes = if nth % 5 == 0 { &writes } else { &some };
        journal.append(&[], writes, &old);
    }
    journal.superblock.set_tail(Some(1), Sequence(1));
    assert_eq!(journal.replay().expect("a whole log").transactions, 18);
    let end = journal.head - 1;
    for block in 1..end {
        for at in [1, 5, 9, 12, 15, 16, 40, 4095] {
            let mut damaged = journal.clone();
            damaged.blocks[block as usize][at] ^= 0x10;
            damaged.replay().expect_err("a later transaction is whole");
        }
    }
    // The last transaction may be torn, and then it is not there.
    journal.blocks[end as usize][40] ^= 1;
    assert_eq!(journal.replay().expect("a torn end").transactions, 17);
}

#[test]
fn hostile_logs_without_checksums_end() {
    for seed in 0..300 {
        let mut random = Pcg64::seed_from_u64(seed);
        let mut history = history(seed, false, seed % 2 == 1);
        for _ in 0..random.random_range(1..30) {
            let block = random.random_range(1..history.journal.blocks.len());
            let at = random.random_range(0..40);
            history.journal.blocks[block][at] = random.random();
        }
        // An error or not: it ends, and it never reads the ring twice (asserted by the reader).
        let _ = history.journal.replay();
    }
}

#[test]
fn hostile_superblocks_are_refused_or_read() {
    let superblock = JournalSuperblock::new([1; 16], 64, false).expect("a journal");
    let mut good = [0; BLOCK_BYTES];
    superblock.encode(&mut good);
    assert_eq!(JournalSuperblock::decode(&good, 64), Ok(superblock));
    JournalSuperblock::decode(&good, 63).expect_err("longer than its file");
    JournalSuperblock::decode(&good[..1000], 64).expect_err("short");
    for at in 0..100 {
        for bit in 0..8 {
            let mut bad = good;
            bad[at] ^= 1 << bit;
            if let Ok(read) = JournalSuperblock::decode(&bad, 64) {
                let reader = Reader {
                    blocks: &[[0; BLOCK_BYTES]; 64],
                    homes: BTreeMap::new(),
                    reads: RefCell::new(0),
                };
                now(replay(&read, 1000, &reader)).expect("an empty log");
            }
        }
    }
    let sealed = JournalSuperblock::new([1; 16], 64, true).expect("a journal");
    sealed.encode(&mut good);
    for at in [0, 20, 50, 300, 1023] {
        good[at] ^= 1;
        JournalSuperblock::decode(&good, 64).expect_err("a flipped bit");
        good[at] ^= 1;
    }
}

/// The journal of an image.
struct Log<'a> {
    image: &'a Image,
    places: &'a [u64],
}

impl LogReader for Log<'_> {
    type Error = FormatError;

    async fn read(&self, block: u32, bytes: &mut Block) -> Result<(), FormatError> {
        *bytes = *self.image.block(self.places[block as usize]);
        Ok(())
    }

    async fn read_home(&self, home: u64, bytes: &mut Block) -> Result<(), FormatError> {
        *bytes = *self.image.block(home);
        Ok(())
    }
}

/// Replays the journal of `image` as a filesystem would. Returns how many blocks went home.
fn replay_image(image: &mut Image, places: &[u64]) -> usize {
    let mut superblock =
        JournalSuperblock::decode(image.block(places[0]), places.len() as u32).expect("a superblock");
    let log = Log { image, places };
    let found = now(replay(&superblock, image.blocks(), &log)).expect("a log without damage");
    for write in &found.writes {
        let mut bytes = [0; BLOCK_BYTES];
        now(write.restore(&Log { image, places }, &mut bytes)).expect("the log is there");
        *image.block_mut(write.home) = bytes;
    }
    superblock.set_tail(None, found.next);
    superblock.encode(image.block_mut(places[0]));
    let mut filesystem = image.superblock();
    let features = filesystem.features().with(Feature::NEEDS_RECOVERY, false);
    filesystem.set_features(features);
    image.set_superblock(filesystem);
    found.writes.len()
}

/// Asserts that two images agree in every block outside the journal and the superblock.
fn assert_same_home(ours: &Image, theirs: &Image, places: &[u64], judge: &str) {
    let differ: Vec<u64> = (1..ours.blocks())
        .filter(|block| ours.block(*block) != theirs.block(*block) && !places.contains(block))
        .collect();
    assert!(differ.is_empty(), "{judge} recovered other bytes in blocks {differ:?}");
}

/// Lets debugfs and e2fsck replay copies of `image`, and compares.
fn judge_replay(image: &Image, places: &[u64]) {
    let mut ours = image.clone();
    let written = replay_image(&mut ours, places);
    assert!(written > 0, "there was something to replay");
    let copy = image.store("jr");
    judge::debugfs_script(Some(copy.path()), b"jr\n").expect("debugfs is installed");
    assert_same_home(&ours, &Image::load(copy.path()), places, "debugfs");
    let copy = image.store("journal-only");
    let path = copy.path().to_str().expect("a plain path");
    judge::run("e2fsck", &["-E", "journal_only", "-y", path], b"").expect("e2fsck is installed");
    assert_same_home(&ours, &Image::load(copy.path()), places, "e2fsck");
    let clean = ours.store("ours");
    let path = clean.path().to_str().expect("a plain path");
    let verdict = judge::run("e2fsck", &["-fn", path], b"").expect("e2fsck is installed");
    let said = String::from_utf8_lossy(&verdict.stdout).into_owned();
    assert_eq!(verdict.status.code(), Some(0), "e2fsck after our replay: {said}");
}

#[test]
fn debugfs_and_e2fsck_replay_what_we_write() {
    for (options, seed) in [(vec![], 1), (vec!["-O", "^metadata_csum"], 2), (vec!["-O", "^64bit"], 3)] {
        let Some(mut image) = Image::make(&options, "64M") else { return };
        let Some(places) = image.blocks_of("<8>") else { return };
        let mut superblock =
            JournalSuperblock::decode(image.block(places[0]), places.len() as u32).expect("a superblock");
        let checksums = image.superblock().features().has(Feature::METADATA_CSUM);
        superblock.upgrade(checksums).expect("an empty journal");
        // Near its end, so that the log wraps.
        let mut journal = Journal::new(superblock);
        journal.head = journal.superblock.blocks() - 30;
        journal.superblock.set_tail(Some(journal.head), journal.next);
        let mut random = Pcg64::seed_from_u64(seed);
        // Free blocks at the end of the filesystem.
        let homes = image.blocks() - 40..image.blocks();
        for _ in 0..20 {
            let mut writes = BTreeMap::new();
            for _ in 0..random.random_range(1..10) {
                writes.insert(random.random_range(homes.clone()), contents(&mut random));
            }
            let revoked = random.random_range(homes.clone());
            let revokes: Vec<u64> = Some(revoked).into_iter().filter(|b| !writes.contains_key(b)).collect();
            journal.append(&revokes, &writes.into_iter().collect::<Vec<_>>(), &Home::new());
        }
        let (mut first, superblock) = ([0; BLOCK_BYTES], journal.superblock.clone());
        superblock.encode(&mut first);
        journal.blocks[0] = first;
        for (place, bytes) in places.iter().zip(&journal.blocks) {
            *image.block_mut(*place) = *bytes;
        }
        let mut filesystem = image.superblock();
        let features = filesystem.features().with(Feature::NEEDS_RECOVERY, true);
        filesystem.set_features(features);
        image.set_superblock(filesystem);
        judge_replay(&image, &places);
    }
}

#[test]
fn we_replay_what_debugfs_writes() {
    let Some(image) = Image::make(&[], "64M") else { return };
    let Some(places) = image.blocks_of("<8>") else { return };
    let contents = image::Scratch::new("contents");
    let mut bytes = vec![0; 3 * BLOCK_BYTES];
    bytes[..4].copy_from_slice(&0xC03B_3998_u32.to_be_bytes());
    bytes[BLOCK_BYTES..].fill(0x5A);
    std::fs::write(contents.path(), &bytes).expect("room");
    let file = image.store("jw");
    let source = contents.path().display();
    let script = format!(
        "jo -c\njw -b 16000,16001,16002 {source}\njw -r 16001\njc\n\
         jo -c\njw -b 16002,16003,16004 {source}\njc\n"
    );
    judge::debugfs_script(Some(file.path()), script.as_bytes()).expect("debugfs is installed");
    judge_replay(&Image::load(file.path()), &places);
}

#[test]
fn we_replay_what_the_kernel_leaves() {
    let Some(image) = Image::make(&["-O", "^orphan_file"], "64M") else { return };
    let Some(places) = image.blocks_of("<8>") else { return };
    let file = image.store("kernel");
    let directory = image::Scratch::new("mount");
    std::fs::create_dir(directory.path()).expect("a mount point");
    let path = |path: &std::path::Path| path.to_str().expect("a plain path").to_owned();
    let (file_path, mount_path) = (path(file.path()), path(directory.path()));
    let mounted = judge::run("mount", &["-o", "loop,commit=1", &file_path, &mount_path], b"");
    let Some(true) = mounted.map(|output| output.status.success()) else {
        eprintln!("skipped: this machine cannot mount a loop device");
        std::fs::remove_dir(directory.path()).expect("an empty directory");
        return;
    };
    let busy = || -> std::io::Result<()> {
        for round in 0..8 {
            let folder = directory.path().join(format!("folder-{round}"));
            std::fs::create_dir(&folder)?;
            for number in 0..40 {
                std::fs::write(folder.join(format!("file-{number}")), vec![number; 9000])?;
            }
            std::fs::File::open(&folder)?.sync_all()?;
            if round % 2 == 1 {
                std::fs::remove_dir_all(directory.path().join(format!("folder-{}", round - 1)))?;
                std::fs::File::open(directory.path())?.sync_all()?;
            }
        }
        // e2fsck also ends what the kernel had begun to delete, so nothing of that may be left.
        judge::run("sync", &["-f", &mount_path], b"");
        let last = std::fs::File::create(directory.path().join("last"))?;
        last.sync_all()
    };
    let worked = busy();
    // The image as it would be if the machine stopped here.
    let crashed = Image::load(file.path());
    judge::run("umount", &[&mount_path], b"").expect("umount is installed");
    std::fs::remove_dir(directory.path()).expect("an empty directory");
    worked.expect("work on the mounted filesystem");
    judge_replay(&crashed, &places);
}
