//! *Applications* of a phone, as the figures of the eMMC paper run them: by name, on a filesystem. What each of them
//! does is in its [`Behaviour`](crate::Behaviour).
//!
//! A run of [`Application`]: one thread that goes through rounds of its [`Behaviour`], each of which counts. What it
//! does is decided by the seed alone, so it is the same on every filesystem.
//!
//! - A transaction of SQLite: see [`Database`].
//! - Preferences: the file is renamed to a backup, made anew, written, synchronised, given its permissions, and the backup
//!   is deleted, as by Android's `SharedPreferences`.
//! - An append to a log, which is synchronised.
//! - A file of the cache is made and not synchronised, and the oldest is deleted; or one is read.
//!
//! At the end of a round the thread sleeps, in place of computing, of the network and of the user. Calls that synchronise
//! are measured; the others are not.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use serde::Deserialize;
use weir_ext4::ROOT_INODE;
use weir_flash::FlashOptions;
use weir_format::FileType;
use weir_runtime::Random;
use weir_vfs::{AttributeChanges, FsError, InodeNumber, NewNode, RenameFlags};

use crate::behaviour::Behaviour;
use crate::calls::On;
use crate::database::Database;
use crate::error::FigureError;
use crate::experiment::{Experiment, depends_on};
use crate::files::fill;
use crate::metric::{Metric, OPERATIONS};
use crate::mounting::Mounting;
use crate::run::{Outcome, Run};
use crate::stage::{self, APPLICATION, Setting, Stage, Thread, perform};

/// An application that a user works with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Application {
    /// On which filesystem.
    pub on: On,
    /// Which application.
    pub app: App,
}

/// The applications of the eMMC paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum App {
    /// A feed of messages and pictures.
    Facebook,
    /// A feed of short messages.
    Twitter,
    /// Maps, in tiles.
    GoogleMap,
    /// Mail.
    Gmail,
    /// Films, from the network.
    Netflix,
    /// A game.
    AngryBirds,
    /// A browser.
    Chrome,
    /// A shop.
    Amazon,
}

/// The behaviour's file of this name, embedded.
macro_rules! file {
    ($name:literal) => {
        ($name, include_str!(concat!("../figures/apps/", $name, ".toml")))
    };
}

impl App {
    /// All of them.
    pub const ALL: [App; 8] = [
        App::Facebook,
        App::Twitter,
        App::GoogleMap,
        App::Gmail,
        App::Netflix,
        App::AngryBirds,
        App::Chrome,
        App::Amazon,
    ];

    /// Its name, and its behaviour's file, embedded so that the program needs no checkout.
    fn file(self) -> (&'static str, &'static str) {
        match self {
            App::Facebook => file!("facebook"),
            App::Twitter => file!("twitter"),
            App::GoogleMap => file!("google-map"),
            App::Gmail => file!("gmail"),
            App::Netflix => file!("netflix"),
            App::AngryBirds => file!("angry-birds"),
            App::Chrome => file!("chrome"),
            App::Amazon => file!("amazon"),
        }
    }

    /// Its name in files and rows.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.file().0
    }

    pub(crate) fn text(self) -> &'static str {
        self.file().1
    }
}

impl fmt::Display for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Application {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.on, self.app)
    }
}

/// Files of preferences.
const PREFERENCES: u64 = 4;
/// Chances are drawn as parts of this.
const CHANCES: u64 = 1 << 20;
/// The journal's size, a sixteenth of what a phone's filesystem has.
const JOURNAL_MIB: u32 = 8;

impl Experiment for Application {
    fn metrics(&self) -> Vec<Metric> {
        stage::metrics(OPERATIONS)
    }

    fn filesystem(&self) -> Option<On> {
        Some(self.on)
    }

    fn depends_on(&self, parameter: &str) -> bool {
        parameter == "sqlite_insert_us" || depends_on(self.filesystem(), parameter)
    }

    fn run(&self, run: &Run, seed: u64, options: FlashOptions) -> Result<Outcome, FigureError> {
        let behaviour = Behaviour::of(self.app)?;
        let play = async |stage: &Rc<Stage>| {
            let thread = ApplicationThread::start(stage, behaviour).await?;
            Ok(vec![Box::pin(thread.run()) as Thread])
        };
        let mounting = Mounting { journal_mib: Some(JOURNAL_MIB), ..Mounting::of(self.on) };
        let setting = Setting { mounting, cores: None, rate: OPERATIONS, aged_percent: 0 };
        perform(run, setting, seed, options, play)
    }
}

/// Something that a round has.
#[derive(Clone, Copy)]
enum Step {
    Transaction,
    Preferences,
    Append,
    CacheFile,
    Read,
}

/// The thread.
struct ApplicationThread {
    stage: Rc<Stage>,
    behaviour: Behaviour,
    random: Random,
    databases: Vec<Database>,
    /// The directories of preferences and of the cache.
    preferences: InodeNumber,
    cache: InodeNumber,
    log: InodeNumber,
    log_bytes: u64,
    /// Numbers of the files in the cache, which are their names, and their bytes; the oldest first.
    cached: VecDeque<(u64, u64)>,
    made: u64,
}

