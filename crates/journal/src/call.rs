//! A synchronisation call, as an engine answers it.

use weir_block::Class;
use weir_ext4::Kind;
use weir_ext4::journal::Sequence;
use weir_storage::Ticket;

use crate::buffer::{BufferHead, Role};
use crate::error::JournalError;
use crate::journal::Journal;

/// What a call promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// It is on the medium.
    Durable,
    /// It is before everything that comes later.
    Ordered,
}

impl Promise {
    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Promise::Durable => "durable",
            Promise::Ordered => "ordered",
        }
    }
}

/// The data of a file that is synchronised.
#[allow(async_fn_in_trait, reason = "there is one thread, so no future has to be sent to another")]
pub trait SyncedFile {
    /// Submits the dirty pages: all of `class` but the last write, which is of class `last`. Waits for queue space only.
    /// Whether there was something to submit.
    ///
    /// In order, what is on its way without joins the epoch (E7).
    ///
    /// # Errors
    /// Those of the storage.
    async fn submit_dirty(&self, class: Class, last: Class) -> Result<bool, JournalError>;

    /// The tickets of pages that are submitted and not transferred.
    fn untransferred(&self) -> Vec<Ticket>;

    /// Waits until pages that are submitted are transferred.
    ///
    /// # Errors
    /// Those of the storage.
    async fn wait_transferred(&self) -> Result<(), JournalError>;

    /// The newest transaction that has dropped dirty pages of the file, since it takes their blocks away.
    fn dropped_in(&self) -> Option<Sequence>;

    /// That a write of the file's pages has failed, ever since the file is in memory.
    ///
    /// # Errors
    /// That of the write.
    fn check_written(&self) -> Result<(), JournalError>;
}

/// The inode of a file that is synchronised. Without a journal its blocks are written one by one.
#[derive(Clone, Copy, Debug)]
pub struct SyncedInode {
    /// Its number.
    pub number: u32,
    /// The block of the inode table that it is in.
    pub table: u64,
    /// The directory in which it has got a name since it was synchronised last, and the block of that one's inode.
    pub named_in: Option<(u32, u64)>,
}

impl SyncedInode {
    /// Whether a block is needed to find the file and what it holds.
    pub(crate) fn needs(&self, buffer: &BufferHead) -> bool {
        let named_in = self.named_in;
        match buffer.role() {
            Role::Metadata(Kind::InodeTable) => {
                buffer.block() == self.table || named_in.is_some_and(|(_, table)| table == buffer.block())
            }
            Role::Metadata(Kind::Extents { inode, .. }) => inode == self.number,
            Role::Metadata(Kind::Directory { inode, .. } | Kind::DirectoryIndex { inode, .. }) => {
                inode == self.number || named_in.is_some_and(|(directory, _)| directory == inode)
            }
            Role::Metadata(_) | Role::Data => false,
        }
    }
}

/// What a call asks for a file.
#[derive(Clone, Copy)]
pub struct SyncRequest<'a, F> {
    /// The journal.
    pub journal: &'a Journal,
    /// The file.
    pub file: &'a F,
    /// Its inode.
    pub inode: SyncedInode,
    /// The transaction that changed last what the call covers of the file's inode.
    pub changed_in: Option<Sequence>,
    /// What the file holds is in the log with that transaction, and nowhere else (journal mode data).
    pub in_log: bool,
    /// A call that finds nothing dirty commits the running transaction (J3).
    pub forces_commits: bool,
}

impl<F: SyncedFile> SyncRequest<'_, F> {
    /// Does what a call promises, as the engine has it. An error aborts the journal: no call that comes later promises
    /// anything either.
    ///
    /// # Errors
    /// Those of the journal, and of every write of the file.
    pub async fn keep_promise(self, promise: Promise) -> Result<(), JournalError> {
        let SyncRequest { journal, file, .. } = self;
        let done = journal.engine().synchronise(promise, self).await;
        done.and_then(|()| file.check_written()).inspect_err(|error| journal.abort(error.stop_reason()))
    }
}

/// The later of two transactions.
pub(crate) fn later_of(one: Option<Sequence>, other: Option<Sequence>) -> Option<Sequence> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.is_after(one) { other } else { one }),
        (one, other) => one.or(other),
    }
}
