//! Crash tests, and their judges: what is clean, fixed and failed on images made by hand; and table 2 of the FAST 2018
//! paper in short, where the engine without flushes has to fail.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use weir_crash::{Condition, CrashMonkeyCheck, Found, Judgement, Judges, Overlaps, Setup, Tally, Workload};
use weir_ext4::{Descriptor, Mkfs, SUPERBLOCK_OFFSET};
use weir_format::BLOCK_BYTES;

/// Blocks of an image: the fewest.
const BLOCKS: u64 = 2048;

/// An image on which nothing was done, and where its block bitmap is. A damage is not also a wrong checksum.
fn image() -> (Vec<u8>, usize) {
    let plain = Mkfs::new(BLOCKS, [7; 16], [8; 16], 1_700_000_000);
    let made = Mkfs { checksums: false, ..plain }.plan().unwrap();
    let mut bytes = vec![0; BLOCKS as usize * BLOCK_BYTES];
    for (block, content) in made.writes() {
        bytes[block as usize * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(&content);
    }
    let (block, range) = made.layout().descriptor_place(0).unwrap();
    let descriptor = &bytes[block as usize * BLOCK_BYTES..][range];
    let bitmap = Descriptor::read(descriptor, 0, made.layout()).unwrap().block_bitmap();
    (bytes, bitmap as usize * BLOCK_BYTES)
}

/// All judges of this machine, where nothing but an empty root is allowed.
fn judged(image: &[u8]) -> Judgement {
    let judges = Judges::here().unwrap();
    if !judges.has_kernel() {
        eprintln!("the kernel is not asked{}", if judges.has_e2fsck() { "" } else { ", nor is e2fsck" });
    }
    judges.judge(image, &|found: &Found| found.paths().is_empty()).unwrap()
}

/// Whether a judge says this, if he was asked.
fn says(judge: Option<Condition>, condition: Condition) -> bool {
    judge.is_none_or(|said| said == condition)
}

#[test]
fn a_whole_image_is_clean_to_everybody() {
    let judgement = judged(&image().0);
    assert_eq!(judgement.all(), Condition::Clean, "{judgement:?}");
}

/// A block that nobody has is marked as in use: nothing is lost, and e2fsck mends it.
#[test]
fn an_image_with_a_wrong_bitmap_is_fixed() {
    let (mut bytes, bitmap) = image();
    bytes[bitmap + BLOCKS as usize / 8 - 1] |= 0x80;
    let judgement = judged(&bytes);
    assert_eq!((judgement.model, judgement.check), (Condition::Clean, Condition::Fixed));
    let outside = [judgement.e2fsck, judgement.kernel].map(|judge| says(judge, Condition::Fixed));
    assert_eq!((outside, judgement.all()), ([true; 2], Condition::Fixed), "{judgement:?}");
}

/// Without its only superblock it is no filesystem.
#[test]
fn an_image_without_a_superblock_has_failed() {
    let (mut bytes, _) = image();
    bytes[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + 1024].fill(0);
    let judgement = judged(&bytes);
    assert_eq!((judgement.model, judgement.all()), (Condition::Failed, Condition::Failed));
    let outside = [judgement.e2fsck, judgement.kernel].map(|judge| says(judge, Condition::Failed));
    assert_eq!(outside, [true; 2], "{judgement:?}");
}

/// Whole, but not what was promised: only those who know the promise say so.
#[test]
fn an_image_without_what_was_promised_has_failed() {
    let judges = Judges::here().unwrap();
    let judgement = judges.judge(&image().0, &|found| found.is_there("/promised")).unwrap();
    assert_eq!((judgement.model, judgement.check), (Condition::Failed, Condition::Clean));
    assert!(says(judgement.e2fsck, Condition::Clean) && says(judgement.kernel, Condition::Failed));
    assert_eq!(judgement.all(), Condition::Failed);
}

/// A workload of the table, as the figure has it.
macro_rules! workload {
    ($name:literal) => {
        include_str!(concat!("../../../figures/fast18-table2/", $name, ".txt")).parse::<Workload>().unwrap()
    };
}

fn tests(ground: &str, engine: &str, checksums: bool, [before, run]: [&Workload; 2], tests: u64) -> Tally {
    let setup = Setup { check: 0, checksums, ..Setup::named(ground, engine).unwrap() };
    let bench = setup.prepare().unwrap().after(before).unwrap();
    bench.crash_tests(run, tests, Judges::OURS).unwrap()
}

/// EXT4-DR, BFS-DR and BFS-OD are clean in all, with checksums and without, and EXT4-OD is not.
#[test]
fn all_but_the_engine_without_flushes_are_clean() {
    let renames = [workload!("rename_root_to_sub.setup"), workload!("rename_root_to_sub")];
    let deletes = [workload!("create_delete.setup"), workload!("create_delete")];
    let ordered = [workload!("rename_root_to_sub.ordered"), workload!("create_delete.ordered")];
    for ([before, durable], ordered) in [renames, deletes].iter().zip(&ordered) {
        for checksums in [false, true] {
            let clean = |ground, engine, run| {
                let tally = tests(ground, engine, checksums, [before, run], 150);
                assert_eq!(tally.tests(), 150);
                tally.all(Condition::Clean)
            };
            assert_eq!(clean("legacy", "jbd2", durable), 150, "EXT4-DR: {durable}");
            assert_eq!(clean("adversary", "dual", durable), 150, "BFS-DR: {durable}");
            assert_eq!(clean("adversary", "dual", ordered), 150, "BFS-OD: {ordered}");
            let without = clean("legacy", "jbd2-nobarrier", durable);
            assert!(without < 150, "EXT4-OD is clean in {without}: {durable}");
        }
    }
}

/// So as CrashMonkey chooses, too, and as it judges.
#[test]
fn all_but_the_engine_without_flushes_are_clean_in_every_permutation() {
    let tests = |ground, engine, [before, run]: [&Workload; 2], overlaps, check| {
        let mut setup = Setup { check: 0, checksums: false, ..Setup::named(ground, engine).unwrap() };
        // What is committed goes home at once.
        setup.options.checkpoint_blocks = 1;
        let bench = setup.prepare().unwrap().after(before).unwrap();
        let tally = bench.permuted_tests(run, 100, overlaps, Judges::OURS, check).unwrap();
        assert_eq!(
            Condition::ALL.map(|condition| tally.tested(condition)).iter().sum::<u64>(),
            tally.tests()
        );
        (tally.tests(), tally.all(Condition::Clean), tally.tested(Condition::Clean))
    };
    let renames = [workload!("rename_root_to_sub.setup"), workload!("rename_root_to_sub")];
    let deletes = [workload!("create_delete.setup"), workload!("create_delete")];
    let ordered = [workload!("rename_root_to_sub.ordered"), workload!("create_delete.ordered")];
    let checks = [CrashMonkeyCheck::RenameRootToSub, CrashMonkeyCheck::CreateDelete];
    for (([before, durable], ordered), check) in [renames, deletes].iter().zip(&ordered).zip(checks) {
        for overlaps in Overlaps::ALL {
            let clean =
                [("legacy", "jbd2", durable), ("adversary", "dual", durable), ("adversary", "dual", ordered)];
            for (ground, engine, run) in clean {
                let (all, clean, passed) = tests(ground, engine, [before, run], overlaps, check);
                assert!(
                    all > 10 && (clean, passed) == (all, all),
                    "{engine} {overlaps}: {clean}, {passed} of {all}"
                );
            }
            let (all, clean, passed) = tests("legacy", "jbd2-nobarrier", [before, durable], overlaps, check);
            assert!(
                all == 100 && clean < 90 && passed < 90,
                "EXT4-OD {overlaps}: {clean}, {passed} of {all}"
            );
        }
    }
}

/// The same tests, judged the same.
#[test]
fn crash_tests_are_a_function_of_the_seed() {
    let workloads = [&workload!("rename_root_to_sub.setup"), &workload!("rename_root_to_sub")];
    let again = || tests("legacy", "jbd2-nobarrier", true, workloads, 100);
    assert_eq!(again(), again());
}
