//! Workloads of one's own: operations that are not done, and what is said of them; power cuts that tear blocks, and that
//! come during recovery.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use weir_crash::{FoundKind, JudgedBy, Outcome, PlayError, Setup, SetupError, Workload};
use weir_fs::{FsMutant, JournalMutant};
use weir_storage::Rules;

/// Fills a filesystem, the larger parts first, and goes on: a file that grows, a directory.
fn crowded() -> Workload {
    let mut text = "create /a\ncreate /b\ncreate /c\nfalloc /a 0 3M\nsync\n".to_owned();
    let mut offset = 0;
    for kilobytes in [512, 256, 128, 64, 32, 16, 8, 4, 4, 4] {
        text += &format!("falloc /b {offset}K {kilobytes}K\n");
        offset += kilobytes;
    }
    text += "append /c 8K\nmkdir /d\nfsync /c\nfsync /b\nsync\n";
    text.parse().unwrap()
}

#[test]
fn what_finds_no_space_is_counted_and_expected_by_nobody() {
    for (ground, engine) in [("volume", "dual"), ("legacy", "jbd2")] {
        let workload = crowded();
        let swept = Setup::named(ground, engine).unwrap().prepare().unwrap().sweep(&workload).unwrap();
        assert_eq!(swept.failure, None, "{ground}");
        let full: Vec<String> =
            swept.no_space.iter().map(|nth| workload.operations[nth - 1].to_string()).collect();
        for found_none in ["append /c 8K", "mkdir /d"] {
            assert!(full.iter().any(|said| said == found_none), "{found_none} has found space: {full:?}");
        }
        assert!(
            !full.iter().any(|said| said.starts_with("falloc /a") || said.starts_with("fsync")),
            "{full:?}"
        );
        assert_eq!(swept.totals.operations, workload.operations.len() as u64);
        assert_eq!(swept.totals.operations_no_space, full.len() as u64);
    }
}

/// The state that is judged lacks what found no space, though a call has made durable all that was done.
#[test]
fn what_found_no_space_is_not_there_and_is_not_missed() {
    let bench = Setup::named("legacy", "jbd2").unwrap().prepare().unwrap();
    let played = bench.play(async |session| {
        let mut ended = Vec::new();
        for operation in &crowded().operations {
            ended.push((operation.to_string(), session.perform(operation).await?));
        }
        assert!(ended.contains(&("mkdir /d".to_owned(), Outcome::NoSpace)), "{ended:?}");
        assert!(ended.contains(&("create /a".to_owned(), Outcome::Done)), "{ended:?}");
        for cut in session.cut_now() {
            let found = cut.recover().unwrap();
            assert_eq!((found.kind("/d"), found.kind("/c")), (None, Some(FoundKind::File(0))));
            cut.judge().unwrap();
        }
        session.judge_now().await.unwrap();
        Ok::<_, PlayError>(session.perform(&"create /d/e".parse().unwrap()).await)
    });
    let refused = played.unwrap().unwrap().unwrap_err();
    assert!(matches!(refused, PlayError::Impossible { no_space: 2.., .. }), "{refused:?}");
    let told = refused.to_string();
    assert!(told.starts_with("create /d/e: /d does not exist; the filesystem is full"), "{told}");
}

/// A sweep of a short workload with one rule dropped, or none: who finds it wrong, and the states of recoveries.
fn judged(mutant: Option<FsMutant>, tear_bytes: u32, cut_recovery: u64) -> (Option<JudgedBy>, u64) {
    let named = Setup::named("adversary", "dual").unwrap();
    let mut setup = Setup { tear_bytes, cut_recovery, ..named };
    setup.options.rules = Rules::but(mutant);
    let bench = setup.prepare().unwrap();
    let workload: Workload = "create /a\nappend /a 8K\nfsync /a\nrename /a /b\nsync\n".parse().unwrap();
    let swept = bench.sweep(&workload).unwrap();
    if let Some(failure) = &swept.failure {
        let again = bench.replay(&workload, failure.cut.as_ref().unwrap()).unwrap();
        // What is replayed is checked more often, so it may be wrong in another way.
        let again = again.map(|again| (again.cut, again.defect.by));
        assert_eq!(again, Some((failure.cut.clone(), failure.defect.by)), "{mutant:?} does not replay");
        assert_eq!(bench.shrink(&workload, failure).failure.defect.by, failure.defect.by);
    }
    (swept.failure.map(|failure| failure.defect.by), swept.totals.states_recovery)
}

/// J5: a log is called empty when what it held is durable at home. Only a power cut during recovery shows it here.
#[test]
fn a_second_cut_finds_a_log_that_is_emptied_too_early() {
    let emptied = Some(FsMutant::Journal(JournalMutant::EmptyWithoutFlush));
    assert_eq!(judged(emptied, 4096, 0), (None, 0));
    assert_eq!(judged(emptied, 4096, 1).0, Some(JudgedBy::SecondRecovery));
    let (none, states) = judged(None, 4096, 1);
    assert!(none.is_none() && states > 100, "{none:?} {states}");
}

