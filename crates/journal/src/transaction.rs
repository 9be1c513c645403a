//! A *transaction*: the changes that go into the journal together. There is one running; it is locked, then
//! committing; when its commit block is transferred it is retired, and waits to be checkpointed.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use weir_ext4::journal::Sequence;
use weir_runtime::{Buffer as Memory, Instant};
use weir_storage::{Extent, Ticket};

use crate::buffer::BufferHead;
use crate::error::JournalError;
use crate::ranges::ChangedRanges;

/// How file data is submitted before a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataClass {
    /// In the stream's epoch, so that a barrier closes it in (J2).
    Ordered,
    /// Without order: the journal waits for it.
    Orderless,
}

/// A future that borrows what it works on; there is one thread.
pub type Local<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// File data that a transaction refers to, so that it must not be overtaken by the commit block (J2). The journal
/// knows nothing else of files.
pub trait OrderedData {
    /// Stands for the file: data is attached once.
    fn id(&self) -> u64;

    /// Submits the dirty data, and gives the tickets of it and of what is on its way already. Waits for nothing
    /// but queue space.
    fn submit(&self, class: DataClass) -> Local<'_, Result<Vec<Ticket>, JournalError>>;
}

/// The transaction that takes changes.
pub(crate) struct Running {
    pub(crate) sequence: Sequence,
    /// Handles that are open.
    pub(crate) handles: u32,
    /// Blocks that open handles may still change, by what they asked for.
    pub(crate) granted: u32,
    /// Nothing enters any more.
    pub(crate) locked: bool,
    pub(crate) buffers: BTreeMap<u64, Rc<BufferHead>>,
    pub(crate) revokes: BTreeSet<u64>,
    /// By [`OrderedData::id`].
    pub(crate) data: BTreeMap<u64, Rc<dyn OrderedData>>,
    /// What it frees (J7).
    pub(crate) freed: Vec<Extent>,
    /// Blocks that it has changed while an earlier transaction held them, and which (J4, policy list).
    pub(crate) conflicts: BTreeMap<u64, Sequence>,
    /// Dirty pages were dropped since it takes their blocks away: somebody may wait for it already.
    pub(crate) drops_pages: bool,
    /// When the first change came.
    pub(crate) since: Option<Instant>,
}

impl Running {
    pub(crate) fn new(sequence: Sequence) -> Running {
        Running {
            sequence,
            handles: 0,
            granted: 0,
            locked: false,
            buffers: BTreeMap::new(),
            revokes: BTreeSet::new(),
            data: BTreeMap::new(),
            freed: Vec::new(),
            conflicts: BTreeMap::new(),
            drops_pages: false,
            since: None,
        }
    }

    /// Nothing was changed, so there is nothing to commit.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffers.is_empty()
            && self.revokes.is_empty()
            && self.data.is_empty()
            && self.freed.is_empty()
            && !self.drops_pages
    }
}

/// A block as a locked transaction holds it: frozen, never changed again (J4).
#[derive(Clone)]
pub(crate) struct FrozenBlock {
    pub(crate) buffer: Rc<BufferHead>,
    pub(crate) content: Rc<Memory>,
    /// What the transaction has changed of it.
    pub(crate) changed: ChangedRanges,
}

/// A transaction that is locked: what it commits can change no more.
pub(crate) struct Locked {
    pub(crate) sequence: Sequence,
    pub(crate) frozen: Vec<FrozenBlock>,
    pub(crate) revokes: Vec<u64>,
    pub(crate) data: Vec<Rc<dyn OrderedData>>,
    pub(crate) freed: Vec<Extent>,
    /// The log's head behind it.
    pub(crate) log_end: u32,
}

/// A locked transaction whose commit block was dispatched, until that is transferred.
pub(crate) struct Dispatched {
    pub(crate) locked: Locked,
    /// Of D, JD and JC.
    pub(crate) tickets: Vec<Ticket>,
}

/// A transaction that is in the log, transferred, and not all home.
pub(crate) struct Retired {
    pub(crate) sequence: Sequence,
    /// Where the log's tail is when this and all before it are home.
    pub(crate) log_end: u32,
}

/// The newest committed content of blocks that is not home yet. Only what is transferred with its commit block
/// comes here (J5 a).
#[derive(Default)]
pub(crate) struct Unwritten {
    pub(crate) frozen: RefCell<BTreeMap<u64, (Sequence, FrozenBlock)>>,
}

impl Unwritten {
    /// Takes in what a retired transaction holds, and drops what it revokes: those blocks are somebody else's.
    pub(crate) fn take_in(&self, locked: &Locked) {
        let mut frozen = self.frozen.borrow_mut();
        for block in &locked.revokes {
            if let Some((_, old)) = frozen.remove(block) {
                unpin(&old);
            }
        }
        for copy in &locked.frozen {
            if let Some((_, old)) = frozen.insert(copy.buffer.block(), (locked.sequence, copy.clone())) {
                unpin(&old);
            }
        }
    }

    /// Forgets blocks that are home, unless a newer one has come.
    pub(crate) fn are_home(&self, written: &[(u64, Sequence)]) {
        let mut frozen = self.frozen.borrow_mut();
        for (block, sequence) in written {
            if frozen.get(block).is_some_and(|(newest, _)| newest == sequence)
                && let Some((_, old)) = frozen.remove(block)
            {
                unpin(&old);
            }
        }
    }
}

fn unpin(copy: &FrozenBlock) {
    copy.buffer.pins.set(copy.buffer.pins.get().saturating_sub(1));
}
