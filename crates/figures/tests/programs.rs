//! What runs of fio, varmail and InnoDB's calls are: functions of their seed, and true to the journal mode they run on
//! and the call that they synchronise by.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use crate::drive::drive;
use weir_figures::{
    Call, Experiment, FigureError, Fio, Host, InnoDb, LinkBench, Mode, Mounting, On, Outcome, Pages, Run,
    Varmail,
};
use weir_flash::{Mechanism, Profile};

/// An experiment that several runs have.
type Shared = Arc<dyn Experiment>;

const MODES: [Mode; 4] = [Mode::OJ, Mode::DJ, Mode::SOJ, Mode::SDJ];

/// A drive of 256 MiB with the share command.
fn sharing() -> Profile {
    let mut device = drive(Mechanism::None);
    device.ftl.share = 512;
    device.blocks = 65_536;
    device.nand.blocks_per_plane = 64;
    device
}

fn on(mode: Mode) -> Mounting {
    Mounting { on: On::Ext4, mode, journal_mib: Some(4), flusher_s: 30, in_background: false }
}

fn fio(mode: Mode, fsync_every: u32) -> Shared {
    Arc::new(Fio { on: on(mode), files: 20, file_writes: 25, fsync_every })
}

fn varmail(mode: Mode) -> Shared {
    Arc::new(mail(on(mode), Call::Fsync, 8))
}

fn innodb(pages: Pages, mode: Mode, durable: bool) -> InnoDb {
    InnoDb {
        on: on(mode),
        pages,
        tables: 12,
        table_pages: 64,
        threads: 8,
        transaction_us: 100,
        pages_of_hundred: 250,
        log_bytes: 2000,
        batch: 40,
        cleaners: 2,
        durable,
        binary_log_bytes: 0,
        call: Call::Fsync,
        cores: None,
    }
}

fn run(experiment: Shared) -> Run {
    Run {
        device: sharing(),
        host: Host::builtin("workstation").unwrap(),
        experiment,
        erased: false,
        span: 1,
        writes: 600,
        warm_up_max: 100,
        sample_ns: 10_000,
        asks_kernel: false,
    }
}

fn outcome(experiment: Shared) -> Outcome {
    run(experiment).outcome(1).unwrap()
}

/// What is done a second: the first metric.
fn rate(seen: &Outcome) -> f64 {
    seen.metrics()[0].1
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let server = |pages, mode| -> Shared { Arc::new(innodb(pages, mode, true)) };
    let servers = [
        server(Pages::Doublewrite, Mode::OJ),
        server(Pages::Home, Mode::DJ),
        server(Pages::Atomic, Mode::SDJ),
    ];
    for way in [fio(Mode::OJ, 4), fio(Mode::SDJ, 4), varmail(Mode::DJ), varmail(Mode::SOJ)]
        .into_iter()
        .chain(servers)
    {
        let run = run(way);
        let seen = run.outcome(1).unwrap();
        assert_eq!(seen, run.outcome(1).unwrap(), "{}", run.title());
        assert_ne!(seen.trace_hash, run.outcome(2).unwrap().trace_hash, "{}", run.title());
        assert!(rate(&seen) > 0.0 && seen.value("total-flushes") > 0.0, "{seen:?}");
    }
}

#[test]
fn whoever_synchronises_less_often_writes_more() {
    for mode in MODES {
        let rates = [1, 8, 64].map(|every| outcome(fio(mode, every)).value("iops"));
        assert!(rates.is_sorted_by(|often, seldom| 2.0 * often < *seldom), "{mode}: {rates:?}");
    }
}