/// A mount writes the superblock past the journal, in one sector. Only a torn write shows it if that takes two.
#[test]
fn a_torn_write_finds_a_superblock_in_two_sectors() {
    let torn = Some(FsMutant::TearsSuperblock);
    assert_eq!(judged(torn, 4096, 1).0, None);
    assert_eq!(judged(torn, 512, 1).0, Some(JudgedBy::SecondRecovery));
    assert_eq!(judged(None, 512, 1).0, None);
}

/// Torn blocks are judged sector by sector: without that the model takes what the contract allows for a mistake.
#[test]
fn grounds_that_tear_no_block_say_so() {
    for (ground, bytes, is_taken) in [
        ("legacy", 512, true),
        ("adversary", 512, true),
        ("volume", 4096, true),
        ("volume", 512, false),
        ("prefix", 512, false),
        ("emmc", 512, false),
        ("plp", 512, false),
        ("legacy", 1024, false),
        ("legacy", 0, false),
    ] {
        let named = Setup::named(ground, "jbd2").unwrap();
        let prepared = Setup { tear_bytes: bytes, ..named }.prepare();
        match prepared {
            Ok(_) => assert!(is_taken, "{ground}, {bytes}"),
            Err(refused) => assert!(!is_taken && matches!(refused, SetupError::Tear { .. }), "{refused}"),
        }
    }
    // In mode writeback pages are overwritten in place.
    let workload: Workload = "create /a\nwrite /a 0 8K\nsync\nwrite /a 0 8K\nfsync /a\n".parse().unwrap();
    let named = Setup::named("legacy", "jbd2").unwrap();
    let swept = Setup { tear_bytes: 512, ..named }.prepare().unwrap().sweep(&workload).unwrap();
    assert_eq!(swept.failure, None);
}

/// Whether all states of an event are looked at depends on how many may be. An emulated device does not tell.
#[test]
fn what_is_looked_at_whole_is_counted() {
    let workload: Workload = "create /a\nfsync /a\n".parse().unwrap();
    let swept = |ground, exhaustive_max, samples| {
        let named = Setup::named(ground, "jbd2").unwrap();
        let setup = Setup { exhaustive_max, samples, ..named };
        setup.prepare().unwrap().sweep(&workload).unwrap().totals
    };
    let (none, some, all) = (swept("legacy", 0, 3), swept("legacy", 2, 3), swept("legacy", 1 << 12, 3));
    assert_eq!((none.exhaustive, none.events_exhaustive, none.cuts), (0, 0, 3 * none.events));
    assert!(0 < some.events_exhaustive && some.events_exhaustive < some.events, "{some:?}");
    // Every other event has three states that were drawn.
    assert_eq!(some.cuts - some.exhaustive, 3 * (some.events - some.events_exhaustive));
    assert_eq!((all.exhaustive, all.events_exhaustive), (all.cuts, all.events));
    assert!(all.states > none.states, "{all:?}");
    let device = swept("none", u64::MAX, 3);
    assert_eq!((device.exhaustive, device.events_exhaustive), (0, 0));
}

/// What the calls of a filesystem would refuse is a mistake of the workload: it is not played.
#[test]
fn what_cannot_be_done_ends_the_play() {
    let bench = Setup::named("volume", "dual").unwrap().prepare().unwrap();
    for (text, expected) in [
        ("create /a\ncreate /a", "/a already exists"),
        ("create /a\nmkdir /a", "/a already exists"),
        ("create /a\ncreate /b\nlink /a /b", "/b already exists"),
        ("unlink /a", "/a does not exist"),
        ("rename /a /b", "/a does not exist"),
        ("create /a/b", "/a does not exist"),
        ("fsync /a", "/a does not exist"),
        ("create /a\ncreate /a/b", "/a is not a directory"),
        ("create /a\nrmdir /a", "/a is not a directory"),
        ("mkdir /a\nunlink /a", "/a is a directory"),
        ("mkdir /a\nlink /a /b", "/a is a directory"),
        ("mkdir /a\nwrite /a 0 1", "/a is not a file"),
        ("mkdir /a\ncreate /a/b\nrmdir /a", "/a is not empty"),
        ("mkdir /a\ncreate /b\nrename /a /b", "/a cannot replace /b"),
        ("create /a\nremovexattr /a", "/a has no attribute"),
        ("create /a\ntruncate /a 4M\nappend /a 1", "/a would have more than 4 MiB"),
    ] {
        let refused = bench.sweep(&text.parse().unwrap()).unwrap_err();
        let PlayError::Impossible { nth, operation, why, no_space: 0 } = &refused else {
            panic!("{text}: {refused:?}")
        };
        assert_eq!(*nth, text.lines().count());
        assert_eq!((Some(&operation[..]), &why.to_string()[..]), (text.lines().last(), expected));
        assert!(
            refused.to_string().ends_with("create what it needs in an earlier operation, or leave it out")
        );
    }
}
