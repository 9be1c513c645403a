//! Crashes under load, again and again, each of them judged.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use serde::Serialize;

use super::database::{DatabaseKind, Setup};
use super::ground::{Ext4, LoopDevice, WeirMount, WorstDisk};
use super::judge::{Verdict, judge};
use super::load::{CLIENTS, Clients, fill};
use super::replicated::Victim;
use super::server::{Installation, Running};
use super::{Outcome, run, system, wait_for};

/// Of the volume in a file, and of the worst disk.
pub const DISK_MIB: u64 = 512;
/// A small pool, so that pages are written all the time, and a log that asks for checkpoints.
const POOL_MIB: u32 = 8;
const LOG_MIB: u32 = 16;
/// How long the clients work before a crash, in milliseconds: at least, and at most; and how many transactions at least,
/// since a machine may be busy.
const LIFE_MS: (u64, u64) = (100, 1500);
const LIFE_TRANSACTIONS: u64 = 20;
/// How long it may take to commit as many.
const PATIENCE: Duration = Duration::from_secs(60);
/// Verdicts that are told in full.
const TOLD_MAX: usize = 5;

/// What crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The server of the mount is killed; what it had handed to the host's disk stays.
    Kill,
    /// The power of the worst disk is cut, below a volume that is mounted.
    Power,
    /// The same, below the kernel's ext4: the control.
    PowerUnderExt4,
}

/// What is tried.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The program.
    pub weir: PathBuf,
    /// A directory for what it makes.
    pub on: PathBuf,
    pub database: DatabaseKind,
    pub crash: Crash,
    pub rounds: u64,
    /// Decides the moments, and what is written.
    pub seed: u64,
    /// Whether each page is written twice: MariaDB's doublewrite buffer, PostgreSQL's full pages.
    pub pages_twice: bool,
    /// Whether its files are atomic.
    pub atomic: bool,
    /// More arguments for `weir mount`.
    pub mount: Vec<String>,
    /// Whether the first damage ends it.
    pub until_damage: bool,
    /// With [`Crash::Kill`]: ship the volume to a store, and kill this.
    pub victim: Option<Victim>,
}

/// What the crashes have left.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    pub rounds: u64,
    /// Transactions that were acknowledged before the last crash.
    pub acknowledged: u64,
    /// Crashes after which something was wrong.
    pub damaged: u64,
    /// Crashes that left pages which are none, before the database has recovered, where its tools can tell; with a second copy of each, too.
    pub torn: u64,
    /// Crashes after which such pages were there when it had recovered.
    pub torn_after: u64,
    /// Crashes after which the database could not be used.
    pub unusable: u64,
    /// Crashes that lost transactions which were acknowledged.
    pub lost: u64,
    /// Crashes after which rows were wrong.
    pub rows_wrong: u64,
    /// Transactions that were acknowledged and were not in the store after a kill, of a mount that is shipped.
    pub behind: u64,
    /// What the mount said last before a kill, at most.
    pub lag_ms: u64,
    pub lag_bytes: u64,
    /// The first of what was wrong.
    pub told: Vec<String>,
}

impl Totals {
    pub fn add(&mut self, verdict: &Verdict, pages_twice: bool) {
        self.rounds += 1;
        self.torn += u64::from(!verdict.torn.is_empty());
        self.torn_after += u64::from(!verdict.torn_after.is_empty());
        self.unusable += u64::from(verdict.unusable.is_some());
        self.lost += u64::from(!verdict.lost.is_empty());
        self.rows_wrong += u64::from(verdict.rows_wrong > 0);
        if !verdict.is_sound(pages_twice) {
            self.damaged += 1;
            if self.told.len() < TOLD_MAX {
                let Verdict { torn, torn_after, unusable, lost, rows_wrong, .. } = verdict;
                self.told.push(format!(
                    "crash {}: torn {torn:?}, after recovery {torn_after:?}, unusable {unusable:?}, lost {lost:?}, \
                     {rows_wrong} rows wrong",
                    self.rounds
                ));
            }
        }
    }
}

