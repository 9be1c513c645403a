//! What the campaigns and the benchmark need of a database, whichever it is.

use std::path::Path;
use std::process::Command;

use clap::ValueEnum;
use rustix::process::Signal;

use super::Outcome;
use super::mariadb::Mariadb;
use super::postgresql::Postgresql;
use super::server::Running;

/// Which database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DatabaseKind {
    #[default]
    Mariadb,
    Postgresql,
}

/// How a server is configured.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Whether each page is written twice: MariaDB's doublewrite buffer, PostgreSQL's full pages in its log.
    pub pages_twice: bool,
    /// MiB of pages in memory.
    pub pool_mib: u32,
    /// MiB of the log, after which a checkpoint begins.
    pub log_mib: u32,
}

impl DatabaseKind {
    /// The programs that crashes and their judge take.
    pub fn programs(self) -> &'static [&'static str] {
        match self {
            DatabaseKind::Mariadb => &["mariadbd", "mariadb", "innochecksum"],
            DatabaseKind::Postgresql => &["postgres", "psql", "pg_checksums", "pg_amcheck", "setpriv"],
        }
    }

    /// The program that makes the benchmark's load.
    pub fn load_program(self) -> &'static str {
        match self {
            DatabaseKind::Mariadb => "sysbench",
            DatabaseKind::Postgresql => "pgbench",
        }
    }

    /// What `weir mount` is told besides: PostgreSQL does not run as the superuser.
    pub fn mount_options(self) -> &'static [&'static str] {
        match self {
            DatabaseKind::Mariadb => &[],
            DatabaseKind::Postgresql => &["--allow-other"],
        }
    }

    pub fn set_up(self, setup: Setup) -> Box<dyn Database> {
        match self {
            DatabaseKind::Mariadb => Box::new(Mariadb { setup }),
            DatabaseKind::Postgresql => Box::new(Postgresql { setup }),
        }
    }
}

/// A database server that is configured, and its tools. Sockets, messages and temporary files are in a directory that no crash hits,
/// the *scratch* directory.
pub trait Database {
    /// Prepares a scratch directory.
    fn prepare_scratch(&self, scratch: &Path) -> Outcome<()>;

    /// Makes the system's tables in a directory that is not there yet.
    fn install(&self, data: &Path, scratch: &Path) -> Outcome<()>;

    /// The command that serves a directory.
    fn serve(&self, data: &Path, scratch: &Path) -> Command;

    /// Whether a line of the server's messages tells an error.
    fn is_error(&self, line: &str) -> bool;

    /// A client that answers the SQL of its input line by line, fields divided by tabs, and ends at the first error.
    fn client(&self, scratch: &Path) -> Command;

    /// The option of the client before SQL that is asked instead of its input.
    fn option_to_ask(&self) -> &'static str;

    /// Has the server end in good order.
    fn request_end(&self, server: &Running<'_>) -> Outcome<()>;

    /// Takes away the lock of a server whose storage has lost its power, and which lives, since only a copy of the disk has.
    fn remove_lock(&self, data: &Path) -> Outcome<()>;

    /// The signal that ends the server with all its processes at once.
    fn signal_to_kill(&self) -> Signal;

    /// Files with a page whose checksum is wrong, with the first of what is told of it. The server is not running; `is_recovered` says
    /// that it has ended in good order since the crash.
    fn torn_pages(&self, data: &Path, is_recovered: bool) -> Outcome<Vec<String>>;

    /// Looks at tables and indexes as a whole, by the database's own checks.
    fn check_tables(&self, server: &Running<'_>) -> Outcome<()>;

    /// Makes the files that hold pages atomic, and those that will be made beside them. The server is not running.
    fn make_atomic(&self, data: &Path) -> Outcome<()>;

    /// What `SELECT` takes the numbers 0 to `last` from, as the column `seq`.
    fn numbers_to(&self, last: u64) -> String;

    /// SQL for a letter, repeated `bytes` times, that follows from the number that `number` is.
    fn text_of(&self, number: &str, bytes: u64) -> String;

    /// Pages of tables and indexes that the server has written since it was started.
    fn pages_written(&self, server: &Running<'_>) -> Outcome<u64>;

    /// Bytes that the server has written to its log.
    fn log_bytes(&self, server: &Running<'_>) -> Outcome<u64>;
}
