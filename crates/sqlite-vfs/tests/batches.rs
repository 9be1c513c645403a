//! Transactions without a journal: what they cost, when they have one after all, and that connections, locks, savepoints
//! and the other ways to change a database go with them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::Cell;
use std::rc::Rc;

use weir_ext4::Mkfs;
use weir_fs::{BarrierFs, MountOptions};
use weir_runtime::{Runtime, Simulation};
use weir_sqlite_vfs::{Call, Connection, Fault, Mode, Vfs};
use weir_storage::{AdversaryDisk, AdversaryOptions, Capabilities, Ordering, Storage};

const JOURNALS: [&str; 4] = ["DELETE", "TRUNCATE", "PERSIST", "MEMORY"];
/// Blocks of the disk.
const BLOCKS: u64 = 16_384;
/// Blocks of the filesystem's journal: what an update may have at most.
const JOURNAL_BLOCKS: u32 = 1024;

struct World {
    runtime: Rc<Runtime>,
    filesystem: BarrierFs,
    vfs: Vfs,
    /// Batches begun, and those completed; times that a journal was ordered for the want of a sync.
    seen: Rc<[Cell<u64>; 3]>,
}

fn world() -> World {
    let runtime = Rc::new(Runtime::simulated(Simulation { seed: 1, ..Simulation::default() }));
    let handle = runtime.handle();
    let capabilities = Capabilities { ordering: Ordering::Barrier, ..Capabilities::legacy(32, 64, 4096) };
    let options = AdversaryOptions { blocks: BLOCKS, capabilities, ..AdversaryOptions::default() };
    let disk = AdversaryDisk::new(&handle, options) as Rc<dyn Storage>;
    let mount = async {
        let mkfs = Mkfs {
            journal_blocks: Some(JOURNAL_BLOCKS),
            ..Mkfs::new(BLOCKS, [1; 16], [2; 16], 1_700_000_000)
        };
        BarrierFs::make(&*disk, &mkfs).await.unwrap();
        BarrierFs::mount(&handle, disk, MountOptions::default()).await.unwrap()
    };
    let filesystem = runtime.block_on(mount).unwrap();
    let vfs = Vfs::new(Rc::clone(&runtime), filesystem.clone().into()).unwrap();
    let world = World { runtime, filesystem, vfs, seen: Rc::default() };
    world.fails(|_| None);
    world
}

impl World {
    /// Has calls fail, and counts.
    fn fails(&self, fault: impl Fn(Call) -> Option<Fault> + 'static) {
        let seen = Rc::clone(&self.seen);
        self.vfs.intercept(move |call| {
            let counted = match call {
                Call::BeginBatch => Some(0),
                Call::CommitBatch => Some(1),
                Call::Guard => Some(2),
                _ => None,
            };
            if let Some(which) = counted {
                seen[which].set(seen[which].get() + 1);
            }
            fault(call)
        });
    }

    /// What was counted since the last time.
    fn seen(&self) -> [u64; 3] {
        [0, 1, 2].map(|which| self.seen[which].take())
    }

    fn open(&self, mode: Mode, journal: &str) -> Connection {
        let connection = self.vfs.open("a.db", mode).unwrap();
        let set: String =
            connection.query_row(&format!("PRAGMA journal_mode = {journal}"), [], |row| row.get(0)).unwrap();
        assert!(set.eq_ignore_ascii_case(journal), "{set}");
        assert_eq!(told(&connection, "PRAGMA weir_atomic = 1").unwrap(), "1");
        connection
    }

    /// An atomic database with a table.
    fn database(&self, mode: Mode, journal: &str) -> Connection {
        let connection = self.open(mode, journal);
        connection.execute_batch("CREATE TABLE t(a INTEGER PRIMARY KEY, b)").unwrap();
        self.seen();
        connection
    }

    fn is_there(&self, path: &str) -> bool {
        self.runtime.block_on(self.filesystem.resolve(path.as_bytes())).unwrap().is_ok()
    }
}

fn told(connection: &Connection, sql: &str) -> Result<String, String> {
    connection.query_row(sql, [], |row| row.get(0)).map_err(|error| error.to_string())
}