impl Campaign {
    /// Runs it; `tell` hears of every crash.
    pub fn run(&self, tell: &mut dyn FnMut(u64, &Verdict)) -> Outcome<Totals> {
        let beside = tempfile::tempdir_in(&self.on)?;
        // A server may run as another user.
        fs::set_permissions(beside.path(), Permissions::from_mode(0o755))?;
        let installation = self.installation()?;
        match self.crash {
            Crash::Kill if self.victim.is_some() => {
                self.replicated_rounds(beside.path(), &installation, tell)
            }
            Crash::Kill => self.kill_rounds(beside.path(), &installation, tell),
            Crash::Power | Crash::PowerUnderExt4 => self.power_rounds(beside.path(), &installation, tell),
        }
    }

    pub fn installation(&self) -> Outcome<Installation> {
        let setup = Setup { pages_twice: self.pages_twice, pool_mib: POOL_MIB, log_mib: LOG_MIB };
        Installation::new(self.database.set_up(setup))
    }

    pub fn random(&self) -> Pcg64 {
        Pcg64::seed_from_u64(self.seed)
    }

    /// Makes the database on a mount.
    pub fn prepare(&self, installation: &Installation, root: &Path) -> Outcome<PathBuf> {
        let data = root.join("db");
        installation.install(&data)?;
        let server = installation.start(&data)?;
        fill(&server)?;
        server.stop()?;
        if self.atomic {
            installation.database.make_atomic(&data)?;
        }
        Ok(data)
    }

    pub fn format(&self, path: &Path, more: &[&str]) -> Outcome<()> {
        let mut command = Command::new(&self.weir);
        run(command.args(["mkfs", "--volume"]).arg(path).args(more)).map(drop)
    }

    pub fn mount_options(&self) -> Vec<String> {
        let asked = self.database.mount_options().iter().map(|option| (*option).to_owned());
        asked.chain(self.mount.iter().cloned()).collect()
    }

    fn mount(&self, volume: &Path, root: &Path) -> Outcome<WeirMount> {
        WeirMount::new(&self.weir, volume, root, &self.mount_options())
    }

    /// Has the clients work for a while.
    pub fn work(&self, random: &mut Pcg64, clients: &mut Clients) -> Outcome<()> {
        let before: u64 = clients.acknowledged()?.iter().sum();
        wait_for("transactions are committed", PATIENCE, || {
            let now: u64 = clients.acknowledged()?.iter().sum();
            Ok((now >= before + LIFE_TRANSACTIONS).then_some(()))
        })?;
        std::thread::sleep(Duration::from_millis(random.random_range(LIFE_MS.0..LIFE_MS.1)));
        if clients.ended()? { Err("a client has ended before the crash".into()) } else { Ok(()) }
    }

    /// One database, whose mount's server is killed each time.
    fn kill_rounds(
        &self,
        beside: &Path,
        installation: &Installation,
        tell: &mut dyn FnMut(u64, &Verdict),
    ) -> Outcome<Totals> {
        let [volume, root] = ["volume", "mounted"].map(|name| beside.join(name));
        self.format(&volume, &["--size", &format!("{DISK_MIB}M")])?;
        let mut mounted = self.mount(&volume, &root)?;
        let data = self.prepare(installation, &root)?;
        let (mut random, mut totals) = (self.random(), Totals::default());
        let mut done = vec![0; CLIENTS as usize];
        while totals.rounds < self.rounds {
            let server = installation.start(&data)?;
            let mut clients = Clients::start(&server, beside, self.seed, &done)?;
            self.work(&mut random, &mut clients)?;
            mounted.kill()?;
            // The clients' last words are in the pipe between them and the server until it ends.
            drop(server);
            let told = clients.acknowledged()?;
            drop(clients);
            mounted.end()?;
            mounted = self.mount(&volume, &root)?;
            let verdict = judge(installation, &data, self.seed, &told, &told)?;
            totals.add(&verdict, self.pages_twice);
            tell(totals.rounds, &verdict);
            totals.acknowledged = told.iter().sum();
            if !verdict.is_sound(self.pages_twice) {
                // What comes next would be built on it.
                break;
            }
            done = verdict.done;
        }
        mounted.end()?;
        Ok(totals)
    }

