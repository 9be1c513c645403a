//! Workloads of one's own: they are played, cut at every event and judged, and what is wrong is found.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod interface;
mod shrinking;

use std::process::Command;

use weir_crash::{
    Bench, Counts as _, JudgedBy, Length, Setup, SweepResult, Workload, WorkloadTotals, generate,
};
use weir_fs::{FsMutant, JournalMutant};
use weir_storage::Rules;

/// A bench by names.
fn bench(ground: &str, engine: &str) -> Bench {
    Setup::named(ground, engine).unwrap().prepare().unwrap()
}

fn sweep(bench: &Bench, text: &str) -> SweepResult {
    bench.sweep(&text.parse::<Workload>().unwrap()).unwrap()
}

/// Every kind of operation, and every kind of call.
const EVERYTHING: &str = "\
mkdir /A
create /A/foo
write /A/foo 0 10000
fsync /A/foo
link /A/foo /bar
append /bar 5000
fdatabarrier /bar
falloc /bar 16K 8K keep-size
falloc /bar 0 100 punch
falloc /bar 4000 9000 zero
fdatasync /bar
setxattr /bar 40
fbarrier /bar
symlink /A/foo /A/s
mkdir /B
rename /A/foo /B/foo
fsync /B
truncate /bar 5000
removexattr /bar
unlink /bar
falloc /B/foo 0 20K
sync
rename /B /A/B
create /B
write /B 1M 1
fsync /A
unlink /A/B/foo
rmdir /A/B
fsync /B
";

#[test]
fn every_operation_keeps_its_promises() {
    let pairs = [
        ("volume", "dual"),
        ("adversary", "dual"),
        ("legacy", "jbd2"),
        ("in-order-recovery", "dual"),
        ("prefix", "prefix"),
        ("legacy", "flush-ahead"),
    ];
    for (ground, engine) in pairs {
        let mut setup = Setup::named(ground, engine).unwrap();
        setup.outside = 40;
        let swept = setup.prepare().unwrap().sweep(&EVERYTHING.parse().unwrap()).unwrap();
        assert_eq!(swept.failure, None, "{engine} on {ground}");
        let totals = swept.totals;
        assert!(totals.operations == 29 && totals.events > 60 && totals.states > 25, "{totals:?}");
        if totals.states_outside == 0 {
            eprintln!("skipped: e2fsck is not installed");
        }
        eprintln!("{engine} on {ground}: {totals:?}");
    }
}

/// All workloads of one operation. On a device, media of different plays look alike though they hold something else.
#[test]
fn all_of_length_one_keep_their_promises() {
    for (ground, engine) in [("volume", "dual"), ("legacy", "jbd2"), ("in-order-recovery", "dual")] {
        let mut setup = Setup::named(ground, engine).unwrap();
        setup.outside = 500;
        let (bench, mut totals) = (setup.prepare().unwrap(), WorkloadTotals::default());
        for workload in generate(Length::One) {
            let swept = bench.sweep(&workload).unwrap();
            assert_eq!(swept.failure, None, "{engine} on {ground}:\n{workload}");
            totals.add(&swept.totals);
        }
        assert!(totals.workloads > 150 && totals.states > 10 * totals.workloads, "{totals:?}");
        let installed = Command::new("e2fsck").arg("-V").output().is_ok();
        assert_eq!(totals.states_outside > 0, installed, "{totals:?}");
    }
}

/// A sweep is a function of its setup and workload, whatever was swept before on the bench.
#[test]
fn a_sweep_replays() {
    for ground in ["volume", "in-order-recovery"] {
        let used = bench(ground, "dual");
        let first = sweep(&used, EVERYTHING);
        sweep(&used, "create /x\nfsync /x\n");
        assert_eq!(sweep(&used, EVERYTHING), first, "{ground}");
        assert_eq!(sweep(&bench(ground, "dual"), EVERYTHING), first, "{ground}");
    }
}

/// The negative control: ext4 without barriers on a disk without order.
#[test]
fn the_legacy_engine_without_barriers_is_caught() {
    let failure = sweep(&bench("legacy", "jbd2-nobarrier"), EVERYTHING).failure.unwrap();
    assert!(failure.cut.is_some() && !failure.lost.is_empty(), "{failure:?}");
    let swept = sweep(&bench("volume", "jbd2-nobarrier"), EVERYTHING);
    assert_eq!(swept.failure, None, "order of receipt makes it consistent");
}

/// A call that lies about durability, where the next event makes it true.
#[test]
fn a_lie_that_the_next_event_makes_true_is_seen() {
    let mutant = FsMutant::Journal(JournalMutant::FlushNotAwaited);
    // Some disks answer at once, and there is no time to lie.
    let lie = (1..9).find_map(|seed| {
        let mut setup = Setup::named("adversary", "dual").unwrap();
        (setup.options.rules, setup.seed) = (Rules::but(Some(mutant)), seed);
        sweep(&setup.prepare().unwrap(), "create /a\nfsync /a\n").failure
    });
    let lie = lie.unwrap();
    assert_eq!((lie.defect.by, lie.operations), (JudgedBy::Model, 2));
}
