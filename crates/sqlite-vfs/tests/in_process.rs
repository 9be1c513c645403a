//! SQLite in process: what it writes is there, in every journal mode; connections lock each other out; errors reach
//! whoever calls.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::rc::Rc;

use weir_ext4::Mkfs;
use weir_fs::{BarrierFs, Conflicts, Engine, MountOptions};
use weir_runtime::{Runtime, Simulation};
use weir_sqlite_vfs::{Call, Connection, Fault, Mode, Vfs, rusqlite};
use weir_storage::{AdversaryDisk, AdversaryOptions, Capabilities, Ordering, Storage};

const JOURNALS: [&str; 6] = ["DELETE", "TRUNCATE", "PERSIST", "MEMORY", "OFF", "WAL"];

struct World {
    runtime: Rc<Runtime>,
    filesystem: BarrierFs,
    vfs: Vfs,
}

fn world(seed: u64) -> World {
    world_with(seed, Ordering::Barrier, None)
}

fn world_with(seed: u64, ordering: Ordering, engine: Option<Engine>) -> World {
    let runtime = Rc::new(Runtime::simulated(Simulation { seed, ..Simulation::default() }));
    let handle = runtime.handle();
    let capabilities = Capabilities { ordering, ..Capabilities::legacy(32, 64, 4096) };
    let options = AdversaryOptions { blocks: 4096, capabilities, ..AdversaryOptions::default() };
    let disk = AdversaryDisk::new(&handle, options) as Rc<dyn Storage>;
    let mount = async {
        BarrierFs::make(&*disk, &Mkfs::new(4096, [1; 16], [2; 16], 1_700_000_000)).await.unwrap();
        BarrierFs::mount(&handle, disk, MountOptions { engine, ..MountOptions::default() }).await.unwrap()
    };
    let filesystem = runtime.block_on(mount).unwrap();
    let vfs = Vfs::new(Rc::clone(&runtime), filesystem.clone().into()).unwrap();
    World { runtime, filesystem, vfs }
}

fn journal(connection: &Connection, mode: &str) {
    let set: String =
        connection.query_row(&format!("PRAGMA journal_mode = {mode}"), [], |row| row.get(0)).unwrap();
    assert!(set.eq_ignore_ascii_case(mode), "{set}");
}

fn count(connection: &Connection) -> i64 {
    connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
}

fn is_whole(connection: &Connection) -> String {
    connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap()
}

#[test]
fn what_is_written_is_there_in_every_mode() {
    for name in JOURNALS {
        for mode in [Mode::Durable, Mode::Order, Mode::Off] {
            let World { vfs, .. } = world(1);
            let connection = vfs.open("a.db", mode).unwrap();
            journal(&connection, name);
            connection.execute_batch("CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)").unwrap();
            for i in 0..50 {
                connection.execute("INSERT INTO t(b) VALUES(?1)", [format!("{i:0400}")]).unwrap();
            }
            connection.execute_batch("BEGIN; DELETE FROM t; ROLLBACK; DELETE FROM t WHERE a > 40").unwrap();
            assert_eq!((count(&connection), is_whole(&connection).as_str()), (40, "ok"), "{name}");
            connection.execute_batch("VACUUM").unwrap();
            drop(connection);
            let again = vfs.open("/a.db", mode).unwrap();
            assert_eq!((count(&again), is_whole(&again).as_str()), (40, "ok"), "{name}");
        }
    }
}

#[test]
fn the_mode_is_told_and_changed() {
    let World { vfs, .. } = world(2);
    let connection = vfs.open("a.db", Mode::Order).unwrap();
    let tell = |pragma| connection.query_row(pragma, [], |row| row.get::<_, String>(0));
    assert_eq!(tell("PRAGMA weir").unwrap(), "order");
    assert_eq!(tell("PRAGMA weir = durable").unwrap(), "durable");
    assert_eq!(tell("PRAGMA weir").unwrap(), "durable");
    let wrong = tell("PRAGMA weir = full").unwrap_err().to_string();
    assert!(wrong.contains("one of durable, order and off"), "{wrong}");
}

#[test]
fn connections_lock_each_other_out() {
    for name in ["DELETE", "WAL"] {
        let World { vfs, .. } = world(3);
        let [one, two] = [(); 2].map(|()| vfs.open("a.db", Mode::Durable).unwrap());
        two.busy_timeout(std::time::Duration::from_millis(20)).unwrap();
        journal(&one, name);
        one.execute_batch("CREATE TABLE t(a); BEGIN IMMEDIATE; INSERT INTO t VALUES(1)").unwrap();
        let refused = two.execute_batch("INSERT INTO t VALUES(2)").unwrap_err();
        assert_eq!(refused.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseBusy), "{name}");
        assert_eq!(count(&two), 0, "{name}: it is not committed");
        one.execute_batch("COMMIT").unwrap();
        two.execute_batch("INSERT INTO t VALUES(2)").unwrap();
        assert_eq!((count(&one), count(&two)), (2, 2), "{name}");
    }
}