/// The journal's copy is all that a checkpoint by remap leaves to be written. In the background checkpoints bring home all that
/// they can, so that they count most.
#[test]
fn a_checkpoint_by_remap_writes_less() {
    let written = |way: Shared| outcome(way).value("total-written");
    let on = |mode| Mounting { in_background: true, ..on(mode) };
    let fio = |mode, fsync_every| Arc::new(Fio { on: on(mode), files: 20, file_writes: 25, fsync_every });
    let [ordered, shared_ordered] = [Mode::OJ, Mode::SOJ].map(|mode| written(fio(mode, 1)));
    assert!(shared_ordered < ordered, "{shared_ordered} {ordered}");
    let ways: [&dyn Fn(Mode) -> Shared; 2] =
        [&|mode| fio(mode, 64), &|mode| Arc::new(mail(on(mode), Call::Fsync, 8))];
    for way in ways {
        let [ordered, data, shared_data] = [Mode::OJ, Mode::DJ, Mode::SDJ].map(|mode| written(way(mode)));
        assert!(data > 1.3 * ordered && shared_data < 0.8 * data, "{ordered} {data} {shared_data}");
    }
}

#[test]
fn a_group_of_atomic_files_saves_the_second_write_and_the_flushes() {
    let of = |pages, mode| outcome(Arc::new(innodb(pages, mode, false)));
    let twice = of(Pages::Doublewrite, Mode::OJ);
    let journaled = of(Pages::Home, Mode::DJ);
    let home = of(Pages::Home, Mode::OJ);
    let atomic = of(Pages::Atomic, Mode::SDJ);
    let written = [&twice, &journaled, &home, &atomic].map(|seen| seen.value("total-written"));
    assert!(written[0] > 1.6 * written[3] && written[1] > 1.6 * written[3], "{written:?}");
    assert!(written[3] < 1.2 * written[2], "{written:?}");
    let flushes = [&twice, &journaled, &home, &atomic].map(|seen| seen.value("total-flushes"));
    assert!(
        flushes[0] > 3.0 * flushes[3] && flushes[0] > flushes[2] && flushes[2] > flushes[3],
        "{flushes:?}"
    );
}

/// An operation of LinkBench is mostly a read, so it writes less than a transaction; the order is the same.
#[test]
fn atomic_files_save_linkbench_the_second_write_and_the_flushes() {
    let load = |pages, mode| LinkBench {
        on: on(mode),
        pages,
        tables: 12,
        table_pages: 256,
        pool_pages: 600,
        ids: 20_000,
        threads: 8,
        operation_us: 20,
        batch: 40,
        cleaners: 2,
        durable: false,
    };
    // Two thirds of the operations change nothing.
    let of = |pages, mode| {
        let run = Run { writes: 6000, warm_up_max: 1000, ..run(Arc::new(load(pages, mode))) };
        run.outcome(1).unwrap()
    };
    let twice = of(Pages::Doublewrite, Mode::OJ);
    let atomic = of(Pages::Atomic, Mode::SDJ);
    assert_eq!(atomic, of(Pages::Atomic, Mode::SDJ));
    assert!(twice.value("total-written") > 1.5 * atomic.value("total-written"), "{twice:?} {atomic:?}");
    assert!(twice.value("total-flushes") > 3.0 * atomic.value("total-flushes"), "{twice:?} {atomic:?}");
    assert!(rate(&atomic) > rate(&twice), "{twice:?} {atomic:?}");
}

/// A run on a drive with barriers, by a call.
fn with_barriers(on: On, call: Call, way: impl Fn(Mounting, Call) -> Shared) -> Outcome {
    let way =
        way(Mounting { on, mode: Mode::OJ, journal_mib: Some(4), flusher_s: 30, in_background: false }, call);
    Run {
        device: sharing().with_mechanism(Mechanism::InOrderRecovery),
        host: Host::builtin("pc").unwrap(),
        ..run(way)
    }
    .outcome(1)
    .unwrap()
}

fn mail(on: Mounting, call: Call, threads: u32) -> Varmail {
    Varmail { on, files: 100, threads, call, append_bytes: 16 << 10, operation_us: 0, cores: None }
}