    /// One database, which goes on while images are made of what a power cut would leave of its disk.
    fn power_rounds(
        &self,
        beside: &Path,
        installation: &Installation,
        tell: &mut dyn FnMut(u64, &Verdict),
    ) -> Outcome<Totals> {
        let mut worst = WorstDisk::new(&self.weir, beside, DISK_MIB)?;
        let device = LoopDevice::new(&worst.file())?;
        let [root, found] = ["mounted", "found"].map(|name| beside.join(name));
        let (mounted, mut totals);
        if self.crash == Crash::Power {
            self.format(device.path(), &[])?;
            mounted = Mounted::Weir(self.mount(device.path(), &root)?, Some(device));
        } else {
            Ext4::format(&device)?;
            mounted = Mounted::Ext4(Ext4::new(device, &root)?);
        }
        let data = self.prepare(installation, &root)?;
        mounted.synchronise()?;
        let server = installation.start(&data)?;
        let clients = Clients::start(&server, beside, self.seed, &vec![0; CLIENTS as usize])?;
        totals = self.cuts(&mut worst, clients, &found, tell)?;
        totals.acknowledged = acknowledged(&server)?;
        drop((server, mounted));
        Ok(totals)
    }

    fn cuts(
        &self,
        worst: &mut WorstDisk,
        mut clients: Clients,
        found: &Path,
        tell: &mut dyn FnMut(u64, &Verdict),
    ) -> Outcome<Totals> {
        // A server of its own looks at what is left.
        let looker = self.installation()?;
        let (mut random, mut totals) = (self.random(), Totals::default());
        while totals.rounds < self.rounds && !(self.until_damage && totals.damaged > 0) {
            self.work(&mut random, &mut clients)?;
            let least = clients.acknowledged()?;
            let image = worst.cut()?;
            let most = clients.acknowledged()?;
            clients.pause(true)?;
            let mounted = match self.crash {
                Crash::PowerUnderExt4 => Mounted::Ext4(Ext4::new(LoopDevice::new(&image)?, found)?),
                // The image is a copy of a volume that is still mounted.
                _ => {
                    let more = [&self.mount_options()[..], &["--after-crash".to_owned()]].concat();
                    Mounted::Weir(WeirMount::new(&self.weir, &image, found, &more)?, None)
                }
            };
            let data = found.join("db");
            looker.database.remove_lock(&data)?;
            let verdict = judge(&looker, &data, self.seed, &least, &most)?;
            mounted.end()?;
            fs::remove_file(&image)?;
            totals.add(&verdict, self.pages_twice);
            tell(totals.rounds, &verdict);
            clients.pause(false)?;
        }
        Ok(totals)
    }
}

/// How many transactions a server that lives has committed for the clients.
fn acknowledged(server: &Running<'_>) -> Outcome<u64> {
    Ok(server.ask("SELECT SUM(n) FROM t.done")?.trim().parse()?)
}

/// A mount of either kind; what is named first is ended first.
enum Mounted {
    Weir(WeirMount, Option<LoopDevice>),
    Ext4(Ext4),
}

impl Mounted {
    fn synchronise(&self) -> Outcome<()> {
        match self {
            Mounted::Weir(mounted, _) => mounted.synchronise(),
            Mounted::Ext4(_) => run(&mut system("sync")).map(drop),
        }
    }

    fn end(self) -> Outcome<()> {
        match self {
            Mounted::Weir(mounted, _) => mounted.end(),
            Mounted::Ext4(mounted) => {
                drop(mounted);
                Ok(())
            }
        }
    }
}
