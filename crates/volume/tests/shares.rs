//! Shares: what blocks read, what is live, and what becomes of the names in cleaning, checkpoints and recovery (V7).

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use weir_runtime::{Handle, Random};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Command, Extent, Lba, Part, Rejected, Rules,
    SharePair, Storage, flush, read, submit_when_free, write,
};
use weir_volume::{CheckReport, Damage, Format, Volume, VolumeError, VolumeMutant, VolumeOptions, check};

use crate::simulation::simulate;

const SMALL: Format = Format { logical_blocks: 0, segment_blocks: 8, overwrite: false, slots: 0 };
/// Pairs that fit one command, and one header.
const MOST: u64 = 336;

fn page(stamp: u64) -> Vec<u8> {
    let mut block = vec![(stamp * 7 + 1) as u8; BLOCK_BYTES];
    block[..8].copy_from_slice(&stamp.to_le_bytes());
    block
}

fn disk(handle: &Handle, blocks: u64) -> Rc<AdversaryDisk> {
    let capabilities = Capabilities::legacy(32, 512, 512);
    AdversaryDisk::new(handle, AdversaryOptions { blocks, capabilities, ..AdversaryOptions::default() })
}

fn options(mutant: Option<VolumeMutant>) -> VolumeOptions {
    VolumeOptions { rules: Rules::but(mutant), ..VolumeOptions::default() }
}

async fn open(handle: &Handle, disk: &Rc<AdversaryDisk>, mutant: Option<VolumeMutant>) -> Volume {
    Volume::open(handle, Rc::clone(disk) as Rc<dyn Storage>, options(mutant)).await.unwrap()
}

async fn made(handle: &Handle, blocks: u64, format: Format) -> (Rc<AdversaryDisk>, Volume) {
    let disk = disk(handle, blocks);
    Volume::create(handle, &*disk, format).await.unwrap();
    let volume = open(handle, &disk, None).await;
    (disk, volume)
}

async fn put(volume: &Volume, lba: u64, stamp: u64) {
    write(volume, Part::bytes(Lba(lba), &page(stamp))).await.unwrap();
}

async fn holds(volume: &Volume, lba: u64, stamp: u64) -> bool {
    let found = read(volume, Extent::new(Lba(lba), 1)).await;
    found.is_ok_and(|found| found[..] == if stamp == 0 { vec![0; BLOCK_BYTES] } else { page(stamp) }[..])
}

fn pair(from: u64, to: u64) -> SharePair {
    SharePair { from: Extent::new(Lba(from), 1), to: Lba(to) }
}

async fn share(volume: &Volume, pairs: &[SharePair]) -> Result<(), Rejected> {
    Ok(submit_when_free(volume, Command::Share(pairs)).await?.transferred().await?)
}

async fn discard(volume: &Volume, lba: u64) {
    submit_when_free(volume, Command::Discard(&[Extent::new(Lba(lba), 1)])).await.unwrap();
}

/// Live blocks, blocks that are listed, and names of them.
fn counts(volume: &Volume) -> (u64, u64, u64) {
    let stats = volume.stats();
    (stats.live_blocks, stats.shared_blocks, stats.shared_names)
}

/// A block is live as long as any name of it, and a pair reads what its source read before the command, whatever its
/// other pairs change.
#[test]
fn a_block_is_live_until_its_last_name_is_gone() {
    simulate(1, async |handle| {
        let (_, volume) = made(&handle, 400, SMALL).await;
        assert!(volume.capabilities().share && u64::from(volume.capabilities().max_share_blocks) == MOST);
        put(&volume, 1, 10).await;
        put(&volume, 2, 20).await;
        assert_eq!(counts(&volume), (2, 0, 0));
        // From one that is a target as well, the old content.
        share(&volume, &[pair(1, 3), pair(2, 1), pair(1, 4)]).await.unwrap();
        for (lba, stamp) in [(1, 20), (2, 20), (3, 10), (4, 10)] {
            assert!(holds(&volume, lba, stamp).await, "block {lba}");
        }
        assert_eq!(counts(&volume), (2, 2, 4));
        put(&volume, 3, 30).await;
        discard(&volume, 4).await;
        assert_eq!(counts(&volume), (2, 1, 2), "what 3 and 4 read is gone");
        // What reads zero is shared as zero; what reads the same already stays.
        share(&volume, &[pair(9, 3), pair(2, 1)]).await.unwrap();
        assert!(holds(&volume, 3, 0).await && holds(&volume, 1, 20).await);
        assert_eq!(counts(&volume), (1, 1, 2));
        // Change places, and back by a restart.
        put(&volume, 5, 50).await;
        share(&volume, &[pair(1, 5), pair(5, 1)]).await.unwrap();
        assert!(holds(&volume, 1, 50).await && holds(&volume, 5, 20).await && holds(&volume, 2, 20).await);
        assert_eq!(counts(&volume), (2, 2, 3));
        share(&volume, &[]).await.unwrap();
        assert_eq!(volume.stats().user_blocks, 4);
        assert_eq!(volume.stats().shared_by_users, 3 + 2 + 2);
    });
}

