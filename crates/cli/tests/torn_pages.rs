//! Databases whose pages are written once, on a mount: MariaDB without its doublewrite buffer on atomic files, PostgreSQL without full
//! pages in its log. Whatever crashes, no page is torn, and no transaction is lost that was acknowledged. A few crashes; the
//! example `databases` does as many as you like, and has the control. Where FUSE or a database is not to be had, this says
//! that it was skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../examples/databases/campaign/mod.rs"]
mod campaign;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::support::{mounts, run, weir_program};
use campaign::database::{DatabaseKind, Setup};
use campaign::judge::judge;
use campaign::load::{CLIENTS, Clients, ROWS, fill};
use campaign::rounds::{Campaign, Crash};
use campaign::server::{Installation, Running};
use campaign::wait_for;

const SEED: u64 = 17;

fn is_able(database: DatabaseKind) -> bool {
    mounts() && database.programs().iter().all(|program| campaign::is_there(program))
}

/// A few crashes of a kind, after which nothing may be wrong.
fn survives(database: DatabaseKind, crash: Crash) {
    if !is_able(database) {
        eprintln!("skipped: it takes a mount, and {:?}", database.programs());
        return;
    }
    let asked = std::env::var("WEIR_CRASHES").ok().and_then(|rounds| rounds.parse().ok());
    let campaign = Campaign {
        weir: PathBuf::from(weir_program()),
        on: PathBuf::from(env!("CARGO_TARGET_TMPDIR")),
        database,
        crash,
        rounds: asked.unwrap_or(2),
        seed: SEED,
        pages_twice: false,
        atomic: database == DatabaseKind::Mariadb,
        mount: Vec::new(),
        until_damage: false,
        victim: None,
    };
    let totals = campaign.run(&mut |_, _| {}).unwrap();
    eprintln!("{crash:?}: {totals:?}");
    assert_eq!((totals.rounds, totals.damaged), (campaign.rounds, 0), "{totals:#?}");
    assert!(totals.acknowledged > 0, "there was nothing to lose");
}

#[test]
fn no_page_is_torn_where_the_server_of_the_mount_is_killed() {
    survives(DatabaseKind::Mariadb, Crash::Kill);
}

#[test]
fn postgresql_without_full_pages_keeps_what_it_has_committed() {
    survives(DatabaseKind::Postgresql, Crash::Kill);
}

/// The same of a crash that takes a loop device.
fn survives_power_cuts(database: DatabaseKind) {
    let (has_loop, _) = run("losetup", &["--find".as_ref()]);
    if has_loop {
        survives(database, Crash::Power);
    } else {
        eprintln!("skipped: it takes losetup and loop devices");
    }
}

#[test]
fn no_page_is_torn_where_the_power_is_cut() {
    survives_power_cuts(DatabaseKind::Mariadb);
}

#[test]
fn postgresql_without_full_pages_survives_power_cuts() {
    survives_power_cuts(DatabaseKind::Postgresql);
}

#[test]
fn the_judge_sees_damage_of_mariadb() {
    sees_damage(DatabaseKind::Mariadb, |_| PathBuf::from("t/a.ibd"), 16_384);
}

#[test]
fn the_judge_sees_damage_of_postgresql() {
    let file = |server: &Running<'_>| {
        PathBuf::from(server.ask("SELECT pg_relation_filepath('t.a')").unwrap().trim())
    };
    sees_damage(DatabaseKind::Postgresql, file, 8_192);
}

/// On a sound database the judge finds nothing; and each kind of damage that is done to it by hand. `file_of` names the file of a
/// table, below the data.
fn sees_damage(database: DatabaseKind, file_of: impl Fn(&Running<'_>) -> PathBuf, page_bytes: u64) {
    if !is_able(database) {
        eprintln!("skipped: it takes {:?}", database.programs());
        return;
    }
    let beside = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // PostgreSQL runs as another user.
    fs::set_permissions(beside.path(), Permissions::from_mode(0o755)).unwrap();
    let data = beside.path().join("db");
    let setup = Setup { pages_twice: false, pool_mib: 8, log_mib: 16 };
    let installed = Installation::new(database.set_up(setup)).unwrap();
    installed.install(&data).unwrap();
    let server = installed.start(&data).unwrap();
    fill(&server).unwrap();
    let clients = Clients::start(&server, beside.path(), SEED, &vec![0; CLIENTS as usize]).unwrap();
    let enough = || {
        let told = clients.acknowledged()?;
        Ok(told.iter().all(|number| *number >= 5).then_some(()))
    };
    wait_for("each client has committed", std::time::Duration::from_secs(60), enough).unwrap();
    drop(clients);
    let sum = server.ask("SELECT n FROM t.done ORDER BY client").unwrap();
    let done: Vec<u64> = sum.lines().map(|line| line.parse().unwrap()).collect();
    let file = data.join(file_of(&server));
    server.stop().unwrap();

    let look = |least: &[u64]| judge(&installed, &data, SEED, least, &done).unwrap();
    let sound = look(&done);
    assert!(sound.is_sound(false) && sound.done == done, "{sound:?}");

    let more: Vec<u64> = done.iter().map(|number| number + 2).collect();
    let lost = look(&more);
    assert_eq!(lost.lost.len() as u64, CLIENTS, "{lost:?}");

    // A row that is older than its client's last transactions.
    let server = installed.start(&data).unwrap();
    server.ask(&format!("UPDATE t.b SET n = n + 26 WHERE id = {}", ROWS + 1)).unwrap();
    server.stop().unwrap();
    assert_eq!(look(&done).rows_wrong, 1);

    tear(&file, page_bytes);
    let name = file.file_name().unwrap().to_str().unwrap();
    let by_checksum = installed.database.torn_pages(&data, true).unwrap();
    assert!(by_checksum.len() == 1 && by_checksum[0].contains(name), "{by_checksum:?}");
    let torn = look(&done);
    let found = [torn.torn.concat(), torn.unusable.clone().unwrap_or_default()].concat();
    assert!(!torn.is_sound(false) && found.contains(name), "{torn:?}");
}

/// Puts a quarter of a page in the place of that of another.
fn tear(path: &Path, page_bytes: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut quarter = vec![0; page_bytes as usize / 4];
    file.read_exact_at(&mut quarter, 20 * page_bytes + page_bytes / 2).unwrap();
    file.write_all_at(&quarter, 21 * page_bytes + page_bytes / 2).unwrap();
}
