//! Allocation against a model, and rule J7 with the mutant that drops it.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use weir_block::Class;
use weir_ext4::journal::Sequence;
use weir_ext4::{Kind, Mkfs};
use weir_format::{BLOCK_BYTES, FileType};
use weir_journal::{Reuse, Role, Until};
use weir_runtime::{Buffer as Memory, Handle as Clock, Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, Capabilities, Discard, Extent, Lba, Ordering, Rules, Storage,
};
use weir_vfs::{Caller, FsError};

use crate::filesystem::BarrierFs;
use crate::mounted::Mounted;
use crate::mutants::FsMutant;
use crate::options::{Discards, MountOptions};
use crate::space::{GROUP_CREDITS, Use};

/// Three groups, the last of them not whole.
const BLOCKS: u64 = 80_000;

/// Plays `script` on a new filesystem.
fn play<T>(mutant: Option<FsMutant>, script: impl AsyncFnOnce(Rc<Mounted>, Clock) -> T) -> T {
    play_on_disk(mutant, async |fs, clock, _| script(fs, clock).await)
}

fn play_on_disk<T>(
    mutant: Option<FsMutant>,
    script: impl AsyncFnOnce(Rc<Mounted>, Clock, Rc<AdversaryDisk>) -> T,
) -> T {
    play_with(
        MountOptions { rules: Rules::but(mutant), discard: Discards::On, ..MountOptions::default() },
        script,
    )
}

fn play_with<T>(
    options: MountOptions,
    script: impl AsyncFnOnce(Rc<Mounted>, Clock, Rc<AdversaryDisk>) -> T,
) -> T {
    let runtime = Runtime::simulated(Simulation::default());
    let clock = runtime.handle();
    let legacy = Capabilities::legacy(32, 256, 4096);
    let capabilities = Capabilities {
        ordering: Ordering::Barrier,
        ordered_service: true,
        discard: Discard::ReadsZero,
        ..legacy
    };
    let described = AdversaryOptions { blocks: BLOCKS, capabilities, ..AdversaryOptions::default() };
    let disk = AdversaryDisk::new(&clock, described);
    let played = async {
        let plan = Mkfs { zeroed: true, ..Mkfs::new(BLOCKS, [1; 16], [2; 16], 1_700_000_000) };
        BarrierFs::make(&*disk, &plan).await.expect("made");
        let storage = Rc::clone(&disk) as Rc<dyn Storage>;
        let fs = BarrierFs::mount(&clock, storage, options).await.expect("mounted");
        script(Rc::clone(&fs.0), clock.clone(), Rc::clone(&disk)).await
    };
    runtime.block_on(played).expect("no stall")
}

async fn allocate(fs: &Mounted, goal: u64, most: u32) -> Result<Extent, FsError> {
    let handle = fs.changes.journal()?.start(GROUP_CREDITS).await?;
    fs.metadata.space.allocate(&handle, goal, 0, most).await
}

async fn allocate_for_tree(fs: &Mounted) -> Result<u64, FsError> {
    let handle = fs.changes.journal()?.start(GROUP_CREDITS).await?;
    fs.metadata.space.allocate_one(&handle, Use::Tree, 7).await
}

async fn free(fs: &Mounted, extent: Extent) -> Result<(), FsError> {
    let handle = fs.changes.journal()?.start(2 * GROUP_CREDITS).await?;
    fs.metadata.space.free(&handle, extent).await
}

#[test]
fn j7_a_freed_block_is_not_reused_before_the_commit_block_is_transferred() {
    let rule = |mutant| {
        play(mutant, async |fs, _| {
            let mine = allocate(&fs, 50_000, 4).await.expect("room");
            fs.changes.journal().expect("writable").commit_all().await.expect("committed");
            let before = fs.metadata.space.free_blocks();
            free(&fs, mine).await.expect("freed");
            assert_eq!(fs.metadata.space.free_blocks(), before + 4, "what waits counts as free");
            let other = allocate(&fs, mine.start.0, 4).await.expect("room");
            if other.overlaps(mine) {
                return Err("reused while the transaction that freed it runs");
            }
            assert!(fs.metadata.space.has_waiting());
            fs.changes.journal().expect("writable").commit_all().await.expect("committed");
            assert!(!fs.metadata.space.has_waiting());
            let again = allocate(&fs, mine.start.0, 4).await.expect("room");
            assert_eq!(again, mine, "free for reuse after the commit");
            Ok(())
        })
    };
    assert_eq!(rule(None), Ok(()));
    assert!(rule(Some(FsMutant::ReusesFreed)).is_err(), "the mutant was not noticed");
}