/// Inserts with both logs, as they were recorded.
fn inserts(on: Mounting, call: Call, threads: u32) -> InnoDb {
    InnoDb {
        on,
        threads,
        tables: 1,
        log_bytes: 470,
        binary_log_bytes: 414,
        pages_of_hundred: 4,
        call,
        ..innodb(Pages::Doublewrite, Mode::OJ, true)
    }
}

/// One thread, as threads may take turns in groups that wait for each other.
#[test]
fn order_costs_less_than_transfers_and_these_less_than_flushes() {
    let ways: [fn(Mounting, Call) -> Shared; 2] =
        [|on, call| Arc::new(mail(on, call, 1)), |on, call| Arc::new(inserts(on, call, 1))];
    for way in ways {
        let durable = with_barriers(On::Ext4, Call::Fsync, way);
        let one_flush = with_barriers(On::BarrierFs, Call::Fsync, way);
        let transferred = with_barriers(On::Ext4Unbarriered, Call::Fsync, way);
        let ordered = with_barriers(On::BarrierFs, Call::Fdatabarrier, way);
        let rates = [&durable, &one_flush, &transferred, &ordered].map(rate);
        assert!(rates.is_sorted_by(|slow, fast| 1.3 * slow < *fast), "{rates:?}");
        let flushes =
            [durable, one_flush, transferred, ordered].map(|outcome| outcome.value("total-flushes"));
        assert!(flushes[0] > 3.0 * flushes[1] / 2.0 && flushes[1] > 20.0, "{flushes:?}");
        assert_eq!(flushes[2..], [0.0, 0.0], "{flushes:?}");
    }
}

#[test]
fn a_thread_alone_synchronises_both_logs_and_threads_do_it_together() {
    let flushes = |threads, bytes| {
        let way = |on, call| -> Shared {
            Arc::new(InnoDb { binary_log_bytes: bytes, ..inserts(on, call, threads) })
        };
        let outcome = with_barriers(On::BarrierFs, Call::Fsync, way);
        outcome.value("total-flushes") / outcome.value("calls")
    };
    let [alone, without, together] = [flushes(1, 414), flushes(1, 0), flushes(8, 414)];
    assert!((1.95..2.1).contains(&alone) && (0.95..1.1).contains(&without), "{alone} {without}");
    assert!(together < 0.6 * alone, "{together} {alone}");
}

#[test]
fn a_mail_user_pays_for_each_operation_and_each_byte() {
    let of = |operation_us, append_bytes| {
        let way =
            |on, call| -> Shared { Arc::new(Varmail { operation_us, append_bytes, ..mail(on, call, 1) }) };
        with_barriers(On::Ext4Unbarriered, Call::Fsync, way)
    };
    let [plain, slower, larger] = [of(0, 16 << 10), of(100, 16 << 10), of(0, 64 << 10)];
    let more = 1e6 / rate(&slower) - 1e6 / rate(&plain);
    assert!((90.0..110.0).contains(&more), "{more} us an operation");
    let [few, many] = [plain, larger].map(|outcome| outcome.value("total-written"));
    assert!(many > few + few / 2.0, "{few} {many}");
}

#[test]
fn a_transaction_that_waits_for_the_log_flushes() {
    let flushes = |durable| outcome(Arc::new(innodb(Pages::Home, Mode::OJ, durable))).value("total-flushes");
    let (waits, does_not) = (flushes(true), flushes(false));
    // Eight threads share a flush at most.
    assert!(waits > does_not + (600 / 8 / 2) as f64, "{waits} {does_not}");
}

/// Negative control: without the command there is no such checkpoint to be had.
#[test]
fn a_drive_without_share_carries_no_such_journal() {
    for mode in [Mode::SOJ, Mode::SDJ] {
        let refused = Run { device: drive(Mechanism::None), ..run(fio(mode, 1)) }.outcome(1);
        assert!(matches!(refused, Err(FigureError::Files { .. })), "{refused:?}");
    }
}
