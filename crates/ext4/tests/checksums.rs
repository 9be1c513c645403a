//! Recovery of logs in which a commit block may be there without what it commits: asynchronous commits, and checksums of data
//! in place.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use weir_ext4::journal::{
    JournalSuperblock, LogBlock, LogFeatures, LogReader, ReplayMutant, Sequence, encode_commit,
    encode_data_checksums, encode_transaction, replay,
};
use weir_ext4::{Checksums, Kind};
use weir_format::{BLOCK_BYTES, FormatError};

type Block = [u8; BLOCK_BYTES];

const ASYNC: LogFeatures = LogFeatures { coalition: false, async_commit: true, data_checksums: false };
const CHECKED: LogFeatures = LogFeatures { data_checksums: true, ..ASYNC };

/// Runs a future that waits for nothing, as everything in memory does.
fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("nothing here waits"),
    }
}

/// A log, and the filesystem's blocks.
#[derive(Clone)]
struct Log {
    superblock: JournalSuperblock,
    blocks: Vec<Block>,
    head: usize,
    homes: BTreeMap<u64, Block>,
    mutant: Option<ReplayMutant>,
}

impl LogReader for Log {
    type Error = FormatError;

    async fn read(&self, block: u32, bytes: &mut Block) -> Result<(), FormatError> {
        *bytes = self.blocks[block as usize];
        Ok(())
    }

    async fn read_home(&self, home: u64, bytes: &mut Block) -> Result<(), FormatError> {
        *bytes = self.homes.get(&home).copied().unwrap_or([0; BLOCK_BYTES]);
        Ok(())
    }

    fn drops(&self, mutant: ReplayMutant) -> bool {
        self.mutant == Some(mutant)
    }
}

impl Log {
    fn new(features: LogFeatures) -> Log {
        Log::with(true, features)
    }

    /// With version 3 checksums or without.
    fn with(checksums: bool, features: LogFeatures) -> Log {
        let mut superblock = JournalSuperblock::new([9; 16], 64, checksums).expect("a log");
        superblock.set_features(features).expect("an empty log");
        superblock.set_tail(Some(1), Sequence(1));
        let blocks = vec![[0; BLOCK_BYTES]; 64];
        Log { superblock, blocks, head: 1, homes: BTreeMap::new(), mutant: None }
    }

    /// Appends a transaction: what it logs, revokes, and has written in place. The place of its first block.
    fn commit(
        &mut self,
        number: u32,
        copies: &[(u64, u8)],
        revokes: &[u64],
        in_place: &[(u64, u8)],
    ) -> usize {
        let (format, sequence) = (self.superblock.format(), Sequence(number));
        let mut copies: Vec<(u64, Block)> =
            copies.iter().map(|(home, byte)| (*home, [*byte; BLOCK_BYTES])).collect();
        let order = encode_transaction(&format, sequence, revokes, &mut copies).expect("a transaction");
        let written: Vec<(u64, Block)> =
            in_place.iter().map(|(home, byte)| (*home, [*byte; BLOCK_BYTES])).collect();
        let checksums =
            encode_data_checksums(&format, sequence, written.iter().map(|(home, block)| (*home, &block[..])));
        let first = self.head;
        let blocks = order.into_iter().map(|block| match block {
            LogBlock::Own(bytes) => *bytes,
            LogBlock::Copy(nth) => copies[nth].1,
        });
        let commit = encode_commit(&format, sequence, 0, 0);
        for block in blocks.chain(checksums.into_iter().map(|block| *block)).chain([*commit]) {
            self.blocks[self.head] = block;
            self.head += 1;
        }
        self.homes.extend(written);
        first
    }

    /// How many transactions recovery finds, and which blocks go home.
    fn replay(&self) -> Result<(u32, Vec<u64>), FormatError> {
        let found = now(replay(&self.superblock, 1000, self))?;
        Ok((found.transactions, found.writes.iter().map(|write| write.home).collect()))
    }

    fn recovered(&self) -> (u32, Vec<u64>) {
        self.replay().expect("a log without damage")
    }
}

