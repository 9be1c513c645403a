//! What runs of applications are: functions of their seed, the same work on every filesystem, and true to SQLite's calls.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use weir_figures::{
    App, Application, Behaviour, Experiment, Host, Inserts, Journal, On, Run, Synchronous, Syncs, Table,
};
use weir_flash::Profile;

const ROUNDS: u64 = 20;

fn run(experiment: impl Experiment + 'static) -> Run {
    let (device, _) = Profile::load("emmc45").unwrap();
    Run {
        device: device.with_capacity(1 << 17),
        host: Host::builtin("phone-2013").unwrap(),
        experiment: Arc::new(experiment),
        erased: false,
        span: 1,
        writes: ROUNDS,
        warm_up_max: 5,
        sample_ns: 10_000,
        asks_kernel: false,
    }
}

fn application(on: On, app: App) -> Run {
    run(Application { on, app })
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    for app in App::ALL {
        let run = application(On::Ext4, app);
        let seen = run.outcome(1).unwrap();
        assert_eq!(seen, run.outcome(1).unwrap(), "{app}");
        assert_ne!(seen.trace_hash, run.outcome(2).unwrap().trace_hash, "{app}");
        assert!(seen.value("operations") > 0.0 && seen.value("calls") > 0.0, "{app}: {seen:?}");
    }
}

/// What an application does depends on the seed, and not on how long it takes.
#[test]
fn the_same_work_is_done_on_every_filesystem() {
    for app in App::ALL {
        let [waits, does_not] =
            [On::Ext4, On::Ext4Unbarriered].map(|on| application(on, app).outcome(1).unwrap());
        assert_eq!(waits.value("calls"), does_not.value("calls"), "{app}");
        assert!(
            waits.value("latency-mean") > 1.2 * does_not.value("latency-mean"),
            "{app}: {waits:?} {does_not:?}"
        );
        assert_eq!(does_not.value("total-flushes"), 0.0, "{app}");
    }
}

/// Five for a transaction, and one each for preferences and appends.
#[test]
fn calls_are_those_of_the_behaviour() {
    for app in App::ALL {
        let behaviour = Behaviour::of(app).unwrap();
        let expected =
            5.0 * behaviour.transactions.value + behaviour.preferences.value + behaviour.appends.value;
        let calls = application(On::Ext4, app).outcome(1).unwrap().value("calls") / ROUNDS as f64;
        assert!((calls / expected - 1.0).abs() < 0.05, "{app}: {calls} {expected}");
    }
}

/// Most of what is written to persist is the journal's.
#[test]
fn journal_blocks_are_counted_by_where_they_go() {
    for app in App::ALL {
        let seen = application(On::Ext4, app).outcome(1).unwrap();
        assert!((0.6..0.85).contains(&seen.value("journal-ratio")), "{app}: {seen:?}");
        let all = seen.value("persisted-journal") + seen.value("persisted-other");
        let written = seen.value("total-written");
        assert!(all <= written && 10.0 * all > 9.0 * written, "{app}: {seen:?}");
    }
}

/// With `fsync` each of SQLite's syncs but that of the directory finds a changed inode, whose commit is a flush; with
/// `fdatasync` the journal's alone has a changed size.
#[test]
fn sqlite_alone_commits_for_each_sync_of_data_and_metadata() {
    let flushes = |syncs| {
        let (journal, synchronous) = (Journal::Truncate, Synchronous::Full);
        let inserts =
            Inserts { on: On::Ext4, journal, synchronous, syncs, table: Table::Plain, program_us: 0 };
        let seen = Run { writes: 100, ..run(inserts) }.outcome(1).unwrap();
        (seen.value("total-flushes") / 100.0, seen.value("total-written"))
    };
    let (whole, stock) = (flushes(Syncs::Whole), flushes(Syncs::Stock));
    assert!((5.0..5.2).contains(&whole.0), "{whole:?}");
    assert!(whole.1 > stock.1, "{whole:?} {stock:?}");
}
