//! A *transaction*: the changes that go into the journal together, from when it is locked. It is committing then; when
//! its commit block is transferred it is retired, and waits to be checkpointed.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use weir_block::Class;
use weir_ext4::Checksums;
use weir_ext4::journal::Sequence;
use weir_format::FormatError;
use weir_runtime::Buffer as Memory;
use weir_storage::{Extent, Ticket};

use crate::buffer::BufferHead;
use crate::error::JournalError;
use crate::ranges::ChangedRanges;

/// A future that borrows what it works on; there is one thread.
pub type Local<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// File data that a transaction refers to, so that it must not be overtaken by the commit block (J2). The journal
/// knows nothing else of files.
pub trait OrderedData {
    /// Stands for the file: data is attached once.
    fn id(&self) -> u64;

    /// Submits the dirty data, in the stream's epoch or without order. The tickets of it, and of what was submitted before and is
    /// not transferred. Waits for queue space only.
    fn submit(&self, class: Class) -> Local<'_, Result<Vec<Ticket>, JournalError>>;
}

/// A block as a locked transaction holds it: frozen, never changed again (J4).
pub(crate) struct FrozenBlock {
    pub(crate) buffer: Rc<BufferHead>,
    pub(crate) content: Rc<Memory>,
    /// What the transaction has changed of it.
    pub(crate) changed: ChangedRanges,
    /// The transaction.
    sequence: Sequence,
}

impl FrozenBlock {
    /// A block as a transaction leaves it, sealed.
    pub(crate) fn from_buffer(
        buffer: Rc<BufferHead>,
        sequence: Sequence,
        checksums: &Checksums,
    ) -> Result<FrozenBlock, FormatError> {
        buffer.update_checksum(checksums)?;
        if buffer.changed_in.get() == Some(sequence) {
            buffer.changed_in.set(None);
        }
        buffer.held_by.set(Some(sequence));
        let (content, changed) = (buffer.snapshot(), buffer.take_changed());
        Ok(FrozenBlock { buffer, content, changed, sequence })
    }

    /// Whether no later transaction holds the block.
    pub(crate) fn is_newest(&self) -> bool {
        self.buffer.held_by.get() == Some(self.sequence)
    }
}

/// A transaction that is locked: what it commits can change no more.
pub(crate) struct Locked {
    pub(crate) sequence: Sequence,
    pub(crate) frozen: Vec<FrozenBlock>,
    /// Data that is written in place, with its checksums in the log (J10).
    pub(crate) in_place: Vec<FrozenBlock>,
    pub(crate) revokes: Vec<u64>,
    pub(crate) data: Vec<Rc<dyn OrderedData>>,
    pub(crate) freed: Vec<Extent>,
}

/// Where the log holds a block, whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoggedAt {
    /// Its place in the filesystem.
    pub(crate) place: u64,
    /// Its first bytes are not there, since they look like the log's own.
    pub(crate) escaped: bool,
}

/// A frozen block that is in the log.
pub(crate) struct LoggedBlock {
    pub(crate) buffer: Rc<BufferHead>,
    pub(crate) content: Rc<Memory>,
    /// None if the log holds its changes alone.
    pub(crate) at: Option<LoggedAt>,
}

/// A locked transaction that has its place in the log.
pub(crate) struct Logged {
    pub(crate) sequence: Sequence,
    pub(crate) blocks: Vec<LoggedBlock>,
    /// Data in place of which the log holds the checksums.
    pub(crate) in_place: Vec<Rc<BufferHead>>,
    pub(crate) revokes: Vec<u64>,
    #[expect(dead_code, reason = "files stay in memory until their data is transferred")]
    pub(crate) data: Vec<Rc<dyn OrderedData>>,
    pub(crate) freed: Vec<Extent>,
    /// The log's head behind it.
    pub(crate) log_end: u32,
}

/// A transaction whose commit block was dispatched, until that is transferred.
pub(crate) struct Dispatched {
    pub(crate) logged: Logged,
    /// Of D, JD and JC.
    pub(crate) tickets: Vec<Ticket>,
}