#[test]
fn a_commit_block_over_missing_blocks_ends_the_log() {
    let two = |features| {
        let mut log = Log::new(features);
        log.commit(1, &[(5, 1), (6, 1)], &[], &[]);
        let second = log.commit(2, &[(6, 2), (7, 2)], &[], &[]);
        (log, second)
    };
    let (mut log, second) = two(ASYNC);
    assert_eq!(log.recovered(), (2, vec![5, 6, 7]));
    for missing in second..log.head - 1 {
        let (mut torn, _) = two(ASYNC);
        torn.blocks[missing] = [0; BLOCK_BYTES];
        assert_eq!(torn.recovered(), (1, vec![5, 6]), "block {missing}");
        // What jbd2 does not promise is damage.
        let (mut plain, _) = two(LogFeatures::default());
        plain.blocks[missing] = [0; BLOCK_BYTES];
        assert_eq!(plain.replay().is_err(), missing > second, "block {missing}");
    }
    // The next transaction waits for this one, so a whole one behind says that it was there.
    log.commit(3, &[(8, 3)], &[], &[]);
    log.blocks[second + 1] = [0; BLOCK_BYTES];
    log.replay().expect_err("damage");
}

/// A log of some transactions, and where each begins. Async commit has checksums on filesystems without, too.
fn drawn(random: &mut Pcg64) -> (Log, Vec<usize>) {
    let mut log = Log::with(random.random(), ASYNC);
    let firsts = (1..=random.random_range(2..6)).map(|number| {
        let copies: BTreeMap<u64, u8> =
            (0..random.random_range(1..5)).map(|_| (random.random_range(0..20), random.random())).collect();
        let revoked: Vec<u64> = (20..20 + random.random_range(0..2)).collect();
        log.commit(number, &copies.into_iter().collect::<Vec<_>>(), &revoked, &[])
    });
    let firsts = firsts.collect();
    (log, firsts)
}

/// Zeros in the place of some of the blocks of a transaction, of one at least.
fn tear(random: &mut Pcg64, blocks: &mut [Block]) {
    let certain = random.random_range(0..blocks.len());
    for (nth, block) in blocks.iter_mut().enumerate() {
        if nth == certain || random.random() {
            *block = [0; BLOCK_BYTES];
        }
    }
}

/// Recovery ends before the last transaction if anything of that is missing, and refuses the log if the missing block is
/// of an earlier one.
fn tells_an_end_from_damage(seed: u64, mutant: Option<ReplayMutant>) -> Result<(), String> {
    let random = &mut Pcg64::seed_from_u64(seed);
    let (whole, firsts) = drawn(random);
    let last = firsts.len() - 1;
    let mut expected = whole.clone();
    expected.blocks[firsts[last]..].fill([0; BLOCK_BYTES]);
    let mut torn = Log { mutant, ..whole };
    let mut damaged = torn.clone();
    tear(random, &mut torn.blocks[firsts[last]..torn.head]);
    let found = torn.replay();
    if found != Ok(expected.recovered()) {
        return Err(format!("seed {seed}: a torn end gives {found:?}"));
    }
    let nth = random.random_range(0..last);
    tear(random, &mut damaged.blocks[firsts[nth]..firsts[nth + 1]]);
    match damaged.replay() {
        Err(FormatError::Checksum { .. }) => Ok(()),
        taken => Err(format!("seed {seed}: damage of transaction {} gives {taken:?}", nth + 1)),
    }
}

#[test]
fn j2_recovery_tells_a_torn_end_from_damage() {
    use ReplayMutant::{RefusesTornCommit, TakesOwnCommitForLater, TrustsCommitBlock, TrustsEnd};
    let seeds = 0..200;
    let found = |mutant| seeds.clone().find_map(|seed| tells_an_end_from_damage(seed, mutant).err());
    assert_eq!(found(None), None);
    for mutant in [RefusesTornCommit, TrustsCommitBlock, TakesOwnCommitForLater, TrustsEnd] {
        assert!(found(Some(mutant)).is_some(), "{mutant:?} survives");
    }
}

/// An older block with a checksum of its own may be in the place of a newer one, with which it shares its CRC-32C.
#[test]
fn an_older_block_of_the_same_kind_is_a_missing_block() {
    let sealed = |byte: u8| {
        let mut block = [byte; BLOCK_BYTES];
        // The header of a node of an extent tree: magic number, no entry, room for 340, a leaf.
        block[..12].copy_from_slice(&[0x0A, 0xF3, 0, 0, 0x54, 0x01, 0, 0, 0, 0, 0, 0]);
        let kind = Kind::Extents { inode: 12, generation: 1 };
        Checksums::of_uuid(&[3; 16]).update_checksum(kind, 40, &mut block).expect("room for it");
        block
    };
    let (old, new) = (sealed(1), sealed(2));
    for (features, tells) in [(ASYNC, true), (LogFeatures::default(), false)] {
        let mut log = Log::new(features);
        let mut copies = [(40, new)];
        let format = log.superblock.format();
        let order = encode_transaction(&format, Sequence(1), &[], &mut copies).expect("a transaction");
        let LogBlock::Own(descriptor) = &order[0] else { panic!("a descriptor") };
        log.blocks[1..4].copy_from_slice(&[**descriptor, old, *encode_commit(&format, Sequence(1), 0, 0)]);
        assert_eq!(log.recovered().0, u32::from(!tells), "{features:?}");
        log.blocks[2] = new;
        assert_eq!(log.recovered(), (1, vec![40]));
    }
    // The same for data in place.
    let mut log = Log::new(CHECKED);
    log.commit(1, &[(5, 1)], &[], &[]);
    let format = log.superblock.format();
    let records = encode_data_checksums(&format, Sequence(2), [(40, &new[..])]);
    log.blocks[log.head] = *records[0];
    log.blocks[log.head + 1] = *encode_commit(&format, Sequence(2), 0, 0);
    for (home, transactions) in [(old, 1), (new, 2)] {
        log.homes.insert(40, home);
        assert_eq!(log.recovered().0, transactions);
    }
}