/// With the bitmap of one group in memory, whatever is done in others meanwhile.
#[test]
fn j7_what_waits_for_its_commit_stays_taken_when_its_group_is_evicted() {
    let rule = |mutant| {
        let options = MountOptions { cache_groups: 1, rules: Rules::but(mutant), ..MountOptions::default() };
        play_with(options, async |fs, _, _| {
            let mine = allocate(&fs, 40_000, 4).await.expect("room");
            fs.changes.journal().expect("writable").commit_all().await.expect("committed");
            free(&fs, mine).await.expect("freed");
            for _ in 0..3 {
                for goal in [100, 70_000] {
                    allocate(&fs, goal, 2).await.expect("room");
                }
                if allocate(&fs, mine.start.0, 4).await.expect("room").overlaps(mine) {
                    return Err("reused while the transaction that freed it runs");
                }
            }
            fs.changes.journal().expect("writable").commit_all().await.expect("committed");
            allocate(&fs, 70_000, 2).await.expect("room");
            assert_eq!(allocate(&fs, mine.start.0, 4).await.expect("room"), mine, "free behind the commit");
            Ok(())
        })
    };
    assert_eq!(rule(None), Ok(()));
    assert!(rule(Some(FsMutant::EvictsHeld)).is_err(), "the mutant was not noticed");
}

#[test]
fn j7_a_freed_block_is_discarded_when_its_transaction_is_durable() {
    let rule = |mutant| {
        play_on_disk(mutant, async |fs, clock, disk| {
            let journal = fs.changes.journal().expect("writable");
            let mine = allocate(&fs, 50_000, 1).await.expect("room");
            let mut content = Memory::new(BLOCK_BYTES);
            content.fill(7);
            let mut tickets = Vec::new();
            let (class, content) = (Class::Orderless, [Rc::new(content)]);
            fs.disk.write(mine.start.0, &content, class, class, &mut tickets).await.expect("written");
            free(&fs, mine).await.expect("freed");
            let sequence = journal.running();
            journal.commit_all().await.expect("committed");
            clock.sleep(Duration::from_millis(500)).await;
            if disk.image().read(mine.start) != [7; BLOCK_BYTES] {
                return Err("discarded although the transaction may be lost");
            }
            journal.commit(sequence, Until::Durable).await.expect("durable");
            clock.sleep(Duration::from_millis(500)).await;
            assert_eq!(disk.image().read(mine.start), [0; BLOCK_BYTES], "discarded");
            assert_eq!(allocate(&fs, mine.start.0, 1).await, Ok(mine), "it can be allocated again");
            Ok(())
        })
    };
    assert_eq!(rule(None), Ok(()));
    assert!(rule(Some(FsMutant::DiscardsEarly)).is_err(), "the mutant was not noticed");
}

#[test]
fn j7_a_freed_block_is_not_discarded_when_it_is_allocated_again() {
    let rule = |mutant| {
        play_on_disk(mutant, async |fs, clock, disk| {
            let journal = fs.changes.journal().expect("writable");
            let mine = allocate(&fs, 50_000, 2).await.expect("room");
            free(&fs, mine).await.expect("freed");
            let sequence = journal.running();
            journal.commit_all().await.expect("committed");
            // It may be reused, and is not durable yet.
            let again = allocate(&fs, mine.start.0, 1).await.expect("room");
            assert_eq!(again.start, mine.start);
            let mut content = Memory::new(BLOCK_BYTES);
            content.fill(7);
            let (class, content, mut tickets) = (Class::Orderless, [Rc::new(content)], Vec::new());
            for block in mine.iter() {
                fs.disk.write(block.0, &content, class, class, &mut tickets).await.expect("written");
            }
            fs.disk.wait_transferred(&tickets).await.expect("transferred");
            journal.commit(sequence, Until::Durable).await.expect("durable");
            clock.sleep(Duration::from_millis(500)).await;
            assert_eq!(disk.image().read(Lba(mine.start.0 + 1)), [0; BLOCK_BYTES], "the other is discarded");
            disk.image().read(mine.start) == [7; BLOCK_BYTES]
        })
    };
    assert!(rule(None));
    assert!(!rule(Some(FsMutant::DiscardsReused)), "the mutant was not noticed");
}