fn number(connection: &Connection, sql: &str) -> i64 {
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// The database is whole; its rows, and the bytes in them.
fn rows(connection: &Connection) -> (i64, i64) {
    assert_eq!(told(connection, "PRAGMA integrity_check").unwrap(), "ok");
    let sum = "SELECT coalesce(sum(length(b)), 0) FROM t";
    (number(connection, "SELECT count(*) FROM t"), number(connection, sum))
}

const INSERT: &str = "INSERT INTO t(b) VALUES(zeroblob(500))";

#[test]
fn a_transaction_has_one_sync_and_no_journal() {
    for journal in JOURNALS {
        for (mode, expected) in
            [(Mode::Durable, [10, 10, 0]), (Mode::Order, [0, 0, 10]), (Mode::Off, [10, 10, 0])]
        {
            let world = world();
            let connection = world.database(mode, journal);
            let kept = world.is_there("a.db-journal");
            assert_eq!(kept, ["TRUNCATE", "PERSIST"].contains(&journal), "a new database has a journal");
            if kept {
                world
                    .runtime
                    .block_on(world.filesystem.unlink(weir_ext4::ROOT_INODE, b"a.db-journal"))
                    .unwrap()
                    .unwrap();
            }
            let before = world.filesystem.statistics();
            for _ in 0..10 {
                connection.execute_batch(INSERT).unwrap();
            }
            let after = world.filesystem.statistics();
            let cost = [
                after.answered.durable - before.answered.durable,
                after.waits.flushes - before.waits.flushes,
                after.answered.ordered - before.answered.ordered,
            ];
            assert_eq!(cost, expected, "{journal}, {mode:?}");
            assert_eq!(world.seen(), [10, 10, 0], "{journal}, {mode:?}");
            assert!(!world.is_there("a.db-journal"), "{journal}");
            connection.execute_batch("BEGIN; DELETE FROM t; ROLLBACK").unwrap();
            assert_eq!(rows(&connection), (10, 5000));
        }
    }
}

#[test]
fn a_batch_that_fails_has_a_journal() {
    for journal in &JOURNALS[..3] {
        for failing in [Call::BeginBatch, Call::CommitBatch, Call::Write] {
            let world = world();
            let connection = world.database(Mode::Durable, journal);
            let first = Rc::new(Cell::new(true));
            world.fails(move |call| (call == failing && first.take()).then_some(Fault::Io));
            connection.execute_batch(INSERT).unwrap();
            let [begun, _, guarded] = world.seen();
            assert_eq!((begun, guarded), (1, 1), "{journal}, {failing:?}: the journal was ordered");
            connection.execute_batch(INSERT).unwrap();
            assert_eq!(world.seen(), [1, 1, 0], "{journal}, {failing:?}: this one needed none");
            assert_eq!(rows(&connection), (2, 1000));
            drop(connection);
            assert_eq!(rows(&world.open(Mode::Order, journal)), (2, 1000));
        }
    }
}

#[test]
fn a_transaction_that_its_journal_cannot_guard_fails() {
    let world = world();
    let connection = world.database(Mode::Durable, "DELETE");
    world.fails(|call| match call {
        Call::BeginBatch | Call::Guard => Some(Fault::Io),
        _ => None,
    });
    connection.execute_batch(INSERT).unwrap_err();
    world.fails(|_| None);
    assert_eq!(rows(&connection), (0, 0));
}

#[test]
fn a_transaction_without_room_is_undone() {
    let world = world();
    let connection = world.database(Mode::Durable, "DELETE");
    connection.execute_batch(INSERT).unwrap();
    for failing in [Fault::NoSpace, Fault::Io] {
        // The only sync is the one after the batch.
        world.fails(move |call| match (call, failing) {
            (Call::Write, Fault::NoSpace) => Some(Fault::NoSpace),
            (Call::Sync(_), Fault::Io) => Some(Fault::Io),
            _ => None,
        });
        connection.execute_batch("UPDATE t SET b = zeroblob(9000)").unwrap_err();
        world.fails(|_| None);
        let (count, bytes) = rows(&connection);
        assert!(
            count == 1 && (bytes == 500 || failing == Fault::Io && bytes == 9000),
            "{failing:?}: {bytes}"
        );
        connection.execute_batch("UPDATE t SET b = zeroblob(500)").unwrap();
        assert_eq!(rows(&connection), (1, 500));
    }
}

/// The filesystem's journal has 1,024 blocks, and these transactions change more pages: by a batch that is refused; by a
/// cache that is too small; and by a checkpoint.
#[test]
fn what_is_too_large_for_one_update_is_written_in_several() {
    for (journal, cache) in [("DELETE", 5000), ("PERSIST", 2), ("WAL", 5000)] {
        let world = world();
        let connection = world.database(Mode::Durable, journal);
        connection.execute_batch(&format!("PRAGMA cache_size = {cache}")).unwrap();
        let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500)
            INSERT INTO t SELECT i, randomblob(4000) FROM n";
        connection.execute_batch(many).unwrap();
        let [begun, completed, guarded] = world.seen();
        assert_eq!((begun, completed), (u64::from(journal == "DELETE"), 0), "{journal}");
        assert_eq!(guarded > 0, journal != "WAL", "{journal}");
        connection.execute_batch("UPDATE t SET b = zeroblob(4001); PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        let all = (1500, 1500 * 4001);
        assert_eq!(rows(&connection), all, "{journal}");
        connection
            .execute_batch("BEGIN; UPDATE t SET b = zeroblob(3999); SAVEPOINT s; DELETE FROM t")
            .unwrap();
        connection.execute_batch("ROLLBACK TO s; DELETE FROM t WHERE a % 2; ROLLBACK").unwrap();
        assert_eq!(rows(&connection), all, "{journal}");
        connection.execute_batch("DELETE FROM t WHERE a > 10; VACUUM").unwrap();
        assert_eq!(rows(&connection), (10, 40_010), "{journal}");
        assert!(number(&connection, "PRAGMA page_count") < 30, "{journal}");
        drop(connection);
        assert_eq!(rows(&world.open(Mode::Order, journal)), (10, 40_010), "{journal}");
    }
}

#[test]
fn a_transaction_of_two_databases_has_journals() {
    let world = world();
    let connection = world.database(Mode::Durable, "DELETE");
    let attach = "ATTACH 'b.db' AS b; PRAGMA b.weir_atomic = 1; CREATE TABLE b.u(a)";
    connection.execute_batch(attach).unwrap();
    world.seen();
    connection.execute_batch(&format!("BEGIN; {INSERT}; INSERT INTO b.u VALUES(1); COMMIT")).unwrap();
    assert_eq!(world.seen(), [0, 0, 0]);
    connection.execute_batch(&format!("{INSERT}; INSERT INTO b.u VALUES(1)")).unwrap();
    assert_eq!(world.seen(), [2, 2, 0]);
    assert_eq!((rows(&connection).0, number(&connection, "SELECT count(*) FROM b.u")), (2, 2));
}

#[test]
fn the_pragma_tells_and_lasts() {
    let world = world();
    let connection = world.vfs.open("a.db", Mode::Order).unwrap();
    assert_eq!(told(&connection, "PRAGMA weir_atomic").unwrap(), "0");
    let wrong = told(&connection, "PRAGMA weir_atomic = 2").unwrap_err();
    assert!(wrong.contains("0 or 1"), "{wrong}");
    connection.execute_batch("CREATE TABLE t(a INTEGER PRIMARY KEY, b); BEGIN IMMEDIATE").unwrap();
    let refused = told(&connection, "PRAGMA weir_atomic = 1").unwrap_err();
    assert!(refused.contains("in a transaction"), "{refused}");
    connection.execute_batch("COMMIT").unwrap();
    let other = world.vfs.open("a.db", Mode::Order).unwrap();
    assert_eq!(told(&connection, "PRAGMA weir_atomic = 1").unwrap(), "1");
    world.seen();
    other.execute_batch(INSERT).unwrap();
    assert_eq!(world.seen(), [1, 1, 0], "it holds for all connections");
    assert_eq!(rows(&connection), (1, 500));
    drop((connection, other));
    let connection = world.vfs.open("a.db", Mode::Order).unwrap();
    assert_eq!(told(&connection, "PRAGMA weir_atomic").unwrap(), "1");
    assert_eq!(told(&connection, "PRAGMA weir_atomic = 0").unwrap(), "0");
    connection.execute_batch(INSERT).unwrap();
    assert_eq!((world.seen(), rows(&connection)), ([0, 0, 0], (2, 1000)));
}

/// A reader sees all of a transaction or nothing, and keeps it from being written.
#[test]
fn readers_and_writers_lock_each_other_out() {
    let world = world();
    let [one, two] = [(); 2].map(|()| world.open(Mode::Durable, "DELETE"));
    one.execute_batch(&format!("CREATE TABLE t(a INTEGER PRIMARY KEY, b); {INSERT}")).unwrap();
    two.execute_batch("BEGIN").unwrap();
    assert_eq!(rows(&two), (1, 500));
    one.execute_batch("BEGIN; DELETE FROM t").unwrap();
    world.seen();
    one.execute_batch("COMMIT").unwrap_err();
    assert_eq!((rows(&two), world.seen()), ((1, 500), [0, 0, 0]));
    two.execute_batch("COMMIT").unwrap();
    one.execute_batch("COMMIT").unwrap();
    assert_eq!((rows(&two), world.seen()), ((0, 0), [1, 1, 0]));
}

/// Pages at the end that SQLite needs not write make the file longer after the batch, and belong to it.
#[test]
fn the_file_is_as_long_as_its_pages_say() {
    for auto_vacuum in ["NONE", "FULL", "INCREMENTAL"] {
        let world = world();
        let connection = world.open(Mode::Durable, "DELETE");
        connection.execute_batch(&format!("PRAGMA auto_vacuum = {auto_vacuum}")).unwrap();
        connection.execute_batch("CREATE TABLE t(a INTEGER PRIMARY KEY, b)").unwrap();
        for nth in 0..20 {
            let blob = 20_000 * (1 + nth % 3);
            connection
                .execute_batch(&format!(
                    "BEGIN; INSERT INTO t(b) VALUES(zeroblob({blob})); INSERT INTO t(b) VALUES(zeroblob({blob}));
                     DELETE FROM t WHERE a = (SELECT max(a) FROM t); COMMIT; PRAGMA incremental_vacuum(2)"
                ))
                .unwrap();
            let inode = world.runtime.block_on(world.filesystem.resolve(b"a.db")).unwrap().unwrap();
            let bytes = world.runtime.block_on(world.filesystem.attributes(inode)).unwrap().unwrap().size;
            assert_eq!(bytes as i64, 4096 * number(&connection, "PRAGMA page_count"), "{auto_vacuum}");
        }
        assert_eq!(rows(&connection).0, 20);
    }
}