#[test]
fn j10_the_log_ends_before_data_that_is_missing() {
    let mut log = Log::new(CHECKED);
    log.commit(1, &[(5, 1)], &[], &[(100, 1)]);
    let second = log.commit(2, &[(5, 2), (6, 2)], &[], &[(101, 2), (102, 2)]);
    log.commit(3, &[(7, 3)], &[5], &[(103, 3)]);
    assert_eq!(log.recovered(), (3, vec![6, 7]), "5 is revoked");
    // Of the second, which the third does not hide any more then.
    log.homes.insert(102, [0; BLOCK_BYTES]);
    assert_eq!(log.recovered(), (1, vec![5]));
    log.homes.insert(102, [2; BLOCK_BYTES]);
    log.homes.insert(103, [9; BLOCK_BYTES]);
    assert_eq!(log.recovered(), (2, vec![5, 6]));
    log.homes.insert(103, [3; BLOCK_BYTES]);
    // A hole in the log: what is behind it counts for nothing, and is no damage.
    log.blocks[second + 1] = [0; BLOCK_BYTES];
    assert_eq!(log.recovered(), (1, vec![5]));
    log.mutant = Some(ReplayMutant::ReplaysPastHole);
    assert_eq!(log.recovered(), (3, vec![7]), "which revokes 5");
}

#[test]
fn j10_what_is_logged_or_revoked_later_may_change() {
    let mut log = Log::new(CHECKED);
    log.commit(1, &[(5, 1)], &[], &[(100, 1), (101, 1), (102, 1)]);
    log.commit(2, &[(100, 2)], &[101], &[]);
    // The copy has gone home, and the freed block has another owner.
    log.homes.extend([(100, [2; BLOCK_BYTES]), (101, [8; BLOCK_BYTES])]);
    assert_eq!(log.recovered(), (2, vec![5, 100]));
    log.commit(3, &[(6, 3)], &[], &[(101, 3)]);
    assert_eq!(log.recovered(), (3, vec![5, 6, 100]));
    log.homes.insert(101, [8; BLOCK_BYTES]);
    assert_eq!(log.recovered(), (2, vec![5, 100]), "the new owner's data is missing");
    log.homes.insert(102, [8; BLOCK_BYTES]);
    assert_eq!(log.recovered(), (0, vec![]), "nobody let go of it");
}

#[test]
fn features_that_need_each_other_are_not_taken_alone() {
    let plain = || JournalSuperblock::new([9; 16], 64, false).expect("a log");
    let alone = LogFeatures { data_checksums: true, ..LogFeatures::default() };
    JournalSuperblock::new([9; 16], 64, true)
        .expect("a log")
        .set_features(alone)
        .expect_err("no async commit");
    // As read: jbd2's feature, whose checksums do not tell old blocks from new ones.
    let mut block = [0; BLOCK_BYTES];
    plain().encode(&mut block);
    block[0x2B] |= 4;
    // In an empty log it says nothing, and the first log that is written here has it no more.
    let mut empty = JournalSuperblock::decode(&block, 64).expect("an empty log");
    empty.upgrade(false).expect("an empty log");
    let mut upgraded = [0; BLOCK_BYTES];
    empty.encode(&mut upgraded);
    assert_eq!(upgraded[0x2B] & 4, 0);
    // In a log that begins at block 1 it does.
    block[0x1F] = 1;
    let refused = JournalSuperblock::decode(&block, 64).expect_err("the kernel's checksums");
    assert!(refused.to_string().contains("journal_async_commit"), "{refused}");
    assert!(refused.is_unsupported() && !refused.to_string().contains("damaged"), "{refused}");
}