/// A block that is allocated again and freed again is discarded when the second of the transactions is durable that
/// freed it: until then a power cut may bring back what came between.
#[test]
fn j7_a_block_that_is_freed_twice_is_discarded_when_both_are_durable() {
    let rule = |mutant| {
        play_on_disk(mutant, async |fs, clock, disk| {
            let journal = fs.changes.journal().expect("writable");
            let mine = allocate(&fs, 50_000, 1).await.expect("room");
            free(&fs, mine).await.expect("freed");
            let first = journal.running();
            journal.commit_all().await.expect("committed");
            // As flushes would that were submitted before the later ones were transferred.
            fs.metadata.space.are_durable(Sequence(first.0 - 1));
            assert_eq!(allocate(&fs, mine.start.0, 1).await, Ok(mine), "reused");
            write_block(&fs, mine.start, 7).await;
            journal.commit_all().await.expect("committed");
            free(&fs, mine).await.expect("freed again");
            let second = journal.running();
            journal.commit_all().await.expect("committed");
            fs.metadata.space.are_durable(first);
            clock.sleep(Duration::from_millis(500)).await;
            if disk.image().read(mine.start) != [7; BLOCK_BYTES] {
                return Err("discarded although the second transaction may be lost");
            }
            journal.commit(second, Until::Durable).await.expect("durable");
            clock.sleep(Duration::from_millis(500)).await;
            assert_eq!(disk.image().read(mine.start), [0; BLOCK_BYTES], "discarded");
            Ok(())
        })
    };
    assert_eq!(rule(None), Ok(()));
    assert!(rule(Some(FsMutant::DiscardsFreedTwice)).is_err(), "the mutant was not noticed");
}

/// Writes a block full of `byte`, past the journal.
async fn write_block(fs: &Mounted, block: Lba, byte: u8) {
    let mut content = Memory::new(BLOCK_BYTES);
    content.fill(byte);
    let (class, mut tickets) = (Class::Orderless, Vec::new());
    fs.disk.write(block.0, &[Rc::new(content)], class, class, &mut tickets).await.expect("written");
    fs.disk.wait_transferred(&tickets).await.expect("transferred");
}

/// A trim discards what is free durably, while others allocate, and nothing else.
#[test]
fn j7_what_is_allocated_during_a_trim_is_not_discarded() {
    let rule = |mutant| {
        play_on_disk(mutant, async |fs, clock, disk| {
            // So many pieces that the group takes several commands.
            let mut mine = Vec::new();
            for _ in 0..2000 {
                mine.push(allocate(&fs, 40_000, 1).await.expect("room"));
            }
            for extent in mine.iter().step_by(2) {
                free(&fs, *extent).await.expect("freed");
            }
            let trimmer = BarrierFs(Rc::clone(&fs), Caller::SUPERUSER);
            let trim = clock.spawn(async move { trimmer.trim(0..u64::MAX, 0).await });
            let mut held = Vec::new();
            for _ in 0..900 {
                let block = allocate(&fs, mine[0].start.0, 1).await.expect("room").start;
                write_block(&fs, block, 7).await;
                held.push(block);
            }
            let trimmed = trim.await.expect("not cancelled").expect("trimmed");
            assert!(trimmed > 60_000 * BLOCK_BYTES as u64, "{trimmed}");
            let image = disk.image();
            held.iter().all(|block| image.read(*block) == [7; BLOCK_BYTES])
        })
    };
    assert!(rule(None));
    assert!(!rule(Some(FsMutant::TrimTakesNothing)), "the mutant was not noticed");
}

