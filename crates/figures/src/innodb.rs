//! *InnoDB's calls*: what the storage engine of MySQL asks of a filesystem under many short transactions, as figure 4 of
//! the SHARE paper runs it, and OLTP-insert in figure 14 of the FAST 2018 paper. MySQL itself does not run in virtual time.
//!
//! A run of [`InnoDb`]: its calls as they were recorded from a real server with `strace`, and as MySQL 5.7 makes them.
//!
//! - A thread spends a transaction's processor time, makes pages dirty, adds to the log, and waits until the log is durable
//!   up to there. One thread at a time writes the log for all that wait, from the block where the last write ended, and
//!   synchronises it. The log is one file, written round and round. Where transactions do not wait for it, this is done once
//!   a second (`innodb_flush_log_at_trx_commit` other than 1).
//! - With a binary log the transaction is added to that then, which one thread at a time appends and synchronises in the
//!   same way (`sync_binlog` of 1). The redo log is not synchronised again for the commit: recovery asks the binary log.
//! - Page cleaners write pages out, when a batch of them is dirty. First the log is made durable up to their changes. With the doublewrite buffer, all of them in one write to
//!   its place in the system's file, which is synchronised; then each page to its home, in order; then each file that
//!   was written is synchronised, one after the other. Where the tables are atomic files, one call synchronises all of them as a group.
//!   Batches of several cleaners overlap, but for those in the doublewrite buffer, which has room for one.
//! - Threads wait when too many pages are dirty.
//!
//! Pages are read from the buffer pool: nothing is read from the drive, but for a [`Load`] that says so.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use serde::Deserialize;
use weir_ext4::ROOT_INODE;
use weir_flash::FlashOptions;
use weir_format::FileType;
use weir_runtime::{Event, Random, Semaphore};
use weir_storage::BLOCK_BYTES;
use weir_vfs::{FsError, InodeNumber, NewNode};

use crate::calls::{Call, On};
use crate::error::FigureError;
use crate::experiment::Experiment;
use crate::files::fill;
use crate::metric::Metric;
use crate::mounting::Mounting;
use crate::run::{Outcome, Run};
use crate::server_log::{ServerLog, Shape};
use crate::stage::{self, APPLICATION, Setting, Stage, Thread, perform};

/// Threads whose transactions change pages of tables, a log of what they change, and one thread that writes pages out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InnoDb {
    /// On which filesystem.
    pub on: Mounting,
    /// How pages are kept whole.
    pub pages: Pages,
    /// Files with tables, each of the same size.
    pub tables: u32,
    /// The size of such a file, in pages of 16 KiB.
    pub table_pages: u32,
    /// Threads.
    pub threads: u32,
    /// Processor time of a transaction, in microseconds, without its calls into the filesystem.
    pub transaction_us: u32,
    /// Pages that a hundred transactions make dirty.
    pub pages_of_hundred: u32,
    /// Bytes that a transaction adds to the log.
    pub log_bytes: u32,
    /// Pages that are written out together.
    pub batch: u32,
    /// Threads that write pages out.
    pub cleaners: u32,
    /// Whether a transaction ends when the log is durable; otherwise it is made durable once a second.
    #[serde(default = "yes")]
    pub durable: bool,
    /// Bytes that a transaction adds to the binary log, which it waits for; 0 if there is none.
    #[serde(default)]
    pub binary_log_bytes: u32,
    /// How logs and pages are synchronised.
    #[serde(default = "Call::durable")]
    pub call: Call,
    /// Cores of the host, if not its profile's.
    #[serde(default)]
    pub cores: Option<u32>,
}

fn yes() -> bool {
    true
}

/// How pages are kept whole when the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pages {
    /// By a copy in the doublewrite buffer, which is durable before they are written home.
    Doublewrite,
    /// By the filesystem, or not at all.
    Home,
    /// By atomic files: a batch is one update of all the files that it touches.
    Atomic,
}

