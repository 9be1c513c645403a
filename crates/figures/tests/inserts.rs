//! Inserts on an order-preserving drive and on an ordinary one: how often each transaction flushes, and what a drive
//! programs for it (OPTR paper, section 4).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use crate::drive::drive;
use weir_figures::{FigureError, Host, Inserts, Journal, On, Outcome, Run, Synchronous, Syncs, Table};
use weir_flash::Mechanism;

const INSERTS: u64 = 200;

fn run(on: On, syncs: Syncs, synchronous: Synchronous, mechanism: Mechanism) -> Run {
    let inserts =
        Inserts { on, journal: Journal::Delete, synchronous, syncs, table: Table::Plain, program_us: 0 };
    Run {
        device: drive(mechanism),
        host: Host::builtin("desktop").unwrap(),
        experiment: Arc::new(inserts),
        erased: true,
        span: 1,
        writes: INSERTS,
        warm_up_max: 50,
        sample_ns: 10_000,
        asks_kernel: false,
    }
}

fn flushes(on: On, syncs: Syncs, synchronous: Synchronous, mechanism: Mechanism) -> f64 {
    let seen = run(on, syncs, synchronous, mechanism).outcome(1).unwrap();
    seen.value("total-flushes") / INSERTS as f64
}

/// The journal's content, its directory, its header, the database, and the directory again. The first and the last
/// commit, which takes EXT4 two flushes. A few more come where the database grows and where the log's tail moves.
#[test]
fn five_syncs_are_seven_flushes_and_one_is_enough() {
    for (mechanism, engines) in [
        (Mechanism::None, [On::Ext4, On::Ext4Unbarriered].as_slice()),
        (Mechanism::OrderPreservingRecovery, [On::Ext4, On::Prefix, On::Ext4Unbarriered].as_slice()),
    ] {
        for on in engines {
            let each = [
                (Syncs::Stock, Synchronous::Extra),
                (Syncs::Stock, Synchronous::Full),
                (Syncs::Durable, Synchronous::Extra),
            ]
            .map(|(syncs, synchronous)| flushes(*on, syncs, synchronous, mechanism));
            let expected = match on {
                On::Ext4 => [7.0, 5.0, 7.0],
                On::Prefix => [5.0, 4.0, 1.0],
                _ => [0.0; 3],
            };
            for (seen, expected) in each.into_iter().zip(expected) {
                assert!((expected..=1.03 * expected).contains(&seen), "{on} on {mechanism:?}: {each:?}");
            }
        }
    }
}

#[test]
fn what_is_programmed_is_data_or_the_firmwares_and_records_are_an_order_preserving_drives() {
    let seen = |mechanism| {
        let run = run(On::Ext4Unbarriered, Syncs::Stock, Synchronous::Extra, mechanism);
        Run { writes: 2000, ..run }.outcome(1).unwrap()
    };
    for (mechanism, has_records) in [(Mechanism::None, false), (Mechanism::OrderPreservingRecovery, true)] {
        let seen = seen(mechanism);
        let firmware = seen.value("total-checkpoint-pages")
            + seen.value("total-record-pages")
            + seen.value("total-moved-pages");
        assert_eq!(seen.value("total-record-pages") > 0.0, has_records, "{seen:?}");
        assert!(
            (2000.0 * seen.value("data-pages") - seen.value("total-data-pages")).abs() < 1e-6,
            "{seen:?}"
        );
        assert!((2000.0 * seen.value("firmware-pages") - firmware).abs() < 1e-6, "{seen:?}");
    }
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let run = run(On::Prefix, Syncs::Durable, Synchronous::Extra, Mechanism::OrderPreservingRecovery);
    assert_eq!(run.outcome(1).unwrap(), run.outcome(1).unwrap());
}

/// Repetitions have shorter windows, and their totals are those of the whole one all the same: not a tenth less, as their writes are.
#[test]
fn totals_of_repetitions_are_of_the_whole_window() {
    let run = run(On::Ext4, Syncs::Stock, Synchronous::Extra, Mechanism::None);
    let run = Run { writes: 400, ..run };
    let outcomes: Vec<Outcome> = (1..=7).map(|seed| run.outcome(seed).unwrap()).collect();
    for total in ["total-written", "total-flushes", "total-data-pages", "seconds"] {
        let mut values: Vec<f64> = outcomes.iter().map(|outcome| outcome.value(total)).collect();
        let (single, all) = (values[0], values.len());
        values.sort_by(f64::total_cmp);
        let median = values[all / 2];
        assert!(
            (median / single - 1.0).abs() < 0.03,
            "{total}: {median} of {values:?}, {single} with one seed"
        );
        assert!(values[0] < values[all - 1], "{total}: the seeds draw nothing here");
    }
}

/// Negative control: what leaves the flushes out relies on the drive.
#[test]
fn an_ordinary_drive_refuses_the_engine_for_prefix_devices() {
    let refused = run(On::Prefix, Syncs::Durable, Synchronous::Extra, Mechanism::None).outcome(1);
    assert!(matches!(refused, Err(FigureError::Files { .. })), "{refused:?}");
}