#[test]
fn j7_a_trim_leaves_what_is_not_durably_free() {
    let rule = |mutant| {
        play_on_disk(mutant, async |fs, _, disk| {
            let mine = allocate(&fs, 50_000, 1).await.expect("room");
            write_block(&fs, mine.start, 7).await;
            let (group, bit) = fs.metadata.space.place_of(mine.start.0);
            // Freed and committed while a trim is at the groups before, behind its flush.
            free(&fs, mine).await.expect("freed");
            fs.changes.journal().expect("writable").commit_all().await.expect("committed");
            let all = 0..fs.metadata.space.layout().blocks_in(group);
            let trimmed = fs.metadata.space.trim_group(&fs.disk, group, all, 1).await.expect("trimmed");
            assert!(trimmed > u64::from(bit), "{trimmed}");
            let kept = disk.image().read(mine.start) == [7; BLOCK_BYTES];
            BarrierFs(Rc::clone(&fs), Caller::SUPERUSER).trim(0..u64::MAX, 0).await.expect("trimmed");
            assert_eq!(disk.image().read(mine.start), [0; BLOCK_BYTES], "the next takes it");
            kept
        })
    };
    assert!(rule(None));
    assert!(!rule(Some(FsMutant::TrimsUndurable)), "the mutant was not noticed");
}

/// A directory's block whose copy in the journal is not home yet: it is discarded, and nothing is written there after
/// that (J5 d).
#[test]
fn what_is_discarded_is_not_written_home() {
    play_on_disk(None, async |fs, clock, disk| {
        let journal = Rc::clone(fs.changes.journal().expect("writable"));
        let mine = allocate(&fs, 50_000, 1).await.expect("room");
        let handle = journal.start(1).await.expect("room");
        let buffer = fs.metadata.buffers.fresh(mine.start.0, Role::Metadata(Kind::SymlinkTarget));
        handle.modify(&buffer, 0..BLOCK_BYTES, |bytes| bytes.fill(7));
        drop(handle);
        journal.commit_all().await.expect("committed");
        let handle = journal.start(2 * GROUP_CREDITS).await.expect("room");
        fs.metadata.space.free(&handle, mine).await.expect("freed");
        handle.revoke(mine.start.0);
        fs.metadata.buffers.forget(mine.start.0);
        let sequence = handle.sequence();
        drop((handle, buffer));
        journal.commit(sequence, Until::Durable).await.expect("durable");
        clock.sleep(Duration::from_millis(500)).await;
        assert!(fs.metadata.space.discard_stats().blocks > 0);
        BarrierFs(Rc::clone(&fs), Caller::SUPERUSER).unmount().await.expect("unmounted");
        assert_eq!(disk.image().read(mine.start), [0; BLOCK_BYTES], "home was written");
    });
}

/// Files that grow in turn, a block at a time, are in long runs all the same.
#[test]
fn files_that_grow_together_stay_whole() {
    play(None, async |fs, _| {
        let mut ends = [fs.metadata.space.layout().first_block(1); 4];
        let mut runs = 0;
        for _ in 0..2000 {
            for end in &mut ends {
                let found = allocate(&fs, *end, 1).await.expect("room");
                runs += u32::from(found.start.0 != *end);
                *end = found.end().0;
            }
        }
        assert!(runs <= 8000 / 256, "{runs} runs");
    });
}