/// The log behind the checkpoint, and the checkpoint, have the names.
#[test]
fn names_are_there_again_after_a_crash_and_after_a_close() {
    simulate(2, async |handle| {
        let (disk, mut volume) = made(&handle, 400, SMALL).await;
        put(&volume, 1, 10).await;
        put(&volume, 2, 20).await;
        share(&volume, &[pair(1, 2), pair(2, 1), pair(1, 3)]).await.unwrap();
        put(&volume, 1, 40).await;
        let before = counts(&volume);
        assert_eq!(before, (2, 1, 2));
        for close in [false, true] {
            match close {
                true => volume.close().await.unwrap(),
                false => flush(&volume).await.unwrap(),
            }
            drop(volume);
            let report = check(&*disk).await.unwrap();
            assert_eq!((report.live_blocks, report.shared_names, report.damaged_total), (2, 2, 0));
            volume = open(&handle, &disk, None).await;
            assert_eq!(counts(&volume), before, "close: {close}");
            for (lba, stamp) in [(1, 40), (2, 10), (3, 10)] {
                assert!(holds(&volume, lba, stamp).await, "block {lba}, close: {close}");
            }
        }
    });
}

/// A workload of writes, discards and shares that cleans all the time, with a reopening now and then.
struct Trial {
    volume: Option<Volume>,
    disk: Rc<AdversaryDisk>,
    mutant: Option<VolumeMutant>,
    random: Random,
    now: BTreeMap<u64, u64>,
    stamp: u64,
    cleaned: u64,
}

impl Trial {
    async fn new(handle: &Handle, mutant: Option<VolumeMutant>) -> Trial {
        let (disk, volume) = made(handle, 400, SMALL).await;
        drop(volume);
        let volume = Some(open(handle, &disk, mutant).await);
        Trial {
            volume,
            disk,
            mutant,
            random: handle.random("trial"),
            now: BTreeMap::new(),
            stamp: 0,
            cleaned: 0,
        }
    }

    fn volume(&self) -> &Volume {
        self.volume.as_ref().unwrap()
    }

    async fn step(&mut self, handle: &Handle) {
        let blocks = self.volume().blocks();
        let lba = self.random.below(blocks);
        match self.random.below(200) {
            0 => {
                match self.random.below(2) {
                    0 => self.volume().close().await.unwrap(),
                    _ => flush(self.volume()).await.unwrap(),
                }
                self.cleaned += self.volume().stats().cleaned_blocks;
                drop(self.volume.take());
                self.volume = Some(open(handle, &self.disk, self.mutant).await);
            }
            1..4 => {
                discard(self.volume(), lba).await;
                self.now.remove(&lba);
            }
            4..16 => self.share(lba).await,
            _ => {
                self.stamp += 1;
                put(self.volume(), lba, self.stamp).await;
                self.now.insert(lba, self.stamp);
            }
        }
    }

    async fn share(&mut self, first: u64) {
        let blocks = self.volume().blocks();
        let mut pairs: Vec<SharePair> =
            (0..1 + self.random.below(6)).map(|_| pair(first, self.random.below(blocks))).collect();
        pairs.push(pair(self.random.below(blocks), first));
        pairs.retain(|pair| pair.from.start != pair.to);
        share(self.volume(), &pairs).await.unwrap();
        let before = self.now.clone();
        for SharePair { from, to } in pairs {
            match before.get(&from.start.0) {
                Some(stamp) => self.now.insert(to.0, *stamp),
                None => self.now.remove(&to.0),
            };
        }
    }

    async fn is_right(&self) -> bool {
        for lba in 0..self.volume().blocks() {
            if !holds(self.volume(), lba, self.now.get(&lba).copied().unwrap_or(0)).await {
                return false;
            }
        }
        let mut contents: Vec<u64> = self.now.values().copied().collect();
        contents.sort_unstable();
        contents.dedup();
        self.volume().stats().live_blocks == contents.len() as u64
    }
}

/// Whether all blocks read what they should to the end, and live blocks are counted once.
fn keeps_shares(seed: u64, mutant: Option<VolumeMutant>) -> bool {
    simulate(seed, async |handle| {
        let mut trial = Trial::new(&handle, mutant).await;
        for round in 0..40 {
            for _ in 0..200 {
                trial.step(&handle).await;
            }
            if !trial.is_right().await {
                assert!(mutant.is_some(), "seed {seed}, round {round}");
                return false;
            }
        }
        trial.volume().close().await.unwrap();
        let report = check(&*trial.disk).await.unwrap();
        assert_eq!(report.damaged_total, 0);
        assert_eq!(report.live_blocks, trial.volume().stats().live_blocks);
        assert!(trial.cleaned > 1000, "seed {seed}: {} blocks cleaned", trial.cleaned);
        true
    })
}

#[test]
fn shares_are_kept_through_cleaning_and_reopening() {
    for seed in 0..10 {
        assert!(keeps_shares(seed, None));
    }
}