#[test]
fn a_failed_flush_fails_the_commit() {
    for (name, what) in [("PERSIST", "finish"), ("WAL", "sync"), ("DELETE", "finish")] {
        let World { vfs, .. } = world(4);
        let connection = vfs.open("a.db", Mode::Durable).unwrap();
        journal(&connection, name);
        connection.execute_batch("CREATE TABLE t(a); INSERT INTO t VALUES(1)").unwrap();
        vfs.intercept(move |call| match call {
            Call::Finish(_) if what == "finish" => Some(Fault::Io),
            Call::Sync(_) if what == "sync" => Some(Fault::Io),
            _ => None,
        });
        let failed = connection.execute_batch("INSERT INTO t VALUES(2)").unwrap_err();
        let code = failed.sqlite_error_code();
        assert_eq!(code, Some(rusqlite::ErrorCode::SystemIoFailure), "{name}: {failed}");
    }
}

/// `PRAGMA synchronous = EXTRA` in mode DELETE has SQLite synchronise five times: four times for order, and at last the
/// directory, for durability (OPTR paper, section 4). On every engine only that one is left, and is one flush.
#[test]
fn of_five_syncs_of_a_transaction_one_is_durable() {
    let engines = [
        (Ordering::Barrier, Engine::Dual { conflicts: Conflicts::Copy }),
        (Ordering::Prefix, Engine::Prefix),
    ];
    for ((ordering, engine), synchronous) in
        engines.into_iter().flat_map(|engine| ["FULL", "EXTRA"].map(|synchronous| (engine, synchronous)))
    {
        let flushes = |mode| {
            let World { vfs, filesystem, .. } = world_with(9, ordering, Some(engine));
            let connection = vfs.open("a.db", mode).unwrap();
            journal(&connection, "DELETE");
            let set = format!("PRAGMA synchronous = {synchronous}; CREATE TABLE t(a)");
            connection.execute_batch(&set).unwrap();
            let before = filesystem.statistics();
            for _ in 0..10 {
                connection.execute_batch("INSERT INTO t VALUES(1)").unwrap();
            }
            let after = filesystem.statistics();
            let durable = after.answered.durable - before.answered.durable;
            let flushes = after.waits.flushes - before.waits.flushes;
            assert_eq!(after.waits.durable_commits, before.waits.durable_commits, "{engine:?}: FUA");
            (durable, flushes, after.answered.ordered - before.answered.ordered)
        };
        let extra = u64::from(synchronous == "EXTRA");
        // The journal's content, its header, and the database; the name of the journal comes with its first sync.
        assert_eq!(flushes(Mode::Durable), (10, 10, 30), "{engine:?}, {synchronous}");
        assert_eq!(flushes(Mode::Order), (10 * extra, 10 * extra, 30), "{engine:?}, {synchronous}");
        let each = 3 + extra;
        assert_eq!(flushes(Mode::Off), (10 * each, 10 * each, 0), "{engine:?}, {synchronous}");
    }
}

#[test]
fn the_same_seed_does_the_same() {
    let run = |seed| {
        let World { runtime, vfs, filesystem } = world(seed);
        let connection = vfs.open("a.db", Mode::Order).unwrap();
        journal(&connection, "WAL");
        connection.execute_batch("CREATE TABLE t(a)").unwrap();
        for _ in 0..30 {
            let insert = "INSERT INTO t VALUES(strftime('%s %f', 'now'))";
            connection.execute_batch(insert).unwrap();
        }
        let told: String = connection.query_row("SELECT max(a) FROM t", [], |row| row.get(0)).unwrap();
        drop(connection);
        runtime.block_on(filesystem.unmount()).unwrap().unwrap();
        (told, runtime.handle().trace_hash())
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn from_inside_a_task_calls_fail() {
    let World { runtime, vfs, .. } = world(5);
    let inner = vfs.clone();
    let opened = runtime.block_on(async move { inner.open("a.db", Mode::Order).map(drop) }).unwrap();
    assert!(opened.is_err());
    vfs.open("a.db", Mode::Order).unwrap();
}

#[test]
fn another_thread_cannot_use_it() {
    let World { vfs, .. } = world(6);
    let name = vfs.name().to_owned();
    let runtime = Runtime::wall(weir_runtime::Wall::default()).unwrap();
    let open = move || {
        let flags = rusqlite::OpenFlags::default();
        rusqlite::Connection::open_with_flags_and_vfs("a.db", flags, name.as_c_str()).is_err()
    };
    assert!(runtime.block_on(runtime.handle().blocking(open)).unwrap().unwrap());
}
