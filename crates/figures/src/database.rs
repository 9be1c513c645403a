//! A *database*: the calls that SQLite makes for a transaction with a rollback journal, as `strace` shows them of
//! version 3.40 on Linux, with `synchronous = FULL`, and `fsync` for each of its syncs.
//!
//! 1. The journal's header, and the pages as they were, each with its number and a checksum. The journal is
//!    synchronised, and its directory.
//! 2. The number of pages into the header. The journal is synchronised.
//! 3. The pages as they are now. The database is synchronised.
//! 4. The journal is deleted; or cut to nothing, or its header is zeroed, and it is synchronised.
//!
//! Pages are in SQLite's cache: nothing is read.

use std::rc::Rc;

use serde::Deserialize;
use weir_format::FileType;
use weir_storage::BLOCK_BYTES;
use weir_vfs::{FsError, InodeNumber, NewNode};

use crate::files::fill;
use crate::stage::Stage;

/// Bytes of a page.
const PAGE_BYTES: u64 = BLOCK_BYTES as u64;
/// Bytes of a journal's header: a sector.
const HEADER_BYTES: u64 = 512;
/// Bytes beside the page in a journal's record: its number, and a checksum.
const RECORD_BYTES: u64 = 8;
/// Bytes of the header up to the number of pages, with the magic number before it.
const COUNTED_BYTES: u64 = 12;
/// Bytes of the header that are zeroed.
const ZEROED_BYTES: u64 = 28;

/// What ends a transaction, and with it its rollback journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rollback {
    /// It is deleted.
    Delete,
    /// It is cut to nothing.
    Truncate,
    /// Its header is zeroed.
    Persist,
}

/// See the head of this file.
pub(crate) struct Database {
    stage: Rc<Stage>,
    directory: InodeNumber,
    file: InodeNumber,
    rollback: Rollback,
    journal_name: String,
    journal: Option<InodeNumber>,
}

impl Database {
    /// A database of so many pages.
    pub(crate) async fn make(
        stage: &Rc<Stage>,
        directory: InodeNumber,
        number: u64,
        pages: u64,
        rollback: Rollback,
    ) -> Result<Database, FsError> {
        let name = format!("{number}.db");
        let new = NewNode::new(FileType::Regular, 0o660);
        let file = stage.filesystem.create(directory, name.as_bytes(), &new).await?;
        fill(&stage.filesystem, file, pages * PAGE_BYTES).await?;
        let (stage, journal_name) = (Rc::clone(stage), format!("{name}-journal"));
        Ok(Database { stage, directory, file, rollback, journal_name, journal: None })
    }

    /// A transaction that changes these pages.
    pub(crate) async fn commit(&mut self, pages: &[u64]) -> Result<(), FsError> {
        let stage = Rc::clone(&self.stage);
        stage.work(stage.host.sqlite_insert_us.value).await;
        let journal = self.journal().await?;
        stage.write(journal, 0, HEADER_BYTES).await?;
        let record = PAGE_BYTES + RECORD_BYTES;
        for nth in 0..pages.len() as u64 {
            stage.write(journal, HEADER_BYTES + nth * record, record).await?;
        }
        stage.synchronise(journal).await?;
        stage.synchronise(self.directory).await?;
        stage.write(journal, 0, COUNTED_BYTES).await?;
        stage.synchronise(journal).await?;
        for page in pages {
            stage.write(self.file, page * PAGE_BYTES, PAGE_BYTES).await?;
        }
        stage.synchronise(self.file).await?;
        self.end(journal).await
    }

    /// The journal, which is made if it is not there.
    async fn journal(&mut self) -> Result<InodeNumber, FsError> {
        if let Some(journal) = self.journal {
            return Ok(journal);
        }
        let journal = self.stage.create(self.directory, &self.journal_name).await?;
        self.journal = Some(journal);
        Ok(journal)
    }

    async fn end(&mut self, journal: InodeNumber) -> Result<(), FsError> {
        let stage = &self.stage;
        match self.rollback {
            Rollback::Delete => {
                self.journal = None;
                return stage.unlink(self.directory, &self.journal_name).await;
            }
            Rollback::Truncate => {
                stage.work(stage.host.write_us.value).await;
                stage.filesystem.truncate(journal, 0).await?;
            }
            Rollback::Persist => stage.write(journal, 0, ZEROED_BYTES).await?,
        }
        stage.synchronise(journal).await
    }
}