/// Whether a block still reads what was shared to it when the volume was opened again, or its source was overwritten, or
/// neither, and everything else was overwritten many times.
fn survives_churn(reopen: bool, overwrite: bool, mutant: Option<VolumeMutant>) -> bool {
    simulate(3, async |handle| {
        let (disk, volume) = made(&handle, 400, SMALL).await;
        drop(volume);
        let mut volume = open(&handle, &disk, mutant).await;
        put(&volume, 1, 10).await;
        share(&volume, &[pair(1, 2)]).await.unwrap();
        if reopen {
            volume.close().await.unwrap();
            drop(volume);
            volume = open(&handle, &disk, mutant).await;
        }
        if overwrite {
            put(&volume, 1, 11).await;
        }
        let mut random = handle.random("churn");
        for stamp in 100..4000 {
            put(&volume, 3 + random.below(volume.blocks() - 3), stamp).await;
        }
        assert!(volume.stats().cleaned_blocks > 1000, "{} blocks cleaned", volume.stats().cleaned_blocks);
        holds(&volume, 1, if overwrite { 11 } else { 10 }).await && holds(&volume, 2, 10).await
    })
}

#[test]
fn a_shared_block_lives_and_moves_with_all_its_names() {
    for (reopen, overwrite) in [(false, true), (true, true), (false, false)] {
        assert!(survives_churn(reopen, overwrite, None));
    }
    assert!(!survives_churn(true, true, Some(VolumeMutant::SharedFlagsForgotten)));
}

/// Whether the other pair of a share is there wherever one is, in what power cuts may leave.
fn is_whole_or_not_there() -> bool {
    simulate(4, async |handle| {
        let options = AdversaryOptions { blocks: 400, latency_ns_max: 50_000, ..AdversaryOptions::default() };
        let disk = AdversaryDisk::new(&handle, options);
        Volume::create(&handle, &*disk, SMALL).await.unwrap();
        let volume = open(&handle, &disk, None).await;
        put(&volume, 1, 10).await;
        put(&volume, 2, 20).await;
        flush(&volume).await.unwrap();
        share(&volume, &[pair(1, 11), pair(2, 12)]).await.unwrap();
        let flushed = submit_when_free(&volume, Command::Flush).await.unwrap();
        let mut random = handle.random("states");
        let (mut with, mut without) = (0, 0);
        for _ in 0..200 {
            handle.sleep(Duration::from_nanos(500)).await;
            let left = disk.crash_states().sample(&mut random);
            let options = AdversaryOptions { blocks: left.blocks(), ..AdversaryOptions::default() };
            let disk = AdversaryDisk::from_image(&handle, options, &left);
            let volume = open(&handle, &disk, None).await;
            match (holds(&volume, 11, 10).await, holds(&volume, 12, 20).await) {
                (true, true) => with += 1,
                (false, false) => without += 1,
                _ => return false,
            }
        }
        flushed.transferred().await.unwrap();
        assert!(with > 10 && without > 10, "{with} states with the share, {without} without");
        true
    })
}

#[test]
fn a_share_is_left_whole_or_not_at_all() {
    assert!(is_whole_or_not_there());
}

/// Whether replayed shares have the sources that they had when they were placed.
fn replays_in_order(mutant: Option<VolumeMutant>) -> bool {
    simulate(5, async |handle| {
        let (disk, volume) = made(&handle, 400, SMALL).await;
        for (lba, stamp) in [(1, 10), (2, 20), (3, 30)] {
            put(&volume, lba, stamp).await;
        }
        share(&volume, &[pair(1, 2), pair(2, 1), pair(3, 4)]).await.unwrap();
        put(&volume, 3, 31).await;
        flush(&volume).await.unwrap();
        drop(volume);
        let volume = open(&handle, &disk, mutant).await;
        assert!(volume.stats().recovery.records >= 5);
        let mut right = true;
        for (lba, stamp) in [(1, 20), (2, 10), (3, 31), (4, 30)] {
            right &= holds(&volume, lba, stamp).await;
        }
        right
    })
}

#[test]
fn a_replayed_share_has_the_sources_of_its_time() {
    assert!(replays_in_order(None));
    assert!(!replays_in_order(Some(VolumeMutant::PairsInTurn)));
}

/// What a check says of a volume with a shared block that was closed.
fn checked(mutant: Option<VolumeMutant>) -> Result<CheckReport, VolumeError> {
    simulate(6, async |handle| {
        let (disk, volume) = made(&handle, 400, SMALL).await;
        put(&volume, 1, 10).await;
        share(&volume, &[pair(1, 2)]).await.unwrap();
        volume.close().await.unwrap();
        drop(volume);
        // The map page is written again, without shared flags by the mutant.
        let volume = open(&handle, &disk, mutant).await;
        put(&volume, 3, 30).await;
        volume.close().await.unwrap();
        check(&*disk).await
    })
}

#[test]
fn a_check_finds_names_that_are_not_listed() {
    let report = checked(None).unwrap();
    assert_eq!((report.live_blocks, report.shared_names, report.damaged_total), (2, 2, 0));
    let unlisted = checked(Some(VolumeMutant::SharedFlagsForgotten));
    assert!(matches!(unlisted, Err(VolumeError::Damaged { what: Damage::Names, .. })), "{unlisted:?}");
}