impl fmt::Display for InnoDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} tables of {} pages", self.short_name(), self.tables, self.table_pages)?;
        write!(f, ", {} threads, {} cleaners, {}", self.threads, self.cleaners, self.call)?;
        let InnoDb { transaction_us, log_bytes, pages_of_hundred, batch, .. } = self;
        write!(
            f,
            ", transactions of {transaction_us} us, {log_bytes} bytes of log, {pages_of_hundred} % of a page"
        )?;
        write!(f, ", batches of {batch} pages")?;
        if self.binary_log_bytes > 0 {
            write!(f, ", {} bytes of binary log", self.binary_log_bytes)?;
        }
        if !self.durable {
            f.write_str(", log not synchronised")?;
        }
        self.cores.map_or(Ok(()), |cores| write!(f, ", {cores} cores"))
    }
}

/// What counts.
const TRANSACTIONS: Metric = Metric::new("transactions", "transactions/s");

/// Bytes of a page.
const PAGE_BYTES: u64 = 16 << 10;
/// Bytes of the log's file.
const LOG_BYTES: u64 = 32 << 20;
/// Where the doublewrite buffer lies in the system's file.
const DOUBLEWRITE_AT: u64 = 1 << 20;
/// Batches of dirty pages from which on threads wait.
const BATCHES_DIRTY: usize = 8;

/// Where transactions do not wait for the log, it is synchronised so often.
const LOG_INTERVAL: Duration = Duration::from_secs(1);
/// Parts of a transaction's processor time; between them another thread may have the core, as the kernel would do it.
const SLICES: u32 = 20;

impl Experiment for InnoDb {
    fn metrics(&self) -> Vec<Metric> {
        stage::metrics(TRANSACTIONS)
    }

    fn filesystem(&self) -> Option<On> {
        Some(self.on.on)
    }

    fn short_name(&self) -> String {
        match self.pages {
            Pages::Doublewrite => format!("DWB-ON/{}", self.on),
            Pages::Home => format!("DWB-OFF/{}", self.on),
            Pages::Atomic => format!("DWB-OFF/SADJ on {}", self.on),
        }
    }

    fn run(&self, run: &Run, seed: u64, options: FlashOptions) -> Result<Outcome, FigureError> {
        self.serve(Rc::new(*self), TRANSACTIONS, run, seed, options)
    }
}

impl InnoDb {
    /// Runs this load on a server that is otherwise as it says.
    pub(crate) fn serve(
        &self,
        load: Rc<dyn Load>,
        rate: Metric,
        run: &Run,
        seed: u64,
        options: FlashOptions,
    ) -> Result<Outcome, FigureError> {
        let play = async |stage: &Rc<Stage>| {
            let server = Rc::new(Server::start(stage, *self, Rc::clone(&load)).await?);
            let mut threads: Vec<Thread> = Vec::new();
            for _ in 0..self.cleaners.max(1) {
                threads.push(Box::pin(Rc::clone(&server).write_out()));
            }
            if !self.durable {
                threads.push(Box::pin(Rc::clone(&server).log_by_time()));
            }
            for _ in 0..self.threads.max(1) {
                let random = stage.handle.random(APPLICATION);
                threads.push(Box::pin(Rc::clone(&server).transactions(random)));
            }
            Ok(threads)
        };
        let setting = Setting { mounting: self.on, cores: self.cores, rate, aged_percent: 0 };
        perform(run, setting, seed, options, play)
    }

    /// Pages that are written out together.
    fn batch(self) -> usize {
        self.batch.clamp(1, 1 << 12) as usize
    }
}

/// A page of a table: the table, and the page's number in it.
pub(crate) type TablePage = (u32, u32);

/// What a transaction does.
pub(crate) struct Transaction {
    /// Bytes that it adds to the log.
    pub(crate) log_bytes: u64,
    /// Pages that it reads from the drive first.
    pub(crate) reads: Vec<TablePage>,
    /// Pages that it makes dirty.
    pub(crate) changes: Vec<TablePage>,
}

impl Transaction {
    /// Whether it changes nothing.
    fn only_reads(&self) -> bool {
        self.log_bytes == 0 && self.changes.is_empty()
    }
}

/// Which transactions there are.
pub(crate) trait Load {
    /// The next transaction.
    fn transaction(&self, random: &mut Random) -> Transaction;

    /// Whether some pages are changed so often that they are dirty already. Where all are changed alike, that is left out.
    fn repeats(&self) -> bool {
        false
    }
}

