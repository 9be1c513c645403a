//! *LinkBench*: the operations of a social graph on MySQL's storage engine, as figure 4 of the SHARE paper runs it. The server
//! is that of [`InnoDb`], its calls as they were recorded; an operation takes the place of a transaction.
//!
//! - The mix, and how popular the ids are that each operation takes, are LinkBench's own (`config/FBWorkload.properties` of
//!   facebookarchive/linkbench). A million ids are a gigabyte there.
//! - An operation looks at one leaf of each index that its statements go through (`LinkStoreMysql.java`): links have a
//!   primary key and a secondary one, counts and nodes one each. All levels above are in the buffer pool.
//! - Pages made dirty and bytes of log were counted: LinkBench's tables in MariaDB 10.11, 400,000 nodes and 2 million links, each
//!   operation by itself, 200 to 1,800 times, by `Innodb_buffer_pool_pages_dirty` and `Innodb_lsn_current`. What is the same for
//!   600 operations and for 1,800 was taken off. The numbers include undo, purge, and pages that are split.
//! - The pool keeps the pages that were used last. What is not there is read from the drive. Before the run it is filled by
//!   operations that take no time, as the paper warms up for two minutes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use serde::Deserialize;
use weir_flash::FlashOptions;
use weir_runtime::{Random, Runtime, Simulation};
use weir_workload::{Popularity, scatter};

use crate::calls::{Call, On};
use crate::error::FigureError;
use crate::experiment::Experiment;
use crate::innodb::{InnoDb, Load, Pages, TablePage, Transaction, pages_of};
use crate::metric::{Metric, OPERATIONS};
use crate::mounting::Mounting;
use crate::run::{Outcome, Run};
use crate::stage;

/// LinkBench's operations, on threads of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkBench {
    /// On which filesystem.
    pub on: Mounting,
    /// How pages are kept whole.
    pub pages: Pages,
    /// Files with tables, each of the same size.
    pub tables: u32,
    /// The size of such a file, in pages of 16 KiB.
    pub table_pages: u32,
    /// Pages of the buffer pool.
    pub pool_pages: u32,
    /// Ids of nodes.
    pub ids: u32,
    /// Threads.
    pub threads: u32,
    /// Processor time of an operation, in microseconds, without its calls into the filesystem.
    pub operation_us: u32,
    /// Pages that are written out together.
    pub batch: u32,
    /// Threads that write pages out.
    pub cleaners: u32,
    /// Whether an operation that changes something ends when the log is durable; otherwise it is made durable once a second.
    pub durable: bool,
}

impl fmt::Display for LinkBench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LinkBench { pool_pages, ids, operation_us, .. } = self;
        let server = self.server();
        write!(
            f,
            "LinkBench: {server}, {ids} ids, a pool of {pool_pages} pages, operations of {operation_us} us"
        )
    }
}

impl Experiment for LinkBench {
    fn metrics(&self) -> Vec<Metric> {
        stage::metrics(OPERATIONS)
    }

    fn filesystem(&self) -> Option<On> {
        self.server().filesystem()
    }

    fn short_name(&self) -> String {
        self.server().short_name()
    }

    fn run(&self, run: &Run, seed: u64, options: FlashOptions) -> Result<Outcome, FigureError> {
        self.server().serve(Rc::new(Graph::warm(self, seed)), OPERATIONS, run, seed, options)
    }
}

impl LinkBench {
    /// The server, whose transactions are these operations.
    fn server(&self) -> InnoDb {
        InnoDb {
            on: self.on,
            pages: self.pages,
            tables: self.tables,
            table_pages: self.table_pages,
            threads: self.threads,
            transaction_us: self.operation_us,
            pages_of_hundred: 0,
            log_bytes: 0,
            batch: self.batch,
            cleaners: self.cleaners,
            durable: self.durable,
            binary_log_bytes: 0,
            call: Call::durable(),
            cores: None,
        }
    }
}

/// An operation.
struct Operation {
    /// Its share of all, in percent.
    share: f64,
    /// The exponent of the Zipf distribution of its ids; 0 if all are alike.
    shape: f64,
    /// The indexes of which it looks at a leaf.
    indexes: &'static [Index],
    /// Pages that a hundred of them make dirty: those that they look at come first.
    pages_of_hundred: u32,
    /// Bytes that it adds to the log.
    log_bytes: u32,
}

/// An index of the tables.
#[derive(Clone, Copy)]
enum Index {
    Links,
    LinksByTime,
    Counts,
    Nodes,
}

use Index::{Counts, Links, LinksByTime, Nodes};

const fn reads(share: f64, shape: f64, indexes: &'static [Index]) -> Operation {
    Operation { share, shape, indexes, pages_of_hundred: 0, log_bytes: 0 }
}

const fn writes(
    share: f64,
    shape: f64,
    indexes: &'static [Index],
    pages_of_hundred: u32,
    log_bytes: u32,
) -> Operation {
    Operation { share, shape, indexes, pages_of_hundred, log_bytes }
}