#[test]
fn blocks_are_allocated_once_and_counted() {
    play(None, async |fs, clock| {
        let mut random = clock.random("test.space");
        let mut held: Vec<Extent> = Vec::new();
        let mut used: BTreeSet<u64> = BTreeSet::new();
        let at_first = fs.metadata.space.free_blocks();
        for round in 0..20_000_u32 {
            if round % 1000 == 0 {
                fs.changes.journal().expect("writable").commit_all().await.expect("committed");
            }
            if random.below(5) < 3 {
                let (goal, most) = (random.below(BLOCKS), 1 + random.below(64) as u32);
                match allocate(&fs, goal, most).await {
                    Ok(found) => {
                        assert!((1..=most).contains(&found.blocks) && found.end().0 <= BLOCKS);
                        assert!(found.iter().all(|block| used.insert(block.0)), "{found} is in use");
                        held.push(found);
                    }
                    Err(error) => assert_eq!(error, FsError::NoSpace),
                }
            } else if !held.is_empty() {
                let gone = held.swap_remove(random.below(held.len() as u64) as usize);
                gone.iter().for_each(|block| assert!(used.remove(&block.0)));
                free(&fs, gone).await.expect("freed");
            }
            assert_eq!(fs.metadata.space.free_blocks(), at_first - used.len() as u64);
        }
        for extent in held {
            free(&fs, extent).await.expect("freed");
        }
        assert_eq!(fs.metadata.space.free_blocks(), at_first);
    });
}

#[test]
fn every_block_can_be_had() {
    play(None, async |fs, _| {
        // What is kept for trees, trees have.
        let (mut left, kept) = (fs.metadata.space.free_blocks(), BLOCKS / 50);
        while left > kept {
            left -= u64::from(allocate(&fs, 7, 20_000).await.expect("room").blocks);
        }
        assert_eq!((left, allocate(&fs, 0, 1).await), (kept, Err(FsError::NoSpace)));
        for _ in 0..kept {
            allocate_for_tree(&fs).await.expect("room");
        }
        assert_eq!(
            (fs.metadata.space.free_blocks(), allocate_for_tree(&fs).await),
            (0, Err(FsError::NoSpace))
        );
    });
}

#[test]
fn a_goal_is_met_and_a_file_goes_on_where_it_was() {
    play(None, async |fs, _| {
        let mut end = 40_000;
        for _ in 0..100 {
            let found = allocate(&fs, end, 3).await.expect("room");
            assert_eq!((found.start.0, found.blocks), (end, 3));
            end = found.end().0;
        }
    });
}

#[test]
fn what_is_not_in_use_is_not_freed() {
    play(None, async |fs, _| {
        for block in [0, 1, 40_000, BLOCKS - 1, BLOCKS, u64::MAX - 1] {
            let extent = Extent::new(Lba(block), 1);
            assert!(matches!(free(&fs, extent).await, Err(FsError::Format(_))), "{extent}");
        }
        assert!(!fs.metadata.space.has_waiting());
    });
}

#[test]
fn inodes_are_given_once_until_there_are_none() {
    play(None, async |fs, _| {
        let mut seen = BTreeSet::new();
        let all = fs.metadata.space.free_inodes();
        for _ in 0..all {
            let handle =
                fs.changes.journal().expect("writable").start(GROUP_CREDITS + 1).await.expect("room");
            let number = fs.metadata.space.allocate_inode(&handle, 1, FileType::Regular).await.expect("free");
            assert!(
                number > 11 && number <= fs.metadata.space.layout().inodes() && seen.insert(number),
                "{number}"
            );
        }
        let handle = fs.changes.journal().expect("writable").start(GROUP_CREDITS + 1).await.expect("room");
        let none = fs.metadata.space.allocate_inode(&handle, 1, FileType::Regular).await;
        assert_eq!((none, fs.metadata.space.free_inodes()), (Err(FsError::NoSpace), 0));
        fs.metadata.space.free_inode(&handle, 12, false).await.expect("freed");
        assert!(fs.metadata.space.free_inode(&handle, 12, false).await.is_err(), "it is free already");
        assert_eq!(fs.metadata.space.allocate_inode(&handle, 2, FileType::Regular).await, Ok(12));
    });
}

#[test]
fn directories_are_spread_over_the_groups() {
    play(None, async |fs, _| {
        let mut groups = BTreeSet::new();
        for _ in 0..6 {
            let handle =
                fs.changes.journal().expect("writable").start(GROUP_CREDITS + 1).await.expect("room");
            let number =
                fs.metadata.space.allocate_inode(&handle, 0, FileType::Directory).await.expect("free");
            groups.insert(fs.metadata.space.layout().inode_group(number).expect("an inode").0);
        }
        assert!(groups.len() > 1, "all in {groups:?}");
    });
}