/// All are alike: so many bytes, and pages anywhere.
impl Load for InnoDb {
    fn transaction(&self, random: &mut Random) -> Transaction {
        let changes = (0..pages_of(self.pages_of_hundred, random))
            .map(|_| {
                let table = random.below(u64::from(self.tables.max(1)));
                (table as u32, random.below(u64::from(self.table_pages.max(1))) as u32)
            })
            .collect();
        Transaction { log_bytes: u64::from(self.log_bytes), reads: Vec::new(), changes }
    }
}

/// Pages of one transaction, of which a hundred have so many.
pub(crate) fn pages_of(of_hundred: u32, random: &mut Random) -> u64 {
    let of_hundred = u64::from(of_hundred);
    of_hundred / 100 + u64::from(random.below(100) < of_hundred % 100)
}

/// A page that was changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Dirty {
    place: TablePage,
    /// Where the log ends that it needs.
    logged: u64,
}

/// What all threads share.
struct Server {
    stage: Rc<Stage>,
    innodb: InnoDb,
    load: Rc<dyn Load>,
    tables: Vec<InodeNumber>,
    /// The file with the doublewrite buffer.
    system: InodeNumber,
    log: ServerLog,
    binary_log: ServerLog,
    /// Dirty pages. The first became dirty first.
    dirty: RefCell<VecDeque<Dirty>>,
    /// Pages that are being written out.
    cleaning: Cell<usize>,
    /// One thread at a time writes to the doublewrite buffer.
    doublewrite: Semaphore,
    /// Pages became dirty, or were written out.
    pages_changed: Event,
}

impl Server {
    async fn start(stage: &Rc<Stage>, innodb: InnoDb, load: Rc<dyn Load>) -> Result<Server, FsError> {
        let new = NewNode::new(FileType::Regular, 0o640);
        let make = async |name: &str, bytes: u64| {
            let file = stage.filesystem.create(ROOT_INODE, name.as_bytes(), &new).await?;
            fill(&stage.filesystem, file, bytes).await?;
            Ok::<InodeNumber, FsError>(file)
        };
        let mut tables = Vec::new();
        for table in 0..innodb.tables.max(1) {
            let bytes = u64::from(innodb.table_pages.max(1)) * PAGE_BYTES;
            let file = make(&format!("table{table}.ibd"), bytes).await?;
            if innodb.pages == Pages::Atomic {
                stage.filesystem.sync().await?;
                stage.filesystem.set_atomic(file, true).await?;
            }
            tables.push(file);
        }
        let log = make("ib_logfile0", LOG_BYTES).await?;
        let binary_log = make("bin.000001", 0).await?;
        Ok(Server {
            system: make("ibdata1", DOUBLEWRITE_AT + innodb.batch() as u64 * PAGE_BYTES).await?,
            log: ServerLog::new(stage, log, Shape::Round(LOG_BYTES), innodb.call),
            binary_log: ServerLog::new(stage, binary_log, Shape::Grows, innodb.call),
            stage: Rc::clone(stage),
            innodb,
            load,
            tables,
            dirty: RefCell::default(),
            cleaning: Cell::new(0),
            doublewrite: Semaphore::new(1),
            pages_changed: Event::new(),
        })
    }

    fn is_over(&self) -> bool {
        self.stage.progress.is_over()
    }

    /// One thread of a client.
    async fn transactions(self: Rc<Server>, mut random: Random) -> Result<(), FsError> {
        while !self.is_over() {
            let from = self.stage.handle.now().as_nanos();
            for _ in 0..SLICES {
                self.stage.work(f64::from(self.innodb.transaction_us) / f64::from(SLICES)).await;
            }
            let transaction = self.load.transaction(&mut random);
            self.read_pages(&transaction.reads).await?;
            if !transaction.only_reads() {
                let Transaction { log_bytes, changes, .. } = transaction;
                let end = self.log.add(log_bytes);
                self.change_pages(&changes, end).await;
                if self.innodb.durable {
                    self.log.commit(end).await?;
                }
            }
            if self.innodb.binary_log_bytes > 0 {
                let end = self.binary_log.add(u64::from(self.innodb.binary_log_bytes));
                self.binary_log.commit(end).await?;
            }
            self.stage.progress.called(self.stage.handle.now().as_nanos() - from);
        }
        self.pages_changed.notify(usize::MAX);
        Ok(())
    }