impl ApplicationThread {
    async fn start(stage: &Rc<Stage>, behaviour: Behaviour) -> Result<ApplicationThread, FsError> {
        let fs = &stage.filesystem;
        let directory = async |name: &str| {
            fs.mkdir(ROOT_INODE, name.as_bytes(), &NewNode::new(FileType::Directory, 0o771)).await
        };
        let mut databases = Vec::new();
        let of_databases = directory("databases").await?;
        for number in 0..whole(behaviour.databases.value) {
            let pages = whole(behaviour.database_pages.value);
            let rollback = behaviour.journal.value;
            databases.push(Database::make(stage, of_databases, number, pages, rollback).await?);
        }
        let mut thread = ApplicationThread {
            preferences: directory("shared_prefs").await?,
            cache: directory("cache").await?,
            log: stage.create(ROOT_INODE, "log").await?,
            stage: Rc::clone(stage),
            random: stage.handle.random(APPLICATION),
            databases,
            log_bytes: 0,
            cached: VecDeque::new(),
            made: 0,
            behaviour,
        };
        for number in 0..PREFERENCES {
            let file = stage.create(thread.preferences, &preferences(number)).await?;
            let bytes = thread.bytes(thread.behaviour.preferences_bytes.value);
            fill(fs, file, bytes).await?;
        }
        for _ in 0..whole(thread.behaviour.cache_kept.value) {
            thread.make_cached().await?;
        }
        Ok(thread)
    }

    /// Goes through rounds until the window has ended.
    async fn run(mut self) -> Result<(), FsError> {
        let think = Duration::try_from_secs_f64(self.behaviour.think_ms.value / 1e3).unwrap_or_default();
        while !self.stage.progress.is_over() {
            for step in self.round() {
                match step {
                    Step::Transaction => self.transaction().await?,
                    Step::Preferences => self.save_preferences().await?,
                    Step::Append => self.append().await?,
                    Step::CacheFile => self.replace_cached().await?,
                    Step::Read => self.read().await?,
                }
            }
            self.stage.handle.sleep(think).await;
            self.stage.progress.done();
        }
        Ok(())
    }

    /// What the next round has, in any order.
    fn round(&mut self) -> Vec<Step> {
        let behaviour = &self.behaviour;
        let counts = [
            (Step::Transaction, behaviour.transactions.value),
            (Step::Preferences, behaviour.preferences.value),
            (Step::Append, behaviour.appends.value),
            (Step::CacheFile, behaviour.cache_files.value),
            (Step::Read, behaviour.reads.value),
        ];
        let mut steps = Vec::new();
        for (step, mean) in counts {
            steps.resize(steps.len() + self.count(mean) as usize, step);
        }
        for last in (1..steps.len()).rev() {
            steps.swap(last, self.random.below(last as u64 + 1) as usize);
        }
        steps
    }

    async fn transaction(&mut self) -> Result<(), FsError> {
        let which = self.random.below(self.databases.len().max(1) as u64) as usize;
        let all = whole(self.behaviour.database_pages.value);
        let count = self.count(self.behaviour.transaction_pages.value).clamp(1, all);
        // The first page, as each transaction counts there, and others.
        let mut pages = BTreeSet::from([0]);
        while (pages.len() as u64) < count {
            pages.insert(self.random.below(all));
        }
        let pages: Vec<u64> = pages.into_iter().collect();
        self.stage.handle.trace(&pages);
        match self.databases.get_mut(which) {
            Some(database) => database.commit(&pages).await,
            None => Ok(()),
        }
    }

    async fn save_preferences(&mut self) -> Result<(), FsError> {
        let name = preferences(self.random.below(PREFERENCES));
        let bytes = self.bytes(self.behaviour.preferences_bytes.value);
        let backup = format!("{name}.bak");
        let (stage, directory) = (&self.stage, self.preferences);
        let [from, to] = [&name, &backup].map(|name| (directory, name.as_bytes()));
        stage.work(stage.host.write_us.value).await;
        stage.filesystem.rename(from, to, RenameFlags::default()).await?;
        let file = stage.create(directory, &name).await?;
        stage.write(file, 0, bytes).await?;
        stage.synchronise(file).await?;
        let changes = AttributeChanges { permissions: Some(0o660), ..AttributeChanges::default() };
        stage.work(stage.host.write_us.value).await;
        stage.filesystem.set_attributes(file, &changes).await?;
        stage.unlink(directory, &backup).await
    }

    async fn append(&mut self) -> Result<(), FsError> {
        let bytes = self.bytes(self.behaviour.append_bytes.value);
        self.stage.write(self.log, self.log_bytes, bytes).await?;
        self.log_bytes += bytes;
        self.stage.synchronise(self.log).await
    }

    async fn replace_cached(&mut self) -> Result<(), FsError> {
        self.make_cached().await?;
        match self.cached.pop_front() {
            Some((oldest, _)) => self.stage.unlink(self.cache, &oldest.to_string()).await,
            None => Ok(()),
        }
    }

    async fn make_cached(&mut self) -> Result<(), FsError> {
        let (number, bytes) = (self.made, self.bytes(self.behaviour.cache_bytes.value));
        let file = self.stage.create(self.cache, &number.to_string()).await?;
        self.stage.write(file, 0, bytes).await?;
        self.cached.push_back((number, bytes));
        self.made += 1;
        Ok(())
    }

    async fn read(&mut self) -> Result<(), FsError> {
        let which = self.random.below(self.cached.len().max(1) as u64) as usize;
        let Some((number, bytes)) = self.cached.get(which) else { return Ok(()) };
        self.stage.read(self.cache, &number.to_string(), *bytes).await
    }

    /// A count that is `mean` on average.
    fn count(&mut self, mean: f64) -> u64 {
        let more = self.random.below(CHANCES) as f64 / CHANCES as f64;
        (mean.max(0.0) + more).floor() as u64
    }

    /// Bytes, 1 and more, that are `mean` on average.
    fn bytes(&mut self, mean: f64) -> u64 {
        1 + self.random.below(whole(2.0 * mean))
    }
}

fn preferences(number: u64) -> String {
    format!("{number}.xml")
}

/// A count from a file, 1 and more.
fn whole(value: f64) -> u64 {
    value.round().max(1.0) as u64
}
