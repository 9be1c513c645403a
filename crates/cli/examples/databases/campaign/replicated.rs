//! Kills under a volume that is shipped to a store: of the mount, of the store, or of both. What the store restores to is judged, and
//! what the mount's volume holds.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;

use super::ground::WeirMount;
use super::judge::{Verdict, judge};
use super::load::{CLIENTS, Clients, last_noted};
use super::rounds::{Campaign, DISK_MIB, Totals};
use super::server::Installation;
use super::{Outcome, run, wait_for};
use crate::support::lag::{LagWatch, Owed, is_up_to_date};
use crate::support::seaweed::{BUCKET, Seaweed};

/// How far the store may be behind.
const LAG: Duration = Duration::from_millis(300);
/// How long the store is away, and the clients work meanwhile.
const AWAY: Duration = Duration::from_millis(400);
/// How long it may take until it has everything.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of the log that a transaction takes at least.
const TRANSACTION_BYTES: u64 = 100;

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Victim {
    /// The server of the mount.
    Mount,
    /// SeaweedFS.
    Store,
    /// Both at once.
    Both,
}

impl Campaign {
    /// One database, whose volume is shipped; each time something is killed, and what is left is judged in both places.
    pub fn replicated_rounds(
        &self,
        beside: &Path,
        installation: &Installation,
        tell: &mut dyn FnMut(u64, &Verdict),
    ) -> Outcome<Totals> {
        let mut seaweed = Seaweed::start(beside);
        let (volume, root) = (beside.join("volume"), beside.join("mounted"));
        self.format(&volume, &["--size", &format!("{DISK_MIB}M")])?;
        let mut mounted = self.mount_shipped(&seaweed, &volume, &root)?;
        let data = self.prepare(installation, &root)?;
        let (mut random, mut totals) = (self.random(), Totals::default());
        let mut done = vec![0; CLIENTS as usize];
        while totals.rounds < self.rounds {
            wait_for("the store has everything", PATIENCE, || Ok(is_up_to_date(&root).then_some(())))?;
            let server = installation.start(&data)?;
            let mut clients = Clients::start(&server, beside, self.seed, &done)?;
            let notes = clients.notes();
            let told = move || notes.iter().map(|notes| last_noted(notes).unwrap_or(0)).collect();
            let watch = LagWatch::start(root.clone(), told);
            self.work(&mut random, &mut clients)?;
            let owed = watch.end(LAG);
            self.kill(&mut mounted, &mut seaweed)?;
            // The clients' last words are in the pipe between them and the server until it ends.
            drop(server);
            let told = clients.acknowledged()?;
            drop(clients);
            mounted.end()?;
            let restored = self.judge_restored(&seaweed, beside, &owed, &told)?;
            totals.behind += owed.require(&restored.done, TRANSACTION_BYTES)?;
            totals.lag_ms = totals.lag_ms.max(owed.lag.ms);
            totals.lag_bytes = totals.lag_bytes.max(owed.lag.bytes);
            mounted = self.mount_shipped(&seaweed, &volume, &root)?;
            let verdict = judge(installation, &data, self.seed, &told, &told)?;
            totals.add(&verdict, self.pages_twice);
            tell(totals.rounds, &verdict);
            totals.acknowledged = told.iter().sum();
            if !verdict.is_sound(self.pages_twice) || !restored.is_sound(self.pages_twice) {
                totals.damaged += u64::from(!restored.is_sound(self.pages_twice));
                totals.told.push(format!("restored: {restored:?}"));
                break;
            }
            done = verdict.done;
        }
        mounted.end()?;
        Ok(totals)
    }

    fn mount_shipped(&self, seaweed: &Seaweed, volume: &Path, root: &Path) -> Outcome<WeirMount> {
        let lag = format!("{}ms", LAG.as_millis());
        let shipped = ["--replicate", &url(), "--lag", &lag].map(str::to_owned);
        let options = [&self.mount_options()[..], &shipped].concat();
        WeirMount::new_in(&seaweed.environment(), &self.weir, volume, root, &options)
    }

    fn kill(&self, mounted: &mut WeirMount, seaweed: &mut Seaweed) -> Outcome<()> {
        match self.victim {
            None | Some(Victim::Mount) => return mounted.kill(),
            Some(Victim::Store) => seaweed.kill(),
            Some(Victim::Both) => {
                mounted.kill()?;
                seaweed.kill();
            }
        }
        std::thread::sleep(AWAY);
        seaweed.start_again();
        Ok(())
    }

    /// Restores what the store has, and has a server of its own look at it.
    fn judge_restored(
        &self,
        seaweed: &Seaweed,
        beside: &Path,
        owed: &Owed,
        told: &[u64],
    ) -> Outcome<Verdict> {
        let (copy, found) = (beside.join("restored"), beside.join("found"));
        let mut restore = Command::new(&self.weir);
        restore.args(["restore", &url()]).arg(&copy).arg("--json").envs(seaweed.environment());
        let document: serde_json::Value = serde_json::from_str(&run(&mut restore)?)?;
        if document["sequence"].as_u64() < Some(owed.lag.shipped) {
            return Err(format!("restored {document}, and the mount said {owed:?}").into());
        }
        let mounted = WeirMount::new(&self.weir, &copy, &found, &self.mount_options())?;
        let looker = self.installation()?;
        let data = found.join("db");
        looker.database.remove_lock(&data)?;
        let verdict = judge(&looker, &data, self.seed, &owed.least, told)?;
        mounted.end()?;
        fs::remove_file(copy)?;
        Ok(verdict)
    }
}

fn url() -> String {
    format!("s3://{BUCKET}/database")
}