    async fn read_pages(&self, pages: &[TablePage]) -> Result<(), FsError> {
        let mut data = vec![0; if pages.is_empty() { 0 } else { PAGE_BYTES as usize }];
        for (table, page) in pages {
            self.work(PAGE_BYTES).await;
            let offset = u64::from(*page) * PAGE_BYTES;
            self.stage.filesystem.read(self.tables[*table as usize], offset, &mut data).await?;
        }
        Ok(())
    }

    async fn change_pages(&self, pages: &[TablePage], logged: u64) {
        for place in pages {
            self.stage.handle.trace(&[u64::from(place.0), u64::from(place.1)]);
            let mut dirty = self.dirty.borrow_mut();
            match dirty.iter_mut().find(|dirty| self.load.repeats() && dirty.place == *place) {
                Some(dirty) => dirty.logged = logged,
                None => dirty.push_back(Dirty { place: *place, logged }),
            }
        }
        self.pages_changed.notify(usize::MAX);
        while self.dirty.borrow().len() + self.cleaning.get() > BATCHES_DIRTY * self.innodb.batch()
            && !self.is_over()
        {
            self.pages_changed.listen().await;
        }
    }

    /// The thread that makes the log durable where transactions do not wait for it.
    async fn log_by_time(self: Rc<Server>) -> Result<(), FsError> {
        while !self.is_over() {
            self.stage.handle.sleep(LOG_INTERVAL).await;
            self.log.commit_all().await?;
        }
        Ok(())
    }

    /// The thread that writes pages out.
    async fn write_out(self: Rc<Server>) -> Result<(), FsError> {
        while !self.is_over() {
            let changed = self.pages_changed.listen();
            if self.dirty.borrow().len() < self.innodb.batch() {
                changed.await;
                continue;
            }
            let mut pages: Vec<Dirty> = self.dirty.borrow_mut().drain(..self.innodb.batch()).collect();
            pages.sort_unstable();
            self.cleaning.set(self.cleaning.get() + pages.len());
            self.write_batch(&pages).await?;
            self.cleaning.set(self.cleaning.get() - pages.len());
            self.pages_changed.notify(usize::MAX);
        }
        Ok(())
    }

    async fn write_batch(&self, pages: &[Dirty]) -> Result<(), FsError> {
        // The log goes before the pages.
        self.log.commit(pages.iter().map(|page| page.logged).max().unwrap_or_default()).await?;
        let _turn = match self.innodb.pages {
            Pages::Doublewrite => Some(self.doublewrite.acquire(1).await),
            Pages::Home | Pages::Atomic => None,
        };
        if self.innodb.pages == Pages::Doublewrite {
            self.work(pages.len() as u64 * PAGE_BYTES).await;
            self.write(self.system, DOUBLEWRITE_AT, pages.len() as u64 * PAGE_BYTES).await?;
            self.synchronise(self.system).await?;
        }
        let file = |table: u32| self.tables[table as usize];
        self.work(pages.len() as u64 * PAGE_BYTES).await;
        for Dirty { place: (table, page), .. } in pages {
            self.write(file(*table), u64::from(*page) * PAGE_BYTES, PAGE_BYTES).await?;
        }
        let written: BTreeSet<u32> = pages.iter().map(|page| page.place.0).collect();
        if self.innodb.pages == Pages::Atomic {
            let files: Vec<InodeNumber> = written.into_iter().map(file).collect();
            self.stage.work(self.stage.host.sync_us.value).await;
            return self.stage.filesystem.sync_group(&files).await;
        }
        for table in written {
            self.synchronise(file(table)).await?;
        }
        Ok(())
    }

    async fn synchronise(&self, file: InodeNumber) -> Result<(), FsError> {
        self.stage.call(self.innodb.call, file).await
    }

    /// Spends the processor's time for writing so many bytes: of a batch at once, as it has waited for the core.
    async fn work(&self, bytes: u64) {
        self.stage.work(bytes.div_ceil(BLOCK_BYTES as u64) as f64 * self.stage.host.write_us.value).await;
    }

    async fn write(&self, file: InodeNumber, offset: u64, bytes: u64) -> Result<(), FsError> {
        let data = vec![3; usize::try_from(bytes).unwrap_or_default()];
        self.stage.filesystem.write(file, offset, &data).await.map(drop)
    }
}
