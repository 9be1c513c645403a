//! *InnoDB's calls*: what the storage engine of MySQL asks of a filesystem under many short transactions, as figure 4 of
//! the SHARE paper runs it, and OLTP-insert in figure 14 of the FAST 2018 paper. MySQL itself does not run in virtual time.

use std::fmt;

use serde::Deserialize;

use crate::calls::Call;
use crate::mounting::Mounting;

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

impl InnoDb {
    /// The paper's name of it.
    pub(crate) fn name_ground(self) -> String {
        match self.pages {
            Pages::Doublewrite => format!("DWB-ON/{}", self.on),
            Pages::Home => format!("DWB-OFF/{}", self.on),
            Pages::Atomic => format!("DWB-OFF/SADJ on {}", self.on),
        }
    }
}

impl fmt::Display for InnoDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} tables of {} pages", self.name_ground(), self.tables, self.table_pages)?;
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