/// The operations, the most frequent first. Counted: 2.8 to 3.5 pages and 3.0 to 4.0 KB for a link that is added, 2.3 to 3.0 and
/// 5.4 to 6.9 for one that is updated, 3.0 to 3.7 and 5.8 to 6.7 for one that is hidden; 0.01 to 0.02 and 0.37 to 0.41 for a new
/// node, 0.9 to 1 and 0.63 to 0.66 for one that is updated, 0.9 to 1 and 0.23 to 0.25 for one that is deleted.
const OPERATIONS_OF_GRAPH: [Operation; 10] = [
    // getlinklist
    reads(50.711_914_5, 0.8, &[LinksByTime]),
    // getnode
    reads(12.932_668_3, 0.625, &[Nodes]),
    // addlink
    writes(8.988_660_1, 0.741, &[Links, LinksByTime, Counts], 310, 3_000),
    // updatelink
    writes(8.012_212_5, 0.741, &[Links, LinksByTime], 250, 5_400),
    // updatenode
    writes(7.366_437, 0.606, &[Nodes], 100, 660),
    // countlink
    reads(4.886_356_7, 0.8, &[Counts]),
    // deletelink
    writes(2.990_766_4, 0.741, &[Links, LinksByTime, Counts], 320, 5_800),
    // addnode: behind all others
    writes(2.573_278_9, 0.0, &[], 2, 380),
    // deletenode
    writes(1.011_591_4, 0.0, &[Nodes], 100, 230),
    // getlink
    reads(0.526_114_2, 0.8, &[Links]),
];

/// Chances are drawn as parts of this.
const CHANCES: u64 = 1 << 32;

/// The tables, and the pages of them that are in memory.
struct Graph {
    tables: u32,
    table_pages: u32,
    ids: u64,
    /// How popular ids are, by operation.
    popularity: Vec<Popularity>,
    pool: RefCell<Pool>,
}

impl Graph {
    /// With a pool that operations have filled.
    fn warm(load: &LinkBench, seed: u64) -> Graph {
        let graph = Graph {
            tables: load.tables.max(1),
            table_pages: load.table_pages.max(1),
            ids: u64::from(load.ids.max(1)),
            popularity: OPERATIONS_OF_GRAPH
                .iter()
                .map(|operation| Popularity::new(u64::from(load.ids), operation.shape))
                .collect(),
            pool: RefCell::new(Pool::new(load.pool_pages as usize)),
        };
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        let mut random = runtime.handle().random("warm-up");
        // Each page enters and is used a few times, or leaves again.
        (0..8 * u64::from(load.pool_pages)).for_each(|_| drop(graph.transaction(&mut random)));
        graph
    }

    /// The leaf of an index in which an id lies. Ids are scattered, so hot ones are not neighbours.
    fn leaf(&self, index: Index, rank: u64) -> TablePage {
        let pages = u64::from(self.tables) * u64::from(self.table_pages);
        self.page(scatter(rank + index as u64 * self.ids, pages))
    }

    /// The page of this number among all.
    fn page(&self, number: u64) -> TablePage {
        ((number % u64::from(self.tables)) as u32, (number / u64::from(self.tables)) as u32)
    }
}

impl Load for Graph {
    fn transaction(&self, random: &mut Random) -> Transaction {
        let mut chance = random.below(CHANCES) as f64 * (100.0 / CHANCES as f64);
        let is_drawn = |operation: &Operation| {
            chance -= operation.share;
            chance < 0.0
        };
        // Shares are rounded: what is left goes to the last.
        let which = OPERATIONS_OF_GRAPH.iter().position(is_drawn).unwrap_or(OPERATIONS_OF_GRAPH.len() - 1);
        let operation = &OPERATIONS_OF_GRAPH[which];
        let rank = self.popularity[which].rank(random);
        let leaves: Vec<TablePage> = operation.indexes.iter().map(|index| self.leaf(*index, rank)).collect();
        let mut pool = self.pool.borrow_mut();
        let reads = leaves.iter().copied().filter(|page| !pool.uses(*page)).collect();
        let changed = pages_of(operation.pages_of_hundred, random) as usize;
        let mut changes: Vec<TablePage> = leaves.into_iter().take(changed).collect();
        // A page that is split, or undo: anywhere, and new.
        while changes.len() < changed {
            let page = self.page(random.below(u64::from(self.tables) * u64::from(self.table_pages)));
            pool.uses(page);
            changes.push(page);
        }
        Transaction { log_bytes: u64::from(operation.log_bytes), reads, changes }
    }

    fn repeats(&self) -> bool {
        true
    }
}

/// The buffer pool: the pages that were used last.
struct Pool {
    pages: usize,
    uses: u64,
    /// By page: its last use.
    used: BTreeMap<TablePage, u64>,
    /// By last use: the page.
    by_use: BTreeMap<u64, TablePage>,
}

impl Pool {
    fn new(pages: usize) -> Pool {
        Pool { pages: pages.max(1), uses: 0, used: BTreeMap::new(), by_use: BTreeMap::new() }
    }

    /// Uses a page: whether it was in the pool. It is then.
    fn uses(&mut self, page: TablePage) -> bool {
        self.uses += 1;
        let before = self.used.insert(page, self.uses);
        if let Some(before) = before {
            self.by_use.remove(&before);
        }
        self.by_use.insert(self.uses, page);
        if self.used.len() > self.pages
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.used.remove(&oldest);
        }
        before.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_all_operations() {
        let shares: f64 = OPERATIONS_OF_GRAPH.iter().map(|operation| operation.share).sum();
        assert!((shares - 100.0).abs() < 1e-4, "{shares}");
        let writes: f64 = OPERATIONS_OF_GRAPH
            .iter()
            .filter(|operation| operation.log_bytes > 0)
            .map(|operation| operation.share)
            .sum();
        assert!((30.0..32.0).contains(&writes), "{writes}");
    }

    #[test]
    fn the_pool_keeps_what_was_used_last() {
        let mut pool = Pool::new(2);
        assert!(!pool.uses((0, 1)) && !pool.uses((0, 2)) && pool.uses((0, 1)));
        assert!(!pool.uses((0, 3)) && pool.uses((0, 1)) && !pool.uses((0, 2)));
    }
}
