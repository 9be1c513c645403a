//! What runs of applications are: functions of their seed, the same work on every filesystem, and true to SQLite's calls.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use weir_figures::{
    App, Application, Behaviour, Host, Inserts, Journal, On, Outcome, Run, Synchronous, Syncs, Table, Way,
};
use weir_flash::Profile;

const ROUNDS: u64 = 20;

fn run(way: Way) -> Run {
    let (device, _) = Profile::load("emmc45").unwrap();
    Run {
        device: device.with_capacity(1 << 17),
        host: Host::builtin("phone-2013").unwrap(),
        way,
        erased: false,
        span: 1,
        writes: ROUNDS,
        warm_up_max: 5,
        sample_ns: 10_000,
    }
}

fn application(on: On, app: App) -> Run {
    run(Way::App(Application { on, app }))
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    for app in App::ALL {
        let run = application(On::Ext4, app);
        let seen = run.outcome(1).unwrap();
        assert_eq!(seen, run.outcome(1).unwrap(), "{app}");
        assert_ne!(seen.trace_hash, run.outcome(2).unwrap().trace_hash, "{app}");
        assert!(seen.iops > 0.0 && seen.calls > 0, "{app}: {seen:?}");
    }
}

/// What an application does depends on the seed, and not on how long it takes.
#[test]
fn the_same_work_is_done_on_every_filesystem() {
    for app in App::ALL {
        let [waits, does_not] =
            [On::Ext4, On::Ext4Unbarriered].map(|on| application(on, app).outcome(1).unwrap());
        assert_eq!(waits.calls, does_not.calls, "{app}");
        assert!(waits.latency.mean > 1.2 * does_not.latency.mean, "{app}: {waits:?} {does_not:?}");
        assert_eq!(does_not.counts.flushes, 0, "{app}");
    }
}

/// Five for a transaction, and one each for preferences and appends.
#[test]
fn calls_are_those_of_the_behaviour() {
    for app in App::ALL {
        let behaviour = Behaviour::of(app).unwrap();
        let expected =
            5.0 * behaviour.transactions.value + behaviour.preferences.value + behaviour.appends.value;
        let calls = application(On::Ext4, app).outcome(1).unwrap().calls as f64 / ROUNDS as f64;
        assert!((calls / expected - 1.0).abs() < 0.05, "{app}: {calls} {expected}");
    }
}

/// Most of what is written to persist is the journal's.
#[test]
fn journal_blocks_are_counted_by_where_they_go() {
    let persisted = |app| application(On::Ext4, app).outcome(1).unwrap();
    for app in App::ALL {
        let Outcome { persisted, counts, .. } = persisted(app);
        assert!((0.6..0.85).contains(&persisted.journal_ratio()), "{app}: {persisted:?}");
        let all = persisted.journal_blocks + persisted.other_blocks;
        assert!(all <= counts.written_blocks && 10 * all > 9 * counts.written_blocks, "{app}: {counts:?}");
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
        let seen = Run { writes: 100, ..run(Way::Sqlite(inserts)) }.outcome(1).unwrap();
        (seen.counts.flushes as f64 / 100.0, seen.counts.written_blocks)
    };
    let (whole, stock) = (flushes(Syncs::Whole), flushes(Syncs::Stock));
    assert!((5.0..5.2).contains(&whole.0), "{whole:?}");
    assert!(whole.1 > stock.1, "{whole:?} {stock:?}");
}
