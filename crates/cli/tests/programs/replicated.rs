//! SQLite on a mount that is shipped to SeaweedFS while the mount, the store or both are killed: the store restores to a database that is
//! whole, and lacks no more than `weir status` said; and here nothing is lost that was acknowledged.

#![expect(clippy::disallowed_methods, reason = "it waits for what other processes do")]

use std::time::Duration;

use super::sqlite::{JOURNALS, ROW_BYTES, found, make, told, writers};
use super::trial::{Trial, is_able, rounds};
use crate::support::lag::{LagWatch, is_up_to_date};
use crate::support::seaweed::{BUCKET, Seaweed, is_there_weed};
use crate::support::{Place, runs, wait_until, weir};

/// How far the store may be behind.
const LAG: Duration = Duration::from_millis(300);
/// How long the store is away, and the program works meanwhile.
const AWAY: Duration = Duration::from_millis(400);

/// What is killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Victim {
    Mount,
    Store,
    Both,
}

/// What a campaign has found besides what a trial counts.
#[derive(Default)]
struct Totals {
    /// Transactions that were acknowledged and are not in the store.
    behind: u64,
    /// The largest lag in the last status before a kill, in milliseconds and in bytes.
    lag_ms: u64,
    lag_bytes: u64,
}

fn kill_again_and_again(name: &'static str, victim: Victim) {
    if !is_able("sqlite3") || !is_there_weed() {
        return;
    }
    let mut trial = Trial::new(name, "256M");
    if victim == Victim::Store {
        // It works on: it need not notice anything.
        trial.gives_up = Duration::ZERO;
    }
    let beside = trial.place.path().to_owned();
    let mut seaweed = Seaweed::start(&beside);
    let url = format!("s3://{BUCKET}/{}", name.replace([' ', ','], "-"));
    let lag = format!("{}ms", LAG.as_millis());
    let (root, mut totals) = (trial.place.mountpoint(), Totals::default());
    let mut before: Option<(String, [u64; 2])> = None;
    for round in 0..rounds() {
        let mut server = trial.place.serve_in(&["--replicate", &url, "--lag", &lag], &seaweed.environment());
        // Here nothing is lost.
        if let Some((name, told)) = before.take() {
            require_acknowledged(&name, told, found(&root, &name));
        }
        let (name, journal) = (format!("cut{round}"), JOURNALS[(round % 3) as usize]);
        make(&root, &name, journal);
        wait_until("the store has the empty database", || is_up_to_date(&root));
        let looked_at = beside.clone();
        let program = writers(&beside, &name, journal, 3000);
        let watch = LagWatch::start(root.clone(), move || told(&looked_at).to_vec());
        let mut owed = None;
        trial.interrupt(Duration::from_millis(1200), program, || {
            owed = Some(watch.end(LAG));
            match victim {
                Victim::Mount => server.kill(),
                Victim::Store => seaweed.kill(),
                Victim::Both => {
                    server.kill();
                    seaweed.kill();
                }
            }
            if victim != Victim::Mount {
                std::thread::sleep(AWAY);
                seaweed.start_again();
            }
        });
        drop(server);
        let (owed, told) = (owed.unwrap(), told(&beside));
        let restored = restored(&seaweed, &url, owed.lag.shipped, |root| found(root, &name));
        assert!(
            restored.iter().zip(told).all(|(found, told)| *found <= told + 1),
            "{restored:?}, told {told:?}"
        );
        totals.behind += owed.require(&restored, ROW_BYTES).unwrap();
        totals.lag_ms = totals.lag_ms.max(owed.lag.ms);
        totals.lag_bytes = totals.lag_bytes.max(owed.lag.bytes);
        trial.acknowledged += told.iter().sum::<u64>();
        before = Some((name, told));
        totals.tell(&trial, round + 1);
    }
    if let Some((name, told)) = before {
        trial.unharmed(|root| require_acknowledged(&name, told, found(root, &name)));
    }
    trial.end();
}

impl Totals {
    /// Says how far it is, now and then.
    fn tell(&self, trial: &Trial, round: u64) {
        if round.is_multiple_of(5) || round == rounds() {
            let (acknowledged, cut) = (trial.acknowledged, trial.cut);
            let Totals { behind, lag_ms, lag_bytes } = self;
            eprintln!(
                "{}: {round} kills, {cut} of them under load, {acknowledged} acknowledged, of which {behind} were not in the store; it \
                 was {lag_ms} ms and {lag_bytes} bytes behind at most",
                trial.name
            );
        }
    }
}

/// Each client's acknowledged commits are there, and one more at most.
fn require_acknowledged(name: &str, told: [u64; 2], found: [u64; 2]) {
    let is_there = told.iter().zip(found).all(|(told, found)| (*told..=told + 1).contains(&found));
    assert!(is_there, "{name}: told {told:?}, found {found:?}");
}

/// Looks at what the store restores to, which is no older than a request.
fn restored<T>(seaweed: &Seaweed, url: &str, least: u64, look: impl FnOnce(&std::path::Path) -> T) -> T {
    let copy = Place::new();
    let volume = copy.volume();
    let mut restore = weir(&["restore", url, volume.to_str().unwrap(), "--json"]);
    let told: serde_json::Value = serde_json::from_str(&runs(restore.envs(seaweed.environment()))).unwrap();
    assert!(told["sequence"].as_u64() >= Some(least), "restored {told}, shipped {least}");
    let found = look(&copy.mount(&[]));
    copy.umount();
    copy.check();
    found
}

#[test]
fn a_replica_survives_kills_of_its_mount() {
    kill_again_and_again("replicated, mount killed", Victim::Mount);
}

#[test]
fn a_replica_survives_kills_of_its_store() {
    kill_again_and_again("replicated, store killed", Victim::Store);
}

#[test]
fn a_replica_survives_kills_of_both() {
    kill_again_and_again("replicated, both killed", Victim::Both);
}
